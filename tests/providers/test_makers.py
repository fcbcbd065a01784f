"""What a provider makes is sent back to that provider only, even where several servers share a generic row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.gemini_interactions.converter import InteractionsConverter
from manystream.providers.history import History
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.model import prefix_cache
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter

CLASSES: dict[str, type[ms.Provider]] = {
    "openai-chat": ms.OpenAIChat, "openai-responses": ms.OpenAIResponses, "anthropic": ms.Anthropic,
    "gemini": ms.Gemini, "gemini-interactions": ms.GeminiInteractions,
}  # fmt: skip
CONVERTERS: dict[str, type[HistoryConverter]] = {
    "openai-chat": ChatConverter, "openai-responses": ResponsesConverter, "anthropic": AnthropicConverter,
    "gemini": GeminiConverter, "gemini-interactions": InteractionsConverter,
}  # fmt: skip
GENERIC = {
    "openai-chat": "openai-compatible", "openai-responses": "responses-compatible",
    "anthropic": "anthropic-compatible", "gemini": "google", "gemini-interactions": "google-interactions",
}  # fmt: skip
PRIVATE = b"canary"

CHAT_CALL: ms.JSONObject = {
    "index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"},
    "extra_content": {"signature": "canary"},
}  # fmt: skip
CHAT_MESSAGE: ms.JSONObject = {"role": "assistant", "reasoning_content": "canary", "tool_calls": [CHAT_CALL]}
REASONING: ms.JSONObject = {
    "type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "canary"}],
    "encrypted_content": "canary",
}  # fmt: skip
RESPONSES_CALL: ms.JSONObject = {
    "type": "function_call", "id": "fc", "call_id": "c", "name": "look", "arguments": "{}", "caller": {"id": "canary"},
}  # fmt: skip
THINKING: ms.JSONObject = {"type": "thinking", "thinking": "canary", "signature": ""}
ANTHROPIC_CALL: ms.JSONObject = {"type": "tool_use", "id": "c", "name": "look", "input": {}, "caller": {"id": "canary"}}
GEMINI_PARTS: list[ms.JSON] = [
    {"text": "canary", "thought": True, "thoughtSignature": "canary"},
    {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "canary"},
]
STEPS: list[ms.JSONObject] = [
    {"type": "thought", "summary": [{"type": "text", "text": "canary"}], "signature": "canary"},
    {"type": "function_call", "id": "c", "name": "look", "arguments": {}, "signature": "canary"},
]

BODIES: dict[str, ms.JSONObject] = {
    "openai-chat": {"choices": [{"index": 0, "message": CHAT_MESSAGE, "finish_reason": "tool_calls"}]},
    "openai-responses": {"object": "response", "status": "completed", "output": [REASONING, RESPONSES_CALL]},
    "anthropic": {"type": "message", "content": [THINKING, ANTHROPIC_CALL], "stop_reason": "tool_use"},
    "gemini": {"candidates": [{"content": {"role": "model", "parts": GEMINI_PARTS}, "finishReason": "STOP"}]},
    "gemini-interactions": {"object": "interaction", "status": "requires_action", "steps": [*STEPS]},
}
"""An unstreamed answer of each dialect: private thinking, and a call with private state."""

STREAMS: dict[str, list[ms.JSONObject]] = {
    "openai-chat": [{"choices": [{"index": 0, "delta": CHAT_MESSAGE, "finish_reason": "tool_calls"}]}],
    "openai-responses": [{"type": "response.output_item.done", "output_index": 0, "item": REASONING},
        {"type": "response.output_item.done", "output_index": 1, "item": RESPONSES_CALL},
        {"type": "response.completed", "response": BODIES["openai-responses"]}],
    "anthropic": [
        {"type": "message_start", "message": {"type": "message", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {**THINKING, "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "canary"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": ANTHROPIC_CALL},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ],
    "gemini": [BODIES["gemini"]],
    "gemini-interactions": [
        *({"event_type": "step.start", "index": index, "step": step} for index, step in enumerate(STEPS)),
        {"event_type": "interaction.completed", "interaction": {"status": "requires_action"}},
    ],
}  # fmt: skip
"""The same answer as the events of a stream."""

OWN_BLOCKS: dict[str, ms.JSONObject] = {
    "openai-responses": {"type": "web_search_call", "id": "ws", "query": "canary"},
    "anthropic": {"type": "server_tool_use", "id": "s", "name": "search", "input": {"query": "canary"}},
    "gemini": {"executableCode": {"language": "PYTHON", "code": "canary"}},
    "gemini-interactions": {"type": "google_search_call", "id": "s", "arguments": {"queries": ["canary"]}},
}
"""A block of the provider's own, in the dialects that send one back."""

Answered = Callable[[ms.Provider], ms.Response]


def server(dialect: str, name: str | None, port: int = 1) -> ms.Provider:
    """Return a provider for a server that no row knows."""
    return CLASSES[dialect]("key", f"http://127.0.0.1:{port}", name=name)


def dialect_name(provider: ms.Provider) -> str:
    return provider.profile.dialect_name


def whole(provider: ms.Provider) -> ms.Response:
    name = dialect_name(provider)
    return DIALECTS[name].decode(json.dumps(BODIES[name]).encode(), provider, lambda: "c")


def streamed(provider: ms.Provider) -> ms.Response:
    name = dialect_name(provider)
    machine = DIALECTS[name].machine(provider, lambda: "c")
    for event in STREAMS[name]:
        machine.feed(str(event.get("type", "")), json.dumps(event).encode())
    if name == "openai-chat":
        machine.feed("", b"[DONE]")
    machine.end()
    return machine.response()


def conversation_with(response: ms.Response) -> ms.Conversation:
    conversation = ms.Conversation([ms.Message.user("q")])
    conversation.add_response(response)
    for call in response.tool_calls:
        conversation.add(ms.Message.tool_result(call.id, "seen"))
    return conversation


def sent(conversation: ms.Conversation, to: ms.Provider) -> tuple[bool, list[str]]:
    """Return whether anything private is in the next request, and the request's warnings."""
    request = DIALECTS[dialect_name(to)].encode(conversation.request("m"), "m", to, stream=True)
    return PRIVATE in request.body, request.warnings


def left_out(to: ms.Provider) -> list[str]:
    return [f"messages: thinking that {to.maker!r} did not make is not sent to it"]


ANSWERS: list[tuple[str, Answered]] = [(dialect, made) for dialect in CLASSES for made in (whole, streamed)]


@pytest.mark.parametrize(("dialect", "answered"), ANSWERS)
def test_a_server_without_a_row_gets_its_own_state_back(dialect: str, answered: Answered) -> None:
    first = server(dialect, "s1")
    assert sent(conversation_with(answered(first)), first) == (True, [])


@pytest.mark.parametrize(("dialect", "answered"), ANSWERS)
def test_another_server_without_a_row_gets_none_of_it(dialect: str, answered: Answered) -> None:
    conversation = conversation_with(answered(server(dialect, "s1")))
    for name in ("s2", None):
        other = server(dialect, name, 2)
        assert sent(conversation, other) == (False, left_out(other))


@pytest.mark.parametrize(("dialect", "answered"), ANSWERS)
def test_servers_without_names_are_attributed_by_profile(dialect: str, answered: Answered) -> None:
    unnamed = server(dialect, None)
    assert unnamed.name == unnamed.maker == GENERIC[dialect]
    response = answered(unnamed)
    states = [block.state for block in response.content if isinstance(block, ms.Thinking)]
    assert [state.provider for state in states if state is not None] == [GENERIC[dialect]]
    assert sent(conversation_with(response), server(dialect, None, 2)) == (True, [])
    named = server(dialect, "s1")
    assert sent(conversation_with(response), named) == (False, left_out(named))


@pytest.mark.parametrize(("dialect", "answered"), ANSWERS)
def test_rows_of_a_store_keep_the_maker(dialect: str, answered: Answered) -> None:
    first, second = server(dialect, "s1"), server(dialect, "s2", 2)
    rows = conversation_with(answered(first)).rows()
    stored = ms.Conversation.from_rows(rows)
    assert f"{GENERIC[dialect]}:s1" in str(rows)
    assert sent(stored, first) == (True, [])
    assert sent(stored, second) == (False, left_out(second))


@pytest.mark.parametrize("dialect", CLASSES)
def test_one_name_on_two_dialects_is_two_makers(dialect: str) -> None:
    """State in one dialect's form must not get into the request of another, even if both providers have one name."""
    conversation = conversation_with(whole(server(dialect, "mine")))
    for other in CLASSES.keys() - {dialect}:
        to = server(other, "mine")
        assert sent(conversation, to) == (False, left_out(to))


def test_a_servers_name_is_never_taken_for_a_rows() -> None:
    """A chat server that is named like Anthropic's row has not made what that row's provider gets back."""
    disguised = ms.OpenAIChat("key", "http://127.0.0.1:1", name="anthropic")
    assert disguised.maker == "openai-compatible:anthropic"
    to = ms.Anthropic()
    assert sent(conversation_with(whole(disguised)), to) == (False, left_out(to))


@pytest.mark.parametrize("dialect", CLASSES)
def test_a_conversation_for_two_servers_is_written_for_each(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wire form that one server's request left in the cache must not be used for the other server."""
    monkeypatch.setattr(prefix_cache, "MIN_MESSAGES", 2)
    first, second = server(dialect, "s1"), server(dialect, "s2", 1)
    conversation = conversation_with(whole(first))
    for turn in range(8):
        conversation.add(ms.Message.assistant(f"a{turn}"))
        conversation.add(ms.Message.user(f"q{turn}"))
        assert sent(conversation, first) == (True, [])
        assert sent(conversation, second) == (False, left_out(second))


@pytest.mark.parametrize("dialect", CLASSES)
def test_replicas_of_one_profile_are_one_maker(dialect: str) -> None:
    ours = ms.Profile(name="ours", dialect=dialect, base_url="", quirks=server(dialect, None).profile.quirks)
    first, second = (
        CLASSES[dialect]("key", f"http://127.0.0.1:{port}", name=f"r{port}", profile=ours) for port in (1, 2)
    )
    assert first.maker == second.maker == "ours"
    assert sent(conversation_with(whole(first)), second) == (True, [])


def test_replicas_of_a_known_kind_are_one_maker() -> None:
    first, second = (ms.OpenAIChat("k", f"http://gpu{n}:8000/v1", name=f"r{n}", profile="vllm") for n in (1, 2))
    assert first.maker == second.maker == "vllm"


@pytest.mark.parametrize("dialect", OWN_BLOCKS)
def test_a_block_is_sent_to_its_maker_and_its_profile(dialect: str) -> None:
    first, second = server(dialect, "s1"), server(dialect, "s2", 2)

    def goes(provider: str, to: ms.Provider) -> tuple[bool, int]:
        blocks: list[ms.ProviderBlock | ms.Text] = [ms.ProviderBlock(provider, OWN_BLOCKS[dialect]), ms.Text("answer")]
        messages = [ms.Message.user("q"), ms.Message.assistant(blocks), ms.Message.user("next")]
        body, warnings = sent(ms.Conversation(messages), to)
        return body, len(warnings)

    assert goes(first.maker, first) == (True, 0)
    assert goes(first.maker, second) == (False, 1)
    for to in (first, second):
        assert goes(GENERIC[dialect], to) == (True, 0)


NATIVE: dict[str, list[ms.JSONObject]] = {
    "openai-chat": [CHAT_MESSAGE],
    "openai-responses": [REASONING, RESPONSES_CALL],
    "anthropic": [{"role": "assistant", "content": [THINKING, ANTHROPIC_CALL]}],
    "gemini": [{"role": "model", "parts": GEMINI_PARTS}],
    "gemini-interactions": STEPS,
}
"""The answer as the provider's own messages."""


@pytest.mark.parametrize("dialect", CLASSES)
def test_converters_attribute_state_to_the_server(dialect: str) -> None:
    first, second = server(dialect, "s1"), server(dialect, "s2", 2)
    converter = CONVERTERS[dialect](first)
    read = converter.decode_messages(NATIVE[dialect])
    result = ms.Message.tool_result(next(call.id for message in read for call in message.tool_calls), "seen")
    conversation = ms.Conversation([ms.Message.user("q"), *read, result])
    assert sent(conversation, first) == (True, [])
    assert sent(conversation, second) == (False, left_out(second))
    assert "canary" in str(converter.encode_messages(read))
    assert "canary" not in str(CONVERTERS[dialect](second).encode_messages(read))


@pytest.mark.parametrize("dialect", CLASSES)
def test_converted_chunks_are_attributed_to_the_server(dialect: str) -> None:
    first, second = server(dialect, "s1"), server(dialect, "s2", 2)
    items = CONVERTERS[dialect](first).to_history(NATIVE[dialect])
    history = History(None, None, items)
    assert "canary" in str(CONVERTERS[dialect](first).from_history(history))
    assert "canary" not in str(CONVERTERS[dialect](second).from_history(history))


def test_the_name_of_a_known_row_is_its_maker() -> None:
    providers: Mapping[str, ms.Provider] = {
        "anthropic": ms.Anthropic(name="a"), "openai-chat": ms.OpenAIChat(name="b"), "google": ms.Gemini(name="c"),
        "deepseek": ms.OpenAIChat(base_url="https://api.deepseek.com", name="d"),
        "openai-responses": ms.OpenAIResponses(name="e"),
    }  # fmt: skip
    for maker, provider in providers.items():
        assert provider.maker == maker
    explicit = ms.Gemini(base_url="http://127.0.0.1:1", name="mine", profile="google")
    assert explicit.maker == "google"
