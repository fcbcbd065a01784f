"""Reads Anthropic's token counts.

A report has counts of its own and may have `iterations`: an entry for each time that a model was sampled. The report's
own counts are those of the model that answered. The entries also have what else is billed: a compaction, an advisor,
an attempt that gave way to a fallback model after it had written something (`BetaIterationsUsage` in Anthropic's
client library).
"""

from __future__ import annotations

from ..json.json_values import JSON, JSONObject, integer, mapping, objects, string
from ..model.tokens import Usage

INPUT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The counts of a report whose sum is the whole input."""

ANSWERS = frozenset({"message", "fallback_message"})
"""Types of entries in which a model worked on the answer itself."""


def charged_iterations(report: JSONObject) -> list[JSONObject]:
    """Return the entries of a report that are billed; none if it has no entries.

    An attempt without output, after which another one follows, was declined, and is not billed.
    """
    entries = objects(report, "iterations")
    answers = [place for place, entry in enumerate(entries) if _is_answer(entry)]
    declined = {place for place in answers[:-1] if integer(entries[place], "output_tokens") == 0}
    return [entry for place, entry in enumerate(entries) if place not in declined]


def merge_report(earlier: dict[str, JSON], report: JSONObject) -> None:
    """Merge a stream's later report into the earlier one.

    Its counts are totals, so each replaces the earlier one, 0 included. A null changes nothing. Some servers report
    the input only at the start, and 0 afterwards: zeros beside `input_tokens: 0` change nothing, unless the report says
    where the input went. It does by its entries, or by a new number of tokens read from or written to a cache.
    """
    unaccounted = report.get("input_tokens") == 0 and not (
        report.get("iterations") or any(report.get(name) not in (0, None, earlier.get(name)) for name in INPUT_COUNTS)
    )
    for member, value in report.items():
        if value is not None and not (unaccounted and member in INPUT_COUNTS and earlier.get(member)):
            earlier[member] = value


def read_usage(raw: JSONObject) -> Usage:
    """Return Anthropic's token counts as `Usage`: all that is billed.

    Anthropic's `input_tokens` exclude tokens that were read from or written to a cache; those of `Usage` include them.
    Its `output_tokens` include thinking; those of `Usage` do not. Only some models report thinking
    (`output_tokens_details`).
    """
    if not raw:
        return Usage()
    counts = _billed(raw) if raw.get("iterations") else raw
    uncached = integer(counts, "input_tokens")
    read = integer(counts, "cache_read_input_tokens")
    written = integer(counts, "cache_creation_input_tokens")
    generated = integer(counts, "output_tokens")
    thinking = integer(mapping(raw, "output_tokens_details"), "thinking_tokens")
    given = None if uncached is None else uncached + (read or 0) + (written or 0)
    return Usage(
        input_tokens=given,
        output_tokens=None if generated is None else max(0, generated - (thinking or 0)),
        thinking_tokens=thinking,
        cached_tokens=read,
        cache_write_tokens=written,
        total_tokens=None if given is None or generated is None else given + generated,
        raw=raw,
    )


def _billed(raw: JSONObject) -> JSONObject:
    """Return each count as the sum over the billed entries. Where no entry is about the answer itself, or one of them
    lacks the count, the report's own count stands for them."""
    entries = charged_iterations(raw)
    counts: JSONObject = {}
    for name in (*INPUT_COUNTS, "output_tokens"):
        own, answers = integer(raw, name), [integer(entry, name) for entry in entries if _is_answer(entry)]
        others = [count for entry in entries if not _is_answer(entry) and (count := integer(entry, name)) is not None]
        if None in answers or not (answers or (own is None and others)):
            answers = [own]
        known = [count for count in answers if count is not None]
        if len(known) == len(answers):
            counts[name] = sum(known) + sum(others)
    return counts


def _is_answer(entry: JSONObject) -> bool:
    return string(entry, "type") in ANSWERS
