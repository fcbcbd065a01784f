"""A durable answer: what the attempts of one call know of an answer that the server makes and keeps.

The first attempt creates it. Once the server has named its id, the next attempts read on, and nothing is created again.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ...providers.catalog.dialect import StoredAnswers, StreamMachine, WireRequest
from ...providers.catalog.read_events import ReadEvents
from ...providers.errors import InvalidRequestError
from ...providers.json.json_values import MalformedJSONError, dumps, loads
from ...providers.model.provider_error import ProviderError
from ...providers.model.response import Response, arrived
from ...providers.model.rules import text

if TYPE_CHECKING:
    from ...providers.catalog.provider import Provider
    from .prepared import Prepared

MARK = "ms1."
"""The beginning of every token: another form of token gets another mark."""

LASTED = 10.0
"""Seconds. A read that the server kept open for so long is no failed one, although it brought nothing: the answer waits
at the server, or the model thinks."""

BAD_REQUEST = 400
"""The status with which a server refuses to stream an answer that it has."""

NOT_THERE = (401, 403, 404, 410)
"""Statuses with which a server says that it has no such answer for this key."""

Prepare: TypeAlias = Callable[["Prepared", WireRequest, "Mapping[str, str] | None"], "Prepared"]
"""Prepares a request that follows another one, with the same provider and key. The mapping has headers of its own."""


@dataclass(slots=True, frozen=True)
class ResumeToken:
    """What a resume token says of an answer. It has no key.

    provider: the provider's name.
    dialect: the dialect's name.
    model: the model's name, as the provider knows it.
    answer_id: the answer's id at the server.
    stream: the server makes a stream of the answer.
    key: the position of the key that made it, among those of its provider; None if it has one key.
    """

    provider: str
    dialect: str
    model: str
    answer_id: str
    stream: bool
    key: int | None

    def __str__(self) -> str:
        members = [self.provider, self.dialect, self.model, self.answer_id, self.stream, self.key]
        return MARK + base64.urlsafe_b64encode(dumps(members)).decode().rstrip("=")


def read_token(token: str) -> ResumeToken:
    """Read a resume token. Raises `InvalidRequestError`."""
    text("a resume token (Call.resume_token)").check(token, "token")
    wrong = InvalidRequestError("token", "is no resume token, or a part of one: give the text of Call.resume_token")
    try:
        if not token.startswith(MARK):
            raise wrong
        encoded = token[len(MARK) :].encode("ascii")
        members = loads(base64.b64decode(encoded + b"=" * (-len(encoded) % 4), b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, MalformedJSONError):
        raise wrong from None
    match members:
        case [str(provider), str(dialect), str(model), str(answer_id), bool(stream), None | int() as key] if answer_id:
            return ResumeToken(provider, dialect, model, answer_id, stream, key)
        case _:
            raise wrong


class DurableAnswer:
    """An answer that the server keeps, and how far it was read. The attempts of its call share it.

    events: the events that were read.
    machine: reads the stream of the answer, over all connections; None before the first event.
    stream: the answer is read as a stream. Else it is asked for until it has ended.
    attached: another call has created it.
    on_named: called with the resume token when the server has named an unstreamed answer that is not complete.
    ended: the server has said that the answer has ended, or it cannot be read: nothing more is read.
    reads: the latest attempt reads the answer and does not create it.
    resumed: how often it was read on after a cut.
    """

    __slots__ = (
        "_extra", "_failures", "_key", "_lost_at", "_polls", "_prepare", "_stored",
        "attached", "ended", "events", "machine", "on_named", "reads", "resumed", "stream",
    )  # fmt: skip

    def __init__(
        self,
        stored: StoredAnswers,
        prepare: Prepare,
        *,
        stream: bool,
        extra: Mapping[str, str] | None = None,
        key: int | None = None,
        answer_id: str | None = None,
    ) -> None:
        """Create it before its first attempt.

        prepare: prepares the requests that follow.
        extra: the headers of the request's own.
        key: the position of its key among those of the provider.
        answer_id: the answer's id, if another call has created it.
        """
        self._stored = stored
        self._prepare = prepare
        self._extra = extra
        self._key = key
        self._lost_at = math.inf  # since when nothing could be read
        self._failures = 0  # in a row
        self._polls = 0
        self.events: ReadEvents = ReadEvents(stored, answer_id)
        self.machine: StreamMachine | None = None
        self.on_named: Callable[[str], None] | None = None
        self.stream: bool = stream
        self.ended: bool = False
        self.attached: bool = answer_id is not None
        self.reads: bool = self.attached
        self.resumed: int = 0

    @property
    def answer_id(self) -> str | None:
        """The answer's id at the server; None until the server has named it."""
        return self.events.answer_id

    def token(self, prepared: Prepared) -> str | None:
        """Return the token with which another engine reads the answer; None until the server has named its id."""
        answer_id = self.answer_id
        if answer_id is None:
            return None
        name, dialect = prepared.provider.name, prepared.dialect.name
        return str(ResumeToken(name, dialect, prepared.model, answer_id, self.stream, self._key))

    def partial_response(self) -> Response | None:
        """Return the part of a stream that was read; None if nothing was."""
        return None if self.machine is None else arrived(self.machine.response())

    # --- the requests that follow ---

    def read_request(self, provider: Provider) -> WireRequest:
        """Return the request that reads the answer from its beginning, or goes on after the last event."""
        assert self.answer_id is not None, "the server has named the answer"
        return self._stored.read(provider, self.answer_id, stream=self.stream, after=self.events.after)

    def next_read(self, prepared: Prepared) -> Prepared:
        """Prepare the next attempt, which reads on. prepared: the latest attempt's request."""
        self.reads = True
        self.events.connected_again()
        return self._prepare(prepared, self.read_request(prepared.provider), self._extra)

    def cancel_request(self, prepared: Prepared) -> Prepared:
        """Prepare the request that ends the answer at the server. prepared: the latest attempt's request."""
        assert self.answer_id is not None, "the server has named the answer"
        wire = self._stored.cancel(prepared.provider, self.answer_id)
        request = self._prepare(prepared, wire, self._extra)
        request.durable, request.stream = None, False
        return request

    # --- what a body says ---

    def has_ended(self, body: bytes) -> bool | None:
        """Read the state of the answer from a whole body. Returns whether it has ended; None if this is no answer."""
        try:
            value = loads(body)
        except MalformedJSONError:
            return None
        if type(value) is not dict:
            return None
        if self.answer_id is None:
            self.events.answer_id = self._stored.answer_id(value)
        ended = self._stored.has_ended(value)
        if ended:
            self.ended = True
        elif ended is False and self.machine is None:
            self.stream = False  # the server makes no stream of it
        return ended

    # --- when to read again ---

    def polled(self) -> int:
        """Count a whole body that has no end of the answer, and return how many came before it."""
        self._lost_at, self._failures = math.inf, 0
        self._polls += 1
        return self._polls - 1

    def lost(self, now: float, *, lasted: float) -> int:
        """Count an attempt that failed, and return how many failed before it in a row.

        lasted: seconds since the head of a successful response; 0 if there was none.
        """
        if self.events.advanced or lasted >= LASTED:
            self._lost_at, self._failures = now, 0
        self._lost_at = min(self._lost_at, now)
        self.events.advanced = False
        self._failures += 1
        return self._failures - 1

    def time_left(self, now: float, idle: float, asked: float) -> float:
        """Return the seconds until the answer counts as out of reach.

        idle: the idle timeout. asked: the seconds for which the server has asked to wait, which do not count.
        """
        self._lost_at = max(self._lost_at, now + asked)
        return self._lost_at + idle - now

    def has_no_events(self, error: ProviderError) -> bool:
        """Return whether an error may mean that the server has no events of the answer, which is then read whole."""
        may_mean_that = self.reads and self.stream and error.http_status == BAD_REQUEST
        self.stream = self.stream and not may_mean_that
        return may_mean_that

    def explain(self, error: ProviderError) -> None:
        """Write into the final error of a read which answer it is about."""
        if self.ended or not self.reads:
            return
        why = ""
        if error.http_status in NOT_THERE:
            why = ": the server has forgotten it, or another key made it"
        error.message = f"{error.message} (reading the answer {self.answer_id!r} again{why})"
