"""Details of answers and errors, each with its whole result: messages, usage, candidates, parts of several kinds."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from manystream.providers.gemini import DIALECT
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
    with pytest.raises(ms.ProviderError) as raised:
        DIALECT.decode(data, PROVIDER, Ids())
    assert isinstance(in_stream, ms.ProviderError)
    assert in_stream.message.removeprefix("Gemini sent ").startswith(words)
    sent = "Gemini's answer cannot be read: " if "JSON" in words else "Gemini sent "
    assert raised.value.message.startswith(sent + words)
    for error in (in_stream, raised.value):
        assert (error.category, error.retryable, error.body) == (ms.ErrorCategory.SERVER, False, data)


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
    assert (error.message, error.category, error.retryable) == (message, ms.ErrorCategory.NETWORK, True)


def test_an_error_event_of_any_bytes_is_an_error_with_their_text() -> None:
    answer = run([stream_bytes(text_chunk("a")), b"event: error\r\ndata: busy \xff\r\n\r\n"])
    assert (answer.error.error.message, answer.error.error.body) == ("busy \N{REPLACEMENT CHARACTER}", b"busy \xff")


@pytest.mark.parametrize("data", [b"", b" ", b"[DONE]", b" [DONE] "])
def test_an_empty_event_or_a_marker_is_ignored(data: bytes) -> None:
    machine = DIALECT.machine(PROVIDER, Ids())
    assert machine.feed("error", data) == machine.feed("", data) == ()
    assert not machine.ended


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


# --- parts ---
CALL: dict[str, Any] = {"name": "f", "args": {}}

MADE_CALL: list[ms.Event] = [ms.ToolCallStart(1, "id-1", "f"), ms.ToolCallDelta(1, "{}"), ms.ToolCallDone(1)]


def test_a_part_with_several_kinds_has_a_block_for_each() -> None:
    answer = stream(
        part_chunk(
            {"newKind": 1, "functionCall": CALL, "text": "a", "otherKind": 2, "thoughtSignature": "s"}, finish="STOP"
        )
    )
    assert answer.events == [
        START,
        ms.TextDelta(0, "a"),
        *MADE_CALL,
        ms.Done(ms.FinishReason.TOOL_USE, "STOP", ms.Usage()),
    ]
    assert answer.response.content == [
        ms.Text("a"),
        ms.ToolCall("id-1", "f", "{}"),
        ms.ProviderBlock("google", {"newKind": 1, "otherKind": 2, "thoughtSignature": "s"}),
    ]
    answer = stream(part_chunk({"functionCall": CALL, "text": "a", "thoughtSignature": "s"}, finish="STOP"))
    assert answer.response.content == [ms.Text("a"), ms.ToolCall("id-1", "f", "{}", state=signed("s"))]


@pytest.mark.parametrize("empty", ["", None, {}, []])
def test_an_empty_kind_beside_a_full_one_is_ignored(empty: object) -> None:
    full = {"text": "a", "functionCall": empty, "inlineData": empty, "newKind": empty}
    assert stream(part_chunk(full, finish="STOP")).response.content == [ms.Text("a")]
    full = {"text": empty, "functionCall": CALL, "inlineData": empty}
    assert stream(part_chunk(full, finish="STOP")).response.content == [ms.ToolCall("id-1", "f", "{}")]


def test_a_block_between_two_texts_separates_them() -> None:
    thought: dict[str, Any] = {"text": "hm", "thought": True}
    file: dict[str, Any] = {"fileData": {"fileUri": "https://a.example/a", "mimeType": "image/png"}}
    answer = stream(part_chunk({"text": "a"}, file, {"text": "b"}, thought, file, thought, finish="STOP"))
    image = ms.Image(url="https://a.example/a", media_type="image/png")
    hm = ms.Thinking("hm", state=ms.ProviderState("google", {"thought": True}))
    assert answer.response.content == [ms.Text("a"), image, ms.Text("b"), hm, image, hm]
    assert [event.index for event in answer.events if isinstance(event, ms.TextDelta | ms.ThinkingDelta)] == [
        0,
        2,
        3,
        5,
    ]


def test_a_signed_thought_is_not_continued() -> None:
    answer = stream(
        part_chunk({"text": "a", "thought": True, "thoughtSignature": "s"}),
        part_chunk({"text": "b", "thought": True}), part_chunk({"text": "", "thought": True, "thoughtSignature": "t"}),
        part_chunk({"thought": True}), part_chunk(finish="STOP"),
    )  # fmt: skip
    assert answer.response.content == [
        ms.Thinking("a", "s", state=signed("s", thought=True)),
        ms.Thinking("b", "t", state=signed("t", thought=True)),
    ]


def test_a_file_that_the_model_made_keeps_its_name_and_signature() -> None:
    part = {"inlineData": {"mimeType": "text/csv", "data": "YSxi", "displayName": "a.csv"}, "thoughtSignature": "s"}
    linked = {"fileData": {"fileUri": "https://a.example/b", "mimeType": "text/csv"}, "thoughtSignature": "t"}
    assert decode(part_chunk(part, linked, finish="STOP")).content == [
        ms.File(data=b"a,b", media_type="text/csv", name="a.csv", state=signed("s")),
        ms.File(url="https://a.example/b", media_type="text/csv", state=signed("t")),
    ]


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ({"text": "a", "functionCall": {}}, [ms.Text("a")]),
        ({"text": "", "functionCall": CALL}, [ms.ToolCall("id-1", "f", "{}")]),
        ({"text": "", "functionCall": {}}, []),
        ({"text": "", "newKind": {}}, [ms.ProviderBlock("google", {"text": "", "newKind": {}})]),
        ({"text": "a", "newKind": []}, [ms.Text("a")]),
        ({"newKind": {}, "otherKind": 1}, [ms.ProviderBlock("google", {"newKind": {}, "otherKind": 1})]),
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
