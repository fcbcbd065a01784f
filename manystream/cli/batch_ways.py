"""`manystream batch --by`, `--via` and `--status`: the options, what is under way, and the receipt at the end."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from ..batch import Counters, JournalError
from ..batch.intake import WayFigures
from ..batch.journal import submissions_path
from ..batch.tables import is_table, journal_path
from ..cost import CURRENCY
from ..providers.json.json_values import JSONObject, dumps_text
from .batch_targets import TargetOptions
from .output.errors import CommandError
from .output.terminal import clock, counted, harmless, money

SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

WAYS = ("batch", "window", "live")


class _Status(argparse.Action):
    """Show what is under way, and end the command, as `--help` does."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        print(status(Path(str(values))))
        parser.exit()


def add_way_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser."""
    parser.add_argument(
        "--by",
        metavar="TIME",
        help="when all answers should be there, such as 06:00 or 3h: each line goes the cheapest way that keeps it",
    )
    parser.add_argument(
        "--via", choices=WAYS, help="the only way: the provider's batch interface, a window of OpenAI's, or live"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    parser.add_argument(
        "--status", action=_Status, metavar="FILE", help="show which batches of this file of answers are under way"
    )


def read_deadline(given: str | None, now: datetime) -> datetime | None:
    """Return the time that `--by` names. Raises `CommandError`.

    given: a time of day, which is the next one; a span, such as `3h` or `1h30m`; or a date with a time.
    """
    if given is None:
        return None
    spans = SPAN.findall(given)
    if spans and "".join(number + unit for number, unit in spans) == given:
        return now + timedelta(seconds=sum(float(number) * UNITS[unit] for number, unit in spans))
    try:
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


def check_ways(via: str | None, targets: TargetOptions, *, by: bool, to_file: bool, ray: bool, cache: bool) -> None:
    """Raise `CommandError` where the other options do not allow a deadline or a way.

    by: whether there is a deadline. to_file, ray, cache: whether the answers go to a file, and the options are given.
    """
    if not by and via is None:
        return
    option = "--by" if by else "--via"
    if not to_file:
        raise CommandError(f"{option} needs a file with -o, from which a later run takes what is under way", status=2)
    if ray:
        raise CommandError(f"{option} is not for --ray: the provider's batches need no workers", status=2)
    if cache:
        raise CommandError(f"{option} is not for --cache, which keeps answers of live calls", status=2)
    if via in ("batch", "window") and (targets.route or len(targets.base_urls) > 1):
        raise CommandError(f"--via {via} needs one server: leave out --route and all but one --base-url", status=2)


def status(answers: Path) -> str:
    """Return what is under way for a file of answers. Nothing is sent. Raises `CommandError`."""
    from ..batch.submissions import Submissions

    path = submissions_path(journal_path(answers) if is_table(answers) else answers)
    try:
        found = Submissions.peek(path)
    except FileNotFoundError:
        return f"Nothing is under way: {harmless(str(path))} does not exist."
    except (OSError, JournalError) as error:
        raise CommandError(f"cannot read {path}: {error}") from None
    lines: list[str] = []
    for submission in found.open.values():
        since = datetime.fromtimestamp(submission.at).astimezone().isoformat(" ", "minutes")
        state = "is being cancelled" if submission.cancelled else "is under way"
        name = submission.batch or f"(not known yet, key {submission.key})"
        what = counted(submission.lines, "line", "lines")
        lines.append(
            f"{submission.provider} {harmless(name)} {state} since {since}: {what} for {submission.group.model}"
        )
    total = sum(submission.lines for submission in found.open.values())
    count = counted(len(found.open), "batch", "batches")
    lines.append(
        f"{counted(total, 'line is', 'lines are')} under way in {count}." if lines else "Nothing is under way."
    )
    return "\n".join([*lines, *way_lines(found.ways)])


def way_lines(ways: Mapping[str, WayFigures]) -> list[str]:
    """Return the receipt's lines: for each way what went that way, and what it cost."""
    lines: list[str] = []
    for name, way in ways.items():
        text = (
            f"{name}: {counted(way.lines, 'line', 'lines')}, {way.input_tokens:,} tokens in, {way.output_tokens:,} out"
        )
        if way.list_price:
            listed, paid, saved = (money(Decimal(amount), CURRENCY) for amount in (way.list_price, way.paid, way.saved))
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


def receipt(counters: Counters, deadline: datetime | None, elapsed: float) -> str:
    """Return the summary of a run as a JSON object."""
    ways: JSONObject = {}
    for name, way in counters.ways.items():
        ways[name] = {
            "lines": way.lines, "input_tokens": way.input_tokens, "output_tokens": way.output_tokens,
            "list_price": round(way.list_price, 9), "paid": round(way.paid, 9), "saved": round(way.saved, 9),
        }  # fmt: skip
    found: JSONObject = {
        "answered": counters.answered, "failed": counters.failed, "invalid": counters.invalid,
        "answered_before": counters.answered_before, "failed_before": counters.failed_before,
        "unpaid": counters.unpaid, "submitted": counters.submitted, "seconds": round(elapsed, 3),
        "input_tokens": counters.input_tokens, "output_tokens": counters.output_tokens,
        "cost": {currency: float(amount) for currency, amount in counters.cost.items()},
        "ways": ways, "notes": [*counters.notes],
    }  # fmt: skip
    if deadline is not None:
        found["deadline"] = deadline.astimezone().isoformat()
        found["kept"] = not counters.missed and not counters.submitted
        found["missed_seconds"] = round(counters.missed, 3)
    return dumps_text(found)
