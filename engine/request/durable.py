"""A durable answer: what the attempts of one call know of an answer that the server makes and keeps.

The first attempt creates it. Once the server has named its id, the next attempts read on, and nothing is created again.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...providers.catalog.dialect import StoredAnswers, StreamMachine, WireRequest
from ...providers.catalog.provider import Provider
from ...providers.catalog.read_events import ReadEvents
from ...providers.errors import InvalidRequestError
from ...providers.json.json_values import MalformedJSONError, dumps, loads
from ...providers.model.provider_error import ErrorCategory, ProviderError, malformed
from ...providers.model.response import Response
from ...providers.model.rules import text
from .answers import Answer, Progress, Verdict

if TYPE_CHECKING:
    from .prepared import Prepared

MARK = "ms1."
"""The beginning of every token: another form of token gets another mark."""

CHECK_BYTES = 4
"""The length of the checksum (CRC-32) with which a token begins: a damaged one would name another answer."""

LASTED = 10.0
"""Seconds. A read that the server kept open for so long is no failed one, although it brought nothing: the answer waits
at the server, or the model thinks."""

IN_PROGRESS = "in_progress"
"""The code of the error of a read that found the answer unfinished. No program gets this error."""

BAD_REQUEST = 400
"""The status with which a server refuses to stream an answer that it has."""

NOT_FOUND = 404
"""The status with which a server says that it has no such answer."""

NEW = 6
"""Reads in a row that may not find an answer which was created, and not read since. With the pauses, a minute."""

NOT_THERE = (ErrorCategory.AUTH, ErrorCategory.NOT_FOUND)
"""The categories with which a server says that it has no such answer for this key."""

Prepare: TypeAlias = Callable[["Prepared", WireRequest], "Prepared"]
"""Prepares a request that follows another one, with the same provider, key and headers."""


class ResumeToken(NamedTuple):
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
        members = dumps(list(self))
        return MARK + base64.urlsafe_b64encode(_check(members) + members).decode().rstrip("=")


def _check(members: bytes) -> bytes:
    return zlib.crc32(members).to_bytes(CHECK_BYTES)


def read_token(token: str) -> ResumeToken:
    """Read a resume token. Raises `InvalidRequestError`."""
    text("a resume token (Call.resume_token)").check(token, "token")
    members = None
    try:
        encoded = token.removeprefix(MARK).encode("ascii")
        data = base64.b64decode(encoded + b"=" * (-len(encoded) % 4), b"-_", validate=True)
        if token.startswith(MARK) and data[:CHECK_BYTES] == _check(data[CHECK_BYTES:]):
            members = loads(data[CHECK_BYTES:])
    except (UnicodeEncodeError, binascii.Error, MalformedJSONError):
        pass
    match members:
        case [str(provider), str(dialect), str(model), str(answer_id), bool(stream), None | int() as key] if (
            answer_id not in ("", ".", "..")
        ):
            return ResumeToken(provider, dialect, model, answer_id, stream, key)
        case _:
            raise InvalidRequestError("token", "is no resume token, or damaged: give the text of Call.resume_token")


class DurableAnswer(Answer):
    """An answer that the server keeps, and how far it was read. The attempts of its call share it.

    events: the events that were read.
    machine: reads the stream of the answer, over all connections; None before the first event.
    stream: the answer is read as a stream. Else it is asked for until it has ended.
    asks_whole: the next read asks for the state of the answer, because its stream ended without its end, and brought
        nothing.
    attached: another call has created it.
    on_named: called with the resume token when the server has named an unstreamed answer that is not complete.
    ended: the server has said that the answer has ended, or it cannot be read: nothing more is read.
    reads: the latest attempt reads the answer and does not create it.
    resumed: how often it was read on after a cut.
    """

    __slots__ = (
        "_in_vain", "_key", "_prepare", "_reached_at", "_stored",
        "asks_whole", "attached", "ended", "events", "machine", "on_named", "reads", "resumed", "stream",
    )  # fmt: skip

    def __init__(
        self,
        stored: StoredAnswers,
        prepare: Prepare,
        *,
        stream: bool,
        key: int | None = None,
        answer_id: str | None = None,
    ) -> None:
        """Create it before its first attempt.

        prepare: prepares the requests that follow.
        key: the position of its key among those of the provider.
        answer_id: the answer's id, if another call has created it.
        """
        self._stored = stored
        self._prepare = prepare
        self._key = key
        self._reached_at = math.inf  # when the server was reached last, or until when it has asked to wait
        self._in_vain = 0  # the reads in a row that brought nothing
        self.events: ReadEvents = ReadEvents(stored, answer_id)
        self.machine: StreamMachine | None = None
        self.on_named: Callable[[str], None] | None = None
        self.stream: bool = stream
        self.asks_whole: bool = False
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
        name, dialect, answer_id = prepared.provider.name, prepared.shared.dialect.name, self.answer_id
        return answer_id and str(ResumeToken(name, dialect, prepared.model, answer_id, self.stream, self._key))

    # --- the requests that follow ---

    def read_request(self, provider: Provider) -> WireRequest:
        """Return the request that reads the answer from its beginning, or goes on after the last event."""
        assert self.answer_id is not None, "the server has named the answer"
        stream, self.asks_whole = self.stream and not self.asks_whole, False
        return self._stored.read(provider, self.answer_id, stream=stream, after=self.events.after)

    def next_request(self, prepared: Prepared) -> Prepared:
        self.reads = True
        self.events.connected_again()
        return self._prepare(prepared, self.read_request(prepared.provider))

    def cancel_request(self, prepared: Prepared) -> Prepared:
        """Prepare the request that ends the answer at the server. prepared: the latest attempt's request."""
        assert self.answer_id is not None, "the server has named the answer"
        request = self._prepare(prepared, self._stored.cancel(prepared.provider, self.answer_id))
        request.durable = DurableAnswer(self._stored, self._prepare, stream=False, answer_id=self.answer_id)
        request.stream = False
        return request

    # --- what an attempt brings ---

    def has_ended(self, body: bytes, wait_ms: int) -> bool:
        """Read the state of the answer from a whole body. Returns whether that is its end; else it is no answer.

        Raises `ProviderError` if the server is still making the answer, and for another answer.

        wait_ms: after how many milliseconds the server wants to be asked again; -1: it does not say.
        """
        try:
            value = loads(body)
        except MalformedJSONError:
            return False
        if type(value) is not dict:
            return False
        self.events.identify(value)
        ended = self._stored.has_ended(value)
        if ended is False:
            self.stream = self.stream and self.machine is not None  # else the server makes no stream of it
            if self.answer_id is None:
                raise malformed("the server makes the answer in the background, and names no id for it")
            what, category = "the server has not ended the answer", ErrorCategory.SERVER
            raise ProviderError(what, category=category, provider_code=IN_PROGRESS, retry_after_ms=wait_ms)
        self.ended = self.ended or ended is True
        return ended is True

    def no_more_events(self) -> None:
        """The events of a connection have ended without the end of the answer, or cannot be the next ones. If it is a
        read that brought none, ask for the state."""
        self.asks_whole = self.reads and not self.events.advanced

    def take(
        self, attempt: object, part: Response | None, error: ProviderError, now: float, lasted: float, *,
        at_once: bool, delivered: bool,
    ) -> Progress | None:  # fmt: skip
        if self.answer_id is None:
            return None
        if at_once or self._has_no_events(error):
            return Progress(Verdict.READ, at_once=True)
        # Not all servers may know a new answer yet.
        is_known = self.attached or self.events.is_found or self._in_vain > NEW or delivered
        if self.ended or not (error.retryable or (error.http_status == NOT_FOUND and not is_known)):
            return Progress(Verdict.LOST)
        if self.events.advanced or lasted >= LASTED:
            self._reached_at, self._in_vain = now, 0
        self._reached_at = min(self._reached_at, now)
        self.events.advanced = False
        self._in_vain += 1
        return Progress(Verdict.READ, in_vain=self._in_vain - 1, reached_at=self._reached_at)

    def reads_later(self, until: float, *, is_cut: bool) -> None:
        """Note that the next read begins later.

        until: the time to which the server has asked to wait.
        is_cut: the latest connection was lost.
        """
        self.resumed += is_cut
        self._reached_at = max(self._reached_at, until)

    def _has_no_events(self, error: ProviderError) -> bool:
        """Return whether an error may mean that the server has no events of the answer, which is then read whole."""
        may_mean_that = self.reads and self.stream and error.http_status == BAD_REQUEST
        self.stream = self.stream and not may_mean_that
        return may_mean_that

    def explain(self, error: ProviderError) -> None:
        """Write into the final error of a read which answer it is about."""
        if self.reads and not self.ended:
            refused = error.http_status and error.category in NOT_THERE
            why = ": the server has forgotten it, or another key made it" if refused else ""
            error.message = f"{error.message} (reading the answer {self.answer_id!r} again{why})"
