"""An address at which providers are, and whether it takes connections.

While it refuses or drops every connection, one call at a time asks whether it is back, and all others wait. All limits
at one address share it. It is no part of a limit: what a server answers, whatever it is, shows that it is there.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from ....providers.errors import ErrorCategory, ProviderError
from ..breaker import Breaker

logger: logging.Logger = logging.getLogger("manystream.traffic")

LOST = 3
"""An address is away when this many calls in a row, in the order of sending, have lost their connection or got none."""

PAUSE = 1.0
"""Seconds between a call that asked in vain and the next one that asks."""

SETTLED_AFTER = 0.5
"""Seconds after which a call that asks has found the server back, if its connection was not dropped. An answer may take
minutes."""

AWAY = "server_away"
"""The `provider_code` of a call that has waited for a server in vain."""


def is_lost(error: ProviderError) -> bool:
    """Return whether a call got no connection, or lost it: the server may be away."""
    if error.http_status or not error.retryable:
        return False
    if error.category is ErrorCategory.TIMEOUT:
        return error.provider_code == "connect"
    return error.category is ErrorCategory.NETWORK


class Host:
    """One address.

    begin: called with the time when a call is sent; returns the call's number here.
    name: the address, such as `http://127.0.0.1:8000`.
    patience: seconds after which calls that wait for it fail.
    """

    def __init__(self, name: str, patience: float = math.inf) -> None:
        self.name: str = name
        self.patience: float = patience
        self._breaker = Breaker(LOST, LOST, PAUSE)
        self.begin: Callable[[float], int] = self._breaker.begin
        self._settled_at = math.inf  # when the call that asks has found it back
        self._away_since = math.inf
        self._error: ProviderError | None = None  # the latest
        self._listeners: dict[Callable[[], None], None] = {}

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` when calls may be sent again, or no more, or another one may ask."""
        self._listeners[on_change] = None

    def forget(self, on_change: Callable[[], None]) -> None:
        """Call a function no longer."""
        self._listeners.pop(on_change, None)

    @property
    def is_away(self) -> bool:
        """Whether it refuses or drops every connection, as far as is known."""
        return self._away_since < math.inf

    def seconds_away(self, now: float) -> float:
        """Return for how long it has been away; 0 if it is not."""
        return max(0.0, now - self._away_since) if self.is_away else 0.0

    def ready_at(self, now: float) -> float:
        """Return when the next call may be sent; `now` if one may be sent now; `math.inf` while one asks."""
        if not self.is_away:
            return now
        if now >= self._settled_at:
            self.answered(self._breaker.probe, now)
            return now
        return min(self._breaker.next_time(now), self._settled_at)

    def given_up(self, now: float) -> ProviderError | None:
        """Return the error of calls that have waited for it in vain; None if they may wait, or one may ask now."""
        if self._error is None or now < self._away_since + self.patience or self.ready_at(now) <= now:
            return None
        return ProviderError(
            f"not sent: {self.name} has taken no connection for {self.patience:g} s; the latest error:"
            f" {self._error.message}",
            category=ErrorCategory.NETWORK,
            provider_code=AWAY,
        )

    def gives_up_at(self, now: float) -> float:
        """Return when calls will not wait for it any longer; `math.inf` if it is not away, or that time has passed."""
        at = self._away_since + self.patience
        return at if at > now else math.inf

    # --- calls ---

    def connected(self, number: int, now: float) -> None:
        """A call has a connection."""
        if number == self._breaker.probe:
            self._settled_at = now + SETTLED_AFTER
            self._notify()

    def answered(self, number: int, now: float) -> None:
        """The server has answered a call in any way."""
        self._breaker.succeed(number)
        if self.is_away and not self._breaker.is_tripped:
            logger.info("%s takes connections again, after %.0f s", self.name, now - self._away_since)
            self._away_since = self._settled_at = math.inf
            self._notify()

    def lost(self, number: int, now: float, error: ProviderError) -> None:
        """A call got no connection, or lost it. Call `end` afterwards."""
        self._error = error
        asked = number == self._breaker.probe
        self._breaker.fail(number, now)
        if self._breaker.is_tripped and not self.is_away:
            logger.warning(
                "%s takes no connection: calls wait, and one at a time asks; the latest: %s", self.name, error.message
            )
            self._away_since = now
            self._notify()
        elif asked:
            self._stop_asking()

    def end(self, number: int) -> None:
        """A call is no longer under way."""
        asked = number == self._breaker.probe
        self._breaker.end(number)
        if asked:
            self._stop_asking()

    def _stop_asking(self) -> None:
        self._settled_at = math.inf
        self._notify()

    def _notify(self) -> None:
        for on_change in list(self._listeners):
            on_change()
