"""What every stream machine does with cut bodies, the end, failures within a chunk, and members sent in pieces."""

import json
from typing import Any

import anthropic.types.beta
import pytest
from google.genai import types as google
from openai.types.chat import chat_completion_chunk
from openai.types.responses import ResponseStreamEvent

import manystream as ms
from manystream.providers.catalog.dialect import (
    NO_TARGET,
    StreamMachine,
)
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.json.json_values import dumps
from manystream.providers.openai.chat import DIALECT
from manystream.providers.wire.answer_limits import AnswerLimits
from tests.conformance.exchange import provider_for
from tests.conformance.official import union_members


def machine() -> StreamMachine:
    return DIALECT.machine(ms.OpenAIChat("k", "https://h.example/v1"), lambda: "id")


def chunk(text: str, reason: str = "null") -> bytes:
    body = '{"model":"m","id":"r","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}'
    return (body % (text, reason)).encode()


def test_the_last_event_of_a_cut_body_counts_only_if_it_is_whole() -> None:
    whole = machine()
    assert list(whole.feed_last("", chunk("a"))) == [ms.Start("m", "r"), ms.TextDelta(0, "a")]
    assert list(whole.feed_last("", chunk("b")[:-1])) == []
    assert list(whole.feed_last("", chunk("c")[:40])) == []
    finished = machine()
    finished.feed("", chunk("a", '"stop"'))
    (done,) = finished.feed_last("", b" [DONE]")
    assert done.type is ms.EventType.DONE
    assert list(machine().feed_last("", b"[DONE")) == []


def test_nothing_follows_the_terminal_event() -> None:
    ended = machine()
    error = ms.ProviderError("m", category=ms.ErrorCategory.SERVER)
    assert list(ended.fail(error)) == [ms.ErrorEvent(error)]
    assert ended.ended
    assert list(ended.fail(error)) == list(ended.end()) == list(ended.feed("", chunk("a"))) == []


def test_a_delta_without_a_template_is_a_defect() -> None:
    with pytest.raises(AssertionError, match=r"^a delta was accepted without a template$"):
        NO_TARGET.accept("a")
    assert (NO_TARGET.pieces, machine().matched, machine().target) == ([], False, NO_TARGET)


MEMBERS = {"name": "d", "encode": print, "decode": print, "machine": print}


@pytest.mark.parametrize("name", ["name", "encode", "decode", "machine", "auth_headers", "decode_error"])
def test_a_dialect_is_made_of_a_name_and_functions(name: str) -> None:
    ms.Dialect(**MEMBERS)  # type: ignore[arg-type]
    for wrong in (" ", "", None, 7):
        with pytest.raises(ms.InvalidRequestError) as caught:
            ms.Dialect(**{**MEMBERS, name: wrong})  # type: ignore[arg-type]
        kind = "text that is not empty" if name == "name" else "a function"
        assert str(caught.value) == f"Dialect.{name}: must be {kind}, not {wrong!r}"
        assert caught.value.field == f"Dialect.{name}"
    assert repr(ms.Dialect(**MEMBERS)) == "Dialect(name='d')"  # type: ignore[arg-type]


CALL: ms.JSONObject = {"functionCall": {"name": "look", "args": {"x": 1}}}

CHAT_CALL: ms.JSONObject = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}

ITEM_CALL: ms.JSONObject = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}

MESSAGE: ms.JSONObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}

CHUNKS: dict[str, tuple[ms.Provider, ms.JSONObject]] = {
    "chat, a malformed choice": (ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "delta": {"content": "Hello"}}, {"index": 0, "delta": ["Hello"]}]}),
    "chat, malformed tool calls": (ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "delta": {"content": "Hello", "tool_calls": "look"}}]}),
    "chat, too many tool calls": (ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "delta": {"content": "Hello",
        "tool_calls": [{**CHAT_CALL, "index": index, "id": f"call_{index}"} for index in range(3)]}}]}),
    "gemini, too many tool calls": (ms.Gemini(api_key="k"),
        {"candidates": [{"content": {"parts": [{"text": "Hello"}, CALL, CALL, CALL]}}]}),
    "responses, too many tool calls": (ms.OpenAIResponses(api_key="k"),
        {"type": "response.completed", "response": {"status": "completed",
        "output": [MESSAGE, *({**ITEM_CALL, "call_id": f"call_{index}"} for index in range(3))]}}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHUNKS)
def test_events_before_a_failure_are_delivered(name: str) -> None:
    provider, chunk = CHUNKS[name]
    machine = DIALECTS[provider.profile.dialect_name].machine(provider, lambda: "id", AnswerLimits(max_tool_calls=2))
    events = [*machine.feed("", dumps(chunk))]
    assert isinstance(events[-1], ms.ErrorEvent), events
    assert "".join(event.text for event in events if isinstance(event, ms.TextDelta)) == "Hello"
    assert machine.response().text == "Hello"
    started = [event for event in events if isinstance(event, ms.ToolCallStart)]
    assert len(started) == len(machine.response().tool_calls)
    assert machine.ended


def read(dialect: str, *events: Any) -> ms.Response:
    machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: "made")
    for event in events:
        machine.feed("", json.dumps(event).encode())
    if dialect == "openai-chat":
        machine.feed("", b"[DONE]")
    machine.end()
    return machine.response()


def decode(dialect: str, body: Any) -> ms.Response:
    return DIALECTS[dialect].decode(json.dumps(body).encode(), provider_for(dialect, "openai"), lambda: "made")


def chunk_member(index: int, text: str, *, finish: str | None = None, **members: Any) -> Any:
    return {"id": "c", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish, **members}]}


STOPPED = {"type": "abort", "message": "new weights", "status_code": None}


@pytest.mark.parametrize("word", ["abort", "ABORT", "aborted", "cancelled", STOPPED], ids=str)
def test_an_aborted_answer_is_an_error_that_keeps_the_answer(word: Any) -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":'}}
    members: Any = {"token_ids": [11, 12], "logprobs": {"content": [{"token": "Hel"}]}, "finish_reason": word}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    machine = DIALECTS["openai-chat"].machine(provider_for("openai-chat", "vllm"), lambda: "made")
    machine.feed("", json.dumps(chunk_member(0, "Hel")).encode())
    machine.feed("", json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}).encode())
    machine.feed("", json.dumps({"choices": [{"index": 0, "delta": {}, **members}], "usage": usage}).encode())
    done, end = machine.feed("", b"[DONE]")
    assert done == ms.ToolCallDone(1, complete=False)
    assert isinstance(end, ms.ErrorEvent)
    assert (end.error.category, end.error.provider_code) == (ms.ErrorCategory.SERVER, "aborted")
    assert not end.error.retryable
    response = machine.response()
    raw = word["type"] if isinstance(word, dict) else word
    assert (response.text, response.finish_reason, response.raw_finish_reason) == ("Hel", ms.FinishReason.ABORTED, raw)
    assert [call.complete for call in response.tool_calls] == [False]
    assert (response.usage.output_tokens, [*response.tokens.ids]) == (2, [11, 12])
    message = {"content": "Hel", "tool_calls": [call]}
    with pytest.raises(ms.ProviderError, match="stopped the answer before its end") as failed:
        decode("openai-chat", {"id": "c", "choices": [{"message": message, **members}], "usage": usage})
    assert failed.value == end.error
    assert failed.value.partial == response


def test_an_aborted_answer_of_another_dialect_keeps_its_answer() -> None:
    message = {"type": "message", "id": "r", "content": [{"type": "text", "text": "Hel"}], "stop_reason": "abort"}
    cancelled = {"id": "r", "status": "cancelled", "output": [MESSAGE_MEMBER]}
    for dialect, body, raw in (("anthropic", message, "abort"), ("openai-responses", cancelled, "cancelled")):
        with pytest.raises(ms.ProviderError) as failed:
            decode(dialect, body)
        assert not failed.value.retryable
        partial = failed.value.partial
        assert (partial.text, partial.finish_reason, partial.raw_finish_reason) == ("Hel", ms.FinishReason.ABORTED, raw)


PART = {"type": "text", "text": "Hel"}

GEMINI_PART = {"content": {"parts": [{"text": "Hel"}]}}

INCOMPLETE = {
    "id": "r", "status": "incomplete", "incomplete_details": {"reason": "server_error"},
    "output": [{"type": "message", "content": "Hel"}],
}  # fmt: skip

CHAT_WORDS = (
    "error", "ERROR", "insufficient_system_resource", "engine_failure", "MALFORMED_FUNCTION_CALL", "upstream_timeout",
    "rate_limit_exceeded", "repetition",
)  # fmt: skip

BROKEN: dict[str, tuple[str, Any, list[Any], str]] = {
    **{
        f"chat, {word}": (
            "openai-chat",
            {"id": "c", "choices": [{"message": {"content": "Hel"}, "finish_reason": word}]},
            [chunk_member(0, "Hel"), chunk_member(0, "", finish=word)],
            word,
        )
        for word in CHAT_WORDS
    },
    "anthropic": (
        "anthropic",
        {"type": "message", "id": "r", "content": [PART], "stop_reason": "error"},
        [{"type": "message_start", "message": {"id": "r"}},
         {"type": "content_block_start", "index": 0, "content_block": PART},
         {"type": "message_delta", "delta": {"stop_reason": "error"}}, {"type": "message_stop"}],
        "error",
    ),
    "gemini": (
        "gemini",
        {"responseId": "r", "candidates": [{**GEMINI_PART, "finishReason": "MALFORMED_RESPONSE"}]},
        [{"responseId": "r", "candidates": [GEMINI_PART]}, {"candidates": [{"finishReason": "MALFORMED_RESPONSE"}]}],
        "MALFORMED_RESPONSE",
    ),
    "responses": (
        "openai-responses", INCOMPLETE, [{"type": "response.incomplete", "response": INCOMPLETE}], "server_error",
    ),
    "interactions": (
        "gemini-interactions",
        {"id": "r", "status": "failed", "object": "interaction",
         "steps": [{"type": "model_output", "content": [PART]}]},
        [{"event_type": "interaction.created", "interaction": {"id": "r"}},
         {"event_type": "step.start", "index": 0, "step": {"type": "model_output", "content": [PART]}},
         {"event_type": "interaction.completed", "interaction": {"id": "r", "status": "failed"}}],
        "failed",
    ),
}  # fmt: skip
"""Dialect, whole answer, events of a stream, and the word that says that the generation broke."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_generation_that_broke_is_an_error_that_keeps_the_text(name: str) -> None:
    dialect, whole, events, word = BROKEN[name]
    with pytest.raises(ms.ProviderError) as failed:
        decode(dialect, whole)
    error = failed.value
    assert (error.category, error.retryable, error.provider_code) == (ms.ErrorCategory.SERVER, True, word)
    machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: "made")
    mark = [b"[DONE]"] if dialect == "openai-chat" else []
    sent = [*(json.dumps(data).encode() for data in events), *mark]
    *_, end = [event for data in sent for event in machine.feed("", data)] + [*machine.end()]
    assert end == ms.ErrorEvent(error)
    partial = machine.response()
    assert partial == error.partial
    assert (partial.text, partial.raw_finish_reason, partial.finish_reason) == ("Hel", word, ms.FinishReason.ERROR)


def test_an_answer_that_repeated_itself_is_not_to_be_trusted() -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":["b","b","b"'}}
    whole = {"id": "c", "choices": [{"message": {"tool_calls": [call]}, "finish_reason": "repetition"}]}
    with pytest.raises(ms.ProviderError, match="repetition") as failed:
        decode("openai-chat", whole)
    response = failed.value.partial
    assert (response.finish_reason, response.raw_finish_reason) == (ms.FinishReason.ERROR, "repetition")
    assert [call.complete for call in response.tool_calls] == [False]


MESSAGE_MEMBER = {"type": "message", "content": "Hel"}

FAILURES: dict[str, tuple[str, Any]] = {
    "chat": ("openai-chat", {"id": "r", "choices": [{"message": {"content": "Hel"},
        "error": {"code": 502, "message": "gone"}}]}),
    "responses, failed": ("openai-responses", {"id": "r", "status": "failed",
        "output": [{"type": "message", "content": "Hel"}], "error": {"message": "gone"}}),
    "responses, cancelled": ("openai-responses", {"id": "r", "status": "cancelled", "output": [MESSAGE_MEMBER]}),
    "gemini": ("gemini", [{"responseId": "r", "candidates": [{"content": {"parts": [{"text": "Hel"}]}}]},
        {"error": {"code": 503}}]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_whole_answer_that_failed_keeps_what_came(name: str) -> None:
    with pytest.raises(ms.ProviderError) as failed:
        decode(*FAILURES[name])
    assert (failed.value.partial.text, failed.value.partial.id) == ("Hel", "r")


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai-chat", {"error": {"message": "gone"}, "request_id": "q"}),
        ("openai-responses", {"error": {"message": "gone"}}),
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error"}}),
        ("gemini", {"error": {"code": 503}}),
    ],
)
def test_an_error_alone_keeps_nothing(dialect: str, body: Any) -> None:
    with pytest.raises(ms.ProviderError) as failed:
        decode(dialect, body)
    assert failed.value.partial is None


def gemini_chunk(index: int, token: str, **members: Any) -> Any:
    candidate = {
        "index": index, "content": {"parts": [{"text": token}]},
        "logprobsResult": {"chosenCandidates": [{"token": token}], "topCandidates": [{"candidates": []}]},
        "citationMetadata": {"citations": [{"uri": token}]}, **members,
    }  # fmt: skip
    return {"candidates": [candidate]}


def test_other_gemini_candidates_are_merged_like_the_first() -> None:
    events = [gemini_chunk(index, token) for token in ("a", "b") for index in (0, 1)]
    events.append({"candidates": [{"index": index, "finishReason": "STOP"} for index in (0, 1)]})
    data = read("gemini", *events).provider_data
    (other,) = data["candidates"]  # type: ignore[misc,union-attr]
    for name in ("logprobsResult", "citationMetadata"):
        assert other[name] == data[name]  # type: ignore[index,call-overload]
    assert data["logprobsResult"]["chosenCandidates"] == [{"token": "a"}, {"token": "b"}]  # type: ignore[index,call-overload]


def lists_of(model: Any) -> set[str]:
    return {name for name, field in model.model_fields.items() if "list[" in str(field.annotation).lower()}


EXTENDED = {"citations", "citation_sources", "chosen_candidates", "top_candidates"}
"""Gemini's lists of which each chunk has only the new elements."""


def test_every_list_of_the_sdks_is_merged_or_replaced() -> None:
    chat = chat_completion_chunk
    assert lists_of(chat.ChatCompletionChunk) == {"choices"}
    assert lists_of(chat.Choice) == set()
    assert lists_of(chat.ChoiceDelta) == {"tool_calls"}
    assert lists_of(chat.ChoiceLogprobs) == {"content", "refusal"}
    assert lists_of(google.LogprobsResult) | lists_of(google.CitationMetadata) <= EXTENDED
    # These come whole, in one chunk or in each.
    assert lists_of(google.Candidate) == {"safety_ratings"}
    assert lists_of(google.UrlContextMetadata) == {"url_metadata"}
    deltas = union_members(anthropic.types.beta.BetaRawContentBlockDelta)
    assert [model.__name__ for model in deltas if lists_of(model)] == []
    with_lists = {model.__name__: lists_of(model) for model in union_members(ResponseStreamEvent) if lists_of(model)}
    assert with_lists == {
        "ResponseTextDeltaEvent": {"logprobs"},
        "ResponseTextDoneEvent": {"logprobs"},
        # The progress of a tool that the server runs. Its item comes whole.
        "ResponseShellCallOutputContentDoneEvent": {"output"},
    }
