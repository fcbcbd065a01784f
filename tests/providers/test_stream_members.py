"""Members that a stream sends in pieces: a later one either extends or replaces the earlier one.

The lists are those of the official libraries' types, so that a new one is noticed, and vLLM's
(`ChatCompletionResponseStreamChoice`), which is not installed here.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic.types.beta
import pytest
from google.genai import types as google
from openai.types.chat import chat_completion_chunk
from openai.types.responses import ResponseStreamEvent

from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.errors import ErrorCategory, ProviderError
from manystream.providers.model.events import Error, FinishReason, ToolCallDone
from manystream.providers.model.response import Response
from tests.conformance.exchange import provider_for
from tests.conformance.official import union_members


def read(dialect: str, *events: Any) -> Response:
    machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: "made")
    for event in events:
        machine.feed("", json.dumps(event).encode())
    if dialect == "openai-chat":
        machine.feed("", b"[DONE]")
    machine.end()
    return machine.response()


def decode(dialect: str, body: Any) -> Response:
    return DIALECTS[dialect].decode(json.dumps(body).encode(), provider_for(dialect, "openai"), lambda: "made")


def chunk(index: int, text: str, *, finish: str | None = None, **members: Any) -> Any:
    return {"id": "c", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish, **members}]}


VLLM = [
    {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [1, 2]},
    chunk(0, "Hel", token_ids=[11, 12], stop_reason=None, logprobs={"content": [{"token": "Hel"}]}),
    chunk(1, "Sal", token_ids=[21], logprobs={"content": [{"token": "Sal"}]}),
    chunk(0, "lo", token_ids=[13], logprobs={"content": [{"token": "lo"}]}),
    chunk(1, "ut", token_ids=[22, 23], logprobs={"content": [{"token": "ut"}]}),
    chunk(0, "", token_ids=[14], finish="stop", stop_reason=7),
    chunk(1, "", token_ids=[24], finish="stop", stop_reason="\n"),
]


def test_every_choice_keeps_its_token_ids_and_logprobs() -> None:
    response = read("openai-chat", *VLLM)
    data = response.provider_data
    assert data["token_ids"] == [11, 12, 13, 14]
    assert data["prompt_token_ids"] == [1, 2]
    assert data["stop_reason"] == 7
    assert data["logprobs"] == {"content": [{"token": "Hel"}, {"token": "lo"}]}
    (other,) = data["choices"]  # type: ignore[misc,union-attr]
    assert other == {
        "index": 1,
        "message": {"role": "assistant", "content": "Salut"},
        "finish_reason": "stop",
        "token_ids": [21, 22, 23, 24],
        "stop_reason": "\n",
        "logprobs": {"content": [{"token": "Sal"}, {"token": "ut"}]},
    }


def test_the_same_answer_unstreamed_keeps_the_same() -> None:
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
            "token_ids": ids,
            "stop_reason": stop,
            "logprobs": {"content": [{"token": piece} for piece in tokens]},
        }
        for index, text, ids, stop, tokens in (
            (0, "Hello", [11, 12, 13, 14], 7, ("Hel", "lo")),
            (1, "Salut", [21, 22, 23, 24], "\n", ("Sal", "ut")),
        )
    ]
    whole = decode("openai-chat", {"id": "c", "choices": choices, "prompt_token_ids": [1, 2]})
    assert whole == read("openai-chat", *VLLM)


def test_a_list_of_the_whole_chunk_is_replaced() -> None:
    # Perplexity repeats its sources in every chunk.
    first, second = chunk(0, "a"), chunk(0, "b", finish="stop")
    first["citations"], second["citations"] = ["u1"], ["u1", "u2"]
    assert read("openai-chat", first, second).provider_data["citations"] == ["u1", "u2"]


STOPPED = {"type": "abort", "message": "new weights", "status_code": None}


@pytest.mark.parametrize("word", ["abort", "ABORT", "aborted", "cancelled", STOPPED], ids=str)
def test_an_aborted_answer_is_an_error_that_keeps_the_answer(word: Any) -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":'}}
    members: Any = {"token_ids": [11, 12], "logprobs": {"content": [{"token": "Hel"}]}, "finish_reason": word}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    machine = DIALECTS["openai-chat"].machine(provider_for("openai-chat", "vllm"), lambda: "made")
    machine.feed("", json.dumps(chunk(0, "Hel")).encode())
    machine.feed("", json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}).encode())
    machine.feed("", json.dumps({"choices": [{"index": 0, "delta": {}, **members}], "usage": usage}).encode())
    done, end = machine.feed("", b"[DONE]")
    assert done == ToolCallDone(1, complete=False)
    assert isinstance(end, Error)
    assert (end.error.category, end.error.provider_code) == (ErrorCategory.SERVER, "aborted")
    assert not end.error.retryable
    response = machine.response()
    raw = word["type"] if isinstance(word, dict) else word
    assert (response.text, response.finish_reason, response.raw_finish_reason) == ("Hel", FinishReason.ABORTED, raw)
    assert [call.complete for call in response.tool_calls] == [False]
    assert (response.usage.output_tokens, response.provider_data["token_ids"]) == (2, [11, 12])
    message = {"content": "Hel", "tool_calls": [call]}
    with pytest.raises(ProviderError, match="stopped the answer before its end") as failed:
        decode("openai-chat", {"id": "c", "choices": [{"message": message, **members}], "usage": usage})
    assert failed.value == end.error
    assert failed.value.partial == response


def test_an_aborted_answer_of_another_dialect_keeps_its_answer() -> None:
    message = {"type": "message", "id": "r", "content": [{"type": "text", "text": "Hel"}], "stop_reason": "abort"}
    cancelled = {"id": "r", "status": "cancelled", "output": [MESSAGE]}
    for dialect, body, raw in (("anthropic", message, "abort"), ("openai-responses", cancelled, "cancelled")):
        with pytest.raises(ProviderError) as failed:
            decode(dialect, body)
        assert not failed.value.retryable
        partial = failed.value.partial
        assert partial is not None
        assert (partial.text, partial.finish_reason, partial.raw_finish_reason) == ("Hel", FinishReason.ABORTED, raw)


def test_an_answer_that_repeated_itself_is_not_to_be_trusted() -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":["b","b","b"'}}
    whole = {"id": "c", "choices": [{"message": {"tool_calls": [call]}, "finish_reason": "repetition"}]}
    response = decode("openai-chat", whole)
    assert (response.finish_reason, response.raw_finish_reason) == (FinishReason.ERROR, "repetition")
    assert [call.complete for call in response.tool_calls] == [False]


MESSAGE = {"type": "message", "content": "Hel"}

FAILURES: dict[str, tuple[str, Any]] = {
    "chat": ("openai-chat", {"id": "r", "choices": [{"message": {"content": "Hel"},
        "error": {"code": 502, "message": "gone"}}]}),
    "responses, failed": ("openai-responses", {"id": "r", "status": "failed",
        "output": [{"type": "message", "content": "Hel"}], "error": {"message": "gone"}}),
    "responses, cancelled": ("openai-responses", {"id": "r", "status": "cancelled", "output": [MESSAGE]}),
    "gemini": ("gemini", [{"responseId": "r", "candidates": [{"content": {"parts": [{"text": "Hel"}]}}]},
        {"error": {"code": 503}}]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_whole_answer_that_failed_keeps_what_came(name: str) -> None:
    with pytest.raises(ProviderError) as failed:
        decode(*FAILURES[name])
    assert failed.value.partial is not None
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
    with pytest.raises(ProviderError) as failed:
        decode(dialect, body)
    assert failed.value.partial is None


def gemini_chunk(index: int, token: str, **members: Any) -> Any:
    candidate = {
        "index": index,
        "content": {"parts": [{"text": token}]},
        "logprobsResult": {"chosenCandidates": [{"token": token}], "topCandidates": [{"candidates": []}]},
        "citationMetadata": {"citations": [{"uri": token}]},
        **members,
    }
    return {"candidates": [candidate]}


def test_other_gemini_candidates_are_merged_like_the_first() -> None:
    events = [gemini_chunk(index, token) for token in ("a", "b") for index in (0, 1)]
    events.append({"candidates": [{"index": index, "finishReason": "STOP"} for index in (0, 1)]})
    data = read("gemini", *events).provider_data
    (other,) = data["candidates"]  # type: ignore[misc,union-attr]
    for name in ("logprobsResult", "citationMetadata"):
        assert other[name] == data[name]  # type: ignore[index,call-overload]
    assert data["logprobsResult"]["chosenCandidates"] == [{"token": "a"}, {"token": "b"}]  # type: ignore[index,call-overload]


def test_log_probabilities_that_only_the_deltas_have_are_kept() -> None:
    def delta(text: str) -> Any:
        return {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": text,
            "logprobs": [{"token": text, "logprob": -0.5}],
        }

    end = {"type": "response.completed", "response": {"status": "completed"}}
    # Equal events, as for a repeated word: each has its own log probabilities.
    response = read("openai-responses", *map(delta, ["ha", "ha", "ha", "!"]), end)
    assert response.text == "hahaha!"
    tokens = [token["token"] for token in response.provider_data["logprobs"]]  # type: ignore[index,union-attr,call-overload]
    assert tokens == ["ha", "ha", "ha", "!"]


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
