"""The difference of two results: which one is more than chance, by bootstrap over their windows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..providers.json.json_values import JSON, JSONObject, MalformedJSONError, dumps_printable, loads_object, mapping
from ..transport.files import read_file
from .figures import NAMES
from .histogram import RESAMPLES, SHARES, Counts, Interval, Windows, interval_of, merged, percentile
from .report import PERCENTILES, SCHEMA, histograms, is_valid

SETTINGS = ("dialect", "model", "stream", "slo")


class CompareError(ValueError):
    """A file that is no result. The message names it."""


def read_result(path: Path) -> JSONObject:
    """Read a result that `bench` wrote. Raises `CompareError`."""
    try:
        page = loads_object(read_file(path))
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}") from None
    except MalformedJSONError as error:
        raise CompareError(f"{path}: {error}") from None
    if page.get("schema") != SCHEMA:
        raise CompareError(f"{path}: is no result of `manystream bench` of the schema {SCHEMA}")
    for name in NAMES:
        try:
            histograms(page, name)
        except ValueError as error:
            raise CompareError(f"{path}: {name}: a histogram {error}") from None
    return page


def compared(before: JSONObject, after: JSONObject) -> JSONObject:
    """Return the comparison of two results as a JSON object. docs/guide/bench.md has the schema."""
    return {
        "valid": False not in (is_valid(before), is_valid(after)),
        "differences": [*_differences(before, after)],
        "settings": [*_other_settings(before, after)],
    }


def _other_settings(before: JSONObject, after: JSONObject) -> list[str]:
    """Return what was measured otherwise in one result than in the other, such as `concurrency: 5, 10`."""
    pages = [{**mapping(page, "load"), **{name: page.get(name) for name in SETTINGS}} for page in (before, after)]
    names = [name for name in pages[0] if name != "seed" and pages[0][name] != pages[1].get(name)]
    return [f"{name}: {', '.join(dumps_printable(page.get(name)).decode() for page in pages)}" for name in names]


def _differences(before: JSONObject, after: JSONObject) -> list[JSON]:
    """Return the difference of each percentile that both results have, in seconds."""
    found: list[JSON] = []
    for name in NAMES:
        one, two = ([counts for counts in histograms(page, name) if counts] for page in (before, after))
        if not one or not two:
            continue
        for share, word, interval in zip(SHARES, PERCENTILES, _changes(one, two), strict=True):
            first, second = percentile(merged(one), share) or 0.0, percentile(merged(two), share) or 0.0
            found.append({
                "figure": name,
                "percentile": word,
                "before": first,
                "after": second,
                "change": second / first - 1.0 if first else 0.0,
                "interval": interval and list(interval),
                "real": interval and not interval.low <= 0.0 <= interval.high,
            })  # fmt: skip
    return found


def _changes(one: Sequence[Counts], two: Sequence[Counts]) -> list[Interval | None]:
    """Return the confidence interval of the relative change of each percentile; None with too few windows."""
    first, second = Windows(one, seed=1), Windows(two, seed=2)
    if not (first.enough and second.enough):
        return [None] * len(SHARES)
    drawn = [(first.drawn(), second.drawn()) for _ in range(RESAMPLES)]
    return [
        interval_of([after[place] / max(before[place], 1e-9) - 1.0 for before, after in drawn])
        for place in range(len(SHARES))
    ]
