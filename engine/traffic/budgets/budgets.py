"""The budgets of one engine, the prices of its calls, and the calls that wait for a budget."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from ....providers.catalog.provider import Provider
from ....providers.errors import ErrorCategory, InvalidRequestError, ProviderError
from ....providers.json.json_types import JSON, JSONObject
from ....providers.json.json_values import MalformedJSONError, loads_object
from ....providers.limits.input_limits import Media, media_of, unpriced_member
from ....providers.limits.output_limits import largest_output, raised_output
from ....providers.model.request import Request
from ....providers.model.usage import Usage
from ....providers.openai.thinking import takes_breakpoints
from ....providers.wire.dialect import WireRequest
from ...call.completion import NO_PRICE_FUNCTION
from ...call.runtime import Runtime, TrafficWatch
from ...request.prepared import Prepared
from ...request.token_estimate import BYTES_PER_TOKEN, estimate_input_tokens, largest_input_tokens
from ..options import Traffic
from ..queue.pump import AT_ONCE, Notification, Pump, open_notice
from ..statistics import BudgetStatistics
from .amounts import NOTHING, Amounts, Budget
from .budget_state import Account, BudgetRefusal, BudgetsState, Claim, Holding
from .leases import AccountLease, LeasedBudget
from .price import Price, ask_price, why_unknown

logger: logging.Logger = logging.getLogger("manystream.traffic")

REFUSAL_CODE = "budget_spent"
"""The `provider_code` of a call that does not fit a budget."""

CACHE_MARKS = (b'"cache_control"', b'"prompt_cache_breakpoint"')
"""In the body of a request whose prompt may be written to a cache, which may cost more than to read it."""

LONGER_LIFETIMES = (b'"ttl":"1h"', b'"ttl":"12h"')
"""In the body of a request whose prompt may be written to a cache with the longer lifetime, which costs more."""

DEARER = ("inference_geo", "speed", "service_tier", "serviceTier")
"""Members of `extra_body` that change the price. The usage reports of answers have members of the same names."""


@dataclass(slots=True, frozen=True)
class Need:
    """What one attempt at one target may use.

    provider: the provider that it is sent to.
    model: the model's name there.
    tenant: on whose behalf the call is made.
    amounts: the largest amounts.
    input_tokens: the input tokens as estimated.
    """

    provider: Provider
    model: str
    tenant: str | None
    amounts: Amounts
    input_tokens: int


class Claimant(Protocol):
    """A call that waits for a budget. One of the first two methods is called once per wait."""

    def funded(self, holding: Holding) -> None:
        """Go on: the amounts are reserved."""
        ...

    def unfunded(self, error: ProviderError) -> None:
        """Go elsewhere or fail: the amounts cannot be reserved."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library."""
        ...


class Budgets:
    """The budgets of one engine.

    traffic: they, and the function that knows prices.
    lease_of: returns the lease on a shared budget, as for `Budgets`; None: they are this engine's own.
    """

    __slots__ = (
        "_budgets",
        "_limited",
        "_noted",
        "_notice",
        "_pump",
        "_runtime",
        "_sending",
        "_warned",
        "price",
    )

    def __init__(
        self,
        traffic: Traffic,
        runtime: Runtime,
        lease_of: Callable[[int, str | None], AccountLease] | None = None,
    ) -> None:
        budgets = tuple(traffic.budgets)
        self.price: Price | None = traffic.price
        self._budgets = BudgetsState(budgets, lease_of, self._account_changed)
        self._limited = {member for member in Amounts._fields if any(budget.limits(member) for budget in budgets)}
        self._runtime = runtime
        self._pump: Pump = Pump(self, runtime)
        self._warned = False
        self._notice = open_notice(runtime, self._send_notice, self._pump.on_defect)
        self._noted: dict[Account, None] = {}  # changed since the observer was notified of them
        self._sending: list[Account] = []  # the observer is notified of them now
        for budget in budgets:
            if isinstance(budget, LeasedBudget):
                budget.lease.listen(partial(self._lease_changed, budget))

    def __repr__(self) -> str:
        return f"<Budgets {len(self._budgets.budgets)} budgets>"

    # --- what a call may use, and what it used ---

    def need(self, request: Request, prepared: Prepared, wire: WireRequest) -> Need:
        """Return what an attempt may use.

        Raises `InvalidRequestError` that names what a budget limits and nothing bounds in advance: the output of a
        request without a limit to a model whose largest output is unknown, input that the server has or fetches, or a
        price.
        """
        provider, model, tenant = prepared.provider, prepared.model, request.tenant
        most_output, dollars = 0, 0.0
        likely_input, media = estimate_input_tokens(request, prepared.body), Media()
        extra = request.extra_body or {}
        if self._limited & {"usd", "input_tokens", "output_tokens"}:
            try:
                body = _parsed(prepared.body)
                if self._limited & {"usd", "input_tokens"}:
                    media = media_of(body, model)
                    likely_input = media.tokens + max(0, len(prepared.body) - media.encoded) / BYTES_PER_TOKEN
                if "usd" in self._limited:
                    _check_price(body, model, media)
                if self._limited & {"usd", "output_tokens"}:
                    most_output = _most_output(request, prepared, wire, body)
            except InvalidRequestError as error:
                raise _placed(error, extra) from None
        most_input = math.ceil(largest_input_tokens(prepared.body, media)) if self._limited else 0
        if "usd" in self._limited:
            asked = {name: extra[name] for name in DEARER if name in extra}
            dollars = self._most_dollars(provider, model, most_input, most_output, asked, prepared.body)
        self._budgets.ask(tenant, NOTHING, self._runtime.loop.clock())  # the functions, at a tenant's first call
        amounts = Amounts(dollars, float(most_input), float(most_output), 1.0)
        return Need(provider, model, tenant, amounts, math.ceil(likely_input))

    def _most_dollars(
        self, provider: Provider, model: str, input_tokens: int, output_tokens: int, asked: JSONObject, body: bytes
    ) -> float:
        usages = [Usage(input_tokens, output_tokens, total_tokens=input_tokens + output_tokens, raw=asked or None)]
        # Models with breakpoints write to a cache without a mark, too.
        if takes_breakpoints(model) or any(mark in body for mark in CACHE_MARKS):
            longer = input_tokens if any(mark in body for mark in LONGER_LIFETIMES) else 0
            raw: JSONObject = {**asked, "cache_creation": {"ephemeral_1h_input_tokens": longer}}
            usages.append(Usage(input_tokens, output_tokens, cache_write_tokens=input_tokens, raw=raw))
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
        try:
            dollars = ask_price(self.price, need.provider, need.model, usage)
        except InvalidRequestError as error:
            if not self._warned:
                self._warned = True
                logger.warning("an answer has no price: %s", error)
            return str(error)
        if dollars is not None:
            return dollars
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

    def reserve(self, need: Need, amounts: Amounts, now: float) -> Holding | ProviderError | Account:
        """Reserve amounts. Returns why they can never fit; or the account to `wait` for, if they do not fit now."""
        try:
            found = self._budgets.reserve(need.tenant, amounts, now)
        except InvalidRequestError as error:
            return _function_failed(error)
        if isinstance(found, Holding):
            self._note(found.accounts)
        return _refused(found) if isinstance(found, BudgetRefusal) else found

    def wait(self, claim: Claim, account: Account) -> None:
        """Let a call wait for an account. It is notified at a later tick."""
        self._budgets.wait(claim, account)
        self._note((account,))
        self.changed()

    def leave(self, claim: Claim) -> None:
        """Let a call wait no longer. May be called again."""
        account = claim.account
        self._budgets.leave(claim)
        if account is not None:
            self._note((account,))
        self.changed()

    def settle(self, holding: Holding, used: Amounts, now: float) -> None:
        """Replace a reservation by what was used. A second call does nothing."""
        accounts = holding.accounts
        self._budgets.settle(holding, used, now)
        self._note(accounts)
        self.changed()

    def statistics(self, now: float) -> tuple[BudgetStatistics, ...]:
        """Return the figures of every budget."""
        found = self._budgets.statistics(now)
        self.changed()
        return found

    def _note(self, accounts: Iterable[Account]) -> None:
        """Notify the observer of changed accounts, at a later tick."""
        if self._notice is not None:
            self._noted.update(dict.fromkeys(accounts))
            self._notice.note()

    def _send_notice(self, watch: TrafficWatch, now: float) -> bool:
        """Notify the observer of some changed accounts. Returns whether there are more."""
        if not self._sending:
            self._sending, self._noted = list(self._noted), {}
        for account in self._sending[:AT_ONCE]:
            watch.budget_changed(account.figures(now))
        del self._sending[:AT_ONCE]
        if not self._sending and self._noted and self._notice is not None:
            self._notice.note()  # these changed meanwhile
        return bool(self._sending)

    # --- waiting calls ---

    def _lease_changed(self, budget: Budget) -> None:
        self._budgets.lease_changed(budget)
        self.changed()

    def _account_changed(self, account: Account) -> None:
        self._budgets.account_changed(account)
        self.changed()

    def changed(self) -> None:
        """Look at the waiting calls at the next tick, if something changed for one of them."""
        if self._budgets.has_changed:
            self._pump.schedule()

    def take(self, now: float) -> Notification | None:
        """Take the next call out of its line that fits, or can no longer fit. None if all others must wait on."""
        found = self._budgets.next(now)
        if found is None:
            return None
        claim, outcome = found
        claimant = cast("Claimant", claim.owner)
        if isinstance(outcome, Holding):
            self._note(outcome.accounts)
            return partial(claimant.funded, outcome), claimant.on_defect
        error = _refused(outcome) if isinstance(outcome, BudgetRefusal) else _function_failed(outcome)
        return partial(claimant.unfunded, error), claimant.on_defect

    def next_time(self, now: float) -> float:
        """Return the time at which the next window begins for which a call waits."""
        return self._budgets.next_time()


def _parsed(body: bytes) -> JSONObject:
    """Return a request's body; empty if a dialect of the program's own writes something else than an object."""
    try:
        return loads_object(body)
    except MalformedJSONError:
        return {}


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
