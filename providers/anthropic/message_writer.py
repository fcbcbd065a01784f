"""A conversation → Anthropic's `messages`: strictly alternating turns in which every call has its result.

The rules, all Anthropic's own (https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview):
- Messages of the user and results of tools are one role; neighbours of one role become one message.
- The results of a turn's calls stand first in the message directly after it, wherever the history has them.
- A call without a result, and a result without a call, cannot be sent: they are left out, with a warning.
- Call ids are unique and of `[a-zA-Z0-9_-]`; others are rewritten, the same key in the call and in its result.
- Thinking goes back only to the provider that made it, and never ends a message.
- A message that is one plain text is sent as a string.
- The first message is the user's. Before an assistant's, one is put that says so, with a warning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..call_ids import TakenIds, unique_id
from ..errors import InvalidRequestError
from ..json_values import JSONObject, string
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
from ..omission_warnings import OPENING, foreign_block, opening_added, unanswered_call, unasked_result
from ..prefix_cache import Segment
from ..profile import Profile
from ..tool_names import named_call
from .block_writer import wire_call_id, wire_part_of, wire_text, wire_thinking_block, wire_tool_call, wire_tool_result

Place: TypeAlias = "tuple[int, int]"
"""A block's place in the conversation: message, block."""

UNSENT_THINKING = ("thinking", "redacted_thinking")


class Turn:
    """One wire message under construction. `results` come before `content`."""

    __slots__ = ("content", "results", "role")

    def __init__(self, role: str) -> None:
        self.role: str = role
        self.results: list[JSONObject] = []
        self.content: list[JSONObject] = []


@dataclass(slots=True, frozen=True)
class WriterState:
    """What messages leave to those after them: the ids that calls have on the wire, and the calls without results.
    The last turn is the user's, so theirs has to be the model's."""

    taken: frozenset[str]
    open_calls: tuple[str, ...]


class MessageWriter:
    """Builds the turns of one request, or of a segment of its messages, for the provider of a profile."""

    __slots__ = (
        "call_ids",
        "profile",
        "provider",
        "result_calls",
        "taken",
        "turn_of_call",
        "turns",
        "waiting",
        "warnings",
    )

    def __init__(self, profile: Profile) -> None:
        self.profile: Profile = profile
        self.provider: str = profile.name
        self.warnings: list[str] = []
        self.turns: list[Turn] = []
        self.call_ids: dict[Place, str] = {}
        self.result_calls: dict[Place, Place] = {}
        self.turn_of_call: dict[Place, int] = {}
        self.waiting: dict[str, deque[Place | None]] = {}  # None: a call of an earlier segment
        self.taken: TakenIds = TakenIds()

    def write(self, messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        """The wire messages; see `written.Write`."""
        if state is not None:
            self.taken.update(state.taken)
            for call_id in state.open_calls:
                self.waiting.setdefault(call_id, deque()).append(None)
        if not self._pair(messages, first):
            return None
        for number, message in enumerate(messages, first):
            if message.role is Role.ASSISTANT:
                self._add_assistant(message.content, number)
            else:
                self._add_user(message.content, number)
        ends_with_user = bool(self.turns) and self.turns[-1].role == "user"
        self._trim()
        if not first and self.turns and self.turns[0].role == "assistant":
            opening = Turn("user")
            opening.content.append({"type": "text", "text": OPENING})
            self.turns.insert(0, opening)
            self.warnings.append(opening_added("Anthropic"))
        if state is not None and self.turns and self.turns[0].role == "user":
            return None
        return Segment(
            [_wire_message(turn) for turn in self.turns],
            WriterState(frozenset(self.taken), tuple(self._unanswered())) if ends_with_user else None,
            self.warnings,
            [unanswered_call(call_id) for call_id in self._unanswered()],
        )

    def _pair(self, messages: Sequence[Message], first: int) -> bool:
        """Find each call's result, and give the pairs their ids. Calls of one run of the model's messages that share an
        id are answered in order; a later run that uses the id again gives up what an earlier one left unanswered. False
        where a result's call is in an earlier segment."""
        run_began = first
        for number, message in enumerate(messages, first):
            if message.role is not Role.ASSISTANT:
                run_began = number + 1
            for position, block in enumerate(message.content):
                if type(block) is ToolCall:
                    calls = self.waiting.setdefault(block.id, deque())
                    while calls and (calls[0] is None or calls[0][0] < run_began):
                        calls.popleft()
                        self.warnings.append(unanswered_call(block.id))
                    calls.append((number, position))
                elif type(block) is ToolResult and not self._pair_result(block.tool_call_id, (number, position)):
                    return False
        return True

    def _pair_result(self, call_id: str, place: Place) -> bool:
        calls = self.waiting.get(call_id)
        if not calls:
            self.warnings.append(unasked_result(call_id))
            return True
        call = calls.popleft()
        if call is None:
            return False
        self.result_calls[place] = call
        wire_id = self.call_ids[call] = unique_id(wire_call_id(call_id), self.taken)
        self.taken.add(wire_id)
        return True

    def _unanswered(self) -> list[str]:
        """The ids of the calls without results."""
        return [call_id for call_id, calls in self.waiting.items() for _ in calls]

    def _add_assistant(self, content: Sequence[Block], number: int) -> None:
        for position, block in enumerate(content):
            wire: JSONObject | None
            if type(block) is Text:
                wire = wire_text(block, with_citations=True)
            elif type(block) is ToolCall:
                call_id = self.call_ids.get((number, position))
                if call_id is None:
                    continue
                call = named_call(block, self.profile.quirks.tool_name, self.warnings)
                wire = wire_tool_call(call, call_id, self.provider, self.warnings)
            elif type(block) is ToolResult:
                self._add_result(block, (number, position))
                continue
            else:
                wire = self._assistant_wire(block)
            if wire is not None:
                self._turn("assistant").content.append(wire)
                if type(block) is ToolCall:
                    self.turn_of_call[number, position] = len(self.turns) - 1

    def _assistant_wire(self, block: Block) -> JSONObject | None:
        """A block that is neither text nor call nor result."""
        if isinstance(block, (Thinking, RedactedThinking)):
            return wire_thinking_block(block, self.profile, self.warnings)
        if type(block) is ProviderBlock:
            return self._own(block)
        self.warnings.append(f"messages: an assistant's {type(block).__name__} is not sent; Anthropic takes none")
        return None

    def _add_user(self, content: Sequence[Block], number: int) -> None:
        for position, block in enumerate(content):
            wire: JSONObject | None
            if type(block) is Text:
                wire = wire_text(block)
            elif type(block) is ToolResult:
                self._add_result(block, (number, position))
                continue
            elif isinstance(block, (Image, File)):
                wire = wire_part_of(block, _field(number, position), self.warnings)
            elif type(block) is ProviderBlock:
                wire = self._own(block)
            else:
                kind = type(block).__name__
                raise InvalidRequestError(_field(number, position), f"a user's message cannot hold a {kind} block")
            if wire is not None:
                self._turn("user").content.append(wire)

    def _own(self, block: ProviderBlock) -> JSONObject | None:
        """A provider's own content goes back to that provider alone."""
        if block.provider == self.provider:
            return block.data
        self.warnings.append(foreign_block(block))
        return None

    def _add_result(self, block: ToolResult, place: Place) -> None:
        call = self.result_calls.get(place)
        if call is None:
            return
        following = self.turn_of_call[call] + 1
        if following == len(self.turns):
            self.turns.append(Turn("user"))
        field = "" if isinstance(block.content, str) else _field(*place)  # named in errors about parts alone
        wire = wire_tool_result(block, self.call_ids[call], field, self.warnings)
        self.turns[following].results.append(wire)

    def _turn(self, role: str) -> Turn:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(Turn(role))
        return self.turns[-1]

    def _trim(self) -> None:
        """Take away what Anthropic refuses at the end of an assistant's turn: thinking that led to nothing, and white
        space after the text that the answer is to continue."""
        for turn in self.turns:
            if turn.role == "assistant":
                while turn.content and string(turn.content[-1], "type") in UNSENT_THINKING:
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


def _field(number: int, position: int) -> str:
    return f"messages[{number}].content[{position}]"


def _wire_message(turn: Turn) -> JSONObject:
    content = turn.content
    if len(content) == 1 and not turn.results:
        only = content[0]
        if len(only) == 2 and only.get("type") == "text" and "text" in only:
            return {"role": turn.role, "content": only["text"]}
    return {"role": turn.role, "content": [*turn.results, *content]}
