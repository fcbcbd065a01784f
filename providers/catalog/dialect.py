"""A wire dialect as a value (`Dialect`), and the base class of its stream machines.

Sans-IO: no socket, no clock, no randomness. The time and a maker of ids are passed in.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, cast
from urllib.parse import quote

from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, MalformedJSONError, loads, mapping, string
from ..model.events import ErrorEvent, Event, TextDelta, ThinkingDelta, ToolCallDelta
from ..model.provider_error import ProviderError
from ..model.request import Request
from ..model.response import Response
from ..model.rules import described
from ..wire import error_bodies
from ..wire.accumulate import Accumulator, InProgress, Placed, TextInProgress, ThinkingInProgress
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.answer_tokens import AnswerTokens, drop_unasked
from ..wire.cut_pairs import CutPairs
from ..wire.delta_template import (
    LARGEST_DELTA,
    NOTHING_VOLATILE,
    Delta,
    Match,
    Path,
    Template,
    ValuesTemplate,
    VolatileMembers,
    learn,
)
from ..wire.own_errors import openai_error
from ..wire.wire_head import AUTHORIZATION, key_headers, path_with_query, request_headers
from .provider import Provider

MakeId: TypeAlias = Callable[[], str]
"""Returns a new id of 22 base64url characters, from a cryptographic source, at each call."""

Headers: TypeAlias = Mapping[str, str]
"""Response headers, names in lower case. The values of a repeated header are joined with `, `."""


_no_warnings = cast("Callable[[], list[str]]", list)


@dataclass(slots=True)
class WireRequest:
    """A request in its wire form, without host and key.

    path: path and query, appended to the base URL's path.
    headers: names and values, in order.
    body: the bytes to send.
    method: the HTTP method.
    warnings: settings that can be sent only in part. They are added to the response's warnings.
    max_output_tokens: the most output tokens that the body allows; None if it names no limit. Budgets reserve them.
    unasked: names of members of `Response.provider_data` that the body does not ask for. If a server sends them
        nevertheless, they are not kept.
    choices: the number of choices that the body asks for; 0 if that is not known.
    asked: what the request asks for of the answer's tokens: `ids`, `logprobs`. A call that does not get it fails.
    unversioned: whether a `/v1` at the end of the base URL's path is left out.
    turn: what a conversation's WebSocket sends in place of this; None for every other request.
    write_body: returns the body, which is not written yet, because the turn needs less; None: `body` has it.
    """

    path: str
    headers: list[tuple[str, str]] = field(repr=False)
    body: bytes
    method: str = "POST"
    warnings: list[str] = field(default_factory=_no_warnings)
    max_output_tokens: int | None = None
    unasked: frozenset[str] = frozenset()
    choices: int = 0
    asked: frozenset[str] = frozenset()
    unversioned: bool = False
    turn: Turn | None = None
    write_body: Callable[[], bytes] | None = None


class TurnError(NamedTuple):
    """An error with which a server refuses a turn over a WebSocket.

    status: the HTTP status that it has in place of one; 0 if it has none.
    headers: those of such a response, names in lower case.
    code: the server's word; empty if there is none.
    """

    status: int
    headers: Headers
    code: str


class Turn(Protocol):
    """A request as it is sent over the WebSocket of its conversation. `chain`: what the server knows there.

    why: the reason for which it is sent whole; empty if it is not.
    """

    why: str

    def message(self, body: Callable[[], bytes], chain: object) -> tuple[bytes, bool]:
        """Return the text that is sent, and whether it is only what is new. `body`: returns the body over HTTP."""
        ...

    def answered(self, machine: StreamMachine, response: Response) -> object | None:
        """Return what the server knows after the answer; None if the next turn cannot continue it."""
        ...

    def steer(self, machine: StreamMachine, text: str) -> bytes | None:
        """Return the message that adds a user's text to an answer under way; None if that is not possible."""
        ...

    def error(self, text: bytes) -> TurnError | None:
        """Return the error that the first event of an answer is; None if it is none."""
        ...


BARE_LINES = "\n"
"""The name of an event that consists of lines that are no field of a server-sent event, as the SSE parser gives it."""

MAX_UNMATCHED_TEMPLATES = 8
"""After this many templates of one stream that matched no delta, no more templates are made."""

MAX_SHARED_TEMPLATES = 4
"""Templates of one stream that may add to the bytes kept for all streams, each a few pieces. A stream whose deltas
always differ must not evict what other streams use.
"""


class DeltaTarget(Protocol):
    """What the deltas that match a template are added to: a block of the answer, or a reader of their other values too.

    A stream has this object in place of the bound method `accept`, which would be one more object per live stream.

    pieces: the texts of the block so far.
    """

    pieces: list[str]

    def accept(self, delta: Match, /) -> Event | None:
        """Record a delta that matched, and return its event; None if it brings nothing new."""
        ...


NOTHING_UNASKED: frozenset[str] = frozenset()

TakeValue: TypeAlias = Callable[[JSON, bytes], None]
"""Reads the value of a volatile member of a delta that matched: the parsed value, and its JSON text."""

Readers: TypeAlias = Callable[[str], TakeValue]
"""Returns what reads the value of a volatile member, by the member's name."""


class StreamMachine(abc.ABC):
    """Converts one stream of one dialect: wire events to the library's eight events.

    `feed` and `end` never raise for anything a server may send: malformed input becomes an `ErrorEvent`, and so does
    an answer beyond the limits. After the terminal event (`Done` or `ErrorEvent`), further input is ignored.

    answer: the answer so far.
    ended: whether the terminal event was returned.
    make_id: returns an id for a tool call that has none.
    provider: the provider of the stream.
    target: gets the deltas that match `template`: from `feed`, and from the engine if that matches them first.
    template: matches the next event if it is one more delta of the same block; None if there is none.
    unasked: names of members of `Response.provider_data` that the request did not ask for. The machine need not keep
        them.
    choices: the number of choices that the request asked for; 0 if that is not known.
    asked: what the request asks for of the answer's tokens; if anything, deltas have their tokens.
    received: the data of all events that are JSON, as they came; None: they are not kept.
    volatile: the dialect's members whose values differ from delta to delta.
    """

    __slots__ = (
        "_cut_pairs",
        "_learned_at",
        "_shared_left",
        "_templates_left",
        "answer",
        "asked",
        "choices",
        "ended",
        "make_id",
        "provider",
        "received",
        "target",
        "template",
        "unasked",
    )

    volatile: ClassVar[VolatileMembers] = NOTHING_VOLATILE

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        self.provider: Provider = provider
        self.make_id: MakeId = make_id
        self.answer: Accumulator = Accumulator(limits)
        self.ended: bool = False
        self.template: Template | None = None
        self.target: DeltaTarget = NO_TARGET
        self.unasked: frozenset[str] = NOTHING_UNASKED
        self.choices: int = 0
        self.received: list[bytes] | None = None
        self.asked: frozenset[str] = NOTHING_UNASKED
        self._learned_at = 0  # the number of the target's pieces when the template was made
        self._templates_left = MAX_UNMATCHED_TEMPLATES
        self._shared_left = MAX_SHARED_TEMPLATES
        self._cut_pairs: CutPairs | None = None

    def feed(self, event: str, data: bytes) -> Sequence[Event]:
        """Take one server-sent event. Returns the events that it contains, in order. Never raises.

        event: the event's name; empty if it has none; `BARE_LINES` for lines that are no fields of an event.
        data: the event's data, or those lines.

        This is the hot path: most events match the template.
        """
        if self.ended:
            return ()
        template = self.template
        if template is not None:
            if event == template.event and len(data) <= LARGEST_DELTA:
                found = template.match(data, template.start, template.end)
                if found:
                    accepted = self.target.accept(found)
                    return () if accepted is None else (accepted,)
            if self.matched:
                self._templates_left = MAX_UNMATCHED_TEMPLATES
            self.template = None
        if self.received is not None:
            self.received.append(data)
        try:
            events = self.take_event(event, data)
        except ProviderError as error:
            events = self.fail(error.with_traceback(None))
        return events if self._cut_pairs is None else self._joined(events)

    def keep_received(self) -> None:
        """Keep the data of each event from here on. No event is then matched with a template."""
        if self.received is None:
            self.received, self._templates_left = [], 0

    @property
    def matched(self) -> bool:
        """Whether the template has matched at least one delta."""
        return len(self.target.pieces) > self._learned_at

    @abc.abstractmethod
    def take_event(self, event: str, data: bytes) -> Sequence[Event]:
        """Take one server-sent event that does not match the template. Returns its events.

        Raises `ProviderError` for an event that brings the answer beyond its limits.
        """

    def expect_more(
        self,
        event: str,
        data: bytes,
        value: JSON,
        path: Path,
        delta: Event,
        readers: Readers | None = None,
    ) -> None:
        """Make a template of a wire event that contained one delta and nothing else.

        The caller guarantees that every event that differs from this one only in the text, and in the members that
        `volatile` names, is such a delta as well.

        event: the wire event's name.
        data: the event's data.
        value: its data, parsed.
        path: the path to the text in `value`; empty for tokens without a text.
        delta: the event that was returned for it.
        readers: returns the function that reads a volatile value, if the event has any. That must not be a method of
            this machine, which would be a reference cycle.
        """
        if not self._templates_left or len(data) > LARGEST_DELTA:
            return
        if not isinstance(delta, TextDelta | ThinkingDelta | ToolCallDelta):
            return
        block = self.answer.blocks[delta.index] if path else TextInProgress(0)
        if isinstance(block, Placed):
            return
        self._templates_left -= 1
        shared = self._shared_left > 0
        self._shared_left -= shared
        text = delta.arguments if isinstance(delta, ToolCallDelta) else delta.text
        # Tokens without a text belong to the latest block.
        volatile, tokens = self.volatile, bool(self.asked) and (not path or block is self.answer.blocks[-1])
        template = self.template = learn(event, data, value, path, text, volatile, shared=shared, tokens=tokens)
        target = cast("DeltaTarget", block)
        if isinstance(template, ValuesTemplate):
            assert readers is not None, "a dialect with volatile values reads them"
            read = [(position, readers(member)) for position, member in template.read]
            values = TokensTarget(block, read, self.answer.its_tokens()) if self.asked else ValuesTarget(target, read)
            target = cast("DeltaTarget", values)
        self.target, self._learned_at = target, len(block.pieces)

    def end(self) -> Sequence[Event]:
        """Take the end of the body. Returns the terminal event, unless it was returned before."""
        if self.ended:
            return ()
        try:
            events = self.take_end()
        except ProviderError as error:
            events = self.fail(error.with_traceback(None))
        return events if self._cut_pairs is None else self._joined(events)

    @abc.abstractmethod
    def take_end(self) -> Sequence[Event]:
        """Take the end of the body of a stream that has not ended. Returns its last events.

        Raises `ProviderError` as `take_event` does.
        """

    def note_half(self, raw: str, text: str) -> None:
        """Record a string of the current event with half a surrogate pair: the other half may come with the next delta.

        raw: the string with the half.
        text: the string with U+FFFD instead.
        """
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
        """Take the last event of a body that ended inside it. The event counts only if its JSON is complete."""
        if event != BARE_LINES and not data.strip().startswith(b"[DONE]"):
            try:
                loads(data)
            except MalformedJSONError:
                return ()
        return self.feed(event, data)

    def fail(self, error: ProviderError) -> Sequence[Event]:
        """End the stream with an error. Returns the terminal event, unless it was returned before."""
        if self.ended:
            return ()
        self.ended = True
        return (ErrorEvent(error),)

    def response(self) -> Response:
        """Return the answer so far."""
        response = self.answer.response()
        if response.tokens is not None:
            drop_unasked(response, self.asked, self.unasked)
        if self.received is not None:
            response.received = tuple(data for data in self.received if data.strip() != b"[DONE]")
        return response


class ValuesTarget:
    """Gets deltas with values beside the text: the text goes to a block, and each value to its reader.

    pieces: the texts of the block so far.
    """

    __slots__ = ("_block", "_read", "pieces")

    def __init__(self, block: DeltaTarget, read: Sequence[tuple[int, TakeValue]]) -> None:
        """Create it. `read`: position and reader of each value that the machine reads."""
        self._block = block
        self._read = read
        self.pieces: list[str] = block.pieces

    def accept(self, delta: Delta, /) -> Event | None:
        """Record the values and the text. Returns the event, or None if the text brings nothing new."""
        text, values, raw = delta
        for position, take_value in self._read:
            take_value(values[position], raw[position])
        return self._block.accept(text)


EMPTY_DELTAS: dict[type, Callable[[int, str], Event]] = {TextInProgress: TextDelta, ThinkingInProgress: ThinkingDelta}
"""Kind of block → its delta for tokens without a text. Those of a tool call are in the response alone."""


class TokensTarget(ValuesTarget):
    """Gets deltas with values, and gives each event the tokens that came with it."""

    __slots__ = ("_empty", "_index", "_tokens")

    def __init__(self, block: InProgress, read: Sequence[tuple[int, TakeValue]], tokens: AnswerTokens) -> None:
        """Create it. `tokens`: the answer's."""
        super().__init__(cast("DeltaTarget", block), read)
        self._tokens = tokens
        self._index = block.index
        self._empty = EMPTY_DELTAS.get(type(block))

    def accept(self, delta: Delta, /) -> Event | None:
        """Record the values and the text, which may be empty. Returns the event with its tokens."""
        text, values, raw = delta
        for position, take_value in self._read:
            take_value(values[position], raw[position])
        tokens, event = self._tokens, None
        if text:
            event = self._block.accept(text)
        elif self._empty is not None and tokens.waiting:
            event = self._empty(self._index, "")
        if event is not None:
            tokens.attach(event)
        return event


class _NoTarget:
    """The target of a machine that has had no template: it gets no delta."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def accept(self, delta: Match, /) -> Event:
        raise AssertionError("a delta was accepted without a template")


NO_TARGET = _NoTarget()


class Encode(Protocol):
    """Encodes a request. `model` is the name as the provider knows it.

    Raises `InvalidRequestError` naming a field that this wire format cannot carry.
    """

    def __call__(self, request: Request, model: str, provider: Provider, /, *, stream: bool) -> WireRequest: ...


class EncodeTurn(Protocol):
    """Encodes a request that may be sent over the WebSocket of its conversation, with its `turn`. As `Encode`.

    chain: what the server knows there, from `Turn.answered`; None if it knows nothing.
    """

    def __call__(
        self, request: Request, model: str, provider: Provider, /, *, stream: bool, chain: object
    ) -> WireRequest: ...


class Decode(Protocol):
    """Decodes the whole body of an unstreamed answer. Raises `ProviderError`, also for an error in a response with
    status 200.
    """

    def __call__(
        self, body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS, /
    ) -> Response: ...


class MakeMachine(Protocol):
    """Makes a machine for one stream. A subclass of `StreamMachine` has this signature."""

    def __call__(
        self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS, /
    ) -> StreamMachine: ...


class DecodeError(Protocol):
    """Converts an error response to an error. Never raises. `now`: the wall clock in Unix seconds, for dates."""

    def __call__(self, status: int, headers: Headers, body: bytes, now: float, /) -> ProviderError: ...


class AuthHeaders(Protocol):
    """Returns the headers that carry the key; none if the key is empty."""

    def __call__(self, provider: Provider, api_key: str, /) -> list[tuple[str, str]]: ...


def bearer_token(provider: Provider, api_key: str) -> list[tuple[str, str]]:
    """Return `Authorization: Bearer …` (RFC 6750), or the key alone in the header that the profile names.

    Returns no header if the key is empty.
    """
    return key_headers(provider.profile.quirks, api_key, AUTHORIZATION)


OwnError: TypeAlias = Callable[[int, str, str], JSONObject]
"""Returns an error as JSON: from its status, a message, and a word of the gateway's own."""


_no_windows = cast("Callable[[], Mapping[str, float]]", dict)
_no_headers = cast("Callable[[], Mapping[str, str]]", dict)


@dataclass(slots=True, frozen=True, kw_only=True)
class StoredAnswers:
    """The answers that the server of one dialect makes in the background and keeps.

    `GET <path>/<id>` returns an answer as it is now, with `?stream=true` its events, from any of them on.
    `POST <path>/<id>/cancel` ends it.

    path: returns the path of all answers, below the base URL.
    member: the member of an event that has the answer, with its id and its status; also the answer's `object`.
    position: the member of an event that has its position in the stream: a number that grows, or an id.
    after: the query parameter with the position after which a stream goes on.
    place: the member of an event that has the place of its item in the answer.
    item: the member of an event that has the id of its item; "": items have none.
    padding: the member of an event whose content means nothing; "": there is none.
    unfinished: the statuses of an answer that has not ended.
    windows: the windows of time for an answer, in the server's words → the price, as a part of the list price.
    headers: headers of the dialect's own.
    """

    path: Callable[[Provider], str]
    member: str
    position: str
    after: str
    unfinished: frozenset[str]
    place: str = ""
    item: str = ""
    padding: str = ""
    windows: Mapping[str, float] = field(default_factory=_no_windows)
    headers: Mapping[str, str] = field(default_factory=_no_headers)

    def answer(self, value: JSONObject) -> JSONObject:
        """Return the answer that an event or a body has, as it is then; empty if it has none."""
        if value.get("object") == self.member:
            return value
        return mapping(value, self.member)

    def answer_id(self, value: JSONObject) -> str | None:
        """Return the answer's id; None if this event or body does not name it, or by an id that changes a path."""
        named = string(self.answer(value), "id") or string(value, f"{self.member}_id")
        return None if named in (".", "..") else named

    def position_of(self, event: JSONObject) -> int | str | None:
        """Return the position of an event in the stream; None if it has none."""
        position = event.get(self.position)
        return position if (type(position) is int and position >= 0) or (type(position) is str and position) else None

    def describes(self, event: JSONObject) -> bool:
        """Return whether an event reports the state of the whole answer. Reading it twice changes nothing."""
        return bool(self.answer(event)) or f"{self.member}_id" in event

    def has_ended(self, body: JSONObject) -> bool | None:
        """Return whether the server has ended an answer; None if the body has no answer with a status."""
        status = string(self.answer(body), "status")
        return None if status is None else status not in self.unfinished

    def read(self, provider: Provider, answer_id: str, *, stream: bool, after: int | str | None = None) -> WireRequest:
        """Return the request that reads an answer again.

        stream: whether its events are read.
        after: the position of the event after which they go on; None: from the first one.
        """
        query = "" if not stream else "?stream=true"
        if stream and after is not None:
            query += f"&{self.after}={quote(str(after), safe='')}"
        return self._request(provider, f"/{quote(answer_id, safe='')}{query}", "GET", stream=stream)

    def cancel(self, provider: Provider, answer_id: str) -> WireRequest:
        """Return the request that ends an answer at the server."""
        return self._request(provider, f"/{quote(answer_id, safe='')}/cancel", "POST", stream=False)

    def _request(self, provider: Provider, path: str, method: str, *, stream: bool) -> WireRequest:
        quirks = provider.profile.quirks
        headers = request_headers(quirks, None, stream=stream, own=self.headers)
        headers = [(name, value) for name, value in headers if name != "content-type"]
        return WireRequest(path_with_query(self.path(provider) + path, quirks), headers, b"", method)


@dataclass(slots=True, frozen=True, kw_only=True)
class Dialect:
    """One wire format: a name, and the functions that write its requests and parse its answers.

    name: the format's name, in profiles and traces.
    encode: converts a request to path, headers and body.
    decode: converts the body of an unstreamed answer to a response.
    machine: makes the machine that converts one stream of server-sent events.
    auth_headers: returns the headers that carry the key. Default: a bearer token.
    decode_error: converts an error response to an error. Default: reads every known form of error, of any dialect.
    encode_turn: converts a request that may be sent over a WebSocket; None: the dialect has none.
    stored: how an answer is read again that the server keeps, for `Request(durable=True)`; None: it keeps none.
        `encode` then writes a durable request so that the server makes the answer in the background.
    options: names of options of a `Request` that only some dialects have, and this one: `return_tokens`, `logprobs`. A
        request with another one of them is refused before `encode` gets it.
    served: what a gateway takes from clients of the dialect: methods, and a pattern of the path. Its groups: `model`
        and `method` where the path has them; `rest`, the end of a path that is no model call and is passed on;
        `answer`, the id of an answer that the provider keeps. OpenAI's clients have `/v1` in their base URL, the others
        add it.
    keep_alive: the bytes in a stream that these clients ignore.
    own_error: takes a status, a message and a word; returns an error of a gateway's own, as JSON.
    error_name: the name of a stream's event with an error; empty for an event without a name.

    The functions do no I/O, and use no clock and no randomness except what they are given.

    Raises `InvalidRequestError` for an empty name, and for a member that is no function.
    """

    name: str
    encode: Encode = field(repr=False)
    decode: Decode = field(repr=False)
    machine: MakeMachine = field(repr=False)
    auth_headers: AuthHeaders = field(default=bearer_token, repr=False)
    decode_error: DecodeError = field(default=error_bodies.decode_error, repr=False)
    stored: StoredAnswers | None = field(default=None, repr=False)
    encode_turn: EncodeTurn | None = field(default=None, repr=False)
    options: frozenset[str] = field(default=frozenset(), repr=False)
    served: Sequence[tuple[str, str]] = field(default=(), repr=False)
    keep_alive: bytes = field(default=b": keep-alive\n\n", repr=False)
    own_error: OwnError = field(default=openai_error, repr=False)
    error_name: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError("Dialect.name", f"must be text that is not empty, not {described(self.name)}")
        for name in ("encode", "decode", "machine", "auth_headers", "decode_error"):
            value = getattr(self, name)
            if not callable(value):
                raise InvalidRequestError(f"Dialect.{name}", f"must be a function, not {described(value)}")
