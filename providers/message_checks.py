"""The checks of messages that need no dialect: which blocks a role may have, and which fields a block requires.

Knows the message model and the rules of its fields. Must not know requests nor any wire form. The checks run over every
message of a request, and a long conversation has thousands. So a fast check of the fields' types accepts nearly every
block, and the thorough check runs only where the fast one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .errors import InvalidRequestError
from .message_rules import BLOCKS, MESSAGE
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
"""Role → the block types that it may have."""

WITH_SOURCES = frozenset({Image, File})
"""Blocks with fields that exclude each other. The rules of single fields do not check that."""

LOOKS: dict[Role, dict[type[Block], Callable[[object], bool]]] = {
    role: {kind: BLOCKS[kind].passes for kind in kinds - WITH_SOURCES} for role, kinds in ROLE_BLOCKS.items()
}
"""Role → block type → the fast check, for blocks that need no other check."""


def validate_messages(messages: Sequence[Message], first: int = 0) -> None:
    """Check everything about messages that all dialects require. Changes nothing.

    first: the position of the first of these messages in the conversation, for the error.

    Raises `InvalidRequestError` naming the field.
    """
    for number, message in enumerate(messages, first):
        if not _passes(message):
            _validate_message(message, f"messages[{number}]")


def _passes(message: Message) -> bool:
    """Return whether the fast check accepts a message. False does not mean that it is invalid."""
    if type(message) is not Message or type(message.provider_metadata) is not dict:
        return False
    role, content = message.role, message.content
    if type(role) is not Role or type(content) is not list or not content:
        return False
    for block in content:
        # The two most common blocks in their plain form. Their rules, written out here, take half as long as a call.
        if type(block) is Text:
            plain = type(block.text) is str and block.citations == [] and block.state is None
            plain = plain and block.cache_control is None
        elif type(block) is ToolResult:
            plain = type(block.content) is str and type(block.is_error) is bool and block.cache_control is None
            plain = plain and type(block.tool_call_id) is str and block.tool_call_id != ""
        else:
            plain = False
        if plain:
            continue
        look = LOOKS[role].get(type(block))
        if look is None or not look(block):
            return False
    return True


def _validate_message(message: Message, where: str) -> None:
    """Check a message thoroughly. Raises `InvalidRequestError` naming the field."""
    MESSAGE.check(message, where)
    if not message.content:
        raise InvalidRequestError(f"{where}.content", "must hold at least one block")
    allowed = ROLE_BLOCKS[message.role]
    for position, block in enumerate(message.content):
        _validate_block(block, message.role, allowed, f"{where}.content[{position}]")


def _validate_block(block: Block, role: Role, allowed: frozenset[type[Block]], where: str) -> None:
    if not isinstance(block, BLOCK_TYPES):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequestError(where, f"unsupported content block {type(block).__name__}")
    if type(block) not in allowed:
        raise InvalidRequestError(where, f"a {role} message cannot hold a {type(block).__name__} block")
    BLOCKS[type(block)].check(block, where)
    if isinstance(block, Image | File):
        _validate_source(block, where)
    elif isinstance(block, ToolResult) and isinstance(block.content, list):
        for position, part in enumerate(block.content):
            if isinstance(part, Image | File):
                _validate_source(part, f"{where}.content[{position}]")


def _validate_source(block: Image | File, where: str) -> None:
    given = sum(source is not None for source in (block.data, block.url, block.file_id))
    if given != 1:
        raise InvalidRequestError(where, f"needs exactly one of data, url and file_id, not {given}")
    if block.data is not None and not block.media_type:
        raise InvalidRequestError(f"{where}.media_type", "is needed with data, such as 'image/png'")
