"""Converts OpenAI chat `messages` to the common history and back.

`block_writer.py` writes parts, `message_writer.py` writes calls and reasoning, and `answer.py` reads an assistant's
message, as in requests and answers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ...catalog.dialect import Dialect
from ...catalog.provider import OpenAIChat, Provider
from ...history.converter import HistoryConverter
from ...history.view import HistoryError
from ...json.json_values import JSON, JSONObject, MalformedJSONError, mapping, objects, string
from ...model.messages import (
    Block,
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ...wire.accumulate import REFUSAL, Accumulator
from ...wire.cache_marks import MARKS, read_mark
from ..file_data import detail_of, file_source, film_type, image_of_url, is_base64_url, url_source
from ..system_messages import SYSTEM_ROLES, system_message, wire_role
from .answer import MESSAGE_METHODS, ChatAnswer
from .block_writer import AUDIO_FORMATS, BlockWriter
from .dialect import DIALECT
from .message_writer import MessageWriter, wire_call_id

CHUNK_MEMBERS = frozenset({"choices", "usage"})
CHOICE_MEMBERS = frozenset({"delta", "message"})
CALL_MEMBERS = frozenset({"function", "custom"})
MESSAGE_MEMBERS = frozenset({
    "content", "tool_calls", "function_call", "refusal", "audio", "reasoning_content", "reasoning", "reasoning_details",
})  # fmt: skip
"""Members that identify a chunk, and its parts: a choice, a tool call, a message or its delta."""

READ_MEMBERS: dict[str, frozenset[str]] = {
    "assistant": frozenset({"role", "content", "annotations", *MARKS, *MESSAGE_METHODS}),
    "tool": frozenset({"role", "content", "tool_call_id", "name", *MARKS}),
}
"""Role → the members of a message that are read. The name of a tool is known from its call."""

ALWAYS_READ = frozenset({"role", "content", *MARKS})
"""The members that are read of a message with any other role."""

HELPER_EVENTS = re.compile(r"((logprobs\.)?(content|refusal)|tool_calls\.function\.arguments)\.(delta|done)")
"""Events of `client.chat.completions.stream()` that repeat the content of its events of type `chunk`."""

AUDIO_TYPES: dict[str, str] = {form: media_type for media_type, form in reversed(AUDIO_FORMATS.items())}
"""`input_audio.format` → media type."""


class ChatConverter(HistoryConverter):
    """Converts OpenAI's chat messages, and those of compatible servers."""

    dialect: ClassVar[Dialect] = DIALECT
    provider_class: ClassVar[type[Provider]] = OpenAIChat
    _takes_parts: ClassVar[bool] = True

    def is_whole(self, chunk: JSONObject) -> bool:
        return any(
            choice.get("message") is not None and choice.get("delta") is None for choice in objects(chunk, "choices")
        )

    def is_chunk(self, names: frozenset[str], wire: JSONObject) -> bool:
        return bool(names & CHUNK_MEMBERS) or wire.get("object") in ("chat.completion.chunk", "chat.completion")

    def chunk_around(self, names: frozenset[str], wire: JSONObject) -> JSONObject | None:
        if wire.get("type") == "chunk":
            return mapping(wire, "chunk") or None
        if HELPER_EVENTS.match(string(wire, "type") or ""):
            return {"choices": []}
        if names & CHOICE_MEMBERS:
            return {"choices": [wire]}
        if names & CALL_MEMBERS:
            wire = {"tool_calls": [wire]}
        elif names and not names & MESSAGE_MEMBERS and wire.get("role") != "assistant":
            return None  # a stream's first delta may have only a role, and its last one is empty
        return {"choices": [{"delta": wire}]}

    def _system_parameter(self, texts: Sequence[str]) -> JSON:
        return None

    def _system_messages(self, texts: Sequence[str]) -> list[JSONObject]:
        return self._write([Message.system([Text(text) for text in texts])], {}, [])

    # --- out ---

    def _write(self, messages: Sequence[Message], names: Mapping[str, str], warnings: list[str]) -> list[JSONObject]:
        parts = BlockWriter(self.provider.profile.quirks, warnings)
        wire: list[JSONObject] = []
        for number, message in enumerate(messages):
            where = f"messages[{number}]"
            if message.role is Role.ASSISTANT:
                wire += self._assistant(message, parts, where, warnings)
            else:
                content = [
                    (f"{where}.content[{position}]", block)
                    for position, block in enumerate(message.content)
                    if isinstance(block, Text | Image | File)
                ]
                if content:
                    wire_content: JSON = parts.content(content)
                    if self.content_lists and type(wire_content) is str:
                        wire_content = [{"type": "text", "text": wire_content}]
                    role = "user"
                    if message.role is Role.SYSTEM:
                        role = wire_role(message.content, self.provider.maker, self.provider.profile.quirks.system_role)
                    wire.append({"role": role, "content": wire_content})
            results = [block for block in message.content if isinstance(block, ToolResult)]
            wire += [self._result(result, parts, where, warnings) for result in results]
        return wire

    def _assistant(self, message: Message, parts: BlockWriter, where: str, warnings: list[str]) -> list[JSONObject]:
        """Return one message: content parts, calls, and the reasoning that the server wants back."""
        writer = MessageWriter(self.provider, warnings)
        texts = [block for block in message.content if isinstance(block, Text) and block.text]
        thinking = [block for block in message.content if isinstance(block, Thinking | RedactedThinking)]
        form = self.provider.profile.quirks.tool_call_id
        wire: JSONObject = {"role": "assistant"}
        writer.add_reasoning(wire, texts, thinking, bool(message.tool_calls))
        if texts and "content" not in wire:
            wire["content"] = [parts.part(block, where) for block in texts]
        for text in texts:
            writer.add_text_state(wire, text.state)
        if message.tool_calls:
            wire["tool_calls"] = [writer.call(call, wire_call_id(call.id, form)) for call in message.tool_calls]
        for block in message.content:
            if isinstance(block, Image | File | ProviderBlock) and not writer.add_sound(block, wire):
                warnings.append(
                    f"{where}: an assistant's {type(block).__name__} is not written; there is no form for it"
                )
        return [wire] if len(wire) > 1 else []

    def _result(self, block: ToolResult, parts: BlockWriter, where: str, warnings: list[str]) -> JSONObject:
        call_id = wire_call_id(block.tool_call_id, self.provider.profile.quirks.tool_call_id)
        content = [Text(block.content)] if isinstance(block.content, str) else block.content
        texts = [part for part in content if isinstance(part, Text)]
        if len(texts) < len(content):
            warnings.append(f"{where}: a tool message holds text only; pictures and files of a result are not written")
        return {"role": "tool", "tool_call_id": call_id, "content": parts.text_content(texts, where)}

    # --- in ---

    def _read(self, wire: Sequence[JSONObject], names: dict[str, str]) -> list[Message]:
        read: list[Message] = []
        open_calls: list[ToolCall] = []  # of a data set, whose calls and results have no ids
        for number, item in enumerate(wire):
            where, role = f"messages[{number}]", item.get("role")
            if type(role) is str and role in SYSTEM_ROLES:
                read.append(system_message(role, _user_blocks(item, where), self.provider.maker))
            elif role == "user":
                read.append(Message.user(_user_blocks(item, where)))
            elif role == "assistant":
                read.append(Message.assistant(self._answer_blocks(item, where)))
                calls = [] if any(string(call, "id") for call in objects(item, "tool_calls")) else read[-1].content
                open_calls = [block for block in calls if isinstance(block, ToolCall)]
            elif role == "tool":
                result = _tool_result(item, where)
                name = string(item, "name")
                called = [call for call in open_calls if not result.tool_call_id and name in (None, call.name)][:1]
                for call in called:
                    open_calls.remove(call)
                    result.tool_call_id = call.id
                if number and wire[number - 1].get("role") == "tool":
                    read[-1].content.append(result)  # the results of one turn
                else:
                    read.append(Message(Role.TOOL, result))
            else:
                raise HistoryError(f"{where}.role", f"unknown role {role!r}")
        return read

    def _left_out(self, wire: Sequence[JSONObject]) -> list[str]:
        found = {
            (name, string(item, "role") or "")
            for item in wire
            for name in item.keys() - READ_MEMBERS.get(string(item, "role") or "", ALWAYS_READ)
            if item[name]
        }
        return [f"messages: {name!r} of a message with the role {role!r} is left out" for name, role in sorted(found)]

    def _answer_blocks(self, wire: JSONObject, where: str) -> list[Block]:
        content = wire.get("content")
        texts: list[Block] = []
        if type(content) is list and all(type(part) is dict and part.get("type") == "text" for part in content):
            # Read here, because the parts of an answer become one text.
            texts, wire = list(_user_blocks({"content": content}, where)), {**wire, "content": None}
        answer = ChatAnswer(Accumulator(keep_ids=True), self.provider.maker, self.make_id, whole=True)
        try:
            answer.take({"choices": [{"index": 0, "message": wire}]}, [])
        except MalformedJSONError as error:
            raise HistoryError(where, str(error)) from None
        answer.done()
        response = answer.answer.response()
        if response.warnings:
            raise HistoryError(where, response.warnings[0])
        spoken = [block for block in texts if isinstance(block, Text) and block.text]
        if response.refusal and spoken:
            spoken[-1].state = ProviderState(self.provider.maker, {REFUSAL: response.refusal})
        elif response.refusal and not response.text:
            texts.append(Text(response.refusal))
        thinking: list[Block] = [block for block in response.content if isinstance(block, Thinking)]
        blocks = [*thinking, *texts, *(block for block in response.content if not isinstance(block, Thinking))]
        mark = read_mark(wire, where, HistoryError)
        if mark is not None and blocks and isinstance(blocks[-1], Text | ToolCall):
            blocks[-1].cache_control = mark
        return blocks or [Text("")]  # an answer without text, such as one that was stopped at once


def _tool_result(wire: JSONObject, where: str) -> ToolResult:
    """Read a tool's message. It has the last mark of its parts. Some servers take pictures there, OpenAI does not."""
    blocks = _user_blocks(wire, where)
    mark = next((block.cache_control for block in reversed(blocks) if block.cache_control is not None), None)
    id = string(wire, "tool_call_id") or ""
    texts = [block.text for block in blocks if isinstance(block, Text)]
    if len(texts) == len(blocks):
        return ToolResult(id, "".join(texts), cache_control=mark)
    for block in blocks:
        block.cache_control = None
    return ToolResult(id, blocks, cache_control=mark)


def _user_blocks(wire: JSONObject, where: str) -> list[Text | Image | File]:
    """Read the content of a message. The mark of a message, which some gateways take, is that of its last block."""
    content, mark = wire.get("content"), read_mark(wire, where, HistoryError)
    if type(content) is str:
        return [Text(content, cache_control=mark)]
    if type(content) is not list:
        raise HistoryError(f"{where}.content", "must be text or a list of parts")
    blocks = [_part(part, f"{where}.content[{position}]") for position, part in enumerate(content)]
    if blocks and mark is not None:
        blocks[-1].cache_control = mark
    return blocks


def _part(part: JSON, where: str) -> Text | Image | File:
    if type(part) is str:
        return Text(part)
    wire = part if type(part) is dict else {}
    block = _unmarked_part(wire, where)
    block.cache_control = read_mark(wire, where, HistoryError)
    return block


def _unmarked_part(wire: JSONObject, where: str) -> Text | Image | File:
    kind = string(wire, "type")
    if kind == "text":
        text = wire.get("text")
        if text is not None and type(text) is not str:
            raise HistoryError(f"{where}.text", "must be text")
        return Text(text or "")
    if kind == "image_url":
        source = mapping(wire, "image_url")
        url = string(wire, "image_url") or string(source, "url")  # Mistral's form is the URL itself
        if not url:
            raise HistoryError(f"{where}.image_url", "must have a url")
        image = image_of_url(url)
        if image.data is None and is_base64_url(url):
            raise HistoryError(f"{where}.image_url.url", "is not base64 text")
        image.detail = detail_of(source)
        return image
    if kind == "input_audio":
        source = mapping(wire, "input_audio")
        form, sound = string(source, "format") or "", string(source, "data")
        if not sound:
            raise HistoryError(f"{where}.input_audio", "must have data")
        return File(
            data=_decoded(sound, f"{where}.input_audio.data"),
            media_type=AUDIO_TYPES.get(form, f"audio/{form}"),
        )
    if kind == "video_url":
        url = string(wire, "video_url") or string(mapping(wire, "video_url"), "url")
        if not url:
            raise HistoryError(f"{where}.video_url", "must have a url")
        film = _file(url, None, f"{where}.video_url.url")
        film.media_type = film.media_type or film_type(film.url or "")
        return film
    if kind == "file":
        source = mapping(wire, "file")
        file_id, name = string(source, "file_id"), string(source, "filename")
        if file_id:
            return File(file_id=file_id, name=name)
        data = string(source, "file_data")
        if not data:
            raise HistoryError(f"{where}.file", "must have file_data or file_id")
        return _file(data, name, f"{where}.file.file_data", plain=True)
    raise HistoryError(f"{where}.type", f"unknown part {kind!r}")


def _file(text: str, name: str | None, where: str, *, plain: bool = False) -> File:
    """Return a file with its bytes or its URL. `plain`: base64 text is allowed, too."""
    try:
        data, media_type, url = file_source(text, name) if plain else url_source(text)
    except ValueError as error:
        raise HistoryError(where, str(error)) from None
    return File(data, media_type, url, name=name)


def _decoded(data: str, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:  # not base64, or not ASCII
        raise HistoryError(where, "is not base64 text") from None
