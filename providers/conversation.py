"""An agent's conversation: its messages, and the thinking that waits for its tool call to be executed.

Knows messages. Must not know where they are stored, nor who is asked.

Parallel calls of one answer are one message, whichever way they are added: providers want the thinking back once,
before the first of them, and all their results after the last.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Unpack, cast

from .messages import Block, File, Image, Message, RedactedThinking, Role, Text, Thinking, ToolCall, ToolResult
from .prefix_cache import PrefixCache
from .request import Request, RequestOptions, with_prefix_cache
from .response import Response
from .rows import Row, messages_from_rows, rows_from_message


@dataclass(slots=True)
class PendingThinking:
    """What the last response thought before its tool calls, until they are executed.

    blocks: thinking and redacted thinking that no executed call has taken yet, in order.
    """

    blocks: list[Thinking | RedactedThinking] = field(default_factory=lambda: [])

    @property
    def thinking(self) -> Thinking | None:
        """The first visible thinking, with its signature."""
        return next((block for block in self.blocks if isinstance(block, Thinking)), None)

    @property
    def redacted(self) -> RedactedThinking | None:
        """The first redacted thinking."""
        return next((block for block in self.blocks if isinstance(block, RedactedThinking)), None)

    def __bool__(self) -> bool:
        return bool(self.blocks)


@dataclass(slots=True)
class _Round:
    """A kept response on its way into the messages.

    blocks: its thinking and its calls, in order. results: of the calls executed so far, by the call's place in
    `blocks`, because a caller's own calls may share an id. asked: the message that holds those calls; their results are
    in the one after it.
    """

    blocks: list[Thinking | RedactedThinking | ToolCall] = field(default_factory=lambda: [])
    results: dict[int, ToolResult] = field(default_factory=lambda: {})
    asked: Message | None = None

    def place_of(self, call: ToolCall) -> int | None:
        """The place of this call among those that were not executed yet: the call itself, else one that is equal, else
        one with its id. None where the response made no such call."""
        waiting = [n for n, block in enumerate(self.blocks) if isinstance(block, ToolCall) and n not in self.results]
        same_id = [n for n in waiting if cast("ToolCall", self.blocks[n]).id == call.id]
        itself = [n for n in same_id if self.blocks[n] is call]
        equal = [n for n in same_id if self.blocks[n] == call]
        return next(iter((*itself, *equal, *same_id)), None)

    def take(self, call: ToolCall, result: ToolResult) -> None:
        """A call was executed. It keeps its place, with what the caller may have changed in it."""
        place = self.place_of(call)
        assert place is not None
        self.blocks[place] = call
        self.results[place] = result

    def messages(self) -> tuple[Message, Message]:
        """The executed calls with all thinking before them, and their results."""
        done = sorted(self.results)
        kept = [block for n, block in enumerate(self.blocks[: done[-1] + 1]) if n in done or not _is_call(block)]
        return Message(Role.ASSISTANT, kept), Message(Role.TOOL, [self.results[n] for n in done])

    def drop_executed(self) -> None:
        """What is in the messages stays there as it is; the calls that are left make another message."""
        assert self.asked is not None
        gone = {id(block) for block in self.asked.content}
        self.blocks = [block for block in self.blocks if id(block) not in gone]
        self.results, self.asked = {}, None


def _is_call(block: Block) -> bool:
    return isinstance(block, ToolCall)


def _without_replaced(messages: Iterable[Message]) -> list[Message]:
    """The messages without each pair of calls and results that the pair after it repeats and extends."""
    kept: list[Message] = []
    for message in messages:
        kept.append(message)
        if message.role is Role.TOOL and len(kept) >= 4:
            asked_before, answered_before, asked, answered = kept[-4:]
            if _extends(asked, asked_before) and _extends(answered, answered_before):
                del kept[-4:-2]
    return kept


def _extends(later: Message, earlier: Message) -> bool:
    """Whether a message has all blocks of another one, in their order, and calls or results besides."""
    more = iter(later.content)
    if later.role is not earlier.role or len(later.content) <= len(earlier.content):
        return False
    return all(isinstance(block, ACCUMULATED) for block in later.content) and all(
        any(block == candidate for candidate in more) for block in earlier.content
    )


ACCUMULATED = (Thinking, RedactedThinking, ToolCall, ToolResult)
"""The blocks of the messages that `complete_tool` makes."""


class Conversation:
    """Messages in order. `add` appends; `clone` is deep: changing the copy's blocks never changes the original.

    An agent that keeps whole responses uses `add_response`. One that stores a tool call only once it is executed
    (so that no unpaired call is ever stored) calls `keep_thinking(response)` and then, for each call, `complete_tool`.

    Its requests share a cache of their wire form (`prefix_cache.py`): a turn appended to a long conversation costs that
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
        """Append a message. Raises `TypeError` for anything else."""
        self.extend((message,))

    def extend(self, messages: Iterable[Message]) -> None:
        """Append messages: all of them, or none where one is no `Message` (`TypeError`)."""
        added = list(messages)
        for message in added:
            if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"a conversation holds Message values, not {type(message).__name__}")
        self.messages.extend(added)

    def clear(self) -> None:
        """Forget all messages, and the pending thinking."""
        self.messages.clear()
        self._prefix_cache.clear()
        self._forget_round()

    def clone(self) -> Conversation:
        """A deep copy: signatures, redacted data and provider state included."""
        clone = Conversation()
        # In one copy, as they share blocks.
        clone.messages, clone.pending, clone._round = copy.deepcopy((self.messages, self.pending, self._round))
        clone._prefix_cache = self._prefix_cache.copy()
        return clone

    def request(self, model: str, **options: Unpack[RequestOptions]) -> Request:
        """A request for the next turn, with a snapshot of the list of messages: later ones do not change it. `Request`
        says what the options mean."""
        return with_prefix_cache(Request(model, tuple(self.messages), **options), self._prefix_cache)

    # --- agents ---

    def add_response(self, response: Response) -> None:
        """Append the whole answer as the assistant's message; an answer without content adds nothing."""
        if response.content:
            self.messages.append(response.to_message())
        self._forget_round()

    def keep_thinking(self, response: Response) -> None:
        """Keep the response's thinking for the tool calls that it led to; what an earlier response left is forgotten.
        Its text is not kept: an agent that wants that, too, uses `add_response`."""
        self._forget_round()
        for block in response.content:
            if isinstance(block, Thinking | RedactedThinking):
                self.pending.blocks.append(block)
                self._round.blocks.append(block)
            elif isinstance(block, ToolCall):
                self._round.blocks.append(block)

    def complete_tool(
        self, call: ToolCall, output: str | list[Text | Image | File], *, is_error: bool = False
    ) -> tuple[Message, Message]:
        """A tool was executed: append its call, with the pending thinking before it, and its result. The pending
        thinking is used up. The calls of one kept response may be completed in any order; they make one message, in
        the response's order, and their results another.

        Returns the two messages, which hold all calls of the response that were executed so far. They replace the two
        that the previous call of the same response returned. Storage that can only append appends them after each call:
        `from_rows` reads a pair that repeats and extends the one before it as that pair's replacement."""
        result = ToolResult(call.id, output, is_error)
        current = self._round
        if current.place_of(call) is None:
            pair = Message(Role.ASSISTANT, [*self.pending.blocks, call]), Message(Role.TOOL, result)
            self.messages += pair
            self._forget_round()
            return pair
        if current.asked is not None:
            if len(self.messages) >= 2 and self.messages[-2] is current.asked:
                # New messages take their places: a request that holds the old ones stays as it was.
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
        """The messages as database rows; pending thinking is not stored, as its call is not."""
        return [row for message in self.messages for row in rows_from_message(message)]

    @classmethod
    def from_rows(cls, rows: Iterable[Row], *, strict: bool = True) -> Conversation:
        """A conversation from its rows; of the pairs that `complete_tool` returned for one response, only the last.
        Raises `RowError`, for a result that no earlier call asked for, too; not `strict` keeps such a result (no
        request will carry it)."""
        return cls(_without_replaced(messages_from_rows(rows, strict=strict)))
