"""A conversation → the `input` items of a Responses request.

The rules:
- Results stand directly after the run of assistant items that holds their calls, wherever the history has them.
- A call without a result, and a result without a call, is refused by the API: they are left out, with a warning. A
  result whose call the server keeps (`previous_response_id`, `conversation`) is sent.
- Call ids are unique and at most 64 characters long; others are rewritten, in the call and in its result alike.
- Reasoning goes back only to the profile that made it, and only where an item it led to follows it. The item's id
  goes with it; messages and calls are sent without ids, so nothing asks for what was left out of the history.
- Provider blocks go back only to the profile that made them; calls among them only together with their outputs.
- An assistant's text is a message of plain text, with its phase where it had one; neighbouring texts are one message.
- A failed result has no flag on this wire: its text has to say so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from ...call_ids import TakenIds, unique_id
from ...json_values import JSON, JSONObject, string
from ...messages import (
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
from ...omission_warnings import foreign_block, foreign_thinking, unanswered_call, unasked_result
from ...prefix_cache import Segment
from ...profile import ToolNameForm
from ...tool_names import named_call
from .block_writer import MARKS_LEFT_OUT, BlockWriter

CALL_ID_LIMIT = 64

OUTPUT_KIND: dict[str, str] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Kind of item that asks for something → kind of the item that answers it."""

ANSWERS = frozenset(OUTPUT_KIND.values())

NAMES_ITS_CALL = ("call_id", "approval_request_id", "id")
"""Members of an answering item that may hold the call's id."""

Place: TypeAlias = "tuple[int, int]"
"""A block's place in the conversation: message, block."""


@dataclass(slots=True, frozen=True)
class WriterState:
    """What messages leave to those after them: the ids that calls have on the wire; the calls without results, as
    their ids and places; the provider's own calls that were left out for want of an answer, and the calls that are
    answered besides those of `taken`."""

    taken: frozenset[str]
    open_calls: tuple[tuple[str, Place], ...]
    loose: frozenset[str]
    answered: frozenset[str]


class MessageWriter:
    """Builds the input of one request, or of a segment of its messages. `name` is the profile's; `keeps_calls`: whether
    the server knows earlier calls itself; `stores`: whether it keeps this answer's items; `tool_name`: the form of tool
    names that it takes."""

    __slots__ = (
        "answered",
        "answers",
        "call_ids",
        "items",
        "keeps_calls",
        "loose",
        "name",
        "open_calls",
        "open_text",
        "own",
        "parts",
        "reasons",
        "stores",
        "taken",
        "tool_name",
        "waiting",
        "warnings",
    )

    def __init__(
        self, name: str, parts: BlockWriter, *, keeps_calls: bool, stores: bool, tool_name: ToolNameForm = "any"
    ) -> None:
        self.name: str = name
        self.tool_name: ToolNameForm = tool_name
        self.parts: BlockWriter = parts
        self.warnings: list[str] = []
        self.keeps_calls: bool = keeps_calls
        self.stores: bool = stores
        self.items: list[JSONObject] = []
        self.answers: dict[Place, ToolResult] = {}
        self.call_ids: dict[Place, str] = {}
        self.open_text: JSONObject | None = None
        self.waiting: list[JSONObject] = []
        self.open_calls: dict[str, deque[Place]] = {}
        self.taken: TakenIds = TakenIds()
        self.answered: set[str] = set()
        self.loose: set[str] = set()
        self.own: bool = False
        self.reasons: bool = False

    def write(self, messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        """The items, in order; see `written.Write`."""
        if state is not None:
            self.taken.update(state.taken)
            for call_id, place in state.open_calls:
                self.open_calls.setdefault(call_id, deque()).append(place)
        if not self._pair(messages, first):
            return None
        for number, message in enumerate(messages, first):
            self.open_text = None
            if message.role is Role.ASSISTANT:
                for position, block in enumerate(message.content):
                    self._add_assistant_block(block, (number, position))
            else:
                self._add_message(message, number)
        self._add_waiting()
        if self.parts.marks_left_out:
            self.warnings.append(MARKS_LEFT_OUT)
        items = self._without_loose_calls() if self.own else self.items
        if state is not None and self._answered_across(state):
            return None
        open_calls = tuple((call_id, place) for call_id, places in self.open_calls.items() for place in places)
        return Segment(
            without_loose_reasoning(items) if self.reasons or self.own else items,
            self._left(items, open_calls, state),
            self.warnings,
            [unanswered_call(call_id) for call_id, _ in open_calls],
        )

    def _answered_across(self, state: WriterState) -> bool:
        """Whether a provider's own call and its answer are in different stretches."""
        answered = self.answered | self.taken
        return not (answered.isdisjoint(state.loose) and self.loose.isdisjoint(state.answered | state.taken))

    def _left(
        self, items: list[JSONObject], open_calls: tuple[tuple[str, Place], ...], state: WriterState | None
    ) -> WriterState | None:
        """What to tell those after these; None where it depends on them whether the last item is sent."""
        if items and items[-1].get("type") == "reasoning":
            return None
        if state is not None:
            self.loose |= state.loose
            self.answered |= state.answered
        return WriterState(frozenset(self.taken), open_calls, frozenset(self.loose), frozenset(self.answered))

    def _pair(self, messages: Sequence[Message], first: int) -> bool:
        """Find each call's result: calls of one run that share an id are answered in order; a later run that uses an
        id again gives up what an earlier one left unanswered. False where a result's call is in an earlier segment."""
        run_began = first
        for number, message in enumerate(messages, first):
            if message.role is not Role.ASSISTANT:
                run_began = number + 1
            for position, block in enumerate(message.content):
                if type(block) is ToolCall:
                    calls = self.open_calls.setdefault(block.id, deque())
                    while calls and calls[0][0] < run_began:
                        calls.popleft()
                        self.warnings.append(unanswered_call(block.id))
                    calls.append((number, position))
                elif type(block) is ToolResult and not self._pair_result(block, (number, position), first):
                    return False
        return True

    def _pair_result(self, result: ToolResult, place: Place, first: int) -> bool:
        calls = self.open_calls.get(result.tool_call_id)
        if calls:
            call = calls.popleft()
            if call[0] < first:
                return False
            self.answers[call] = result
            wire_id = self.call_ids[call] = unique_id(result.tool_call_id, self.taken, wire_call_id)
            self.taken.add(wire_id)
        elif self.keeps_calls:
            self.call_ids[place] = result.tool_call_id
        else:
            self.warnings.append(unasked_result(result.tool_call_id))
        return True

    def _add_assistant_block(self, block: Block, place: Place) -> None:
        if type(block) is Text:
            self._add_text(block)
            return
        self.open_text = None
        if type(block) is ToolCall:
            self._add_call(block, place)
        elif type(block) is ToolResult:
            self._add_result(block, place)
        elif isinstance(block, (Thinking, RedactedThinking)):
            self._add_reasoning(block)
        elif type(block) is ProviderBlock:
            self._add_own(block)
        else:
            self.warnings.append(f"messages: an assistant's {type(block).__name__} is not sent; Responses takes none")

    def _add_own(self, block: ProviderBlock) -> None:
        if block.provider == self.name:
            self.own = True
            self.items.append(block.data)
        else:
            self.warnings.append(foreign_block(block))

    def _add_text(self, block: Text) -> None:
        if not block.text:
            return
        phase = string(self._state(block.state), "phase") if block.state is not None else None
        message = self.open_text
        if message is not None and string(message, "phase") == phase:
            message["content"] = f"{message['content']}{block.text}"
            return
        message = self.open_text = {"type": "message", "role": "assistant", "content": block.text}
        if phase is not None:
            message["phase"] = phase
        self.items.append(message)

    def _add_reasoning(self, block: Thinking | RedactedThinking) -> None:
        """A reasoning item. Without ciphertext and without text the server could only look it up, so it is sent only
        to one that stores."""
        state = self._state(block.state)
        if block.state is None or block.state.provider != self.name or isinstance(block, RedactedThinking):
            self.warnings.append(foreign_thinking(self.name))
        elif (self.stores and state) or state.get("encrypted_content") or state.get("content"):
            self.reasons = True
            self.items.append({"type": "reasoning", "summary": [], **state})
        else:
            self.warnings.append("messages: reasoning without its ciphertext is not sent; the server keeps none")

    def _add_call(self, block: ToolCall, place: Place) -> None:
        result = self.answers.get(place)
        if result is None:
            return
        call_id = self.call_ids[place]
        block = named_call(block, self.tool_name, self.warnings)
        if block.state is None:
            arguments = block.arguments or "{}"
            self.items.append({"type": "function_call", "call_id": call_id, "name": block.name, "arguments": arguments})
            self.waiting.append(self._output("function_call_output", call_id, result))
            return
        state = self._state(block.state)
        kind = string(state, "type") or "function_call"
        argument = {"input": block.arguments} if kind == "custom_tool_call" else {"arguments": block.arguments or "{}"}
        self.items.append({"type": kind, "call_id": call_id, "name": block.name, **argument, **state})
        output = self._output(OUTPUT_KIND.get(kind, "function_call_output"), call_id, result)
        if state.get("caller") is not None:
            output["caller"] = state["caller"]
        self.waiting.append(output)

    def _add_message(self, message: Message, number: int) -> None:
        """What a user or a tool says."""
        self._add_waiting()
        parts: list[JSON] = []
        for position, block in enumerate(message.content):
            if isinstance(block, (Text, Image, File)):
                parts.append(self.parts.part(block))
                continue
            parts = self._close(parts)
            if type(block) is ToolResult:
                self._add_result(block, (number, position))
            elif type(block) is ProviderBlock:
                self._add_own(block)
        self._close(parts)

    def _add_result(self, block: ToolResult, place: Place) -> None:
        """A result by itself: of a call that only the server knows. All others are written with their calls."""
        if place in self.call_ids:
            self.answered.add(block.tool_call_id)
            self.items.append(self._output("function_call_output", block.tool_call_id, block))

    def _close(self, parts: list[JSON]) -> list[JSON]:
        if parts:
            self.items.append({"type": "message", "role": "user", "content": parts})
        return []

    def _output(self, kind: str, call_id: str, result: ToolResult) -> JSONObject:
        if result.is_error:
            self.warnings.append("messages: a result's is_error is not sent; Responses has no mark for failed results")
        return {"type": kind, "call_id": call_id, "output": self.parts.output(result.content, result.cache_control)}

    def _add_waiting(self) -> None:
        self.items.extend(self.waiting)
        self.waiting = []

    def _state(self, state: ProviderState | None) -> JSONObject:
        return state.data if state is not None and state.provider == self.name else {}

    def _without_loose_calls(self) -> list[JSONObject]:
        """Calls that only their provider understands, without those that nothing answers."""
        for item in self.items:
            if string(item, "type") in ANSWERS:
                self.answered.update(id for member in NAMES_ITS_CALL if (id := string(item, member)))
        kept: list[JSONObject] = []
        for item in self.items:
            kind = string(item, "type")
            if kind in OUTPUT_KIND:
                identifiers = [string(item, member) or "" for member in ("call_id", "id") if item.get(member)]
                if identifiers and self.answered.isdisjoint(identifiers):
                    self.loose.update(identifiers)
                    self.warnings.append(f"messages: {kind} {identifiers[0]!r} has no output and is not sent")
                    continue
            kept.append(item)
        return kept


def without_loose_reasoning(items: list[JSONObject]) -> list[JSONObject]:
    """The items, without reasoning that no item of the assistant's follows: the API refuses it."""
    kept: list[JSONObject] = []
    followed = False
    for item in reversed(items):
        kind = string(item, "type") or ""
        if kind != "reasoning":
            followed = string(item, "role") != "user" and kind not in ANSWERS
        if kind != "reasoning" or followed:
            kept.append(item)
    kept.reverse()
    return kept


def wire_call_id(call_id: str) -> str:
    """A call's id in the length that the API takes. A longer one is rewritten, always to the same text."""
    if len(call_id) <= CALL_ID_LIMIT:
        return call_id
    return "call_" + sha256(call_id.encode("utf-8", "replace")).hexdigest()[:40]
