"""What a question answers: rows for the table, series for the plots. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    ratio: how this compares with `against`, measured in the same run; above 1 is better for us wherever a target
    asks for "at least". target: in words, empty where this is a peer's figure. met: None where there is no target.
    """

    what: str
    value: float
    unit: str
    ratio: float | None = None
    against: str = ""
    target: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one line in one plot."""

    plot: str
    label: str
    points: list[tuple[float, float]]


@dataclass(slots=True)
class Answer:
    """All that one question found."""

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
    ) -> None:
        """One more row; it is printed at once, so that a long run shows where it is."""
        row = Row(what, value, unit, ratio, against, target, met)
        self.rows.append(row)
        print(line(row), flush=True)


def number(value: float) -> str:
    """Three significant figures, thousands apart."""
    if value != value:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def comparison(row: Row) -> str:
    """The ratio in words."""
    return f"{number(row.ratio)} × {row.against}" if row.ratio is not None else ""


def verdict(row: Row) -> str:
    """Whether the target was met."""
    return {True: "met", False: "MISSED", None: ""}[row.met]


def line(row: Row) -> str:
    """One row of the printed table."""
    value = f"{number(row.value)} {row.unit}"
    return f"  {row.what:<58} {value:>20}  {comparison(row):<34} {row.target:<34} {verdict(row)}".rstrip()
