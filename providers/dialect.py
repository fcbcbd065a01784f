"""A wire dialect as a value (`Dialect`), and the base of its stream machines.

Knows the shape of the work: values → wire, wire → values. Sans-IO: no socket, no clock, no randomness; the time
and a maker of ids are handed in.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from . import error_bodies
from .accumulate import Accumulator
from .answer_limits import ANSWER_LIMITS, AnswerLimits
from .cut_pairs import CutPairs
from .errors import InvalidRequestError, ProviderError
from .events import Error, Event
from .json_values import JSON, MalformedJSONError, loads
from .provider import Provider
from .repeated import LARGEST_DELTA, SHARED_BY_ONE, Path, RepeatedDelta, learn
from .request import Request
from .response import Response
from .rules import described

MakeId: TypeAlias = "Callable[[], str]"
"""Gives a new id of 22 base64url characters, from a cryptographic source, at each call."""

Headers: TypeAlias = "Mapping[str, str]"
"""Response headers, names in lower case; repeated ones joined with `, `."""


@dataclass(slots=True)
class WireRequest:
    """A request in its wire form, without host and without key.

    path: appended to the base URL's path, with its query. headers: name and value, in order.
    warnings: what was asked for and can be sent only in part; they end up on the response.
    """

    path: str
    headers: list[tuple[str, str]]
    body: bytes
    method: str = "POST"
    warnings: list[str] = field(default_factory=lambda: [])


LESSONS = 8
"""Deltas that are looked at for what the next one repeats, without success, before a stream is left alone."""


class StreamMachine(abc.ABC):
    """One stream of one dialect: wire events in, the eight events out.

    `feed` and `end` never raise for anything a server may send: malformed input becomes an `Error` event, and so does
    an answer beyond the limits.
    Once `ended` is True (Done or Error was returned) further input is ignored.
    repeated: the delta that the next event may repeat; whoever reads such a one elsewhere appends to its pieces.
    """

    __slots__ = ("_cut_pairs", "_lessons", "_shares", "answer", "ended", "make_id", "provider", "repeated")

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        self.provider: Provider = provider
        self.make_id: MakeId = make_id
        self.answer: Accumulator = Accumulator(limits)
        self.ended: bool = False
        self.repeated: RepeatedDelta | None = None
        self._lessons = LESSONS
        self._shares = SHARED_BY_ONE
        self._cut_pairs: CutPairs | None = None

    def feed(self, event: str, data: bytes) -> Sequence[Event]:
        """Take one server-sent event: its name (empty where it has none) and its data.

        Hot: most are deltas that differ from the one before in their text only, and end here.
        """
        if self.ended:
            return ()
        repeated = self.repeated
        if repeated is not None:
            text = repeated.text_of(event, data)
            if text:
                repeated.pieces.append(text)
                return (repeated.make(repeated.index, text),)
            if repeated.served:
                self._lessons = LESSONS
            self.forget(repeated)
        try:
            events = self.take_event(event, data)
        except ProviderError as error:
            events = self.fail(error.with_traceback(None))
        return events if self._cut_pairs is None else self._joined(events)

    def forget(self, repeated: RepeatedDelta) -> None:
        """An event came that is not `repeated` once more."""
        self.repeated = None

    @abc.abstractmethod
    def take_event(self, event: str, data: bytes) -> Sequence[Event]:
        """Take one server-sent event that is not known from the one before. Raises `ProviderError` for one that brings
        the answer beyond its limits."""

    def expect_more(self, event: str, data: bytes, value: JSON, path: Path, told: Event, counts: bytes = b"") -> None:
        """This wire event told one delta and nothing else, and so does every one that repeats it with another text.

        value: its JSON, parsed. path: where the text stands in it. counts: a member behind it whose numbers may change,
        too; its machine looks at them when it needs them (`RepeatedDelta.latest`)."""
        if self._lessons and len(data) <= LARGEST_DELTA:
            self._lessons -= 1
            shared = self._shares > 0
            self.repeated = learn(event, data, value, path, told, self.answer.blocks, counts, shared=shared)
            self._shares -= shared

    def end(self, stray: bytes = b"") -> Sequence[Event]:
        """The body has ended. `stray`: the lines that were no SSE fields, joined with LF, bounded; some servers
        report an error there. Returns the terminal event, unless it was returned already."""
        if self.ended:
            return ()
        try:
            events = self.take_end(stray)
        except ProviderError as error:
            events = self.fail(error.with_traceback(None))
        return events if self._cut_pairs is None else self._joined(events)

    @abc.abstractmethod
    def take_end(self, stray: bytes) -> Sequence[Event]:
        """The body of a stream that has not ended has. Raises as `take_event` does."""

    def note_half(self, raw: str, text: str) -> None:
        """A string of this event holds half a surrogate pair, whose other half may come with the next delta."""
        if self._cut_pairs is None:
            self._cut_pairs = CutPairs()
        self._cut_pairs.note(raw, text)

    def _joined(self, events: Sequence[Event]) -> Sequence[Event]:
        pairs = self._cut_pairs
        assert pairs is not None
        joined = pairs.join(events, self.answer.blocks)
        if not pairs.waits:
            self._cut_pairs = None
        return joined

    def feed_last(self, event: str, data: bytes) -> Sequence[Event]:
        """Take the last event of a body that ended inside it. It counts if it is whole; half of one does not."""
        if not data.strip().startswith(b"[DONE]"):
            try:
                loads(data)
            except MalformedJSONError:
                return ()
        return self.feed(event, data)

    def fail(self, error: ProviderError) -> Sequence[Event]:
        """End the stream with an error."""
        if self.ended:
            return ()
        self.ended = True
        return (Error(error),)

    def response(self) -> Response:
        """The answer so far."""
        return self.answer.response()


class Encode(Protocol):
    """A request → its wire form. `model` is the name as the provider knows it. Raises `InvalidRequestError` naming the
    field that this wire format cannot carry."""

    def __call__(self, request: Request, model: str, provider: Provider, /, *, stream: bool) -> WireRequest: ...


class Decode(Protocol):
    """The whole body of an unstreamed answer → the response. Raises `ProviderError`, also for an error inside a 200."""

    def __call__(
        self, body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS, /
    ) -> Response: ...


class MakeMachine(Protocol):
    """A new machine for one stream. A subclass of `StreamMachine` is such a function itself."""

    def __call__(
        self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS, /
    ) -> StreamMachine: ...


class DecodeError(Protocol):
    """An error answer → the error. Never raises; `now` is the wall clock in Unix seconds, for dates in headers."""

    def __call__(self, status: int, headers: Headers, body: bytes, now: float, /) -> ProviderError: ...


class AuthHeaders(Protocol):
    """The headers that carry the key; none where the key is empty."""

    def __call__(self, provider: Provider, api_key: str, /) -> list[tuple[str, str]]: ...


AUTHORIZATION = "authorization"


def bearer_token(provider: Provider, api_key: str) -> list[tuple[str, str]]:
    """`Authorization: Bearer …` (RFC 6750), or the key bare in the header that the profile names; none without a
    key."""
    if not api_key:
        return []
    header = provider.profile.quirks.auth_header
    return [(header, f"Bearer {api_key}" if header == AUTHORIZATION else api_key)]


@dataclass(slots=True, frozen=True, kw_only=True)
class Dialect:
    """One wire format: a name, and the functions that write its requests and read its answers.

    name: what the format is called, in profiles and in traces.
    encode: a request → path, headers and body.
    decode: the body of an unstreamed answer → response.
    machine: makes the machine that reads one stream of server-sent events.
    auth_headers: the headers that carry the key. Default: a bearer token.
    decode_error: an error answer → error. Default: reads every form of error that is known from the other dialects.

    The functions do no I/O: they have no socket, no clock and no randomness but what they are given. Raises
    `InvalidRequestError` for an empty name, or for something that is no function.
    """

    name: str
    encode: Encode = field(repr=False)
    decode: Decode = field(repr=False)
    machine: MakeMachine = field(repr=False)
    auth_headers: AuthHeaders = field(default=bearer_token, repr=False)
    decode_error: DecodeError = field(default=error_bodies.decode_error, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError("Dialect.name", f"must be text that is not empty, not {described(self.name)}")
        for name in ("encode", "decode", "machine", "auth_headers", "decode_error"):
            value = getattr(self, name)
            if not callable(value):
                raise InvalidRequestError(f"Dialect.{name}", f"must be a function, not {described(value)}")
