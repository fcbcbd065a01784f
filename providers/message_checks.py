"""The checks of messages that need no dialect: which blocks a role may hold, and what a block cannot do without.

Knows the message model. Must not know requests nor any wire form. Runs over every message of a request, of which a long
conversation has thousands: the common ones pass in one look at their type.
"""

from __future__ import annotations

from collections.abc import Sequence

from .errors import InvalidRequestError
from .exact_numbers import find_unheld, has_odd_numbers, shortened
from .json_values import MalformedJSONError, exact_loads
from .messages import (
    BLOCK_TYPES,
    Block,
    File,
    Image,
    Message,
    ProviderBlock,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

ROLE_BLOCKS: dict[Role, frozenset[type[Block]]] = {
    Role.USER: frozenset({Text, Image, File, ToolResult, ProviderBlock}),
    Role.ASSISTANT: frozenset({Text, Thinking, RedactedThinking, ToolCall, Image, File, ProviderBlock, ToolResult}),
    Role.TOOL: frozenset({ToolResult, Text}),
}
"""Which blocks a role may hold."""

PLAIN_BLOCKS = frozenset({Text, Thinking, RedactedThinking, ProviderBlock})
"""Blocks that have nothing to check but whether their role may hold them."""

PLAIN_OF_ROLE: dict[object, frozenset[type[Block]]] = {
    role: blocks & PLAIN_BLOCKS for role, blocks in ROLE_BLOCKS.items()
}


def validate_messages(messages: Sequence[Message], first: int = 0) -> None:
    """Check what every dialect needs. `first`: the number of the first of them, for the error. Raises
    `InvalidRequestError` naming the field; changes nothing."""
    for number, message in enumerate(messages, first):
        if type(message) is not Message:
            _validate_message(message, f"messages[{number}]")
            continue
        plain = PLAIN_OF_ROLE.get(message.role)
        if plain is None or not message.content:
            _validate_message(message, f"messages[{number}]")
            continue
        for block in message.content:
            if type(block) in plain or (type(block) is ToolResult and block.tool_call_id):
                continue
            if (
                type(block) is ToolCall
                and block.id
                and block.name
                and message.role is Role.ASSISTANT
                and type(block.arguments) is str
                and not has_odd_numbers(block.arguments)
            ):
                continue
            _validate_message(message, f"messages[{number}]")
            break


def _validate_message(message: Message, where: str) -> None:
    """The same once more, with the time to say what is wrong."""
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequestError(where, f"must be a Message, not {type(message).__name__}")
    allowed = ROLE_BLOCKS.get(message.role)
    if allowed is None:
        raise InvalidRequestError(f"{where}.role", f"must be one of {', '.join(Role)}, not {message.role!r}")
    if not message.content:
        raise InvalidRequestError(f"{where}.content", "must hold at least one block")
    for position, block in enumerate(message.content):
        _validate_block(block, message.role, allowed, f"{where}.content[{position}]")


def _validate_block(block: Block, role: Role, allowed: frozenset[type[Block]], where: str) -> None:
    if not isinstance(block, BLOCK_TYPES):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequestError(where, f"unsupported content block {type(block).__name__}")
    if type(block) not in allowed:
        raise InvalidRequestError(where, f"a {role} message cannot hold a {type(block).__name__} block")
    if isinstance(block, Image | File):
        given = sum(source is not None for source in (block.data, block.url, block.file_id))
        if given != 1:
            raise InvalidRequestError(where, f"needs exactly one of data, url and file_id, not {given}")
        if block.data is not None and not block.media_type:
            raise InvalidRequestError(f"{where}.media_type", "is needed with data, such as 'image/png'")
    elif isinstance(block, ToolCall):
        if not block.name:
            raise InvalidRequestError(f"{where}.name", "a tool call needs a name")
        if not block.id:
            raise InvalidRequestError(f"{where}.id", "a tool call needs an id")
        _validate_numbers(block, where)
    elif isinstance(block, ToolResult) and not block.tool_call_id:
        raise InvalidRequestError(f"{where}.tool_call_id", "a tool result needs the id of its call")


def _validate_numbers(block: ToolCall, where: str) -> None:
    """Refuse arguments with a number that Python cannot hold: not every dialect can send it. What is no JSON is sent
    as text."""
    if not isinstance(block.arguments, str) or not has_odd_numbers(block.arguments):  # pyright: ignore[reportUnnecessaryIsInstance]
        return
    try:
        unheld = find_unheld(exact_loads(block.arguments))
    except MalformedJSONError:
        return
    if unheld is not None:
        path, number = unheld
        raise InvalidRequestError(f"{where}.arguments{path}", f"Python cannot hold the number {shortened(number.text)}")
