"""The values that differ in every chunk of a chat stream, token reports and log probabilities; members of messages.

A chunk that matches the template has them as JSON text, which is kept until it is needed: only the last token report is
converted, and log probabilities are several times as large when they are parsed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...catalog.dialect import TakeValue
from ...json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    arguments_text,
    loads,
    mapping,
    objects,
    strict_loads,
)
from ...wire.accumulate import Accumulator
from .usage import read_usage

USAGE, LOGPROBS, TOKEN_IDS, PROMPT_IDS = "usage", "logprobs", "token_ids", "prompt_token_ids"
"""Members whose values differ from chunk to chunk. Without their values, two deltas differ in their text only."""


TOKEN_LOGPROBS, TOP_LOGPROBS = "token_logprobs", "top_logprobs"
"""Lists in Together's unstreamed log probabilities. A stream has one number or object per chunk instead."""


def is_probability(value: JSON) -> bool:
    """Return whether a value has log probabilities: an object that is not empty, or the number of one token."""
    return bool(value) if type(value) is dict else type(value) in (int, float)


def usage_report(chunk: JSONObject) -> JSONObject:
    """Return the token report of a chunk, wherever the chunk has it; empty if it has none."""
    report = mapping(chunk, USAGE) or mapping(mapping(chunk, "x_groq"), USAGE)
    if not report and chunk.get("choices"):
        for choice in objects(chunk, "choices"):
            report = mapping(choice, USAGE) or report
    return report


class ChunkValues:
    """The values of one choice that are kept as text: the latest token report, and log probabilities.

    keeps_logprobs: whether log probabilities are kept as the server sends them.
    reads_logprobs: whether those of the answer's tokens are read as they come; else those that are kept are read once.
    """

    __slots__ = ("_answer", "_report", "_tokens", "_unread", "keeps_logprobs", "reads_logprobs")

    def __init__(self, answer: Accumulator, *, keeps_logprobs: bool, reads_logprobs: bool) -> None:
        self._answer = answer
        self.keeps_logprobs: bool = keeps_logprobs
        self.reads_logprobs: bool = reads_logprobs
        self._report = b""  # JSON text of the latest token report, if no other report came after it
        self._tokens: dict[str, list[JSON]] | None = None
        self._unread: list[bytes] = []  # JSON text of log probabilities that come after `_tokens`

    def reader(self, member: str) -> TakeValue:
        """Return what takes the value of this member of a chunk that matched the template, with its JSON text."""
        return {USAGE: self._take_report, TOKEN_IDS: self._take_ids, LOGPROBS: self._take_logprobs}[member]

    def _take_report(self, value: JSON, text: bytes) -> None:
        if type(value) is dict and value:
            self._report = text

    def _take_ids(self, value: JSON, text: bytes) -> None:
        self._answer.its_tokens().add_named(value)

    def _take_logprobs(self, value: JSON, text: bytes) -> None:
        if type(value) is dict or is_probability(value):
            if self.reads_logprobs:
                self._answer.its_tokens().add_logprobs(value)
            if self.keeps_logprobs:
                self._unread.append(text)

    def forget_report(self) -> None:
        """Drop the token report that was kept as text: a later one was read."""
        self._report = b""

    def settle_usage(self) -> None:
        """Read the token report that was kept as text into the answer."""
        report = loads(self._report) if self._report else None
        if type(report) is dict:
            self._answer.usage = read_usage(report)
        self._report = b""

    def add_logprobs(self, value: JSON) -> None:
        """Append log probabilities: each chunk has those of its own tokens."""
        if self.reads_logprobs:
            self._answer.its_tokens().add_logprobs(value)
        if self.keeps_logprobs:
            self._read()
            self._keep((value,))

    def logprobs(self) -> dict[str, JSON]:
        """Return the log probabilities of all chunks, as an unstreamed answer has them; empty if there are none."""
        self._read()
        if self._tokens is not None and not self.reads_logprobs:
            self._answer.its_tokens().add_logprobs(dict(self._tokens))
            self.reads_logprobs = True
        return {name: list(tokens) for name, tokens in (self._tokens or {}).items()}

    def _read(self) -> None:
        """Parse what is kept as text."""
        if self._unread:
            unread, self._unread = self._unread, []
            self._keep(map(strict_loads, unread))

    def _keep(self, values: Iterable[JSON]) -> None:
        """Append log probabilities to the lists of the answer."""
        lists = self._tokens = self._tokens or {}
        for value in values:
            for name, tokens in value.items() if type(value) is dict else ((TOKEN_LOGPROBS, [value]),):
                if type(tokens) is not list:
                    continue
                if name in lists:
                    lists[name] += tokens
                else:
                    lists[name] = [*tokens]


CALL_MEMBERS = frozenset({"tool_calls", "function_call"})
"""Members of a message with calls, or with pieces of them."""

PADDING = frozenset({"role", "name", "index", "token_id", "thought_signature"})
"""Members of a message or delta that are ignored. `extra_content` contains the signature as well."""


def has_object_arguments(choice: JSONObject) -> bool:
    """Return whether a choice has a call with arguments that are an object instead of text."""
    message = mapping(choice, "delta") or mapping(choice, "message")
    if "tool_calls" not in message and "function_call" not in message:
        return False
    calls = [mapping(call, "function") for call in objects(message, "tool_calls")]
    return any(type(call.get("arguments")) is dict for call in (*calls, mapping(message, "function_call")))


def has_content(delta: JSON) -> bool:
    """Return whether a delta has a member that is read."""
    return type(delta) is dict and any(value for name, value in delta.items() if name not in PADDING)


def arguments_of(value: JSON) -> str:
    """Return arguments as JSON text. A few servers send the object itself."""
    if type(value) is str:
        return value
    return "" if value is None else as_text(value, "arguments")


def as_text(value: JSON, name: str) -> str:
    """Return the JSON text of a value, for a member that should have been text."""
    try:
        return arguments_text(value)
    except TypeError:
        raise MalformedJSONError(f"{name} cannot be written as JSON text") from None
