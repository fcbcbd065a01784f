"""The rules for the fields of messages and content blocks, one row per field."""

from __future__ import annotations

from ..model.messages import (
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
from .rules import Checker, Rule, checked, either, flag, instance, optional, sequence, text, word

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
"""Block type → the rules for its fields. `message_checks.py` checks which roles may have a block, and which fields
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
