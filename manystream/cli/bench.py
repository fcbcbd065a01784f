"""The command `manystream bench`: a load test of an endpoint, a proxy, or this machine, with the real engine."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from .. import InvalidRequestError, __version__
from ..bench.arrivals import KINDS, MOST_RATE, Arrivals, TraceError, read_rate, read_trace
from ..bench.compare import CompareError, compared, read_result
from ..bench.figures import SLO_NAMES, Slo
from ..bench.load import Plan
from ..bench.pages import page_of
from ..bench.report import SCHEMA, number, provenance, run_object, search_object
from ..bench.runs import Run, Server, WorkerError, calibrate, leave_core, run_plan, split
from ..bench.search import Search
from ..bench.validity import Calibration
from ..bench.work import DISTRIBUTIONS, PROMPT, Length, PromptsError, WorkPlan, read_length, read_prompts
from ..http_server import allow_many_sockets
from ..providers.catalog.profiles import DEFAULT_PROFILES
from ..providers.catalog.provider import DIALECT_CLASSES
from ..providers.json.json_values import JSON, JSONObject, dumps_printable
from ..simulator import KnobError, SimulatorError, open_simulator
from ..simulator.service import BASE_PATHS
from .addresses import provider_at
from .bench_report import Progress, comparison_lines, run_lines, run_rows, search_lines, streams_lines, why_not
from .options import add_number, add_value, check_new, write_new
from .output.errors import CommandError
from .output.terminal import Paint, harmless
from .run import DEFAULT_MODELS, choose_provider, read_headers

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
A result is INVALID if this client had no core left, read or started so late that times are not known, or used up its
descriptors.
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

SIMULATED = {True: "rate=50,events=250", False: "events=32"}
"""Whether calls are streamed → the knobs of the built-in simulator."""

STARTS_A_SECOND = 500.0
"""Calls per second that the default ramp starts."""
SECONDS, STEP_SECONDS = 10.0, 5.0
"""The default length of a run, and of each step of `--streams`, in seconds."""
CONCURRENCY = 10
ATTAIN = 0.95
MORE_GAP = 0.05
"""The default bound of `--streams` is the first step's p99 plus so many seconds."""
CALIBRATION_SECONDS = 2.0
INVALID = 3
"""The exit status of an invalid result."""

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|)")
UNITS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


# fmt: off
def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, number, value = parser.add_argument, partial(add_number, parser), partial(add_value, parser)
    add("url", nargs="*", metavar="URL", help="a server's base URL (default: the built-in simulator); or `compare A B`")
    add("--dialect", choices=list(BASE_PATHS), default="openai-chat",
        help="the dialect of the URL (default: openai-chat)")
    add("--model", metavar="MODEL", help="the model; without a URL, its name selects the provider")
    add("--provider", metavar="PROVIDER", help="the provider; see `manystream run --help`")
    number("--concurrency", "-c", kind=int, metavar="N", help="calls at a time (default: 10; with --rate: no bound)")
    value("--rate", read_rate, f"calls per second up to {MOST_RATE:,.0f}, such as 50, or 1..200", metavar="R",
          help="calls per second, or the first and the last rate of a ramp, such as 1..200")
    add("--arrivals", choices=KINDS, help="how the times between calls are distributed (default: constant)")
    number("--burstiness", metavar="B", help="the shape of gamma arrivals: 1 is poisson, less is burstier")
    add("--trace", metavar="FILE",
        help="start calls as a trace has them: Mooncake's, Azure's, BurstGPT's, or a recording")
    value("--streams", _streams, "numbers above 0, such as 1,10,100", metavar="N,N,…",
          help="measure these numbers of streams in turn")
    number("--max-gap", metavar="MS", help="the bound of --streams, in milliseconds (default: see below)")
    value("--slo", _slo, f"bounds such as ttft=200ms, of {', '.join(SLO_NAMES)}", metavar="SLO",
          help="an objective for each call, such as ttft=200ms,tpot=30ms: reports goodput")
    add("--find", action="store_true", help="search for the highest rate that keeps --slo")
    number("--attain", metavar="SHARE", help="the share of calls that must keep --slo (default: 0.95)")
    number("--seconds", metavar="S", help="seconds to measure (default: 10; 5 for each step of --streams)")
    number("--requests", "-n", kind=int, metavar="N", help="end after N calls, or after --seconds (default: no limit)")
    number("--ramp", zero=True, metavar="S",
           help="start the first calls within S seconds (default: 500 calls per second)")
    add("--no-stream", action="store_true", help="make unstreamed calls")
    add("--prompt", metavar="TEXT", help=f"the prompt (default: {PROMPT!r})")
    add("--prompts", metavar="FILE", help="a file of prompts: JSON lines as in `manystream batch`, or ShareGPT's form")
    tokens = f"a number of tokens, such as 512, or one of {', '.join(f'{name}:…' for name in DISTRIBUTIONS)}"
    value("--input", read_length, tokens, metavar="LENGTH",
          help="make prompts of so many tokens, such as 512 or normal:512,128")
    value("--output", read_length, tokens, metavar="LENGTH",
          help="the longest answer in tokens, such as 128 or uniform:64,256")
    number("--max-tokens", kind=int, metavar="N", help="the longest answer, in tokens")
    number("--prefix", kind=int, zero=True, default=0, metavar="N", help="begin all prompts with the same N tokens")
    number("--turns", kind=int, default=1, metavar="N", help="calls of a session, each with the conversation so far")
    value("--think", _duration, "a time, such as 2s or 500ms", default=0.0, metavar="TIME",
          help="the time from an answer to the next turn, such as 2s")
    number("--seed", kind=int, zero=True, default=0, metavar="N",
           help="the seed of arrivals, prompts and lengths (default: 0)")
    number("--workers", kind=int, default=1, metavar="N", help="make the load with N processes (default: 1)")
    number("--calibrate", zero=True, metavar="S",
           help="seconds to calibrate the client (default: 2); 0: do not judge it")
    add("--header", action="append", default=[], metavar="NAME=VALUE", help="an additional request header; repeatable")
    add("--simulate", metavar="KNOBS", help="how the built-in simulator answers; see `manystream simulate --help`"
        f" (default: {SIMULATED[True]}; unstreamed: {SIMULATED[False]})")
    add("--monitor", action="store_true", help="allow `manystream top` to show this process")
    add("--json", action="store_true", help="print the results as one line of JSON")
    add("--save", metavar="FILE", help="write the results to a new file, as JSON")
    add("--html", metavar="FILE", help="write the results to a new file, as a page with plots (extra: plots)")
    parser.epilog = EPILOG
# fmt: on


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the results, and return the exit status."""
    if arguments.url and arguments.url[0] == "compare":
        return _compare(arguments.url[1:], as_json=arguments.json)
    _check(arguments)
    for option, file in (("--save", arguments.save), ("--html", arguments.html)):
        if file is not None:
            check_new(option, file)
    allow_many_sockets()
    try:
        plan = _plan(arguments)
        with _open_server(arguments) as server:
            return _Bench(arguments, plan, server).run()
    except KnobError as error:
        raise CommandError(f"--simulate: {error}", status=2) from None
    except (PromptsError, TraceError) as error:
        option = "--prompts" if isinstance(error, PromptsError) else "--trace"
        raise CommandError(f"{option} {error}", status=2) from None
    except (SimulatorError, InvalidRequestError, WorkerError) as error:
        raise CommandError(str(error)) from None


# --- options ---


def _is_simulated(given: argparse.Namespace) -> bool:
    """Return whether the simulator answers, because no URL, provider or model was named."""
    return not given.url and given.provider is None and given.model is None


def _check(given: argparse.Namespace) -> None:
    """Raise `CommandError` for options that exclude each other, or that need another one."""
    is_open = given.rate is not None or given.trace is not None
    stream_names = {"ttft", "ttfo", "tpot", "itl"} & set(given.slo or {})
    rules = (
        (len(given.url) > 1, f"takes one URL, not {len(given.url)}"),
        ((given.attain or 0) > 1, f"--attain is a share of the calls, at most 1, not {given.attain}"),
        (given.streams and given.no_stream, "--streams measures the gaps of streams: leave --no-stream out"),
        (given.streams and given.requests, "--streams measures each step for --seconds: leave --requests out"),
        (given.streams and (is_open or given.find),
         "--streams keeps streams running: leave --rate, --trace, --find out"),
        (given.max_gap and not given.streams, "--max-gap is the bound of --streams: name the streams"),
        (given.simulate is not None and not _is_simulated(given),
         "--simulate is for the built-in simulator: leave URL, --model and --provider out"),
        (given.rate and given.trace is not None, "--trace has its own times: leave --rate out"),
        (given.find and given.trace is not None, "--find varies the rate: leave --trace out"),
        (given.find and not given.slo, "--find needs an objective: --slo ttft=200ms"),
        (given.attain and not given.find, "--attain is the share that --find wants: use --find"),
        (given.arrivals and not given.rate and not given.find, "--arrivals needs a rate: --rate 20"),
        (given.burstiness and given.arrivals != "gamma", "--burstiness is for --arrivals gamma"),
        (given.ramp is not None and (is_open or given.find),
         "--ramp starts the calls of --concurrency: with --rate, write a ramp as --rate 1..200"),
        (given.no_stream and stream_names,
         f"--slo {', '.join(sorted(stream_names))} is of streams: leave --no-stream out"),
        (given.output and given.max_tokens, "--output and --max-tokens are the same"),
        (given.prompt is not None and (given.prompts is not None or given.input),
         "--prompt is one text for all calls: leave --prompts and --input out"),
        (given.prompts is not None and given.input, "--prompts has the prompts: leave --input out"),
        (given.monitor and given.workers > 1, "--monitor shows one process: leave --workers out"),
        (given.concurrency and given.concurrency < given.workers,
         "--workers: each process needs a call of --concurrency"),
        (given.requests and given.requests < given.workers, "--workers: each process needs a call of --requests"),
    )  # fmt: skip
    for broken, complaint in rules:
        if broken:
            raise CommandError(complaint, status=2)


def _streams(text: str) -> list[int]:
    """Parse numbers of streams, and return them in rising order. Raises `ValueError`."""
    numbers = sorted({int(number) for number in text.split(",")})
    if numbers[0] <= 0:
        raise ValueError("a number of streams is above 0")
    return numbers


def _slo(text: str) -> Slo:
    pairs = [pair.partition("=") for pair in text.split(",")]
    found = {name.strip().lower(): _duration(time) for name, _, time in pairs}
    if not set(found) <= set(SLO_NAMES) or len(found) < len(pairs) or not all(found.values()):
        raise ValueError("an objective has other bounds")
    return found


def _duration(text: str) -> float:
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("a time is a number and a unit")
    return float(match[1]) * UNITS[match[2]]


def _plan(given: argparse.Namespace) -> Plan:
    """Return the settings of a run. Its model and its prompts are not known yet."""
    seconds: float = given.seconds or (STEP_SECONDS if given.streams else SECONDS)
    arrivals = _arrivals(given, seconds)
    concurrency: int | None = given.concurrency or (CONCURRENCY if arrivals is None else None)
    output = Length("fixed", (float(given.max_tokens),)) if given.max_tokens else given.output
    work = WorkPlan(
        "", PROMPT if given.prompt is None else given.prompt, input=given.input, output=output, prefix=given.prefix,
        turns=given.turns, think=given.think, seed=given.seed, headers=read_headers(given.header),
    )  # fmt: skip
    return Plan(
        work,
        not given.no_stream,
        concurrency,
        seconds,
        requests=given.requests,
        ramp=(concurrency or 0) / STARTS_A_SECOND if given.ramp is None else given.ramp,
        arrivals=arrivals,
        slo=given.slo or {},
    )


def _arrivals(given: argparse.Namespace, seconds: float) -> Arrivals | None:
    if given.trace is not None:
        calls, notes = read_trace(Path(given.trace), seconds, given.requests)
        for note in notes:
            print(f"--trace: {note}", file=sys.stderr)
        return Arrivals(trace=calls)
    if given.rate is None and not given.find:
        return None
    first, last = given.rate or (1.0, 1.0)
    return Arrivals(first, last, given.arrivals or KINDS[0], given.burstiness or 1.0)


# --- the server ---


@contextmanager
def _open_server(given: argparse.Namespace) -> Generator[Server, None, None]:
    """Return the server that is measured."""
    url: str | None = given.url[0] if given.url else None
    if _is_simulated(given):
        with open_simulator(given.simulate or SIMULATED[not given.no_stream], journal=0) as simulator:
            leave_core(simulator.pid)
            base_url = simulator.base_urls[given.dialect]
            yield Server(DIALECT_CLASSES[given.dialect]("any", base_url), "simulated", simulator.pid)
    elif url is not None and given.provider is None:
        model = given.model or DEFAULT_MODELS[DEFAULT_PROFILES[given.dialect][0].name]
        yield Server(provider_at(url, given.dialect, os.environ), model)
    else:
        yield Server(*choose_provider(given.provider, given.model, url, os.environ))


# --- runs ---


class _Bench:
    """The runs of one command, and what is printed of them."""

    def __init__(self, given: argparse.Namespace, plan: Plan, server: Server) -> None:
        model = f"{server.provider.name}/{server.model}"
        prompts = () if given.prompts is None else read_prompts(Path(given.prompts), model)
        self._given = given
        self._server = server
        self._plan = replace(plan, work=replace(plan.work, model=model, prompts=prompts))
        self._calibrated: tuple[float, Calibration | None] = (0.0, None)
        self._about: JSONObject = {
            "url": server.shown,
            "dialect": server.provider.profile.dialect_name,
            "model": server.model,
            "simulated": _is_simulated(given),
            "schema": SCHEMA,
            "made": provenance(__version__),
        }

    def run(self) -> int:
        """Measure, print the results, and return the exit status."""
        given, about = self._given, self._about
        if not given.json:
            print(f"{harmless(self._server.shown)}, {about['dialect']}, model {harmless(self._server.model)}:"
                  f" {self._what()}", flush=True)  # fmt: skip
            if about["simulated"]:
                knobs = given.simulate or SIMULATED[not given.no_stream]
                print(f"No URL was given: the built-in simulator answers ({knobs}).", file=sys.stderr)
        return self._streams() if given.streams else self._find() if given.find else self._once()

    def _what(self) -> str:
        """Return what is measured, for the heading."""
        plan, given, arrivals = self._plan, self._given, self._plan.arrivals
        if given.streams:
            much = f"{len(given.streams)} steps"
        elif given.find:
            much = "search for the highest rate"
        elif arrivals is None:
            much = f"{plan.concurrency:,} at a time"
        elif arrivals.trace is not None:
            much = f"a trace of {len(arrivals.trace):,} calls"
        else:
            last = "" if arrivals.first == arrivals.last else f" to {arrivals.last:g}"
            much = f"{arrivals.first:g}{last} a second, {arrivals.kind}"
        return f"{'streams' if plan.stream else 'unstreamed calls'}, {much}, {plan.seconds:g} s"

    def _calibrate(self, plan: Plan) -> Calibration | None:
        """Measure what this client adds. A precise calibration holds for every smaller load of the same work."""
        given, (much, known) = self._given, self._calibrated
        seconds = CALIBRATION_SECONDS if given.calibrate is None else given.calibrate
        offered = plan.concurrency or 0 if plan.arrivals is None else max(plan.arrivals.first, plan.arrivals.last)
        if seconds and (known is None or known.is_imprecise or offered > much):
            kind = DIALECT_CLASSES[given.dialect]
            known = calibrate(lambda url: kind("any", url), given.dialect, split(plan, given.workers)[0], seconds)
            self._calibrated = offered, known
        return known

    def _measure(self, plan: Plan) -> Run:
        given, calibration = self._given, self._calibrate(plan)
        with closing(Progress()) as progress:
            return run_plan(
                self._server, plan, progress.look, calibration=calibration, workers=given.workers, monitor=given.monitor
            )

    def _report(self, page: JSONObject, lines: Callable[[JSONObject, Paint], list[str]]) -> None:
        """Write the files that were asked for, and print the result. Raises `CommandError`."""
        given, json = self._given, dumps_printable(page).decode()
        if given.save is not None:
            write_new(given.save, json + "\n")
        if given.html is not None:
            write_new(given.html, harmless(page_of(page, run_rows)))
        print(json if given.json else "\n" + "\n".join(lines(page, Paint(sys.stdout))))

    def _once(self) -> int:
        run = self._measure(self._plan)
        self._report(self._about | run_object(run), run_lines)
        figures = run.result.figures
        if run.result.interrupted:
            return 130
        if run.verdict.valid is False:
            return INVALID
        return 1 if figures.failures or not (figures.ok or figures.events) else 0

    def _find(self) -> int:
        plan, (first, last) = self._plan, self._given.rate or (1.0, 1.0)

        def measure(rate: float, number: int) -> Run:
            arrivals = replace(plan.arrivals or Arrivals(), first=rate, last=rate)
            work = replace(plan.work, seed=plan.work.seed + number)
            return self._measure(replace(plan, arrivals=arrivals, work=work))

        search = Search(self._given.attain or ATTAIN)
        try:
            search.run(measure, first or 1.0, last if last > first else None)
        except KeyboardInterrupt:  # between two runs
            search.interrupted = True
        self._report(self._about | search_object(search, plan.slo), search_lines)
        if search.interrupted:
            return 130
        return 0 if search.best is not None else INVALID if search.limited_by_client else 1

    def _streams(self) -> int:
        """Measure numbers of streams until one exceeds the bound. Print the results and return the exit status."""
        given, most, interrupted = self._given, 0, False
        bound: float | None = given.max_gap / 1000 if given.max_gap else None
        steps: list[JSON] = []
        for streams in given.streams:
            ramp = streams / STARTS_A_SECOND if given.ramp is None else given.ramp
            try:
                step = run_object(self._measure(replace(self._plan, concurrency=streams, ramp=ramp)))
            except KeyboardInterrupt:  # between two steps
                interrupted = True
                break
            interrupted, gap = bool(step["interrupted"]), number(step, "itl.p99")
            if bound is None and gap is not None and not interrupted:
                bound = gap + MORE_GAP
            held = not why_not(step, bound)
            steps.append(step | {"holds": held})
            if not held:
                break
            most = streams
        page: JSONObject = {"most_streams": most, "max_gap": bound, "steps": steps}
        self._report(self._about | page, streams_lines)
        return 130 if interrupted else 0 if most else 1


# --- comparison ---


def _compare(files: list[str], *, as_json: bool) -> int:
    if len(files) != 2:
        raise CommandError("compare takes two results: manystream bench compare before.json after.json", status=2)
    try:
        pages = [read_result(Path(file)) for file in files]
    except CompareError as error:
        raise CommandError(str(error), status=2) from None
    found = compared(*pages)
    lines = comparison_lines(found, files, pages, Paint(sys.stdout))
    print(dumps_printable(found).decode() if as_json else "\n".join(lines))
    return 0 if found["valid"] else INVALID
