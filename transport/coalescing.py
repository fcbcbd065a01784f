"""How long the multi-request loop pauses after a tick, so that one tick serves several connections.

To sleep and to wake up costs the event loop and the kernel 30 to 150 µs of the core (the most on virtual machines),
however many connections are ready then. A pause lets more connections become ready before the next tick, so that they
share this cost. It adds at most its length to the delay of an event.

The load is the share of the time that ticks take. A pause is useful between its two ends:

    load        without a pause                                            pause
    near 0      each event has a wake-up, and the core has time for it     none: it would gather no event
    a half      wake-ups take most of the core that events leave free      the longest one
    near 1      further connections become ready during each tick          short: nothing sleeps beside a backlog

The product of the busy and the idle share has this form: load * (1 - load). And where events arrive in bursts, one tick
finds many of them without any pause. So the loop pauses only when wake-ups take more than their share of the core: an
account gains this share of the time, and each tick costs it one wake-up.

The load counts the work of the events and not the wake-ups, so a pause hardly changes it, and the rule does not swing.
It is a share of time and not a number of connections, so it holds on a slow machine, too, and for a program whose
callbacks take long.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LONGEST_PAUSE: float = 0.001
"""The pause between two ticks at half load, in seconds."""

WINDOW: float = 0.05
"""The load is measured over at least this time, in seconds. It holds dozens of ticks under load."""

LEAST_GATHERED: float = 1.5
"""The number of connections that must be expected to become ready during a pause. With one or none, the pause delays
an event and saves no wake-up, because the pause ends with a wake-up of its own."""

WAKE_UP: float = 0.00006
"""The assumed cost of one wake-up, in seconds."""

WAKE_UP_SHARE: float = 0.1
"""The share of the core that wake-ups may take before the loop pauses."""

WASTED_WAKE_UPS: int = 4
"""A pause that gathered nothing is a wake-up more and not one less: it earns so many wake-ups without a pause."""

ACCOUNT_LIMIT: float = 0.001
"""The most that the account of wake-ups saves or owes, in seconds: about 16 wake-ups."""


@dataclass(slots=True, eq=False, repr=False)
class Coalescing:
    """The rule, for one loop."""

    longest: float = field(default=LONGEST_PAUSE, init=False)  # the pause at half load, in seconds
    _pause: float = field(default=0.0, init=False)  # by the load of the latest window
    _account: float = field(default=0.0, init=False)
    _latest: float = field(default=0.0, init=False)  # the end of the latest tick
    _window_start: float = field(default=0.0, init=False)
    _busy: float = field(default=0.0, init=False)
    _served: int = field(default=0, init=False)

    @property
    def pause(self) -> float:
        """The seconds to wait after a tick before the next one; 0: no pause, wait for a connection."""
        return self._pause if self._account < 0 else 0.0

    def gathered_nothing(self) -> None:
        """Count a pause after which no connection was ready, as between two bursts of a server."""
        self._account += WASTED_WAKE_UPS * WAKE_UP

    def record(self, started: float, ended: float, served: int) -> None:
        """Count a tick.

        A quiet time makes its window long and the load small. So the first events after it are not delayed.

        started, ended: the times of the tick, in seconds.
        served: the number of connections that were ready.
        """
        account = self._account + (ended - self._latest) * WAKE_UP_SHARE - WAKE_UP
        self._account = max(-ACCOUNT_LIMIT, min(ACCOUNT_LIMIT, account))
        self._latest = ended
        self._busy += ended - started
        self._served += served
        elapsed = ended - self._window_start
        if elapsed < WINDOW:
            return
        load = min(1.0, self._busy / elapsed)
        pause = 4.0 * self.longest * load * (1.0 - load)
        self._pause = pause if self._served * pause >= LEAST_GATHERED * elapsed else 0.0
        self._window_start = ended
        self._busy = 0.0
        self._served = 0
