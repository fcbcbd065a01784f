"""What one engine has of the limits that the engines of one machine share in a file.

For each entry of `Traffic.rates` and each API key the engine takes what its calls need in some hundredths of a second,
and for each budget and tenant what its calls have reserved, and a little more. A call starts at once if that has room.
Otherwise it waits until the file was asked. Nothing here does I/O: `engine/sharing.py` asks the file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias, cast

from ...providers.errors import InvalidRequestError
from ...providers.limits.quota_report import Unit
from .budgets.amounts import MEMBERS, NOTHING, Amounts, Budget
from .budgets.leases import SCALES, AccountLease, AmountHolder
from .limits.bucket import Bucket
from .limits.leases import EntryLease, LeasedRateLimit, LeasedSlots
from .limits.rate_limit import RateLimit, limits_of
from .options import Traffic
from .shared_rows import (
    LEASE_SECONDS,
    AmountsAsk,
    AmountsReply,
    Ask,
    PlacesAsk,
    RateAsk,
    Reply,
)

LIVES_SECONDS = 1.0
"""An engine says so often that it lives."""

IDLE_SECONDS = 0.1
"""After so long an engine gives back what its calls have not used, and asks again for what others had."""

GAP_SECONDS = 0.001
"""The least time between two questions of one engine."""

USED_PART = 0.97
LATE_PART = 0.03
"""The file gives the first part of a rate. What it gives may be used later by the second part of the limit's window.
So at most `0.97 * 1.03 n + 1` calls, rounded down, are sent in any window of a limit of n: that is n."""

AHEAD_PART = 0.04
AHEAD_SECONDS = 0.1
"""What flows in within this part of a window, and this time, may be taken before: it is lost with a killed process."""

LONGEST_RETRY = 8
"""After each question in vain, the time to the next one is chosen at random from a longer span, up to so many times the
first: many processes that wait do not ask all at once."""

MOST_UNITS = 10**18
"""The largest limit of a budget, in units: a billion US dollars."""

AT_ONCE = 200
"""The most budgets of tenants for which an engine asks at once."""

AccountKey: TypeAlias = tuple[int, str | None]


def configuration(traffic: Traffic) -> dict[str, str | float]:
    """Return what must be the same in all processes: the name of each number of a limit, and the number.

    Raises `InvalidRequestError` for a limit that cannot be shared.
    """
    found: dict[str, str | float] = {}
    for key, limit in traffic.rates.items():
        for name in (field.name for field in dataclasses.fields(RateLimit)):
            _add(found, f"traffic.rates[{key!r}].{name}", getattr(limit, name))
    for position, budget in enumerate(traffic.budgets):
        for name in (*MEMBERS, "per", "every"):
            _add(found, f"traffic.budgets[{position}].{name}", getattr(budget, name))
    return found


def _add(found: dict[str, str | float], name: str, value: object) -> None:
    if callable(value):
        raise InvalidRequestError(name, "must be a number, not a function, where limits are shared")
    if value is not None:
        found[ascii(name)[1:-1]] = value if isinstance(value, str) else float(str(value))


def difference(theirs: dict[str, str | float], ours: dict[str, str | float]) -> str:
    """Return the first difference of two configurations, in words; "" if there is none."""
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            return f"{name} is {_shown(theirs.get(name))} there and {_shown(ours.get(name))} here"
    return ""


def _shown(value: str | float | None) -> str:
    return "not given" if value is None else f"{value:g}" if isinstance(value, float) else ascii(value)


def name_of(*parts: object) -> bytes:
    """Return a short name that is the same in each process, and from which no key can be read.

    parts: an API key is the address, and the key or the function that returns it. All functions are taken as the same.
    """
    text = "\0".join("a function" if callable(part) else ascii(part) for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"manystream").digest()


class EngineShare:
    """What one engine has of the shared limits.

    file_clock: that of all processes.

    configuration: what must be the same in all processes.
    on_want: called when a call begins to wait for more. The owner sets it.
    """

    def __init__(
        self, traffic: Traffic, clock: Callable[[], float], file_clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.configuration: dict[str, str | float] = configuration(traffic)
        self._traffic = traffic
        self._clock = clock
        self._entries: dict[bytes, _SharedRate] = {}
        self._accounts: dict[AccountKey, _SharedBudget] = {}
        self._changed: dict[AccountKey, None] = {}
        """budgets of which calls have used or reserved something since the last question, or need more"""
        self._forgotten: list[bytes] = []
        self._forgetting = 0
        self.on_want: Callable[[], None] | None = None
        self._asking: list[_SharedRate] = []
        self._accounts_asking: list[tuple[_SharedBudget, AmountsAsk]] = []
        self._asked_at = -math.inf
        self._retry_at = -math.inf
        self._ahead = clock() - file_clock()  # of the clock of the file

    # --- what traffic control takes ---

    def rate(self, key: str, account: Hashable) -> LeasedRateLimit:
        """Return the engine's part of an entry of `Traffic.rates`, for an API key. It has nothing yet.

        account: "", or the address, and the key or the function that returns it.
        """
        parts = cast("tuple[object, ...]", account) if isinstance(account, tuple) else (account,)
        name = name_of(key, *parts)
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _SharedRate(key, self._traffic.rates[key], name)
            entry.on_want = self._want
        return entry.limit

    def amounts(self, position: int, tenant: str | None) -> AccountLease:
        """Return the engine's part of a budget, for a tenant. It has nothing yet."""
        key = position, tenant
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _SharedBudget(self._traffic.budgets[position], name_of(position, tenant))
            account.on_use = partial(self._use, key, account)
            account.on_need = partial(self._need, key)
            account.on_forget = partial(self._forget, key)
        return account

    def _use(self, key: AccountKey, account: _SharedBudget) -> None:
        self._changed.setdefault(key)
        if account.is_low:
            self._want()

    def _need(self, key: AccountKey) -> None:
        self._changed.setdefault(key)
        if self._clock() >= self._retry_at:
            self._want()

    def _forget(self, key: AccountKey) -> None:
        """Give back an account that no call has used."""
        account = self._accounts.pop(key)
        self._changed.pop(key, None)
        self._forgotten.append(account.name)

    def _want(self) -> None:
        if self.on_want is not None:
            self.on_want()

    # --- what the file is asked ---

    def ask(self) -> Ask:
        """Return what the engine has used and needs."""
        self._asked_at = now = self._clock()
        self._asking = [entry for entry in self._entries.values() if entry.ask(now)]
        self._accounts_asking = list(self._amounts())
        places = [entry.places for entry in self._entries.values() if entry.places is not None]
        self._forgetting = len(self._forgotten)
        amounts = [ask for _, ask in self._accounts_asking]
        return Ask([entry.rates for entry in self._asking], places, amounts, tuple(self._forgotten))

    def ask_again(self) -> None:
        """Note that the file may not know what the last `ask` returned."""
        self._changed.update(dict.fromkeys(self._accounts))

    def last(self) -> Iterator[tuple[Ask, bool]]:
        """Yield what the file is told after the last call: what calls have used in all, and whether that is the end."""
        self.ask_again()
        while len(self._changed) > AT_ONCE:
            yield Ask(amounts=[ask for _, ask in self._amounts(at_end=True)]), False
        yield Ask(amounts=[ask for _, ask in self._amounts(at_end=True)]), True

    def _amounts(self, *, at_end: bool = False) -> Iterator[tuple[_SharedBudget, AmountsAsk]]:
        """Yield what is asked of the budgets that changed: of some of them, if there are many."""
        for key in list(islice(self._changed, AT_ONCE)):
            del self._changed[key]
            account = self._accounts.get(key)
            if account is not None:
                yield account, account.ask(at_end=at_end)

    def receive(self, reply: Reply) -> None:
        """Use what the file has given for the last `ask`."""
        now = self._asked_at
        del self._forgotten[: self._forgetting]
        for entry, found in zip(self._asking, reply.rates, strict=True):
            entry.receive_rates(found, self._ahead)
        places = iter(reply.places)
        for entry in self._entries.values():
            if entry.places is not None and entry.slots is not None:
                before, entry.places = entry.places.held, None
                entry.slots.rate = next(places)
                if entry.slots.rate < before > entry.slots.count_running() and self.on_want is not None:
                    self.on_want()  # the rest is free when the file knows that it was taken note of
            entry.open_until = now + LEASE_SECONDS
            entry.changed()
        self._retry_at, is_refused = -math.inf, False
        for (account, ask), got in zip(self._accounts_asking, reply.amounts, strict=True):
            account.receive(got, self._ahead)
            is_refused = is_refused or (any(ask.needed) and not any(got.given))
        if is_refused:
            self._retry_at = now + random.uniform(0.2, 1.0) * IDLE_SECONDS

    def lose(self) -> None:
        """Use nothing any more that was given: the engine was stopped for so long that others may have it."""
        for entry in self._entries.values():
            entry.lose()
        for key, account in self._accounts.items():
            account.lose()
            self._changed.setdefault(key)

    def gap(self) -> float:
        """Return the seconds until the file may be asked again."""
        return max(0.0, self._asked_at + GAP_SECONDS - self._clock())

    def next_at(self) -> float:
        """Return the time of the next question, if no call begins to wait before."""
        at = self._asked_at + LIVES_SECONDS
        now = self._clock()
        for entry in self._entries.values():
            at = min(at, entry.next_at(self._asked_at, now))
        for key, account in self._accounts.items():
            if account.ends_at <= now or account.has_waiting or account.is_idle:
                self._changed.setdefault(key)
            at = min(at, account.ends_at)
        if self._changed:
            at = min(at, max(self._asked_at + IDLE_SECONDS, self._retry_at) if not self._waits else self._retry_at)
        return at

    @property
    def _waits(self) -> bool:
        return any(account.has_waiting for account in self._accounts.values())


# --- rates ---


class SharedBucket(Bucket):
    """Units of a limit that were taken from the file: parts of the time in which the limit's units flow in.

    A unit is used from the time at which it flows in, and until `late` seconds after that.

    window: the limit's window in seconds.

    cost: that of the last call that was looked at.
    taken: the seconds of flow that were used since the last question.
    refund: those that ended calls have not used.
    """

    __slots__ = ("_late", "_parts", "cost", "counts_calls", "refund", "taken", "window")

    def __init__(self, number: float, window: float, *, counts_calls: bool) -> None:
        rate = number / window * USED_PART
        super().__init__(rate, rate * LATE_PART * window, 0.0, 0.0)
        self.window: float = window
        self.counts_calls: bool = counts_calls
        self.cost: float = 0.0
        self.taken: float = 0.0
        self.refund: float = 0.0
        self._late = LATE_PART * window
        self._parts: list[tuple[float, float]] = []

    def add(self, begins: float, ends: float) -> None:
        """Note a further part."""
        if self._parts and abs(self._parts[-1][1] - begins) < 1e-9:
            begins = self._parts.pop()[0]
        self._parts.append((begins, ends))

    def lose(self) -> None:
        self._parts.clear()

    def fill(self, now: float) -> float:
        """Return the units that may be used now."""
        self._parts = [part for part in self._parts if part[1] > now - self._late]
        return (
            sum(min(end, now) - max(begin, now - self._late) for begin, end in self._parts if begin < now) * self.rate
        )

    def ready_at(self, cost: float, now: float) -> float:
        """Return the time at which `cost` fits; `math.inf` if it fits no part that was taken."""
        self.cost = cost
        index = self._find(cost, now)
        return now if cost <= 0 else math.inf if index < 0 else max(now, self._parts[index][0])

    def take(self, cost: float, now: float) -> None:
        """Use `cost`. Without a part for it, the file is told afterwards."""
        seconds, index = cost / self.rate, self._find(cost, now)
        if index < 0:
            self.refund -= seconds
        elif cost > 0:
            begin, end = self._parts[index]
            self._parts[index] = max(begin, now - self._late) + seconds, end
            self.taken += seconds

    def give_back(self, cost: float, now: float) -> None:
        """Return `cost`. A negative cost is taken. A place of a call is lost: others are bound by its time."""
        if not self.counts_calls:
            self.refund += cost / self.rate

    def lacks(self, now: float) -> bool:
        """Return whether the next call does not fit."""
        return self.cost > 0 and self._find(self.cost, now) < 0

    def stock(self, now: float) -> float:
        """Return the seconds of flow that are left."""
        return sum(max(0.0, end - max(begin, now - self._late)) for begin, end in self._parts)

    def _find(self, cost: float, now: float) -> int:
        """Return the place of the first part in which `cost` fits; -1 if there is none."""
        seconds, earliest = cost / self.rate - 1e-9, now - self._late
        for index, (begin, end) in enumerate(self._parts):
            if end - (begin if begin > earliest else earliest) >= seconds:
                return index
        return -1


def _spare(running: int) -> int:
    """Return how many places an engine wants beside those of its calls, so that further calls start at once."""
    return max(2, running // 4)


class _SharedRate(EntryLease):
    """What an engine has of the limits of an entry of `Traffic.rates`.

    rates, places: what it asks for now.
    """

    def __init__(self, key: str, whole: RateLimit, name: bytes) -> None:
        self._own = [
            SharedBucket(row.limit or 0.0, row.window, counts_calls=row.unit is Unit.REQUESTS)
            for row in limits_of(whole)
        ]
        super().__init__(key, whole, self._own, None if whole.concurrent is None else LeasedSlots())
        self.rates: list[RateAsk] = []
        self.places: PlacesAsk | None = None
        self._most = whole.concurrent or 0
        self._names = [name + bytes([number]) for number in range(len(self._own) + 1)]
        self._asked: list[SharedBucket] = []
        self._failed = 0
        self._retry_at = -math.inf

    @property
    def _is_full(self) -> bool:
        return self.slots is not None and self.slots.count_running() >= self.slots.rate

    def ask(self, now: float) -> bool:
        """Set what is asked for. Return whether that is a part of a rate."""
        waits = self.is_wanted()
        if self.slots is not None:
            running = self.slots.count_running()
            held = max(running, int(self.slots.rate))
            self.places = PlacesAsk(
                self._names[-1], self._most, held, self._most if waits else running + _spare(running)
            )
        self.rates, self._asked = [], []
        for name, bucket in zip(self._names, self._own, strict=False):
            used, stock = bucket.taken, bucket.stock(now)
            least, lacks = bucket.cost / bucket.rate, waits and bucket.lacks(now)
            most = used * (1 + lacks) - stock
            if self._is_full or now < self._retry_at or not (lacks or (most > 0 and used >= 2 * least)):
                least = 0.0
            if least or bucket.refund:
                ahead = min(AHEAD_SECONDS, AHEAD_PART * bucket.window)
                back = bucket.window * LATE_PART
                back -= min(back / 2, AHEAD_SECONDS)
                self.rates.append(RateAsk(name, least, most, back, ahead, 2 * bucket.window, bucket.refund))
                self._asked.append(bucket)
        return bool(self.rates)

    def receive_rates(self, found: Sequence[tuple[float, float]] | float, ahead: float) -> None:
        """Use the parts that the file gave; or note when to ask again.

        ahead: the seconds by which the engine's clock is ahead of that of the file.
        """
        for bucket, ask in zip(self._asked, self.rates, strict=True):
            bucket.refund -= ask.refund
        if not isinstance(found, Sequence):
            span = AHEAD_SECONDS / 4 * min(2**self._failed, LONGEST_RETRY)
            self._failed += 1
            self._retry_at = found + ahead + random.uniform(0.0, span / 2)
            return
        for bucket, part in zip(self._asked, found, strict=True):
            if part[1] > part[0]:
                bucket.add(part[0] + ahead, part[1] + ahead)
                bucket.taken, self._failed, self._retry_at = 0.0, 0, -math.inf

    def next_at(self, asked_at: float, now: float) -> float:
        """Return the time at which it is worth to ask again; `math.inf` if it is not."""
        at = math.inf
        slots = self.slots
        if slots is not None and (
            self.is_wanted() or slots.rate > slots.count_running() + 2 * _spare(slots.count_running())
        ):
            at = asked_at + IDLE_SECONDS * random.uniform(0.5, 1.0)
        if not self._is_full:
            if self.is_wanted() and any(bucket.lacks(now) for bucket in self._own):
                at = min(at, max(self._retry_at, asked_at + GAP_SECONDS))
            elif any(bucket.taken >= 2 * bucket.cost / bucket.rate > 0 for bucket in self._own):
                at = min(at, max(self._retry_at, asked_at + AHEAD_SECONDS / 4))
            elif any(bucket.refund for bucket in self._own):
                at = min(at, asked_at + IDLE_SECONDS)
        return at

    def lose(self) -> None:
        """Use nothing any more that was given."""
        for bucket in self._own:
            bucket.lose()
        if self.slots is not None:
            self.slots.rate = 0.0
        self.open_until = -math.inf


# --- budgets ---


class _Amount(AmountHolder):
    """What an engine has of one amount of a budget.

    base: what calls have used and reserved that the file counts as spent since it took the engine to have ended.
    ahead: what is going to be used.
    reported: what the file knows that was used here.
    others: what others have used in this window.
    """

    def __init__(self, scale: int, limit: int) -> None:
        super().__init__(scale)
        self.limit = limit
        self.base = 0
        self.ahead = 0
        self.reported = 0
        self.others = 0
        self._taken = 0

    @property
    def used(self) -> int:
        """What the file must know of."""
        return max(0, self.spent - self.base)

    @property
    def held(self) -> int:
        """What calls may use beyond that."""
        return max(0, self.allowed - max(self.spent, self.base))

    def measure(self, *, waits: bool) -> None:
        """Give back what is not going to be used. waits: all, since another amount is missing for the next call."""
        self.ahead = max(2 * (self.taken - self._taken), self.ahead // 2, 0)
        self._taken, self.reported = self.taken, self.used
        self.allowed = min(self.allowed, max(self.taken, self.base) + (0 if waits else self.ahead))


class _SharedBudget(AccountLease):
    """What an engine has of a budget, for one tenant.

    name: the account's name in the file.
    on_need: called when a call begins to wait for more. The owner sets it.
    """

    __slots__ = ("_every", "_on_change", "_own", "name", "on_need")

    def __init__(self, budget: Budget, name: bytes) -> None:
        limits = Amounts(*(float(getattr(budget, member) or math.inf) for member in MEMBERS))
        self._own = {
            index: _Amount(SCALES[index], min(MOST_UNITS, math.floor(limits[index] * SCALES[index])))
            for index, member in enumerate(MEMBERS)
            if budget.limits(member)
        }
        super().__init__(self._own, limits)
        self.name: bytes = name
        self.on_need: Callable[[], None] | None = None
        self._every = budget.every
        self._on_change: Callable[[], object] | None = None

    def listen(self, on_change: Callable[[], object]) -> None:
        self._on_change = on_change

    def need(self, taken: Amounts, more: Amounts, calls: int) -> None:
        for index, amount in self._own.items():
            if more[index] > 0:
                amount.need(taken[index] + more[index], calls)
        if self.on_need is not None:
            self.on_need()

    @property
    def spent(self) -> Amounts:
        found = list(NOTHING)
        for index, amount in self._own.items():
            found[index] = (amount.others + amount.used) / SCALES[index]
        return Amounts(*found)

    @property
    def has_waiting(self) -> bool:
        """Whether a call waits for more."""
        return any(amount.needed for amount in self._own.values())

    @property
    def is_low(self) -> bool:
        """Whether more should be asked for, before a call has to wait for it."""
        return any(amount.free < amount.ahead / 2 for amount in self._own.values())

    @property
    def is_idle(self) -> bool:
        """Whether it has something that no call has reserved."""
        return any(amount.allowed > max(amount.taken, amount.base) for amount in self._own.values())

    def ask(self, *, at_end: bool) -> AmountsAsk:
        """Return what the engine has used and needs. at_end: no call runs any more."""
        waits = self.has_waiting
        rows: list[tuple[int | None, int, int, int, int]] = [(None, 0, 0, 0, 0)] * len(MEMBERS)
        for index, amount in self._own.items():
            amount.measure(waits=waits)
            if at_end:
                rows[index] = amount.limit, amount.used, 0, 0, 0
                continue
            needed = max(0, amount.needed - amount.free) if amount.needed else 0
            ahead = max(amount.wanted - amount.free - needed, 0) if needed else amount.ahead - max(0, amount.free)
            rows[index] = amount.limit, amount.used, amount.held, needed, max(0, ahead)
        limits, used, held, needs, more = zip(*rows, strict=True)
        return AmountsAsk(self.name, limits, self._every, used, held, needs, more)

    def receive(self, got: AmountsReply, ahead: float) -> None:
        """Use what the file has given."""
        self.ends_at = got.ends_at + ahead
        changed = False
        for index, amount in self._own.items():
            before = amount.allowed, amount.most
            amount.allowed += got.given[index]
            amount.others = got.spent[index] - amount.reported
            amount.most = amount.base + amount.limit - amount.others
            if amount.free < amount.ahead / 2:
                amount.ahead = 0  # there is not enough for this. So nothing is asked for until more is used
            changed = changed or (amount.allowed, amount.most) != before
        if changed and self._on_change is not None:
            self._on_change()

    def lose(self) -> None:
        """Note that the file counts as spent what it had given."""
        for amount in self._own.values():
            amount.base = amount.allowed = max(amount.taken, amount.base)
