"""`manystream simulate`: the simulator in the foreground.

Knows the command line. Must not know how the simulator does what it does.
"""

from __future__ import annotations

import argparse
import inspect
import signal

from ..simulator import HEADER, KnobError, Knobs, ReplayError, Settings, Simulator, serve, settings_of
from ..simulator.knobs import READERS
from ..simulator.service import BASE_PATHS
from .errors import CommandError

HELP = "the simulator of the four dialects, in the foreground"
DESCRIPTION = """\
Serve the four dialects on this machine, until Ctrl-C. What is answered depends on knobs; those given here hold for
every request that does not say otherwise.

  manystream simulate rate=50 kind=mixed
  manystream simulate --port 8080 fail=429 retry-after=2 times=3
  manystream simulate --replay traffic.jsonl --pace 10     what `engine.record` wrote, ten times as fast
"""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="0 takes a free one (default)")
    parser.add_argument("--replay", default="", metavar="FILE", help="answer from a recording (see engine.record)")
    parser.add_argument(
        "--pace",
        type=float,
        default=1.0,
        metavar="X",
        help="how much faster than recorded; 0: without pauses (default: 1)",
    )
    parser.add_argument("knobs", nargs="*", metavar="KNOB=VALUE", help="what is answered, and how; see below")
    width = max(map(len, READERS))
    knobs = "\n".join(f"  {name.replace('_', '-'):{width}}  {takes}" for name, (_, takes) in READERS.items())
    parser.epilog = (
        f"knobs, which a request may also carry in its header {HEADER}, in a last user message that begins with"
        f" 'simulate:',\nor after the @ of a model such as sim-mixed@events=40,rate=20:\n\n{knobs}\n\n"
        + (inspect.getdoc(Knobs) or "").partition("\n\n")[2]
        + "\n\nExit status: 0 ended by SIGTERM, 1 it cannot listen there, 2 called wrongly, 130 interrupted."
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; the exit status."""
    settings = _read_settings(arguments)
    interrupted = False

    def end(number: int, _: object) -> None:
        nonlocal interrupted
        interrupted = number == signal.SIGINT
        raise KeyboardInterrupt

    # A shell starts background commands with SIGINT ignored, and SIGTERM ends a process mid-way: here both end well.
    before = {number: signal.signal(number, end) for number in ENDING_SIGNALS}
    try:
        serve(settings, _announce)
    except KeyboardInterrupt:
        pass  # before it was listening
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CommandError(f"cannot listen on {settings.host} port {settings.port}: {reason}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 130 if interrupted else 0


def _read_settings(arguments: argparse.Namespace) -> Settings:
    directive = ",".join(arguments.knobs)
    if arguments.replay and directive:
        raise CommandError("--replay answers what was recorded: leave the knobs out", status=2)
    try:
        return settings_of(
            directive, host=arguments.host, port=arguments.port, replay=arguments.replay, pace=arguments.pace
        )
    except (KnobError, ReplayError) as error:
        raise CommandError(str(error), status=2) from None


def _announce(simulator: Simulator) -> None:
    width = max(map(len, BASE_PATHS))
    for dialect in BASE_PATHS:
        print(f"{dialect:{width}}  {simulator.base_urls[dialect]}")
    print("Any key is taken. Ctrl-C ends it.", flush=True)
