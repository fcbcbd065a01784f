"""Writes a conversation as Anthropic's `messages`: strictly alternating turns in which every call has its result.

The rules, all Anthropic's own (https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview):
- The user's messages and the results of tools have one role. Adjacent messages of one role become one message.
- The results of a turn's calls come first in the message directly after it, wherever the history has them.
- A call without a result, and a result without a call, cannot be sent. They are left out with a warning.
- Call ids are unique and match `[a-zA-Z0-9_-]+`. Another id is replaced by the same text in call and result.
- Thinking is sent only to the provider that made it, and is never the end of a message.
- A message with one plain text is sent as a string.
- A system message stands after a user's message and before an assistant's. So it belongs to a user's turn here, and is
  sent after it.
- The first message is the user's. If it is an assistant's, `OPENING` is inserted before it, with a warning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..catalog.provider import Provider, takes_block
from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, string
from ..model.messages import (
    ASSISTANT,
    SYSTEM,
    Block,
    File,
    Image,
    Message,
    ProviderBlock,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ..model.prefix_cache import Segment
from ..wire.call_ids import Place, TakenIds, field_of, unique_id
from ..wire.omission_warnings import (
    OPENING,
    cut_off_block,
    foreign_block,
    note_foreign_refusal,
    opening_added,
    system_moved,
    thinking_at_the_end,
    unanswered_call,
    unasked_result,
)
from ..wire.tool_names import named_call
from .block_writer import (
    TOOLSET,
    system_members,
    wire_call_id,
    wire_part_of,
    wire_text,
    wire_thinking_block,
    wire_tool_call,
    wire_tool_result,
)

UNSENT_THINKING = ("thinking", "redacted_thinking")
"""Types of wire blocks that must not end an assistant's message."""


class Turn:
    """One wire message under construction, and the system message after it.

    role: `user` or `assistant`.
    results: tool results, which come first.
    content: all other blocks.
    system: the blocks of the system message.
    members: the members of the system message beside its content.
    """

    __slots__ = ("content", "members", "results", "role", "system")

    def __init__(self, role: str) -> None:
        self.role: str = role
        self.results: list[JSONObject] = []
        self.content: list[JSONObject] = []
        self.system: list[JSONObject] = []
        self.members: JSONObject = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not (self.content or self.results or self.system or self.members)


@dataclass(slots=True, frozen=True)
class WriterState:
    """What the writer of the next segment must know. The segment before it ended with a user's message, so the next one
    must begin with an assistant's.

    taken: the wire ids of all calls so far.
    open_calls: the ids of calls that have no result yet.
    """

    taken: frozenset[str]
    open_calls: tuple[str, ...]


@dataclass(slots=True, eq=False, repr=False)
class MessageWriter:
    """Writes the messages of one request, or of a segment of it, for a provider."""

    provider: Provider
    maker: str = field(init=False)
    warnings: list[str] = field(default_factory=lambda: [], init=False)
    turns: list[Turn] = field(default_factory=lambda: [], init=False)
    call_ids: dict[Place, str] = field(default_factory=lambda: {}, init=False)
    result_calls: dict[Place, Place] = field(default_factory=lambda: {}, init=False)
    turn_of_call: dict[Place, int] = field(default_factory=lambda: {}, init=False)
    toolsets: dict[Place, JSON] = field(default_factory=lambda: {}, init=False)
    # None: a call of an earlier segment
    waiting: dict[str, deque[Place | None]] = field(default_factory=lambda: {}, init=False)
    taken: TakenIds = field(default_factory=TakenIds, init=False)

    def __post_init__(self) -> None:
        self.maker = self.provider.maker

    def write(self, messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        """Return the wire messages, or None if they cannot be written apart from earlier ones: `prefix_cache.Write`."""
        if state is not None:
            self.taken.update(dict.fromkeys(state.taken, 1))
            for call_id in state.open_calls:
                self.waiting.setdefault(call_id, deque()).append(None)
        if not self._pair(messages, first):
            return None
        for number, message in enumerate(messages, first):
            if message.role is ASSISTANT:
                self._add_assistant(message.content, number)
            elif message.role is SYSTEM:
                self._add_system(message.content, number)
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
            [message for turn in self.turns for message in _wire_messages(turn)],
            WriterState(frozenset(self.taken), tuple(self._unanswered())) if ends_with_user else None,
            self.warnings,
            [unanswered_call(call_id) for call_id in self._unanswered()],
        )

    def _pair(self, messages: Sequence[Message], first: int) -> bool:
        """Find each call's result, and give each pair its id.

        Returns False if a result's call is in an earlier segment. Calls that share an id within one run of assistant
        messages are answered in order. If a later run uses the id again, unanswered calls of the earlier run get no
        result.
        """
        run_began = first
        for number, message in enumerate(messages, first):
            if message.role is not ASSISTANT:
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
        """Pair a result with the first call of its id. Returns False if that call is in an earlier segment."""
        calls = self.waiting.get(call_id)
        if not calls:
            self.warnings.append(unasked_result(call_id))
            return True
        call = calls.popleft()
        if call is None:
            return False
        self.result_calls[place] = call
        wire_id = self.call_ids[call] = unique_id(wire_call_id(call_id), self.taken)
        self.taken[wire_id] = 1
        return True

    def _unanswered(self) -> list[str]:
        return [call_id for call_id, calls in self.waiting.items() for _ in calls]

    def _add_assistant(self, content: Sequence[Block], number: int) -> None:
        for position, block in enumerate(content):
            wire: JSONObject | None
            if type(block) is Text:
                if block.state is not None:
                    note_foreign_refusal(block.state, self.maker, self.warnings)
                wire = wire_text(block, with_citations=True)
            elif type(block) is ToolCall:
                call_id = self.call_ids.get((number, position))
                if call_id is None:
                    continue
                call = named_call(block, self.provider.profile.quirks.tool_name, self.warnings)
                wire = wire_tool_call(call, call_id, self.maker, self.warnings)
            elif type(block) is ToolResult:
                self._add_result(block, (number, position))
                continue
            else:
                wire = self._assistant_wire(block)
            if wire is not None:
                self._turn("assistant").content.append(wire)
                if type(block) is ToolCall:
                    self.turn_of_call[number, position] = len(self.turns) - 1
                    if TOOLSET in wire:
                        self.toolsets[number, position] = wire[TOOLSET]

    def _assistant_wire(self, block: Block) -> JSONObject | None:
        """Return the wire form of an assistant's block other than a text, call or result; None if it is not sent."""
        if isinstance(block, (Thinking, RedactedThinking)):
            return wire_thinking_block(block, self.provider, self.warnings)
        if type(block) is ProviderBlock:
            return self._own(block)
        self.warnings.append(f"messages: an assistant's {type(block).__name__} is not sent; Anthropic takes none")
        return None

    def _add_user(self, content: Sequence[Block], number: int) -> None:
        for position, block in enumerate(content):
            wire: JSONObject | None
            if type(block) is Text:
                wire = wire_text(block) if block.state is None else wire_part_of(block, "", [], self.maker)
            elif type(block) is ToolResult:
                self._add_result(block, (number, position))
                continue
            elif isinstance(block, (Image, File)):
                wire = wire_part_of(block, field_of(number, position), self.warnings, self.maker)
            elif type(block) is ProviderBlock:
                wire = self._own(block)
            else:
                kind = type(block).__name__
                raise InvalidRequestError(field_of(number, position), f"a user's message cannot hold a {kind} block")
            if wire is not None:
                turn = self._turn("user")
                turn.content.append(wire)
                if turn.system:
                    self.warnings.append(system_moved("Anthropic"))

    def _add_system(self, content: Sequence[Block], number: int) -> None:
        """Add a system message to the user's turn that it stands in."""
        turn = self._turn("user")
        turn.members.update(system_members(content, self.maker))
        for position, block in enumerate(content):
            if type(block) is Text:
                wire = wire_text(block)
            elif type(block) is ProviderBlock:
                wire = self._own(block)
            else:
                raise InvalidRequestError(field_of(number, position), "Anthropic takes only text in a system message")
            if wire is not None:
                turn.system.append(wire)

    def _own(self, block: ProviderBlock) -> JSONObject | None:
        """Return a provider's own block for that provider; None, with a warning, for any other.

        The input of a call that was cut off is text (`ProviderBlockInProgress`), which Anthropic refuses.
        """
        if type(block.data.get("input")) is str and block.kind.endswith("_tool_use"):
            self.warnings.append(cut_off_block(block))
            return None
        if takes_block(self.provider, block):
            return block.data
        self.warnings.append(foreign_block(block))
        return None

    def _add_result(self, block: ToolResult, place: Place) -> None:
        """Add a result to the turn after its call's, unless it has no call."""
        call = self.result_calls.get(place)
        if call is None:
            return
        following = self.turn_of_call[call] + 1
        if following == len(self.turns):
            self.turns.append(Turn("user"))
        field = "" if isinstance(block.content, str) else field_of(*place)  # only errors about parts name it
        wire = wire_tool_result(block, self.call_ids[call], field, self.warnings, self.maker)
        if call in self.toolsets:
            wire[TOOLSET] = self.toolsets[call]
        self.turns[following].results.append(wire)

    def _turn(self, role: str) -> Turn:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(Turn(role))
        return self.turns[-1]

    def _trim(self) -> None:
        """Remove what Anthropic refuses at the end of an assistant's turn.

        That is thinking without anything after it, and, in the last turn, white space after the text that the answer
        will continue.
        """
        for turn in self.turns:
            if turn.role == "assistant":
                while turn.content and string(turn.content[-1], "type") in UNSENT_THINKING:
                    turn.content.pop()
                    self.warnings.append(thinking_at_the_end("Anthropic"))
        if any(turn.is_empty for turn in self.turns):
            self._close_gaps()
        if self.turns and self.turns[-1].role == "assistant":
            last = self.turns[-1].content[-1]
            text = last.get("text")
            if last.get("type") == "text" and isinstance(text, str):
                self.turns[-1].content[-1] = {**last, "text": text.rstrip()}

    def _close_gaps(self) -> None:
        """Remove turns without content. The turns on both sides of one are merged."""
        kept: list[Turn] = []
        for turn in self.turns:
            if turn.is_empty:
                continue
            if kept and kept[-1].role == turn.role:
                kept[-1].content.extend(turn.content)  # it has no results: the turn before it has no calls
                kept[-1].system.extend(turn.system)
                kept[-1].members.update(turn.members)
            else:
                kept.append(turn)
        self.turns = kept


def _wire_messages(turn: Turn) -> list[JSONObject]:
    wire: list[JSONObject] = []
    if turn.content or turn.results:
        wire.append({"role": turn.role, "content": _wire_content([*turn.results, *turn.content])})
    if turn.system or turn.members:
        wire.append({"role": "system", "content": _wire_content(turn.system), **turn.members})
    return wire


def _wire_content(blocks: list[JSONObject]) -> JSON:
    """Return a message's content: one plain text as a string."""
    only = blocks[0] if len(blocks) == 1 else {}
    if len(only) == 2 and only.get("type") == "text" and "text" in only:
        return only["text"]
    return [*blocks]
