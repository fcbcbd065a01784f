"""The messages of a request: each kind of block, and their order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.model.messages import Message, RedactedThinking, Text, Thinking, ToolCall
from manystream.providers.openai.chat.message_writer import wire_call_id
from tests.providers.openai.chat.wire import OPENAI, SERVER, encode, known, quirky, warnings

HELLO = Message.user("hello")


def messages(*conversation: Message, provider: ms.OpenAIChat = OPENAI) -> list[dict[str, object]]:
    wire = encode(ms.Request("m", list(conversation)), provider)["messages"]
    assert isinstance(wire, list)
    return wire


def warned(*conversation: Message, provider: ms.OpenAIChat = OPENAI) -> list[str]:
    return warnings(ms.Request("m", list(conversation)), provider)


def call(id: str, name: str = "t", arguments: str = "{}") -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id: str, content: str = "ok") -> dict[str, object]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def test_user_and_assistant_text() -> None:
    assert messages(HELLO, Message.assistant("hi"), Message.user([Text("a"), Text(""), Text("b")])) == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]


def test_text_and_calls_of_an_assistant_are_one_message() -> None:
    turn = Message.assistant([Text("Let me "), Text("look."), ToolCall("a", "t", '{"x":1}'), ToolCall("b", "t", "")])
    wire = messages(HELLO, turn, Message.tool_result("a", "1"), Message.tool_result("b", "2"))
    assert wire[1:] == [
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call("a", arguments='{"x":1}'), call("b")]},
        result("a", "1"),
        result("b", "2"),
    ]


def test_a_call_alone_has_null_content() -> None:
    wire = messages(HELLO, Message.tool_call("a", "t", "{}"), Message.tool_result("a", "ok"))
    assert wire[1] == {"role": "assistant", "content": None, "tool_calls": [call("a")]}


def test_results_come_directly_after_their_calls() -> None:
    wire = messages(
        HELLO, Message.assistant([ToolCall("a", "t", "{}"), ToolCall("b", "t", "{}")]), Message.user("while you wait"),
        Message.tool_result("b", "2"), Message.assistant("got one"), Message.tool_result("a", "1"),
    )  # fmt: skip
    assert [message["role"] for message in wire] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert wire[2:4] == [result("a", "1"), result("b", "2")]


def test_results_in_a_user_message() -> None:
    wire = messages(
        HELLO, Message.tool_call("a", "t", "{}"), Message.user([ms.ToolResult("a", "ok"), Text("and now?")])
    )
    assert wire[2:] == [result("a"), {"role": "user", "content": "and now?"}]


def test_reused_ids_are_paired_in_order() -> None:
    wire = messages(
        HELLO, Message.tool_call("f:0", "t", "1"), Message.tool_result("f:0", "first"),
        Message.tool_call("f:0", "t", "2"), Message.tool_result("f:0", "second"),
    )  # fmt: skip
    assert [message.get("content") for message in wire] == ["hello", None, "first", None, "second"]


def test_unpaired_calls_and_results_are_left_out_with_a_warning() -> None:
    conversation = [
        HELLO, Message.tool_result("early", "before its call"),
        Message.assistant([Text("Hm."), ToolCall("open", "t", "{}")]), Message.tool_call("early", "t", "{}"),
        Message.tool_result("stray", "no call"),
    ]  # fmt: skip
    assert messages(*conversation) == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hm."}]
    assert len([warning for warning in warned(*conversation) if "not sent" in warning]) == 4


def test_a_failed_result_causes_a_warning() -> None:
    conversation = [HELLO, Message.tool_call("a", "t", "{}"), Message.tool_result("a", "no such city", is_error=True)]
    assert messages(*conversation)[2] == result("a", "no such city")
    assert any("is_error" in warning for warning in warned(*conversation))


def test_pictures_of_results_follow_in_a_users_message() -> None:
    picture = ms.Image(url="https://x/y.png")
    conversation = [
        HELLO, Message.assistant([ToolCall("a", "t", "{}"), ToolCall("b", "t", "{}")]),
        Message.tool_result("a", [Text("Here:"), picture]), Message.tool_result("b", "ok"),
    ]  # fmt: skip
    wire = messages(*conversation)
    assert wire[2:4] == [result("a", "Here:"), result("b")]
    assert wire[4] == {
        "role": "user", "content": [{"type": "text", "text": "The files of tool result a:"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
    }  # fmt: skip
    assert any("user's message" in warning for warning in warned(*conversation))


def test_a_result_without_text_refers_to_its_files() -> None:
    conversation = [
        HELLO,
        Message.tool_call("a", "t", "{}"),
        Message.tool_result("a", [ms.Image(url="https://x/y.png")]),
    ]
    assert messages(*conversation)[2]["content"] == "The files of tool result a follow."


def test_a_mark_on_a_result() -> None:
    conversation = [
        HELLO,
        Message.tool_call("a", "t", "{}"),
        Message("tool", ms.ToolResult("a", "long", cache_control=ms.CacheControl())),
    ]
    assert messages(*conversation, provider=known("openrouter"))[2]["content"] == [
        {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}
    ]


# --- ids ---
@pytest.mark.parametrize("id", ["abcDEF123", "123456789"])
def test_ids_that_fit_stay(id: str) -> None:
    assert wire_call_id(id, "nine_alphanumerics") == id
    assert wire_call_id(id, "at_most_40") == id
    assert wire_call_id(id, "any") == id


@given(st.text(min_size=1))
def test_other_ids_are_always_replaced_by_the_same_id(id: str) -> None:
    nine = wire_call_id(id, "nine_alphanumerics")
    assert len(nine) == 9
    assert nine.isascii()
    assert nine.isalnum()
    assert nine == wire_call_id(id, "nine_alphanumerics")
    assert len(wire_call_id(id, "at_most_40")) <= 40
    assert wire_call_id(id, "any") == id


def test_ids_are_replaced_in_the_call_and_in_its_result() -> None:
    wire = messages(
        HELLO, Message.tool_call("call_0123456789", "t", "{}"), Message.tool_result("call_0123456789", "ok"),
        provider=known("mistral"),
    )  # fmt: skip
    id = wire[2]["tool_call_id"]
    assert isinstance(id, str)
    assert len(id) == 9
    assert wire[1]["tool_calls"] == [call(id)]


def test_openai_takes_ids_of_forty_characters_and_no_more() -> None:
    long = "x" * 41
    wire = messages(HELLO, Message.tool_call(long, "t", "{}"), Message.tool_result(long, "ok"))
    assert wire[2]["tool_call_id"] != long
    wire = messages(HELLO, Message.tool_call(long, "t", "{}"), Message.tool_result(long, "ok"), provider=SERVER)
    assert wire[2]["tool_call_id"] == long


# --- thinking ---
def thought(provider: str, text: str = "Hmm.", **data: object) -> Thinking:
    return Thinking(text, state=ms.ProviderState(provider, dict(data)))  # type: ignore[arg-type]


def turn(*blocks: Thinking | RedactedThinking) -> list[Message]:
    return [HELLO, Message.assistant([*blocks, ToolCall("a", "t", "{}")]), Message.tool_result("a", "ok")]


@pytest.mark.parametrize(
    ("provider", "data", "expected"),
    [
        ("deepseek", {"reasoning_member": "reasoning_content"}, {"reasoning_content": "Hmm."}),
        ("moonshot", {}, {"reasoning_content": "Hmm."}),
        ("groq", {"reasoning_member": "reasoning"}, {"reasoning": "Hmm."}),
        ("fireworks", {"reasoning_member": "reasoning_content"}, {"reasoning_content": "Hmm."}),
        ("vllm", {"reasoning_member": "reasoning"}, {"reasoning": "Hmm."}),
        ("fireworks", {"reasoning_member": "something_else"}, {}),
        ("google-openai", {"reasoning_member": "reasoning_content"}, {}),
        ("openrouter", {"reasoning_member": "reasoning",
            "reasoning_details": [{"type": "reasoning.text", "text": "Hmm."}]},
            {"reasoning_details": [{"type": "reasoning.text", "text": "Hmm."}]}),
        ("openrouter", {"reasoning_member": "reasoning"}, {"reasoning": "Hmm."}),
        ("openai-chat", {"reasoning_member": "reasoning"}, {}),
    ],
)  # fmt: skip
def test_reasoning_is_sent_back_in_the_servers_member(
    provider: str, data: dict[str, object], expected: dict[str, object]
) -> None:
    wire = messages(*turn(thought(provider, **data)), provider=known(provider))[1]
    members = {name: value for name, value in wire.items() if name.startswith("reasoning")}
    assert members == expected


@pytest.mark.parametrize("provider", ["openrouter", "groq", "vllm", "openai-compatible", "mistral"])
@pytest.mark.parametrize(
    "foreign",
    [
        Thinking("Hmm.", "signed-by-anthropic"),
        Thinking("Hmm."),
        thought("somebody", reasoning_member="reasoning", reasoning_details=[{"type": "reasoning.text"}]),
        RedactedThinking("secret"),
    ],
)
def test_reasoning_of_other_providers_is_not_sent(provider: str, foreign: Thinking | RedactedThinking) -> None:
    wire = json.dumps(messages(*turn(foreign), provider=known(provider)))
    assert "Hmm." not in wire
    assert "secret" not in wire
    assert "signed" not in wire
    assert "reasoning" not in wire


def test_required_reasoning_is_empty_if_there_is_none() -> None:
    assert messages(*turn(Thinking("Hmm.", "signed")), provider=known("deepseek"))[1]["reasoning_content"] == ""
    plain = messages(HELLO, Message.assistant("hi"), provider=known("deepseek"))
    assert "reasoning_content" not in plain[1]


def test_reasoning_is_sent_back_only_with_calls() -> None:
    own = thought("deepseek", reasoning_member="reasoning_content")
    wire = messages(HELLO, Message.assistant([own, Text("hi")]), provider=known("deepseek"))
    assert wire[1] == {"role": "assistant", "content": "hi"}


def test_signed_details_are_sent_back_with_every_message() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    own = thought("openrouter", "", reasoning_details=details)
    wire = messages(HELLO, Message.assistant([own, Text("hi")]), provider=known("openrouter"))
    assert wire[1] == {"role": "assistant", "content": "hi", "reasoning_details": details}


def test_thinking_is_sent_back_as_parts() -> None:
    own = thought("mistral", reasoning_member="content")
    conversation = [HELLO, Message.assistant([own, Text("Well."), ToolCall("abcdefghi", "t", "{}")])]
    wire = messages(*conversation, Message.tool_result("abcdefghi", "ok"), provider=known("mistral"))
    assert wire[1]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]},
        {"type": "text", "text": "Well."},
    ]


def test_signatures_of_calls_are_sent_only_to_their_provider() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    signed = ToolCall("a", "t", "{}", state=ms.ProviderState("google-openai", {"extra_content": extra}))
    conversation = [HELLO, Message.assistant(signed), Message.tool_result("a", "ok")]
    wire = messages(*conversation, provider=known("google-openai"))
    assert wire[1]["tool_calls"] == [call("a") | {"extra_content": extra}]
    assert messages(*conversation)[1]["tool_calls"] == [call("a")]


def test_custom_calls_are_sent_back_as_custom_calls() -> None:
    custom = ToolCall("a", "t", "4 + 4", state=ms.ProviderState("openai-chat", {"type": "custom"}))
    wire = messages(HELLO, Message.assistant(custom), Message.tool_result("a", "8"))
    assert wire[1]["tool_calls"] == [{"id": "a", "type": "custom", "custom": {"name": "t", "input": "4 + 4"}}]


def test_sound_is_sent_back_by_its_id() -> None:
    sound = ms.File(
        data=b"RIFF", media_type="audio/wav", state=ms.ProviderState("openai-chat", {"audio": {"id": "audio_1"}})
    )
    wire = messages(HELLO, Message.assistant(sound), Message.user("again"))
    assert wire[1] == {"role": "assistant", "audio": {"id": "audio_1"}}


def test_unsupported_blocks_of_an_assistant_cause_warnings() -> None:
    conversation = [
        HELLO,
        Message.assistant(
            [Text("Here."), ms.Image(data=b"x", media_type="image/png"), ms.ProviderBlock("x", {"type": "y"})]
        ),
        Message.user([Text("?"), ms.ProviderBlock("x", {"type": "z"})]),
    ]
    assert messages(*conversation)[1] == {"role": "assistant", "content": "Here."}
    assert len(warned(*conversation)) == 3


def test_state_of_another_provider_is_not_in_the_body() -> None:
    """Nothing that another provider tagged as its own is sent, on any kind of block."""
    secret = ms.ProviderState("somebody", {"extra_content": {"k": "SECRET"}, "reasoning_details": [{"data": "SECRET"}]})
    conversation = [
        HELLO, Message.assistant([Thinking("SECRET", "SECRET", state=secret), RedactedThinking("SECRET", secret),
        Text("hi", state=secret), ToolCall("a", "t", "{}", state=secret),
        ms.ProviderBlock("somebody", {"type": "SECRET"})]), Message.tool_result("a", "ok"),
    ]  # fmt: skip
    for provider in (OPENAI, SERVER, known("openrouter"), known("deepseek"), quirky(reasoning_return="reasoning")):
        assert "SECRET" not in json.dumps(messages(*conversation, provider=provider))
