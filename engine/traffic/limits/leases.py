"""What an engine has of declared limits that it shares with others, as its traffic control sees it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .bucket import Bucket, ReportedBucket
from .rate_limit import RateLimit, limits_of


@dataclass(slots=True, frozen=True, kw_only=True)
class LeasedRateLimit(RateLimit):
    """A limit of which an engine may use what it has leased.

    lease: what the engine may use.
    """

    lease: EntryLease


@dataclass(slots=True)
class LeasedSlots:
    """The calls that may run at a time by a lease.

    rate: so many calls may run.
    count_running: returns how many calls run. The engine sets it.
    """

    rate: float = 0.0
    count_running: Callable[[], int] = int  # 0


class EntryLease:
    """What one engine has of the limits of one entry of `Traffic.rates`.

    whole: its limits, for all engines together.
    buckets: what the engine has of each limit over time, in the order of `limits_of`.
    slots: how many calls may run at a time by a lease; None: their number is not leased.

    limit: the limit for the engine's traffic control, which has this object.
    open_until: no call is sent from this time on, by the engine's clock.
    is_wanted: returns whether a call waits for this limit only. The engine sets it.
    on_want: called when a call begins to wait for this limit only. The owner sets it.
    """

    def __init__(self, key: str, whole: RateLimit, buckets: Sequence[Bucket], slots: LeasedSlots | None = None) -> None:
        self.buckets: tuple[ReportedBucket, ...] = tuple(
            ReportedBucket(row.name, row.unit, row.window, bucket, declared=True, whole=row.limit or 0.0)
            for row, bucket in zip(limits_of(whole, key), buckets, strict=True)
        )
        self.slots: LeasedSlots | None = slots
        options = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
        self.limit: LeasedRateLimit = LeasedRateLimit(**options, lease=self)
        self.open_until: float = -math.inf
        self.is_wanted: Callable[[], bool] = bool  # False
        self.on_want: Callable[[], None] | None = None
        self._on_change: Callable[[], None] | None = None

    def listen(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def changed(self) -> None:
        if self._on_change is not None:
            self._on_change()
