"""What decides when a call begins an attempt, and with which target, as the call sees it. `traffic/` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...providers.model.provider_error import ProviderError
from .attempt import Attempt
from .completion import Completion
from .next_step import Outlook

if TYPE_CHECKING:
    from .call import RunningCall, TargetRequest


class AttemptPermit(Protocol):
    """What an attempt may use of limits and budgets. The attempt holds it until admission control ends it."""

    @property
    def target(self) -> str:
        """Where the attempt goes, as `provider/model`."""
        ...

    def connected(self) -> None:
        """Receive the report that the attempt has a connection."""
        ...


class AdmissionControl(Protocol):
    """Admission control of one call. A call without it begins its attempts at once, and goes where its request says."""

    __slots__ = ()

    @property
    def target(self) -> str:
        """Where the call goes, as `provider/model`; empty if that is not chosen yet."""
        ...

    @property
    def waiting_for(self) -> str:
        """The reason why the call waits, as text; empty if it does not wait."""
        ...

    def waited(self, seconds: float) -> dict[str, float]:
        """Return reason → seconds that the call has waited. `seconds`: the total."""
        ...

    def enter(self, call: RunningCall, deadline: float, now: float, *, again: bool) -> None:
        """Let the call wait until it may begin an attempt. It calls `call.begin` or `call.rejected` then, which may
        be before this method returns.

        deadline: the time at which the call's own timer ends the wait.
        again: the call was sent before.
        """
        ...

    def confirm(self, attempt: Attempt) -> None:
        """Receive the report that the head of a successful response came."""
        ...

    def first_content(self) -> None:
        """Receive the report that the first content of a stream was delivered."""
        ...

    def resent(self, attempt: Attempt, error: ProviderError) -> None:
        """Receive the report that an attempt failed, and that another one takes its place and its permit at once."""
        ...

    def failed(self, attempt: Attempt, error: ProviderError, *, left: int, may_wait: bool) -> Outlook:
        """Receive the report that an attempt failed before the caller received anything. Returns what can be done now:
        if the call waits, this has let it wait. If no wait can help, this makes the error not retryable.

        left: the attempts that the call may still make.
        may_wait: the call may wait for a server that is away.
        """
        ...

    def chosen(self, attempt: Attempt) -> TargetRequest:
        """Receive the report that the call goes on with the second of two attempts. Returns its request."""
        ...

    def lost(self, attempt: Attempt) -> None:
        """End one of two attempts, unless it has failed."""
        ...

    def rival_failed(self, attempt: Attempt, error: ProviderError) -> None:
        """Receive the report that the second of two attempts failed."""
        ...

    def end(self, outcome: Completion | None, attempt: Attempt | None) -> None:
        """Receive the report that the call has ended. May be called again.

        outcome: how the call ended.
        attempt: the last one; None if there was none.
        """
        ...

    def complete(self, completion: Completion) -> None:
        """Add to the call's record where it went and what it cost."""
        ...
