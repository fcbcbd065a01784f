"""The base class of the converters: a provider's own messages ⇄ the common history and the message model.

A history is written message by message. Nothing is paired, merged or left out if the wire has a form for it. (A
request's encoder is stricter: it sends no call without a result.)
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Protocol, TypeAlias

from ..catalog.dialect import Dialect, MakeId
from ..catalog.provider import FUNCTION, Provider
from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, escaped_dumps, string
from ..model.events import ErrorEvent
from ..model.message_rules import ROLE_BLOCKS, check_fields
from ..model.messages import SYSTEM, Message, Role, Text, leading_system
from ..model.provider_error import NO_ANSWER_CODE
from ..model.response import Response
from ..model.rules import check_iterable, flag, instance, items_of, optional
from ..wire.call_ids import separate_calls
from .view import (
    LATE_SYSTEM,
    History,
    HistoryError,
    HistoryMessage,
    HistoryRole,
    Part,
    ToolCallPart,
    ToolResultPart,
    call_part,
    check_history,
    finish_message,
    history_messages_of,
    message_from_response,
    message_of,
    system_texts,
    turns,
)


class Dumpable(Protocol):
    """A value of a provider's own client library that can be converted to JSON."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_none: bool) -> JSONObject:
        """Return the value's members as JSON."""
        ...


MAKES_ID = optional(instance(FUNCTION, must="a function"))

Chunk: TypeAlias = JSONObject | Dumpable
"""One event of a stream, or a whole answer, as JSON or as an object of a client library."""


def member_names(value: Chunk) -> frozenset[str]:
    """Return the names of a value's members, null members included. They show which type a library's object has."""
    if isinstance(value, dict):
        return frozenset(value)
    return frozenset(value.model_dump(mode="json", by_alias=True, exclude_none=False))


def as_object(value: Chunk, where: str) -> JSONObject:
    """Return the members of a chunk or of a provider's message. Raises `HistoryError` for any other value."""
    if isinstance(value, dict):
        return value
    if not hasattr(value, "model_dump"):
        raise HistoryError(where, f"must be an object, not {type(value).__name__}")
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class ChunkView:
    """The content of one chunk.

    response: the answer that this chunk alone would make.
    """

    __slots__ = ("response",)

    def __init__(self, response: Response) -> None:
        self.response: Response = response

    def get_text(self) -> str:
        """Return the chunk's text; empty if it has none."""
        return self.response.text

    def get_tool_calls(self) -> list[ToolCallPart]:
        """Return the calls that the chunk names. A chunk with only more arguments of a call names none."""
        return [call_part(call) for call in self.response.tool_calls]

    def get_finish_message(self) -> str | None:
        """Return the provider's finish reason, with its explanation if there is one; None if the answer continues."""
        reason, message = self.response.raw_finish_reason, finish_message(self.response)
        return f"{reason}: {message}" if reason and message else reason


class HistoryConverter(abc.ABC):
    """Converts one provider's messages. Each dialect has a subclass.

    provider: the provider whose state is sent back. Default: the dialect's first party.
    make_id: makes ids for calls that have none. Default: they are numbered, from 1 for each converter.
    content_lists: whether a user's or the system's content is always written as a list of parts. If False, Chat writes
        a single text as a string, for servers that take only strings. The other dialects always write lists.

    Raises `InvalidRequestError` for any other value of a parameter, here and in all methods.
    """

    dialect: ClassVar[Dialect]
    provider_class: ClassVar[type[Provider]]
    _has_system_messages: ClassVar[bool] = True
    """Whether the dialect has system messages in the middle of a conversation."""
    _takes_parts: ClassVar[bool] = False
    """Whether a part of a chunk shows what it continues, so that it may stand for the chunk."""

    def __init__(
        self, provider: Provider | None = None, make_id: MakeId | None = None, *, content_lists: bool = True
    ) -> None:
        optional(instance(Provider)).check(provider, "provider")
        MAKES_ID.check(make_id, "make_id")
        flag().check(content_lists, "content_lists")
        given = provider if provider is not None else self.provider_class()
        # The chunks of a client library do not contain the stream's terminal marker.
        quirks = replace(given.profile.quirks, strict_end=False)
        profile = replace(given.profile, quirks=quirks)
        self.provider: Provider = self.provider_class(base_url=given.base_url, name=given.name, profile=profile)
        count = itertools.count(1)
        self.content_lists = content_lists
        self.make_id: MakeId = make_id if make_id is not None else lambda: f"call_{next(count)}"

    # --- histories ---

    def from_history(self, history: History, warnings: list[str] | None = None) -> list[JSONObject]:
        """Return the history as the provider's messages, in order. A system message after the first turn keeps its
        place.

        warnings: gets a warning for each part that cannot be written in full.

        Raises `HistoryError` if the provider has no such system message, and `InvalidRequestError` for content that the
        provider does not accept.
        """
        check_history(history)
        warned = _list_of(warnings, "warnings")
        results = (part for item in history.conversation for part in item.parts if isinstance(part, ToolResultPart))
        names = {part.id: part.name for part in results}
        spoken = [message_of(item) for item in turns(history)]
        late = self._late_system(spoken)
        if late is not None:
            raise HistoryError(f"turns[{late}]", LATE_SYSTEM)
        lead = self._system_messages(system_texts(history))
        return [*lead, *self._write([message for message in spoken if message.content], names, warned)]

    def system_parameter(self, history: History) -> JSON:
        """Return the system prompt if it is a parameter of the request; None if there is none, or if it is a message.

        System messages after the first turn are not included: see `from_history`.
        """
        check_history(history)
        texts = system_texts(history)
        return self._system_parameter(texts) if texts else None

    def to_history(self, wire: Iterable[Chunk]) -> list[HistoryMessage]:
        """Return the provider's messages in the common form.

        A tool result that is plain text, or JSON of another form, becomes a success with that text as its output, or a
        failure if the provider's message marks it as an error. Raises `HistoryError` for an unknown role or part.
        """
        names: dict[str, str] = {}
        read = self._read(self._objects(wire), names)
        separate_calls(read)
        lead = leading_system(read)
        items = [HistoryMessage(HistoryRole.SYSTEM, block.text) for message in read[:lead] for block in _texts(message)]
        for message in read[lead:]:
            names.update((call.id, call.name) for call in message.tool_calls)
            items.extend(history_messages_of([message], names))
        return items

    # --- messages ---

    def encode_messages(self, messages: Sequence[Message], warnings: list[str] | None = None) -> list[JSONObject]:
        """Return messages as the provider's. Raises `InvalidRequestError` for content that it does not accept.

        warnings: gets a warning for each part that cannot be written in full.
        """
        messages = items_of(messages, Message, "messages")
        for number, message in enumerate(messages):
            instance(Role).check(message.role, f"messages[{number}].role")
            check_fields(message.content, f"messages[{number}]", ROLE_BLOCKS[message.role])
        late = self._late_system(messages)
        if late is not None:
            raise InvalidRequestError(f"messages[{late}].role", LATE_SYSTEM)
        return self._write(messages, {}, _list_of(warnings, "warnings"))

    def decode_messages(
        self, wire: Iterable[Chunk], system: list[str] | None = None, warnings: list[str] | None = None
    ) -> list[Message]:
        """Return the provider's messages as messages of the message model.

        system: gets the texts of the system messages before all others, for `Request(system=…)`. If None, these are
            returned as messages, and `Request` takes their texts as its system prompt.
        warnings: gets a warning for each kind of member that a message has no place for, such as Chat's `name`.

        Raises `HistoryError` for a message that cannot be read.
        """
        given = self._objects(wire)
        _list_of(warnings, "warnings").extend(self._left_out(given))
        messages = self._read(given, {})
        separate_calls(messages)
        if system is not None:
            system = _list_of(system, "system")
            lead = leading_system(messages)
            system += [block.text for message in messages[:lead] for block in _texts(message) if block.text]
            del messages[:lead]
        return messages

    def _objects(self, wire: Iterable[Chunk]) -> list[JSONObject]:
        return [self._object(item, f"messages[{number}]") for number, item in enumerate(_iterable(wire, "wire"))]

    def _object(self, value: Chunk, where: str) -> JSONObject:
        """Return the members of a chunk or of a message, as on the wire. Raises `HistoryError` for any other value."""
        return as_object(value, where)

    def _late_system(self, messages: Sequence[Message]) -> int | None:
        """Return the position of the first system message if the provider has none, else None."""
        if self._has_system_messages:
            return None
        return next((number for number, message in enumerate(messages) if message.role is SYSTEM), None)

    @abc.abstractmethod
    def _write(self, messages: Sequence[Message], names: Mapping[str, str], warnings: list[str]) -> list[JSONObject]:
        """Return messages as the provider's. `names`: call id → tool, for results whose calls are not in `messages`."""

    @abc.abstractmethod
    def _read(self, wire: Sequence[JSONObject], names: dict[str, str]) -> list[Message]:
        """Return the provider's messages. Adds call id → tool to `names`, for results that name their tool."""

    def _left_out(self, wire: Sequence[JSONObject]) -> list[str]:
        """Return a warning for each kind of member of the provider's messages that `_read` leaves out."""
        return []

    def _system_messages(self, texts: Sequence[str]) -> list[JSONObject]:
        """Return the system prompt as messages, for a provider that has system messages."""
        return []

    def _system_parameter(self, texts: Sequence[str]) -> JSON:
        """Return the system prompt as a parameter of the request; None for a provider that has none."""
        return "\n\n".join(texts)

    # --- answers ---

    def message_from_chunks(self, chunks: Iterable[Chunk]) -> HistoryMessage | None:
        """Return the answer of a stream's chunks or of one whole answer, or None if it is empty. Raises `ProviderError`
        for an error among the chunks, and `HistoryError` for a part of a chunk.
        """
        return message_from_response(self._response_of_chunks(chunks))

    def provider_messages_from_chunks(self, chunks: Iterable[Chunk]) -> list[JSONObject]:
        """Return the answer of a stream's chunks, or of one whole answer, as the provider's own messages.

        That is one message, in Responses one per item; none if the answer is empty. Raises as `message_from_chunks`.
        """
        return self._write([self._response_of_chunks(chunks).to_message()], {}, [])

    def provider_message_from_chunks(self, chunks: Iterable[Chunk]) -> JSONObject | None:
        """Return an answer that is one of the provider's messages, or None if it is empty.

        Raises as `message_from_chunks`, and `HistoryError` if the answer is several messages, which happens only in
        Responses.
        """
        messages = self.provider_messages_from_chunks(chunks)
        if len(messages) > 1:
            raise HistoryError(
                "chunks", f"make {len(messages)} of the provider's messages: use provider_messages_from_chunks"
            )
        return messages[0] if messages else None

    def message_from_tool_results(self, results: Iterable[ToolResultPart]) -> HistoryMessage | None:
        """Return the message with a turn's results, or None for no results."""
        parts: list[Part] = [*items_of(results, ToolResultPart, "results")]
        return HistoryMessage(HistoryRole.TOOL, parts) if parts else None

    def provider_messages_from_tool_results(self, results: Iterable[ToolResultPart]) -> list[JSONObject]:
        """Return a turn's results as the provider's own messages: one with all of them, or in Chat and Responses one
        per result. Raises `TypeError` for any other value.
        """
        message = self.message_from_tool_results(results)
        return self.from_history(History(conversation=[message])) if message is not None else []

    def wrap_chunk(self, chunk: Chunk) -> ChunkView:
        """Return the content of one chunk, or of a part of one: a choice, a candidate, a message, a delta, a block.

        Raises `ProviderError` for an error, and `HistoryError` for any other value.
        """
        wire = self._object(chunk, "chunk")
        names = member_names(chunk)
        if not self.is_chunk(names, wire):
            whole = self.chunk_around(names, wire)
            if whole is None:
                self._response([wire])  # raises for an error, in any of its many forms
                raise HistoryError("chunk", f"{_described(chunk)} is no chunk of this dialect, and no part of one")
            wire = whole
        return ChunkView(self._response([wire]))

    @abc.abstractmethod
    def is_chunk(self, names: frozenset[str], wire: JSONObject) -> bool:
        """Return whether an object is an event of a stream or a whole answer.

        names: its members, null members included.
        """

    @abc.abstractmethod
    def chunk_around(self, names: frozenset[str], wire: JSONObject) -> JSONObject | None:
        """Return the chunk whose only content is this part of a chunk; None for any other object."""

    def is_whole(self, chunk: JSONObject) -> bool:
        """Return whether an object is an unstreamed answer, of a form that no event of a stream has."""
        return False

    def _response_of_chunks(self, chunks: Iterable[Chunk]) -> Response:
        read: list[JSONObject] = []
        for number, chunk in enumerate(_iterable(chunks, "chunks")):
            wire = self._object(chunk, f"chunks[{number}]")
            names = frozenset(wire)
            around = None if not names or self.is_chunk(names, wire) else self.chunk_around(names, wire)
            if around is not None and not self._takes_parts:
                raise HistoryError(
                    f"chunks[{number}]",
                    f"{_described(chunk)} is a part of a chunk: pass the whole chunk, or use wrap_chunk",
                )
            read.append(wire if around is None else around)
        return self._response(read)

    def _response(self, chunks: Sequence[JSONObject]) -> Response:
        if len(chunks) == 1 and self.is_whole(chunks[0]):
            return self.dialect.decode(_written(chunks[0], 0), self.provider, self.make_id)
        machine = self.dialect.machine(self.provider, self.make_id)
        for number, chunk in enumerate(chunks):
            for event in machine.feed(string(chunk, "type") or "", _written(chunk, number)):
                if isinstance(event, ErrorEvent) and event.error.provider_code != NO_ANSWER_CODE:
                    raise event.error
        machine.end()  # if there is no end yet, the chunks so far are the answer
        return machine.response()


def _written(chunk: JSONObject, number: int) -> bytes:
    """Return a chunk as a server sends it. Raises `HistoryError` for a value that JSON does not have."""
    try:
        return escaped_dumps(chunk)
    except TypeError as error:
        raise HistoryError(f"chunks[{number}]", f"cannot be written as JSON: {error}") from None


def _described(value: Chunk) -> str:
    """Describe a value in an error message: its type, or the names of its members."""
    if not isinstance(value, dict):
        return f"a {type(value).__name__}"
    shown = ", ".join(repr(name) for name in [*value][:5])
    return f"an object with {shown}" if shown else "an empty object"


def _texts(message: Message) -> list[Text]:
    return [block for block in message.content if isinstance(block, Text)]


def _iterable(values: Iterable[Chunk], where: str) -> Iterable[Chunk]:
    """Return the values. Raises `InvalidRequestError` for one object, a text, or a value that is no iterable."""
    if hasattr(values, "model_dump"):  # pydantic's objects are iterables of their members
        raise InvalidRequestError(where, f"must be a list of objects, not {type(values).__name__}")
    check_iterable(values, where, "a list of objects")
    return values


def _list_of(texts: list[str] | None, where: str) -> list[str]:
    """Return a list that gets texts: the caller's, if there is one."""
    optional(instance(list)).check(texts, where)
    return [] if texts is None else texts
