"""Budgets: reserve the largest cost of a call before it is sent, and settle the actual cost when it ended.

The sum of what was spent and what is reserved never exceeds a budget. A call that does not fit waits, but only while
running calls have reserved what it lacks: they may use less.

An amount may be a function of the program, which may start and cancel calls. So `BudgetsState.ask` calls all functions
that decide about a call. What follows it reads and changes the accounts, and calls none.

One file because an attempt's money goes one way through it: `Spending` (one call) asks `Budgets` (the engine's, with
their pump and the prices), which ask `BudgetsState` (the accounts; the time is passed to it).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeAlias

from ....providers.catalog.dialect import WireRequest
from ....providers.catalog.provider import Provider
from ....providers.errors import InvalidRequestError
from ....providers.json.json_types import JSON, JSONObject
from ....providers.json.json_values import MalformedJSONError, loads_object
from ....providers.limits.input_limits import Media, media_of, unpriced_member
from ....providers.limits.output_limits import largest_output, raised_output
from ....providers.limits.server_tools import charged_usage
from ....providers.model.options import Priority
from ....providers.model.provider_error import ErrorCategory, ProviderError
from ....providers.model.request import Request, given_of
from ....providers.model.response import Response
from ....providers.model.tokens import Usage
from ....providers.openai.thinking import takes_breakpoints
from ...call.completion import NO_PRICE_FUNCTION
from ...call.runtime import Runtime
from ...request.forwarded import forwarded_of
from ...request.noting import NoteLogger
from ...request.prepared import Prepared
from ...request.token_estimate import BYTES_PER_TOKEN, estimate_input_tokens, largest_input_tokens, seen_output_tokens
from ..queue.fair_queue import FairQueue, Permit, PermitState, credible
from ..queue.pump import AT_ONCE, Notification, Pump, WaitingCall
from .amounts import MEMBERS, NOTHING, Amounts, Budget, BudgetStatistics, limits_of
from .leases import UNITS_PER_USD, AccountLease, LeasedBudget
from .price import Price, ask_price, why_unknown

_ROUNDING = 1e-9

ADDED = -1
"""The position of a budget that was added for one tenant, in the keys of accounts."""

MOST_ACCOUNTS = 1_000
"""At this number of accounts, those without any spending are removed before a new one is made."""


@dataclass(slots=True, eq=False)
class Account:
    """The state of one budget for one tenant.

    tenant: the tenant; None for the whole engine and for calls without a tenant.
    lease: what this engine may use of a shared budget; None: the budget is its own.
    limits: the largest amounts of a window; `math.inf` for no limit.
    is_asked: whether `limits` are known: the budget's functions were asked.
    began: the time at which the current window began.
    spent: the amounts that ended calls used in this window.
    reserved: the amounts that running calls have reserved.
    reservations: the number of these reservations.
    line: the calls that wait for this account; None while none does.
    is_timed: whether `Budgets` looks at it when its window ends.
    """

    budget: Budget
    tenant: str | None
    began: float
    lease: AccountLease | None = None
    limits: Amounts = NOTHING
    is_asked: bool = False
    spent: Amounts = NOTHING
    reserved: Amounts = NOTHING
    reservations: int = 0
    line: FairQueue | None = None
    is_timed: bool = False

    @property
    def waiting(self) -> int:
        return 0 if self.line is None else self.line.length

    @property
    def ends_at(self) -> float:
        """The time at which the next window begins; `math.inf` if there is none."""
        if self.lease is not None:
            return self.lease.ends_at
        return math.inf if self.budget.every is None else self.began + self.budget.every

    @property
    def is_unused(self) -> bool:
        """True if a new account would be the same."""
        return self.spent == NOTHING and not self.reservations and not self.waiting

    def renew(self, now: float) -> bool:
        """Begin the next window if the current one is over. Reserved amounts stay reserved until their calls end.

        The keeper of a shared budget begins its windows. Here, `spent` is a total that only grows then.
        """
        every = self.budget.every
        if every is None or now < self.ends_at or self.lease is not None:
            return False
        self.began = now - math.fmod(now - self.began, every)
        if self.ends_at <= now:
            self.began = now  # the sum above was rounded
        self.spent = NOTHING
        return True

    def ask(self) -> None:
        """Call the budget's functions for the current limits."""
        self.limits = limits_of(self.budget, self.tenant)
        self.is_asked = True

    def figures(self, now: float) -> BudgetStatistics:
        left = -1.0 if self.budget.every is None else max(0.0, self.ends_at - now)
        return BudgetStatistics(self.budget, self.tenant, self.limits, self._used, self.reserved, self.waiting, left)

    @property
    def _used(self) -> Amounts:
        """What ended calls used in this window: of all engines, if the budget is shared and its keeper says it."""
        return self.spent if self.lease is None or self.lease.spent is None else self.lease.spent

    def lacking(self, amounts: Amounts, *, with_reserved: bool) -> str:
        """Return the name of the first member of `amounts` that exceeds its limit; "" if all fit.

        with_reserved: count reserved amounts as spent. Without them, a shared budget allows what it may ever allow.
        """
        reserved = self.reserved if with_reserved else NOTHING
        if self.lease is not None:
            return self.lease.lacking(self.spent.plus(reserved), amounts, ever=not with_reserved)
        for name, limit, used, held, more in zip(MEMBERS, self.limits, self.spent, reserved, amounts, strict=True):
            if more > 0 and used + held + more > limit * (1 + _ROUNDING):
                return name
        return ""

    def reserve(self, amounts: Amounts) -> None:
        self.reserved = self.reserved.plus(amounts)
        self.reservations += 1
        if self.lease is not None:
            self.lease.count(self.spent, self.reserved)
            self.lease.satisfy()

    def spend(self, reserved: Amounts, used: Amounts) -> None:
        """Replace the reservation of one call by what it used."""
        self.spent = self.spent.plus(used)
        self.reservations -= 1
        # Exactly nothing remains of the last one, whatever was rounded.
        self.reserved = self.reserved.less(reserved) if self.reservations else NOTHING
        if self.lease is not None:
            self.lease.count(self.spent, self.reserved)

    def keep_waiting(self, now: float) -> None:
        """Note that the next call of the line does not fit now."""
        claim = self.first(now)
        if claim is not None and self.lease is not None:
            self.lease.need(self.spent.plus(self.reserved), claim.amounts, self.waiting)

    def first(self, now: float) -> Claim | None:
        """Return the next call of the line; None if none waits."""
        permit = None if self.line is None else self.line.first(now)
        assert permit is None or isinstance(permit, Claim)
        return permit


class BudgetRefusal:
    """The reason why a budget refused a call.

    member: the name of the amount that does not fit.
    tenant: the tenant; None for the whole engine and for calls without a tenant.
    limit: the largest amount of the window.
    spent: the amount that ended calls used.
    reserved: the amount that running calls have reserved.
    needed: the amount that the refused call may use.
    retry_after: seconds until the next window; -1 if there is none.
    """

    __slots__ = ("budget", "limit", "member", "needed", "reserved", "retry_after", "spent", "tenant")

    def __init__(self, account: Account, member: str, amounts: Amounts, now: float) -> None:
        position = MEMBERS.index(member)
        self.member: str = member
        self.budget: Budget = account.budget
        self.tenant: str | None = account.tenant
        lease = account.lease
        self.limit: float = account.limits[position]
        if lease is not None and lease.limits is None:
            self.limit = lease.members[position].most / UNITS_PER_USD
        self.spent: float = account.figures(now).spent[position]
        self.reserved: float = account.reserved[position]
        self.needed: float = amounts[position]
        self.retry_after: float = -1.0 if account.budget.every is None else max(0.0, account.ends_at - now)

    @property
    def message(self) -> str:
        window = "" if self.budget.every is None else f" in {self.budget.every:g} s"
        return (
            f"{whose(self.budget, self.tenant)} allows {self.limit:g} {self.member}{window}: {self.spent:g} are spent,"
            f" {self.reserved:g} are reserved, and this call may use {self.needed:g}"
        )


def whose(budget: Budget, tenant: str | None) -> str:
    """Return the name of a tenant's share of a budget, for messages."""
    return "the engine's budget" if budget.per == "engine" else f"the budget of tenant {tenant!r}"


@dataclass(slots=True, eq=False)
class Reservation:
    """The amounts that one attempt has reserved in every budget that applies to it.

    accounts: the budgets' accounts; empty after the attempt was settled.
    amounts: the reserved amounts, the same in each account.
    """

    accounts: tuple[Account, ...]
    amounts: Amounts


Outcome: TypeAlias = Reservation | BudgetRefusal | InvalidRequestError
"""What became of a claim. The error is that of a function of the budget."""


class Claim(Permit):
    """The permit of a call that waits for a reservation.

    amounts: the largest amounts that it can use.
    account: the account in whose line it is; None while it does not wait.
    reservation: what was reserved at the end of the wait.
    """

    __slots__ = ("account", "amounts", "reservation")

    def __init__(
        self,
        amounts: Amounts,
        priority: Priority = Priority.NORMAL,
        tenant: str | None = None,
        owner: WaitingCall | None = None,
    ) -> None:
        super().__init__(amounts.input_tokens + amounts.output_tokens, None, priority, tenant, owner)
        self.amounts: Amounts = amounts
        self.account: Account | None = None
        self.reservation: Reservation | None = None

    @property
    def waiting_for(self) -> str:
        """What the call waits for, and how many others are ahead, in words; empty if it does not wait."""
        account = self.account
        if account is None or account.line is None:
            return ""
        member = account.lacking(self.amounts, with_reserved=True) or "its turn"
        shared = "" if account.lease is None else "a part of "
        ahead = int(account.line.ahead_of(self)[0])
        name = whose(account.budget, account.tenant)
        return f"{member} of {shared}{name}, reserved by {account.reservations} calls, {ahead} ahead"


class BudgetsState:
    """All budgets of an engine, and the calls that wait for one of them.

    budgets: the budgets as the program gave them.
    added: the budgets that were added later, each for the calls of one tenant.
    lease_of: returns the lease on a shared budget (its position) for a tenant; None: the budgets are this engine's own.
    on_change: called when the lease on a budget has changed.
    """

    def __init__(
        self,
        budgets: tuple[Budget, ...],
        lease_of: Callable[[int, str | None], AccountLease] | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self.budgets = budgets
        self._lease_of = lease_of
        self._on_change = on_change
        self.added: dict[str, Budget] = {}
        self._accounts: dict[tuple[int, str | None], Account] = {}
        self._most = MOST_ACCOUNTS
        self._changed: dict[Account, None] = {}  # accounts with a line, whose next call may fit now, or never
        self._windows: list[tuple[float, int, Account]] = []  # of accounts with a line, by the end of their window
        self._numbers = itertools.count()  # so that the accounts themselves are never compared

    def accounts(self) -> list[Account]:
        """Return every account whose limits are known."""
        return [account for account in self._accounts.values() if account.is_asked]

    def remove(self, tenant: str) -> None:
        """Remove the budget that was added for a tenant. Calls that hold a part of it still settle it."""
        if self.added.pop(tenant, None) is not None:
            self._accounts.pop((ADDED, tenant), None)

    # --- before a call is sent ---

    def ask(self, tenant: str | None, amounts: Amounts, now: float) -> tuple[Account, ...]:
        """Return the account of each budget for a tenant, after the budgets' functions were asked: for the limits that
        are not known yet, and again for those that a call exceeds.

        amounts: what the call may use.

        Raises `InvalidRequestError` if a function raises or returns something that is not an amount.
        """
        keys = [(position, tenant if budget.per == "tenant" else None) for position, budget in enumerate(self.budgets)]
        if tenant in self.added:
            keys.append((ADDED, tenant))
        if len(self._accounts) >= self._most and any(key not in self._accounts for key in keys):
            self._forget_unused(now)
        asked: set[Account] = set()
        while True:
            accounts = tuple(self._account(key, now) for key in keys)
            unsure = (
                account
                for account in accounts
                if account not in asked and not (account.is_asked and not account.lacking(amounts, with_reserved=False))
            )
            account = next(unsure, None)
            if account is None:
                return accounts
            asked.add(account)
            account.ask()

    def refusal(self, tenant: str | None, amounts: Amounts, now: float) -> BudgetRefusal | None:
        """Return why a call cannot fit in this window, whatever running calls leave over; None if it may fit. Raises as
        `ask` does."""
        return _never(self.ask(tenant, amounts, now), amounts, now)

    def reserve(self, tenant: str | None, amounts: Amounts, now: float) -> Reservation | BudgetRefusal | Account:
        """Reserve the amounts of one call in every budget, or in none.

        Returns a refusal if the call cannot fit in this window. Returns an account for which it may `wait`, if it does
        not fit now, but may fit when other calls end and use less than they reserved, or if others have waited for that
        before.

        amounts: the largest amounts that the call can use.

        Raises as `ask` does.
        """
        return self._decide(self.ask(tenant, amounts, now), amounts, now, is_new=True)

    def wait(self, claim: Claim, account: Account) -> None:
        """Let a call wait for an account, behind the others. `next` returns it when it fits, or never can."""
        self._stand(claim, account, at_head=False)
        self._changed[account] = None

    def withdraw(self, claim: Claim) -> None:
        """Remove a call from the line in which it waits. May be called again."""
        account = claim.account
        if account is None:
            return
        claim.account = None
        assert account.line is not None
        if claim.state is PermitState.QUEUED:
            account.line.remove(claim)
        if account.line.length:
            self._changed[account] = None
        else:
            account.line = None
            if account.lease is not None:
                account.lease.satisfy()
            self._changed.pop(account, None)

    def next(self, now: float) -> tuple[Claim, Outcome] | None:
        """Take the next waiting call that fits now, or can no longer fit; None if all others must wait on."""
        while self.next_time() <= now:
            account = self._windows[0][2]
            self._renew(account, now)
            heapq.heapreplace(self._windows, (account.ends_at, next(self._numbers), account))
        while self._changed:
            account = next(iter(self._changed))
            claim = account.first(now)
            if claim is None:
                del self._changed[account]
                continue
            try:
                accounts = self.ask(claim.tenant, claim.amounts, now)
            except InvalidRequestError as error:
                if claim.account is None:
                    continue
                self.withdraw(claim)
                return claim, error
            if claim.account is None:
                continue  # a function of a budget has ended the call
            found = self._decide(accounts, claim.amounts, now)
            if found is account:
                del self._changed[account]
                account.keep_waiting(now)
                continue
            if isinstance(found, Reservation):
                assert account.line is not None
                account.line.take(now)
                claim.state = PermitState.ENDED
            self.withdraw(claim)
            if not isinstance(found, Account):
                return claim, found
            self._stand(claim, found, at_head=True)
            found.keep_waiting(now)
        return None

    def next_time(self) -> float:
        """Return the time at which a waiting call may fit although no call has ended; `math.inf`: at no set time."""
        while self._windows and self._windows[0][2].line is None:
            heapq.heappop(self._windows)[2].is_timed = False
        return self._windows[0][0] if self._windows else math.inf

    @property
    def has_changed(self) -> bool:
        """True if `next` should be called, because an account changed for which calls wait."""
        return bool(self._changed)

    # --- after a call was sent ---

    def settle(self, reservation: Reservation, used: Amounts, now: float) -> None:
        """Count the used amounts of an ended call as spent, and release its reservation. A second call does nothing."""
        for account in reservation.accounts:
            self._renew(account, now)
            account.spend(reservation.amounts, used)
            if account.line is not None:
                self._changed[account] = None
        reservation.accounts = ()

    def statistics(self, now: float) -> tuple[BudgetStatistics, ...]:
        """Return the figures of every account at the time `now`."""
        found: list[BudgetStatistics] = []
        for account in self.accounts():
            self._renew(account, now)
            found.append(account.figures(now))
        return tuple(found)

    # --- shared by the methods above ---

    @staticmethod
    def _decide(
        accounts: tuple[Account, ...], amounts: Amounts, now: float, *, is_new: bool = False
    ) -> Reservation | BudgetRefusal | Account:
        """Reserve the amounts, or return why not: a refusal, or the account for which the call must wait.

        accounts: those that `ask` has returned.
        is_new: it is behind all calls that wait.
        """
        refusal = _never(accounts, amounts, now)
        if refusal is not None:
            return refusal
        for account in accounts:
            if (is_new and account.line) or account.lacking(amounts, with_reserved=True):
                return account
        for account in accounts:
            account.reserve(amounts)
        return Reservation(accounts, amounts)

    def _stand(self, claim: Claim, account: Account, *, at_head: bool) -> None:
        if account.line is None:
            account.line = FairQueue()
        if not account.is_timed and account.budget.every is not None and account.lease is None:
            account.is_timed = True
            heapq.heappush(self._windows, (account.ends_at, next(self._numbers), account))
        account.line.add(claim, at_head=at_head)
        claim.account = account

    def _account(self, key: tuple[int, str | None], now: float) -> Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = self._new_account(key[0], key[1], now)
        else:
            self._renew(account, now)
        return account

    def _new_account(self, position: int, tenant: str | None, now: float) -> Account:
        if position == ADDED and tenant is not None:
            return Account(self.added[tenant], tenant, now)
        budget = self.budgets[position]
        lease = budget.lease if isinstance(budget, LeasedBudget) else None
        if lease is None and self._lease_of is not None:
            lease = self._lease_of(position, tenant)
        account = Account(budget, tenant, now, lease)
        if lease is not None:
            lease.listen(partial(self._lease_changed, account))
        return account

    def _lease_changed(self, account: Account) -> None:
        """Note that the engine may use another part of the shared budget of an account."""
        account.ask()
        if account.line is not None:
            self._changed[account] = None
        if self._on_change is not None:
            self._on_change()

    def _renew(self, account: Account, now: float) -> None:
        """Begin the next window of an account if it has come. More may fit then."""
        if account.renew(now) and account.line is not None:
            self._changed[account] = None

    def _forget_unused(self, now: float) -> None:
        """Remove the accounts without spending, so that tenants' names from untrusted input do not fill the memory."""
        for account in self._accounts.values():
            account.renew(now)
        for account in self._accounts.values():
            if account.is_unused and account.lease is not None and account.lease.on_forget is not None:
                account.lease.on_forget()
        self._accounts = {key: account for key, account in self._accounts.items() if not account.is_unused}
        self._most = max(MOST_ACCOUNTS, 2 * len(self._accounts))


def _never(accounts: tuple[Account, ...], amounts: Amounts, now: float) -> BudgetRefusal | None:
    """Return why the amounts cannot fit in this window, whatever running calls leave over; None if they may fit."""
    for account in accounts:
        member = account.lacking(amounts, with_reserved=False)
        if member:
            return BudgetRefusal(account, member, amounts, now)
    return None


logger: NoteLogger = NoteLogger("manystream.traffic")

REFUSAL_CODE = "budget_spent"
"""The `provider_code` of a call that does not fit a budget."""

CACHE_MARKS = (b'"cache_control"', b'"prompt_cache_breakpoint"')
"""In the body of a request whose prompt may be written to a cache, which may cost more than to read it."""

LONGER_LIFETIMES = (b'"ttl":"1h"', b'"ttl":"12h"', b'"ttl": "1h"', b'"ttl": "12h"')
"""In the body of a request whose prompt may be written to a cache with the longer lifetime, which costs more."""

DEARER = ("inference_geo", "speed", "service_tier", "serviceTier")
"""Members of `extra_body` that change the price. The usage reports of answers have members of the same names."""


@dataclass(slots=True, frozen=True)
class Need:
    """What one attempt at one target may use.

    model: the model's name there.
    tenant: on whose behalf the call is made.
    amounts: the largest amounts.
    input_tokens: the input tokens as estimated.
    unseen_output: the output tokens that an attempt counts that the caller gave up before any of its answer came: the
        server may make the whole answer. 0 for a stream of the program, which the server ends with its connection.
    part: the price, as a part of the list price; None if the window of its answer has no known price.
    asked: what the request asks for that changes the price.
    """

    provider: Provider
    model: str
    tenant: str | None
    amounts: Amounts
    input_tokens: int
    unseen_output: int = 0
    part: float | None = 1.0
    asked: JSONObject | None = None


class Budgets(Pump):
    """The budgets of one engine.

    price: knows the prices of calls; None: they have none.
    lease_of: returns the lease on a shared budget (its position) for a tenant; None: they are this engine's own.
    watch: receives the figures of a budget after a change; None: there is no observer.
    """

    def __init__(
        self,
        budgets: tuple[Budget, ...],
        price: Price | None,
        runtime: Runtime,
        lease_of: Callable[[int, str | None], AccountLease] | None = None,
        watch: Callable[[BudgetStatistics], None] | None = None,
    ) -> None:
        super().__init__(runtime)
        self.price: Price | None = price
        self._budgets = BudgetsState(budgets, lease_of, self.changed)
        self._limited = {member for member in Amounts._fields if any(budget.limits(member) for budget in budgets)}
        self._watch = watch
        self._warned = False
        self._noted: dict[Account, None] = {}  # changed since the observer was notified of them
        self._sending: list[Account] = []  # the observer is notified of them now

    def add(self, tenant: str, budget: Budget) -> None:
        """Add a budget for the calls of one tenant. Raises `InvalidRequestError` for one in `usd` without prices."""
        if self.price is None and budget.limits("usd"):
            raise InvalidRequestError("budget.usd", "needs prices: open the engine with Traffic(price=…)")
        self._budgets.remove(tenant)
        self._budgets.added[tenant] = replace(budget, per="tenant")

    def remove(self, tenant: str) -> None:
        """Remove the budget that was added for a tenant."""
        self._budgets.remove(tenant)

    def _limited_for(self, tenant: str | None) -> set[str]:
        """Return the amounts that some budget limits for a tenant's calls."""
        added = self._budgets.added.get(tenant) if tenant is not None and self._budgets.added else None
        return self._limited if added is None else self._limited | {each for each in MEMBERS if added.limits(each)}

    # --- what a call may use, and what it used ---

    def need(self, request: Request, prepared: Prepared, wire: WireRequest) -> Need:
        """Return what an attempt may use.

        Raises `InvalidRequestError` that names what a budget limits and nothing bounds in advance: the output of a
        request without a limit to a model whose largest output is unknown, input that the server has or fetches, or a
        price.
        """
        provider, model, tenant = prepared.provider, prepared.model, request.tenant
        most_output, dollars = 0, 0.0
        asked: JSONObject | None = None
        likely_input, media = estimate_input_tokens(request, prepared.body), Media()
        forwarded = None if given_of(request) is None else forwarded_of(request)
        limited = self._limited_for(tenant)
        extra = request.extra_body or {} if forwarded is None else forwarded.members
        if limited & {"usd", "input_tokens", "output_tokens"}:
            try:
                body = _parsed(prepared.body)
                if limited & {"usd", "input_tokens"}:
                    media = media_of(body, model)
                    likely_input = media.tokens + max(0, len(prepared.body) - media.encoded) / BYTES_PER_TOKEN
                if "usd" in limited:
                    _check_price(body, model, media)
                if limited & {"usd", "output_tokens"}:
                    most_output = _most_output(request, prepared, wire, body)
            except InvalidRequestError as error:
                raise (_placed(error, extra) if forwarded is None else error) from None
        most_input = math.ceil(largest_input_tokens(prepared.body, media)) if limited else 0
        if "usd" in limited:
            asked = {name: extra[name] for name in DEARER if name in extra}
            dollars = self._most_dollars(provider, model, most_input, most_output, asked, prepared.body)
        part = _part_of(request, prepared, extra)
        self._budgets.ask(tenant, NOTHING, self.runtime.loop.clock())  # the functions, at a tenant's first call
        amounts = Amounts(dollars * (1.0 if part is None else part), float(most_input), float(most_output), 1.0)
        unseen = 0 if prepared.stream and forwarded is None else most_output
        return Need(provider, model, tenant, amounts, math.ceil(likely_input), unseen, part, asked)

    def reading(self, need: Need, cached: int, body: bytes) -> Need:
        """Return what an attempt may use if it reads so many tokens of its prompt from a cache."""
        if not need.amounts.usd or need.asked is None:
            return need
        tokens = int(need.amounts.input_tokens), int(need.amounts.output_tokens)
        dollars = self._most_dollars(need.provider, need.model, *tokens, need.asked, body, min(cached, tokens[0]))
        usd = min(need.amounts.usd, dollars * (1.0 if need.part is None else need.part))
        return replace(need, amounts=need.amounts._replace(usd=usd))

    def _most_dollars(
        self, provider: Provider, model: str, input_tokens: int, output_tokens: int, asked: JSONObject, body: bytes,
        cached: int = 0,
    ) -> float:  # fmt: skip
        total, read = input_tokens + output_tokens, cached or None
        usages = [Usage(input_tokens, output_tokens, total_tokens=total, cached_tokens=read, raw=asked or None)]
        # Models with breakpoints write to a cache without a mark, too.
        if takes_breakpoints(model) or any(mark in body for mark in CACHE_MARKS):
            written = input_tokens - cached
            longer = written if any(mark in body for mark in LONGER_LIFETIMES) else 0
            raw: JSONObject = {**asked, "cache_creation": {"ephemeral_1h_input_tokens": longer}}
            usages.append(Usage(input_tokens, output_tokens, cached_tokens=read, cache_write_tokens=written, raw=raw))
        assert self.price is not None, "a budget in usd needs a price"
        dollars = 0.0
        for usage in usages:
            price = ask_price(self.price, provider, model, usage)
            if price is None:
                text = f"traffic.price knows no price of {provider.name}/{model}, and a budget limits usd"
                why = why_unknown(self.price, provider, model, usage)
                raise InvalidRequestError("model", f"{text}: {why}" if why else text)
            dollars = max(dollars, price)
        return dollars

    def cost(self, need: Need, usage: Usage | None) -> float | str:
        """Return the US dollars of an attempt, or why they are not known. usage: None if it used nothing."""
        if self.price is None:
            return NO_PRICE_FUNCTION
        if usage is None:
            return 0.0
        if need.part is None:
            return f"no price is known for the window in which {need.model} completes the answer"
        try:
            dollars = ask_price(self.price, need.provider, need.model, usage)
        except InvalidRequestError as error:
            if not self._warned:
                self._warned = True
                logger.warning("an answer has no price: %s", error)
            return str(error)
        if dollars is not None:
            return dollars * need.part
        label = f"{need.provider.name}/{need.model}"
        why = why_unknown(self.price, need.provider, need.model, usage)
        return why or f"the price function knows no price of {label}"

    # --- reservations ---

    def refusal(self, need: Need, now: float) -> ProviderError | None:
        """Return why the budgets can never pay for an attempt in this window; None if they may."""
        try:
            found = self._budgets.refusal(need.tenant, need.amounts, now)
        except InvalidRequestError as error:
            return _function_failed(error)
        return None if found is None else _refused(found)

    def reserve(self, need: Need, amounts: Amounts, now: float) -> Reservation | ProviderError | Account:
        """Reserve amounts. Returns why they can never fit; or the account to `wait` for, if they do not fit now."""
        try:
            found = self._budgets.reserve(need.tenant, amounts, now)
        except InvalidRequestError as error:
            return _function_failed(error)
        if isinstance(found, Reservation):
            self._note(found.accounts)
        return _refused(found) if isinstance(found, BudgetRefusal) else found

    def wait(self, claim: Claim, account: Account) -> None:
        """Let a call wait for an account. It is notified at a later tick."""
        self._budgets.wait(claim, account)
        self._note((account,))
        self.changed()

    def withdraw(self, claim: Claim) -> None:
        """Let a call wait no longer. May be called again."""
        account = claim.account
        self._budgets.withdraw(claim)
        if account is not None:
            self._note((account,))
        self.changed()

    def settle(self, reservation: Reservation, used: Amounts, now: float) -> None:
        """Replace a reservation by what was used. A second call does nothing."""
        accounts = reservation.accounts
        self._budgets.settle(reservation, used, now)
        self._note(accounts)
        self.changed()

    def statistics(self, now: float) -> tuple[BudgetStatistics, ...]:
        found = self._budgets.statistics(now)
        self.changed()
        return found

    def _note(self, accounts: Iterable[Account]) -> None:
        """Notify the observer of changed accounts, at a later tick."""
        if self._watch is not None:
            self._noted.update(dict.fromkeys(accounts))
            self.note()

    def report_figures(self, now: float) -> bool:
        watch = self._watch
        assert watch is not None, "there is an observer"
        if not self._sending:
            self._sending, self._noted = list(self._noted), {}
        for account in self._sending[:AT_ONCE]:
            watch(account.figures(now))
        del self._sending[:AT_ONCE]
        if not self._sending and self._noted:
            self.note()  # these changed meanwhile
        return bool(self._sending)

    # --- waiting calls ---

    def changed(self) -> None:
        """Look at the waiting calls at the next tick, if something changed for one of them."""
        if self._budgets.has_changed:
            self.schedule()

    def take(self, now: float) -> Notification | float:
        """Take the next call out of its line that fits, or can no longer fit. If all others must wait on, return the
        time at which the next window begins for which a call waits."""
        found = self._budgets.next(now)
        if found is None:
            return self._budgets.next_time()
        claim, outcome = found
        call = claim.owner
        assert call is not None, "the call waits"
        if isinstance(outcome, Reservation):
            self._note(outcome.accounts)
            claim.reservation = outcome
            return call, call.funded
        error = _refused(outcome) if isinstance(outcome, BudgetRefusal) else _function_failed(outcome)
        return call, partial(call.unfunded, error)


def _parsed(body: bytes) -> JSONObject:
    """Return a request's body; empty if a dialect of the program's own writes something else than an object."""
    try:
        return loads_object(body)
    except MalformedJSONError:
        return {}


def _part_of(request: Request, prepared: Prepared, extra: Mapping[str, JSON]) -> float | None:
    """Return the price of an answer as a part of the list price; None if that of its window is not known.

    extra: the members of the body that the program gave.
    """
    durable, options = request.durable_option, extra.get("background_options")
    window = options.get("completion_window") if isinstance(options, dict) else durable and durable.window
    if window is None:
        return 1.0
    stored = prepared.shared.dialect.stored
    return stored.windows.get(window) if stored is not None and isinstance(window, str) else None


def _check_price(body: JSONObject, model: str, media: Media) -> None:
    member = unpriced_member(body, model, media)
    if member:
        raise InvalidRequestError(member, "a budget limits usd, and with this member tokens may have another price")


def _placed(error: InvalidRequestError, extra: Mapping[str, JSON]) -> InvalidRequestError:
    """Return an error about a member of the body. If `extra_body` has that member, the error's field says so."""
    if error.field.partition(".")[0].partition("[")[0] not in extra:
        return error
    return InvalidRequestError(f"extra_body.{error.field}", str(error).removeprefix(f"{error.field}: "))


def _most_output(request: Request, prepared: Prepared, wire: WireRequest, body: JSONObject) -> int:
    """Return the most output tokens of an attempt. Raises `InvalidRequestError` if that is not known."""
    raised, choices = raised_output(body)
    limit = wire.max_output_tokens
    if limit is None:
        limit = request.max_output_tokens
    if limit is None:
        limit = largest_output(prepared.provider.profile.name, prepared.model)
    if limit is None:
        text = f"is needed: a budget limits the output, and the most that {prepared.model!r} can write is unknown"
        raise InvalidRequestError("max_output_tokens", text)
    return max(limit, (raised or limit) * choices)


def _refused(refusal: BudgetRefusal) -> ProviderError:
    return ProviderError(
        f"not sent: {refusal.message}",
        category=ErrorCategory.BUDGET,
        provider_code=REFUSAL_CODE,
        retry_after_ms=math.ceil(refusal.retry_after * 1000) if refusal.retry_after >= 0 else -1,
        retryable=False,
    )


def _function_failed(error: InvalidRequestError) -> ProviderError:
    failure = ProviderError(f"not sent: {error}", category=ErrorCategory.BUDGET, retryable=False)
    failure.__cause__ = error
    return failure


class Spent(NamedTuple):
    """What one attempt used.

    usage: the tokens; None if there are none, or none are known.
    estimated: whether the server did not report them.
    """

    usage: Usage | None = None
    estimated: bool = False


NOTHING_SPENT = Spent()
"""What an attempt used that did not reach the server, or whose answer says nothing."""


@dataclass(slots=True, eq=False, repr=False)
class Spending:
    """The spending of one call.

    reservation: that of the next attempt; None if nothing is reserved. An attempt under way holds its own.
    seconds: the time for which the call has waited for a budget.
    cost: US dollars of the attempts that ended; None if the price of one of them is not known.
    cost_unknown: why the cost is not known: of the first attempt without a price; empty if it is known.
    """

    _live: Budgets
    reservation: Reservation | None = field(default=None, init=False)
    seconds: float = field(default=0.0, init=False)
    cost: float | None = field(init=False)
    cost_unknown: str = field(init=False)
    _claim: Claim | None = field(default=None, init=False)
    _claimed_at: float = field(default=0.0, init=False)
    _is_counted: bool = field(default=False, init=False)  # as a call
    _need: Need | None = field(default=None, init=False)  # that `reservation` is for

    def __post_init__(self) -> None:
        has_price = self._live.price is not None
        self.cost, self.cost_unknown = (0.0, "") if has_price else (None, NO_PRICE_FUNCTION)

    @property
    def waiting_for(self) -> str:
        """The reason why the call waits, in words; empty if it does not wait for a budget."""
        return "" if self._claim is None else self._claim.waiting_for

    def reading(self, need: Need, cached: int, body: bytes) -> Need:
        """Return what an attempt may use if it reads so many tokens of its prompt from a cache."""
        return self._live.reading(need, cached, body)

    def refusal(self, need: Need, now: float) -> ProviderError | None:
        """Return why the budgets can never pay for an attempt in this window; None if they may."""
        return None if self.reservation is not None else self._live.refusal(need, now)

    def reserve(self, need: Need, now: float) -> ProviderError | Account | None:
        """Reserve an attempt that is about to be sent. Returns the account for which the call must `wait`; an error if
        the attempt can never be sent in this window; else None."""
        before = self._need
        if self.reservation is not None and before is not None:
            if before.amounts == need.amounts and before.tenant == need.tenant:
                return None
            self.release(now)
        found = self._live.reserve(need, self._amounts(need), now)
        if not isinstance(found, Reservation):
            return found
        self._need, self.reservation = need, found
        return None

    def reserve_beside(self, need: Need, now: float) -> Reservation | None:
        """Reserve a second attempt that runs beside the first one. Returns None if it does not fit now."""
        found = self._live.reserve(need, self._amounts(need), now)
        return found if isinstance(found, Reservation) else None

    def wait(self, need: Need, account: Account, call: WaitingCall, priority: Priority, now: float) -> None:
        """Wait until the attempt can be reserved. account: the one that does not pay for it now."""
        self._claim, self._claimed_at = Claim(self._amounts(need), priority, need.tenant, call), now
        self._live.wait(self._claim, account)

    def fund(self, need: Need, now: float) -> None:
        """End the wait, and keep what was reserved."""
        assert self._claim is not None
        assert self._claim.reservation is not None
        self._need, self.reservation = need, self._claim.reservation
        self.leave(now)

    def leave(self, now: float) -> None:
        """End the wait. May be called again."""
        claim, self._claim = self._claim, None
        if claim is not None:
            self.seconds += now - self._claimed_at
            self._live.withdraw(claim)

    def take(self) -> Reservation | None:
        """Return what is reserved for the attempt that begins now, which holds it from now on."""
        kept, self.reservation = self.reservation, None
        return kept

    def release(self, now: float) -> None:
        """Give back what is reserved for the next attempt: there is none. May be called again."""
        kept = self.take()
        if kept is not None:
            self._live.settle(kept, NOTHING, now)

    def settle(self, need: Need, kept: Reservation, usage: Usage | None, now: float, *, sent: bool) -> None:
        """Count what an attempt used in place of what it reserved.

        need: what it could use.
        usage: None if the server answers without charge, as for an error.
        sent: its request was sent; else nothing is counted.
        """
        if not sent:
            self._live.settle(kept, NOTHING, now)
            return
        calls = 0.0 if self._is_counted else 1.0
        self._is_counted = True
        cost = self._live.cost(need, usage)
        dollars = None if isinstance(cost, str) else cost
        if isinstance(cost, str):
            self.cost_unknown = self.cost_unknown or cost
        self.cost = None if self.cost is None or dollars is None else self.cost + dollars
        if usage is None:
            used = Amounts(calls=calls)
        else:
            output = (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
            # What has no price counts as what was reserved.
            paid = kept.amounts.usd if dollars is None else dollars
            used = Amounts(paid, float(usage.input_tokens or 0), float(output), calls)
        self._live.settle(kept, used, now)

    def _amounts(self, need: Need) -> Amounts:
        return need.amounts._replace(calls=0.0) if self._is_counted else need.amounts


def spent_by(input_tokens: int, response: Response | None, error: ProviderError | None, unseen: int = 0) -> Spent:
    """Return what an attempt used that was sent: as reported, else estimated from what was sent and received.

    input_tokens: as estimated.
    unseen: the output tokens of an attempt that was cancelled before any of its answer came.
    """
    reported = Usage() if response is None else credible(charged_usage(response))
    if error is None and reported.input_tokens is not None and reported.output_tokens is not None:
        return Spent(reported)
    seen = math.ceil(seen_output_tokens(response))
    if error is not None and error.http_status >= 300 and not seen:
        return Spent()  # the server refused the request; an error inside an answer (200) may be charged
    if reported.input_tokens is not None:
        input_tokens = reported.input_tokens
    output = max(seen, (reported.output_tokens or 0) + (reported.thinking_tokens or 0))
    if not seen and error is not None and error.category is ErrorCategory.CANCELLED:
        output = max(output, unseen)
    usage = Usage(
        input_tokens,
        output,
        cached_tokens=reported.cached_tokens,
        cache_write_tokens=reported.cache_write_tokens,
        total_tokens=input_tokens + output,
    )
    return Spent(usage, estimated=True)
