"""The difference of two results: which one is more than chance, by bootstrap over their windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..providers.json.json_values import JSONObject, MalformedJSONError, dumps_printable, loads_object, mapping
from .figures import NAMES
from .histogram import RESAMPLES, SHARES, Counts, Interval, Windows, decoded, interval_of, merged, percentile
from .report import PERCENTILES, SCHEMA

SETTINGS = ("dialect", "model", "stream", "slo")


class CompareError(ValueError):
    """A file that is no result. The message names it."""


@dataclass(slots=True, frozen=True)
class Difference:
    """A percentile of a figure in two results, in seconds.

    figure: the figure's name.
    percentile: the percentile's name.
    before, after: its value in the first and in the second result.
    interval: the confidence interval of the relative change; None with too few windows.
    """

    figure: str
    percentile: str
    before: float
    after: float
    interval: Interval | None

    @property
    def change(self) -> float:
        """The relative change: 0.1 is ten per cent more."""
        return self.after / self.before - 1.0 if self.before else 0.0

    @property
    def real(self) -> bool | None:
        """Whether the change is more than chance; None if that is unknown."""
        return None if self.interval is None else not self.interval.low <= 0.0 <= self.interval.high


def read_result(path: Path) -> JSONObject:
    """Read a result that `bench` wrote. Raises `CompareError`."""
    try:
        page = loads_object(path.read_bytes())
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}") from None
    except MalformedJSONError as error:
        raise CompareError(f"{path}: {error}") from None
    if page.get("schema") != SCHEMA:
        raise CompareError(f"{path}: is no result of `manystream bench` of the schema {SCHEMA}")
    return page


def is_valid(page: JSONObject) -> bool | None:
    """Return whether a result is marked as valid; None if it was not judged."""
    found = mapping(page, "validity").get("valid")
    return found if isinstance(found, bool) else None


def different_settings(before: JSONObject, after: JSONObject) -> list[str]:
    """Return what was measured otherwise in one result than in the other, such as `concurrency: 5, 10`."""
    pages = [{**mapping(page, "load"), **{name: page.get(name) for name in SETTINGS}} for page in (before, after)]
    names = [name for name in pages[0] if name != "seed" and pages[0][name] != pages[1].get(name)]
    return [f"{name}: {', '.join(dumps_printable(page.get(name)).decode() for page in pages)}" for name in names]


def differences(before: JSONObject, after: JSONObject) -> list[Difference]:
    """Return the difference of each percentile that both results have. Raises `CompareError`."""
    found: list[Difference] = []
    for name in NAMES:
        one, two = _windows(before, name), _windows(after, name)
        if not one or not two:
            continue
        intervals = _changes(one, two)
        for share, word, interval in zip(SHARES, PERCENTILES, intervals, strict=True):
            first, second = percentile(merged(one), share), percentile(merged(two), share)
            if first is not None and second is not None:
                found.append(Difference(name, word, first, second, interval))
    return found


def _windows(page: JSONObject, name: str) -> list[Counts]:
    texts = mapping(page, name).get("histograms")
    try:
        found = [decoded(text) for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    except ValueError as error:
        raise CompareError(f"{name}: a histogram {error}") from None
    return [histogram for histogram in found if histogram]


def _changes(one: Sequence[Counts], two: Sequence[Counts]) -> list[Interval | None]:
    first, second = Windows(one, seed=1), Windows(two, seed=2)
    if not (first.enough and second.enough):
        return [None] * len(SHARES)
    drawn = [(first.drawn(), second.drawn()) for _ in range(RESAMPLES)]
    return [
        interval_of([after[place] / max(before[place], 1e-9) - 1.0 for before, after in drawn])
        for place in range(len(SHARES))
    ]
