"""Writes a conversation as the `input` items of a Responses request.

The rules:
- Results come directly after the run of assistant items with their calls, wherever the history has them.
- The API refuses a call without a result, and a result without a call. They are left out with a warning. A result
  whose call the server keeps (`previous_response_id`, `conversation`) is sent.
- Call ids are unique and at most 64 characters long. A longer one is replaced by the same text in call and result.
- Reasoning is sent only to the provider that made it, and only before an item that it led to. It has the item's id.
  Messages and calls are sent without ids, so that they do not refer to items that were left out of the history.
- Provider blocks are sent only to the provider that made them; calls among them only together with their outputs.
- An assistant's text is a message of plain text, with its phase if it had one. Adjacent texts are one message. A
  refusal that came with the text is a part after it.
- A failed result has no flag on this wire, so its text has to describe the failure.
- A system message keeps its place. OpenAI accepts one anywhere.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256

from ...catalog.provider import Provider, takes_block
from ...json.json_values import JSON, JSONObject, MalformedJSONError, loads, string
from ...model.messages import (
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
    state_for,
)
from ...model.prefix_cache import Segment
from ...wire.accumulate import REFUSAL
from ...wire.call_ids import Place, TakenIds, unique_id
from ...wire.omission_warnings import (
    foreign_block,
    foreign_thinking,
    note_foreign_refusal,
    unanswered_call,
    unasked_result,
)
from ...wire.tool_names import named_call
from ..system_messages import SYSTEM_ROLES, wire_role
from .block_writer import MARKS_LEFT_OUT, BlockWriter, image_source
from .items import CALL_KINDS, NAMES_ITS_CALL, OUTPUT_KIND

CALL_ID_LIMIT = 64
"""The most characters of a call's id that the API accepts."""

LOOSE_REASONING = "messages: reasoning without the item that it led to is not sent; Responses refuses it"
"""The warning for reasoning that was left out."""

ANSWERS = frozenset(OUTPUT_KIND.values())
"""Types of output items."""

APPROVALS = frozenset({"true", "yes", "approve", "approved"})
"""The results that approve a call of an MCP server, in lower case. Any other result refuses it, and is the reason."""

OUTPUT_MEMBERS = frozenset({"output", "status", "approve", "reason", "acknowledged_safety_checks", "max_output_length"})
"""Members of output items. A result that is a JSON object of these is the item."""


@dataclass(slots=True, frozen=True)
class WriterState:
    """What the writer of the next segment must know.

    taken: the wire ids of all calls so far.
    open_calls: the calls without results, as their ids and positions.
    loose: ids of the provider's own calls that were left out because they have no output.
    answered: ids of calls with results, besides those in `taken`.
    """

    taken: frozenset[str]
    open_calls: tuple[tuple[str, Place], ...]
    loose: frozenset[str]
    answered: frozenset[str]


@dataclass(slots=True, eq=False, repr=False)
class MessageWriter:
    """Writes the input of one request, or of a segment of its messages."""

    provider: Provider  # the provider of the request
    parts: BlockWriter  # writes content parts
    _: KW_ONLY
    keeps_calls: bool  # whether the server has earlier calls itself
    stores: bool  # whether the server stores this answer's items
    maker: str = field(init=False)
    warnings: list[str] = field(default_factory=lambda: [], init=False)
    items: list[JSONObject] = field(default_factory=lambda: [], init=False)
    answers: dict[Place, ToolResult] = field(default_factory=lambda: {}, init=False)
    call_ids: dict[Place, str] = field(default_factory=lambda: {}, init=False)
    open_text: JSONObject | None = field(default=None, init=False)
    waiting: list[JSONObject] = field(default_factory=lambda: [], init=False)
    open_calls: dict[str, deque[Place]] = field(default_factory=lambda: {}, init=False)
    taken: TakenIds = field(default_factory=TakenIds, init=False)
    answered: set[str] = field(default_factory=lambda: set(), init=False)
    loose: set[str] = field(default_factory=lambda: set(), init=False)
    own: bool = field(default=False, init=False)
    reasons: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.maker = self.provider.maker

    def write(self, messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        """Return the items, or None if they cannot be written apart from earlier ones: `prefix_cache.Write`."""
        if state is not None:
            self.taken.update(dict.fromkeys(state.taken, 1))
            for call_id, place in state.open_calls:
                self.open_calls.setdefault(call_id, deque()).append(place)
        if not self._pair(messages, first):
            return None
        for number, message in enumerate(messages, first):
            self.open_text = None
            if message.role is ASSISTANT:
                for position, block in enumerate(message.content):
                    self._add_assistant_block(block, (number, position))
            else:
                self._add_message(message, number)
        self._add_waiting()
        self.warnings.extend(self.parts.left_out)
        if self.parts.marks_left_out:
            self.warnings.append(MARKS_LEFT_OUT)
        items = self._without_loose_calls() if self.own else self.items
        if state is not None and self._answered_across(state):
            return None
        kept = without_loose_reasoning(items) if self.reasons or self.own else items
        if len(kept) < len(items):
            self.warnings.append(LOOSE_REASONING)
        open_calls = tuple((call_id, place) for call_id, places in self.open_calls.items() for place in places)
        return Segment(
            kept,
            self._state_after(items, open_calls, state),
            self.warnings,
            [unanswered_call(call_id) for call_id, _ in open_calls],
        )

    def _answered_across(self, state: WriterState) -> bool:
        """Return whether a provider's own call and its output are in different segments."""
        answered = self.answered | self.taken.keys()
        return not (answered.isdisjoint(state.loose) and self.loose.isdisjoint(state.answered | state.taken))

    def _state_after(
        self, items: list[JSONObject], open_calls: tuple[tuple[str, Place], ...], state: WriterState | None
    ) -> WriterState | None:
        """Return the state for the next segment, or None if that one decides whether the last item is sent."""
        if items and items[-1].get("type") == "reasoning":
            return None
        if state is not None:
            self.loose |= state.loose
            self.answered |= state.answered
        return WriterState(frozenset(self.taken), open_calls, frozenset(self.loose), frozenset(self.answered))

    def _pair(self, messages: Sequence[Message], first: int) -> bool:
        """Find each call's result. Returns False if a result's call is in an earlier segment.

        Calls that share an id within one run of assistant messages are answered in order. If a later run uses the id
        again, unanswered calls of the earlier run get no result.
        """
        run_began = first
        for number, message in enumerate(messages, first):
            if message.role is not ASSISTANT:
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
        """Pair a result with the first call of its id. Returns False if that call is in an earlier segment."""
        calls = self.open_calls.get(result.tool_call_id)
        if calls:
            call = calls.popleft()
            if call[0] < first:
                return False
            self.answers[call] = result
            wire_id = self.call_ids[call] = unique_id(result.tool_call_id, self.taken, wire_call_id)
            self.taken[wire_id] = 1
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
        """Add a provider's own item, or a warning if it is another provider's."""
        if takes_block(self.provider, block):
            self.own = True
            self.items.append(block.data)
        else:
            self.warnings.append(foreign_block(block))

    def _add_text(self, block: Text) -> None:
        """Add an assistant's text, to the message before it if the phase is the same."""
        if not block.text:
            return
        state: JSONObject = {}
        if block.state is not None:
            state = state_for(block.state, self.maker)
            note_foreign_refusal(block.state, self.maker, self.warnings)
        phase, refusal = string(state, "phase"), string(state, REFUSAL)
        message = self.open_text
        if message is not None and string(message, "phase") == phase:
            message["content"] = f"{message['content']}{block.text}"
        else:
            message = self.open_text = {"type": "message", "role": "assistant", "content": block.text}
            if phase is not None:
                message["phase"] = phase
            self.items.append(message)
        if refusal:
            message["content"] = content_with(refusal, message["content"])
            self.open_text = None

    def _add_reasoning(self, block: Thinking | RedactedThinking) -> None:
        """Add a reasoning item.

        Without ciphertext and text the server could only look it up. So it is sent only to a server that stores items.
        """
        state = state_for(block.state, self.maker)
        if block.state is None or block.state.provider != self.maker or isinstance(block, RedactedThinking):
            self.warnings.append(foreign_thinking(self.maker))
        elif (self.stores and state) or state.get("encrypted_content") or state.get("content"):
            self.reasons = True
            self.items.append(reasoning_item(state))
        else:
            self.warnings.append("messages: reasoning without its ciphertext is not sent; the server keeps none")

    def _add_call(self, block: ToolCall, place: Place) -> None:
        result = self.answers.get(place)
        if result is None:
            return
        call_id = self.call_ids[place]
        block = named_call(block, self.provider.profile.quirks.tool_name, self.warnings)
        if block.state is None:
            arguments = block.arguments or "{}"
            self.items.append({"type": "function_call", "call_id": call_id, "name": block.name, "arguments": arguments})
            self.waiting.append(self._output("function_call_output", call_id, result))
            return
        state = state_for(block.state, self.maker)
        self.items.append(call_item(block, state, call_id))
        if is_own_call(state):
            self.waiting.append(own_result(state, result, self.parts))
            return
        output = self._output(output_kind(state), call_id, result)
        if state.get("caller") is not None:
            output["caller"] = state["caller"]
        self.waiting.append(output)

    def _add_message(self, message: Message, number: int) -> None:
        self._add_waiting()
        role = "user" if message.role is not SYSTEM else wire_role(message.content, self.maker, SYSTEM_ROLES[0])
        parts: list[JSON] = []
        for position, block in enumerate(message.content):
            if isinstance(block, (Text, Image, File)):
                parts.append(self.parts.part(block))
                continue
            parts = self._close(parts, role)
            if type(block) is ToolResult:
                self._add_result(block, (number, position))
            elif type(block) is ProviderBlock:
                self._add_own(block)
        self._close(parts, role)

    def _add_result(self, block: ToolResult, place: Place) -> None:
        """Add the result of a call that only the server has. Other results are written with their calls."""
        if place in self.call_ids:
            self.answered.add(block.tool_call_id)
            self.items.append(self._output("function_call_output", block.tool_call_id, block))

    def _close(self, parts: list[JSON], role: str) -> list[JSON]:
        """Add a message with these parts. Returns an empty list for the next parts."""
        if parts:
            self.items.append({"type": "message", "role": role, "content": parts})
        return []

    def _output(self, kind: str, call_id: str, result: ToolResult) -> JSONObject:
        if result.is_error:
            self.warnings.append("messages: a result's is_error is not sent; Responses has no mark for failed results")
        return {"type": kind, "call_id": call_id, "output": self.parts.output(result.content, result.cache_control)}

    def _add_waiting(self) -> None:
        """Add the outputs of the calls before."""
        self.items.extend(self.waiting)
        self.waiting = []

    def _without_loose_calls(self) -> list[JSONObject]:
        """Return the items without the provider's own calls that have no output."""
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


def call_item(block: ToolCall, state: JSONObject, call_id: str) -> JSONObject:
    """Return the item of a call. state: what the provider wants back with it; a call of its own tool as received."""
    if is_own_call(state):
        return {**state}
    custom = state.get("type") == "custom_tool_call"
    argument = {"input": block.arguments} if custom else {"arguments": block.arguments or "{}"}
    return {"type": "function_call", "call_id": call_id, "name": block.name, **argument, **state}


def is_own_call(state: JSONObject) -> bool:
    """Return whether the state of a call is that of a call of the API's own tool."""
    kind = CALL_KINDS.get(string(state, "type") or "")
    return kind is not None and bool(kind.tool)


def output_kind(state: JSONObject) -> str:
    """Return the type of the output item of a call with this state."""
    return OUTPUT_KIND.get(string(state, "type") or "", "function_call_output")


def own_result(call: JSONObject, result: ToolResult, parts: BlockWriter) -> JSONObject:
    """Return the output item of a call of the API's own tool.

    A result that is the JSON of the item's members is taken as it is. Else its text is the output, `is_error` the
    status, and a picture the screenshot.
    """
    kind, id = string(call, "type") or "", string(call, "call_id") or string(call, "id") or ""
    blocks = [Text(result.content)] if isinstance(result.content, str) else result.content
    text = "".join(block.text for block in blocks if isinstance(block, Text))
    given: JSON = None
    if text.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(MalformedJSONError):
            given = loads(text.encode("utf-8", "surrogatepass"))
    members: JSONObject = {"call_id": id, "output": parts.output(result.content, None)}
    if kind == "mcp_approval_request":
        approved = not result.is_error and text.strip().lower() in APPROVALS
        members = {"approval_request_id": id, "approve": approved, **({} if approved else {"reason": text or None})}
    elif kind == "local_shell_call":
        members = {"id": id, "output": text}
    elif kind == "apply_patch_call":
        members = {**members, "status": "failed" if result.is_error else "completed", "output": text}
    elif kind == "shell_call":
        ended: JSONObject = {"type": "exit", "exit_code": int(result.is_error)}
        lines: list[JSON] = [{"stdout": text, "stderr": "", "outcome": ended}]
        members["output"] = given if type(given) is list else lines
    else:
        picture = next((block for block in blocks if not isinstance(block, Text)), None)
        screen = given if picture is None else {"type": "computer_screenshot", **image_source(picture)}
        members["output"] = members["output"] if screen is None else screen
    if type(given) is dict and given and given.keys() <= OUTPUT_MEMBERS:
        members.update(given)
    return {"type": output_kind(call), **members}


def content_with(refusal: str, text: JSON) -> JSON:
    """Return the content of an assistant's message that has a text and a refusal."""
    return [{"type": "output_text", "text": text}, {"type": "refusal", "refusal": refusal}]


def reasoning_item(state: JSONObject) -> JSONObject:
    """Return the item of a thought. A type in its state is ignored: a thought is never another kind of item."""
    return {"type": "reasoning", "summary": [], **{name: value for name, value in state.items() if name != "type"}}


def without_loose_reasoning(items: list[JSONObject]) -> list[JSONObject]:
    """Return the items without reasoning that is not followed by an assistant's item: the API refuses it."""
    kept: list[JSONObject] = []
    followed = False
    for item in reversed(items):
        kind = string(item, "type") or ""
        if kind != "reasoning":
            followed = string(item, "role") in (None, "assistant") and kind not in ANSWERS
        if kind != "reasoning" or followed:
            kept.append(item)
    kept.reverse()
    return kept


def wire_call_id(call_id: str) -> str:
    """Return a call's id if it is short enough for the API. A longer one is always replaced by the same text."""
    if len(call_id) <= CALL_ID_LIMIT:
        return call_id
    return "call_" + sha256(call_id.encode("utf-8", "replace")).hexdigest()[:40]
