"""An agent's conversation: its messages, and the thinking that waits for its tool call to be executed.

Knows messages. Must not know where they are stored, nor who is asked.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict, Unpack

from .json_values import JSON, JSONObject
from .messages import Block, File, Image, Message, RedactedThinking, Role, Text, Thinking, ToolCall
from .options import Retry, Timeouts
from .request import Request, ThinkingConfig, ThinkingLevel, Tool
from .response import Response
from .rows import Row, messages_from_rows, rows_from_message


class RequestOptions(TypedDict, total=False):
    """What `Conversation.request` passes on to `Request`."""

    system: str | list[Text] | None
    tools: Iterable[Tool]
    tool_choice: str
    thinking: ThinkingLevel | ThinkingConfig | None
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    stop: Iterable[str]
    seed: int | None
    response_schema: JSONObject | None
    parallel_tool_calls: bool | None
    metadata: dict[str, str] | None
    timeouts: Timeouts | None
    retry: Retry | None
    extra_body: dict[str, JSON] | None
    extra_headers: dict[str, str] | None


@dataclass(slots=True)
class PendingThinking:
    """Thinking of the last response that belongs before its tool call."""

    thinking: Thinking | None = None
    redacted: RedactedThinking | None = None

    def __bool__(self) -> bool:
        return self.thinking is not None or self.redacted is not None


class Conversation:
    """Messages in order. `add` appends; `clone` is deep: changing the copy's blocks never changes the original.

    An agent that keeps whole responses uses `add_response`. One that stores a tool call only once it is executed
    (so that no unpaired call is ever stored) calls `keep_thinking(response)` and then `complete_tool(…)`.
    """

    __slots__ = ("messages", "pending")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)
        self.pending = PendingThinking()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conversation):
            return NotImplemented
        return self.messages == other.messages and self.pending == other.pending

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        waiting = ", thinking pending" if self.pending else ""
        return f"<Conversation of {len(self.messages)} messages{waiting}>"

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, message: Message) -> None:
        """Append a message. Raises `TypeError` for anything else."""
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a conversation holds Message values, not {type(message).__name__}")
        self.messages.append(message)

    def clear(self) -> None:
        """Forget all messages, and the pending thinking."""
        self.messages.clear()
        self.pending = PendingThinking()

    def clone(self) -> Conversation:
        """A deep copy: signatures, redacted data and provider state included."""
        clone = Conversation(copy.deepcopy(self.messages))
        clone.pending = copy.deepcopy(self.pending)
        return clone

    def request(self, model: str, **options: Unpack[RequestOptions]) -> Request:
        """A request for the next turn, with a snapshot of the messages: later ones do not change it."""
        return Request(model, tuple(self.messages), **options)  # type: ignore[arg-type]

    # --- agents ---

    def add_response(self, response: Response) -> None:
        """Append the whole answer as the assistant's message; an answer without content adds nothing."""
        if response.content:
            self.messages.append(response.to_message())

    def keep_thinking(self, response: Response) -> None:
        """Keep the response's thinking for the tool call that it led to."""
        self.pending = PendingThinking(
            thinking=next((block for block in response.content if isinstance(block, Thinking)), None),
            redacted=next((block for block in response.content if isinstance(block, RedactedThinking)), None),
        )

    def complete_tool(self, call: ToolCall, output: str | list[Text | Image | File], *, is_error: bool = False) -> None:
        """A tool was executed: append its call, with the pending thinking before it, and its result.
        The pending thinking is used up."""
        blocks: list[Block] = []
        if self.pending.thinking is not None:
            blocks.append(self.pending.thinking)
        if self.pending.redacted is not None:
            blocks.append(self.pending.redacted)
        self.messages.append(Message(Role.ASSISTANT, [*blocks, call]))
        self.messages.append(Message.tool_result(call.id, output, is_error))
        self.pending = PendingThinking()

    # --- rows ---

    def rows(self) -> list[Row]:
        """The messages as database rows; pending thinking is not stored, as its call is not."""
        return [row for message in self.messages for row in rows_from_message(message)]

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> Conversation:
        """A conversation from its rows. Raises `RowError`."""
        return cls(messages_from_rows(rows))
