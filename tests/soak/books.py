"""The records of a soak: the outcome of each stream, the resources of the process, and their growth."""

from __future__ import annotations

import gc
import os
from collections import Counter
from dataclasses import dataclass, field

import manystream as ms
from tests.soak.plan import Fault, Plan

_ANY = frozenset([None, *ms.ErrorCategory])
OUTCOMES: dict[Fault, frozenset[ms.ErrorCategory | None]] = {
    Fault.NONE: frozenset({None}),
    Fault.DRIBBLE: frozenset({None}),
    Fault.CUT: frozenset({None, ms.ErrorCategory.NETWORK}),
    Fault.RESET: frozenset({None, ms.ErrorCategory.NETWORK}),
    Fault.STALL: frozenset({None, ms.ErrorCategory.TIMEOUT}),
    Fault.CORRUPT: _ANY - {ms.ErrorCategory.CANCELLED, ms.ErrorCategory.CALLBACK},
    Fault.CANCEL: frozenset({ms.ErrorCategory.CANCELLED}),
    Fault.RAISE: frozenset({ms.ErrorCategory.CALLBACK}),
}
"""Fault → the allowed error categories of a call. None is success, if all relevant bytes precede the fault."""

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Ledger:
    """The counts of streams by fault and outcome, and the wrong outcomes.

    left: the number of streams that ended because their engine was closed.
    """

    outcomes: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    left: int = 0

    def enter(self, plan: Plan, text: str, terminals: int, completion: ms.Completion, *, left: bool) -> None:
        """Record a stream that has ended.

        text: the text that its events delivered.
        terminals: the number of terminal events.
        left: the stream ended because its engine was closed.
        """
        word = "success" if completion.success else str(completion.error_category)
        self.left += left
        self.outcomes[f"{plan.fault.value}: {word}"] += 1
        fault = "" if left else self.fault_in(plan, text, completion)
        if terminals != (completion.error_category is not ms.ErrorCategory.CALLBACK):
            fault = fault or f"{terminals} terminal events"
        if fault:
            self.wrong.append(f"{plan.number} ({plan.dialect}, {plan.fault.value} at {plan.at}): {fault}")

    @staticmethod
    def fault_in(plan: Plan, text: str, completion: ms.Completion) -> str:
        """Return the error in one entry; empty if it is correct."""
        held = completion.response.text if completion.response is not None else ""
        if held != text and plan.fault not in (Fault.RAISE, Fault.CORRUPT):
            return f"delivered {text!r}, response has {held!r}"
        if completion.error_category not in OUTCOMES[plan.fault]:
            return f"{completion.error_category}: {completion.error}"
        if completion.success and plan.fault is not Fault.CORRUPT:
            whole = plan.fault in (Fault.NONE, Fault.DRIBBLE) or plan.is_whole(plan.at)
            return "" if whole and text == plan.text else f"a success with {text!r}"
        least, most = plan.text_bounds(plan.at)
        if plan.fault in (Fault.CUT, Fault.STALL):
            return "" if text in (least, most) else f"delivered {text!r}, sent {least!r}"
        if plan.fault is Fault.RESET:  # a reset may overtake the bytes sent before it
            return "" if most.startswith(text) else f"delivered {text!r}, sent {most!r}"
        if plan.fault is Fault.CORRUPT:  # damaged bytes may have any outcome, but the text before them is delivered
            return "" if text.startswith(least) else f"delivered {text!r}, sent {least!r} undamaged"
        expected = "".join(plan.words[: plan.until + (plan.fault is Fault.CANCEL)])
        return "" if text == expected else f"delivered {text!r}, took {expected!r}"


@dataclass
class Sample:
    """The resources of the process at one moment."""

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
    """Return the growth per minute, by least squares."""
    if len(points) < 2:
        return 0.0
    middle = sum(x for x, _ in points) / len(points)
    level = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    return 60 * sum((x - middle) * (y - level) for x, y in points) / spread if spread else 0.0


@dataclass
class Drift:
    """The growth per minute, without the first third of the samples, in which the process warms up."""

    megabytes: float
    objects: float
    descriptors: float
    tasks: float


def drift(samples: list[Sample]) -> Drift:
    later = samples[len(samples) // 3 :]
    return Drift(
        slope([(one.seconds, one.rss / 1e6) for one in later]), slope([(one.seconds, one.objects) for one in later]),
        slope([(one.seconds, one.descriptors) for one in later]), slope([(one.seconds, one.tasks) for one in later]),
    )  # fmt: skip


@dataclass
class OtherSide:
    """The records of the other process: see `world.Books`."""

    requests: int = 0
    again: list[int] = field(default_factory=list[int])
    bytes: int = 0
    strikes: int = 0
    processor: float = 0.0


def report(ledger: Ledger, samples: list[Sample], statistics: ms.Statistics, world: OtherSide, processor: float) -> str:
    """Return the figures as text. `processor` is the CPU time of this process, in seconds."""
    first, last, seconds = samples[len(samples) // 3], samples[-1], samples[-1].seconds
    added = drift(samples)
    lines = [
        f"{statistics.completed} streams in {seconds:.0f} s, {statistics.events} events;"
        f" {statistics.opened} connections, {statistics.reused} reuses",
        "; ".join(f"{name} {count}" for name, count in sorted(ledger.outcomes.items())),
        f"requests: {statistics.started} started, {world.requests} came, {len(world.again)} of them once more, cut"
        f" before their first byte; {world.strikes} answers struck; bytes: {world.bytes / 1e6:.2f} MB sent,"
        f" {statistics.bytes_received / 1e6:.2f} MB received",
        f"memory {first.rss / 1e6:.1f} → {last.rss / 1e6:.1f} MB, {added.megabytes:+.3f} MB a minute;"
        f" objects {first.objects} → {last.objects}, {added.objects:+.0f} a minute",
        f"descriptors {first.descriptors} → {last.descriptors}, {added.descriptors:+.1f} a minute;"
        f" tasks {first.tasks} → {last.tasks}, {added.tasks:+.1f} a minute; after the end as before it",
        f"processor: {processor / seconds:.0%} of a core here, {world.processor / seconds:.0%} on the other side",
        f"{len(ledger.wrong)} entries do not balance",
    ]
    return "\n".join(lines)
