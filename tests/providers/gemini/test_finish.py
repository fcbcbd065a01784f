"""Finish reasons: the table, its words and numbers, and which of several counts."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from manystream.providers.gemini.finish import FINISH_NUMBERS, FINISH_REASONS
from tests.providers.gemini.wire import (
    part_chunk,
    stream,
    text_chunk,
)


def test_a_finish_reason_in_every_chunk_does_not_end_the_answer() -> None:
    answer = stream(text_chunk("a"), part_chunk({"text": "b"}, finish="STOP"), part_chunk({"text": "c"}, finish="STOP"))
    assert answer.response.text == "abc"
    assert answer.of(ms.Done) == [ms.Done(ms.FinishReason.STOP, "STOP", ms.Usage())]


def test_the_last_finish_reason_counts() -> None:
    answer = stream(part_chunk({"text": "b"}, finish="STOP"), part_chunk(finish="RECITATION"))
    assert answer.response.finish_reason is ms.FinishReason.CONTENT_FILTER
    assert answer.response.raw_finish_reason == "RECITATION"


@pytest.mark.parametrize("word", ["", None, 0, "FINISH_REASON_UNSPECIFIED", False, {}])
def test_an_unset_finish_reason_is_none(word: Any) -> None:
    answer = stream(part_chunk({"text": "a"}, finish=word))
    assert answer.error.error.category is ms.ErrorCategory.NETWORK
    assert "finishReason" in answer.error.error.message
    assert answer.response.text == "a"
    assert answer.response.raw_finish_reason is None


SPOKEN = {
    ms.FinishReason.STOP: {"STOP"},
    ms.FinishReason.LENGTH: {"MAX_TOKENS", "CONTINUATION"},
    ms.FinishReason.CONTENT_FILTER: {
        "SAFETY", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION", "RECITATION", "MODEL_ARMOR", "ESCALATION",
    },
    ms.FinishReason.ERROR: {
        "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "LANGUAGE", "NO_IMAGE",
        "MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE", "PUP_LIMITED_DISABLED",
    },
    ms.FinishReason.UNKNOWN: {"OTHER", "IMAGE_OTHER", "FINISH_REASON_UNSPECIFIED"},
}  # fmt: skip


def test_the_finish_table_is_as_documented() -> None:
    turned: dict[ms.FinishReason, set[str]] = {}
    for word, reason in FINISH_REASONS.items():
        turned.setdefault(reason, set()).add(word)
    assert turned == SPOKEN


def test_the_finish_table_has_every_word_of_the_client() -> None:
    from google.genai import types

    assert {reason.value for reason in types.FinishReason} <= FINISH_REASONS.keys()


MAPPED = [(word, reason) for reason, words in SPOKEN.items() for word in sorted(words - {"FINISH_REASON_UNSPECIFIED"})]


# The last is not Google's word. Other servers of this dialect send it after tool calls.
@pytest.mark.parametrize(
    ("word", "reason"),
    [*MAPPED, ("BRAND_NEW", ms.FinishReason.UNKNOWN), ("FUNCTION_CALL", ms.FinishReason.TOOL_USE)],
)
def test_each_finish_word_is_mapped_and_kept(word: str, reason: ms.FinishReason) -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    answer = stream(part_chunk(call if word == "FUNCTION_CALL" else {"text": "a"}, finish=word))
    assert (answer.response.finish_reason, answer.response.raw_finish_reason) == (reason, word)
    assert isinstance(answer.events[-1], ms.ErrorEvent if reason is ms.FinishReason.ERROR else ms.Done)


def test_the_error_of_a_broken_generation_has_googles_words() -> None:
    chunk = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed call: print("}]}
    assert "Malformed call: print(" in stream(chunk).error.error.message


NUMBERS = {
    "1": ms.FinishReason.STOP,
    "2": ms.FinishReason.LENGTH,
    "3": ms.FinishReason.CONTENT_FILTER,  # SAFETY
    "4": ms.FinishReason.CONTENT_FILTER,  # RECITATION
    "5": ms.FinishReason.UNKNOWN,  # OTHER
    "7": ms.FinishReason.CONTENT_FILTER,  # BLOCKLIST in the Gemini API, PROHIBITED_CONTENT in Vertex AI
    "8": ms.FinishReason.CONTENT_FILTER,  # PROHIBITED_CONTENT in the Gemini API, SPII in Vertex AI
    "11": ms.FinishReason.CONTENT_FILTER,  # IMAGE_SAFETY
}
"""Field numbers of `Candidate.FinishReason` in google/ai/generativelanguage and google/cloud/aiplatform.

The two definitions differ at 6, 9, 10 and above 11.
"""


def test_the_table_of_numbers_is_as_the_protobuf_definitions() -> None:
    assert FINISH_NUMBERS == NUMBERS


@pytest.mark.parametrize(
    ("number", "reason"),
    [*NUMBERS.items(), *((number, ms.FinishReason.UNKNOWN) for number in ("6", "9", "10", "12", "77"))],
)
def test_enum_numbers_with_one_meaning_are_mapped(number: str, reason: ms.FinishReason) -> None:
    done = stream(part_chunk({"text": "a"}, finish=int(number))).events[-1]
    assert isinstance(done, ms.Done)
    assert (done.finish_reason, done.raw_finish_reason) == (reason, number)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("MAX_TOKENS", ms.FinishReason.LENGTH),
        ("SAFETY", ms.FinishReason.CONTENT_FILTER),
        ("MALFORMED_FUNCTION_CALL", ms.FinishReason.ERROR),
        ("STOP", ms.FinishReason.TOOL_USE),
        ("OTHER", ms.FinishReason.TOOL_USE),
        ("BRAND_NEW", ms.FinishReason.TOOL_USE),
    ],
)
def test_the_finish_reason_of_an_answer_with_calls(word: str, reason: ms.FinishReason) -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    assert stream(part_chunk(call, finish=word)).response.finish_reason is reason
