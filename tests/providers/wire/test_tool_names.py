"""Conversations that a provider refuses as they are: adapted with a warning, or refused before sending."""

import json
import re
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.dialect import WireRequest
from manystream.providers.catalog.registry import DIALECTS

ANTHROPIC, GEMINI = (ms.Anthropic(), "claude-sonnet-4-5"), (ms.Gemini(), "gemini-3-pro-preview")
CHAT, RESPONSES = (ms.OpenAIChat(), "gpt-4.1"), (ms.OpenAIResponses(), "gpt-5.1")
OWN = (ms.OpenAIChat(base_url="http://127.0.0.1:9/v1"), "llama")
OPENING = "(The conversation begins with the assistant's message.)"


def encode(to: tuple[ms.Provider, str], request: ms.Request) -> WireRequest:
    provider, model = to
    return DIALECTS[provider.profile.dialect_name].encode(request, model, provider, stream=False)


def sent(to: tuple[ms.Provider, str], *messages: ms.Message) -> tuple[dict[str, Any], list[str]]:
    wire = encode(to, ms.Request(to[1], messages))
    return json.loads(wire.body), wire.warnings


GREETED = (ms.Message.assistant("Hello, what can I do?"), ms.Message.user("Sing."))
CALLED = (ms.Message.tool_call("c1", "look", "{}"), ms.Message.tool_result("c1", "rain"), ms.Message.user("Thanks."))


@pytest.mark.parametrize("messages", [GREETED, CALLED], ids=["text", "call"])
def test_anthropic_and_gemini_get_a_users_message_first(messages: tuple[ms.Message, ...]) -> None:
    body, warnings = sent(ANTHROPIC, *messages)
    assert body["messages"][0] == {"role": "user", "content": OPENING}
    assert body["messages"][1]["role"] == "assistant"
    assert warnings == [
        f"messages: begin with the assistant, which Anthropic refuses; sent with {OPENING!r} as the user's first"
    ]
    body, warnings = sent(GEMINI, *messages)
    assert body["contents"][0] == {"role": "user", "parts": [{"text": OPENING}]}
    assert body["contents"][1]["role"] == "model"
    assert warnings == [
        f"messages: begin with the assistant, which Gemini refuses; sent with {OPENING!r} as the user's first"
    ]


@pytest.mark.parametrize("to", [CHAT, RESPONSES, OWN])
def test_openai_accepts_an_assistants_message_first(to: tuple[ms.Provider, str]) -> None:
    body, warnings = sent(to, *GREETED)
    assert OPENING not in json.dumps(body)
    assert warnings == []


@pytest.mark.parametrize("to", [ANTHROPIC, GEMINI])
@pytest.mark.parametrize("blank", [False, True], ids=["at once", "after a blank message"])
def test_a_growing_conversation_is_written_the_same(to: tuple[ms.Provider, str], blank: bool) -> None:
    first = [ms.Message.user(ms.Text(" " if to is ANTHROPIC else ""))] if blank else []
    conversation = ms.Conversation([*first, *GREETED * 20])
    for _ in range(3):
        conversation.extend(GREETED)
        wire = encode(to, conversation.request(to[1]))
        assert wire == encode(to, ms.Request(to[1], list(conversation.messages)))
        assert wire.body.count(OPENING.encode()) == 1


def names(body: dict[str, Any]) -> list[str]:
    """Return every tool name in a body, in order."""
    return re.findall(r'"name": "([^"]*)"', json.dumps(body, ensure_ascii=False))


@pytest.mark.parametrize(
    ("to", "name", "taken"),
    [
        (CHAT, "fs.read", "_fs_read_4074bc02"),
        (RESPONSES, "fs.read", "_fs_read_4074bc02"),
        (ANTHROPIC, "fs.read", "_fs_read_4074bc02"),
        (GEMINI, "fs.read", "fs.read"),
        (OWN, "fs.read", "fs.read"),
        (GEMINI, "2fast", "_2fast_"),
        (GEMINI, "größe", "_gr__e_"),
        (CHAT, "größe", "_gr__e_"),
        (CHAT, "a" * 65, "_" + "a" * 54 + "_"),
        (ANTHROPIC, "a" * 65, "a" * 65),
        (ANTHROPIC, "a" * 129, "_" + "a" * 118 + "_"),
    ],
)
def test_a_tool_name_of_the_conversation_is_adapted(to: tuple[ms.Provider, str], name: str, taken: str) -> None:
    called = (ms.Message.user("x"), ms.Message.tool_call("c1", name, "{}"), ms.Message.tool_result("c1", "y"))
    body, warnings = sent(to, *called)
    found = names(body)
    assert found
    assert len(set(found)) == 1
    assert found[0].startswith(taken)
    if found[0] != name:
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,127}", found[0])
        assert warnings == [
            f"messages: the tool name {name!r} is sent as {found[0]!r}; the provider refuses it as it is"
        ]


@pytest.mark.parametrize(
    ("to", "name"),
    [
        (CHAT, "fs.read"),
        (RESPONSES, "a b"),
        (ANTHROPIC, "größe"),
        (GEMINI, "2fast"),
        (GEMINI, "a b"),
        (CHAT, "a" * 65),
        (ANTHROPIC, "a" * 129),
    ],
)
def test_a_refused_tool_name_of_the_request_is_an_error(to: tuple[ms.Provider, str], name: str) -> None:
    request = ms.Request(to[1], [ms.Message.user("x")], tools=[ms.Tool("look"), ms.Tool(name)])
    with pytest.raises(ms.InvalidRequestError, match=r"tools\[1\].name: .* rename the tool"):
        encode(to, request)


def test_a_self_hosted_server_gets_any_tool_name() -> None:
    body = json.loads(encode(OWN, ms.Request("llama", [ms.Message.user("x")], tools=[ms.Tool("fs.read")])).body)
    assert names(body) == ["fs.read"]
