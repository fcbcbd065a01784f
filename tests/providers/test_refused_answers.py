"""A model's refusal, which has a member of its own in OpenAI's answers, in the requests after it."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.catalog.provider import Anthropic, Gemini, OpenAIChat, OpenAIResponses, Provider
from manystream.providers.catalog.registry import dialect_of
from manystream.providers.history import History
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter

REFUSAL = "I will not."
ASK, AGAIN = ms.Message.user("Do it."), ms.Message.user("Why?")


def chat_answer(content: JSON) -> bytes:
    message = {"role": "assistant", "content": content, "refusal": REFUSAL}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def item(*texts: str, **members: str) -> JSONObject:
    parts: list[JSON] = [{"type": "output_text", "text": text} for text in texts]
    return {"type": "message", "role": "assistant", "content": [*parts, {"type": "refusal", "refusal": REFUSAL}],
            **members}  # fmt: skip


def responses_answer(*items: JSONObject) -> bytes:
    return json.dumps({"status": "completed", "output": items}).encode()


def decoded(provider: Provider, body: bytes) -> ms.Response:
    return dialect_of(provider.profile).decode(body, provider, lambda: "id")


def sent(provider: Provider, *messages: ms.Message, warnings: tuple[str, ...] = ()) -> JSON:
    """Return the conversation as a request to this provider has it, and check the warnings."""
    wire = dialect_of(provider.profile).encode(ms.Request("m", messages), "m", provider, stream=False)
    body = json.loads(wire.body)
    assert wire.warnings == [*warnings]
    return body.get("messages") or body.get("input") or body.get("contents")


CHAT, RESPONSES = OpenAIChat("key"), OpenAIResponses("key")
ASKED: JSON = {"role": "user", "content": "Do it."}
ASKED_AGAIN: JSON = {"role": "user", "content": "Why?"}


def test_a_chat_refusal_beside_text_keeps_its_member() -> None:
    response = decoded(CHAT, chat_answer("Well."))
    assert (response.text, response.refusal) == ("Well.", REFUSAL)
    assert sent(CHAT, ASK, response.to_message(), AGAIN) == [
        ASKED,
        {"role": "assistant", "refusal": REFUSAL, "content": "Well."},
        ASKED_AGAIN,
    ]


def test_another_maker_gets_the_text_without_the_member() -> None:
    message = decoded(CHAT, chat_answer("Well.")).to_message()
    other = OpenAIChat("key", base_url="http://127.0.0.1:9/v1", profile="mistral")
    warning = "messages: a refusal that 'mistral' did not make is not sent to it, only the text before it"
    assert sent(other, ASK, message, warnings=(warning,)) == [ASKED, {"role": "assistant", "content": "Well."}]


def test_a_refusal_beside_a_call_keeps_its_member() -> None:
    body = json.loads(chat_answer("Well."))
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body["choices"][0]["message"]["tool_calls"] = [call]
    message = decoded(CHAT, json.dumps(body).encode()).to_message()
    assert sent(CHAT, ASK, message, ms.Message.tool_result("c1", "1")) == [
        ASKED,
        {"role": "assistant", "refusal": REFUSAL, "content": "Well.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]


def test_a_responses_refusal_beside_text_is_a_part_again() -> None:
    response = decoded(RESPONSES, responses_answer(item("Well,", " no.", phase="final_answer")))
    assert (response.text, response.refusal) == ("Well, no.", REFUSAL)
    user: JSON = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Do it."}]}
    assert sent(RESPONSES, ASK, response.to_message(), ASK) == [user, item("Well, no.", phase="final_answer"), user]


def test_text_after_a_responses_refusal_is_another_message() -> None:
    first = decoded(RESPONSES, responses_answer(item("Well."))).to_message()
    message = ms.Message.assistant([*first.content, ms.Text("But so.")])
    after = {"type": "message", "role": "assistant", "content": "But so."}
    assert sent(RESPONSES, message) == [item("Well."), after]


def test_a_refusal_of_another_item_follows_the_last_text() -> None:
    text: JSONObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well."}]}
    response = decoded(RESPONSES, responses_answer(text, item()))
    assert sent(RESPONSES, response.to_message()) == [item("Well.")]


@pytest.mark.parametrize("content", [None, ""])
def test_a_chat_refusal_without_text_is_the_text(content: JSON) -> None:
    response = decoded(CHAT, chat_answer(content))
    assert (response.content, response.text, response.refusal) == ([], "", REFUSAL)
    said: JSON = {"role": "assistant", "content": REFUSAL}
    assert sent(CHAT, ASK, response.to_message(), AGAIN) == [ASKED, said, ASKED_AGAIN]


ONLY_REFUSED = [(CHAT, chat_answer(None)), (RESPONSES, responses_answer(item()))]


@pytest.mark.parametrize(("provider", "body"), ONLY_REFUSED, ids=["chat", "responses"])
def test_every_dialect_gets_a_refusal_without_text(provider: Provider, body: bytes) -> None:
    message = decoded(provider, body).to_message()
    assert message == ms.Message.assistant(REFUSAL)
    answered: list[tuple[Provider, JSON]] = [
        (CHAT, {"role": "assistant", "content": REFUSAL}),
        (RESPONSES, {"type": "message", "role": "assistant", "content": REFUSAL}),
        (Anthropic("key"), {"role": "assistant", "content": REFUSAL}),
        (Gemini("key"), {"role": "model", "parts": [{"text": REFUSAL}]}),
    ]
    for other, wire in answered:
        written = sent(other, ASK, message, AGAIN)
        assert isinstance(written, list)
        assert written[1] == wire


def test_a_conversation_keeps_an_answer_that_is_a_refusal() -> None:
    conversation = ms.Conversation()
    conversation.add_response(ms.Response(refusal=REFUSAL))
    conversation.add_response(ms.Response())
    assert conversation.messages == [ms.Message.assistant(REFUSAL)]


def test_thinking_before_a_refusal_is_kept() -> None:
    response = ms.Response([ms.Thinking("Hm.")], refusal=REFUSAL)
    assert response.to_message().content == [ms.Thinking("Hm."), ms.Text(REFUSAL)]
    assert response.content == [ms.Thinking("Hm.")]


CHAT_MESSAGES: list[JSONObject] = [
    {"role": "assistant", "content": [{"type": "text", "text": "Well."}], "refusal": REFUSAL},
    {"role": "assistant", "content": [{"type": "text", "text": "Well."}, {"type": "text", "text": "No."}],
     "refusal": REFUSAL},
]  # fmt: skip
ITEMS: list[JSONObject] = [item("Well."), item("Well.", phase="final_answer")]


@pytest.mark.parametrize(
    ("converter", "wire"),
    [*((ChatConverter(), wire) for wire in CHAT_MESSAGES), *((ResponsesConverter(), wire) for wire in ITEMS)],
    ids=["chat", "chat, two parts", "responses", "responses, phase"],
)
def test_a_converter_writes_a_refusal_as_it_was(converter: HistoryConverter, wire: JSONObject) -> None:
    messages = converter.decode_messages([wire])
    assert converter.encode_messages(messages) == [wire]
    assert converter.encode_messages(messages) == [wire]
    assert converter.from_history(History(conversation=converter.to_history([wire]))) == [wire]


def test_a_converter_reads_content_that_is_a_string() -> None:
    converter = ChatConverter()
    messages = converter.decode_messages([{"role": "assistant", "content": "Well.", "refusal": REFUSAL}])
    assert converter.encode_messages(messages) == [CHAT_MESSAGES[0]]


def test_a_converter_reads_a_refusal_among_the_parts() -> None:
    converter = ChatConverter()
    parts: list[JSON] = [{"type": "text", "text": "Well."}, {"type": "refusal", "refusal": REFUSAL}]
    messages = converter.decode_messages([{"role": "assistant", "content": parts}])
    assert converter.encode_messages(messages) == [CHAT_MESSAGES[0]]


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}]])
def test_a_converter_writes_a_refusal_without_text_as_text(content: JSON) -> None:
    converter = ChatConverter()
    messages = converter.decode_messages([{"role": "assistant", "content": content, "refusal": REFUSAL}])
    assert "".join(block.text for block in messages[0].content if isinstance(block, ms.Text)) == REFUSAL
    said = {"role": "assistant", "content": [{"type": "text", "text": REFUSAL}]}
    assert converter.encode_messages(messages) == [said]


def test_a_responses_item_that_is_a_refusal_is_text() -> None:
    converter = ResponsesConverter()
    messages = converter.decode_messages([item()])
    assert messages == [ms.Message.assistant(REFUSAL)]
    assert converter.encode_messages(messages) == [{"type": "message", "role": "assistant", "content": REFUSAL}]


def test_the_provider_message_of_a_refused_stream() -> None:
    chunks: list[JSONObject] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "refusal": "I will"}}]},
        {"choices": [{"index": 0, "delta": {"refusal": " not."}, "finish_reason": "stop"}]},
    ]
    said = {"role": "assistant", "content": [{"type": "text", "text": REFUSAL}]}
    assert ChatConverter().provider_message_from_chunks(chunks) == said
    history = ChatConverter().message_from_chunks(chunks)
    assert history is not None
    assert history.text == REFUSAL
