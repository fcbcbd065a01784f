"""System messages: at the beginning they are the system prompt, later ones keep their place, in every door."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

import pytest

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.catalog.registry import dialect_of
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.history import History, HistoryError, HistoryMessage, messages_of
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.json.json_values import JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter

LATE: list[JSONObject] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "system", "content": "Now be long."},
    {"role": "user", "content": "Go on"},
]
SAID = [ms.Message.user("Hi"), ms.Message.system("Now be long."), ms.Message.user("Go on")]
LAST = [ms.Message.user("Hi"), ms.Message.assistant("Yes?"), ms.Message.user("Go on"), ms.Message.system("Be long.")]
PROVIDERS: dict[str, ms.Provider] = {
    "chat": ms.OpenAIChat("k"),
    "responses": ms.OpenAIResponses("k"),
    "anthropic": ms.Anthropic("k"),
    "gemini": ms.Gemini("k"),
}


def sent(request: ms.Request, provider: ms.Provider) -> tuple[dict[str, Any], list[str]]:
    """Return the body of a request, and the warnings."""
    wire = dialect_of(provider.profile).encode(request, request.model, provider, stream=False)
    return json.loads(wire.body), wire.warnings


def conversation(request: ms.Request, dialect: str) -> list[tuple[str, str]]:
    """Return role and text of each message that is sent."""
    body, _ = sent(request, PROVIDERS[dialect])
    messages: list[dict[str, Any]] = body.get("messages") or body["input"]
    return [(message["role"], text_of(message["content"])) for message in messages]


def text_of(content: Any) -> str:
    """Return the text of a message's content."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


# --- converters ---


@pytest.mark.parametrize("converter", [ChatConverter, ResponsesConverter, AnthropicConverter])
def test_decoding_loses_no_system_message(converter: type[HistoryConverter]) -> None:
    system: list[str] = []
    assert converter().decode_messages(LATE, system) == SAID
    assert system == ["Be brief."]
    assert converter().decode_messages(LATE) == [ms.Message.system("Be brief."), *SAID]
    again = converter().encode_messages(SAID)
    assert [message["role"] for message in again] == ["user", "system", "user"]
    assert converter().decode_messages(again) == SAID


TURNS = [
    HistoryMessage("system", "Be brief."),
    HistoryMessage("user", "Hi"),
    HistoryMessage("system", "Now be long."),
    HistoryMessage("user", "Go on"),
]


@pytest.mark.parametrize("converter", [ChatConverter, ResponsesConverter, AnthropicConverter])
def test_a_later_system_message_keeps_its_position(converter: type[HistoryConverter]) -> None:
    history = History("Be kind.", "It is cold.", TURNS)
    back = converter().to_history(converter().from_history(history))
    assert [(item.role.value, item.text) for item in back][-4:] == [
        ("user", "It is cold."),
        ("user", "Hi"),
        ("system", "Now be long."),
        ("user", "Go on"),
    ]
    first = converter().system_parameter(history) or [item.text for item in back[:-4]]
    assert first in ("Be kind.\n\nBe brief.", ["Be kind.", "Be brief."])


def test_a_later_system_message_is_refused_if_unsupported() -> None:
    with pytest.raises(HistoryError, match=r"turns\[1\]: a system message after the first turn"):
        GeminiConverter().from_history(History(conversation=TURNS))
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[1\].role: a system message after the first turn"):
        GeminiConverter().encode_messages(SAID)
    history = History(conversation=TURNS[:2])
    assert GeminiConverter().from_history(history) == [{"role": "user", "parts": [{"text": "Hi"}]}]


def test_messages_of_a_history_have_a_later_system_message() -> None:
    assert messages_of(History(conversation=TURNS)) == SAID


@pytest.mark.parametrize("wire", [{"type": "error", "message": "No."}, {"type": "keepalive"}])
def test_events_without_content_are_chunks(wire: JSONObject) -> None:
    converter = ResponsesConverter()
    if wire["type"] == "error":
        with pytest.raises(ms.ProviderError, match=r"No\."):
            converter.wrap_chunk(wire)
    else:
        assert converter.wrap_chunk(wire).get_text() == ""


# --- requests ---


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_a_system_message_in_the_middle_is_sent(dialect: str) -> None:
    request = ms.Request("m", LAST, system="Be kind.")
    expected = [("user", "Hi"), ("assistant", "Yes?"), ("user", "Go on"), ("system", "Be long.")]
    assert conversation(request, dialect)[-4:] == expected


def test_gemini_refuses_a_system_message_in_the_middle() -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[3\].role: Gemini has no system message after"):
        sent(ms.Request("m", LAST), PROVIDERS["gemini"])


@pytest.mark.parametrize("dialect", [*PROVIDERS])
def test_leading_system_messages_are_the_system_prompt(dialect: str) -> None:
    messages = [ms.Message.system("Be kind."), ms.Message.system("Be brief."), ms.Message.user("Hi")]
    request = ms.Request("m", messages)
    assert request == ms.Request("m", messages[2:], system="Be kind.\n\nBe brief.")
    assert sent(request, PROVIDERS[dialect]) == sent(
        ms.Request("m", "Hi", system="Be kind.\n\nBe brief."), PROVIDERS[dialect]
    )
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[0\]: is a system prompt"):
        ms.Request("m", messages, system="Be loud.")


ASKED = [ms.Message.user("a"), ms.Message.tool_call("c", "f", "{}")]
RESULT = ms.Message.tool_result("c", "1")
NOW = ms.Message.system("now")


@pytest.mark.parametrize(
    ("messages", "roles", "moved"),
    [
        ([*ASKED, RESULT, NOW], ["user", "assistant", "user", "system"], False),
        ([*ASKED, NOW, RESULT], ["user", "assistant", "user", "system"], False),
        ([*ASKED, RESULT, NOW, NOW, ms.Message.assistant("b")], ["user", "assistant", "user", "system", "assistant"],
            0),
        ([ms.Message.user("a"), NOW, ms.Message.user("b")], ["user", "system"], True),
        ([ms.Message.user("a"), ms.Message.assistant("b"), NOW, ms.Message.user("c")],
            ["user", "assistant", "user", "system"], True),
        ([ms.Message.user("a"), ms.Message.assistant("b"), NOW], ["user", "assistant", "system"], False),
        ([ms.Message.user("a"), ms.Message.system(" "), ms.Message.user("b")], ["user"], False),
    ],
)  # fmt: skip
def test_anthropic_gets_a_system_message_after_the_user_s(
    messages: list[ms.Message], roles: list[str], moved: bool
) -> None:
    body, warnings = sent(ms.Request("m", messages), PROVIDERS["anthropic"])
    assert [message["role"] for message in body["messages"]] == roles
    assert any("a system message before the user's is sent after it" in warning for warning in warnings) is bool(moved)


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_a_long_conversation_writes_system_messages_from_its_cache(dialect: str) -> None:
    growing = ms.Conversation()
    for turn in range(12):
        growing.extend([ms.Message.user(f"{turn}"), ms.Message.system(f"rule {turn}"), *ASKED[1:], RESULT])
        cached = sent(growing.request("m"), PROVIDERS[dialect])
        assert cached == sent(ms.Request("m", growing.messages), PROVIDERS[dialect])


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        (ms.ToolCall("c", "f", "{}"), "a system message cannot hold a ToolCall block"),
        (ms.Thinking("a"), "a system message cannot hold a Thinking block"),
    ],
)
def test_a_system_message_holds_no_calls(block: Any, complaint: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=complaint):
        sent(ms.Request("m", [ms.Message.user("a"), ms.Message.system(block)]), PROVIDERS["chat"])


def test_anthropic_takes_only_text_in_a_system_message() -> None:
    request = ms.Request("m", [ms.Message.user("a"), ms.Message.system(ms.Image(url="https://a.example/a.png"))])
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[1\].content\[0\]: Anthropic takes only text"):
        sent(request, PROVIDERS["anthropic"])
    assert sent(request, PROVIDERS["responses"])[0]["input"][1]["role"] == "system"


# --- the SDKs' own forms ---

DEVELOPER: list[Any] = [*LATE[1:2], {"role": "developer", "content": "Now be long."}, *LATE[3:]]


def test_a_developer_s_message_keeps_its_role_where_it_was_written_for() -> None:
    request = ms.Request("m", DEVELOPER)
    assert [role for role, _ in conversation(request, "chat")] == ["user", "developer", "user"]
    assert [role for role, _ in conversation(request, "responses")] == ["user", "system", "user"]
    assert [role for role, _ in conversation(request, "anthropic")] == ["user", "system"]
    items = ms.Request.from_openai_responses(model="m", input=DEVELOPER)
    again = dataclasses.replace(items, messages=[*items.messages, ms.Message.user("More")])
    assert [role for role, _ in conversation(again, "responses")] == ["user", "developer", "user", "user"]


ANTHROPIC_SYSTEM: list[Any] = [
    {"role": "system", "content": "now"},
    {"role": "system", "content": [{"type": "text", "text": "now", "cache_control": {"type": "ephemeral"}}]},
    {"role": "system", "content": "now", "clear_at": "next_user_message"},
    {"role": "system", "output_config": {"effort": "low"}},
    {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}]},
    {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}],
        "output_config": {"effort": "low"}},
]  # fmt: skip


@pytest.mark.parametrize("late", ANTHROPIC_SYSTEM)
def test_anthropic_s_own_system_message_is_sent_as_given(late: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": "a"}, late]
    request = ms.Request.from_anthropic(model="claude-opus-4-8", max_tokens=9, messages=messages)
    body, warnings = sent(request, PROVIDERS["anthropic"])
    assert (body["messages"], warnings) == (messages, [])
    rewritten = dataclasses.replace(request, messages=[ms.Message.user("b"), *request.messages])
    body, warnings = sent(rewritten, PROVIDERS["anthropic"])
    assert ({"content": [], **late}, warnings) == (body["messages"][-1], [])


def test_a_leading_system_message_of_anthropic_becomes_its_parameter() -> None:
    request = ms.Request.from_anthropic(model="m", max_tokens=9, messages=LATE[:2])
    body, _ = sent(request, PROVIDERS["anthropic"])
    assert (body["system"], body["messages"]) == ("Be brief.", LATE[1:2])
    both = ms.Request.from_anthropic(model="m", max_tokens=9, system="Be kind.", messages=LATE[:2])
    assert both.system == "Be kind.\n\nBe brief."


def test_the_system_prompt_in_the_input_of_responses_survives_other_messages() -> None:
    request = ms.Request.from_openai_responses(model="m", input=cast("Any", LATE[:2]))
    body, _ = sent(dataclasses.replace(request, messages=[ms.Message.user("b")]), PROVIDERS["responses"])
    assert body["instructions"] == "Be brief."


SEARCH: JSONObject = {
    "type": "search_result",
    "source": "https://a.example",
    "title": "Rivers",
    "content": [{"type": "text", "text": "The Rhine is long."}],
    "citations": {"enabled": True},
}


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_turn_of_search_results_is_text_for_other_dialects(dialect: str) -> None:
    messages: list[Any] = [{"role": "user", "content": [SEARCH, SEARCH]}]
    request = ms.Request.from_anthropic(model="m", max_tokens=9, messages=messages)
    assert sent(request, PROVIDERS["anthropic"])[0]["messages"] == messages
    text = "Rivers\nhttps://a.example\n\nThe Rhine is long."
    assert conversation(request, dialect) == [("user", text + text)]
    parts = sent(request, PROVIDERS["gemini"])[0]["contents"][0]["parts"]
    assert parts == [{"text": text}, {"text": text}]


def test_a_search_result_is_written_again_in_its_own_form() -> None:
    messages: list[Any] = [{"role": "user", "content": [SEARCH]}]
    request = ms.Request.from_anthropic(model="m", max_tokens=9, messages=messages)
    rewritten = dataclasses.replace(request, messages=[*request.messages, ms.Message.assistant("b")])
    assert sent(rewritten, PROVIDERS["anthropic"])[0]["messages"][0] == messages[0]
    assert AnthropicConverter().encode_messages(list(request.messages)) == messages


# --- rows ---


def test_a_system_message_is_kept_in_rows() -> None:
    two = ms.Message.system([ms.Text("a"), ms.Text("b")])
    said = ms.Conversation([ms.Message.system("first"), ms.Message.user("Hi"), two, ms.Message.user("Go on")])
    rows = said.rows()
    assert [row.kind for row in rows] == ["system", "user", "system", "system", "user"]
    assert ms.Conversation.from_rows(rows) == said
    assert ms.message_from_row(rows[0]) == ms.Message.system("first")


def test_a_system_row_without_a_role_is_the_prompt_only_at_the_beginning() -> None:
    rows = [ms.Row(kind, text) for kind, text in (("system", "s"), ("user", "a"), ("system", "t"), ("system", None))]
    assert ms.message_from_row(rows[0]) is None
    assert ms.Conversation.from_rows(rows).messages == [ms.Message.user("a"), ms.Message.system("t")]
