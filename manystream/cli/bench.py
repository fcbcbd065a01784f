"""The command `manystream bench`: a load test of an endpoint, a proxy, or this machine, with the real engine."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ..bench.arrivals import KINDS, MOST_RATE, Arrivals, TraceError, read_rate, read_trace
from ..bench.compare import CompareError, differences, different_settings, is_valid, read_result
from ..bench.figures import SLO_NAMES, Slo
from ..bench.load import Plan
from ..bench.pages import PlotsError, check_plots, run_page, search_page
from ..bench.report import SCHEMA, run_object
from ..bench.runs import Run, Server, WorkerError, calibrate, run_plan, split
from ..bench.search import Search
from ..bench.validity import Calibration
from ..bench.work import (
    DISTRIBUTIONS,
    PROMPT,
    Conversation,
    Length,
    PromptsError,
    WorkPlan,
    read_length,
    read_prompts,
)
from ..http_server import allow_many_sockets
from ..providers.errors import InvalidRequestError
from ..providers.json.json_values import JSON, JSONObject, dumps_printable
from ..simulator import KnobError, SimulatorError, open_simulator
from .addresses import DIALECT_CLASSES, provider_at
from .bench_report import Progress, comparison_lines, run_lines, search_lines, step_row, step_table
from .output.errors import CommandError
from .output.terminal import Paint, duration, harmless, one_line
from .run import RunOptions, choose_provider, read_headers

DESCRIPTION = """\
Make calls to an endpoint and report, under the field's names: TTFT, TPOT, ITL, E2EL and time to first byte with
confidence intervals, rates, errors, and goodput. The result is stamped VALID, or INVALID if this client was the limit.

  manystream bench                                                  the built-in simulator: no key, no cost
  manystream bench http://127.0.0.1:8000/v1 --model llama3.2 --concurrency 50
  manystream bench http://127.0.0.1:8000/v1 --model m --rate 20 --arrivals poisson --slo ttft=200ms,tpot=30ms
  manystream bench http://127.0.0.1:8000/v1 --model m --rate 1..200 --seconds 60 --html report.html
  manystream bench http://127.0.0.1:8000/v1 --model m --trace mooncake.jsonl --workers 2
  manystream bench http://127.0.0.1:8000/v1 --model m --find --slo ttft=200ms
  manystream bench https://proxy.example/v1 --model gpt-5-mini --requests 200 --no-stream
  manystream bench http://127.0.0.1:8000/v1 --model m --input normal:512,128 --output 128 --turns 4 --think 2s
  manystream bench --streams 1,10,100,1000,2000 --simulate rate=50,events=1000
  manystream bench http://127.0.0.1:8000/v1 --model m --json | jq .ttft.p99
  manystream bench compare before.json after.json

A provider charges for the calls of a bench as for any others.
"""
EPILOG = """\
figures:
  TTFB   time to first byte                    TPOT   time per output token, after the first one
  TTFT   time to first token, thinking too     ITL    gaps between the contents of a stream
  TTFO   time to first output after thinking   E2EL   end-to-end latency
  A time is the one at which the kernel received the bytes (Linux). It counts from the moment at which the request was
  given to the kernel; with --rate and --trace, from the moment at which the call was due.

Without --rate and --trace, --concurrency calls run at a time, started within --ramp. With them, calls start when they
are due, and --concurrency is the most at a time. Calls that are cut at the end are no failures. No call is tried again.
A result is INVALID if this client had no core left, read bytes or started calls late, or used up its descriptors.
--find searches for the highest rate at which a share of the calls (--attain) keeps --slo. --streams measures each
number of streams in turn, and ends with the first whose 99th percentile of gaps exceeds --max-gap (default: that of the
first step plus 50 ms). Keys are read as in `manystream run`.

exit status:
  0    every call succeeded (with --streams or --find: at least one step kept the bound)
  1    some calls failed, or nothing was received
  2    the command line is wrong
  3    the result is INVALID
  130  interrupted; the figures so far are shown
"""

DEFAULT_MODELS = {
    "openai-chat": "gpt-5-mini",
    "openai-responses": "gpt-5-mini",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-2.5-flash",
}
SIMULATED = {True: "rate=50,events=250", False: "events=32"}
"""Whether calls are streamed → the knobs of the built-in simulator."""

STARTS_A_SECOND = 500.0
"""Calls per second that the default ramp starts."""
SECONDS, STEP_SECONDS = 10.0, 5.0
"""The default length of a run, and of each step of `--streams`, in seconds."""
CONCURRENCY = 10
MORE_GAP = 0.05
"""The default bound of `--streams` is the first step's p99 plus so many seconds."""
CALIBRATION_SECONDS = 2.0
INVALID = 3
"""The exit status of an invalid result."""

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|)")
UNITS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

Value = TypeVar("Value")


@dataclass(slots=True, frozen=True)
class BenchOptions:
    """The options of `manystream bench`, checked.

    url: the server's base URL, or None.
    dialect: the dialect that the URL speaks.
    model: the model's name, or None.
    provider: the provider's name, or None.
    plan: the settings of a run; the model of its work is not known yet.
    prompts: the file of prompts, or None.
    steps: the numbers of streams of `--streams`, in rising order; empty without it.
    max_gap: the bound of `--streams`, in seconds; None for the default.
    find: whether to search for the highest rate.
    rates: the first rate of the search, and the highest one or None.
    attain: the share of calls that must keep the objective in a search.
    workers: the number of processes.
    calibrate: how long to calibrate, in seconds; 0: not at all.
    knobs: the knobs of the built-in simulator.
    monitor: whether `manystream top` can watch the engine.
    json: whether to print the results as JSON.
    save: the file for the results as JSON, or None.
    html: the file for the results as a page, or None.
    """

    url: str | None
    dialect: str
    model: str | None
    provider: str | None
    plan: Plan
    prompts: Path | None
    steps: tuple[int, ...]
    max_gap: float | None
    find: bool
    rates: tuple[float, float | None]
    attain: float
    workers: int
    calibrate: float
    knobs: str
    monitor: bool
    json: bool
    save: Path | None
    html: Path | None

    @property
    def simulated(self) -> bool:
        """Whether the simulator answers, because no URL, provider or model was named."""
        return self.url is None and self.provider is None and self.model is None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `manystream bench` to the parser."""
    add = parser.add_argument
    add("url", nargs="*", metavar="URL", help="a server's base URL (default: the built-in simulator); or `compare A B`")
    add(
        "--dialect",
        choices=list(DEFAULT_MODELS),
        default="openai-chat",
        help="the dialect of the URL (default: openai-chat)",
    )
    add("--model", metavar="MODEL", help="the model; without a URL, its name selects the provider")
    add("--provider", metavar="PROVIDER", help="the provider; see `manystream run --help`")
    add("--concurrency", "-c", type=int, metavar="N", help="calls at a time (default: 10; with --rate: no bound)")
    add("--rate", metavar="R", help="calls per second, or the first and the last rate of a ramp, such as 1..200")
    add("--arrivals", choices=KINDS, help="how the times between calls are distributed (default: constant)")
    add("--burstiness", type=float, metavar="B", help="the shape of gamma arrivals: 1 is poisson, less is burstier")
    add("--trace", metavar="FILE", help="start calls as a trace has them: Mooncake's, Azure's, or a recording")
    add("--streams", metavar="N,N,…", help="measure these numbers of streams in turn")
    add("--max-gap", type=float, metavar="MS", help="the bound of --streams, in milliseconds (default: see below)")
    add("--slo", metavar="SLO", help="an objective for each call, such as ttft=200ms,tpot=30ms: reports goodput")
    add("--find", action="store_true", help="search for the highest rate that keeps --slo")
    add("--attain", type=float, metavar="SHARE", help="the share of calls that must keep --slo (default: 0.95)")
    add("--seconds", type=float, metavar="S", help="seconds to measure (default: 10; 5 for each step of --streams)")
    add("--requests", "-n", type=int, metavar="N", help="end after N calls, or after --seconds (default: no limit)")
    add(
        "--ramp", type=float, metavar="S", help="start the first calls within S seconds (default: 500 calls per second)"
    )
    add("--no-stream", action="store_true", help="make unstreamed calls")
    add("--prompt", metavar="TEXT", help=f"the prompt (default: {PROMPT!r})")
    add("--prompts", metavar="FILE", help="a file of prompts: JSON lines as in `manystream batch`, or ShareGPT's form")
    add("--input", metavar="LENGTH", help="make prompts of so many tokens, such as 512 or normal:512,128")
    add("--output", metavar="LENGTH", help="the longest answer in tokens, such as 128 or uniform:64,256")
    add("--max-tokens", type=int, metavar="N", help="the longest answer, in tokens")
    add("--prefix", type=int, default=0, metavar="N", help="begin all prompts with the same N tokens")
    add("--turns", type=int, default=1, metavar="N", help="calls of a session, each with the conversation so far")
    add("--think", default="0", metavar="TIME", help="the time from an answer to the next turn, such as 2s")
    add("--seed", type=int, default=0, metavar="N", help="the seed of arrivals, prompts and lengths (default: 0)")
    add("--workers", type=int, default=1, metavar="N", help="make the load with N processes (default: 1)")
    add("--calibrate", type=float, metavar="S", help="seconds to calibrate the client (default: 2); 0: do not judge it")
    add("--header", action="append", default=[], metavar="NAME=VALUE", help="an additional request header; repeatable")
    add(
        "--simulate",
        metavar="KNOBS",
        help="how the built-in simulator answers; see `manystream simulate --help`"
        f" (default: {SIMULATED[True]}; unstreamed: {SIMULATED[False]})",
    )
    add("--monitor", action="store_true", help="allow `manystream top` to show this process")
    add("--json", action="store_true", help="print the results as one line of JSON")
    add("--save", metavar="FILE", help="write the results to a new file, as JSON")
    add("--html", metavar="FILE", help="write the results to a new file, as a page with plots (extra: plots)")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the results, and return the exit status."""
    if arguments.url and arguments.url[0] == "compare":
        return _compare(arguments.url[1:], as_json=arguments.json)
    options = _read_options(arguments)
    allow_many_sockets()
    try:
        with _open_server(options) as server:
            return _Bench(options, server).run()
    except KnobError as error:
        raise CommandError(f"--simulate: {error}", status=2) from None
    except PromptsError as error:
        raise CommandError(f"--prompts {error}", status=2) from None
    except (SimulatorError, InvalidRequestError, WorkerError) as error:
        raise CommandError(str(error)) from None


# --- options ---


def _read_options(arguments: argparse.Namespace) -> BenchOptions:
    if len(arguments.url) > 1:
        raise CommandError(f"takes one URL, not {len(arguments.url)}", status=2)
    url: str | None = arguments.url[0] if arguments.url else None
    simulated = url is None and arguments.provider is None and arguments.model is None
    _check_numbers(arguments)
    steps = _read("--streams", arguments.streams, "numbers above 0, such as 1,10,100", _steps) or ()
    slo: Slo = _read("--slo", arguments.slo, f"bounds such as ttft=200ms, of {', '.join(SLO_NAMES)}", _slo) or {}
    rate = _read("--rate", arguments.rate, f"calls per second up to {MOST_RATE:,.0f}, such as 50, or 1..200", read_rate)
    _check_kinds(arguments, steps=steps, slo=slo, simulated=simulated)
    seconds: float = arguments.seconds or (STEP_SECONDS if steps else SECONDS)
    arrivals = _arrivals(arguments, rate)
    concurrency = arguments.concurrency or (CONCURRENCY if arrivals is None else None)
    ramp = arguments.ramp if arguments.ramp is not None else (concurrency or 0) / STARTS_A_SECOND
    return BenchOptions(
        url=url,
        dialect=arguments.dialect,
        model=arguments.model,
        provider=arguments.provider,
        plan=Plan(
            work=_work(arguments),
            stream=not arguments.no_stream,
            concurrency=concurrency,
            seconds=seconds,
            requests=arguments.requests,
            ramp=ramp,
            arrivals=arrivals,
            slo=slo,
        ),
        prompts=Path(arguments.prompts) if arguments.prompts is not None else None,
        steps=steps,
        max_gap=arguments.max_gap / 1000 if arguments.max_gap is not None else None,
        find=arguments.find,
        rates=(rate[0] or 1.0, rate[1] if rate[1] > rate[0] else None) if rate is not None else (1.0, None),
        attain=arguments.attain if arguments.attain is not None else 0.95,
        workers=arguments.workers,
        calibrate=arguments.calibrate if arguments.calibrate is not None else CALIBRATION_SECONDS,
        knobs=arguments.simulate if arguments.simulate is not None else SIMULATED[not arguments.no_stream],
        monitor=arguments.monitor,
        json=arguments.json,
        save=_new_file("--save", arguments.save),
        html=_new_file("--html", arguments.html),
    )


def _check_numbers(arguments: argparse.Namespace) -> None:
    above_zero = (
        "concurrency",
        "seconds",
        "requests",
        "max_gap",
        "max_tokens",
        "turns",
        "workers",
        "burstiness",
        "attain",
    )
    for name in (*above_zero, "ramp", "calibrate", "prefix", "seed"):
        value: float | None = getattr(arguments, name)
        least = "above 0" if name in above_zero else "0 or more"
        if value is not None and not (math.isfinite(value) and (value > 0 or (value == 0 and name not in above_zero))):
            raise CommandError(f"--{name.replace('_', '-')} must be {least}, not {value:g}", status=2)
    if arguments.attain is not None and arguments.attain > 1:
        raise CommandError(f"--attain is a share of the calls, at most 1, not {arguments.attain:g}", status=2)


def _check_kinds(arguments: argparse.Namespace, *, steps: tuple[int, ...], slo: Slo, simulated: bool) -> None:
    """Raise `CommandError` for options that exclude each other, or that need another one."""
    is_open = arguments.rate is not None or arguments.trace is not None
    stream_names = {"ttft", "ttfo", "tpot", "itl"} & set(slo)
    rules = (
        (steps and arguments.no_stream, "--streams measures the gaps of streams: leave --no-stream out"),
        (steps and arguments.requests is not None, "--streams measures each step for --seconds: leave --requests out"),
        (steps and (is_open or arguments.find), "--streams keeps streams running: leave --rate, --trace, --find out"),
        (arguments.max_gap is not None and not steps, "--max-gap is the bound of --streams: name the streams"),
        (arguments.simulate is not None and not simulated,
         "--simulate is for the built-in simulator: leave URL, --model and --provider out"),
        (arguments.rate is not None and arguments.trace is not None, "--trace has its own times: leave --rate out"),
        (arguments.find and arguments.trace is not None, "--find varies the rate: leave --trace out"),
        (arguments.find and not slo, "--find needs an objective: --slo ttft=200ms"),
        (arguments.attain is not None and not arguments.find, "--attain is the share that --find wants: use --find"),
        (arguments.arrivals is not None and arguments.rate is None and not arguments.find,
         "--arrivals needs a rate: --rate 20"),
        (arguments.burstiness is not None and arguments.arrivals != "gamma", "--burstiness is for --arrivals gamma"),
        (arguments.ramp is not None and (is_open or arguments.find),
         "--ramp starts the calls of --concurrency: with --rate, write a ramp as --rate 1..200"),
        (arguments.no_stream and bool(stream_names),
         f"--slo {', '.join(sorted(stream_names))} is of streams: leave --no-stream out"),
        (arguments.output is not None and arguments.max_tokens is not None, "--output and --max-tokens are the same"),
        (arguments.prompt is not None and (arguments.prompts is not None or arguments.input is not None),
         "--prompt is one text for all calls: leave --prompts and --input out"),
        (arguments.prompts is not None and arguments.input is not None, "--prompts has the prompts: leave --input out"),
        (arguments.monitor and arguments.workers > 1, "--monitor shows one process: leave --workers out"),
        (arguments.concurrency is not None and arguments.concurrency < arguments.workers,
         "--workers: each process needs a call of --concurrency"),
        (arguments.requests is not None and arguments.requests < arguments.workers,
         "--workers: each process needs a call of --requests"),
    )  # fmt: skip
    for broken, complaint in rules:
        if broken:
            raise CommandError(complaint, status=2)


def _read(option: str, text: str | None, takes: str, read: Callable[[str], Value]) -> Value | None:
    """Return the value of an option. Raises `CommandError` if it cannot be read."""
    if text is None:
        return None
    try:
        return read(text)
    except (ValueError, KeyError):
        raise CommandError(f"{option} takes {takes}, not {text!r}", status=2) from None


def _steps(text: str) -> tuple[int, ...]:
    steps = tuple(sorted({int(number) for number in text.split(",")}))
    if steps[0] <= 0:
        raise ValueError
    return steps


def _slo(text: str) -> Slo:
    pairs = [pair.partition("=") for pair in text.split(",")]
    found = {name.strip().lower(): _duration(time) for name, _, time in pairs}
    if not set(found) <= set(SLO_NAMES) or len(found) < len(pairs) or not all(found.values()):
        raise ValueError
    return found


def _duration(text: str) -> float:
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError
    return float(match[1]) * UNITS[match[2]]


def _arrivals(arguments: argparse.Namespace, rate: tuple[float, float] | None) -> Arrivals | None:
    if arguments.trace is not None:
        try:
            calls, notes = read_trace(Path(arguments.trace))
        except TraceError as error:
            raise CommandError(f"--trace {error}", status=2) from None
        for note in notes:
            print(f"--trace: {note}", file=sys.stderr)
        return Arrivals(trace=calls)
    if rate is None and not arguments.find:
        return None
    first, last = rate or (1.0, 1.0)
    return Arrivals(first, last, arguments.arrivals or KINDS[0], arguments.burstiness or 1.0)


def _work(arguments: argparse.Namespace) -> WorkPlan:
    takes = f"a number of tokens, such as 512, or one of {', '.join(f'{name}:…' for name in DISTRIBUTIONS)}"
    output = _read("--output", arguments.output, takes, read_length)
    if arguments.max_tokens is not None:
        output = Length("fixed", (float(arguments.max_tokens),))
    return WorkPlan(
        model="",
        prompt=arguments.prompt if arguments.prompt is not None else PROMPT,
        input=_read("--input", arguments.input, takes, read_length),
        output=output,
        prefix=arguments.prefix,
        turns=arguments.turns,
        think=_read("--think", arguments.think, "a time, such as 2s or 500ms", _duration) or 0.0,
        seed=arguments.seed,
        headers=read_headers(arguments.header),
    )


def _new_file(option: str, given: str | None) -> Path | None:
    """Return the path of a file that is written at the end. Raises `CommandError` if it exists, or has no folder."""
    if given is None:
        return None
    path = Path(given)
    if path.exists():
        raise CommandError(f"{option} {path} exists: name a new file, since a result is not made twice", status=2)
    if not path.name or not path.absolute().parent.is_dir():
        raise CommandError(f"{option} {given!r}: there is no such folder", status=2)
    if option == "--html":
        try:
            check_plots()
        except PlotsError as error:
            raise CommandError(f"{option}: {error}", status=2) from None
    return path


# --- the server ---


@contextmanager
def _open_server(options: BenchOptions) -> Generator[Server, None, None]:
    if options.simulated:
        with open_simulator(options.knobs, journal=0) as simulator:
            url = simulator.base_urls[options.dialect]
            yield Server(DIALECT_CLASSES[options.dialect]("any", url), "simulated", simulator.pid)
        return
    if options.url is not None and options.provider is None:
        provider = provider_at(options.url, options.dialect, os.environ)
        yield Server(provider, options.model or DEFAULT_MODELS[options.dialect])
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
        stream=options.plan.stream,
        prompt="",
    )
    yield Server(*choose_provider(wanted, os.environ))


# --- runs ---


class _Bench:
    """The runs of one command, and what is printed of them."""

    def __init__(self, options: BenchOptions, server: Server) -> None:
        model = f"{server.provider.name}/{server.model}"
        prompts: tuple[Conversation, ...] = ()
        if options.prompts is not None:
            prompts = read_prompts(options.prompts, model)
        self._options = options
        self._server = server
        self._plan = replace(options.plan, work=replace(options.plan.work, model=model, prompts=prompts))
        self._paint = Paint(sys.stdout)
        self._calibrated: tuple[float, Calibration | None] = (0.0, None)
        self._about: JSONObject = {
            "url": server.shown,
            "dialect": server.provider.profile.dialect_name,
            "model": server.model,
            "simulated": options.simulated,
        }

    def run(self) -> int:
        """Measure, print the results, and return the exit status."""
        options = self._options
        if not options.json:
            print(f"{harmless(self._server.shown)}, {self._about['dialect']}, model {harmless(self._server.model)}:"
                  f" {self._what()}", flush=True)  # fmt: skip
            if options.simulated:
                print(f"No URL was given: the built-in simulator answers ({options.knobs}).", file=sys.stderr)
        if options.steps:
            return self._steps()
        if options.find:
            return self._find()
        result = self._measure(self._plan)
        page = self._about | run_object(result)
        self._write(page, lambda: run_page(page))
        if options.json:
            print(dumps_printable(page).decode())
        else:
            print("\n" + "\n".join(run_lines(result, self._paint)))
        return _status(result)

    def _what(self) -> str:
        """Return what is measured, for the heading."""
        plan, options = self._plan, self._options
        streamed = "streams" if plan.stream else "unstreamed calls"
        arrivals = plan.arrivals
        if options.steps:
            much = f"{len(options.steps)} steps"
        elif options.find:
            much = "search for the highest rate"
        elif arrivals is None:
            much = f"{plan.concurrency:,} at a time"
        elif arrivals.trace is not None:
            much = f"a trace of {len(arrivals.trace):,} calls"
        else:
            ends = (
                f"{arrivals.first:g}" if arrivals.first == arrivals.last else f"{arrivals.first:g} to {arrivals.last:g}"
            )
            much = f"{ends} a second, {arrivals.kind}"
        return f"{streamed}, {much}, {plan.seconds:g} s"

    def _calibrate(self, plan: Plan) -> Calibration | None:
        """Measure what this client adds. A precise calibration holds for every smaller load of the same work."""
        options, (much, known) = self._options, self._calibrated
        offered = plan.concurrency or 0 if plan.arrivals is None else max(plan.arrivals.first, plan.arrivals.last)
        if options.calibrate and (known is None or known.is_imprecise or offered > much):
            part = split(plan, options.workers)[0]
            known = calibrate(
                lambda url: DIALECT_CLASSES[options.dialect]("any", url), options.dialect, part, options.calibrate
            )
            self._calibrated = offered, known
        return known

    def _measure(self, plan: Plan) -> Run:
        options, progress = self._options, Progress()
        calibration = self._calibrate(plan)
        try:
            return run_plan(
                self._server,
                plan,
                progress.look,
                calibration=calibration,
                workers=options.workers,
                monitor=options.monitor,
            )
        finally:
            progress.close()

    def _write(self, page: JSONObject, make_html: Callable[[], str]) -> None:
        """Write the files that were asked for. Raises `CommandError`."""
        options = self._options
        try:
            if options.save is not None:
                with options.save.open("xb") as file:
                    file.write(dumps_printable(page) + b"\n")
            if options.html is not None:
                with options.html.open("x", encoding="utf-8") as text:
                    text.write(make_html())
        except OSError as error:
            raise CommandError(f"cannot write {error.filename}: {error.strerror}") from None

    # --- several runs ---

    def _find(self) -> int:
        options, plan = self._options, self._plan
        assert plan.arrivals is not None

        def measure(rate: float, number: int) -> Run:
            assert plan.arrivals is not None
            arrivals = replace(plan.arrivals, first=rate, last=rate)
            return self._measure(
                replace(plan, arrivals=arrivals, work=replace(plan.work, seed=plan.work.seed + number))
            )

        search = Search(options.attain)
        try:
            search.run(measure, *options.rates)
        except KeyboardInterrupt:  # between two runs
            search.interrupted = True
        steps: list[JSON] = [
            run_object(step.run)
            | {"offered_rate": step.rate, "attained": step.share, "keeps": step.keeps(options.attain)}
            for step in sorted(search.steps, key=lambda step: step.rate)
            if step.runs
        ]
        page: JSONObject = {
            **self._about,
            "schema": SCHEMA,
            "slo": {**plan.slo},
            "attain": options.attain,
            "highest_rate": search.best,
            "certain": search.certain,
            "limited_by_client": search.limited_by_client,
            "interrupted": search.interrupted,
            "steps": steps,
        }
        self._write(page, lambda: search_page(page))
        if options.json:
            print(dumps_printable(page).decode())
        else:
            print("\n" + "\n".join(search_lines(search, self._paint)))
        if search.interrupted:
            return 130
        return 0 if search.best is not None else INVALID if search.limited_by_client else 1

    def _steps(self) -> int:
        """Measure numbers of streams until one exceeds the bound. Print the results and return the exit status."""
        options = self._options
        bound, most = options.max_gap, 0
        rows: list[list[str]] = []
        results: list[JSON] = []
        last: Run | None = None
        interrupted = False
        for streams in options.steps:
            ramp = self._plan.ramp if options.plan.ramp != CONCURRENCY / STARTS_A_SECOND else streams / STARTS_A_SECOND
            try:
                last = self._measure(replace(self._plan, concurrency=streams, ramp=ramp))
            except KeyboardInterrupt:  # between two steps
                interrupted = True
                break
            interrupted = last.result.interrupted
            gap = last.result.figures.summary("itl", with_intervals=False).p99
            if bound is None and gap is not None and not interrupted:
                bound = gap + MORE_GAP
            gaps_held = gap is not None and bound is not None and gap <= bound
            failed = interrupted or last.result.figures.failures or last.result.silent
            held = gaps_held and not failed
            verdict = "interrupted" if interrupted else "holds" if held else _why_not(last, gap, bound)
            rows.append(step_row(last, verdict))
            results.append(run_object(last) | {"holds": held})
            if not held:
                break
            most = streams
        page: JSONObject = {**self._about, "schema": SCHEMA, "most_streams": most, "max_gap": bound, "steps": results}
        self._write(page, lambda: search_page(page))
        if options.json:
            print(dumps_printable(page).decode())
        else:
            self._print_steps(rows, most, bound, last)
        return 130 if interrupted else 0 if most else 1

    def _print_steps(self, rows: list[list[str]], most: int, bound: float | None, last: Run | None) -> None:
        print("\n" + step_table(rows))
        count = self._paint(f"{most:,}", "bold")
        print(f"\nmost streams whose p99 of the gaps stayed within {duration(bound)}: {count}")
        if last is not None and last.result.figures.first_failure:
            print(f"first failure: {one_line(last.result.figures.first_failure)}")


def _status(run: Run) -> int:
    result = run.result
    if result.interrupted:
        return 130
    if run.verdict.valid is False:
        return INVALID
    figures = result.figures
    return 1 if figures.failures or not (figures.ok or figures.events) else 0


def _why_not(run: Run, gap: float | None, bound: float | None) -> str:
    if run.result.figures.failures:
        return "calls failed"
    if run.result.silent:
        return f"{run.result.silent:,} without content"
    if gap is None:
        return "no gaps to measure"
    return f"p99 above {duration(bound)}"


# --- comparison ---


def _compare(files: list[str], *, as_json: bool) -> int:
    if len(files) != 2:
        raise CommandError("compare takes two results: manystream bench compare before.json after.json", status=2)
    try:
        before, after = (read_result(Path(file)) for file in files)
        found = differences(before, after)
    except CompareError as error:
        raise CommandError(str(error), status=2) from None
    valid = [is_valid(page) for page in (before, after)]
    if as_json:
        rows: list[JSONObject] = [
            {
                "figure": one.figure,
                "percentile": one.percentile,
                "before": one.before,
                "after": one.after,
                "change": one.change,
                "interval": None if one.interval is None else [one.interval.low, one.interval.high],
                "real": one.real,
            }
            for one in found
        ]
        settings: list[JSON] = [*different_settings(before, after)]
        page: JSONObject = {"valid": False not in valid, "differences": [*rows], "settings": settings}
        print(dumps_printable(page).decode())
    else:
        print("\n".join(comparison_lines(found, files, valid, different_settings(before, after), Paint(sys.stdout))))
    return INVALID if False in valid else 0
