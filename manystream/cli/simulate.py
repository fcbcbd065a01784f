"""The command `manystream simulate`: it runs the simulator in the foreground."""

from __future__ import annotations

import argparse
import inspect
import signal

from ..simulator import HEADER, KnobError, Knobs, Limit, ReplayError, Settings, Simulator, serve, settings_of
from ..simulator.batches import BatchTime
from ..simulator.inference import BatchModel
from ..simulator.knobs import READERS
from ..simulator.prompt_caches import CacheModel
from ..simulator.replica import Replica
from ..simulator.service import BASE_PATHS
from .options import add_address, listening
from .output.errors import CommandError

DESCRIPTION = """\
Serve the five dialects on this machine until Ctrl-C. Knobs control the answers. The knobs of the command line are the
defaults; a request can override them.

  manystream simulate rate=50 kind=mixed
  manystream simulate --port 8080 fail=429 retry-after=2 times=3
  manystream simulate --replay traffic.jsonl --pace 10     replay a file of `engine.record`, ten times as fast
  manystream simulate --limit "requests-per-minute=600 tokens-per-minute=90000"
  manystream simulate --replica speed=1 --replica "fail=0.3 outage=10-20:hang"
"""

OPTIONS = (
    ("LIMIT", Limit), ("BATCH", BatchModel), ("TIME", BatchTime), ("CACHES", CacheModel), ("REPLICA", Replica),
)  # fmt: skip
"""Option that takes NAME=VALUE pairs → the class that describes them."""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_address(parser)
    add = parser.add_argument
    add("--replay", default="", metavar="FILE", help="answer from a recording (see `engine.record`)")
    add(
        "--pace",
        type=float,
        default=1.0,
        metavar="X",
        help="the speed of --replay, as a multiple of the recorded one; 0: without pauses (default: 1)",
    )
    add("--limit", action="append", default=[], metavar="LIMIT", help="a rate limit; repeatable; see below")
    add("--batch", default="", metavar="BATCH", help="answer as one inference server; see below")
    add(
        "--batch-time",
        default="",
        metavar="TIME",
        help="the seconds that a batch of a batch interface takes: a number, or NAME=VALUE pairs; see below",
    )
    add("--caches", default="", metavar="CACHES", help="cache the beginnings of prompts; see below")
    add(
        "--replica",
        action="append",
        default=[],
        metavar="REPLICA",
        help="a server on its own port; repeatable; see below",
    )
    add("knobs", nargs="*", metavar="KNOB=VALUE", help="a knob of the answers; see below")
    width = max(map(len, READERS))
    knobs = "\n".join(f"  {name.replace('_', '-'):{width}}  {takes}" for name, (_, takes) in READERS.items())
    parser.epilog = (
        f"knobs:\n{knobs}\n\n"
        + _attributes(Knobs)
        + "\n\na request sets knobs in one of these places:"
        + f"\n  its header {HEADER}"
        + "\n  its last user message, which then begins with 'simulate:'"
        + "\n  its model, if that begins with sim, after an @: sim@fail=503, sim-mixed@events=40,rate=20"
        + "".join(f"\n\n{name}: NAME=VALUE pairs, separated by spaces\n{_attributes(kind)}" for name, kind in OPTIONS)
        + "\n\nexit status:"
        + "\n  0    ended by SIGTERM"
        + "\n  1    it cannot listen at this address and port"
        + "\n  2    the command line is wrong"
        + "\n  130  interrupted"
    )


def _attributes(kind: type) -> str:
    """The attributes of a class, from its docstring."""
    return (inspect.getdoc(kind) or "").partition("\n\n")[2]


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal arrives, and return the exit status."""
    settings = _read_settings(arguments)
    interrupted = False

    def end(number: int, _: object) -> None:
        nonlocal interrupted
        interrupted = number == signal.SIGINT
        raise KeyboardInterrupt

    # A shell starts background commands with SIGINT ignored, and SIGTERM kills a process by default. Both must end the
    # server in order.
    before = {number: signal.signal(number, end) for number in ENDING_SIGNALS}
    try:
        with listening(arguments):
            serve(settings, _announce)
    except KeyboardInterrupt:
        pass  # the signal arrived before the server was listening
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 130 if interrupted else 0


def _read_settings(arguments: argparse.Namespace) -> list[Settings]:
    directive = ",".join(arguments.knobs)
    if arguments.replay and directive:
        raise CommandError("--replay answers from the recording: leave the knobs out", status=2)
    try:
        return settings_of(
            directive,
            host=arguments.host,
            port=arguments.port,
            replay=arguments.replay,
            pace=arguments.pace,
            limits=arguments.limit,
            batch=arguments.batch,
            batch_time=arguments.batch_time,
            caches=arguments.caches,
            replicas=arguments.replica,
        )
    except (KnobError, ReplayError) as error:
        raise CommandError(str(error), status=2) from None


def _announce(simulator: Simulator) -> None:
    width = max(map(len, BASE_PATHS))
    for replica in simulator.replicas:
        for dialect in BASE_PATHS:
            print(f"{dialect:{width}}  {replica.base_urls[dialect]}")
    print("Every key is accepted. Ctrl-C ends the simulator.", flush=True)
