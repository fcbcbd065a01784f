"""An answer in the requests after it: what an SDK's answer contains, a refusal, and an answer without any content."""

import dataclasses
import json
from typing import Any, cast, get_args

import pytest
from anthropic.types.beta import BetaContentBlock
from openai.types.responses import ResponseOutputItem

import manystream as ms
from manystream.providers import anthropic, gemini
from manystream.providers.catalog.dialect import StreamMachine
from manystream.providers.catalog.registry import dialect_of
from manystream.providers.history import History
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.json.json_values import JSONObject
from manystream.providers.openai import chat, responses
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.providers.sdk_bodies import sent_by_us

QUESTION: JSONObject = {"role": "user", "content": "Which river?"}
LATER = ms.Message.user("Which sea?")

ITEMS: dict[str, JSONObject] = {
    "program": {"type": "program", "id": "prog_1", "call_id": "c1", "code": "1 + 1", "fingerprint": "f"},
    "program_output": {"type": "program_output", "id": "out_1", "call_id": "c1", "result": "2", "status": "completed"},
    "additional_tools": {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]},
    "configuration_update": {"type": "configuration_update", "reasoning": {"effort": "low"}},
}  # fmt: skip


@pytest.mark.parametrize("kind", ITEMS)
def test_an_item_of_openais_own_is_sent_again(kind: str) -> None:
    request = ms.Request.from_openai_responses(model="gpt-5.5", input=[QUESTION, ITEMS[kind], QUESTION])
    changed = dataclasses.replace(request, messages=[*request.messages, LATER])
    sent = cast("list[JSONObject]", sent_by_us("openai_responses", changed)["input"])
    assert sent[1] == ITEMS[kind]
    assert [item.get("role") for item in sent if item.get("type") == "message"] == ["user", "user", "user"]


def test_a_listing_of_tools_is_sent_again_to_anthropic() -> None:
    listing: JSONObject = {"type": "mcp_tool_listing", "mcp_server_name": "maps", "tools": []}
    answer: JSONObject = {"role": "assistant", "content": [listing, {"type": "text", "text": "The Elbe."}]}
    request = ms.Request.from_anthropic(model="claude-opus-5", max_tokens=9, messages=[QUESTION, answer, QUESTION])
    changed = dataclasses.replace(request, messages=[*request.messages, LATER])
    sent = cast("list[JSONObject]", sent_by_us("anthropic", changed)["messages"])
    assert sent[1] == answer


def kinds(union: Any) -> list[str]:
    """The `type` of each model of an SDK's union."""
    models = get_args(get_args(union)[0])
    return [get_args(model.model_fields["type"].annotation)[0] for model in models]


@pytest.mark.parametrize("kind", kinds(ResponseOutputItem))
def test_every_item_of_a_response_is_accepted_as_input(kind: str) -> None:
    content: list[ms.JSON] = [{"type": "output_text", "text": "x"}]
    item: JSONObject = {
        "type": kind, "role": "assistant", "id": "i1", "call_id": "c1", "name": "look", "content": content,
    }  # fmt: skip
    request = ms.Request.from_openai_responses(model="gpt-5.5", input=[QUESTION, item, QUESTION])
    assert len(request.messages) == 3


@pytest.mark.parametrize("kind", kinds(BetaContentBlock))
def test_every_block_of_an_answer_is_accepted_in_history(kind: str) -> None:
    block: JSONObject = {
        "type": kind, "id": "i1", "name": "look", "text": "x", "thinking": "x", "data": "x", "input": {},
    }  # fmt: skip
    messages: list[JSONObject] = [QUESTION, {"role": "assistant", "content": [block]}, QUESTION]
    request = ms.Request.from_anthropic(model="claude-opus-5", max_tokens=9, messages=messages)
    assert len(request.messages[1].content) == 1


REFUSAL = "I will not."
ASK, AGAIN = ms.Message.user("Do it."), ms.Message.user("Why?")


def chat_answer(content: ms.JSON) -> bytes:
    message = {"role": "assistant", "content": content, "refusal": REFUSAL}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def item(*texts: str, **members: str) -> JSONObject:
    parts: list[ms.JSON] = [{"type": "output_text", "text": text} for text in texts]
    return {"type": "message", "role": "assistant", "content": [*parts, {"type": "refusal", "refusal": REFUSAL}],
            **members}  # fmt: skip


def responses_answer(*items: JSONObject) -> bytes:
    return json.dumps({"status": "completed", "output": items}).encode()


def decoded(provider: ms.Provider, body: bytes) -> ms.Response:
    return dialect_of(provider.profile).decode(body, provider, lambda: "id")


def sent(provider: ms.Provider, *messages: ms.Message, warnings: tuple[str, ...] = ()) -> ms.JSON:
    """Return the conversation as a request to this provider has it, and check the warnings."""
    wire = dialect_of(provider.profile).encode(ms.Request("m", messages), "m", provider, stream=False)
    body = json.loads(wire.body)
    assert wire.warnings == [*warnings]
    return body.get("messages") or body.get("input") or body.get("contents")


CHAT, RESPONSES = ms.OpenAIChat("key"), ms.OpenAIResponses("key")
ASKED: ms.JSON = {"role": "user", "content": "Do it."}
ASKED_AGAIN: ms.JSON = {"role": "user", "content": "Why?"}


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
    other = ms.OpenAIChat("key", base_url="http://127.0.0.1:9/v1", profile="mistral")
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
    user: ms.JSON = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Do it."}]}
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
def test_a_chat_refusal_without_text_is_the_text(content: ms.JSON) -> None:
    response = decoded(CHAT, chat_answer(content))
    assert (response.content, response.text, response.refusal) == ([], "", REFUSAL)
    said: ms.JSON = {"role": "assistant", "content": REFUSAL}
    assert sent(CHAT, ASK, response.to_message(), AGAIN) == [ASKED, said, ASKED_AGAIN]


ONLY_REFUSED = [(CHAT, chat_answer(None)), (RESPONSES, responses_answer(item()))]


@pytest.mark.parametrize(("provider", "body"), ONLY_REFUSED, ids=["chat", "responses"])
def test_every_dialect_gets_a_refusal_without_text(provider: ms.Provider, body: bytes) -> None:
    message = decoded(provider, body).to_message()
    assert message == ms.Message.assistant(REFUSAL)
    answered: list[tuple[ms.Provider, ms.JSON]] = [
        (CHAT, {"role": "assistant", "content": REFUSAL}),
        (RESPONSES, {"type": "message", "role": "assistant", "content": REFUSAL}),
        (ms.Anthropic("key"), {"role": "assistant", "content": REFUSAL}),
        (ms.Gemini("key"), {"role": "model", "parts": [{"text": REFUSAL}]}),
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
ITEMS_REFUSED: list[JSONObject] = [item("Well."), item("Well.", phase="final_answer")]


@pytest.mark.parametrize(
    ("converter", "wire"),
    [*((ChatConverter(), wire) for wire in CHAT_MESSAGES), *((ResponsesConverter(), wire) for wire in ITEMS_REFUSED)],
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
    parts: list[ms.JSON] = [{"type": "text", "text": "Well."}, {"type": "refusal", "refusal": REFUSAL}]
    messages = converter.decode_messages([{"role": "assistant", "content": parts}])
    assert converter.encode_messages(messages) == [CHAT_MESSAGES[0]]


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}]])
def test_a_converter_writes_a_refusal_without_text_as_text(content: ms.JSON) -> None:
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
    assert history.text == REFUSAL


ANSWERS: list[tuple[ms.Dialect, ms.Provider, dict[str, Any], str, Any]] = [
    (anthropic.DIALECT, ms.Anthropic(api_key="k"),
        {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}, "messages",
        [{"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "Well?"}]}]),
    (chat.DIALECT, ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]},
        "messages", [{"role": "user", "content": "Hello"}, {"role": "user", "content": "Well?"}]),
    (chat.DIALECT, ms.OpenAIChat(api_key="k", profile="deepseek"),
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"}]},
        "messages", [{"role": "user", "content": "Hello"}, {"role": "user", "content": "Well?"}]),
    (responses.DIALECT, ms.OpenAIResponses(api_key="k"), {"object": "response", "status": "completed", "output": []},
        "input", [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Well?"}]}]),
    (gemini.DIALECT, ms.Gemini(api_key="k"), {"candidates": [{"content": {}, "finishReason": "STOP"}]}, "contents",
        [{"role": "user", "parts": [{"text": "Hello"}]}, {"role": "user", "parts": [{"text": "Well?"}]}]),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "provider", "answer", "member", "sent"), ANSWERS)
def test_an_answer_without_content_is_not_sent(
    dialect: ms.Dialect, provider: ms.Provider, answer: dict[str, Any], member: str, sent: object
) -> None:
    response = dialect.decode(json.dumps(answer).encode(), provider, lambda: "made")
    assert response.content == []
    messages = [ms.Message.user("Hello"), response.to_message(), ms.Message.user("Well?")]
    wire = dialect.encode(ms.Request("m", messages), "m", provider, stream=False)
    assert json.loads(wire.body)[member] == sent
    assert wire.warnings == []


def test_an_empty_answer_between_calls_changes_no_pairing() -> None:
    messages = [
        ms.Message.user("Hello"), ms.Message.tool_call("c1", "look", "{}"), ms.Message.assistant([]),
        ms.Message.tool_result("c1", "sunny"),
    ]  # fmt: skip
    wire = anthropic.DIALECT.encode(ms.Request("m", messages), "m", ms.Anthropic(api_key="k"), stream=False)
    assert [message["role"] for message in json.loads(wire.body)["messages"]] == ["user", "assistant", "user"]


# --- an end is no answer ---

BY_NAME = {
    "chat": chat.DIALECT, "responses": responses.DIALECT, "anthropic": anthropic.DIALECT, "gemini": gemini.DIALECT,
}  # fmt: skip
PROVIDERS = {
    "chat": ms.OpenAIChat(api_key="k"), "responses": ms.OpenAIResponses(api_key="k"),
    "anthropic": ms.Anthropic(api_key="k"), "gemini": ms.Gemini(api_key="k"),
}  # fmt: skip
EMPTY_BODIES = [
    "", " \n", "null", "{}", "[]", '{"error":{}}', '{"error":{"message":""}}', '{"error":{"code":0,"status":""}}',
]  # fmt: skip
BODIES = [(name, body) for name in BY_NAME for body in EMPTY_BODIES] + [
    ("chat", '{"id":"c","choices":[]}'),
    ("chat", '{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":null}]}'),
    ("chat", '{"id":"c","choices":[{"message":{"content":""},"finish_reason":""}],"usage":{"prompt_tokens":3}}'),
    ("chat", '{"id":"c","choices":[{"message":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}'),
    ("responses", '{"id":"r","object":"response","output":[]}'),
    ("responses", '{"id":"r","output":[{"type":"message","content":[{"type":"output_text","text":""}]}]}'),
    ("anthropic", '{"id":"m","type":"message","content":[],"stop_reason":null}'),
    ("anthropic", '{"id":"m","type":"message","content":null}'),
    ("anthropic", '{"id":"m","type":"message","content":[{"type":"text","text":""}]}'),
    ("gemini", '{"candidates":[],"modelVersion":"m"}'),
    ("gemini", '{"candidates":[{"content":{"role":"model","parts":[]},"index":0}]}'),
    ("gemini", '{"promptFeedback":{"safetyRatings":[{"category":"X"}]}}'),
    ("gemini", '{"usageMetadata":{"promptTokenCount":3}}'),
    ("gemini", '[{"modelVersion":"m"}]'),
]  # fmt: skip
CREATED = '{"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}'
MESSAGE_START = '{"type":"message_start","message":{"id":"m","content":[],"stop_reason":null}}'
STREAMS = [
    ("chat", ["[DONE]"]),
    ("chat", ['{"id":"c","choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}', "[DONE]"]),
    ("chat", ['{"id":"c","choices":[],"usage":{"prompt_tokens":3}}', "[DONE]"]),
    ("chat", ['{"error":{}}', "[DONE]"]),
    ("responses", ['{"type":"response.completed","response":{}}']),
    ("responses", [CREATED, '{"type":"response.completed"}']),
    ("responses", [CREATED, '{"type":"response.completed","response":{"status":"in_progress","output":[]}}']),
    ("anthropic", ['{"type":"message_stop"}']),
    ("anthropic", [MESSAGE_START, '{"type":"message_delta","delta":{},"usage":{"output_tokens":0}}',
                   '{"type":"message_stop"}']),
    ("anthropic", [MESSAGE_START, '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
                   '{"type":"content_block_stop","index":0}', '{"type":"message_stop"}']),
]  # fmt: skip


def is_no_answer(error: ms.ProviderError) -> bool:
    return (error.category, error.retryable, error.provider_code) == (ms.ErrorCategory.SERVER, True, "no_answer")


@pytest.mark.parametrize(("name", "body"), BODIES)
def test_a_body_that_says_nothing_may_be_retried(name: str, body: str) -> None:
    with pytest.raises(ms.ProviderError) as caught:
        BY_NAME[name].decode(body.encode(), PROVIDERS[name], lambda: "made")
    assert is_no_answer(caught.value)
    assert caught.value.body == body.encode()


@pytest.mark.parametrize(("name", "events"), STREAMS)
def test_an_end_without_an_answer_may_be_retried(name: str, events: list[str]) -> None:
    machine = BY_NAME[name].machine(PROVIDERS[name], lambda: "made")
    seen = [event for data in events for event in machine.feed("", data.encode())]
    assert isinstance(seen[-1], ms.ErrorEvent)
    assert is_no_answer(seen[-1].error)
    assert machine.ended
    assert machine.end() == machine.feed("", b"[DONE]") == ()


FINISHED = [
    ("chat", ['{"choices":[{"delta":{},"finish_reason":"stop"}]}', "[DONE]"]),
    ("chat", ['{"choices":[{"delta":{},"finish_reason":"a_new_word"}]}', "[DONE]"]),
    ("chat", ['{"choices":[{"delta":{"refusal":"No."}}]}', "[DONE]"]),
    ("chat", ['{"choices":[{"delta":{"content":"a"}}]}', "[DONE]"]),
    ("chat", ['{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":""}}]}}]}', "[DONE]"]),
    ("responses", [CREATED, '{"type":"response.completed","response":{"status":"completed","output":[]}}']),
    ("responses", ['{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}']),
    ("anthropic", [MESSAGE_START, '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
                   '{"type":"message_stop"}']),
]  # fmt: skip


@pytest.mark.parametrize(("name", "events"), FINISHED)
def test_an_end_with_a_reason_or_content_is_an_answer(name: str, events: list[str]) -> None:
    machine = BY_NAME[name].machine(PROVIDERS[name], lambda: "made")
    seen = [event for data in events for event in machine.feed("", data.encode())]
    assert isinstance(seen[-1], ms.Done)


def test_a_dialect_that_ends_before_its_answer_gets_the_error() -> None:
    """A machine may set `ended` before it calls `done`, as the guide shows."""

    class Machine(StreamMachine):
        def take_event(self, event: str, data: bytes) -> list[ms.Event]:
            self.ended = True
            return self.answer.done(ms.FinishReason.STOP, None)

        def take_end(self) -> list[ms.Event]:
            raise AssertionError

    (event,) = Machine(PROVIDERS["chat"], lambda: "made").feed("", b"{}")
    assert isinstance(event, ms.ErrorEvent)
    assert is_no_answer(event.error)
