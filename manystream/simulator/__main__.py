"""The simulator's command line: `python -m manystream.simulator --port 8080 --default rate=50,events=250`."""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys
from collections.abc import Sequence

from .knobs import KnobError
from .process import Simulator, serve, settings_of
from .replay import ReplayError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a simulator until interrupted. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="simulator", description="A loopback server that speaks five LLM dialects.")
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0 takes a free port")
    add("--journal", type=int, default=256, help="how many requests /sim/requests returns")
    add("--default", default="", dest="directive", metavar="KNOBS", help="knobs of all answers, as in x-simulate")
    add("--replay", default="", metavar="FILE", help="answer from a recording")
    add("--pace", type=float, default=1.0, help="speed relative to the recording; 0 leaves out pauses")
    add("--limit", action="append", default=[], dest="limits", metavar="LIMIT", help="requests-per-minute=600")
    add("--batch", default="", help="one inference server: step=0.02 kv=100000 queue=64")
    add("--batch-time", default="", help="seconds that a batch takes: 420, or median=420 p90=3600")
    add("--caches", default="", help="prompt caches: machines=4 lag=0.5 cold=3 warm=0.6")
    add("--replica", action="append", default=[], dest="replicas", metavar="REPLICA", help="speed=0.1 fail=0.3")
    add("--child", action="store_true", help="print the address as JSON, stop when stdin ends")
    options = parser.parse_args(arguments)
    given = {name: value for name, value in vars(options).items() if name != "child"}
    try:
        settings = settings_of(**given)
    except (KnobError, ReplayError) as error:
        parser.error(str(error))
    if options.child:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the child too; the parent ends it
    gc.freeze()  # imported modules stay: the garbage collector need not scan them
    try:
        serve(settings, _announce_to_parent if options.child else _announce_to_user, watch=0 if options.child else None)
    except OSError as error:
        parser.error(f"cannot listen on {options.host}:{options.port}: {error.strerror}")
    return 0


def _announce_to_parent(simulator: Simulator) -> None:
    print(json.dumps([simulator.host, [replica.port for replica in simulator.replicas]]), flush=True)


def _announce_to_user(simulator: Simulator) -> None:
    print(f"simulator at {simulator.origin}, process {simulator.pid}; ends with Ctrl-C", flush=True)


if __name__ == "__main__":
    sys.exit(main())
