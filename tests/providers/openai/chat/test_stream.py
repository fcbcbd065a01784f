"""A stream's normal course, and its valid and invalid ends."""

import json
from typing import Any, get_args

import pytest
from openai.types.chat.chat_completion import Choice

from manystream.providers.catalog.provider import OpenAIChat
from manystream.providers.model.events import Done, ErrorEvent, FinishReason, Start, TextDelta, ThinkingDelta
from manystream.providers.model.messages import Text, Thinking
from manystream.providers.model.provider_error import ErrorCategory
from manystream.providers.model.tokens import Usage
from manystream.providers.openai.chat import DIALECT
from manystream.providers.wire.finish_words import FINISH_REASONS

from .wire import OPENAI, SERVER, answer, chunk, deltas, id_maker, known, run, stream

PLAIN = """
    data: {"id":"c-1","object":"chat.completion.chunk","created":7,"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

    data: {"id":"c-1","object":"chat.completion.chunk","created":7,"model":"m-1","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}],"usage":null}

    data: {"id":"c-1","object":"chat.completion.chunk","created":7,"model":"m-1","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}],"usage":null}

    data: {"id":"c-1","object":"chat.completion.chunk","created":7,"model":"m-1","choices":[{"index":0,"delta":{"content":"!"},"finish_reason":null}],"usage":null}

    data: {"id":"c-1","object":"chat.completion.chunk","created":7,"model":"m-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

    data: {"id":"c-1","object":"chat.completion.chunk","created":7,"model":"m-1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}

    data: [DONE]
"""  # noqa: E501


def test_a_plain_stream() -> None:
    outcome = stream(PLAIN, OPENAI)
    assert outcome.events[:-1] == [Start("m-1", "c-1"), TextDelta(0, "Hel"), TextDelta(0, "lo"), TextDelta(0, "!")]
    assert outcome.done.finish_reason is FinishReason.STOP
    assert outcome.done.raw_finish_reason == "stop"
    assert outcome.done.usage.total_tokens == 12
    assert outcome.response.content == [Text("Hello!")]
    assert outcome.response.model == "m-1"
    assert outcome.response.id == "c-1"
    assert outcome.response.usage is outcome.done.usage


def test_start_waits_for_the_first_event() -> None:
    machine = DIALECT.machine(OPENAI, id_maker())
    first = json.dumps(chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])).encode()
    assert list(machine.feed("", first)) == []
    second = json.dumps(chunk(choices=[{"index": 0, "delta": {"content": "a"}}])).encode()
    assert list(machine.feed("", second)) == [Start("m-1", "chatcmpl-1"), TextDelta(0, "a")]


def test_the_partial_answer_can_be_read_at_any_time() -> None:
    machine = DIALECT.machine(OPENAI, id_maker())
    assert machine.response().content == []
    machine.feed("", json.dumps(chunk(choices=[{"index": 0, "delta": {"content": "a"}}])).encode())
    assert machine.response().text == "a"
    machine.feed("", json.dumps(chunk(choices=[{"index": 0, "delta": {"content": "b"}}])).encode())
    assert machine.response().text == "ab"
    assert machine.response().finish_reason is FinishReason.UNKNOWN


@pytest.mark.parametrize("data", ["[DONE]", " [DONE] ", "[DONE] ", "[DONE]x"])
def test_data_that_begins_with_the_end_marker_is_one(data: str) -> None:
    outcome = run([("", b'{"choices":[{"delta":{"content":"a"}}]}'), ("", data.encode())])
    assert outcome.events == [Start(None, None), TextDelta(0, "a"), Done(FinishReason.UNKNOWN, None, Usage(), {})]


def test_the_end_marker_without_a_finish_reason_is_the_end() -> None:
    outcome = deltas({"content": "a"}, finish=None)
    assert outcome.done.finish_reason is FinishReason.UNKNOWN
    assert outcome.response.text == "a"


def test_a_finish_reason_is_not_the_end() -> None:
    outcome = stream("""
        data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}
        data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}
        data: {"choices":[{"delta":{"content":"c"},"finish_reason":null}]}
        data: [DONE]
    """)
    assert outcome.response.text == "abc"
    assert outcome.done.raw_finish_reason == "stop"


SPOKEN = {
    FinishReason.STOP: {
        "stop",  # OpenAI
        "eos",  # Together
        "eos_token", "stop_sequence",  # text-generation-inference
        "end_turn", "complete", "completed",  # gateways that pass other dialects' words on
    },
    FinishReason.LENGTH: {
        "length",  # OpenAI
        "model_length",  # Mistral
        "max_tokens", "max_output_tokens", "model_context_window_exceeded", "max_length",  # gateways
        "token_limit", "time_limit",  # watsonx
        "error_limit",  # Cohere
    },
    FinishReason.TOOL_USE: {"tool_calls", "function_call", "tool_call", "tool_use", "tool-calls"},
    FinishReason.CONTENT_FILTER: {
        "content_filter",  # OpenAI
        "content-filter",
        "sensitive",  # Z.ai
        "safety", "refusal", "recitation", "blocklist", "prohibited_content",  # gateways
        "content_filtered", "guardrail_intervened",  # Bedrock
        "error_toxic",  # Cohere
    },
    FinishReason.ERROR: {
        "error",  # Mistral, OpenRouter
        "network_error",  # Z.ai
        "insufficient_system_resource",  # DeepSeek
        "repetition",  # vLLM
        "timeout",  # TensorRT-LLM
        "malformed_function_call", "unexpected_tool_call",  # gateways before Gemini
        "malformed_model_output", "malformed_tool_use",  # Bedrock
    },
    FinishReason.ABORTED: {
        "abort",  # vLLM, SGLang
        "aborted", "cancelled", "canceled",  # TensorRT-LLM
        "user_cancel",  # Cohere
    },
}  # fmt: skip
"""Word of a server → finish reason."""


def test_the_finish_table_holds_these_words_and_those_of_the_sdk() -> None:
    turned: dict[FinishReason, set[str]] = {}
    for word, reason in FINISH_REASONS.items():
        turned.setdefault(reason, set()).add(word)
    assert turned == SPOKEN
    assert {*get_args(Choice.model_fields["finish_reason"].annotation)} <= FINISH_REASONS.keys()


@pytest.mark.parametrize(
    ("raw", "reason"), [(word, reason) for reason, words in SPOKEN.items() for word in sorted(words)]
)
def test_every_finish_reason(raw: str, reason: FinishReason) -> None:
    call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    for spelling in (raw, raw.upper()):
        outcome = deltas(call if reason is FinishReason.TOOL_USE else {"content": "a"}, finish=spelling)
        assert (outcome.response.finish_reason, outcome.response.raw_finish_reason) == (reason, spelling)
        assert isinstance(outcome.events[-1], ErrorEvent) is (reason in (FinishReason.ABORTED, FinishReason.ERROR))


def test_unknown_finish_reasons_keep_their_word() -> None:
    outcome = deltas({"content": "a"}, finish="tired")
    assert (outcome.done.finish_reason, outcome.done.raw_finish_reason) == (FinishReason.UNKNOWN, "tired")


# --- the body's end without the marker ---


@pytest.mark.parametrize(
    ("provider", "finish", "whole"),
    [
        (SERVER, "stop", True),
        (known("perplexity"), "stop", True),
        (OPENAI, "stop", False),
        (SERVER, None, False),
        (SERVER, "", False),
        (OPENAI, None, False),
    ],
)
def test_a_body_without_the_marker_needs_a_finish_reason(provider: OpenAIChat, finish: str | None, whole: bool) -> None:
    data = json.dumps(chunk(choices=[{"index": 0, "delta": {"content": "a"}, "finish_reason": finish}])).encode()
    outcome = run([("", data)], provider)
    assert outcome.response.text == "a"
    if whole:
        assert outcome.done.finish_reason is FinishReason.STOP
    else:
        assert outcome.error.error.category is ErrorCategory.NETWORK
        assert outcome.error.error.retryable
        assert "truncated stream" in outcome.error.error.message


def test_an_empty_body_is_truncated() -> None:
    outcome = run([])
    assert outcome.events == [outcome.error]
    assert outcome.error.error.category is ErrorCategory.NETWORK


def test_a_call_cut_off_by_the_bodys_end_is_not_complete() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "t", "arguments": '{"x": 1}'}}
    outcome = run([("", json.dumps(chunk(choices=[{"delta": {"tool_calls": [call]}}])).encode())])
    assert outcome.error.error.category is ErrorCategory.NETWORK
    (block,) = outcome.response.tool_calls
    assert block.arguments == '{"x": 1}'
    assert not block.complete


# --- events that must not match a template ---

PLAIN_CHUNK = chunk(
    choices=[{"index": 0, "delta": {"content": "a"}, "logprobs": None, "finish_reason": None}], usage=None
)


@pytest.mark.parametrize(
    "unusual",
    [
        chunk(choices=[{"index": 0, "delta": {"content": "a"}, "logprobs": None, "finish_reason": "stop"}], usage=None),
        chunk(choices=[{"index": 0, "delta": {"content": "a"}, "logprobs": None, "finish_reason": None}],
            usage={"prompt_tokens": 1}),
        chunk(choices=[{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [1]}, "finish_reason": None}],
            usage=None),
        chunk(choices=[{"index": 1, "delta": {"content": "a"}, "logprobs": None, "finish_reason": None}], usage=None),
        chunk(choices=[], usage=None),
        chunk(choices=None, usage=None),
        chunk(choices=[{"index": 0, "delta": {"content": "a"}, "logprobs": None, "finish_reason": None}] * 2,
            usage=None),
        chunk(choices=[{"index": 0, "delta": {"content": "a", "refusal": "no"}, "logprobs": None,
            "finish_reason": None}], usage=None),
        chunk(choices=[{"index": 0, "delta": {"content": "a", "tool_calls": [{"id": "x", "function": {"name": "t"}}]},
            "logprobs": None, "finish_reason": None}], usage=None),
        chunk(choices=[{"index": 0, "delta": {"content": "a"}, "logprobs": None, "finish_reason": None}], usage=None,
            citations=["x"]),
        chunk(choices=[{"index": 0, "delta": {"content": "a"}, "seed": 5, "finish_reason": None}], usage=None),
        chunk(choices=[{"index": 0, "delta": None, "logprobs": None, "finish_reason": None}], usage=None),
    ],
)  # fmt: skip
def test_the_template_and_the_parser_give_the_same_events(unusual: dict[str, object]) -> None:
    """An unusual chunk after plain ones, which match a template, gives the same events as without templates."""
    ending = [chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]), "[DONE]"]
    plain = [PLAIN_CHUNK, PLAIN_CHUNK, PLAIN_CHUNK, unusual, PLAIN_CHUNK, *ending]
    hot = run([("", json.dumps(value).encode() if isinstance(value, dict) else value.encode()) for value in plain])
    machine = DIALECT.machine(SERVER, id_maker())
    events = []
    for value in plain:
        # An unknown event name changes nothing. A chunk with an unknown member is parsed whole.
        data = json.dumps(value | {"zz": None}).encode() if isinstance(value, dict) else value.encode()
        events.extend(machine.feed("message", data))
    assert events == hot.events
    assert machine.response() == hot.response


def test_thinking_then_text_then_both_at_once() -> None:
    outcome = deltas(
        {"reasoning_content": "Hm", "content": None}, {"reasoning_content": "m.", "content": None},
        {"reasoning_content": "!", "content": None}, {"reasoning_content": None, "content": "So"},
        {"reasoning_content": None, "content": ":"}, {"reasoning_content": "?", "content": " yes"},
    )  # fmt: skip
    assert outcome.events[1:-1] == [
        ThinkingDelta(0, "Hm"), ThinkingDelta(0, "m."), ThinkingDelta(0, "!"), TextDelta(1, "So"), TextDelta(1, ":"),
        ThinkingDelta(0, "?"), TextDelta(1, " yes"),
    ]  # fmt: skip
    thinking, text = outcome.response.content
    assert isinstance(thinking, Thinking)
    assert (thinking.text, text) == ("Hmm.!?", Text("So: yes"))


@pytest.mark.parametrize(
    "data",
    [
        "{", "not json", "7", '"text"', '[{"choices": []}]', '{"choices": 5}', '{"choices": "text"}',
        '{"choices": [5]}', '{"choices": [{"delta": "text"}]}', '{"choices": [{"delta": {"content": 5}}]}',
        '{"choices": [{"delta": {"tool_calls": 5}}]}', '{"choices": [{"delta": {"tool_calls": [5]}}]}',
    ],
)  # fmt: skip
def test_an_unreadable_event_is_an_error_that_quotes_it(data: str) -> None:
    good = json.dumps(chunk(choices=[{"index": 0, "delta": {"content": "a"}}])).encode()
    outcome = run([("", good), ("", data.encode()), ("", b"[DONE]")])
    error = outcome.error.error
    assert error.body == data.encode()
    assert "malformed" in error.message
    assert not error.retryable
    assert outcome.response.text == "a"


def test_harmless_odd_values_are_ignored() -> None:
    outcome = stream("""
        data: {}
        data: {"type": "ping"}
        data: {"choices": null}
        data: {"choices": []}
        data: {"choices": [null]}
        data: {"choices": [{}]}
        data: {"choices": [{"delta": null}]}
        data: {"choices": [{"delta": {}}]}
        data: {"choices": [{"delta": {"content": null, "tool_calls": null, "refusal": null}}]}
        data: {"choices": [{"delta": {"content": "", "tool_calls": [], "refusal": "", "function_call": {}}}]}
        data: {"choices": [{"delta": {"tool_calls": [null]}, "finish_reason": 5, "index": "x"}]}
        data: {"choices": [{"delta": {"content": "a"}}], "usage": {}, "model": 5, "id": {}}
        data: [DONE]
    """)
    assert outcome.response.text == "a"
    assert outcome.done.finish_reason is FinishReason.UNKNOWN
    assert outcome.response.model is None


def test_bad_unicode_does_not_fail_the_stream() -> None:
    outcome = run(
        [
            ("", b'{"choices":[{"index":0,"delta":{"content":"a\xff"},"finish_reason":null}]}'),
            ("", b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"},"finish_reason":null}]}'),
            ("", '{"choices":[{"index":0,"delta":{"content":"\u2028\u0085"},"finish_reason":null}]}'.encode()),
            ("", b"[DONE]"),
        ]
    )
    assert outcome.response.text == "a\ufffd\ufffd\u2028\u0085"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"city": "Paris", "sunny": True}, '{"city":"Paris","sunny":true}'),
        ({"type": "circle", "text": "round"}, '{"type":"circle","text":"round"}'),
        ({"type": "text", "text": "sunny"}, "sunny"),
        ({}, "{}"),
    ],
)
def test_content_that_is_an_object_is_its_json_text(content: dict[str, object], text: str) -> None:
    assert answer({"content": content}).text == text
    if content:
        assert deltas({"content": content}).response.text == text


@pytest.mark.parametrize("messages", [("Hel", "lo"), ("Hel", "Hello"), ("Hel", "Hello", "Hello"), ("Hel", "", "lo")])
def test_messages_in_place_of_deltas_are_one_text(messages: tuple[str, ...]) -> None:
    chunks = [
        chunk(choices=[{"index": 0, "message": {"role": "assistant", "reasoning_content": text, "content": text}}])
        for text in messages
    ]
    end = chunk(choices=[{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}])
    outcome = run([("", json.dumps(value).encode()) for value in (*chunks, end)])
    assert (outcome.response.text, outcome.response.thinking) == ("Hello", "Hello")


def test_calls_in_messages_in_place_of_deltas_come_once() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    said: dict[str, object] = {"role": "assistant", "content": "Hm", "tool_calls": [call]}
    chunks = [chunk(choices=[{"message": said}]), chunk(choices=[{"message": said, "finish_reason": "tool_calls"}])]
    outcome = run([("", json.dumps(value).encode()) for value in chunks])
    assert (outcome.response.text, outcome.calls) == ("Hm", [("a", "t", "{}")])


def of_text(finish: str | None = None, **members: Any) -> dict[str, Any]:
    return {"id": "r", "model": "m", "choices": [{"index": 0, "finish_reason": finish, **members}]}


TEXTS: dict[str, list[dict[str, Any]]] = {
    "no delta": [of_text(text="a"), of_text("stop", text="b")],
    "an empty delta": [of_text(text="a", delta={"role": "assistant"}), of_text("stop", text="b", delta={})],
    "null": [of_text(text="a", delta=None), of_text("stop", text="b", delta={"content": None}, logprobs=None)],
    "repeated": [of_text(text="a", delta={"content": "a"}), of_text(text="b", delta={"content": "b"}),
        of_text("stop", text="ab", delta={})],
    "messages": [of_text(text="a", message={"content": "a"}), of_text("stop", text="ab", message={"content": "ab"})],
    "after thinking": [of_text(delta={"reasoning": "r"}), of_text(text="a"), of_text("stop", text="b")],
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_choice_s_own_text_is_the_content_once(name: str) -> None:
    machine = DIALECT.machine(SERVER, lambda: "id")
    events = [event for value in TEXTS[name] for event in machine.feed("", json.dumps(value).encode())]
    events += machine.feed("", b"[DONE]")
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == machine.response().text == "ab"
    whole = json.dumps(of_text("stop", text="ab", message={"role": "assistant"})).encode()
    assert DIALECT.decode(whole, SERVER, lambda: "id").text == "ab"
