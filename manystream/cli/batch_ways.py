"""`manystream batch --by`, `--via` and `--status`: the options, what is under way, and the receipt at the end."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from .. import InvalidRequestError, Provider, ProviderError, open_engine
from ..batch import Counters, JournalError
from ..batch.intake import WayFigures
from ..batch.journal import submissions_path
from ..batch.tables import is_table, journal_path
from ..cost import CURRENCY
from ..engine.embedding import EmbeddedEngine
from ..engine.request.credentials import find_key, is_loopback
from ..providers.catalog.profiles import PROFILES
from ..providers.catalog.provider import DIALECT_CLASSES
from ..providers.json.json_values import JSONObject, dumps_text
from ..transport.errors import URLError
from ..transport.url import split_url
from .addresses import provider_of
from .output.errors import CommandError
from .output.terminal import clock, counted, harmless, money, one_line

if TYPE_CHECKING:
    from ..batch.submissions import Submission
    from ..providers.catalog.batches import BatchInterface
    from .batch import BatchOptions

SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

WAYS = ("batch", "window", "live")

ASK_SECONDS = 30.0
"""`--status` waits so long for the providers."""


class _Status(argparse.Action):
    """Show what is under way, and end the command, as `--help` does."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        print(status(Path(str(values)), namespace.base_url, os.environ))
        parser.exit()


def add_way_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--by",
        metavar="TIME",
        help="when all answers should be there, such as 06:00 or 3h: each line goes the cheapest way that keeps it",
    )
    add("--via", choices=WAYS, help="the only way: the provider's batch interface, a window of OpenAI's, or live")
    add("--json", action="store_true", help="print the summary as one JSON object")
    add(
        "--status",
        action=_Status,
        metavar="FILE",
        help="show what is under way for this file of answers; nothing is submitted",
    )


def read_deadline(given: str | None, now: datetime) -> datetime | None:
    """Return the time that `--by` names. Raises `CommandError`.

    given: a time of day, which is the next one; a span, such as `3h` or `1h30m`; or a date with a time.
    """
    if given is None:
        return None
    spans = SPAN.findall(given)
    try:
        if spans and "".join(number + unit for number, unit in spans) == given:
            return now + timedelta(seconds=sum(float(number) * UNITS[unit] for number, unit in spans))
        if re.fullmatch(r"\d{1,2}:\d{2}", given):
            hour, minute = map(int, given.split(":"))
            found = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return found if found > now else found + timedelta(days=1)
        found = datetime.fromisoformat(given).astimezone()
    except (ValueError, OverflowError):
        raise CommandError(f"--by {given!r} is no time: write 06:00, 3h, 1h30m or 2026-11-27T06:00", status=2) from None
    if found <= now:
        raise CommandError(f"--by {given} has passed", status=2)
    return found


def check_ways(options: BatchOptions) -> None:
    """Raise `CommandError` where the other options do not allow a deadline or a way."""
    via, targets = options.via, options.targets
    if options.by is None and via is None:
        return
    option = "--by" if options.by is not None else "--via"
    problem = ""
    if options.output is None:
        problem = "needs a file with -o, from which a later run takes what is under way"
    elif options.ray is not None:
        problem = "is not for --ray: the provider's batches need no workers"
    elif options.cache is not None:
        problem = "is not for --cache, which keeps answers of live calls"
    elif via in ("batch", "window") and (targets.route or len(targets.base_urls) > 1):
        option, problem = f"--via {via}", "needs one server: leave out --route and all but one --base-url"
    if problem:
        raise CommandError(f"{option} {problem}", status=2)


def status(answers: Path, base_urls: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what is under way for a file of answers. The providers are asked for the state of each batch; nothing is
    submitted. Raises `CommandError`."""
    from ..batch.submissions import Submissions

    path = submissions_path(journal_path(answers) if is_table(answers) else answers)
    try:
        found = Submissions.peek(path)
    except FileNotFoundError:
        return f"Nothing is under way: {harmless(str(path))} does not exist."
    except (OSError, JournalError) as error:
        raise CommandError(f"cannot read {path}: {error}") from None
    states = trio.run(_states, found.open.values(), base_urls, environment) if found.open else {}
    lines: list[str] = []
    for key, submission in found.open.items():
        state = "is being cancelled" if submission.cancelled else "is under way"
        name = submission.batch or f"(not known yet, key {key})"
        what = counted(submission.lines, "line", "lines")
        lines.append(
            f"{submission.provider} {name} {state} since {_time(submission.at)}: {what} for {submission.group.model};"
            f" {states[key]}"
        )
    windows: dict[str, list[float]] = {}
    for answer in found.windows.values():
        windows.setdefault(answer.way, []).append(answer.at)
    for way, times in windows.items():
        are = counted(len(times), "line is", "lines are")
        lines.append(f"{are} in {way} since {_time(min(times))}; the provider is not asked")
    total = sum(submission.lines for submission in found.open.values())
    if found.open:
        are, batches = counted(total, "line is", "lines are"), counted(len(found.open), "batch", "batches")
        lines.append(f"{are} under way in {batches}.")
    return "\n".join(map(one_line, [*(lines or ["Nothing is under way."]), *way_lines(found.ways)]))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "minutes")


async def _states(
    submissions: Iterable[Submission], base_urls: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return what the provider says of each batch, or why it was not asked, by the batch's key."""
    from ..batch.provider_batch import Target

    states: dict[str, str] = {}

    async def ask(provider: Provider, interface: BatchInterface, some: Sequence[Submission]) -> None:
        async with open_engine([provider]) as engine:
            target = Target(EmbeddedEngine(engine), provider, interface)
            for submission in some:
                try:
                    state = await target.get(interface.read(submission.batch or ""), interface.read_state)
                except ProviderError as error:
                    states[submission.key] = f"the provider does not say how far it is: {error.message}"
                    continue
                done = f", {state.done:,} of {state.total:,} lines done" if state.total else ""
                states[submission.key] = f"the provider says {state.status!r}{done}"

    servers: dict[tuple[str, str, str], list[Submission]] = {}
    for submission in submissions:
        servers.setdefault((submission.provider, submission.profile, submission.url), []).append(submission)
    with trio.move_on_after(ASK_SECONDS):
        async with trio.open_nursery() as nursery:
            for (name, profile, url), some in servers.items():
                try:
                    provider, interface = _interface(name, profile, url, base_urls, environment)
                except (CommandError, InvalidRequestError) as error:
                    states.update((submission.key, f"the provider is not asked: {error}") for submission in some)
                else:
                    created = [submission for submission in some if submission.batch]
                    nursery.start_soon(ask, provider, interface, created)
    unasked = f"the provider is not asked, or has not answered within {ASK_SECONDS:g} s"
    return {submission.key: unasked for some in servers.values() for submission in some} | states


def _interface(
    name: str, profile: str, url: str, base_urls: Sequence[str], environment: Mapping[str, str]
) -> tuple[Provider, BatchInterface]:
    """Return a provider with its key. Raises `CommandError` and `InvalidRequestError`.

    The file may come from somebody else, so a key goes only to the provider's own server, to one that the environment
    or the user names, or to one of this machine.
    """
    from ..providers.catalog.batches import interface_of

    row = next((row for row in PROFILES if row.name == profile), None)
    provider = None if row is None else DIALECT_CLASSES[row.dialect_name](None, url or None, name=name, profile=row)
    interface = None if provider is None else interface_of(provider)
    if row is None or provider is None or interface is None:
        raise CommandError(f"{profile!r} is no provider with a batch interface")
    known = [each for each in (row.base_url, provider_of(row, None, environment).base_url, *base_urls) if each]
    try:
        origins = [split_url(each, "address").origin for each in (url, *known) if each]
    except URLError as error:
        raise CommandError(harmless(str(error))) from None
    if not url or not (is_loopback(url) or origins[0] in origins[1:]):
        raise CommandError(f"give its address before --status: --base-url {harmless(url or 'URL')}")
    find_key(provider, environment)
    return provider, interface


def way_lines(ways: Mapping[str, WayFigures]) -> list[str]:
    """Return the receipt's lines: for each way what went that way, and what it cost."""
    lines: list[str] = []
    for name, way in ways.items():
        text = (
            f"{name}: {counted(way.lines, 'line', 'lines')}, {way.input_tokens:,} tokens in, {way.output_tokens:,} out"
        )
        amounts = [amount for amount in (way.list_price, way.paid, way.saved) if amount is not None]
        if len(amounts) == 3 and any(amounts):
            listed, paid, saved = (money(Decimal(amount), CURRENCY) for amount in amounts)
            text += f", {listed} at list price, {paid} paid, {saved} saved"
        lines.append(text)
    return lines


def deadline_line(counters: Counters, deadline: datetime | None, now: datetime) -> str:
    """Return whether the deadline was kept; empty without one."""
    if deadline is None:
        return ""
    when = deadline.astimezone().isoformat(" ", "minutes")
    if counters.missed:
        return f"The deadline {when} was missed by {clock(counters.missed)}."
    return f"The deadline {when} was kept, with {clock(max(0.0, (deadline - now).total_seconds()))} left."


def under_way_line(counters: Counters) -> str:
    """Return what goes on at providers after Ctrl-C; empty for nothing."""
    if not counters.submissions:
        return ""
    lines = counted(counters.submitted, "line is", "lines are")
    batches = counted(counters.submissions, "batch", "batches")
    return f"{lines} in {batches} of the provider, which go on: the same command takes their answers. "


RECEIPT = (
    *("answered", "failed", "invalid", "answered_before", "failed_before", "unpaid", "submitted"),
    *("input_tokens", "output_tokens"),
)


def receipt(counters: Counters, deadline: datetime | None, elapsed: float) -> str:
    """Return the summary of a run as a JSON object."""
    found: JSONObject = {name: getattr(counters, name) for name in RECEIPT}
    found["seconds"], found["notes"] = round(elapsed, 3), [*counters.notes]
    found["cost"] = {currency: float(amount) for currency, amount in counters.cost.items()}
    found["ways"] = {
        name: {
            member: None if value is None else round(value, 9)
            for member, value in (asdict(way) | {"saved": way.saved}).items()
        }
        for name, way in counters.ways.items()
    }
    if deadline is not None:
        found["deadline"] = deadline.astimezone().isoformat()
        found["kept"] = not counters.missed and not counters.submitted
        found["missed_seconds"] = round(counters.missed, 3)
    return dumps_text(found)
