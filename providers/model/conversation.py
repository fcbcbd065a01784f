"""An agent's conversation: its messages, and the thinking that is kept until its tool call is executed.

The parallel calls of one answer are one message, however they are added: providers require the thinking once, before
the first call, and all results after the last.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Unpack, cast

from .messages import (
    Block,
    File,
    Image,
    Message,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    checked_result,
)
from .prefix_cache import PrefixCache
from .request import Request, RequestOptions, with_prefix_cache
from .response import Response
from .rows import Row, messages_from_rows, rows_from_message
from .rules import Rule, instance, items_of

MESSAGE = Rule("a Message", (Message,), forms={str: "use Message.user(…)"}, secret=True)
RESPONSE, CALL = instance(Response), instance(ToolCall)


@dataclass(slots=True)
class PendingThinking:
    """The thinking of the last response that led to tool calls, until they are executed.

    blocks: thinking and redacted thinking that no executed call has taken yet, in order.
    """

    blocks: list[Thinking | RedactedThinking] = field(default_factory=lambda: [])

    @property
    def thinking(self) -> Thinking | None:
        """The first visible thinking, with its signature, or None."""
        return next((block for block in self.blocks if isinstance(block, Thinking)), None)

    @property
    def redacted(self) -> RedactedThinking | None:
        """The first redacted thinking, or None."""
        return next((block for block in self.blocks if isinstance(block, RedactedThinking)), None)

    def __bool__(self) -> bool:
        return bool(self.blocks)


@dataclass(slots=True)
class _Round:
    """A response that `keep_thinking` kept, while its calls are executed.

    blocks: its content, in order.
    results: position of an executed call in `blocks` → its result. Ids would not do, because the calls may share one.
    asked: the message with the executed calls. The message after it has their results. None before the first.
    """

    blocks: list[Block] = field(default_factory=lambda: [])
    results: dict[int, ToolResult] = field(default_factory=lambda: {})
    asked: Message | None = None

    def place_of(self, call: ToolCall) -> int | None:
        """Return the position of a call among those not yet executed, or None if the response made no such call.

        The call object itself is preferred, then an equal call, then one with the same id.
        """
        waiting = self.waiting()
        same_id = [n for n in waiting if cast("ToolCall", self.blocks[n]).id == call.id]
        itself = [n for n in same_id if self.blocks[n] is call]
        equal = [n for n in same_id if self.blocks[n] == call]
        return next(iter((*itself, *equal, *same_id)), None)

    def waiting(self) -> list[int]:
        """Return the positions of the calls that are not yet executed."""
        return [n for n, block in enumerate(self.blocks) if isinstance(block, ToolCall) and n not in self.results]

    def take(self, call: ToolCall, result: ToolResult) -> None:
        """Record that a call was executed. It keeps its position, with what the caller may have changed in it."""
        place = self.place_of(call)
        assert place is not None
        self.blocks[place] = call
        self.results[place] = result

    def messages(self) -> tuple[Message, Message]:
        """Return the executed calls with the content before them, and their results. If no call is waiting, the content
        after the last call is included, without thinking, which must not end a message.
        """
        done = sorted(self.results)
        end = done[-1] + 1
        kept = [block for n, block in enumerate(self.blocks[:end]) if n in done or not _is_call(block)]
        if not self.waiting():
            kept += [block for block in self.blocks[end:] if not isinstance(block, Thinking | RedactedThinking)]
        return Message(Role.ASSISTANT, kept), Message(Role.TOOL, [self.results[n] for n in done])

    def drop_executed(self) -> None:
        """Leave the executed calls in their message. The remaining calls will make another message."""
        assert self.asked is not None
        gone = {id(block) for block in self.asked.content}
        self.blocks = [block for block in self.blocks if id(block) not in gone]
        self.results, self.asked = {}, None


def _is_call(block: Block) -> bool:
    return isinstance(block, ToolCall)


def _without_replaced(messages: Iterable[Message]) -> list[Message]:
    """Return the messages without each pair of calls and results that the next pair repeats and extends."""
    kept: list[Message] = []
    for message in messages:
        kept.append(message)
        if message.role is Role.TOOL and len(kept) >= 4:
            asked_before, answered_before, asked, answered = kept[-4:]
            if _extends(asked, asked_before) and _extends(answered, answered_before):
                del kept[-4:-2]
    return kept


def _extends(later: Message, earlier: Message) -> bool:
    """Return whether a message has all blocks of another one, calls or results among them, and further blocks."""
    more = iter(later.content)
    if later.role is not earlier.role or len(later.content) <= len(earlier.content):
        return False
    return any(isinstance(block, ToolCall | ToolResult) for block in earlier.content) and all(
        any(block == candidate for candidate in more) for block in earlier.content
    )


class Conversation:
    """Messages in order, and the requests made of them.

    messages: the messages. `add` and `extend` append; the list may also be changed directly.
    pending: thinking that waits for its tool call to be executed.

    An agent that keeps whole responses uses `add_response`. An agent that stores a tool call only after it was executed
    (so that a call without a result is never stored) calls `keep_thinking(response)` and then `complete_tool` for each
    call.

    The requests share a cache of their wire form (`prefix_cache.py`): a turn appended to a long conversation costs that
    turn only.
    """

    __slots__ = ("_prefix_cache", "_round", "messages", "pending")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = []
        self.pending: PendingThinking = PendingThinking()
        self._round = _Round()
        self._prefix_cache = PrefixCache()
        self.extend(messages)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conversation):
            return NotImplemented
        return self.messages == other.messages and self.pending == other.pending

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        waiting = ", thinking pending" if self.pending else ""
        return f"<Conversation of {len(self.messages)} messages{waiting}>"

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def add(self, message: Message) -> None:
        """Append a message. Raises `InvalidRequestError` for anything else."""
        MESSAGE.check(message, "message")
        self.messages.append(message)

    def extend(self, messages: Iterable[Message]) -> None:
        """Append messages: all of them, or none if one is no `Message` (`InvalidRequestError`)."""
        self.messages.extend(items_of(messages, Message, "messages"))

    def clear(self) -> None:
        """Remove all messages and the pending thinking."""
        self.messages.clear()
        self._prefix_cache.clear()
        self._forget_round()

    def clone(self) -> Conversation:
        """Return a deep copy, with signatures, redacted data and provider state. Changes to the copy's blocks do not
        affect the original.
        """
        clone = Conversation()
        # One call of `deepcopy`, because these three share blocks.
        clone.messages, clone.pending, clone._round = copy.deepcopy((self.messages, self.pending, self._round))
        clone._prefix_cache = self._prefix_cache.copy()
        return clone

    def request(self, model: str, **options: Unpack[RequestOptions]) -> Request:
        """Return a request for the next turn with the messages as they are now. Messages added later are not part of
        it. `Request` describes the options.
        """
        return with_prefix_cache(Request(model, tuple(self.messages), **options), self._prefix_cache)

    # --- agents ---

    def add_response(self, response: Response) -> None:
        """Append the whole answer as an assistant message. An answer without content and refusal appends nothing. The
        pending thinking is dropped.
        """
        RESPONSE.check(response, "response")
        message = response.to_message()
        if message.content:
            self.messages.append(message)
        self._forget_round()

    def keep_thinking(self, response: Response) -> None:
        """Keep the response's thinking, and the text and other content beside its calls, until the calls are executed.
        What was kept of an earlier response is dropped.

        A response without calls is not kept. Use `add_response` for it.
        """
        RESPONSE.check(response, "response")
        self._forget_round()
        self._round.blocks += response.content
        self.pending.blocks += [block for block in response.content if isinstance(block, Thinking | RedactedThinking)]

    def complete_tool(
        self, call: ToolCall, output: str | list[Text | Image | File], *, is_error: bool = False
    ) -> tuple[Message, Message]:
        """Append an executed tool call, with the pending thinking and the response's text before it, and its result.

        The pending thinking is used up. The calls of one kept response may be completed in any order. They make one
        message, in the response's order, and their results make another.

        Returns these two messages, with all calls of the response that were executed so far. They replace the two that
        the previous call for the same response returned. A storage that can only append stores them after each call:
        `from_rows` treats a pair that repeats and extends the pair before it as its replacement.

        Raises `InvalidRequestError` for a call without an id, and for an output that is no text and no list of blocks.
        """
        CALL.check(call, "call")
        result = checked_result(call.id, output, is_error, id_field="call.id", content_field="output")
        current = self._round
        if current.place_of(call) is None:
            pair = Message(Role.ASSISTANT, [*self.pending.blocks, call]), Message(Role.TOOL, result)
            self.messages += pair
            self._forget_round()
            return pair
        if current.asked is not None:
            if len(self.messages) >= 2 and self.messages[-2] is current.asked:
                # New messages replace them: a request that has the old ones does not change.
                del self.messages[-2:]
            else:
                current.drop_executed()
        current.take(call, result)
        asked, answered = current.messages()
        current.asked = asked
        self.messages += (asked, answered)
        self.pending = PendingThinking()
        return asked, answered

    def _forget_round(self) -> None:
        self.pending = PendingThinking()
        self._round = _Round()

    # --- rows ---

    def rows(self) -> list[Row]:
        """Return the messages as database rows. Pending thinking is not stored, because its call is not."""
        return [row for message in self.messages for row in rows_from_message(message)]

    @classmethod
    def from_rows(cls, rows: Iterable[Row], *, strict: bool = True) -> Conversation:
        """Return a conversation made of rows. Of the pairs that `complete_tool` returned for one response, only the
        last is kept.

        strict: raise `RowError` for a result that no earlier call asked for. If False, the result is kept; no request
            will carry it.

        Raises `RowError` for a row that cannot be read.
        """
        return cls(_without_replaced(messages_from_rows(rows, strict=strict)))
