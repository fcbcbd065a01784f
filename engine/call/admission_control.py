"""The interface of what decides when a call begins an attempt, and with which target. `traffic/` implements it."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from ...providers.model.provider_error import ProviderError
from .attempt import Attempt
from .completion import Completion
from .next_step import Outlook

if TYPE_CHECKING:
    from .call import RunningCall


class AdmissionControl(abc.ABC):
    """Admission control of one call. A call without it begins its attempts at once, and goes where its request says."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def target(self) -> str:
        """Where the call goes, as `provider/model`; empty if that is not chosen yet."""

    @property
    @abc.abstractmethod
    def waiting_for(self) -> str:
        """The reason why the call waits, as text; empty if it does not wait."""

    @abc.abstractmethod
    def waited(self, seconds: float) -> dict[str, float]:
        """Return reason → seconds that the call has waited. `seconds`: the total."""

    @abc.abstractmethod
    def enter(self, call: RunningCall, deadline: float, now: float, *, again: bool) -> None:
        """Let the call wait until it may begin an attempt. It calls `call.admitted` or `call.rejected` then, which may
        be before this method returns.

        deadline: the time at which the call's own timer ends the wait.
        now: the engine's clock.
        again: the call was sent before.
        """

    @abc.abstractmethod
    def begin(self, now: float) -> None:
        """An attempt begins. The call waits no longer."""

    @abc.abstractmethod
    def connected(self, attempt: Attempt) -> None:
        """Receive the report that an attempt has a connection."""

    @abc.abstractmethod
    def confirm(self, attempt: Attempt) -> None:
        """Receive the report that the head of a successful response came."""

    @abc.abstractmethod
    def first_content(self) -> None:
        """Receive the report that the first content of a stream was delivered."""

    @abc.abstractmethod
    def resent(self, attempt: Attempt, error: ProviderError) -> None:
        """Receive the report that an attempt failed because its connection was stale, and that another one takes its
        place at once."""

    @abc.abstractmethod
    def failed(self, attempt: Attempt, error: ProviderError, *, may_wait: bool) -> Outlook:
        """Receive the report that an attempt failed before the caller received anything. Returns what can be done now:
        if the call waits, this has let it wait.

        If no wait can help, this makes the error not retryable.

        may_wait: the call may wait for a server that is away.
        """

    @abc.abstractmethod
    def rival_chosen(self) -> None:
        """Receive the report that the second of two attempts has content first. It calls `call.take_rival`."""

    @abc.abstractmethod
    def rival_failed(self, attempt: Attempt, error: ProviderError) -> None:
        """Receive the report that the second of two attempts failed."""

    @abc.abstractmethod
    def end(self, outcome: Completion | None, attempt: Attempt | None) -> None:
        """Receive the report that the call has ended. May be called again.

        outcome: how the call ended.
        attempt: the last one; None if there was none.
        """

    @abc.abstractmethod
    def complete(self, completion: Completion) -> None:
        """Add to the call's record where it went and what it cost."""
