"""What one call reserves and spends: each attempt is reserved before it is sent and settled when it ended."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from ....providers.errors import ProviderError
from ....providers.model.options import Priority
from ....providers.model.response import Response
from ....providers.model.usage import Usage
from ...call.completion import NO_PRICE_FUNCTION
from ...request.token_estimate import seen_output_tokens
from ..limits.charge import credible
from ..queue.permit import Permit
from .amounts import NOTHING, Amounts
from .budget_state import Account, Claim, Holding
from .budgets import Budgets, Claimant, Need


class Reservation(NamedTuple):
    """What one attempt has reserved.

    need: what it may use.
    holding: the reserved amounts.
    """

    need: Need
    holding: Holding


class Spent(NamedTuple):
    """What one attempt used.

    usage: the tokens; None if there are none, or none are known.
    estimated: whether the server did not report them.
    """

    usage: Usage | None = None
    estimated: bool = False


NOTHING_SPENT = Spent()
"""What an attempt used that did not reach the server, or whose answer says nothing."""


class Spending:
    """The spending of one call.

    reservation: that of the next attempt; None if nothing is reserved. An attempt under way holds its own.
    seconds: the time for which the call has waited for a budget.
    cost: US dollars of the attempts that ended; None if the price of one of them is not known.
    cost_unknown: why the cost is not known: of the first attempt without a price; empty if it is known.
    """

    __slots__ = ("_claim", "_claimed_at", "_is_counted", "_live", "cost", "cost_unknown", "reservation", "seconds")

    def __init__(self, live: Budgets) -> None:
        self._live = live
        self._claim: Claim | None = None
        self._claimed_at = 0.0
        self._is_counted = False  # as a call
        self.reservation: Reservation | None = None
        self.seconds: float = 0.0
        self.cost: float | None = None if live.price is None else 0.0
        self.cost_unknown: str = NO_PRICE_FUNCTION if live.price is None else ""

    @property
    def waiting_for(self) -> str:
        """The reason why the call waits, in words; empty if it does not wait for a budget."""
        return "" if self._claim is None else self._claim.waiting_for

    def refusal(self, need: Need, now: float) -> ProviderError | None:
        """Return why the budgets can never pay for an attempt in this window; None if they may."""
        return None if self.reservation is not None else self._live.refusal(need, now)

    def reserve(self, need: Need, now: float) -> ProviderError | Account | None:
        """Reserve an attempt that is about to be sent. Returns the account for which the call must `wait`; an error if
        the attempt can never be sent in this window; else None."""
        kept = self.reservation
        if kept is not None:
            if kept.need.amounts == need.amounts and kept.need.tenant == need.tenant:
                self.reservation = Reservation(need, kept.holding)
                return None
            self.release(now)
        found = self._live.reserve(need, self._amounts(need), now)
        if not isinstance(found, Holding):
            return found
        self.reservation = Reservation(need, found)
        return None

    def reserve_beside(self, need: Need, now: float) -> Reservation | None:
        """Reserve a second attempt that runs beside the first one. Returns None if it does not fit now."""
        found = self._live.reserve(need, self._amounts(need), now)
        return Reservation(need, found) if isinstance(found, Holding) else None

    def wait(self, need: Need, account: Account, claimant: Claimant, priority: Priority, now: float) -> None:
        """Wait until the attempt can be reserved. account: the one that does not pay for it now."""
        amounts = self._amounts(need)
        tokens = amounts.input_tokens + amounts.output_tokens
        permit = Permit(tokens, None, priority=priority, tenant=need.tenant)
        self._claim, self._claimed_at = Claim(amounts, permit, claimant), now
        self._live.wait(self._claim, account)

    def fund(self, need: Need, holding: Holding) -> None:
        """Keep what was reserved at the end of a wait."""
        self.reservation = Reservation(need, holding)

    def leave(self, now: float) -> None:
        """End the wait. May be called again."""
        claim, self._claim = self._claim, None
        if claim is not None:
            self.seconds += now - self._claimed_at
            self._live.leave(claim)

    def take(self) -> Reservation | None:
        """Return what is reserved for the attempt that begins now, which holds it from now on."""
        kept, self.reservation = self.reservation, None
        return kept

    def release(self, now: float) -> None:
        """Give back what is reserved for the next attempt: there is none. May be called again."""
        kept = self.take()
        if kept is not None:
            self._live.settle(kept.holding, NOTHING, now)

    def settle(self, kept: Reservation, usage: Usage | None, now: float, *, sent: bool) -> None:
        """Count what an attempt used in place of what it reserved.

        usage: None if the server answers without charge, as for an error.
        sent: its request was sent; else nothing is counted.
        """
        if not sent:
            self._live.settle(kept.holding, NOTHING, now)
            return
        calls = 0.0 if self._is_counted else 1.0
        self._is_counted = True
        cost = self._live.cost(kept.need, usage)
        dollars = None if isinstance(cost, str) else cost
        if isinstance(cost, str):
            self.cost_unknown = self.cost_unknown or cost
        self.cost = None if self.cost is None or dollars is None else self.cost + dollars
        if usage is None:
            used = Amounts(calls=calls)
        else:
            output = (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
            # What has no price counts as what was reserved.
            paid = kept.holding.amounts.usd if dollars is None else dollars
            used = Amounts(paid, float(usage.input_tokens or 0), float(output), calls)
        self._live.settle(kept.holding, used, now)

    def _amounts(self, need: Need) -> Amounts:
        return need.amounts._replace(calls=0.0) if self._is_counted else need.amounts


def _with_tier(response: Response) -> Usage:
    """Return the usage of a response. Its report gets the service tier that the response has beside it (OpenAI): a
    price depends on it."""
    tier, usage = response.provider_data.get("service_tier"), response.usage
    if type(tier) is not str or usage.raw is None or "service_tier" in usage.raw:
        return usage
    return replace(usage, raw={**usage.raw, "service_tier": tier})


def spent_by(input_tokens: int, response: Response | None, error: ProviderError | None) -> Spent:
    """Return what an attempt used that was sent: as reported, else estimated from what was sent and received.

    input_tokens: as estimated.
    """
    reported = Usage() if response is None else credible(_with_tier(response))
    if error is None and reported.input_tokens is not None and reported.output_tokens is not None:
        return Spent(reported)
    seen = math.ceil(seen_output_tokens(response))
    if error is not None and error.http_status >= 300 and not seen:
        return Spent()  # the server refused the request; an error inside an answer (200) may be charged
    if reported.input_tokens is not None:
        input_tokens = reported.input_tokens
    output = max(seen, (reported.output_tokens or 0) + (reported.thinking_tokens or 0))
    usage = Usage(
        input_tokens,
        output,
        cached_tokens=reported.cached_tokens,
        cache_write_tokens=reported.cache_write_tokens,
        total_tokens=input_tokens + output,
    )
    return Spent(usage, estimated=True)
