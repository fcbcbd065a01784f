"""Writes a conversation as chat `messages`.

The rules:
- Each call's result comes directly after the message with the call, wherever the history has it.
- Every server refuses a call without a result, and a result without a call. Both are left out with a warning.
- An assistant's text and calls are one message. Adjacent messages of one role are not merged.
- Reasoning is sent only to the provider that made it, in the member that its quirks name, and only with calls: without
  calls it is not used, and some servers refuse it. Signed details are sent with every message.
- If a server accepts only some call ids, others are replaced by the same text in call and result. An id that two calls
  of one message share gets a number.
- A result is text on this wire. Its pictures and files follow in a user's message after the turn's results.
- A system message keeps its place: OpenAI accepts one anywhere. A server that does not refuses the request.
- A refusal that came with a text is sent back in its own member, to the provider that made it.
- A failed result has no flag on this wire, so its text has to describe the failure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from ...catalog.provider import Provider
from ...json.json_values import JSON, JSONObject
from ...model.messages import (
    ASSISTANT,
    SYSTEM,
    Block,
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    state_for,
)
from ...model.prefix_cache import Segment
from ...wire.call_ids import Place, TakenIds, field_of, unique_id
from ...wire.omission_warnings import block_name, foreign_thinking, note_foreign_refusal
from ...wire.quirks import ToolCallIdForm
from ...wire.tool_names import named_call
from ..system_messages import wire_role
from .block_writer import BlockWriter, PlacedBlock, plain_text
from .reasoning import DETAILS, STATE_MEMBER, TEXT_MEMBERS, state_members

_ALPHANUMERICS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_ACCEPTED: dict[ToolCallIdForm, tuple[re.Pattern[str], str, int]] = {
    "at_most_40": (re.compile(r".{1,40}", re.DOTALL), "call_", 24),
    "nine_alphanumerics": (re.compile(r"[a-zA-Z0-9]{9}"), "", 9),
}
"""Form of ids → the pattern of accepted ids, and the prefix and length of a replacement. `any` has no row."""


def wire_call_id(id: str, form: ToolCallIdForm) -> str:
    """Return a call's id if the server accepts it, else one derived from it."""
    if form == "any":
        return id
    pattern, prefix, length = _ACCEPTED[form]
    if pattern.fullmatch(id):
        return id
    number = int.from_bytes(sha256(id.encode("utf-8", "surrogatepass")).digest(), "big")
    characters: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHANUMERICS))
        characters.append(_ALPHANUMERICS[digit])
    return prefix + "".join(characters)


@dataclass(slots=True, frozen=True)
class WriterState:
    """What the writer of the next segment must know.

    open_calls: the calls without results so far, as their ids and positions.
    """

    open_calls: tuple[tuple[str, Place], ...]


NOTHING_LEFT = WriterState(())
"""The state if every call has its result."""


class MessageWriter:
    """Writes the messages of one request, or of a segment of it.

    warnings: gets a warning for each thing that cannot be sent.
    model: the model that they are for; empty if it is not known.
    """

    __slots__ = ("_answers", "_messages", "_model", "_provider", "_quirks", "_waiting", "_warnings")

    def __init__(self, provider: Provider, warnings: list[str], model: str = "") -> None:
        self._model = model
        self._provider = provider
        self._quirks = provider.profile.quirks
        self._warnings = warnings
        self._messages: list[JSONObject] = []
        self._answers: dict[Place, tuple[ToolResult, Place]] = {}
        self._waiting: dict[str, list[Place]] = {}

    @property
    def _parts(self) -> BlockWriter:
        """Writes content that is not one plain text, which few messages have."""
        return BlockWriter(self._quirks, self._warnings, self._model)

    def write(self, messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        """Return the wire messages, or None if they cannot be written apart from earlier ones: `prefix_cache.Write`."""
        for id, place in state.open_calls if state is not None else ():
            self._waiting.setdefault(id, []).append(place)
        if not self._pair(messages, first):
            return None
        for number, message in enumerate(messages, first):
            if message.role is ASSISTANT:
                self._add_assistant(message.content, number)
            elif message.role is SYSTEM:
                role = wire_role(message.content, self._provider.maker, self._quirks.system_role)
                self._add_content(role, message.content, number)
            else:
                self._add_content("user", message.content, number)
        if not any(self._waiting.values()):
            return Segment(self._messages, NOTHING_LEFT, self._warnings, [])
        open_calls = tuple((id, place) for id, places in self._waiting.items() for place in places)
        return Segment(
            self._messages, WriterState(open_calls), self._warnings, [_unanswered(*call) for call in open_calls]
        )

    def _pair(self, messages: Sequence[Message], first: int) -> bool:
        """Find each call's result: the first one after it with its id that answers no other call.

        Returns False if a result's call is in an earlier segment.
        """
        waiting = self._waiting
        for number, message in enumerate(messages, first):
            for position, block in enumerate(message.content):
                if type(block) is ToolCall:
                    waiting.setdefault(block.id, []).append((number, position))
                elif type(block) is ToolResult:
                    calls = waiting.get(block.tool_call_id)
                    if not calls:
                        where = field_of(number, position)
                        self._warnings.append(f"{where}: result {block.tool_call_id!r} has no call and is not sent")
                        continue
                    call = calls.pop(0)
                    if call[0] < first:
                        return False
                    self._answers[call] = block, (number, position)
        return True

    def _add_content(self, role: str, content: Sequence[Block], number: int) -> None:
        """Add text, pictures and files as a message with this role."""
        text = plain_text(content)
        if text is not None:
            if text:
                self._messages.append({"role": role, "content": text})
            return
        blocks: list[PlacedBlock] = []
        for position, block in enumerate(content):
            if type(block) is ToolResult:
                continue  # it follows the message with its call
            if type(block) is ProviderBlock:
                self._warnings.append(f"{field_of(number, position)}: {block_name(block)} is not sent")
            elif isinstance(block, (Image, File)) or (type(block) is Text and block.text):
                blocks.append((field_of(number, position), block))
        if blocks:
            self._messages.append({"role": role, "content": self._parts.content(blocks)})

    def _add_assistant(self, content: Sequence[Block], number: int) -> None:
        """Add an assistant's blocks as a message, and the results of its calls after it."""
        texts: list[Text] = []
        thinking: list[Thinking | RedactedThinking] = []
        calls: list[JSON] = []
        answers: list[tuple[str, ToolResult, Place]] = []
        wire: JSONObject = {"role": "assistant"}
        taken: TakenIds = {}
        for position, block in enumerate(content):
            if type(block) is Text:
                if block.text:
                    texts.append(block)
                if block.state is not None:
                    self.add_text_state(wire, block.state)
            elif type(block) is ToolCall:
                answer = self._answers.get((number, position))
                if answer is not None:
                    id = wire_call_id(block.id, self._quirks.tool_call_id)
                    if id in taken:
                        id = unique_id(block.id, taken, self._wire_id)
                    taken[id] = 1
                    calls.append(self.call(named_call(block, self._quirks.tool_name, self._warnings), id))
                    result, place = answer
                    answers.append((id, result, place))
            elif isinstance(block, (Thinking, RedactedThinking)):
                thinking.append(block)
            elif isinstance(block, (Image, File, ProviderBlock)):
                self._add_other(block, wire, field_of(number, position))
        if thinking or self._quirks.reasoning_required:
            self.add_reasoning(wire, texts, thinking, bool(calls))
        if texts and "content" not in wire:
            text = plain_text(texts)
            wire["content"] = self._parts.text_content(texts, f"messages[{number}]") if text is None else text
        elif calls and "content" not in wire:
            wire["content"] = None
        if calls:
            wire["tool_calls"] = calls
        if texts or calls or "audio" in wire:
            self._messages.append(wire)
        if answers:
            self._add_results(answers)

    def _wire_id(self, id: str) -> str:
        return wire_call_id(id, self._quirks.tool_call_id)

    def _add_other(self, block: Image | File | ProviderBlock, wire: JSONObject, where: str) -> None:
        """Refer to sound by its id. Warn about any other block, because an assistant's message cannot have it."""
        if self.add_sound(block, wire):
            return
        name = block_name(block).removeprefix("a ") if isinstance(block, ProviderBlock) else repr(type(block).__name__)
        self._warnings.append(f"{where}: an assistant's {name} is not sent; this dialect has no form for it")

    def add_sound(self, block: Image | File | ProviderBlock, wire: JSONObject) -> bool:
        """Refer to sound of this provider by its id. Returns False for any other block."""
        audio = state_for(block.state, self._provider.maker).get("audio") if isinstance(block, File) else None
        if type(audio) is not dict or not audio.get("id"):
            return False
        wire["audio"] = {"id": audio["id"]}
        return True

    def call(self, block: ToolCall, id: str) -> JSONObject:
        function: JSONObject = {"name": block.name, "arguments": block.arguments or "{}"}
        if block.state is None:
            return {"id": id, "type": "function", "function": function}
        state = state_for(block.state, self._provider.maker)
        if state.get("type") == "custom":
            return {"id": id, "type": "custom", "custom": {"name": block.name, "input": block.arguments}}
        return {"id": id, "type": "function", "function": function, **state_members(state)}

    def _add_results(self, answers: Sequence[tuple[str, ToolResult, Place]]) -> None:
        """Add the results of one message's calls, and then their pictures and files."""
        following: list[PlacedBlock] = []
        for id, result, place in answers:
            if result.is_error:
                where = field_of(*place)
                self._warnings.append(f"{where}.is_error: not sent; this dialect has no mark for failed results")
            content: JSON = None
            if result.cache_control is None:
                content = result.content if isinstance(result.content, str) else plain_text(result.content)
            if content is None:
                content = self._result_content(id, result, field_of(*place), following)
            self._messages.append({"role": "tool", "tool_call_id": id, "content": content})
        if following:
            self._messages.append({"role": "user", "content": self._parts.content(following)})

    def _result_content(self, id: str, result: ToolResult, where: str, following: list[PlacedBlock]) -> JSON:
        """Return a result's text. Adds its other blocks to `following`."""
        blocks = [Text(result.content)] if isinstance(result.content, str) else result.content
        texts = [block for block in blocks if isinstance(block, Text)]
        others = [
            (f"{where}.content[{position}]", block)
            for position, block in enumerate(blocks)
            if not isinstance(block, Text)
        ]
        if result.cache_control is not None and texts:
            texts[-1] = Text(texts[-1].text, cache_control=result.cache_control)
        content = self._parts.text_content(texts, where)
        if others:
            content = content if texts else f"The files of tool result {id} follow."
            following += [(where, Text(f"The files of tool result {id}:")), *others]
            self._warnings.append(f"{where}: its pictures and files are sent in a user's message after the results")
        return content

    # --- reasoning ---

    def add_reasoning(
        self, wire: JSONObject, texts: list[Text], thinking: Sequence[Thinking | RedactedThinking], with_calls: bool
    ) -> None:
        """Add the reasoning that the server wants back to an assistant's message.

        with_calls: whether the message has calls.
        """
        maker = self._provider.maker
        own = [
            block for block in thinking if isinstance(block, Thinking) and block.state and block.state.provider == maker
        ]
        if len(own) < len(thinking):
            self._warnings.append(foreign_thinking(maker))
        for block in own:
            wire.update(self.own_state(block.state))
        member = self._quirks.reasoning_return
        signed = member == "thinking_parts" and any(block.signature for block in own)
        if not (with_calls or signed) or member == "none":
            return
        text = "".join(block.text for block in own)
        if member == "reasoning_details":
            # Unsigned reasoning is sent back as text.
            if text and DETAILS not in wire:
                wire["reasoning"] = text
        elif member == "as_received":
            received = state_for(own[-1].state, maker).get(STATE_MEMBER) if own else None
            if text and type(received) is str and received in TEXT_MEMBERS:
                wire[received] = text
        elif member == "thinking_parts":
            if text or signed:
                parts: list[JSON] = [*(_thinking_parts(own) if signed else [_thinking_part(text)])]
                parts.extend({"type": "text", "text": block.text} for block in texts)
                wire["content"] = parts
        elif text or self._quirks.reasoning_required:
            wire[member] = text

    def add_text_state(self, wire: JSONObject, state: ProviderState | None) -> None:
        """Add the members of an assistant's message that a text's state has, or a warning for another's refusal."""
        wire.update(self.own_state(state))
        note_foreign_refusal(state, self._provider.maker, self._warnings)

    def own_state(self, state: ProviderState | None) -> JSONObject:
        """Return the members of an assistant's message that a block's state has."""
        return state_members(state_for(state, self._provider.maker))


def _thinking_part(text: str) -> JSONObject:
    """Return reasoning as a part of the content (Mistral)."""
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}] if text else []}


def _thinking_parts(blocks: Sequence[Thinking]) -> list[JSON]:
    """Return a part for each block. The server gets the signatures back that it made."""
    parts: list[JSON] = []
    for block in blocks:
        part = _thinking_part(block.text)
        if block.signature:
            part["signature"] = block.signature
        if block.text or block.signature:
            parts.append(part)
    return parts


def _unanswered(id: str, place: Place) -> str:
    return f"{field_of(*place)}: call {id!r} has no result and is not sent"
