"""Names in snake case, as some servers write them."""

from __future__ import annotations

from typing import Any

import manystream as ms
from tests.providers.gemini.wire import decode, run, signed, stream, stream_bytes

SNAKE: dict[str, Any] = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "hm", "thought": True, "thought_signature": "s"},
        {"function_call": {"id": "c", "name": "f", "args": {"a_b": 12345678901234567890123}},
        "thought_signature": "t"}, {"inline_data": {"mime_type": "image/png", "data": "iVBO"}}]},
        "finish_reason": "MAX_TOKENS", "safety_ratings": [{"category": "HARM", "blocked": True}]}],
    "usage_metadata": {"prompt_token_count": 3, "total_token_count": 5},
    "model_version": "gemini-3.8-flash",
    "response_id": "r-1",
}  # fmt: skip


def test_names_in_snake_case_are_read() -> None:
    for answer in (decode(SNAKE), stream(SNAKE).response):
        assert answer.content == [
            ms.Thinking("hm", "s", state=signed("s", thought=True)),
            ms.ToolCall("c", "f", '{"a_b":12345678901234567890123}', state=signed("t", id="c")),
            ms.Image(data=b"\x89PN", media_type="image/png"),
        ]
        assert (answer.raw_finish_reason, answer.model, answer.id) == ("MAX_TOKENS", "gemini-3.8-flash", "r-1")
        assert (answer.usage.input_tokens, answer.usage.total_tokens) == (3, 5)
        assert answer.provider_data == {"safetyRatings": [{"category": "HARM", "blocked": True}]}


def test_one_member_in_snake_case_is_read() -> None:
    body: Any = {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finish_reason": "STOP"}]}
    assert stream(body).response.raw_finish_reason == "STOP"
    assert stream({"prompt_feedback": {"block_reason": "SAFETY"}}).error is not None
    nested = b'data: {"model_version": "m", "extra": ' + b"[" * 900 + b"]" * 900 + b"}\r\n\r\n"
    assert run([nested, stream_bytes(body)]).response.text == "a"
