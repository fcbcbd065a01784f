"""A wire dialect as a value (`Dialect`), and the base of its stream machines.

Knows the shape of the work: values → wire, wire → values. Sans-IO: no socket, no clock, no randomness; the time
and a maker of ids are handed in.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

from . import error_bodies
from .accumulate import Accumulator, Placed, ToolCallInProgress
from .answer_limits import ANSWER_LIMITS, AnswerLimits
from .cut_pairs import CutPairs
from .delta_template import LARGEST_DELTA, NOTHING_VOLATILE, DeltaTemplate, Path, VolatileMembers, learn
from .errors import InvalidRequestError, ProviderError
from .events import Error, Event, TextDelta, ThinkingDelta, ToolCallDelta
from .json_values import JSON, MalformedJSONError, loads
from .provider import Provider
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


MAX_UNMATCHED_TEMPLATES = 8
"""Templates of one stream, none of which matched a delta, before no more are made."""

SHARED_BY_ONE = 8
"""Templates of one stream that may add to what is kept for all streams. A stream whose deltas always differ must not
replace what the other streams use, nor have a pattern compiled for each event."""


class StreamMachine(abc.ABC):
    """One stream of one dialect: wire events in, the eight events out.

    `feed` and `end` never raise for anything a server may send: malformed input becomes an `Error` event, and so does
    an answer beyond the limits.
    Once `ended` is True (Done or Error was returned) further input is ignored.

    volatile: the dialect's members whose values differ from delta to delta.
    template: matches the next event if it is one more delta of the same block; None where none is known.
    accept: records the text of a delta that matched `template`, and returns its event. `feed` calls it for the
        deltas that it matches, and so does who matches them elsewhere.
    latest_match: the data of the last delta that matched, where the template has counts; the machine reads them when it
        needs them.
    """

    __slots__ = (
        "_cut_pairs",
        "_learned_at",
        "_lessons",
        "_pieces",
        "_shares",
        "accept",
        "answer",
        "ended",
        "latest_match",
        "make_id",
        "provider",
        "template",
    )

    volatile: ClassVar[VolatileMembers] = NOTHING_VOLATILE

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        self.provider: Provider = provider
        self.make_id: MakeId = make_id
        self.answer: Accumulator = Accumulator(limits)
        self.ended: bool = False
        self.template: DeltaTemplate | None = None
        self.accept: Callable[[str], Event] = _no_template
        self.latest_match: bytes = b""
        self._pieces: list[str] = []  # of the block that the template's deltas belong to
        self._learned_at = 0  # how many there were when the template was made
        self._lessons = MAX_UNMATCHED_TEMPLATES
        self._shares = SHARED_BY_ONE
        self._cut_pairs: CutPairs | None = None

    def feed(self, event: str, data: bytes) -> Sequence[Event]:
        """Take one server-sent event: its name (empty where it has none) and its data.

        Hot path: most events match the template.
        """
        if self.ended:
            return ()
        template = self.template
        if template is not None:
            if event == template.event and len(data) <= LARGEST_DELTA:
                text = template.text_in(data)
                if text:
                    if template.counts is not None:
                        self.latest_match = data
                    return (self.accept(text),)
            if self.matched:
                self._lessons = MAX_UNMATCHED_TEMPLATES
            self.template = None
        try:
            events = self.take_event(event, data)
        except ProviderError as error:
            events = self.fail(error.with_traceback(None))
        return events if self._cut_pairs is None else self._joined(events)

    @property
    def matched(self) -> bool:
        """Whether the template has matched a delta."""
        return len(self._pieces) > self._learned_at

    @abc.abstractmethod
    def take_event(self, event: str, data: bytes) -> Sequence[Event]:
        """Take one server-sent event that does not match the template. Raises `ProviderError` for one that brings the
        answer beyond its limits."""

    def expect_more(self, event: str, data: bytes, value: JSON, path: Path, delta: Event) -> None:
        """This wire event held one delta and nothing else, and so does every event that differs from it in the text
        only: make a template of it.

        value: its JSON, parsed. path: to the text in it. delta: the event that was returned for it.
        """
        if not self._lessons or len(data) > LARGEST_DELTA:
            return
        if not isinstance(delta, TextDelta | ThinkingDelta | ToolCallDelta):
            return
        block = self.answer.blocks[delta.index]
        if isinstance(block, Placed):
            return
        self._lessons -= 1
        shared = self._shares > 0
        self._shares -= shared
        text = delta.arguments if isinstance(delta, ToolCallDelta) else delta.text
        self.template = learn(event, data, value, path, text, self.volatile, shared=shared)
        self.accept = block.more if isinstance(block, ToolCallInProgress) else block.delta
        self._pieces, self._learned_at = block.pieces, len(block.pieces)

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


def _no_template(text: str) -> Event:
    """Accepts nothing: there is no template yet."""
    raise AssertionError("a text was accepted without a template")


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
