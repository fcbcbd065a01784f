"""What is kept of an answer whose attempt has failed, and the request that brings the rest of it.

`Answer` is the interface of `ContinuedAnswer` and `DurableAnswer`. Of a usual answer nothing is kept, and no object.
"""

from __future__ import annotations

import abc
import enum
from typing import TYPE_CHECKING, NamedTuple

from ...providers.model.provider_error import ProviderError
from ...providers.model.response import Response

if TYPE_CHECKING:
    from .prepared import Prepared


class Verdict(enum.Enum):
    """What can be done for an answer whose attempt has failed."""

    AGAIN = enum.auto()
    """Nothing was delivered: the request can be sent again."""
    REST = enum.auto()
    """The rest can be asked for, as a new request."""
    READ = enum.auto()
    """The server keeps the answer: it can be read on."""
    WHOLE = enum.auto()
    """All of it has arrived."""
    LOST = enum.auto()
    """It cannot go on."""


class Progress(NamedTuple):
    """How an answer stands after a failed attempt.

    verdict: what can be done for it.
    at_once: the next attempt need not wait: the server has no fault, or the latest one has brought a part.
    in_vain: the attempts in a row that brought nothing: of `REST` with the latest one, of `READ` without it.
    reached_at: when the server of a kept answer was reached last, or until when it has asked to wait.
    """

    verdict: Verdict
    at_once: bool = False
    in_vain: int = 0
    reached_at: float = 0.0


class Answer(abc.ABC):
    """An answer of which something is kept. The attempts of its call share it."""

    __slots__ = ()

    @abc.abstractmethod
    def take(
        self, attempt: object, part: Response | None, error: ProviderError, now: float, lasted: float, *,
        at_once: bool, delivered: bool,
    ) -> Progress | None:  # fmt: skip
        """Keep what an attempt has left, and return how the answer stands; None: as one of which nothing is kept.

        part: the part of the answer that has arrived.
        lasted: seconds since the head of a successful response; 0 if there was none.
        at_once: the server has no fault: it cannot have read the request, or there is a newer key.
        delivered: the program has received a part of the answer.
        """

    @abc.abstractmethod
    def next_request(self, prepared: Prepared) -> Prepared:
        """Return the request that brings the rest. prepared: that of the latest attempt."""
