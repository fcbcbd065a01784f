"""A conversation → Anthropic's `messages`: strictly alternating turns in which every call has its result.

The rules, all Anthropic's own (https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview):
- Messages of the user and results of tools are one role; neighbours of one role become one message.
- The results of a turn's calls stand first in the message directly after it, wherever the history has them.
- A call without a result, and a result without a call, cannot be sent: they are left out, with a warning.
- Call ids are unique and of `[a-zA-Z0-9_-]`; others are rewritten, the same way in the call and in its result.
- Thinking goes back only to the provider that made it, and never ends a message.
- A message that is one plain text is sent as a string.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import InvalidRequestError
from ..json_values import JSON, JSONObject
from ..messages import (
    Block,
    File,
    Image,
    Message,
    ProviderBlock,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from .content import wire_call_id, wire_part_of, wire_text, wire_thinking_block, wire_tool_call, wire_tool_result

Place: TypeAlias = "tuple[int, int]"
"""A block's place in the conversation: message, block."""

UNSENT_THINKING = ("thinking", "redacted_thinking")


@dataclass(slots=True)
class Turn:
    """One wire message under construction. `results` come before `content`."""

    role: str
    results: list[JSONObject] = field(default_factory=list[JSONObject])
    content: list[JSONObject] = field(default_factory=list[JSONObject])


class Turns:
    """Builds the turns of one request."""

    __slots__ = ("call_ids", "provider", "result_calls", "turn_of_call", "turns", "warnings")

    def __init__(self, provider: str, warnings: list[str]) -> None:
        self.provider = provider
        self.warnings = warnings
        self.turns: list[Turn] = []
        self.call_ids: dict[Place, str] = {}
        self.result_calls: dict[Place, Place] = {}
        self.turn_of_call: dict[Place, int] = {}

    def build(self, messages: list[Message]) -> list[JSONObject]:
        """The wire messages. Raises `InvalidRequestError` where nothing is left to send."""
        self._pair(messages)
        for number, message in enumerate(messages):
            add = self._add_assistant_block if message.role is Role.ASSISTANT else self._add_user_block
            for position, block in enumerate(message.content):
                add(block, (number, position))
        self._trim()
        wire = [_wire_message(turn) for turn in self.turns]
        if not wire:
            raise InvalidRequestError("messages", "hold nothing that Anthropic takes: no text, no call, no file")
        return wire

    def _pair(self, messages: list[Message]) -> None:
        """Find each call's result, and give the pairs their ids. A result answers the latest call of its id."""
        waiting: dict[str, Place] = {}
        taken: set[str] = set()
        for number, message in enumerate(messages):
            for position, block in enumerate(message.content):
                place = (number, position)
                if isinstance(block, ToolCall):
                    if block.id in waiting:
                        self.warnings.append(f"messages: call {block.id!r} has no result and is not sent")
                    waiting[block.id] = place
                elif isinstance(block, ToolResult):
                    call = waiting.pop(block.tool_call_id, None)
                    if call is None:
                        self.warnings.append(f"messages: result {block.tool_call_id!r} has no call and is not sent")
                        continue
                    self.result_calls[place] = call
                    self.call_ids[call] = _unique(wire_call_id(block.tool_call_id), taken)
        self.warnings.extend(f"messages: call {call_id!r} has no result and is not sent" for call_id in waiting)

    def _add_assistant_block(self, block: Block, place: Place) -> None:
        if isinstance(block, ToolResult):
            self._add_result(block, place)
            return
        wire = self._assistant_wire(block, place)
        if wire is None:
            return
        turn = self._turn("assistant")
        turn.content.append(wire)
        if isinstance(block, ToolCall):
            self.turn_of_call[place] = len(self.turns) - 1

    def _assistant_wire(self, block: Block, place: Place) -> JSONObject | None:
        if isinstance(block, Text):
            return wire_text(block, with_citations=True)
        if isinstance(block, Thinking | RedactedThinking):
            return wire_thinking_block(block, self.provider)
        if isinstance(block, ToolCall):
            call_id = self.call_ids.get(place)
            return None if call_id is None else wire_tool_call(block, call_id, self.provider, self.warnings)
        if isinstance(block, ProviderBlock):
            return block.data if block.provider == self.provider else None
        self.warnings.append(f"messages: an assistant's {type(block).__name__} is not sent; Anthropic takes none")
        return None

    def _add_user_block(self, block: Block, place: Place) -> None:
        field_name = f"messages[{place[0]}].content[{place[1]}]"
        wire: JSONObject | None
        if isinstance(block, ToolResult):
            self._add_result(block, place)
            return
        if isinstance(block, Text | Image | File):
            wire = wire_part_of(block, field_name, self.warnings)
        elif isinstance(block, ProviderBlock):
            wire = block.data if block.provider == self.provider else None
        else:
            raise InvalidRequestError(field_name, f"a user's message cannot hold a {type(block).__name__} block")
        if wire is not None:
            self._turn("user").content.append(wire)

    def _add_result(self, block: ToolResult, place: Place) -> None:
        call = self.result_calls.get(place)
        if call is None:
            return
        following = self.turn_of_call[call] + 1
        if following == len(self.turns):
            self.turns.append(Turn("user"))
        field_name = f"messages[{place[0]}].content[{place[1]}]"
        self.turns[following].results.append(wire_tool_result(block, self.call_ids[call], field_name, self.warnings))

    def _turn(self, role: str) -> Turn:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(Turn(role))
        return self.turns[-1]

    def _trim(self) -> None:
        """Take away what Anthropic refuses at the end of an assistant's turn: thinking that led to nothing, and white
        space after the text that the answer is to continue."""
        for turn in self.turns:
            if turn.role == "assistant":
                while turn.content and turn.content[-1].get("type") in UNSENT_THINKING:
                    turn.content.pop()
        if any(not turn.content and not turn.results for turn in self.turns):
            self._close_gaps()
        if self.turns and self.turns[-1].role == "assistant":
            last = self.turns[-1].content[-1]
            text = last.get("text")
            if last.get("type") == "text" and isinstance(text, str):
                self.turns[-1].content[-1] = {**last, "text": text.rstrip()}

    def _close_gaps(self) -> None:
        """Drop the turns that lost all their content; what stood on both sides of one becomes one turn."""
        kept: list[Turn] = []
        for turn in self.turns:
            if not turn.content and not turn.results:
                continue
            if kept and kept[-1].role == turn.role:
                kept[-1].results.extend(turn.results)
                kept[-1].content.extend(turn.content)
            else:
                kept.append(turn)
        self.turns = kept


def _unique(call_id: str, taken: set[str]) -> str:
    """The id, numbered where an earlier call of the conversation has it: some servers count from 0 in every answer."""
    unique, number = call_id, 1
    while unique in taken:
        number += 1
        unique = f"{call_id}_{number}"
    taken.add(unique)
    return unique


def _wire_message(turn: Turn) -> JSONObject:
    blocks: list[JSON] = [*turn.results, *turn.content]
    only = turn.content[0] if len(blocks) == 1 and turn.content else None
    if only is not None and only.get("type") == "text" and only.keys() == {"type", "text"}:
        return {"role": turn.role, "content": only["text"]}
    return {"role": turn.role, "content": blocks}
