"""Format the result of a run as tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .argued import Argument, argument_for
from .compare import Difference
from .corpus import Case

COLUMNS = ("answers", "identical", "argued", "unargued")


@dataclass(slots=True)
class Judged:
    """The verdict on one recorded response: its differences, each with the rule that applies, and its faults."""

    case: Case
    differences: list[tuple[Difference, Argument | None]] = field(
        default_factory=list[tuple[Difference, "Argument | None"]]
    )
    faults: list[str] = field(default_factory=list[str])

    @property
    def verdict(self) -> str:
        """`identical`, `argued` or `unargued`."""
        if self.faults or any(argument is None for _, argument in self.differences):
            return "unargued"
        return "argued" if self.differences else "identical"


def judge(case: Case, differences: Iterable[Difference], faults: Iterable[str]) -> Judged:
    """Find the rule that applies to each difference."""
    return Judged(case, [(difference, argument_for(difference)) for difference in differences], list(faults))


def table(title: str, judged: Sequence[Judged], groups_of: Callable[[Case], Iterable[str]]) -> list[str]:
    """Return a table with one row per group: the number of responses, and the number of each verdict."""
    rows: dict[str, dict[str, int]] = {}
    for one in judged:
        for group in groups_of(one.case):
            row = rows.setdefault(group, dict.fromkeys(COLUMNS, 0))
            row["answers"] += 1
            row[one.verdict] += 1
    width = max((len(group) for group in (*rows, title)), default=0)
    lines = [f"{title:<{width}}  " + "".join(f"{column:>11}" for column in COLUMNS)]
    lines += [
        f"{group:<{width}}  " + "".join(f"{row[column] or '·':>11}" for column in COLUMNS)
        for group, row in sorted(rows.items())
    ]
    return [*lines, ""]


def tables(judged: Sequence[Judged]) -> list[str]:
    """Return the tables per dialect, per kind of server and per phenomenon."""
    return [
        *table("dialect", judged, lambda case: (case.dialect,)),
        *table("server", judged, lambda case: (f"{case.dialect} {case.server}",)),
        *table("phenomenon", judged, lambda case: (f"{case.dialect} {tag}" for tag in case.tags)),
    ]


def difference_lines(judged: Sequence[Judged]) -> list[str]:
    """Return each difference with its reason; faults and differences without a reason come first."""
    loud: list[str] = []
    quiet: list[str] = []
    for one in judged:
        head = f"{one.case.dialect} {one.case.name}"
        loud.extend(f"FAULT    {head}: {fault}" for fault in one.faults)
        for difference, argument in one.differences:
            if argument is None:
                loud.append(f"UNARGUED {head}: {difference}")
            else:
                quiet += [f"argued   {head}: {difference}", f"         {argument.name}: {argument.reason}"]
    return [*loud, *quiet]
