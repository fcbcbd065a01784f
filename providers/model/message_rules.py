"""The rules for the fields of messages and content blocks, one row per field, and the checks that need no dialect.

The checks run over every message of a request, and a long conversation has thousands. So a fast check of the fields'
types accepts nearly every block, and the thorough check runs only where the fast one fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidRequestError
from .messages import (
    ASSISTANT,
    BLOCK_TYPES,
    FROM_TEXT,
    IMAGE_DETAILS,
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
from .rules import Checker, FastCheck, Rule, checked, either, flag, instance, optional, sequence, text, word

TEXT = text()
NAME = text("text that is not empty", empty=False)
MAYBE_TEXT = optional(TEXT)
MAYBE_FLAG = optional(flag())
OBJECT = instance(dict, must="a dict")

MARK = Checker(CacheControl, {"ttl": optional(word("5m", "1h"))})
STATE = Checker(ProviderState, {"provider": NAME, "data": OBJECT})
MAYBE_MARK = optional(checked(MARK, forms={str: "use CacheControl({})", dict: "use CacheControl(…)"}))
MAYBE_STATE = optional(checked(STATE))

MEDIA = {
    "data": optional(instance(bytes, bytearray, memoryview, must="bytes", forms={str: FROM_TEXT})),
    "media_type": MAYBE_TEXT,
    "url": MAYBE_TEXT,
    "file_id": MAYBE_TEXT,
    "cache_control": MAYBE_MARK,
    "state": MAYBE_STATE,
}

TEXT_BLOCK = Checker(
    Text,
    {
        "text": TEXT,
        "citations": sequence(OBJECT, "a list of dicts"),
        "cache_control": MAYBE_MARK,
        "state": MAYBE_STATE,
    },
)
IMAGE = Checker(Image, {**MEDIA, "detail": optional(word(*IMAGE_DETAILS))})
FILE = Checker(File, {**MEDIA, "name": MAYBE_TEXT})
ONLY_TEXT = sequence(checked(TEXT_BLOCK), "a list")
RESULT_PARTS = sequence(either("a Text, Image or File block", TEXT_BLOCK, IMAGE, FILE), "a list")


BLOCKS: dict[type[Block], Checker] = {
    Text: TEXT_BLOCK,
    Image: IMAGE,
    File: FILE,
    Thinking: Checker(Thinking, {"text": TEXT, "signature": MAYBE_TEXT, "state": MAYBE_STATE}),
    RedactedThinking: Checker(RedactedThinking, {"data": TEXT, "state": MAYBE_STATE}),
    ToolCall: Checker(
        ToolCall,
        {
            "id": NAME,
            "name": NAME,
            "arguments": text("JSON text"),
            "complete": flag(),
            "state": MAYBE_STATE,
            "cache_control": MAYBE_MARK,
        },
    ),
    ToolResult: Checker(
        ToolResult,
        {
            "tool_call_id": NAME,
            "content": Rule(
                "text or a list of blocks",
                (str, list),
                ONLY_TEXT.fits,
                free=(str,),
                inside=RESULT_PARTS.inside,
                item=ONLY_TEXT.item,
                forms={Text: "use [text]", Image: "use [image]", File: "use [file]", dict: "use json.dumps(…)"},
                secret=True,
            ),
            "is_error": flag(),
            "cache_control": MAYBE_MARK,
        },
    ),
    ProviderBlock: Checker(ProviderBlock, {"provider": NAME, "data": OBJECT}),
}
"""Block type → the rules for its fields. `validate_messages` checks which roles may have a block, and which fields
exclude each other.
"""

MESSAGE = Checker(
    Message,
    {
        "role": instance(Role, forms={str: "use Role({})"}),
        "content": Rule("a list of blocks", (list,), forms={str: "use [Text(…)]"}, secret=True),
        "provider_metadata": OBJECT,
    },
)


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
