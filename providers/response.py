"""A model's whole answer, the same value whether it was streamed or not."""

from __future__ import annotations

from dataclasses import dataclass, field

from .events import FinishReason
from .json_values import JSON, JSONObject
from .messages import Block, Message, Role, Text, Thinking, ToolCall
from .usage import Usage


@dataclass(slots=True)
class Response:
    """One answer.

    content: the blocks in order; `text`, `thinking` and `tool_calls` are views of it.
    finish_reason, raw_finish_reason: why it ended, in our word and in the provider's own.
    model, id: as the server names them.
    refusal: the model's words where it declined, for dialects that keep them apart from text.
    parsed: the object that a structured answer holds, where the request had a `response_schema`.
    warnings: what the request asked for and the dialect could only do in part, and where the server contradicted itself
    (a final text that differs from its deltas, a message that it sent twice).
    provider_data: whatever else the answer carried, raw, under the wire's own names.
    """

    content: list[Block] = field(default_factory=lambda: [])
    finish_reason: FinishReason = FinishReason.UNKNOWN
    raw_finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    id: str | None = None
    refusal: str | None = None
    parsed: JSON = None
    warnings: list[str] = field(default_factory=lambda: [])
    provider_data: JSONObject = field(default_factory=lambda: {})

    @property
    def text(self) -> str:
        """The visible text, blocks joined without separator."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def thinking(self) -> str:
        """The visible thinking, blocks joined without separator."""
        return "".join(block.text for block in self.content if isinstance(block, Thinking))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls the caller is asked to make, in order. Server-side calls are never among them."""
        return [block for block in self.content if isinstance(block, ToolCall)]

    def to_message(self) -> Message:
        """The answer as the assistant's message, to be put into the next request."""
        return Message(Role.ASSISTANT, list(self.content))
