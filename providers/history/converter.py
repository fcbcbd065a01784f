"""What a dialect's history converter offers: its provider's own messages ⇄ the common history and the message model.

Knows the order of work. Must not know any wire form: each dialect's `converter` says how one message is written and
read, with the dialect's own encoders and decoders; answers are read by the dialect's stream machine.

A history is written as it is, message by message: nothing is paired, merged or left out that the wire has a form for.
(A request is another matter: its encoder sends no call without its result.)
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Protocol, TypeAlias

from ..call_ids import separate_calls
from ..dialect import Dialect, MakeId
from ..events import Error
from ..json_values import JSON, JSONObject, dumps, string
from ..messages import Message
from ..provider import Provider
from ..response import Response
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
    finish_message,
    history_messages_of,
    message_from_response,
    message_of,
    system_texts,
    turns,
)


class Dumpable(Protocol):
    """A value of a provider's own client library, which can tell its members."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_none: bool) -> JSONObject: ...


Chunk: TypeAlias = "JSONObject | Dumpable"
"""One event of a stream, or a whole answer: as JSON, or as a client library's object."""

Read: TypeAlias = "Message | str"
"""What a provider's message is: a message, or a piece of the system prompt."""


def member_names(value: Chunk) -> frozenset[str]:
    """The names of a value's members, those that are null included: they tell which type a library's object has."""
    if isinstance(value, dict):
        return frozenset(value)
    return frozenset(value.model_dump(mode="json", by_alias=True, exclude_none=False))


def as_object(value: Chunk, where: str) -> JSONObject:
    """The members of a chunk or of a provider's message. Raises `HistoryError` for anything else."""
    if isinstance(value, dict):
        return value
    if not hasattr(value, "model_dump"):
        raise HistoryError(where, f"must be an object, not {type(value).__name__}")
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class ChunkView:
    """What one chunk says by itself."""

    __slots__ = ("response",)

    def __init__(self, response: Response) -> None:
        self.response: Response = response

    def get_text(self) -> str:
        """Its text, empty where it has none."""
        return self.response.text

    def get_tool_calls(self) -> list[ToolCallPart]:
        """The calls that it names; more of a call's arguments, in a chunk of their own, name none."""
        return [call_part(call) for call in self.response.tool_calls]

    def get_finish_message(self) -> str | None:
        """Why the answer ended, in the provider's word, with what it said about it; None where it goes on."""
        reason, message = self.response.raw_finish_reason, finish_message(self.response)
        return f"{reason}: {message}" if reason and message else reason


class HistoryConverter(abc.ABC):
    """One provider's messages.

    provider: whose state goes back, the dialect's first party by default.
    make_id: makes ids for calls that have none; by default they are numbered, anew for each converter.
    content_lists: whether what the user says is always written as a list of parts. Otherwise Chat writes a single text
        as a string. The other dialects write lists in any case.
    """

    dialect: ClassVar[Dialect]
    provider_class: ClassVar[type[Provider]]

    def __init__(
        self, provider: Provider | None = None, make_id: MakeId | None = None, *, content_lists: bool = False
    ) -> None:
        given = provider if provider is not None else self.provider_class()
        # Chunks that a client library hands out have lost the stream's terminal marker.
        quirks = replace(given.profile.quirks, strict_end=False)
        profile = replace(given.profile, quirks=quirks)
        self.provider: Provider = self.provider_class(base_url=given.base_url, profile=profile)
        count = itertools.count(1)
        self.content_lists = content_lists
        self.make_id: MakeId = make_id if make_id is not None else lambda: f"call_{next(count)}"

    # --- histories ---

    def from_history(self, history: History) -> list[JSONObject]:
        """The history as the provider's messages, in order. A system message after the first turn stays in its place;
        `HistoryError` is raised where the provider has no such message. Raises `InvalidRequestError` for what the
        provider cannot take."""
        results = (part for item in history.conversation for part in item.parts if isinstance(part, ToolResultPart))
        names = {part.id: part.name for part in results}
        wire = self._system_messages(system_texts(history))
        spoken: list[Message] = []
        for number, item in enumerate(turns(history)):
            if item.role is not HistoryRole.SYSTEM:
                spoken.append(message_of(item))
                continue
            wire += self._write([message for message in spoken if message.content], names, [])
            wire.append(self._late_system_message(item.text, f"turns[{number}]"))
            spoken.clear()
        return [*wire, *self._write([message for message in spoken if message.content], names, [])]

    def system_parameter(self, history: History) -> JSON:
        """The system prompt where it is a parameter of the request; None where there is none, or where it is a
        message. System messages after the first turn are no part of it: see `from_history`."""
        texts = system_texts(history)
        return self._system_parameter(texts) if texts else None

    def to_history(self, wire: Iterable[Chunk]) -> list[HistoryMessage]:
        """The provider's messages in the common form. A tool result that is plain text, or JSON of another form, is a
        success with that text as its output, unless the provider's message marks it as an error. Raises `HistoryError`
        for an unknown role or part."""
        names: dict[str, str] = {}
        items: list[HistoryMessage] = []
        read = self._read(_objects(wire), names)
        separate_calls(item for item in read if isinstance(item, Message))
        for item in read:
            if isinstance(item, str):
                items.append(HistoryMessage(HistoryRole.SYSTEM, item))
                continue
            names.update((call.id, call.name) for call in item.tool_calls)
            items.extend(history_messages_of([item], names))
        return items

    # --- messages ---

    def encode_messages(self, messages: Sequence[Message], warnings: list[str] | None = None) -> list[JSONObject]:
        """Messages as the provider's. `warnings` takes what can be written only in part. Raises
        `InvalidRequestError`."""
        return self._write(messages, {}, warnings if warnings is not None else [])

    def decode_messages(self, wire: Iterable[Chunk], system: list[str] | None = None) -> list[Message]:
        """The provider's messages as messages. The system prompt is none: `system` takes the texts of the system
        messages that stand before all others, for `Request(system=…)`. Raises `HistoryError`: for a system message
        where `system` is not given, and for one that comes later, which has no place among messages."""
        messages: list[Message] = []
        for item in self._read(_objects(wire), {}):
            if isinstance(item, Message):
                messages.append(item)
            elif messages:
                raise HistoryError(f"messages, after {len(messages)}", LATE_SYSTEM)
            elif system is None:
                raise HistoryError("messages", "begin with a system prompt: give a list as `system` to take its text")
            elif item:
                system.append(item)
        separate_calls(messages)
        return messages

    @abc.abstractmethod
    def _write(self, messages: Sequence[Message], names: Mapping[str, str], warnings: list[str]) -> list[JSONObject]:
        """Messages as the provider's. `names`: the tools of results by call id, for those whose calls are not there."""

    @abc.abstractmethod
    def _read(self, wire: Sequence[JSONObject], names: dict[str, str]) -> list[Read]:
        """The provider's messages. `names` takes the tools that results name themselves, by call id."""

    def _system_messages(self, texts: Sequence[str]) -> list[JSONObject]:
        return []

    def _late_system_message(self, text: str, where: str) -> JSONObject:
        """A system message in the middle of a conversation, for a provider that has one."""
        raise HistoryError(where, LATE_SYSTEM)

    def _system_parameter(self, texts: Sequence[str]) -> JSON:
        return None

    # --- answers ---

    def message_from_chunks(self, chunks: Iterable[Chunk]) -> HistoryMessage | None:
        """The answer that a stream's chunks, or one whole answer, make; None where they hold nothing. Raises
        `ProviderError` for an error among them."""
        return message_from_response(self._response_of_chunks(chunks))

    def provider_messages_from_chunks(self, chunks: Iterable[Chunk]) -> list[JSONObject]:
        """The answer as `message_from_chunks` takes it, as the provider's own messages, ready to be sent back: one, in
        Responses one for each item, none where the chunks hold nothing. Raises as `message_from_chunks`."""
        return self._write([self._response_of_chunks(chunks).to_message()], {}, [])

    def provider_message_from_chunks(self, chunks: Iterable[Chunk]) -> JSONObject | None:
        """As `provider_messages_from_chunks`, for an answer that is one message. Raises `HistoryError` where it is
        several, which happens in Responses only."""
        messages = self.provider_messages_from_chunks(chunks)
        if len(messages) > 1:
            raise HistoryError(
                "chunks", f"make {len(messages)} of the provider's messages: use provider_messages_from_chunks"
            )
        return messages[0] if messages else None

    def message_from_tool_results(self, results: Iterable[ToolResultPart]) -> HistoryMessage | None:
        """The message with a turn's results, None for no results. Raises `TypeError` for anything else."""
        parts: list[Part] = []
        for result in results:
            if not isinstance(result, ToolResultPart):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"must be ToolResultPart values, not {type(result).__name__}")
            parts.append(result)
        return HistoryMessage(HistoryRole.TOOL, parts) if parts else None

    def provider_messages_from_tool_results(self, results: Iterable[ToolResultPart]) -> list[JSONObject]:
        """A turn's results as the provider's own messages: one with all of them, in Chat and Responses one for each
        result; none for no results. Raises `TypeError` for anything else."""
        message = self.message_from_tool_results(results)
        return self.from_history(History(conversation=[message])) if message is not None else []

    def wrap_chunk(self, chunk: Chunk) -> ChunkView:
        """One chunk by itself, or a part of one: a choice, a candidate, a message, a delta, a block, as JSON or as the
        client library's object. Raises `ProviderError` for an error, and `HistoryError` for anything else."""
        wire = as_object(chunk, "chunk")
        names = member_names(chunk)
        if not self.is_chunk(names, wire):
            whole = self.chunk_around(names, wire)
            if whole is None:
                self._response([wire])  # raises for an error, which has many forms
                raise HistoryError("chunk", f"{_described(chunk)} is no chunk of this dialect, and no part of one")
            wire = whole
        return ChunkView(self._response([wire]))

    @abc.abstractmethod
    def is_chunk(self, names: frozenset[str], wire: JSONObject) -> bool:
        """Whether it is an event of a stream or a whole answer. names: its members, those that are null included."""

    @abc.abstractmethod
    def chunk_around(self, names: frozenset[str], wire: JSONObject) -> JSONObject | None:
        """The chunk whose only content is this part of one; None for anything else."""

    def is_whole(self, chunk: JSONObject) -> bool:
        """Whether it is an unstreamed answer that no event of a stream looks like."""
        return False

    def _response_of_chunks(self, chunks: Iterable[Chunk]) -> Response:
        read: list[JSONObject] = []
        for number, chunk in enumerate(chunks):
            wire = as_object(chunk, f"chunks[{number}]")
            names = frozenset(wire)
            if names and not self.is_chunk(names, wire) and self.chunk_around(names, wire) is not None:
                raise HistoryError(
                    f"chunks[{number}]",
                    f"{_described(chunk)} is a part of a chunk: give the whole one, or wrap_chunk it",
                )
            read.append(wire)
        return self._response(read)

    def _response(self, chunks: Sequence[JSONObject]) -> Response:
        if len(chunks) == 1 and self.is_whole(chunks[0]):
            return self.dialect.decode(dumps(chunks[0]), self.provider, self.make_id)
        machine = self.dialect.machine(self.provider, self.make_id)
        for chunk in chunks:
            for event in machine.feed(string(chunk, "type") or "", dumps(chunk)):
                if isinstance(event, Error):
                    raise event.error
        machine.end()  # where there is no end yet, what came is all there is
        return machine.response()


def _described(value: Chunk) -> str:
    """What a value is, for a message: its type, or its members' names."""
    if not isinstance(value, dict):
        return f"a {type(value).__name__}"
    shown = ", ".join(repr(name) for name in [*value][:5])
    return f"an object with {shown}" if shown else "an empty object"


def _objects(wire: Iterable[Chunk]) -> list[JSONObject]:
    return [as_object(item, f"messages[{number}]") for number, item in enumerate(wire)]
