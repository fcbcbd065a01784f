"""What a call needs of its engine.

Knows the names of the engine's parts. Must not know how the engine provides them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..transport.loop import Loop
from ..transport.pool import Pool
from ..transport.timers import Timers
from .completion import Completion
from .listener import Recorder
from .observe import Watch
from .retry import RetryBudget

if TYPE_CHECKING:
    from .call import Call


class Surroundings(Protocol):
    """The engine, as a call sees it."""

    @property
    def pool(self) -> Pool: ...
    @property
    def loop(self) -> Loop: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def budget(self) -> RetryBudget: ...
    def random(self) -> float: ...
    def soon(self, call: Call) -> None:
        """Call `conclude` at the loop's next iteration."""
        ...

    @property
    def watch(self) -> Watch | None:
        """Who is notified of how calls go, where somebody is."""
        ...

    @property
    def recorder(self) -> Recorder | None:
        """Who writes down what goes over the wire, where somebody does."""
        ...

    def count_retry(self) -> None: ...
    def count_resent(self) -> None: ...
    def call_started(self, call: Call) -> None: ...
    def call_ended(self, call: Call, completion: Completion) -> None: ...
    def callback_raised(self, error: BaseException) -> None:
        """A callback raised something that is no `Exception`: it may end the engine."""
        ...
