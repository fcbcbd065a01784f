"""The command `manystream bench`: a load test of an endpoint, a proxy, or this machine, with the real engine."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import trio

from ..bench.figures import Result
from ..bench.load import Load, Plan
from ..bench.report import result_object
from ..engine import open_engine
from ..engine.request.credentials import is_loopback
from ..providers.catalog.provider import Provider
from ..providers.errors import InvalidRequestError
from ..providers.json.json_values import JSONObject, dumps_printable
from ..providers.model.messages import Message
from ..providers.model.options import Retry
from ..providers.model.request import Request
from ..simulator import KnobError, SimulatorError, open_simulator
from ..simulator.process import allow_many_sockets
from .addresses import DIALECT_CLASSES, provider_at
from .bench_report import Progress, result_lines, step_row, step_table
from .output.errors import CommandError
from .output.terminal import Paint, duration, harmless, one_line
from .run import RunOptions, choose_provider, read_headers

DESCRIPTION = """\
Keep a number of calls to an endpoint running, and report: calls by outcome, time to the first content, events and
tokens per second, gaps between the events of a stream, and the processor time of this client.

  manystream bench                                                  the built-in simulator: no key, no cost
  manystream bench http://127.0.0.1:8000/v1 --model llama3.2 --concurrency 50
  manystream bench https://proxy.example/v1 --model gpt-5-mini --requests 200 --no-stream
  manystream bench https://api.anthropic.com --dialect anthropic --model claude-sonnet-4-5 --concurrency 5
  manystream bench --streams 1,10,100,1000,2000 --simulate rate=50,events=1000
  manystream bench http://127.0.0.1:8000/v1 --model m --json | jq .gap.p99

A provider charges for the calls of a bench as for any others.
"""
EPILOG = """\
what is measured:
  First the calls are started one after another (--ramp). Then events, gaps, tokens and processor time are measured for
  --seconds. If the ramp starts all calls (--requests), they are measured from the start of the ramp. Calls that still
  run at the end are cancelled and are not failures. No call is tried again.
  A server reports tokens when a call ends. The tokens of streams are estimated from the events in the measured time.
  The tokens of an unstreamed call count only if it ends in the measured time.

  A wait that the end cuts off is counted if it is longer than the p99 of the others: a server may have stalled.

--streams searches for the most streams whose 99th percentile of gaps (p99) stays within a bound. It measures each
number in turn, and ends with the first that exceeds the bound, or in which a stream receives nothing. The bound is
--max-gap; without it, the p99 of the first step plus 50 ms.

Keys are read as in `manystream run`. A server on this machine needs no key.

exit status:
  0    every call succeeded (with --streams: at least one step stayed within the bound)
  1    some calls failed, or nothing was received
  2    the command line is wrong
  130  interrupted; the figures so far are shown
"""

DEFAULT_MODELS = {
    "openai-chat": "gpt-5-mini",
    "openai-responses": "gpt-5-mini",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-2.5-flash",
}
PROMPT = "Describe the rivers of Europe in about 300 words."
SIMULATED = {True: "rate=50,events=250", False: "events=32"}
"""Whether calls are streamed → the knobs of the built-in simulator."""

STARTS_A_SECOND = 500.0
"""Calls per second that the default ramp starts."""
SECONDS, STEP_SECONDS = 10.0, 5.0
"""The default length of a run, and of each step of a search, in seconds."""
MORE_GAP = 0.05
"""The default bound of a search is the first step's p99 plus so many seconds."""


@dataclass(slots=True, frozen=True)
class BenchOptions:
    """The options of `manystream bench`, checked.

    url: the server's base URL, or None.
    dialect: the dialect that the URL speaks.
    model: the model's name, or None.
    provider: the provider's name, or None.
    concurrency: calls at a time.
    steps: the numbers of streams of a search, in rising order; empty for one run of `concurrency` calls.
    max_gap: the bound of a search, in seconds; None for the default.
    seconds: how long to measure.
    requests: the number of calls; None for as many as the time allows.
    ramp: the time over which the first calls are started, in seconds; None for the default.
    stream: whether to stream the calls.
    prompt: the prompt.
    max_tokens: the longest answer in tokens, or None.
    headers: additional request headers.
    knobs: the knobs of the built-in simulator.
    monitor: whether `manystream top` can watch the engine.
    json: whether to print the results as JSON.
    """

    url: str | None
    dialect: str
    model: str | None
    provider: str | None
    concurrency: int
    steps: tuple[int, ...]
    max_gap: float | None
    seconds: float
    requests: int | None
    ramp: float | None
    stream: bool
    prompt: str
    max_tokens: int | None
    headers: Mapping[str, str]
    knobs: str
    monitor: bool
    json: bool

    @property
    def simulated(self) -> bool:
        """Whether the simulator answers, because no URL, provider or model was named."""
        return self.url is None and self.provider is None and self.model is None


@dataclass(slots=True, frozen=True)
class Target:
    """The server that is measured.

    provider: the provider.
    model: the provider's name of the model.
    simulator: the process id of the built-in simulator, or None for another server.
    """

    provider: Provider
    model: str
    simulator: int | None = None

    @property
    def shown(self) -> str:
        """The server's URL without a password."""
        url = urlsplit(self.provider.base_url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `manystream bench` to the parser."""
    parser.add_argument("url", nargs="?", metavar="URL", help="a server's base URL (default: the built-in simulator)")
    parser.add_argument(
        "--dialect",
        choices=list(DEFAULT_MODELS),
        default="openai-chat",
        help="the dialect of the URL (default: openai-chat)",
    )
    parser.add_argument("--model", metavar="MODEL", help="the model; without a URL, its name selects the provider")
    parser.add_argument("--provider", metavar="PROVIDER", help="the provider; see `manystream run --help`")
    parser.add_argument("--concurrency", "-c", type=int, default=10, metavar="N", help="calls at a time (default: 10)")
    parser.add_argument("--streams", metavar="N,N,…", help="search: measure these numbers of streams in turn")
    parser.add_argument(
        "--max-gap", type=float, metavar="MS", help="the bound of a search, in milliseconds (default: see below)"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="seconds to measure (default: 10; 5 for each step of a search)"
    )
    parser.add_argument(
        "--requests", "-n", type=int, metavar="N", help="end after N calls, or after --seconds (default: no limit)"
    )
    parser.add_argument(
        "--ramp", type=float, metavar="S", help="start the first calls within S seconds (default: 500 calls per second)"
    )
    parser.add_argument("--no-stream", action="store_true", help="make unstreamed calls")
    parser.add_argument("--prompt", default=PROMPT, metavar="TEXT", help=f"the prompt (default: {PROMPT!r})")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="the longest answer, in tokens")
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="an additional request header; repeatable"
    )
    parser.add_argument(
        "--simulate",
        metavar="KNOBS",
        help="how the built-in simulator answers; see `manystream simulate --help`"
        f" (default: {SIMULATED[True]}; unstreamed: {SIMULATED[False]})",
    )
    parser.add_argument("--monitor", action="store_true", help="allow `manystream top` to show this process")
    parser.add_argument("--json", action="store_true", help="print the results as one line of JSON")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the results, and return the exit status."""
    options = _read_options(arguments)
    allow_many_sockets()
    try:
        with _open_target(options) as target:
            return trio.run(_bench, options, target)
    except KnobError as error:
        raise CommandError(f"--simulate: {error}", status=2) from None
    except SimulatorError as error:
        raise CommandError(str(error)) from None
    except InvalidRequestError as error:
        raise CommandError(str(error)) from None


def _read_options(arguments: argparse.Namespace) -> BenchOptions:
    steps = _read_steps(arguments.streams)
    seconds: float | None = arguments.seconds
    options = BenchOptions(
        url=arguments.url,
        dialect=arguments.dialect,
        model=arguments.model,
        provider=arguments.provider,
        concurrency=arguments.concurrency,
        steps=steps,
        max_gap=arguments.max_gap / 1000 if arguments.max_gap is not None else None,
        seconds=seconds if seconds is not None else STEP_SECONDS if steps else SECONDS,
        requests=arguments.requests,
        ramp=arguments.ramp,
        stream=not arguments.no_stream,
        prompt=arguments.prompt,
        max_tokens=arguments.max_tokens,
        headers=read_headers(arguments.header),
        knobs=arguments.simulate if arguments.simulate is not None else SIMULATED[not arguments.no_stream],
        monitor=arguments.monitor,
        json=arguments.json,
    )
    above_zero = {
        "concurrency": options.concurrency,
        "seconds": options.seconds,
        "requests": options.requests,
        "max-gap": options.max_gap,
        "max-tokens": options.max_tokens,
    }
    for name, value in above_zero.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise CommandError(f"--{name} must be above 0, not {value:g}", status=2)
    if options.ramp is not None and not (math.isfinite(options.ramp) and options.ramp >= 0):
        raise CommandError(f"--ramp must not be below 0: {options.ramp:g}", status=2)
    if steps and not options.stream:
        raise CommandError("--streams measures the gaps of streams: leave --no-stream out", status=2)
    if steps and options.requests is not None:
        raise CommandError("--streams measures each step for --seconds: leave --requests out", status=2)
    if arguments.simulate is not None and not options.simulated:
        raise CommandError("--simulate is for the built-in simulator: leave URL, --model and --provider out", status=2)
    return options


def _read_steps(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        steps = tuple(sorted({int(number) for number in text.split(",")}))
    except ValueError:
        steps = (0,)
    if steps[0] <= 0:
        raise CommandError(f"--streams takes numbers above 0, such as 1,10,100, not {text!r}", status=2)
    return steps


@contextmanager
def _open_target(options: BenchOptions) -> Generator[Target, None, None]:
    if options.simulated:
        with open_simulator(options.knobs, journal=0) as simulator:
            url = simulator.base_urls[options.dialect]
            yield Target(DIALECT_CLASSES[options.dialect]("any", url), "simulated", simulator.pid)
        return
    if options.url is not None and options.provider is None:
        provider = provider_at(options.url, options.dialect, os.environ)
        yield Target(provider, options.model or DEFAULT_MODELS[options.dialect])
        return
    wanted = RunOptions(
        provider=options.provider,
        model=options.model,
        base_url=options.url,
        system=None,
        thinking=None,
        max_output_tokens=None,
        headers={},
        attempts=1,
        stream=options.stream,
        prompt="",
    )
    yield Target(*choose_provider(wanted, os.environ))


async def _bench(options: BenchOptions, target: Target) -> int:
    streamed = "streams" if options.stream else "unstreamed calls"
    what = f"{harmless(target.shown)}, {target.provider.profile.dialect_name}, model {harmless(target.model)}"
    if not options.json:
        much = f"{len(options.steps)} steps" if options.steps else f"{options.concurrency:,} at a time"
        print(f"{what}: {streamed}, {much}, {options.seconds:g} s", flush=True)
        if options.simulated:
            print(f"No URL was given: the built-in simulator answers ({options.knobs}).", file=sys.stderr)
    about: JSONObject = {
        "url": target.shown,
        "dialect": target.provider.profile.dialect_name,
        "model": target.model,
        "simulated": options.simulated,
    }
    if options.steps:
        return await _search(options, target, about)
    result = await _measure(options, target, options.concurrency)
    if options.json:
        print(dumps_printable(about | result_object(result)).decode())
    else:
        print("\n" + "\n".join(result_lines(result, Paint(sys.stdout))))
    return _status(result)


async def _measure(options: BenchOptions, target: Target, concurrency: int) -> Result:
    """Measure one run, with an engine of its own."""
    request = Request(
        f"{target.provider.name}/{target.model}",
        [Message.user(options.prompt)],
        max_output_tokens=options.max_tokens,
        extra_headers=options.headers or None,
        retry=Retry(max_attempts=1),
    )
    ramp = options.ramp if options.ramp is not None else concurrency / STARTS_A_SECOND
    plan = Plan(request, options.stream, concurrency, options.seconds, options.requests, ramp)
    proxy = "" if is_loopback(target.provider.base_url or "") else None
    progress = Progress()
    async with open_engine([target.provider], proxy=proxy, monitor=options.monitor) as engine:
        try:
            return await Load(engine, plan, progress.look, target.simulator).run()
        finally:
            progress.close()


def _status(result: Result) -> int:
    if result.interrupted:
        return 130
    return 1 if result.failed or not (result.ok or result.events) else 0


async def _search(options: BenchOptions, target: Target, about: JSONObject) -> int:
    """Measure the steps of a search until one exceeds the bound. Print the results and return the exit status."""
    bound, most = options.max_gap, 0
    rows: list[list[str]] = []
    results: list[JSONObject] = []
    result: Result | None = None
    interrupted = False
    for streams in options.steps:
        try:
            result = await _measure(options, target, streams)
        except KeyboardInterrupt:  # between two steps
            interrupted = True
            break
        interrupted = result.interrupted
        if bound is None and result.gap_p99 is not None and not result.interrupted:
            bound = result.gap_p99 + MORE_GAP
        gaps_held = result.gap_p99 is not None and bound is not None and result.gap_p99 <= bound
        held = gaps_held and not _status(result) and not result.silent
        verdict = "interrupted" if result.interrupted else "holds" if held else _why_not(result, bound)
        rows.append(step_row(result, verdict))
        results.append(result_object(result) | {"holds": held})
        if not held:
            break
        most = streams
    if options.json:
        print(dumps_printable(about | {"most_streams": most, "max_gap": bound, "steps": [*results]}).decode())
    else:
        _print_search(rows, most, bound, result)
    if interrupted:
        return 130
    return 0 if most else 1


def _why_not(result: Result, bound: float | None) -> str:
    if result.failed:
        return "calls failed"
    if result.silent:
        return f"{result.silent:,} without content"
    if result.gap_p99 is None:
        return "no gaps to measure"
    return f"p99 above {duration(bound)}"


def _print_search(rows: list[list[str]], most: int, bound: float | None, last: Result | None) -> None:
    paint = Paint(sys.stdout)
    print("\n" + step_table(rows))
    print(f"\nmost streams whose p99 of the gaps stayed within {duration(bound)}: {paint(f'{most:,}', 'bold')}")
    if last is not None:
        if last.first_failure:
            print(f"first failure: {one_line(last.first_failure)}")
        for warning in last.warnings:
            print(paint(f"note: {warning}", "yellow"))
