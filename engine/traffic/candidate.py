"""One target for one call: the request that is sent there, its place in the limits there, and what an attempt holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ...providers.errors import ProviderError
from ...providers.limits.quota_report import Refusal
from ...providers.model.options import Priority
from ...providers.model.request import Request
from ...providers.model.response import Response
from ...providers.wire.dialect import WireRequest
from ..call.call import TargetRequest
from ..request.prepared import Prepared
from ..request.preparer import Preparer
from .budgets.budgets import Need
from .budgets.spending import Reservation
from .limits.limiter import Limiter
from .queue.permit import NEVER, UNDER_WAY, Permit

MakeRequest: TypeAlias = Callable[[Request, Preparer], tuple[TargetRequest, WireRequest]]
"""Prepares a request for a target. Raises `InvalidRequestError`."""


class Candidate(Permit):
    """A call's permit at one target. It is the permit, and not an object beside it: thousands of calls wait, each at
    several targets.

    An attempt holds it while it is under way, and ends it exactly once: by `settle`, `cancel`, or `give_back`.

    limiter: what shares the quota of the target, and sends the call.
    route_place: the position of the target in the call's route.
    key: the position of the key among those of the target's provider.
    request: the request as it is sent there, with what else a call on a route needs to go there; None until it is
        prepared.
    need: what an attempt may use of budgets; None in an engine without budgets and prices.
    reservation: what the attempt under way has reserved of budgets.
    began: the time at which the attempt under way began; `-math.inf`: there is none.
    attempt_number: the number of the attempt among those at the target.
    is_refused: the server has refused the key for this call.
    slot_mark: `slot_seconds` of the limiter when the wait began.
    until: the time at which the call waits here no longer, by the target's own options; `math.inf` if it has none.
    """

    __slots__ = (
        "attempt_number",
        "began",
        "is_refused",
        "key",
        "limiter",
        "need",
        "request",
        "reservation",
        "route_place",
        "slot_mark",
        "until",
    )

    def __init__(
        self,
        limiter: Limiter,
        input_tokens: float = 0.0,
        max_output: float | None = None,
        priority: Priority = Priority.NORMAL,
        tenant: str | None = None,
        request: Prepared | TargetRequest | None = None,
        need: Need | None = None,
        route_place: int = 0,
        key: int = 0,
    ) -> None:
        Permit.__init__(self, input_tokens, max_output, priority, tenant)  # `super` would cost each start
        self.limiter: Limiter = limiter
        self.route_place: int = route_place
        self.key: int = key
        self.request: Prepared | TargetRequest | None = request
        self.need: Need | None = need
        self.reservation: Reservation | None = None
        self.began: float = NEVER
        self.attempt_number: int = 0
        self.is_refused: bool = False
        self.slot_mark: float = 0.0
        self.until: float = math.inf

    @property
    def target(self) -> str:
        """Where it goes, as `provider/model`; empty until the request is prepared."""
        request = self.request
        if request is None:
            return ""
        prepared = request.prepared if isinstance(request, TargetRequest) else request
        return f"{prepared.provider.name}/{prepared.model}"

    # --- before an attempt ---

    def has_room(self, now: float) -> bool:
        """Return whether the call could be sent now."""
        return self.limiter.state.has_room(self, now)

    def why_never(self, now: float) -> ProviderError | None:
        """Return why the call can never be sent; None where it can."""
        return self.limiter.why_never(self, now)

    # --- during an attempt ---

    def connected(self) -> None:
        """The attempt has a connection."""
        self.limiter.state.connected(self, self.limiter.now)

    def confirm(self, headers: Mapping[str, str], *, whole: bool) -> None:
        """The head of a successful response came. `whole`: it is no stream."""
        if self.state in UNDER_WAY:
            self.limiter.confirm(self, headers, whole=whole)

    # --- the end of an attempt ---

    def settle(self, response: Response | None, now: float) -> None:
        """The request was sent, and the attempt is over. response: what it received."""
        if self.state in UNDER_WAY:
            self.limiter.settle(self, response, now)
        else:
            self.cancel(now)

    def cancel(self, now: float) -> None:
        """Leave the queue, or return what was reserved: no request was sent. May be called again."""
        self.limiter.state.cancel(self, now)
        self.limiter.changed()

    def give_back(self, error: ProviderError, headers: Mapping[str, str], *, sent: bool, again: bool) -> Refusal:
        """The attempt failed. Return which kind of limit refused it.

        sent: the request may have reached the server.
        again: the call waits here again after a refusal.
        """
        return self.limiter.give_back(self, error, headers, sent=sent, again=again)


class Rooms:
    """The targets of a route that could send a call now. A target is looked at when it is asked for."""

    __slots__ = ("_candidates_at", "_known", "_now")

    def __init__(self, candidates_at: Callable[[int], Sequence[Candidate]], now: float) -> None:
        self._candidates_at = candidates_at
        self._now = now
        self._known: dict[int, bool] = {}

    def __contains__(self, place: object) -> bool:
        assert isinstance(place, int)
        known = self._known.get(place)
        if known is None:
            known = any(candidate.has_room(self._now) for candidate in self._candidates_at(place))
            self._known[place] = known
        return known
