"""`manystream demo`: many live streams over four dialects from the simulator, through the real engine, all checked.

Knows how the pieces are put together: simulator process, engine, streams, display. Must not know what a stream is
checked for (`demo_streams`) nor how figures look (`demo_display`).
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from ..bench.latency import percentile
from ..engine import Call, Engine, open_engine
from ..providers.provider import Anthropic, Gemini, OpenAIChat, OpenAIResponses, Provider
from ..simulator import Simulator, SimulatorError, open_simulator
from .demo_display import Display
from .demo_streams import DemoStream, plan_streams
from .errors import CommandError
from .terminal import Paint, duration, is_terminal

HELP = "a thousand live streams over four dialects, from the built-in simulator, all of them checked"
DESCRIPTION = """\
Start the simulator in a process of its own, open many concurrent streams over the four dialects (text, thinking and
tool calls mixed), and show what happens: streams open, events a second, delivery latency from the simulator's send to
the callback. At the end every stream's content must equal what the simulator sent, with exactly one completion each.

  manystream demo                                   a thousand streams, ten seconds
  manystream demo --streams 4000 --rate 10          more of them, slower ones
  manystream demo --seconds 60 --monitor            and `manystream top` in another terminal

Exit status: 0 every stream is as sent, 1 one is not, 2 called wrongly, 130 interrupted (the table is shown).
"""

PROVIDERS: dict[str, type[Provider]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic": Anthropic,
    "gemini": Gemini,
}
"""Dialect → the class that speaks it."""

RAMP = 1.0
"""Seconds over which the streams are started: their pace then keeps them apart, as callers in the world are."""
RAMP_STEP = 0.01
LOOK_INTERVAL = 0.5
PLAIN_LOOK_INTERVAL = 1.0
SHOWN_FAILURES = 10
SPARE_DESCRIPTORS = 64


@dataclass(slots=True, frozen=True)
class DemoOptions:
    """The command line, checked. rate: events a second in each stream. plain: lines, also on a terminal."""

    streams: int
    seconds: float
    rate: float
    monitor: bool
    plain: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--streams", type=int, default=1000, metavar="N", help="how many at once (default: 1000)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="how long each runs (default: 10)")
    parser.add_argument("--rate", type=float, default=50.0, metavar="R", help="events a second in each (default: 50)")
    parser.add_argument("--monitor", action="store_true", help="let `manystream top` look at it meanwhile")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; the exit status."""
    options = DemoOptions(
        streams=arguments.streams,
        seconds=arguments.seconds,
        rate=arguments.rate,
        monitor=arguments.monitor,
        plain=arguments.plain or not is_terminal(sys.stdout),
    )
    for name, value in (("streams", options.streams), ("seconds", options.seconds), ("rate", options.rate)):
        if not (math.isfinite(value) and value > 0):
            raise CommandError(f"--{name} must be above 0, not {value:g}", status=2)
    _allow_descriptors(options.streams + SPARE_DESCRIPTORS)
    try:
        return trio.run(_demo, options)
    except SimulatorError as error:
        raise CommandError(str(error)) from None


def _allow_descriptors(count: int) -> None:
    """Raise this process's limit of open files, which the simulator inherits. Raises `CommandError`."""
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


async def _demo(options: DemoOptions) -> int:
    all_counters, streams = plan_streams(options.streams, list(PROVIDERS), seconds=options.seconds, rate=options.rate)
    with open_simulator() as simulator:
        async with open_engine(providers=_providers(simulator), proxy="", monitor=options.monitor) as engine:
            print(
                f"{options.streams:,} streams over {len(all_counters)} dialects,"
                f" {options.rate:g} events a second in each, for {options.seconds:g} s\n",
                flush=True,
            )
            cpu = time.process_time()
            display = Display(all_counters, options.seconds + RAMP, plain=options.plain)
            interrupted = await _run_streams(engine, streams, display, options)
            elapsed, cpu = display.elapsed, time.process_time() - cpu
            display.close()
    events = max(1, sum(counters.events for counters in all_counters))
    everything = display.print_summary(elapsed, plain=options.plain)
    failures = [(stream.name, found) for stream in streams if stream.counters.started for found in stream.differences()]
    print(
        f"\n{display.peak:,} streams were open at once. Delivery latency, from the simulator's send to the callback, is"
        f" measured on each text event\nof every second stream ({sum(everything.values()):,} events):"
        f" p50 {duration(percentile(everything, 0.5))}, p99 {duration(percentile(everything, 0.99))},"
        f" worst {duration(percentile(everything, 1.0))}.\nThis process took {cpu:.1f} s of processor time in"
        f" {elapsed:.1f} s: {cpu / events * 1e6:.1f} µs an event, checks and display included."
    )
    if interrupted:
        return 130
    return _verdict(len(streams), failures)


def _providers(simulator: Simulator) -> list[Provider]:
    return [
        speaks(api_key="simulated", base_url=simulator.base_urls[dialect], name=dialect)
        for dialect, speaks in PROVIDERS.items()
    ]


async def _run_streams(engine: Engine, streams: Sequence[DemoStream], display: Display, options: DemoOptions) -> bool:
    """Start all streams and wait for the end of all; whether Ctrl-C ended them."""
    calls: list[Call] = []
    interrupted = False
    async with trio.open_nursery() as nursery:

        async def look() -> None:
            while True:
                await trio.sleep(PLAIN_LOOK_INTERVAL if options.plain else LOOK_INTERVAL)
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
            due = math.ceil(len(streams) * min(1.0, (display.elapsed + RAMP_STEP) / RAMP))
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
            paint("Everything is as sent:", "green")
            + f" {count:,} streams, each with its content whole, in order, and exactly one completion."
        )
        return 0
    wrong = len({name for name, _ in failures})
    print(paint(f"{wrong:,} of {count:,} streams are not as sent:", "red"))
    for name, found in failures[:SHOWN_FAILURES]:
        print(f"  {name}: {found}")
    if len(failures) > SHOWN_FAILURES:
        print(f"  … and {len(failures) - SHOWN_FAILURES:,} more")
    return 1
