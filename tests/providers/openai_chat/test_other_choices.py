"""A second choice of a chat answer is kept raw: everything that its message has."""

from __future__ import annotations

import json

import pytest

from manystream.providers.json_values import JSONObject
from manystream.providers.response import Response
from tests.providers.openai_chat.wire import decode, run

FIRST: JSONObject = {"role": "assistant", "content": "a"}
PICTURE: JSONObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

MESSAGES: dict[str, JSONObject] = {
    "a call of a custom tool": {
        "content": None,
        "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}],
    },
    "a call that Google signed": {
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "look", "arguments": "{}"},
                "extra_content": {"google": {"thought_signature": "S1"}},
            }
        ],
    },
    "sound": {
        "content": None,
        "audio": {"id": "audio_1", "data": "AAAA", "expires_at": 99, "transcript": "Hi"},
    },
    "a picture": {"content": "b", "images": [PICTURE]},
    "a picture at an address": {
        "content": None,
        "images": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}],
    },
    "encrypted reasoning": {
        "content": "b",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "E1", "index": 0}],
    },
    "signed reasoning": {
        "content": "b",
        "reasoning_content": "hm",
        "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "S1"}],
    },
    "parts of an unknown type": {
        "content": [{"type": "text", "text": "b"}, {"type": "chart", "points": [1, 2]}, {"type": "text", "text": "c"}],
    },
    "references": {
        "content": [{"type": "text", "text": "b"}, {"type": "reference", "reference_ids": [1]}],
    },
}
"""Members of the second choice's message, which are kept as they are."""


def streamed(message: JSONObject) -> Response:
    calls = message.get("tool_calls")
    delta = dict(message)
    if type(calls) is list:
        delta["tool_calls"] = [{**call, "index": n} for n, call in enumerate(calls) if type(call) is dict]
    chunks: list[JSONObject] = [
        {"choices": [{"index": 0, "delta": FIRST}, {"index": 1, "delta": delta}]},
        {"choices": [{"index": n, "delta": {}, "finish_reason": "stop"} for n in (0, 1)]},
    ]
    return run([*(("", json.dumps(chunk).encode()) for chunk in chunks), ("", b"[DONE]")]).response


def whole(message: JSONObject) -> Response:
    choices: list[JSONObject] = [
        {"index": n, "message": given, "finish_reason": "stop"} for n, given in enumerate((FIRST, message))
    ]
    return decode({"choices": [*choices]})


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_second_choice_keeps_what_its_message_has(message: JSONObject) -> None:
    expected = [{"index": 1, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]
    assert whole(message).provider_data["choices"] == expected
    assert streamed(message).provider_data["choices"] == expected
