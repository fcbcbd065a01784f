"""The command `manystream demo`: it runs many streams over five dialects with the real engine, and checks them all.

The simulator, in another process, sends the streams.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Sequence

import trio

from .. import Call, Engine, Provider, open_engine
from ..bench.histogram import percentile
from ..providers.catalog.provider import DIALECT_CLASSES
from ..simulator import Simulator, SimulatorError, open_simulator
from ..simulator.service import BASE_PATHS
from .demo_display import Display
from .demo_streams import DemoStream, plan_streams
from .options import add_number
from .output.errors import CommandError
from .output.terminal import Paint, can_redraw, duration

DESCRIPTION = """\
Start the simulator in another process and open many concurrent streams over the five dialects, with text, thinking and
tool calls. Show the open streams, the events per second, and the latency from the simulator's send to the callback. At
the end, each stream's content must equal what the simulator sent, with exactly one completion.

  manystream demo                                   a thousand streams for ten seconds
  manystream demo --streams 4000 --rate 10          more streams with fewer events
  manystream demo --seconds 60 --monitor            to watch with `manystream top` in another terminal

exit status:
  0    every stream equals what was sent
  1    at least one stream differs
  2    the command line is wrong
  130  interrupted; the table is shown
"""

RAMP = 1.0
"""The time over which the streams are started, in seconds, so that their events do not all arrive at the same time."""
RAMP_STEP = 0.01
LOOK_INTERVAL = 0.5
PLAIN_LOOK_INTERVAL = 1.0
SHOWN_FAILURES = 10
SPARE_DESCRIPTORS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_number(parser, "--streams", kind=int, default=1000, metavar="N", help="streams at a time (default: 1000)")
    add_number(parser, "--seconds", default=10.0, metavar="S", help="seconds that each stream takes (default: 10)")
    add_number(parser, "--rate", default=50.0, metavar="R", help="events per second of each stream (default: 50)")
    parser.add_argument("--monitor", action="store_true", help="allow `manystream top` to show this process")
    parser.add_argument("--plain", action="store_true", help="print plain lines, also on a terminal")


def run(arguments: argparse.Namespace) -> int:
    arguments.plain |= not can_redraw(sys.stdout)
    _allow_descriptors(arguments.streams + SPARE_DESCRIPTORS)
    try:
        return trio.run(_demo, arguments)
    except SimulatorError as error:
        raise CommandError(str(error)) from None


def _allow_descriptors(count: int) -> None:
    """Raise the limit of open files of this process, which the simulator inherits.

    count: the number of files that are needed. Raises `CommandError` if the system does not allow so many.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise CommandError(f"this needs {count} open files and the system allows {hard}: use fewer --streams")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


async def _demo(given: argparse.Namespace) -> int:
    all_counters, streams = plan_streams(given.streams, list(BASE_PATHS), seconds=given.seconds, rate=given.rate)
    with open_simulator() as simulator:
        async with open_engine(providers=_providers(simulator), proxy="", monitor=given.monitor) as engine:
            print(
                f"{given.streams:,} streams over {len(all_counters)} dialects,"
                f" {given.rate:g} events per second each, for {given.seconds:g} s\n",
                flush=True,
            )
            cpu = time.process_time()
            display = Display(all_counters, given.seconds + RAMP, plain=given.plain)
            interrupted = await _run_streams(engine, streams, display, given)
            elapsed, cpu = display.elapsed, time.process_time() - cpu
            display.close()
    events = max(1, sum(counters.events for counters in all_counters))
    everything = display.print_summary(elapsed, plain=given.plain)
    print(
        f"\n{display.peak:,} streams were open at once. The latency from the simulator's send to the callback was"
        f" measured\nfor each text event of every second stream ({sum(everything.values()):,} events):"
        f" p50 {duration(percentile(everything, 0.5))}, p99 {duration(percentile(everything, 0.99))},"
        f" worst {duration(percentile(everything, 1.0))}.\nThis process used {cpu:.1f} s of processor time in"
        f" {elapsed:.1f} s: {cpu / events * 1e6:.1f} µs per event, checks and display included."
    )
    if interrupted:
        return 130
    return _verdict(len(streams), [(stream.name, found) for stream in streams for found in stream.differences()])


def _providers(simulator: Simulator) -> list[Provider]:
    return [
        DIALECT_CLASSES[dialect](api_key="simulated", base_url=simulator.base_urls[dialect], name=dialect)
        for dialect in BASE_PATHS
    ]


async def _run_streams(
    engine: Engine, streams: Sequence[DemoStream], display: Display, given: argparse.Namespace
) -> bool:
    """Start all streams and wait until all have ended. Return whether Ctrl-C ended them."""
    calls: list[Call] = []
    interrupted = False
    async with trio.open_nursery() as nursery:

        async def look() -> None:
            while True:
                await trio.sleep(PLAIN_LOOK_INTERVAL if given.plain else LOOK_INTERVAL)
                display.look()

        async def cancel_on_signal() -> None:
            nonlocal interrupted
            with trio.open_signal_receiver(signal.SIGINT) as signals:
                async for _ in signals:
                    interrupted = True
                    for call in calls:
                        call.cancel()

        nursery.start_soon(look)
        nursery.start_soon(cancel_on_signal)
        while len(calls) < len(streams) and not interrupted:
            due = math.ceil(len(streams) * (display.elapsed + RAMP_STEP) / RAMP)
            calls += [_start(engine, stream) for stream in streams[len(calls) : due]]
            await trio.sleep(RAMP_STEP)
        for call in calls:
            await call.wait()
        nursery.cancel_scope.cancel()
    return interrupted


def _start(engine: Engine, stream: DemoStream) -> Call:
    stream.counters.started += 1
    on_event = stream.on_stamped_event if stream.recipe.stamped else stream.on_event
    return engine.start_stream(stream.request, on_event, stream.on_completion)


def _verdict(count: int, failures: Sequence[tuple[str, str]]) -> int:
    paint = Paint(sys.stdout)
    if not failures:
        print(
            paint("All content equals what was sent:", "green")
            + f" {count:,} streams, each complete, in order, and with exactly one completion."
        )
        return 0
    wrong = len({name for name, _ in failures})
    print(paint(f"{wrong:,} of {count:,} streams differ from what was sent:", "red"))
    for name, found in failures[:SHOWN_FAILURES]:
        print(f"  {name}: {found}")
    if len(failures) > SHOWN_FAILURES:
        print(f"  … and {len(failures) - SHOWN_FAILURES:,} more")
    return 1
