"""The checks of messages that need no dialect: which blocks a role may have, and which fields a block requires.

The checks run over every message of a request, and a long conversation has thousands. So a fast check of the fields'
types accepts nearly every block, and the thorough check runs only where the fast one fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidRequestError
from ..model.messages import (
    ASSISTANT,
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
from .message_rules import BLOCKS, MESSAGE
from .rules import FastCheck, Rule, either

ROLE_BLOCKS: dict[Role, frozenset[type[Block]]] = {
    Role.USER: frozenset({Text, Image, File, ToolResult, ProviderBlock}),
    Role.ASSISTANT: frozenset({Text, Thinking, RedactedThinking, ToolCall, Image, File, ProviderBlock, ToolResult}),
    Role.TOOL: frozenset({ToolResult, Text}),
    Role.SYSTEM: frozenset({Text, Image, File, ProviderBlock}),
}
"""Role → the block types that it may have."""

WITH_SOURCES = frozenset({Image, File})
"""Blocks with fields that exclude each other. The rules of single fields do not check that."""

CONTENT: dict[Role, FastCheck] = {
    role: FastCheck(
        Rule("", (list,), bool, item=either("", *(BLOCKS[kind] for kind in BLOCKS if kind in kinds - WITH_SOURCES)))
    )
    for role, kinds in ROLE_BLOCKS.items()
}
"""Role → the fast check of a message's content, for blocks that need no other check."""


ONE_MESSAGE = Rule(
    "a Message", (Message,), forms={str: "use Message.user(…)", dict: "give all messages in one list"}, secret=True
)


def validate_messages(messages: Sequence[Message], first: int = 0) -> None:
    """Check everything about messages that all dialects require. Changes nothing.

    first: the position of the first of these messages in the conversation, for the error.

    Raises `InvalidRequestError` naming the field.
    """
    for number, message in enumerate(messages, first):
        if (
            type(message) is not Message
            or type(message.provider_metadata) is not dict
            or type(message.role) is not Role
            or not CONTENT[message.role].passes(message.content)
        ):
            _validate_message(message, f"messages[{number}]")


def _validate_message(message: Message, where: str) -> None:
    """Check a message thoroughly. Raises `InvalidRequestError` naming the field.

    An assistant's message may be empty, because an answer may be. It is not sent.
    """
    ONE_MESSAGE.check(message, where)
    MESSAGE.check(message, where)
    if not message.content and message.role is not ASSISTANT:
        raise InvalidRequestError(f"{where}.content", "must hold at least one block")
    allowed = ROLE_BLOCKS[message.role]
    for position, block in enumerate(message.content):
        _validate_block(block, message.role, allowed, f"{where}.content[{position}]")


def check_fields(content: Sequence[Block], where: str, allowed: frozenset[type[Block]] | None = None) -> None:
    """Check that the blocks are blocks, and that each field has a type that it may have, and an id if it needs one.

    This is what a row or a provider's own message must hold. A request checks more. Raises `InvalidRequestError`.

    where: the path of the message.
    allowed: the block types that its role may have; None: any.
    """
    for position, block in enumerate(content):
        place = f"{where}.content[{position}]"
        if type(block) not in BLOCKS:
            raise InvalidRequestError(place, f"unsupported content block {type(block).__name__}")
        if allowed is not None and type(block) not in allowed:
            raise InvalidRequestError(place, f"a message of this role cannot hold a {type(block).__name__} block")
        for name, rule in BLOCKS[type(block)].rules.items():
            value = getattr(block, name)
            if not rule.takes(value) or value == "":
                rule.check(value, f"{place}.{name}")


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
