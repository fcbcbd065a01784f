"""The limits that the engines of one machine share: the state of one engine, and that of their keeper.

One of the processes is the keeper. Each engine, also that of the keeper's process, asks it for leases about once a
second, and when a call begins to wait. Declared rates and calls at a time are leased (`limits/leases.py`) for each
entry of `Traffic.rates` and each API key, budgets (`budgets/leases.py`) for each tenant. Messages are objects of JSON.
Nothing here waits or does I/O: `engine/sharing.py` carries the messages and passes the time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias, cast

from ...providers.errors import InvalidRequestError, ManystreamError
from ...providers.json.json_values import JSON, JSONObject, ascii_dumps
from .budgets.amounts import MEMBERS, NOTHING, Amounts, Budget
from .budgets.leases import (
    SCALES,
    SMALL_PART,
    AccountLease,
    AmountHolder,
    AmountRecord,
    AmountReport,
    Gift,
    SharedAmounts,
)
from .limits.leases import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    EntryLease,
    Keeper,
    Lease,
    LeasedRateLimit,
    LeaseNumber,
    LeaseRequest,
    Share,
    shares_of,
)
from .limits.rate_limit import RateLimit
from .options import Traffic

PROTOCOL = 1
"""The version of the messages. Processes with different versions do not share limits."""

PROMPT_SECONDS = 0.1
"""The least time between two prompts to the holders of a limit to free what another one lacks."""

AHEAD_SECONDS = 2.0
"""An engine has the part of a budget that it uses in so many seconds, if there is enough, so that no call waits."""

MOST_UNITS = 10**18
"""The largest limit of a budget, in units: a billion US dollars."""

AT_ONCE = 200
"""The most budgets of tenants in one message."""

RateKey: TypeAlias = tuple[str, str]
"""An entry of `Traffic.rates`, and the API key that the limit is for, not in clear."""

AmountKey: TypeAlias = tuple[int, str | None]
"""The position of a budget in `Traffic.budgets`, and the tenant, as JSON has it (`_key`)."""


class MessageError(ManystreamError, ValueError):
    """A message that a process of this version does not send."""


# --- what all processes have in common ---


def configuration(traffic: Traffic) -> JSONObject:
    """Return what must be the same in all processes: the name of each number of a limit, and the number.

    Raises `InvalidRequestError` for a limit that cannot be shared.
    """
    found: JSONObject = {"the version of the messages": PROTOCOL}
    for key, limit in traffic.rates.items():
        for name in (field.name for field in dataclasses.fields(RateLimit)):
            _add(found, f"traffic.rates[{key!r}].{name}", getattr(limit, name))
    for position, budget in enumerate(traffic.budgets):
        for name in (*MEMBERS, "per", "every"):
            _add(found, f"traffic.budgets[{position}].{name}", getattr(budget, name))
    return found


def _add(found: JSONObject, name: str, value: object) -> None:
    if callable(value):
        raise InvalidRequestError(name, "must be a number, not a function, where limits are shared")
    if value is not None:
        found[name] = value if isinstance(value, str) else float(str(value))


def difference(theirs: JSONObject, ours: JSONObject) -> str:
    """Return the first difference of two configurations, in words; "" if there is none."""
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            return f"{name} is {_shown(theirs.get(name))} there and {_shown(ours.get(name))} here"
    return ""


def _shown(value: JSON) -> str:
    return "not given" if value is None else f"{value:g}" if isinstance(value, float) else ascii(value)


def account_name(account: Hashable) -> str:
    """Return a name of an API key that is the same in each process, and from which the key cannot be read.

    account: "", or the address, and the key or the function that returns it. All functions for one address are taken
        as the same.
    """
    parts = cast("tuple[object, ...]", account) if isinstance(account, tuple) else (account,)
    names = ["a function" if callable(part) else str(part) for part in parts]
    return hashlib.blake2b("\0".join(names).encode(errors="replace"), digest_size=16, person=b"manystream").hexdigest()


# --- one engine ---


class EngineShare:
    """What one engine has of the shared limits.

    traffic: the options of the engine.
    name: a name that no other engine has.

    on_want: called when a call begins to wait for more. `ask` follows then.
    """

    def __init__(self, traffic: Traffic, clock: Callable[[], float], name: str = "") -> None:
        self.configuration: JSONObject = configuration(traffic)
        self.name: str = name or uuid.uuid4().hex
        self.on_want: Callable[[], None] | None = None
        self._traffic = traffic
        self._clock = clock
        self._rates: dict[RateKey, EntryLease] = {}
        self._amounts: dict[AmountKey, _AmountShare] = {}
        self._changed: dict[AmountKey, None] = {}
        """budgets of which calls have used or reserved something since the last request, or need more"""

    def __repr__(self) -> str:
        return f"<EngineShare {len(self._rates)} rates, {len(self._amounts)} budgets>"

    def rate(self, key: str, account: Hashable) -> LeasedRateLimit:
        """Return the engine's lease on an entry of `Traffic.rates`, for an API key. No call can be sent yet.

        account: as for `account_name`.
        """
        name = account_name(account)
        entry = self._rates.get((key, name))
        if entry is None:
            limit = self._traffic.rates[key]
            entry = self._rates[key, name] = EntryLease(key, limit, self.name, self._clock(), exact=True)
            entry.on_want = self._want
            self._want()
        return entry.limit

    def amounts(self, position: int, tenant: str | None) -> AccountLease:
        """Return the engine's lease on a budget, for a tenant. No call can be sent yet."""
        key = _key(position, tenant)
        share = self._amounts.get(key)
        if share is None:
            share = self._amounts[key] = _AmountShare(self._traffic.budgets[position], self.name)
            share.on_forget = partial(self._close, key)
            share.on_use = partial(self._use, key, share)
            share.on_need = self._want
        share.is_closing = False
        return share

    @property
    def next_window(self) -> float:
        """The time at which a window of a budget ends, so that `ask` follows; `math.inf` if none does."""
        return min((share.ends_at for share in self._amounts.values()), default=math.inf)

    def ask(self) -> JSONObject:
        """Return the next request to the keeper."""
        now = self._clock()
        rates: list[JSON] = []
        for (key, account), entry in self._rates.items():
            entry.measure(now)
            names = (share.name for share in shares_of(self._traffic.rates[key]))
            for name, request in zip(names, entry.ask(now), strict=True):
                rates.append([key, account, name, *_request_row(request)])
        for amount, share in self._amounts.items():
            share.measure(now)
            if share.ends_at <= now or share.has_waiting:
                self._changed.setdefault(amount)
        return {"rates": rates, "amounts": self._reports()}

    def _reports(self) -> list[JSON]:
        """Return what calls have used of the budgets that changed: of some of them, if there are many."""
        keys = list(islice(self._changed, AT_ONCE))
        for key in keys:
            del self._changed[key]
        return [[*key, self._amounts[key].report()] for key in keys if key in self._amounts]

    def again(self) -> None:
        """Note that the keeper is another one, or may not have received the last request."""
        self._changed.update(dict.fromkeys(self._amounts))

    def last(self) -> Iterator[JSONObject]:
        """Yield the last messages, after which this engine makes no more calls: what calls have used in all."""
        self.again()
        yield {"amounts": self._reports()}
        while self._changed:
            yield {"amounts": self._reports()}

    def receive(self, reply: JSONObject) -> bool:
        """Use the keeper's leases. Returns whether `ask` follows at once, because something is free now.

        Raises `MessageError`.
        """
        now, asks_again = self._clock(), len(self._changed) >= AT_ONCE
        by_entry: dict[RateKey, list[Lease]] = {}
        for row in _rows(reply, "rates"):
            key, account, _, *values = _row(row, 11)
            by_entry.setdefault((str(key), str(account)), []).append(_lease(values))
        for rate, leases in by_entry.items():
            entry = self._rates.get(rate)
            if entry is not None and entry.receive(leases, math.inf, now, now):
                asks_again = True
        for row in _rows(reply, "amounts"):
            position, tenant, gifts, spent, ends_in = _row(row, 5)
            key_of = _amount_key(position, tenant)
            share = self._amounts.get(key_of)
            if share is None:
                continue
            if share.is_closing and share.is_given_back:
                del self._amounts[key_of]
            elif share.receive(gifts, spent, now + _number(ends_in) if ends_in is not None else math.inf):
                self._changed.setdefault(key_of)
                asks_again = True
        return asks_again

    def _want(self) -> None:
        if self.on_want is not None:
            self.on_want()

    def _use(self, key: AmountKey, share: _AmountShare) -> None:
        self._changed.setdefault(key)
        if share.is_low:
            self._want()

    def _close(self, key: AmountKey) -> None:
        self._amounts[key].is_closing = True
        self._amounts[key].give_back()
        self._changed.setdefault(key)


class _AmountShare(AccountLease):
    """What an engine has of a budget that engines of one machine share, for one tenant.

    is_closing: whether no call uses it any more.
    """

    __slots__ = ("_measured_at", "_others", "_reported", "_taken", "is_closing")

    def __init__(self, budget: Budget, name: str) -> None:
        limits = Amounts(*(float(getattr(budget, member) or math.inf) for member in MEMBERS))
        indices = [index for index, member in enumerate(MEMBERS) if budget.limits(member)]
        super().__init__({index: AmountHolder(name, SCALES[index]) for index in indices}, limits)
        self.is_closing: bool = False
        self._taken = dict.fromkeys(indices, 0)
        self._measured_at = -math.inf
        self._reported = dict.fromkeys(indices, 0)  # what calls here had used when the keeper was asked
        self._others = dict.fromkeys(indices, 0.0)  # what all had used in the window by its answer, less `_reported`

    @property
    def spent(self) -> Amounts:
        found = list(NOTHING)
        for index, holder in self.members.items():
            found[index] = (self._others[index] + holder.spent) / SCALES[index]
        return Amounts(*found)

    @property
    def is_low(self) -> bool:
        """Whether more should be asked for, before a call has to wait for it."""
        return any(holder.free < holder.ahead / 2 for holder in self.members.values())

    def measure(self, now: float) -> None:
        """Note what is going to be used: what was used since the last second, or a small part of the limit."""
        if now < self._measured_at + RENEW_SECONDS:
            return
        for index, holder in self.members.items():
            taken, limits = holder.taken, self.limits or NOTHING
            seconds = now - self._measured_at
            used = max(0.0, taken - self._taken[index]) / seconds * AHEAD_SECONDS
            holder.ahead = int(min(used, limits[index] * SCALES[index] / SMALL_PART))
            self._taken[index] = taken
        self._measured_at = now

    @property
    def has_waiting(self) -> bool:
        """Whether a call waits for more. What others use may make it one that never fits."""
        return any(holder.needed for holder in self.members.values())

    @property
    def is_given_back(self) -> bool:
        """Whether the keeper knows that nothing is left here."""
        return all(not holder.free for holder in self.members.values())

    def report(self) -> JSONObject:
        """Return what the engine has used and needs."""
        found: JSONObject = {}
        for index, holder in self.members.items():
            report = holder.report()
            values = (report.given, report.used, report.returned, report.needed, report.wanted)
            self._reported[index] = report.used
            found[str(index)] = [min(value, 2 * MOST_UNITS) for value in values]
        return found

    def receive(self, gifts: JSON, spent: JSON, ends_at: float) -> bool:
        """Use what the keeper has given. Returns whether something was returned."""
        if not isinstance(gifts, dict) or not isinstance(spent, dict):
            raise MessageError("gifts must be objects")
        returned = False
        self.ends_at = ends_at
        for index, holder in self.members.items():
            self._others[index] = _number(spent.get(str(index), 0)) - self._reported[index]
            row = gifts.get(str(index))
            if isinstance(row, list):
                total, most, recalled = _row(row, 3)
                before = holder.report().returned
                holder.receive(Gift(holder.name, _whole(total), _whole(most), bool(recalled)))
                if holder.free < holder.ahead / 2:
                    holder.ahead = 0  # there is not enough for this. So nothing is asked for until the next second
                returned = returned or holder.report().returned > before
        return returned

    def give_back(self) -> None:
        """Return what no call has reserved."""
        for holder in self.members.values():
            report = holder.report()
            holder.receive(Gift(holder.name, report.given, max(0, int(min(holder.most, 1e18))), recalled=True))


# --- the keeper ---


class KeeperState:
    """What the keeper knows of all engines.

    traffic: the options of the keeper's own engine. Those of the other engines have the same `configuration`.
    epoch: a number that is higher than that of each earlier keeper.
    now: the current time.
    recovers: whether engines may still have leases of an earlier keeper.
    records: what an earlier keeper has written down; the last one of each budget counts.
    """

    def __init__(
        self,
        traffic: Traffic,
        epoch: int,
        now: float,
        *,
        recovers: bool = False,
        records: Sequence[JSONObject] = (),
    ) -> None:
        self.configuration: JSONObject = configuration(traffic)
        self._traffic = traffic
        self._epoch = epoch
        self._since = now
        self._recovers = recovers
        self._shares: dict[str, dict[str, Share]] = {
            key: {share.name: share for share in shares_of(limit)} for key, limit in traffic.rates.items()
        }
        self._keepers: dict[tuple[str, str, str], Keeper] = {}
        self._amounts: dict[AmountKey, SharedAmounts] = {}
        self._knows_all = not records
        self._written: dict[AmountKey, tuple[dict[int, AmountRecord], float]] = {}
        self._touched: set[AmountKey] = set()
        self._prompted_at = -math.inf
        self._asked_at: dict[str, float] = {}
        """when each engine has asked last, the one that is silent for longest first"""
        for record in records:
            self._read_record(record, now)

    def __repr__(self) -> str:
        return f"<KeeperState {len(self._keepers)} rates, {len(self._amounts)} budgets>"

    def ask(self, name: str, message: JSONObject, now: float) -> tuple[JSONObject, set[str]]:
        """Return the reply to an engine, and the engines that should ask at once. Raises `MessageError`.

        Write down what `take_records` returns before the reply is sent.
        """
        self._lose_unknown(now)
        self._lose_silent(now)
        self._asked_at.pop(name, None)
        self._asked_at[name] = now
        prompted: set[str] = set()
        rates: list[JSON] = []
        lacks = False
        for row in _rows(message, "rates"):
            key, account, share, *values = _row(row, 9)
            keeper = self._keeper(str(key), str(account), str(share))
            before = keeper.granted
            lease = keeper.grant(_request(name, values), now)
            rates.append([key, account, share, *_lease_row(lease)])
            lacks = lacks or name in keeper.hungry
            if keeper.granted < before:
                prompted |= keeper.hungry.keys()
        if lacks and now >= self._prompted_at + PROMPT_SECONDS:
            self._prompted_at = now
            for keeper in self._keepers.values():
                if name in keeper.hungry:
                    prompted |= keeper.holders
        amounts: list[JSON] = []
        for row in _rows(message, "amounts"):
            position, tenant, reports = _row(row, 3)
            amounts.append(
                [position, tenant, *self._report(name, _amount_key(position, tenant), reports, now, prompted)]
            )
        return {"rates": rates, "amounts": amounts}, prompted - {name}

    def leave(self, name: str, message: JSONObject, now: float) -> set[str]:
        """Note the last message of an engine, and return the engines that should ask at once. Raises `MessageError`."""
        prompted: set[str] = set()
        self._asked_at.pop(name, None)
        for keeper in self._keepers.values():
            keeper.release(name, now)
            prompted |= keeper.hungry.keys()
        for row in _rows(message, "amounts"):
            position, tenant, reports = _row(row, 3)
            key = _amount_key(position, tenant)
            shared = self._amounts.get(key)
            if shared is not None:
                shared.settle(_reports(name, shared.limits, reports))
                self._touched.add(key)
                prompted |= shared.next
        return prompted

    def lose(self, name: str) -> None:
        """Note that an engine has gone without a last message. Its leases end by themselves. It may come back."""
        self._asked_at.pop(name, None)
        for key, shared in self._amounts.items():
            if name in shared.holders:
                shared.lose(name)
                self._touched.add(key)

    def take_records(self, now: float) -> list[JSONObject]:
        """Return what has to be written down since the last time, for a later keeper. The times are from now on."""
        found: list[JSONObject] = []
        for key in self._touched:
            shared = self._amounts[key]
            state = (shared.records, shared.ends_at)
            if state != self._written.get(key):
                self._written[key] = state
                members: JSONObject = {str(index): list(record) for index, record in shared.records.items()}
                found.append({"key": list(key), "members": members, "ends_in": _seconds(shared.ends_at - now)})
        self._touched.clear()
        return found

    def all_records(self, now: float) -> list[JSONObject]:
        """Return all that a later keeper must know."""
        self._written.clear()
        self._touched.update(self._amounts)
        return self.take_records(now)

    def _report(self, name: str, key: AmountKey, reports: JSON, now: float, prompted: set[str]) -> list[JSON]:
        shared = self._shared(key, now)
        free, waited = shared.free, name in shared.needs
        gifts = shared.report(_reports(name, shared.limits, reports), now)
        self._touched.add(key)
        if name in shared.needs and not waited:
            prompted |= shared.holders  # they return what no call has reserved
        if any(after > before for after, before in zip(shared.free, free, strict=True)):
            prompted |= shared.next
        rows: JSONObject = {str(index): [gift.total, max(0, gift.most), gift.recalled] for index, gift in gifts.items()}
        spent: JSONObject = {str(index): used for index, used in shared.spent.items()}
        return [rows, spent, _seconds(shared.ends_at - now)]

    def _keeper(self, key: str, account: str, name: str) -> Keeper:
        keeper = self._keepers.get((key, account, name))
        if keeper is None:
            share = self._shares.get(key, {}).get(name)
            if share is None:
                raise MessageError(f"{name} of {key!r} is no limit here")
            keeper = self._keepers[key, account, name] = Keeper(
                share.rate, self._since, epoch=self._epoch, recovers=self._recovers, step=share.step
            )
        return keeper

    def _shared(self, key: AmountKey, now: float) -> SharedAmounts:
        shared = self._amounts.get(key)
        if shared is None:
            if not 0 <= key[0] < len(self._traffic.budgets):
                raise MessageError(f"there is no budget {key[0]}")
            shared = self._amounts[key] = SharedAmounts(self._limits(key[0]), self._traffic.budgets[key[0]].every, now)
        return shared

    def _limits(self, position: int) -> dict[int, int]:
        budget = self._traffic.budgets[position]
        return {
            index: min(MOST_UNITS, math.floor(float(str(getattr(budget, member))) * SCALES[index]))
            for index, member in enumerate(MEMBERS)
            if budget.limits(member)
        }

    def _read_record(self, record: JSONObject, now: float) -> None:
        """Note what an earlier keeper has written down. A record that cannot be read is left out."""
        try:
            position, tenant = _row(record.get("key"), 2)
            members = record.get("members")
            if not isinstance(members, dict):
                return
            read = {int(index): AmountRecord(*map(_whole, _row(row, 4))) for index, row in members.items()}
            ends_in = record.get("ends_in")
            key = _amount_key(position, tenant)
            limits, every = self._limits(key[0]), self._traffic.budgets[key[0]].every
        except (MessageError, IndexError, ValueError):
            return
        ends_at = None if ends_in is None else now + _number(ends_in)
        self._amounts[key] = SharedAmounts(limits, every, now, read, ends_at)

    def _lose_silent(self, now: float) -> None:
        """Give up the engines that have not asked for long, such as that of a stopped process: others need not wait for
        what they have."""
        while self._asked_at:
            name, asked_at = next(iter(self._asked_at.items()))
            if now < asked_at + 2 * LEASE_SECONDS:
                break
            self.lose(name)

    def _lose_unknown(self, now: float) -> None:
        """Give up the engines of an earlier keeper that have not asked this one for the length of a lease."""
        if not self._knows_all and now >= self._since + 2 * LEASE_SECONDS:
            self._knows_all = True
            self._touched.update(self._amounts)
            for shared in self._amounts.values():
                shared.lose_unknown()


# --- messages ---


def _key(position: int, tenant: str | None) -> AmountKey:
    return position, None if tenant is None else ascii_dumps(tenant).decode()


def _amount_key(position: JSON, tenant: JSON) -> AmountKey:
    return _whole(position), tenant if isinstance(tenant, str) else None


def _seconds(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def _request_row(request: LeaseRequest) -> list[JSON]:
    wanted = None if math.isinf(request.wanted) else request.wanted
    return [request.asked_at, request.held.epoch, request.held.count, request.rate, wanted, request.in_use]


def _request(name: str, row: list[JSON]) -> LeaseRequest:
    asked_at, epoch, count, rate, wanted, in_use = _row(row, 6)
    return LeaseRequest(
        name,
        _number(asked_at),
        LeaseNumber(_whole(epoch), _whole(count)),
        _number(rate),
        math.inf if wanted is None else _number(wanted),
        _number(in_use),
    )


def _lease_row(lease: Lease) -> list[JSON]:
    renews: JSON = None if lease.renews is None else [lease.renews.epoch, lease.renews.count]
    goal = None if math.isinf(lease.goal) else lease.goal
    number, first = lease.number, lease.is_first
    return [number.epoch, number.count, lease.asked_at, lease.rate, renews, goal, first, lease.lowered]


def _lease(row: list[JSON]) -> Lease:
    epoch, count, asked_at, rate, renews, goal, is_first, lowered = _row(row, 8)
    return Lease(
        LeaseNumber(_whole(epoch), _whole(count)),
        _number(asked_at),
        _number(rate),
        None if renews is None else LeaseNumber(*map(_whole, _row(renews, 2))),
        math.inf if goal is None else _number(goal),
        is_first is True,
        _whole(lowered),
    )


def _reports(name: str, limits: Mapping[int, int], reports: JSON) -> dict[int, AmountReport]:
    """Return the report on each amount of a budget. limits: the amounts."""
    if not isinstance(reports, dict):
        raise MessageError("reports must be an object")
    rows = {index: reports.get(str(index)) for index in limits}
    return {index: AmountReport(name, *map(_whole, _row(row, 5))) for index, row in rows.items()}


def _rows(message: JSONObject, name: str) -> list[list[JSON]]:
    rows = message.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise MessageError(f"{name} must be a list of rows")
    return [row for row in rows if isinstance(row, list)]


def _row(row: JSON, length: int) -> list[JSON]:
    if not isinstance(row, list) or len(row) != length:
        raise MessageError(f"a row must have {length} values")
    return row


def _number(value: JSON) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST_UNITS <= value <= MOST_UNITS:
        raise MessageError(f"{value!r} is no number")
    return float(value)


def _whole(value: JSON) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 4 * MOST_UNITS:
        raise MessageError(f"{value!r} is no whole number")
    return value
