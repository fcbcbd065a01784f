"""Messages of a request: the fast check, and errors with their place."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.model.message_rules import BLOCKS, validate_messages
from tests.providers.model.test_rules import MARK, STATE

PLAIN_BLOCKS: list[object] = [
    ms.Text("a", [{"u": 1}], MARK, STATE), ms.Image(b"a", "image/png", "u", "f", "low", MARK, STATE),
    ms.File(b"a", "text/csv", "u", "f", "n", MARK, STATE), ms.Thinking("h", "s", STATE),
    ms.RedactedThinking("d", STATE), ms.ToolCall("c", "f", '{"a": 1}', True, STATE, MARK),
    ms.ToolResult("c", "r", True, MARK), ms.ToolResult("c", [ms.Text("r")]), ms.ProviderBlock("p", {"a": 1}),
]  # fmt: skip


@pytest.mark.parametrize("block", PLAIN_BLOCKS, ids=lambda block: type(block).__name__)
def test_usual_blocks_pass_the_fast_check(block: object) -> None:
    assert BLOCKS[type(block)].passes(block)  # type: ignore[index]


# --- messages ---
def changed(message: ms.Message, name: str, value: object) -> ms.Message:
    """Return the message with a value that its constructor refuses."""
    setattr(message, name, value)
    return message


MESSAGES: list[tuple[object, str]] = [
    ("a", "messages[5]: must be a Message, not str; use Message.user(…)"),
    (None, "messages[5]: must be a Message, not None"),
    (ms.Message("user", []), "messages[5].content: must hold at least one block"),
    (changed(ms.Message.user("a"), "content", [7]), "messages[5].content[0]: unsupported content block int"),
    (ms.Message("user", [ms.Text("a"), ms.Thinking("h")]),
        "messages[5].content[1]: a user message cannot hold a Thinking block"),
    (ms.Message("tool", ms.Image(url="u")), "messages[5].content[0]: a tool message cannot hold a Image block"),
    (ms.Message("user", ms.Text(1)), "messages[5].content[0].text: must be text, not 1"),
    (ms.Message("user", ms.Image()), "messages[5].content[0]: needs exactly one of data, url and file_id, not 0"),
    (ms.Message("user", ms.File(b"a", "t", "u", "f")),
        "messages[5].content[0]: needs exactly one of data, url and file_id, not 3"),
    (ms.Message("user", ms.Image(b"a")), "messages[5].content[0].media_type: is needed with data, such as 'image/png'"),
    (ms.Message("tool", ms.ToolResult("c", [ms.Text("a"), ms.Image(b"a")])),
        "messages[5].content[0].content[1].media_type: is needed with data, such as 'image/png'"),
    (ms.Message("tool", ms.ToolResult("c", [ms.Text("a"), ms.Thinking("h")])),
        "messages[5].content[0].content[1]: must be a Text, Image or File block, not Thinking"),
    (changed(ms.Message.user("a"), "provider_metadata", 7), "messages[5].provider_metadata: must be a dict, not 7"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "words"), MESSAGES)
def test_a_wrong_message_is_refused_by_its_place(message: object, words: str) -> None:
    right = ms.Message.user("a")
    with pytest.raises(ms.InvalidRequestError) as caught:
        validate_messages([right, message], 4)  # type: ignore[list-item]
    assert str(caught.value) == words
    assert words.startswith(f"{caught.value.field}: ")


def test_a_changed_role_is_refused() -> None:
    message = ms.Message.user("a")
    message.role = "user"  # type: ignore[assignment]
    with pytest.raises(ms.InvalidRequestError) as caught:
        validate_messages([message])
    assert str(caught.value) == "messages[0].role: must be a Role, not 'user'; use Role('user')"


def test_messages_that_every_dialect_may_get() -> None:
    call = ms.ToolCall("c", "f", '{"a": 12345678901234567890123, "b": "1e999"}')
    validate_messages(
        [
            ms.Message("user", [ms.Image(url="u"), ms.File(file_id="f"), ms.Image(b"", "image/png"), ms.Text("")]),
            ms.Message("assistant", [ms.Thinking(""), ms.RedactedThinking("d"), call, ms.ToolCall("c", "f", "{1e999")]),
            ms.Message("tool", [ms.ToolResult("c", [ms.Image(url="u")]), ms.Text("a")]),
            ms.Message("assistant", [ms.ToolResult("c", ""), ms.ProviderBlock("p", {})]),
        ]
    )
