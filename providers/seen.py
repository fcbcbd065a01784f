"""Exactly what messages held when they were looked at, so that a later look can tell whether anything changed.

Messages and blocks may be changed at any time, by anyone who holds them, and nothing tells. So a look keeps every value
that their wire form may depend on, and the next one compares them all: by identity or equality where a value cannot
change (text, bytes, a flag), and where it can (a provider's state, citations) as its bytes at that time. No digest is
trusted, and no mark that somebody could forget to set. What holds a value that cannot be kept exactly is not kept.

A long conversation has thousands of blocks, and most are the plain ones. Theirs are fetched and compared without a
frame of Python; that is a small part of what writing them would cost. Must not know any wire form.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, call, eq, is_
from typing import TypeAlias, cast

from .errors import ManystreamError
from .messages import (
    BLOCK_TYPES,
    Block,
    CacheControl,
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

Look: TypeAlias = "Callable[[Block], object]"

MEMBERS: dict[type[Block], tuple[str, ...]] = {
    Text: ("text", "citations", "cache_control", "state"),
    Thinking: ("text", "signature", "state"),
    RedactedThinking: ("data", "state"),
    ToolCall: ("id", "name", "arguments", "complete", "state", "cache_control"),
    ToolResult: ("tool_call_id", "content", "is_error", "cache_control"),
    Image: ("data", "media_type", "url", "file_id", "detail", "cache_control", "state"),
    File: ("data", "media_type", "url", "file_id", "name", "cache_control", "state"),
    ProviderBlock: ("provider", "data"),
}
"""Block → all that it holds."""

PLAIN_LOOKS: dict[type[Block], Look] = {kind: attrgetter(*members) for kind, members in MEMBERS.items()}

UNCHANGING = frozenset({str, bytes, bool, type(None), CacheControl})
"""Types whose values cannot change, and of which equal values are written alike."""

EMPTY: list[object] = []
"""Held for an empty list; nobody else has this one."""

PLAIN_FORMAT = 2
"""The version of `marshal` that writes a value the same way every time, and values of different types differently."""


class NotKeptError(ManystreamError, TypeError):
    """A value that cannot be kept exactly."""


def deep_look(block: Block) -> object:
    """All that a block holds, with what can change in it as bytes. Raises `NotKeptError`."""
    members = MEMBERS.get(type(block))
    if members is None:
        raise NotKeptError(type(block).__name__)
    return tuple(_kept(getattr(block, name)) for name in members)


def _kept(value: object) -> object:
    kind = type(value)
    if kind in UNCHANGING:
        return value
    if isinstance(value, ProviderState):
        return kind, value.provider, _marshalled(value.data)
    if isinstance(value, list):
        parts = cast("list[object]", value)
        if any(isinstance(part, BLOCK_TYPES) for part in parts):
            return [(type(part), deep_look(part) if isinstance(part, BLOCK_TYPES) else _kept(part)) for part in parts]
        return _marshalled(parts)
    return _marshalled(value)


def _marshalled(value: object) -> bytes:
    """Plain data as bytes: the same bytes for the same data, and for no other."""
    try:
        return marshal.dumps(value, PLAIN_FORMAT)  # type: ignore[arg-type]
    except ValueError as error:
        raise NotKeptError(f"{type(value).__name__}: {error}") from None


def _first_look(block: Block) -> tuple[Look, object]:
    """How to look at a block from now on, and what it shows now. Raises `NotKeptError`."""
    look = PLAIN_LOOKS.get(type(block))
    if look is None:
        raise NotKeptError(type(block).__name__)
    shown = cast("tuple[object, ...]", look(block))
    if UNCHANGING.issuperset(map(type, shown)):
        return look, shown
    # A list that is empty is as good as unchanging, once it is not the same list that is held: one that gets something
    # is not equal to it.
    if all(type(value) in UNCHANGING or value == [] for value in shown):
        return look, tuple(value if type(value) in UNCHANGING else EMPTY for value in shown)
    return deep_look, deep_look(block)


@dataclass(slots=True, frozen=True)
class Seen:
    """One look at messages. Nothing in it is ever changed: to see more makes another one.

    roles, lengths: of each message. kinds, looks, held: of each block of all of them, in order.
    """

    roles: tuple[Role, ...] = ()
    lengths: tuple[int, ...] = ()
    kinds: tuple[type[Block], ...] = ()
    looks: tuple[Look, ...] = ()
    held: tuple[object, ...] = ()

    def __len__(self) -> int:
        return len(self.roles)

    def is_still(self, messages: Sequence[Message]) -> bool:
        """Whether these messages are what was seen, no fewer and no more, to the last value."""
        if len(messages) != len(self.roles) or not _are_messages(messages):
            return False
        try:
            contents = [message.content for message in messages]
            blocks = list(chain.from_iterable(contents))
            return (
                all(map(is_, map(_ROLE, messages), self.roles))
                and tuple(map(len, contents)) == self.lengths
                and all(map(is_, map(type, blocks), self.kinds))
                and all(map(eq, map(call, self.looks, blocks), self.held))  # pyright: ignore[reportArgumentType]
            )
        except TypeError:  # `NotKeptError` is one; so is a content that is no list
            return False

    def and_also(self, messages: Sequence[Message]) -> Seen | None:
        """With more messages after these; None where they hold what cannot be kept exactly."""
        if not _are_messages(messages) or not all(type(message.role) is Role for message in messages):
            return None
        blocks = [block for message in messages for block in message.content]
        try:
            found = [_first_look(block) for block in blocks]
        except NotKeptError:
            return None
        return Seen(
            (*self.roles, *(message.role for message in messages)),
            (*self.lengths, *(len(message.content) for message in messages)),
            (*self.kinds, *map(type, blocks)),
            (*self.looks, *(look for look, _ in found)),
            (*self.held, *(held for _, held in found)),
        )


_ROLE: Callable[[Message], object] = attrgetter("role")


def _are_messages(messages: Sequence[Message]) -> bool:
    return set(map(type, messages)) <= {Message}
