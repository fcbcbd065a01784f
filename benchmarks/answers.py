"""The answer to a question: rows for the table, series for the plots. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    value: the figure, in `unit`.
    ratio: the comparison with `against`, from the same run; above 1 is better for us if the target is "at least".
    target: the target in words; empty for a figure of a peer.
    met: whether the target was reached; None without a target.
    shown: RESULTS.md shows it although its question has many rows.
    """

    what: str
    value: float
    unit: str
    ratio: float | None = None
    against: str = ""
    target: str = ""
    met: bool | None = None
    shown: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one line in one plot."""

    plot: str
    label: str
    points: list[tuple[float, float]]


@dataclass(slots=True)
class Answer:
    """All rows, series and notes of one question."""

    question: str
    rows: list[Row] = field(default_factory=list[Row])
    series: list[Series] = field(default_factory=list[Series])
    notes: list[str] = field(default_factory=list[str])

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        *,
        ratio: float | None = None,
        against: str = "",
        target: str = "",
        met: bool | None = None,
        shown: bool = False,
        beside: tuple[str, float] | None = None,
        within: float | None = None,
    ) -> None:
        """Add a row. Prints it at once, so that a long run shows its progress.

        beside: the name and the figure of what it is compared with, for `ratio` and `against`.
        within: the largest ratio that meets the target.
        """
        if beside is not None:
            against, ratio = beside[0], value / beside[1]
            if within is not None:
                target, met = f"≤ {within:g} × {against}", ratio <= within
        row = Row(what, value, unit, ratio, against, target, met, shown)
        self.rows.append(row)
        print(line(row), flush=True)


def number(value: float) -> str:
    """Format a figure: three significant digits, with thousands separators."""
    if value != value:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def comparison(row: Row) -> str:
    """Format the ratio."""
    return f"{number(row.ratio)} × {row.against}" if row.ratio is not None else ""


def verdict(row: Row) -> str:
    """Format whether the target was reached."""
    return {True: "met", False: "MISSED", None: ""}[row.met]


def line(row: Row) -> str:
    """Format a row of the printed table."""
    value = f"{number(row.value)} {row.unit}"
    return f"  {row.what:<58} {value:>20}  {comparison(row):<34} {row.target:<34} {verdict(row)}".rstrip()
