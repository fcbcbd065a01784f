"""The books of a soak: what every stream must have come to, what the process held, and how that grew.

Knows plans and completions. Must not know how streams are run.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from dataclasses import dataclass, field

import manystream as ms
from tests.soak.plan import Fault, Plan

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Ledger:
    """One entry per stream, by fault and outcome; and what does not balance."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    events: int = 0

    def enter(self, plan: Plan, text: str, terminals: int, completion: ms.Completion, *, left: bool) -> None:
        """Note one stream that has ended; `text` is what its events told. left: it ended because its engine did."""
        word = "success" if completion.success else str(completion.error_category)
        self.outcomes[f"{plan.fault.value}: {word}"] += 1
        fault = "" if left else self.fault_in(plan, text, completion)
        if terminals != (plan.fault is not Fault.RAISE or completion.success):
            fault = fault or f"{terminals} terminal events"
        if fault:
            self.wrong.append(f"{plan.number} ({plan.dialect}, {plan.fault.value} at {plan.at}): {fault}")

    @staticmethod
    def fault_in(plan: Plan, text: str, completion: ms.Completion) -> str:
        """What is wrong with one entry; empty where nothing is."""
        told = completion.response.text if completion.response is not None else ""
        if plan.fault is Fault.CORRUPT:
            return ""  # any outcome is true of bytes that were damaged; that it came, and once, is what counts
        if told != text and completion.error_category is not ms.ErrorCategory.CALLBACK:
            return f"told {text!r}, holds {told!r}"
        if completion.success:
            whole = plan.fault in (Fault.NONE, Fault.DRIBBLE, Fault.CANCEL, Fault.RAISE) or plan.is_whole(plan.at)
            return "" if whole and text == plan.text else f"a success with {text!r}"
        if not plan.text.startswith(text):
            return f"told what was not sent: {text!r}"
        if plan.fault in (Fault.NONE, Fault.DRIBBLE):
            return f"failed: {completion.error}"
        if plan.fault in (Fault.CUT, Fault.STALL):
            least, most = plan.told_by(plan.at)
            return "" if text in (least, most) else f"told {text!r}, sent {least!r}"
        return ""


@dataclass
class Sample:
    """What the process held at one moment."""

    seconds: float
    rss: int
    objects: int
    descriptors: int
    tasks: int


def sample(seconds: float, tasks: int) -> Sample:
    with open("/proc/self/statm", "rb") as file:
        resident = int(file.read().split()[1]) * PAGE
    return Sample(seconds, resident, len(gc.get_objects()), len(os.listdir("/proc/self/fd")), tasks)


def slope(points: list[tuple[float, float]]) -> float:
    """Least squares: what is added in a minute."""
    if len(points) < 2:
        return 0.0
    middle = sum(x for x, _ in points) / len(points)
    level = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    return 60 * sum((x - middle) * (y - level) for x, y in points) / spread if spread else 0.0


def report(ledger: Ledger, samples: list[Sample], statistics: ms.Statistics) -> str:
    """The figures, for a person."""
    later = samples[len(samples) // 3 :]  # the first third warms up
    rss = slope([(one.seconds, one.rss / 1e6) for one in later])
    objects = slope([(one.seconds, one.objects) for one in later])
    lines = [
        f"{statistics.completed} streams in {samples[-1].seconds:.0f} s, {statistics.events} events,"
        f" {statistics.bytes_received / 1e6:.0f} MB; {statistics.opened} connections, {statistics.reused} reuses",
        "; ".join(f"{name} {count}" for name, count in sorted(ledger.outcomes.items())),
        f"memory {later[0].rss / 1e6:.1f} → {later[-1].rss / 1e6:.1f} MB, {rss:+.3f} MB a minute;"
        f" objects {later[0].objects} → {later[-1].objects}, {objects:+.0f} a minute",
        f"descriptors {samples[0].descriptors} → {samples[-1].descriptors} while running;"
        f" tasks {samples[0].tasks} → {samples[-1].tasks}; slowest turn of the last second"
        f" {statistics.loop_lag * 1000:.1f} ms",
        f"{len(ledger.wrong)} entries do not balance",
    ]
    return "\n".join(lines)
