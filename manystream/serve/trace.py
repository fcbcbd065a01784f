"""The calls of a slot, and how they continue each other.

A harness sends its whole conversation with each call. A call continues an earlier one if its conversation begins with
all of that one's, and goes on with the answer that that one got. Digests prove the first: each is of all messages up to
one place, so equal digests mean equal beginnings. Cache marks are left out, because a harness moves them, and a text is
the same as a list with one text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import Final, cast

from .. import Block, Completion, ManystreamError, Message, Response, Role, Text, Thinking, Tokens, ToolCall
from ..engine.embedding import NoteLogger, Notes
from ..engine.observe import private_file
from ..providers.catalog.registry import ROWS, read_arguments
from ..providers.json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    dumps,
    dumps_printable,
    loads,
    loads_object,
    same_value,
    string,
)

logger: NoteLogger = NoteLogger("manystream.serve")

HEADS: Final[dict[str, tuple[str, ...]]] = {
    "system prompt": ("system", "instructions", "systemInstruction", "system_instruction"),
    "tools": ("tools",),
}
"""What comes before a conversation → its members in the dialects."""

_DIGEST_BYTES = 16

COMPARED = 100
"""The number of latest calls with which a call is compared, in a trace that is only written to a file."""

MOST_COMMAS = 100_000
"""The most commas of a body that is compared: the work, which is done on the loop, grows with the values in it."""

MOST_ANSWERS = 256
"""The most messages of an answer that are read where it comes back in a conversation."""

_OTHER_ROLES = frozenset({"user", "tool", "function", "system", "developer"})
"""The roles of messages that are not of an answer."""


@dataclass(slots=True)
class TracedCall:
    """A call of a slot that has ended.

    started: when its request came, in Unix seconds.
    dialect: the dialect of its client.
    model: the model's name as the client wrote it.
    target: where it was sent, as `provider/model`.
    stream: whether a stream was asked for.
    body: the body as the client wrote it, with the members that the slot adds.
    completion: the call's final record: answer, error, usage, timings, cost.
    client_left: whether the client closed its connection before the answer's end.
    number: its position among the calls of the slot, counted from 1.
    continues: the number of the call that it continues; None for the first call of a conversation.
    prefix: the digest of the conversation that it shares with that call; empty for none.
    shared: the number of messages in it.
    shared_tokens: the number of token ids at the beginning of its prompt that are that call's prompt and answer, as the
        server reported both; 0 if it did not.
    fork: why it continues no call, or not the latest one; empty if it does.
    """

    started: float
    dialect: str
    model: str
    target: str
    stream: bool
    body: bytes
    completion: Completion
    client_left: bool
    number: int = 0
    continues: int | None = None
    prefix: str = ""
    shared: int = 0
    shared_tokens: int = 0
    fork: str = ""
    _heads: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    _digests: list[bytes] = field(default_factory=list[bytes], repr=False)
    parsed: JSONObject | None = field(default=None, repr=False)  # while the call is added to a trace

    @property
    def request(self) -> JSONObject:
        """The body, parsed."""
        return loads_object(self.body) if self.parsed is None else self.parsed

    @property
    def response(self) -> Response | None:
        """The answer; after a failure, the part that had arrived."""
        return self.completion.response

    @property
    def tokens(self) -> Tokens | None:
        """The tokens of prompt and answer, as the server reported them; None if it did not."""
        return None if self.response is None else self.response.tokens

    def to_json(self, slot: str = "") -> JSONObject:
        """Return the call as JSON: a line of the files that `open_gateway(trace=…)` writes."""
        completion, response = self.completion, self.completion.response
        error, timings = completion.error, completion.timings
        return {
            "slot": slot,
            "call": self.number,
            **{name: getattr(self, name) for name in ("started", "dialect", "model", "target", "stream")},
            **{name: getattr(self, name) for name in ("continues", "prefix", "fork")},
            "shared_messages": self.shared,
            "shared_tokens": self.shared_tokens,
            "request": self.request,
            "answer": None if response is None else _answer(response),
            "tokens": None if self.tokens is None else self.tokens.to_json(),
            "usage": None if response is None else cast("JSON", dataclasses.asdict(response.usage)),
            "cost": completion.cost,
            "http_status": completion.http_status,
            "error": None if error is None else {"category": error.category.value, "message": error.message},
            "client_left": self.client_left,
            "attempts": completion.attempts,
            "request_id": completion.request_id,
            "timings": cast("JSON", {**dataclasses.asdict(timings), "waited": dict(timings.waited)}),
            "tags": cast("JSON", dict(completion.tags)),
        }

    def read_conversation(self) -> list[JSON]:
        """Compute the digests of the conversation, and return its messages."""
        body = self.request
        row = ROWS.get(self.dialect)
        given = None if row is None else body.get(row.conversation)  # the tokens of a prompt say what it continues
        messages: list[JSON] = given if isinstance(given, list) else [given]
        for name, members in HEADS.items():
            self._heads[name] = _digest(b"", [body.get(member) for member in members])
        before = b"".join(self._heads.values())
        for message in messages:
            before = _digest(before, message)
            self._digests.append(before)
        return messages

    def follow(self, earlier: Sequence[TracedCall]) -> None:
        """Find the call that this one continues, or why it continues none."""
        if self.body.count(b",") > MOST_COMMAS:
            self.fork = "it is too long to be compared"
            return
        self.parsed = loads_object(self.body)
        messages = self.read_conversation()
        if self.completion.response is not None and not earlier:
            return
        identity = string(self.request, "previous_response_id") or string(self.request, "previous_interaction_id")
        reason, said = "", dict[int, list[Block] | None]()
        for call in reversed(earlier):
            if identity is not None:
                if call.response is not None and call.response.id == identity:
                    self._continue(call, earlier, 0)
                    return
                continue
            shared = len(call._digests)
            if not shared or len(messages) <= shared or self._digests[shared - 1] != call._digests[-1]:
                continue
            if shared not in said:
                said[shared] = _answer_in(call.dialect, messages[shared : shared + MOST_ANSWERS])
            different = call.differs_from(said[shared]) or self._other_tokens(call)
            if not different:
                self._continue(call, earlier, shared)
                return
            reason = reason or different
        if earlier:
            self.fork = reason or self._reason(earlier[-1], len(messages))

    def _other_tokens(self, call: TracedCall) -> str:
        """Return where the prompt's tokens are not those of a call's prompt and answer; "" if they are, or unknown."""
        prompt, before = None if self.tokens is None else self.tokens.prompt_ids, call.tokens
        if prompt is None or before is None or before.prompt_ids is None or not before.ids:
            return ""
        known = before.prompt_ids + before.ids
        if prompt[: len(known)] == known:
            self.shared_tokens = len(known)
            return ""
        place = next((at for at, pair in enumerate(zip(prompt, known)) if pair[0] != pair[1]), len(prompt))  # noqa: B905
        return f"token {place} of its prompt is not that of call {call.number}, whose text was tokenised again"

    def _continue(self, call: TracedCall, earlier: Sequence[TracedCall], shared: int) -> None:
        self.continues, self.shared = call.number, shared
        self.prefix = call._digests[-1].hex() if call._digests else ""
        other = next((each for each in earlier if each.continues == call.number), None)
        if other is not None:
            self.fork = f"call {other.number} continues call {call.number}, too"

    def differs_from(self, said: list[Block] | None) -> str:
        """Return how the answer that came back in the next conversation differs from this call's; "" if it does not.

        said: the answer that came back; None if it cannot be read.
        """
        response = self.completion.response
        if response is None:
            return f"call {self.number} got no answer"
        where = f"the answer of call {self.number} came back"
        if said is None:
            return f"{where} in a form that cannot be compared"
        text = "".join(block.text for block in said if isinstance(block, Text))
        if text.strip() != response.text.strip():
            return f"{where} with another text"
        calls = [block for block in said if isinstance(block, ToolCall)]
        if len(calls) != len(response.tool_calls):
            return f"{where} with {len(calls)} tool calls, not {len(response.tool_calls)}"
        for one, other in zip(calls, response.tool_calls, strict=True):
            if one.name != other.name or not _same_arguments(one.arguments, other.arguments):
                return f"{where} with another call of the tool {other.name!r}"
        return ""

    def _reason(self, call: TracedCall, count: int) -> str:
        """Return why this call does not continue the latest one."""
        if call.dialect != self.dialect:
            return f"it came as {self.dialect}, and call {call.number} as {call.dialect}"
        for name, digest in self._heads.items():
            if digest != call._heads.get(name):
                return f"another {name} than that of call {call.number}"
        pairs = zip(self._digests, call._digests, strict=False)
        if self._digests == call._digests:
            return f"the same conversation as that of call {call.number}"
        same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(count, len(call._digests)))
        if same < min(count, len(call._digests)):
            return f"message {same} is not that of call {call.number}"
        return f"{count} messages, and call {call.number} had {len(call._digests)}"


class Trace:
    """The calls of a slot.

    calls: the calls that have ended, in the order of their ends.
    """

    __slots__ = ("_count", "_keeps", "_notes", "_path", "_slot", "calls")

    def __init__(self, path: Path | None = None, slot: str = "", *, keeps: bool = True) -> None:
        """Create a trace without calls.

        path: a file to which they are written, too, a line of JSON each. Only its owner can read it.
        slot: the slot's name.
        keeps: keep all of them; else only what the next ones are compared with, without their bodies.
        """
        self._path = path
        self._slot = slot
        self._keeps = keeps
        self._count = 0
        self._notes = Notes(logger, "a trace lacks calls" if path is None else f"the trace {path} lacks calls")
        self.calls: list[TracedCall] = []

    def add(self, call: TracedCall) -> None:
        """Add a call that has ended. Never raises: what cannot be noted of it is missing, and the log says so once."""
        self._count += 1
        call.number, lost = self._count, self._notes.lost
        self._notes.take(call.follow, self.calls)
        if self._notes.lost > lost:
            call.fork = "its body cannot be read"
        self.calls.append(call)
        if self._path is not None:
            self._notes.take(self._write, self._path, call)
        call.parsed = None
        if not self._keeps:
            call.body = b""
            del self.calls[:-COMPARED]

    def _write(self, path: Path, call: TracedCall) -> None:
        line = dumps_printable(call.to_json(self._slot)) + b"\n"
        with open(private_file.open_own(path, b'{"slot":'), "ab") as file:
            file.write(line)

    def conversations(self) -> list[list[TracedCall]]:
        """Return the turns, joined: each list begins with a call that continues none, and each call in it continues the
        one before it. Where a conversation forks, the lists share their beginning."""
        by_number = {call.number: call for call in self.calls}
        inner = {call.continues for call in self.calls}
        joined: list[list[TracedCall]] = []
        for call in self.calls:
            if call.number in inner:
                continue
            turns = [call]
            while turns[-1].continues is not None:
                turns.append(by_number[turns[-1].continues])
            joined.append(turns[::-1])
        return joined


def _digest(before: bytes, value: JSON) -> bytes:
    return blake2b(before + dumps(_canonical(value)), digest_size=_DIGEST_BYTES).digest()


def _canonical(value: JSON) -> JSON:
    """Return a value without cache marks, with sorted members, and with a text in place of a list with one text."""
    if isinstance(value, dict):
        members = {name: _canonical(value[name]) for name in sorted(value) if name != "cache_control"}
        content = members.get("content")
        if isinstance(content, list) and len(content) == 1:
            [only] = content
            if isinstance(only, dict) and only.keys() == {"type", "text"}:
                members["content"] = only["text"]
        return members
    return [_canonical(item) for item in value] if isinstance(value, list) else value


def _answer_in(dialect: str, messages: Sequence[JSON]) -> list[Block] | None:
    """Return the blocks of the assistant's messages with which a conversation goes on; None if they cannot be read."""
    arguments: dict[str, object] = {"model": "any", ROWS[dialect].conversation: list(takewhile(_may_be_said, messages))}
    if dialect == "anthropic":
        arguments["max_tokens"] = 1
    try:
        conversation: Sequence[Message] = read_arguments(dialect, arguments).messages
    except (ManystreamError, TypeError, ValueError):
        return None
    said: list[Block] = []
    for message in conversation:
        if message.role is not Role.ASSISTANT:
            break
        said += message.content
    return said


def _may_be_said(message: JSON) -> bool:
    """Return whether a message of a provider's form may belong to an answer."""
    return not isinstance(message, dict) or message.get("role") not in _OTHER_ROLES


def _same_arguments(one: str, other: str) -> bool:
    try:
        return same_value(loads(one or "{}"), loads(other or "{}"))
    except MalformedJSONError:
        return one == other


def _answer(response: Response) -> JSONObject:
    return {
        "id": response.id,
        "model": response.model,
        "finish_reason": response.finish_reason.value,
        "refusal": response.refusal,
        "content": [_block(block) for block in response.content],
    }


def _block(block: Block) -> JSON:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Thinking):
        return {"type": "thinking", "text": block.text, "signature": block.signature}
    if isinstance(block, ToolCall):
        return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": block.arguments}
    state: Mapping[str, JSON] = getattr(getattr(block, "state", None), "data", {})
    return {"type": type(block).__name__, **state}
