"""Details of answers and errors, each with its whole result: messages, usage, candidates, parts of several kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream.providers.gemini import DIALECT
from manystream.providers.gemini.errors import read_error
from manystream.providers.gemini.usage import read_usage
from manystream.providers.model.events import (
    Done,
    Event,
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
)
from manystream.providers.model.messages import File, Image, ProviderBlock, ProviderState, Text, Thinking, ToolCall
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.providers.model.tokens import Usage
from tests.providers.gemini.wire import (
    PROVIDER,
    START,
    Ids,
    decode,
    part_chunk,
    run,
    signed,
    stream,
    stream_bytes,
    text_chunk,
)

# --- messages of errors ---


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "malformed JSON '{': "),
        (b"nonsense", "malformed JSON 'nonsense': "),
        (b"\xff", "malformed JSON '\N{REPLACEMENT CHARACTER}': "),
        (b'"text"', "'\"text\"' where an object belongs"),
        (b"[[7]]", "'[[7]]' where an object belongs"),
    ],
)
def test_data_that_is_no_answer_is_quoted(data: bytes, words: str) -> None:
    (event,) = DIALECT.machine(PROVIDER, Ids()).feed("", data)
    in_stream = getattr(event, "error", None)
    with pytest.raises(ProviderError) as raised:
        DIALECT.decode(data, PROVIDER, Ids())
    assert isinstance(in_stream, ProviderError)
    assert in_stream.message.removeprefix("Gemini sent ").startswith(words)
    sent = "Gemini's answer cannot be read: " if "JSON" in words else "Gemini sent "
    assert raised.value.message.startswith(sent + words)
    for error in (in_stream, raised.value):
        assert (error.category, error.retryable, error.body) == (ErrorCategory.SERVER, False, data)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([b""], "truncated stream: the body ended with no event"),
        ([stream_bytes(text_chunk("a"))], "truncated stream: the body ended without a finishReason"),
        ([b" \n"], "truncated stream: the body ended with no event"),
        ([b"hello\n"], "truncated stream: the body ended with no event, after 'hello'"),
        ([stream_bytes(text_chunk("a")), b"hello\n"],
            "truncated stream: the body ended without a finishReason, after 'hello'"),
    ],
)  # fmt: skip
def test_a_truncated_stream_says_what_is_missing(pieces: list[bytes], message: str) -> None:
    answer = run(pieces)
    error = answer.error.error
    assert (error.message, error.category, error.retryable) == (message, ErrorCategory.NETWORK, True)


def test_an_error_event_of_any_bytes_is_an_error_with_their_text() -> None:
    answer = run([stream_bytes(text_chunk("a")), b"event: error\r\ndata: busy \xff\r\n\r\n"])
    assert (answer.error.error.message, answer.error.error.body) == ("busy \N{REPLACEMENT CHARACTER}", b"busy \xff")


@pytest.mark.parametrize("data", [b"", b" ", b"[DONE]", b" [DONE] "])
def test_an_empty_event_or_a_marker_is_ignored(data: bytes) -> None:
    machine = DIALECT.machine(PROVIDER, Ids())
    assert machine.feed("error", data) == machine.feed("", data) == ()
    assert not machine.ended


def test_a_refused_prompt_is_an_error_with_its_reason_and_body() -> None:
    body = b'{"promptFeedback": {"blockReason": 4, "blockReasonMessage": ""}}'
    with pytest.raises(ProviderError) as raised:
        DIALECT.decode(body, PROVIDER, Ids())
    assert raised.value == ProviderError(
        "prompt blocked: PROHIBITED_CONTENT", category=ErrorCategory.CONTENT_FILTER, http_status=200,
        provider_code="PROHIBITED_CONTENT", body=body,
    )  # fmt: skip


# --- errors of the API ---


@pytest.mark.parametrize(
    ("value", "status", "code", "category"),
    [
        ({"error": {"code": 400, "message": "m"}}, 400, None, ErrorCategory.INVALID_ARG),
        ({"error": {"code": 599, "message": "m"}}, 599, None, ErrorCategory.SERVER),
        ({"error": {"code": 501, "message": "m"}}, 501, None, ErrorCategory.UNKNOWN),
        ({"error": {"code": 399, "message": "m"}}, 200, None, ErrorCategory.UNKNOWN),
        ({"error": {"code": 600, "message": "m"}}, 200, None, ErrorCategory.UNKNOWN),
        ({"error": {"code": 600, "status": "UNAVAILABLE"}}, 503, "UNAVAILABLE", ErrorCategory.SERVER),
        ({"code": 404, "message": "m"}, 404, None, ErrorCategory.NOT_FOUND),
        ([None, {"a": 1}, {"error": {"status": "ABORTED"}}], 409, "ABORTED", ErrorCategory.UNKNOWN),
        ({"error": {"code": 429, "type": "x", "message": "m"}}, 200, "429", ErrorCategory.RATE_LIMIT),
        ({"error": {"code": "429", "message": "m"}}, 200, "429", ErrorCategory.RATE_LIMIT),
    ],
)
def test_an_error_inside_an_answer_has_its_own_status(
    value: Any, status: int, code: str | None, category: ErrorCategory
) -> None:
    error = read_error(value, b"body")
    assert (error.http_status, error.provider_code, error.category, error.body) == (status, code, category, b"body")


def failed(status: int, error: dict[str, Any], headers: dict[str, str] | None = None) -> ProviderError:
    return DIALECT.decode_error(status, headers or {}, json.dumps({"error": error}).encode(), 0.0)


QUOTA: dict[str, Any] = {"code": 429, "status": "RESOURCE_EXHAUSTED"}


def test_an_error_status_takes_precedence_over_the_bodys_code() -> None:
    error = failed(400, QUOTA)
    assert (error.http_status, error.category) == (400, ErrorCategory.INVALID_ARG)
    error = failed(399, QUOTA)
    assert (error.http_status, error.category) == (429, ErrorCategory.RATE_LIMIT)


def test_half_a_character_in_a_message_is_replaced() -> None:
    for value in ({"error": {"status": "UNAVAILABLE", "message": "a\ud800"}}, {"error": {"message": "a\ud800"}}):
        assert read_error(value, b"").message.removeprefix("UNAVAILABLE: ") == "a?"  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("UNAVAILABLE", ErrorCategory.SERVER),
        ("RESOURCE_EXHAUSTED", ErrorCategory.RATE_LIMIT),
        ("ABORTED", ErrorCategory.UNKNOWN),
        (None, ErrorCategory.UNKNOWN),
    ],
)
def test_the_status_name_replaces_an_unknown_status(name: str | None, category: ErrorCategory) -> None:
    error = failed(418, {"code": 418, "status": name, "message": "m"})
    assert (error.http_status, error.category) == (418, category)
    assert failed(403, {"code": 403, "status": name, "message": "m"}).category is ErrorCategory.AUTH


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"x-request-id": "a"}, "a"),
        ({"x-goog-request-id": "b"}, "b"),
        ({"x-request-id": "a", "x-goog-request-id": "b"}, "b"),
    ],
)
def test_googles_request_id_takes_precedence(headers: dict[str, str], expected: str | None) -> None:
    assert failed(429, QUOTA, headers).request_id == expected
    assert DIALECT.decode_error(500, headers, b"", 0.0).request_id == expected


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ({"message": "Please retry in 1m30s."}, 90_000),
        ({"message": "Retry in 250ms"}, 250),
        ({"message": "Please try again in 2 hours."}, 7_200_000),
        ({"message": "Please retry in a while."}, 7000),
        ({"details": [{"retryDelay": "soon"}, {"retryDelay": "3s"}]}, 3000),
        ({"message": "retry in 9s", "details": [{"retryDelay": "3s"}]}, 3000),
        ({"message": "retry in 9s", "details": [{"retryDelay": "soon"}]}, 9000),
        ({}, 7000),
    ],
)
def test_the_first_readable_delay_counts(error: dict[str, Any], hint: int) -> None:
    assert failed(429, {**QUOTA, **error}, {"retry-after": "7"}).retry_after_ms == hint


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"message": "limit: 0"}, False),
        ({"message": "limit: 0, model: x"}, False),
        ({"message": "limit: 0.5"}, True),
        ({"message": "limit: 05"}, True),
        ({"message": "60 requests per day"}, False),
        ({"message": "super dayly"}, True),
        ({"message": "Your project reached its spending cap."}, False),
        ({"details": [{"violations": [{"quotaValue": 0}]}]}, False),
        ({"details": [{"violations": [{"quotaValue": 1}, {"quotaId": "ModelPerDay"}]}]}, False),
        ({"details": [{}, {"violations": [{"quotaId": "PerMinute", "quotaValue": "10"}]}]}, True),
    ],
)
def test_a_quota_without_an_end_in_sight_is_not_retried(error: dict[str, Any], retryable: bool) -> None:
    assert failed(429, {**QUOTA, **error}).retryable is retryable


def test_a_key_is_removed_from_every_form_of_error() -> None:
    key = "AIza" + "0123456789"
    for body in (
        {"error": {"code": 400, "message": f"Bad key {key}.", "status": "INVALID_ARGUMENT"}},
        {"message": f"Bad key {key}."},
        {"error": {"message": "API key: hunter2", "type": "x"}},
    ):
        error = DIALECT.decode_error(400, {}, json.dumps(body).encode(), 0.0)
        assert error.message.removeprefix("INVALID_ARGUMENT: ") in ("Bad key [removed].", "API key: [removed]")
        assert b"[removed]" in error.body
        assert key.encode() not in error.body
    assert failed(400, {"code": 400, "message": "AIza012345678"}).message == "HTTP 400: AIza012345678"


def test_the_longest_context_is_named_as_such() -> None:
    text = "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."
    assert failed(400, {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}).context_overflow
    assert not failed(400, {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT"}).context_overflow


# --- usage ---


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((10, 5, 7, 0, None), (10, 0, 7, 17)),
        ((10, 9, 7, 0, None), (10, 2, 7, 19)),
        ((10, 5, 7, 3, 22), (13, 5, 7, 22)),
        ((10, 5, 7, 3, 25), (13, 5, 7, 25)),
        ((10, 9, 7, 3, 23), (13, 2, 7, 23)),
        ((10, 5, 0, 3, None), (13, 5, 0, 18)),
        ((10, 5, None, 3, None), (13, 5, None, 18)),
        ((None, 5, None, 3, None), (3, 5, None, None)),
        ((26, 5, None, 12_504, None), (12_530, 5, None, 12_535)),
        ((None, 5, 7, None, 12), (None, 5, 7, 12)),
        ((None, 5, None, None, None), (None, 5, None, None)),
        ((10, None, 7, None, None), (10, 0, 7, 17)),
        ((10, None, 0, None, None), (10, None, 0, None)),
    ],
)
def test_each_count_has_its_field(counts: tuple[int | None, ...], expected: tuple[int | None, ...]) -> None:
    names = (
        "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount", "totalTokenCount",
    )  # fmt: skip
    raw: Any = {name: count for name, count in zip(names, counts, strict=True) if count is not None}
    prompt, output, thinking, total = expected
    assert read_usage(raw) == Usage(prompt, output, thinking, total_tokens=total, raw=raw)


# --- other candidates and members ---


def test_other_candidates_are_kept_in_the_order_of_their_indexes() -> None:
    def candidate(index: int, *parts: Any, **members: Any) -> dict[str, Any]:
        return {"content": {"parts": list(parts), "role": "model"}, "index": index, **members}

    answer = stream(
        {"candidates": [candidate(2, {"text": "c", "thought": None}), candidate(0, {"text": "a"})]},
        {"candidates": [candidate(1, {"text": "b"}, 3, finishReason="STOP"), candidate(2, {"text": "d"})]},
        {"candidates": [{"index": 3, "finishReason": "SAFETY", "avgLogprobs": None}]},
        {"candidates": [{"index": 3, "content": None}, candidate(0, finishReason="STOP")]},
    )
    assert answer.response.text == "a"
    assert answer.response.provider_data["candidates"] == [
        {"index": 1, "content": {"role": "model", "parts": [{"text": "b"}, 3]}, "finishReason": "STOP"},
        {"index": 2, "content": {"role": "model", "parts": [{"text": "cd"}]}},
        {"index": 3, "finishReason": "SAFETY"},
    ]


def test_citations_belong_to_the_last_text() -> None:
    cited = {"citationMetadata": {"citationSources": [{"endIndex": 3}]}}
    chunk: dict[str, Any] = {"candidates": [{"content": {"parts": []}, "finishReason": "STOP", **cited}]}
    parts: list[Any] = [
        {"text": "a"}, {"executableCode": {}}, {"text": "b"}, {"inlineData": {"mimeType": "a/b", "data": ""}},
    ]  # fmt: skip
    answer = stream(part_chunk(*parts), chunk)
    assert answer.response.content == [
        Text("a"), ProviderBlock("google", {"executableCode": {}}), Text("b", citations=[{"endIndex": 3}]),
        File(data=b"", media_type="a/b"),
    ]  # fmt: skip
    assert stream(chunk).response.content == []


def test_usage_that_is_no_object_is_ignored() -> None:
    answer = stream(text_chunk("a", usageMetadata={"promptTokenCount": 3}), part_chunk(finish="STOP", usageMetadata=3))
    assert answer.response.usage == Usage(3, raw={"promptTokenCount": 3})
    assert answer.response.provider_data == {}


# --- parts ---

CALL: dict[str, Any] = {"name": "f", "args": {}}
MADE_CALL: list[Event] = [ToolCallStart(1, "id-1", "f"), ToolCallDelta(1, "{}"), ToolCallDone(1)]


def test_a_part_with_several_kinds_has_a_block_for_each() -> None:
    answer = stream(
        part_chunk(
            {"newKind": 1, "functionCall": CALL, "text": "a", "otherKind": 2, "thoughtSignature": "s"}, finish="STOP"
        )
    )
    assert answer.events == [START, TextDelta(0, "a"), *MADE_CALL, Done(FinishReason.TOOL_USE, "STOP", Usage())]
    assert answer.response.content == [
        Text("a"),
        ToolCall("id-1", "f", "{}"),
        ProviderBlock("google", {"newKind": 1, "otherKind": 2, "thoughtSignature": "s"}),
    ]
    answer = stream(part_chunk({"functionCall": CALL, "text": "a", "thoughtSignature": "s"}, finish="STOP"))
    assert answer.response.content == [Text("a"), ToolCall("id-1", "f", "{}", state=signed("s"))]


@pytest.mark.parametrize("empty", ["", None, {}, []])
def test_an_empty_kind_beside_a_full_one_is_ignored(empty: object) -> None:
    full = {"text": "a", "functionCall": empty, "inlineData": empty, "newKind": empty}
    assert stream(part_chunk(full, finish="STOP")).response.content == [Text("a")]
    full = {"text": empty, "functionCall": CALL, "inlineData": empty}
    assert stream(part_chunk(full, finish="STOP")).response.content == [ToolCall("id-1", "f", "{}")]


def test_a_call_of_several_parts_keeps_its_id_and_signature() -> None:
    def partial(**members: Any) -> dict[str, Any]:
        return part_chunk({"functionCall": {"willContinue": True, **members}})

    first = partial(name="f", id="w1", partialArgs=[{"jsonPath": "$.a", "numberValue": 1}])
    first["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = "s"
    answer = stream(
        first, partial(id="w1"), partial(name="f", partialArgs=[{"jsonPath": "$.b", "numberValue": 2}]),
        part_chunk({"functionCall": {}}, finish="STOP"),
    )  # fmt: skip
    assert answer.response.content == [ToolCall("w1", "f", '{"a":1,"b":2}', state=signed("s", id="w1"))]


def test_a_late_signature_is_added_to_its_call() -> None:
    begin = {"functionCall": {"name": "f", "willContinue": True}}
    end = {"functionCall": {"willContinue": False}, "thoughtSignature": "s"}
    answer = stream(part_chunk(begin), part_chunk(end), part_chunk(finish="STOP"))
    assert answer.response.content == [ToolCall("id-1", "f", "{}", state=signed("s"))]


def test_a_block_between_two_texts_separates_them() -> None:
    thought: dict[str, Any] = {"text": "hm", "thought": True}
    file: dict[str, Any] = {"fileData": {"fileUri": "https://a.example/a", "mimeType": "image/png"}}
    answer = stream(part_chunk({"text": "a"}, file, {"text": "b"}, thought, file, thought, finish="STOP"))
    image = Image(url="https://a.example/a", media_type="image/png")
    hm = Thinking("hm", state=ProviderState("google", {"thought": True}))
    assert answer.response.content == [Text("a"), image, Text("b"), hm, image, hm]
    assert [event.index for event in answer.events if isinstance(event, TextDelta | ThinkingDelta)] == [0, 2, 3, 5]


def test_a_signed_thought_is_not_continued() -> None:
    answer = stream(
        part_chunk({"text": "a", "thought": True, "thoughtSignature": "s"}),
        part_chunk({"text": "b", "thought": True}), part_chunk({"text": "", "thought": True, "thoughtSignature": "t"}),
        part_chunk({"thought": True}), part_chunk(finish="STOP"),
    )  # fmt: skip
    assert answer.response.content == [
        Thinking("a", "s", state=signed("s", thought=True)),
        Thinking("b", "t", state=signed("t", thought=True)),
    ]


def test_arguments_nested_too_deeply_are_dropped_with_a_warning() -> None:
    nested = "[" * 1010 + "]" * 1010
    call = '{"functionCall": {"name": "f", "args": {"a": ' + nested + "}}}"
    body = '{"candidates": [{"content": {"parts": [' + call + "]}}]}"
    response = DIALECT.decode(body.encode(), PROVIDER, Ids())
    assert [(call.name, call.arguments, call.complete) for call in response.tool_calls] == [("f", "", False)]
    assert response.warnings == ["the arguments of call 'id-1' are nested too deeply and were dropped"]


def test_a_file_that_the_model_made_keeps_its_name_and_signature() -> None:
    part = {"inlineData": {"mimeType": "text/csv", "data": "YSxi", "displayName": "a.csv"}, "thoughtSignature": "s"}
    linked = {"fileData": {"fileUri": "https://a.example/b", "mimeType": "text/csv"}, "thoughtSignature": "t"}
    assert decode(part_chunk(part, linked, finish="STOP")).content == [
        File(data=b"a,b", media_type="text/csv", name="a.csv", state=signed("s")),
        File(url="https://a.example/b", media_type="text/csv", state=signed("t")),
    ]


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ({"text": "a", "functionCall": {}}, [Text("a")]),
        ({"text": "", "functionCall": CALL}, [ToolCall("id-1", "f", "{}")]),
        ({"text": "", "functionCall": {}}, []),
        ({"text": "", "newKind": {}}, [ProviderBlock("google", {"text": "", "newKind": {}})]),
        ({"text": "a", "newKind": []}, [Text("a")]),
        ({"newKind": {}, "otherKind": 1}, [ProviderBlock("google", {"newKind": {}, "otherKind": 1})]),
    ],
)
def test_of_two_kinds_the_full_one_is_read(part: dict[str, Any], content: list[Any]) -> None:
    assert stream(part_chunk(part, finish="STOP")).response.content == content


@pytest.mark.parametrize(("first", "second"), [("modelVersion", "responseId"), ("responseId", "modelVersion")])
def test_model_and_id_may_come_one_after_the_other(first: str, second: str) -> None:
    def chunk(**members: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}], **members}

    response = stream(chunk(**{first: "1"}), chunk(**{first: "2", second: "3"}), chunk(**{second: "4"})).response
    found = {"modelVersion": response.model, "responseId": response.id}
    assert found == {first: "1", second: "3"}


def test_lists_that_continue_are_joined_and_others_replaced() -> None:
    def chunk(finish: str | None = None, **members: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": finish, **members}]}

    answer = stream(
        chunk(
            citationMetadata={"note": 1}, logprobsResult=None, safetyRatings=[1], groundingMetadata={"a": [1], "b": 1}
        ),
        chunk(
            citationMetadata={"citations": [1], "note": None}, safetyRatings=[2], groundingMetadata={"a": [2], "c": 3}
        ),
        chunk(citationMetadata={"citations": [2]}, logprobsResult={"topCandidates": [1], "sum": 1}),
        chunk("STOP", citationMetadata={"citations": None}, logprobsResult={"topCandidates": [2], "sum": 2}),
    )
    assert answer.response.provider_data == {
        "citationMetadata": {"note": 1, "citations": [1, 2]}, "logprobsResult": {"topCandidates": [1, 2], "sum": 2},
        "safetyRatings": [2], "groundingMetadata": {"a": [2], "b": 1, "c": 3},
    }  # fmt: skip
