"""Whole answers: the response of a body, and equality of streamed and unstreamed answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.gemini import DIALECT, parse_response
from tests.providers.gemini.wire import PROVIDER, Ids, decode, run, signed, stream, stream_bytes

ANSWER: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Let me see.", "thought": True},
                    {"text": "I will look."},
                    {"functionCall": {"name": "find", "args": {"q": "x"}}, "thoughtSignature": "c2ln"},
                    {"functionCall": {"name": "find", "args": {"q": "y"}}},
                ],
            },
            "finishReason": "STOP",
            "citationMetadata": {"citations": [{"endIndex": 3, "uri": "https://example.com"}]},
        }
    ],
    "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7,
        "cachedContentTokenCount": 4, "totalTokenCount": 22},
    "modelVersion": "gemini-3.8-flash",
    "responseId": "r-1",
}  # fmt: skip


def test_an_answer_is_read_whole() -> None:
    response = decode(ANSWER)
    assert (response.model, response.id) == ("gemini-3.8-flash", "r-1")
    assert (response.text, response.thinking) == ("I will look.", "Let me see.")
    assert response.tool_calls == [
        ms.ToolCall("id-1", "find", '{"q":"x"}', state=signed("c2ln")),
        ms.ToolCall("id-2", "find", '{"q":"y"}'),
    ]
    assert (response.finish_reason, response.raw_finish_reason) == (ms.FinishReason.TOOL_USE, "STOP")
    assert response.usage == ms.Usage(
        input_tokens=10, output_tokens=5, thinking_tokens=7, cached_tokens=4, total_tokens=22,
        raw=ANSWER["usageMetadata"],
    )  # fmt: skip
    assert isinstance(response.content[0], ms.Thinking)
    assert isinstance(response.content[1], ms.Text)
    assert response.content[1].citations == [{"endIndex": 3, "uri": "https://example.com"}]


def pieces_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an answer as a server streams it.

    Texts come in pieces, every other part in its own chunk, usage in each chunk, and the rest with the last one.
    """
    candidate = answer["candidates"][0]
    parts: list[dict[str, Any]] = []
    for part in candidate["content"]["parts"]:
        text = part.get("text", "")
        pieces = [{**part, "text": text[at : at + 3]} for at in range(0, len(text), 3)] if text else [part]
        signature = part.get("thoughtSignature")
        for piece in pieces[:-1]:
            piece.pop("thoughtSignature", None)
        parts.extend(pieces)
        assert signature is None or pieces[-1]["thoughtSignature"] == signature
    common = {key: answer[key] for key in ("modelVersion", "responseId", "usageMetadata") if key in answer}
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [p]}}], **common} for p in parts
    ]
    rest = {key: value for key, value in candidate.items() if key != "content"}
    return [*chunks, {"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, **rest}], **common}]


TEXT_ONLY: dict[str, Any] = {
    "candidates": [
        {"content": {"parts": [{"text": "A longer text.", "thoughtSignature": "s"}]}, "finishReason": "STOP"}
    ]
}

CUT_SHORT: dict[str, Any] = {
    "candidates": [{"content": {"parts": [{"text": "A longer te"}]}, "finishReason": "MAX_TOKENS", "avgLogprobs": -1}]
}

WITH_CODE: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "parts": [
                    {"text": "Computing"},
                    {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
                    {"text": "It is one."},
                    {"inlineData": {"mimeType": "image/png", "data": "iVBO"}},
                ]
            },
            "finishReason": "STOP",
            "groundingMetadata": {"webSearchQueries": ["one"]},
        }
    ]
}


@pytest.mark.parametrize("answer", [ANSWER, TEXT_ONLY, CUT_SHORT, WITH_CODE])
def test_a_streamed_answer_equals_the_same_answer_unstreamed(answer: dict[str, Any]) -> None:
    whole = decode(answer)
    streamed = stream(*pieces_of(answer))
    assert streamed.response == whole
    done = streamed.events[-1]
    assert isinstance(done, ms.Done)
    assert (done.finish_reason, done.usage, done.provider_data) == (
        whole.finish_reason,
        whole.usage,
        whole.provider_data,
    )


def test_an_array_of_chunks_is_merged() -> None:
    assert decode(pieces_of(ANSWER)) == decode(ANSWER)


@pytest.mark.parametrize(
    "body",
    [
        {"candidates": [{"finishReason": "STOP"}]},
        {"candidates": [{"content": None, "finishReason": "STOP"}]},
        {"candidates": [{"content": {"role": "model", "parts": []}, "index": 0, "finishReason": "STOP"}]},
    ],
)
def test_no_part_and_a_finish_reason_is_an_empty_answer(body: dict[str, Any]) -> None:
    response = decode(body)
    assert response.content == []
    assert (response.finish_reason, response.raw_finish_reason) == (ms.FinishReason.STOP, "STOP")


@pytest.mark.parametrize("as_array", [False, True])
def test_an_error_object_inside_a_200_is_raised(as_array: bool) -> None:
    body: Any = {"error": {"code": 403, "message": "No.", "status": "PERMISSION_DENIED"}}
    with pytest.raises(ms.ProviderError) as raised:
        decode([body] if as_array else body)
    assert raised.value.category is ms.ErrorCategory.AUTH
    assert raised.value.message == "PERMISSION_DENIED: No."


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "JAILBREAK", "BRAND_NEW"])
def test_a_refused_prompt_is_raised_with_its_reason(reason: str) -> None:
    with pytest.raises(ms.ProviderError) as raised:
        decode({"promptFeedback": {"blockReason": reason}})
    assert raised.value.category is ms.ErrorCategory.CONTENT_FILTER
    assert reason in raised.value.message


@pytest.mark.parametrize(
    ("number", "reason"), [(1, "SAFETY"), (2, "OTHER"), (3, "BLOCKLIST"), (4, "PROHIBITED_CONTENT"), (9, "9")]
)
def test_a_block_reason_may_be_a_number(number: int, reason: str) -> None:
    with pytest.raises(ms.ProviderError, match=f"prompt blocked: {reason}"):
        decode({"promptFeedback": {"blockReason": number}})


@pytest.mark.parametrize("reason", ["BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "", 0, None])
def test_an_unset_block_reason_blocks_nothing(reason: Any) -> None:
    assert decode({**TEXT_ONLY, "promptFeedback": {"blockReason": reason}}).text == "A longer text."


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b'"text"', b"[1]", b'{"candidates'])
def test_a_body_that_is_no_answer_is_an_error_that_quotes_it(body: bytes) -> None:
    with pytest.raises(ms.ProviderError) as raised:
        DIALECT.decode(body, PROVIDER, Ids())
    assert not raised.value.retryable
    assert raised.value.body == body
    assert not body or body.decode()[:10] in raised.value.message


def test_parse_response_needs_only_a_body() -> None:
    body = json.dumps(ANSWER)
    first, second = parse_response(body), parse_response(body.encode())
    assert first.text == "I will look."
    made = [call.id for response in (first, second) for call in response.tool_calls]
    assert len(set(made)) == 4
    assert all(len(id) == 22 and id.replace("-", "a").replace("_", "a").isalnum() for id in made)
    assert parse_response(body, Ids()) == decode(ANSWER)


@pytest.mark.parametrize("body", ["[]", "null", '{"error":{}}', '[{"error":{}}]', "0", '""', "[null]"])
def test_parse_response_raises_for_what_is_no_answer(body: str) -> None:
    with pytest.raises(ms.ProviderError):
        parse_response(body)


@pytest.mark.parametrize("answer", [{}, {"candidates": []}, {"candidates": [{}]}, {"candidates": [{"content": {}}]}])
def test_parse_response_reads_an_answer_without_content_as_empty(answer: dict[str, Any]) -> None:
    body = json.dumps({**answer, "modelVersion": "m"} if answer else answer).encode()
    with pytest.raises(ms.ProviderError):
        DIALECT.decode(body, PROVIDER, Ids())
    response = parse_response(body)
    assert (response.content, response.finish_reason) == ([], ms.FinishReason.UNKNOWN)
    assert response.model == ("m" if answer else None)


def test_the_official_client_reads_the_same_text_calls_and_usage() -> None:
    from google.genai import types

    official = types.GenerateContentResponse.model_validate(ANSWER)
    ours = decode(ANSWER)
    parts = official.candidates[0].content.parts  # type: ignore[index, union-attr]
    assert [part.text for part in parts or () if part.text and not part.thought] == [ours.text]
    assert [call.args for call in official.function_calls or ()] == [call.parsed for call in ours.tool_calls]
    assert official.usage_metadata.candidates_token_count == ours.usage.output_tokens


def test_an_unstreamed_body_of_a_stream_request_is_decoded() -> None:
    """Without `alt=sse` the whole body is one array, which the engine passes to `decode`."""
    array = json.dumps(pieces_of(WITH_CODE), indent=2).encode()
    assert DIALECT.decode(array, PROVIDER, Ids()).content == run([stream_bytes(*pieces_of(WITH_CODE))]).response.content


def test_the_index_of_a_candidate_may_be_a_whole_float() -> None:
    body = {"candidates": [{"index": 1.0, "content": {"parts": [{"text": "b"}]}},
                           {"index": 0.0, "content": {"parts": [{"text": "a"}]}}]}  # fmt: skip
    assert decode(body).text == "a"
