"""A model's complete answer: the same value whether it was streamed or not."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..json.json_types import JSONObject, Parsed
from .events import FinishReason
from .messages import Block, Message, Role, Text, Thinking, ToolCall
from .tokens import Tokens, Usage


@dataclass(slots=True)
class Response:
    """One complete answer.

    content: the blocks in order. `text`, `thinking` and `tool_calls` are views of it.
    finish_reason: why the model stopped, in the word that all providers share.
    raw_finish_reason: the provider's own word for it, or None.
    usage: token counts.
    model: the model's name as the server reports it, or None.
    id: the answer's id as the server reports it, or None.
    refusal: the model's text when it declined, for dialects that send it apart from the answer's text, or None.
    parsed: the value that a structured answer contains, if the request had a `response_schema`, or None: JSON, or an
        instance of the type if the schema was one.
    warnings: settings of the request that the dialect could apply only in part, and contradictions in the answer (a
        final text that differs from its deltas, a message that was sent twice).
    provider_data: everything else in the answer, raw, under the wire's own names.
    parse_error: why a complete answer is no instance of the type that was the `response_schema`, or None. These are the
        words of pydantic and of the type's validators; a program can send them to the model.
    tokens: the answer's tokens: ids, log probabilities. None unless the request asked for them (`return_tokens`,
        `logprobs`).
    others: the other choices of an answer to a request for several (`n` in `extra_body`), without the counts of tokens,
        which are the whole answer's. `choices` has all of them.
    received: the answer as the provider sent it, if the request asked for it (`keep_received`): one JSON text, or that
        of each event of a stream. It is not compared.
    """

    content: list[Block] = field(default_factory=lambda: [])
    finish_reason: FinishReason = FinishReason.UNKNOWN
    raw_finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    id: str | None = None
    refusal: str | None = None
    parsed: Parsed = None
    warnings: list[str] = field(default_factory=lambda: [])
    provider_data: JSONObject = field(default_factory=lambda: {})
    parse_error: str | None = None
    tokens: Tokens | None = None
    others: list[Response] = field(default_factory=lambda: [])
    received: tuple[bytes, ...] = field(default=(), repr=False, compare=False)

    @property
    def choices(self) -> list[Response]:
        """All choices in the order of their indexes: this one, and the others if the request asked for several."""
        return [self, *self.others]

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
        """The calls that the caller is asked to execute, in order. Calls that the server executes are not included."""
        return [block for block in self.content if isinstance(block, ToolCall)]

    def to_message(self) -> Message:
        """Return the answer as an assistant message for the next request. The refusal of an answer without text is its
        text.
        """
        content = list(self.content)
        if self.refusal and not self.text:
            content.append(Text(self.refusal))
        return Message(Role.ASSISTANT, content)


def arrived(response: Response) -> Response | None:
    """Return the response of a failed call; None if nothing of an answer has arrived: no content, name or count."""
    return None if response == Response() else response
