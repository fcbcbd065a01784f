"""The command `manystream batch`: it sends every line of a file of prompts, and writes a file of answers."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import signal
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import trio

from .. import InvalidRequestError, ManystreamError, RateLimit, Retry, Route, Traffic, open_engine
from ..batch import (
    Batch,
    BatchBudget,
    BatchError,
    Counters,
    Journal,
    JournalError,
    Shard,
    ShardError,
    read_lines,
    read_shard,
)
from ..batch.journal import default_errors_path
from ..batch.lines import CommonOptions, Prompt, members_of, named_model
from ..batch.prices import price_list
from ..batch.printed import PrintedRecords
from ..batch.run import WayName
from ..batch.source import some_lines
from ..batch.tables import (
    SEPARATORS,
    TableError,
    count_rows,
    form_of,
    is_table,
    journal_path,
    numbered,
    open_plain,
    open_rows,
    read_rows,
    some_rows,
    write_table,
)
from ..cost import PriceTable
from ..engine.embedding import EVERY_CALL, OUTAGE
from ..http_server import allow_many_sockets
from ..providers.model.structured import schema_of
from .answer import read_prices
from .batch_budget import budget_notice, budget_report, check_prices, open_budget
from .batch_files import check_files, read_path
from .batch_help import DESCRIPTION as DESCRIPTION
from .batch_help import EPILOG
from .batch_options import add_request_arguments, read_request_options
from .batch_progress import LOOK_SECONDS, Progress, summary
from .batch_targets import (
    SIMULATOR,
    Destination,
    TargetOptions,
    add_target_arguments,
    open_destination,
    read_target_options,
)
from .batch_ways import add_way_arguments, check_ways, deadline_line, read_deadline, receipt, under_way_line, way_lines
from .options import add_number
from .output.errors import CommandError
from .output.terminal import Paint, can_redraw, one_line

if TYPE_CHECKING:
    from ..cache import AnswerCache
    from ..ray.driver import ClusterBatch

Lines: TypeAlias = AsyncGenerator[list[tuple[int, bytes]], None]
"""What `read_lines` yields."""

RESUMABLE = "; all answers so far are in the file; the same command resumes the batch"

INTERRUPTED = 130
"""The exit status after Ctrl-C."""

INTERRUPTED_SECONDS = 1.0
"""After Ctrl-C, printed answers wait so long for a reader that has stopped."""


@dataclass(slots=True, frozen=True)
class BatchOptions:
    """The options of `manystream batch`, checked. Each has the meaning of its option, whose text is in `add_arguments`.

    prompts: the input file; None for standard input.
    output: the journal of answers, a shard's own if there are shards; None for standard output.
    table: the table that is written at the end, likewise; None if the journal is all there is.
    errors: the file of failures, likewise; None for standard error.
    requests: options of the requests of all lines.
    """

    prompts: Path | None
    output: Path | None
    table: Path | None
    escape_formulas: bool
    finish: bool
    errors: Path | None
    shard: Shard | None
    targets: TargetOptions
    requests: CommonOptions
    concurrency: int
    max_rps: float | None
    max_tpm: float | None
    budget: float | None
    prices: PriceTable | None
    adaptive: bool
    attempts: int
    outage: float
    stream: bool
    retry_failed: bool
    by: datetime | None
    via: WayName | None
    json: bool
    ray: str | None
    actors: int | None
    cache: Path | None
    monitor: bool
    plain: bool

    @property
    def source(self) -> str:
        """The input's name, for messages."""
        return str(self.prompts) if self.prompts is not None else "standard input"

    @property
    def shared_limits(self) -> dict[str, float | None]:
        """Option → its value, for the limits that all shards share; each shard uses its part."""
        return {"--max-rps": self.max_rps, "--max-tpm": self.max_tpm, "--budget": self.budget}

    def part(self, limit: float | None) -> float | None:
        """Return this process's part of a limit that all shards share."""
        return limit if limit is None or self.shard is None else limit / self.shard.count

    @property
    def limit(self) -> RateLimit | None:
        """`--max-rps` and `--max-tpm`: one limit over all calls of this process, or None."""
        if self.max_rps is None and self.max_tpm is None:
            return None
        return RateLimit(requests_per_second=self.part(self.max_rps), tokens_per_minute=self.part(self.max_tpm))

    def traffic(self, routes: Sequence[Route], budget: BatchBudget | None) -> Traffic:
        """Return the engine's traffic control."""
        rates = {EVERY_CALL: self.limit} if self.limit is not None else {}
        traffic = Traffic(rates=rates, routes=routes, adaptive=self.adaptive, outage=self.outage)
        return traffic if budget is None else replace(traffic, budgets=(budget.for_engine(),), price=budget.price)


AS_GIVEN = (
    *("finish", "concurrency", "max_rps", "max_tpm", "budget", "attempts", "outage", "stream", "retry_failed", "via"),
    *("json", "ray", "actors", "monitor", "escape_formulas"),
)
"""The options that are the arguments as they are."""


@dataclass(slots=True)
class Run:
    """What is reported after the engine and the files were closed.

    elapsed: how long it took, in seconds.
    total: the number of lines to send; None if it is unknown.
    """

    counters: Counters
    started: bool = False
    interrupted: bool = False
    elapsed: float = 0.0
    total: int | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, number = parser.add_argument, partial(add_number, parser)
    add(
        "prompts",
        metavar="PROMPTS",
        help="the file of prompts: JSONL, CSV, TSV, Parquet; - reads JSONL of standard input",
    )
    add(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the file of answers: JSONL, or a table by its ending; - prints JSONL, and no later run continues",
    )
    add("--finish", action="store_true", help="write the table of -o with the answers so far, and send nothing")
    add("--escape-formulas", action="store_true", help="in CSV, put ' before what a spreadsheet takes for a formula")
    add(
        "--errors",
        metavar="FILE",
        help="the file of failures (default: answers.errors.jsonl beside answers.jsonl; standard error with -o -)",
    )
    add("--shard", metavar="I/N", help="send every Nth line only, as shard I of 0 to N-1; see `shards` below")
    add_target_arguments(parser)
    add_request_arguments(parser)
    number("--concurrency", kind=int, default=100, metavar="N", help="calls at a time (default: 100)")
    number("--max-rps", metavar="R", help="requests per second (default: no limit)")
    number("--max-tpm", metavar="T", help="input and output tokens per minute, roughly (default: no limit)")
    number("--budget", metavar="USD", help="US dollars for all runs on these files (default: no limit)")
    add("--prices", metavar="FILE", help="a JSON file with prices of your own, by model")
    add("--no-adaptive", action="store_true", help="learn no limits from what servers report and refuse")
    number("--attempts", kind=int, default=6, metavar="N", help="the most attempts of a line in one run (default: 6)")
    add(
        "--outage",
        type=float,
        default=OUTAGE,
        metavar="SECONDS",
        help="how long to wait for a server that takes no connections (default: 1800, half an hour; inf: for ever)",
    )
    add("--stream", action="store_true", help="request streams: for long answers over networks that close idle ones")
    add("--retry-failed", action="store_true", help="send lines again that failed in earlier runs")
    add("--cache", metavar="DIR", help="keep answers in this folder, and send no line whose answer is there")
    add_way_arguments(parser)
    add("--ray", metavar="ADDRESS", help="use a Ray cluster: HOST:PORT, auto or local")
    number("--actors", kind=int, metavar="N", help="the workers on the cluster (default: one for each of its CPUs)")
    add("--monitor", action="store_true", help="allow `manystream top` to show this process")
    add("--plain", action="store_true", help="show progress as plain lines, also on a terminal")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    options = _read_options(arguments)
    allow_many_sockets()
    try:
        status = 0
        if not options.finish:
            with _open_input(options) as (input, models), open_destination(options.targets, models) as destination:
                status = trio.run(_batch, options, destination, input)
        if options.table is not None and options.prompts is not None and status != INTERRUPTED:
            _write_table(options, options.table, options.prompts)
        return status
    except (JournalError, InvalidRequestError, TableError) as error:
        raise CommandError(str(error)) from None


def _write_table(options: BatchOptions, table: Path, prompts: Path) -> None:
    try:
        prompt, escape = options.requests.get("prompt"), options.escape_formulas
        rows = write_table(table, prompts, prompt, options.shard, escape_formulas=escape)
    except OSError as error:
        raise CommandError(f"cannot write {table}: {error.strerror or error}; --finish tries again") from None
    print(f"{table} has {rows:,} rows", file=sys.stderr)


def _table(output: Path | None, prompts: Path | None, *, finish: bool) -> Path | None:
    """Return the table that `-o` names, or None for JSON lines, which are their own journal. Raises `CommandError`."""
    try:
        table = output if output is not None and is_table(output) else None
        if prompts is not None:
            form_of(prompts)
    except TableError as error:
        raise CommandError(str(error), status=2) from None
    if table is None and finish:
        raise CommandError("--finish writes a table: name one with -o, such as answers.csv", status=2)
    if table is None or output is None:
        return None
    if prompts is None:
        raise CommandError(f"-o {output}: a table has the rows of its input, which must be a file", status=2)
    if table.exists() and not journal_path(table).exists():
        raise CommandError(f"{table} exists, and no batch has written it: name another file with -o", status=2)
    if finish and not journal_path(table).exists():
        raise CommandError(f"there are no answers for {table}: {journal_path(table)} does not exist", status=2)
    return table


def _read_options(arguments: argparse.Namespace) -> BatchOptions:
    shard = _read_shard(arguments.shard)
    prompts = None if arguments.prompts == "-" else Path(arguments.prompts)
    output = read_path("-o", arguments.output) if arguments.output != "-" else None
    if output is not None and shard is not None:
        output = shard.file(output)
    table = _table(output, prompts, finish=arguments.finish)
    if table is not None:
        output = journal_path(table)
    errors = read_path("--errors", arguments.errors) if arguments.errors is not None else None
    if errors is None:
        errors = default_errors_path(output) if output is not None else None
    elif shard is not None:
        errors = shard.file(errors)
    options = BatchOptions(
        prompts=prompts,
        output=output,
        table=table,
        errors=errors,
        shard=shard,
        targets=read_target_options(arguments),
        requests=read_request_options(arguments),
        prices=read_prices(arguments.prices),
        adaptive=not arguments.no_adaptive,
        by=read_deadline(arguments.by, datetime.now().astimezone()),
        cache=Path(arguments.cache) if arguments.cache is not None else None,
        plain=arguments.plain or not can_redraw(sys.stderr),
        **{name: getattr(arguments, name) for name in AS_GIVEN},
    )
    _check_options(options)
    return options


def _check_options(options: BatchOptions) -> None:
    """Raise `CommandError` for values that cannot be, and for options that do not go together."""
    if not options.outage >= 0:
        raise CommandError(f"--outage must be a number of seconds of at least 0, not {options.outage:g}", status=2)
    if options.ray is not None or options.actors is not None:
        from .batch_ray import check_ray

        check_ray(options.ray, options.targets)
    if options.budget is not None or options.prices is not None:
        check_prices("--prices" if options.budget is None else "--budget", simulated=options.targets.simulated)
    if options.cache is not None and options.ray is not None:
        raise CommandError("--cache is a file of this machine, which workers with --ray cannot use", status=2)
    check_ways(options)
    if options.escape_formulas and (options.table is None or form_of(options.table) not in SEPARATORS):
        raise CommandError("--escape-formulas is for a table in CSV or TSV: name one with -o", status=2)
    if options.output is None and options.retry_failed:
        raise CommandError("--retry-failed reads the files of an earlier run, which -o - does not write", status=2)
    if options.output is None and options.ray is not None and options.budget is not None:
        raise CommandError("--budget with --ray is written down beside the answers: name a file with -o", status=2)
    check_files(options.prompts, options.output, options.errors)


def _read_shard(given: str | None) -> Shard | None:
    try:
        return read_shard(given) if given is not None else None
    except ShardError as error:
        raise CommandError(f"--shard {given or repr(given)}: {error}", status=2) from None


def shard_notice(shard: Shard, options: BatchOptions) -> str:
    """Return a line that states which lines this shard sends, and its part of each limit."""
    text = f"Shard {shard}: the lines whose number modulo {shard.count} is {shard.index}"
    for name, limit in options.shared_limits.items():
        if limit is not None:
            text += f"; {name} {_number(limit / shard.count)} of {_number(limit)}"
    return text


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


@contextmanager
def _open_input(options: BatchOptions) -> Generator[tuple[Lines, list[str]], None, None]:
    """Yield the lines of the input, and models that the first ones name, where nothing else names a model.

    Raises `CommandError` if these lines name none either.
    """
    with ExitStack() as opened:
        try:
            lines, first = _open_lines(options, opened)
        except OSError as error:
            raise CommandError(f"cannot read {options.source}: {error.strerror or error}") from None
        models = list(dict.fromkeys(model for line in first if (model := named_model(line))))
        if options.targets.by_lines and not models and (first or "prompt" in options.requests):
            raise CommandError(
                f"no model is named, neither here nor by the first lines of {options.source}: name one with --model, or"
                " let the built-in simulator answer with --simulate",
                status=2,
            )
        yield lines, models


def _open_lines(options: BatchOptions, opened: ExitStack) -> tuple[Lines, Sequence[bytes]]:
    """Return the lines of the input, and the first ones, if these may name the models.

    Raises `OSError` and `TableError`.
    """
    path, prompt = options.prompts, options.requests.get("prompt")
    by_lines = options.targets.by_lines and prompt is None
    if path is not None and form_of(path) != "jsonl":
        rows = open_rows(path, opened, prompt)
        _check_prompt(prompt, rows.names or (), f"{path} has")
        return read_rows(rows), some_rows(open_rows(path, opened)) if by_lines else ()
    if path is not None and path.is_file() and prompt is not None:
        with open_plain(path) as file:
            names = [name for line in some_lines(file) for name in members_of(line)]
        _check_prompt(prompt if names else None, names, f"the first lines of {path} have")
    source: Path | BinaryIO = path if path is not None else sys.stdin.buffer
    if path is not None and (by_lines or is_table(path)):
        source = opened.enter_context(open_plain(path))
    first = some_lines(source) if by_lines and not isinstance(source, Path) else ()
    lines = read_lines(source, first)
    return (lines if prompt is None else numbered(lines)), first


def _check_prompt(prompt: Prompt | None, names: Sequence[str], source: str) -> None:
    """Raise `CommandError` if the prompt names a column that the rows do not have: each of them would fail."""
    named = [] if prompt is None else [name for _, name in prompt.parts if name is not None]
    missing = next((name for name in named if name not in names), None)
    if missing is not None:
        close = difflib.get_close_matches(missing, names, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"they are {', '.join(dict.fromkeys(names)) or 'none'}"
        raise CommandError(f"{source} no column {missing!r}, and the prompt is made of it; {hint}", status=2)


async def _batch(options: BatchOptions, destination: Destination, input: Lines) -> int:
    """Run the batch, print the summary, also after a failure, and return the exit status."""
    budget = open_budget(options.part(options.budget), destination, options.prices)
    journal: Journal | PrintedRecords
    if options.output is not None:
        journal = Journal(options.output, options.errors, budget=budget)
    else:
        journal = PrintedRecords(sys.stdout.buffer, options.errors or sys.stderr.buffer)
    run = Run(Counters())
    failure: Exception | None = None
    try:
        with journal:
            if isinstance(journal, Journal):
                _check_makers(journal, destination.name)
                if budget is not None and (notice := budget_notice(budget, journal.answers_path)):
                    print(notice, file=sys.stderr)
            await _ask(options, destination, journal, budget, run, input)
    except (BatchError, JournalError, CommandError, TableError) as error:
        failure = error
    if run.started:
        report = sys.stdout if options.output is not None else sys.stderr
        if options.json:
            text = receipt(run.counters, options.by, run.elapsed)
        else:
            text = summary(run.counters, run.elapsed, journal.answers_path, journal.errors_path, Paint(report))
            parts = [text, *way_lines(run.counters.ways), *map(one_line, run.counters.notes)]
            if failure is None and not run.interrupted:
                parts.append(deadline_line(run.counters, options.by, datetime.now().astimezone()))
            text = "\n".join(filter(None, parts))
        print(text, file=report)
    if isinstance(failure, BatchError):
        raise CommandError(f"{one_line(str(failure))}{'' if options.output is None else RESUMABLE}")
    if failure is not None:
        raise failure
    if run.interrupted:
        more = "" if options.table is None else f", and --finish writes {options.table} with the answers so far"
        resume = "" if options.output is None else f" The same command resumes the batch{more}."
        print(f"Interrupted. {under_way_line(run.counters)}{resume.lstrip()}".rstrip(), file=sys.stderr)
        return INTERRUPTED
    counters = run.counters
    if counters.unpaid:
        print(budget_report(counters, run.total), file=sys.stderr)
    failed = counters.failed + counters.failed_before + counters.invalid + counters.unpaid
    return 1 if failed or counters.missed else 0


async def _ask(
    options: BatchOptions,
    destination: Destination,
    journal: Journal | PrintedRecords,
    budget: BatchBudget | None,
    run: Run,
    input: Lines,
) -> None:
    async with _open_batch(options, destination, journal, budget) as batch:
        if options.targets.simulated:
            print("The built-in simulator answers, not a model.", file=sys.stderr)
        shard = options.shard
        if shard is not None:
            print(shard_notice(shard, options), file=sys.stderr)
        total = count_rows(options.prompts) if options.prompts is not None and options.prompts.is_file() else None
        if total is not None and shard is not None:
            total = shard.lines_of(total)
        label = f"shard {shard}" if shard is not None else ""
        progress = Progress(batch.counters, total, label, outage=options.outage, plain=options.plain)
        run.started, run.counters, run.total = True, batch.counters, total
        try:
            run.interrupted = await _work(batch, options, progress, input, journal)
        finally:
            run.elapsed = progress.elapsed
            progress.close()


@asynccontextmanager
async def _open_batch(
    options: BatchOptions, destination: Destination, journal: Journal | PrintedRecords, budget: BatchBudget | None
) -> AsyncGenerator[Batch | ClusterBatch, None]:
    """Open the engine, or connect to the cluster, and yield the batch."""
    simulated = options.targets.simulated
    proxy = "" if simulated else None
    if options.ray is not None:
        from .batch_ray import WorkerOptions, open_cluster_batch, with_key

        workers = WorkerOptions(
            tuple(with_key(provider, os.environ) for provider in destination.providers),
            destination.choose_model,
            options.concurrency,
            options.attempts,
            options.stream,
            options.source,
            destination.routes,
            options.limit,
            options.adaptive,
            proxy,
            options.monitor,
            priced=not simulated,
            budgeted=budget is not None,
            prices=options.prices,
            requests=_picklable(options.requests),
            outage=options.outage,
        )
        retry_failed, shard = options.retry_failed, options.shard
        with open_cluster_batch(
            options.ray, options.actors, workers, journal, retry_failed=retry_failed, shard=shard, budget=budget
        ) as cluster_batch:
            yield cluster_batch
        return
    retry = Retry(max_attempts=options.attempts, cap=60.0)
    traffic = options.traffic(destination.routes, budget)
    cache = open_cache(options.cache) if options.cache is not None else nullcontext()
    with cache as answers:
        async with open_engine(
            destination.providers, retry=retry, proxy=proxy, monitor=options.monitor, traffic=traffic, cache=answers
        ) as engine:
            yield Batch(
                engine,
                journal,
                destination.choose_model,
                concurrency=options.concurrency,
                stream=options.stream,
                retry_failed=options.retry_failed,
                source=options.source,
                provider=destination.name,
                price=None if simulated else price_list(*destination.providers, table=options.prices),
                shard=options.shard,
                budget=budget,
                options=options.requests,
                # It may have passed while files were opened. Then all goes on, and is reported as late.
                by=options.by and max(options.by, datetime.now().astimezone() + timedelta(seconds=1)),
                via=options.via,
            )


def open_cache(folder: Path) -> AnswerCache:
    """Open the cache in a folder, which is made if there is none. Raises `CommandError`."""
    from ..cache import AnswerCache, CacheError

    try:
        folder.mkdir(exist_ok=True)
        return AnswerCache(folder)
    except OSError as error:
        raise CommandError(f"--cache {folder} is no folder: {error.strerror}", status=2) from None
    except CacheError as error:
        raise CommandError(f"--cache: {error}", status=2) from None


def _picklable(options: CommonOptions) -> CommonOptions:
    """Return the options with the schema in place of its class, whose module the workers' machines may not have."""
    schema = options.get("response_schema")
    return options if schema is None else {**options, "response_schema": schema_of(schema)}


async def _work(
    batch: Batch | ClusterBatch,
    options: BatchOptions,
    progress: Progress,
    input: Lines,
    journal: Journal | PrintedRecords,
) -> bool:
    """Run the batch and show its progress. Return whether Ctrl-C ended it."""
    interrupted = False
    async with trio.open_nursery() as nursery:

        async def look() -> None:
            while True:
                await trio.sleep(LOOK_SECONDS)
                if isinstance(batch, Batch):
                    batch.count_waiting()
                progress.look()

        async def stop_on_signal() -> None:
            nonlocal interrupted
            with trio.open_signal_receiver(signal.SIGINT) as signals:
                async for _ in signals:
                    interrupted = True
                    batch.stop()

        async def print_answers(printed: PrintedRecords) -> None:
            await printed.write()
            batch.stop()  # its reader has ended, or the disk is full

        nursery.start_soon(look)
        nursery.start_soon(stop_on_signal)
        failure: Exception | None = None
        if isinstance(journal, PrintedRecords):
            nursery.start_soon(print_answers, journal)
            input = _slowed(input, journal)
        try:
            await batch.run(input)
        except OSError as error:
            failure = CommandError(f"cannot read {options.source}: {error.strerror}")
        except ManystreamError as error:
            failure = error
        if isinstance(journal, PrintedRecords):
            await journal.flush(INTERRUPTED_SECONDS if interrupted else math.inf)
            if isinstance(journal.failure, BrokenPipeError):
                failure = journal.failure
            elif journal.failure is not None and failure is None:
                failure = CommandError(f"cannot write the answers: {journal.failure.strerror}")
        nursery.cancel_scope.cancel()
    if failure is not None:  # raised here, since the nursery would wrap it
        raise failure
    return interrupted


async def _slowed(lines: Lines, printed: PrintedRecords) -> Lines:
    """Yield the lines no faster than answers are printed."""
    async with aclosing(lines):
        async for some in lines:
            await printed.wait_for_room()
            yield some


def _check_makers(journal: Journal, name: str) -> None:
    """Raise `JournalError` if the file would hold both simulated and real answers."""
    simulated = SIMULATOR in journal.makers
    if journal.makers and simulated != (name == SIMULATOR):
        origin = "the simulator" if simulated else "a model"
        raise JournalError(
            f"{journal.answers_path} holds answers of {origin}, and this run would add answers of {name!r}:"
            " choose another file with -o, or delete that file"
        )
