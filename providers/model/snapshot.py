"""A snapshot of messages: every value that their wire form may depend on, to find out later whether one has changed.

Messages and blocks are mutable, and nothing reports a change. So a snapshot keeps every value, and a comparison checks
them all. Values that cannot change (text, bytes, a flag) are compared by identity or equality; values that can change
(a provider's state, citations) are kept and compared as bytes. No digest and no dirty flag is trusted. Where a value
cannot be kept exactly, there is no snapshot.

A long conversation has thousands of blocks, most of them plain. Those are fetched and compared without a Python frame
each, at a small part of the cost of writing them.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from operator import attrgetter, call, eq, is_
from typing import TypeAlias, cast

from ..errors import ManystreamError
from .messages import BLOCK_TYPES, Block, CacheControl, Message, ProviderState, Role

Look: TypeAlias = Callable[[Block], object]
"""Returns the values of a block, in a form that can be compared later."""

MEMBERS = {kind: tuple(member.name for member in fields(kind)) for kind in BLOCK_TYPES}

PLAIN_LOOKS: dict[type[Block], Look] = {kind: attrgetter(*members) for kind, members in MEMBERS.items()}
"""Block type → the function that returns its attributes as they are, for blocks with unchanging values."""

UNCHANGING = frozenset({str, bytes, bool, type(None), CacheControl})
"""Types whose values cannot change, and whose equal values have the same wire form."""

EMPTY: list[object] = []
"""The value of an empty list in a snapshot. No block refers to this object, so it never gets an element."""

PLAIN_FORMAT = 2
"""The version of `marshal` that writes a value the same way every time, and values of different types differently."""


class UnsnapshottableError(ManystreamError, TypeError):
    """A value that cannot be kept exactly."""


def deep_look(block: Block) -> object:
    """Return a block's values, those that can change as bytes. Raises `UnsnapshottableError`."""
    members = MEMBERS.get(type(block))
    if members is None:
        raise UnsnapshottableError(type(block).__name__)
    return tuple(_kept(getattr(block, name)) for name in members)


def _kept(value: object) -> object:
    """Return a value in a form that cannot change. Raises `UnsnapshottableError`."""
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
    """Return plain data as bytes that are the same for the same data and for no other."""
    try:
        return marshal.dumps(value, PLAIN_FORMAT)  # type: ignore[arg-type]
    except ValueError as error:
        raise UnsnapshottableError(f"{type(value).__name__}: {error}") from None


def _first_look(block: Block) -> tuple[Look, object]:
    """Return the function that reads a block's values, and the values now. Raises `UnsnapshottableError`."""
    look = PLAIN_LOOKS.get(type(block))
    if look is None:
        raise UnsnapshottableError(type(block).__name__)
    shown = cast("tuple[object, ...]", look(block))
    if UNCHANGING.issuperset(map(type, shown)):
        return look, shown
    # An empty list needs no copy as bytes: another empty list is kept, which differs once the block's gets an element.
    if all(type(value) in UNCHANGING or value == [] for value in shown):
        return look, tuple(value if type(value) in UNCHANGING else EMPTY for value in shown)
    return deep_look, deep_look(block)


@dataclass(slots=True, frozen=True)
class Snapshot:
    """The values of some messages at one time. It is never changed: `extended` makes another one.

    roles: the role of each message.
    lengths: the number of blocks of each message.
    kinds: the type of each block of all messages, in order.
    looks: for each block, the function that reads its values.
    held: for each block, its values.
    """

    roles: tuple[Role, ...] = ()
    lengths: tuple[int, ...] = ()
    kinds: tuple[type[Block], ...] = ()
    looks: tuple[Look, ...] = ()
    held: tuple[object, ...] = ()

    def __len__(self) -> int:
        return len(self.roles)

    def matches(self, messages: Sequence[Message]) -> bool:
        """Whether these messages equal the snapshot: the same number of them, and every value."""
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
        except TypeError:  # `UnsnapshottableError` is one; so is a content that is no list
            return False

    def extended(self, messages: Sequence[Message]) -> Snapshot | None:
        """Return a snapshot with more messages after these, or None where a value cannot be kept exactly."""
        if not _are_messages(messages) or not all(type(message.role) is Role for message in messages):
            return None
        blocks = [block for message in messages for block in message.content]
        try:
            found = [_first_look(block) for block in blocks]
        except UnsnapshottableError:
            return None
        return Snapshot(
            (*self.roles, *(message.role for message in messages)),
            (*self.lengths, *(len(message.content) for message in messages)),
            (*self.kinds, *map(type, blocks)),
            (*self.looks, *(look for look, _ in found)),
            (*self.held, *(held for _, held in found)),
        )


_ROLE: Callable[[Message], object] = attrgetter("role")


def _are_messages(messages: Sequence[Message]) -> bool:
    return set(map(type, messages)) <= {Message}
