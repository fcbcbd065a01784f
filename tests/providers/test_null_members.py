"""A null member means the same as an absent one.

The official libraries write every member that they know. So a proxy built on them sends nulls for everything that an
answer does not have, in the order of the library's types.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.model.messages import ProviderBlock, ToolCall
from tests.conformance.corpus import Case
from tests.conformance.exchange import provider_for
from tests.conformance.nulls import compare_nulls, with_nulls

CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": null}'}}

WHOLE: dict[str, Any] = {
    "openai-chat": {"id": "r", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello", "tool_calls": [CHAT_CALL]},
        "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
    "openai-responses": {
        "id": "r",
        "object": "response",
        "model": "m",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {
                "type": "message",
                "id": "m1",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
            },
            {"type": "function_call", "id": "f1", "call_id": "c1", "name": "look", "arguments": '{"x": null}'},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    },
    "anthropic": {"id": "r", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}, {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"x": None}}], "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 2}},
    "gemini": {
        "responseId": "r",
        "modelVersion": "m",
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"thought": True, "text": "Hm."},
                        {"text": "Hello"},
                        {"functionCall": {"id": "c1", "name": "look", "args": {"x": None}}},
                        {"inlineData": {"mimeType": "image/png", "data": "AAEC"}},
                        {"fileData": {"fileUri": "https://x/y.pdf", "mimeType": "application/pdf"}},
                        {"executableCode": {"language": "PYTHON", "code": "1"}},
                    ],
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3},
    },
}  # fmt: skip


def chat_chunk(delta: Any, finish: str | None = None) -> Any:
    choice: dict[str, Any] = {"index": 0, "delta": delta}
    if finish:
        choice["finish_reason"] = finish
    return {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


RESPONSE = WHOLE["openai-responses"]
STREAMS: dict[str, list[Any]] = {
    "openai-chat": [chat_chunk({"role": "assistant", "content": "Hel"}), chat_chunk({"content": "lo"}),
        chat_chunk({"content": "!"}), chat_chunk({"tool_calls": [{"index": 0, **CHAT_CALL}]}),
        chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": " "}}]}), chat_chunk({}, "tool_calls")],
    "openai-responses": [
        {"type": "response.created", "sequence_number": 0, "response": {**RESPONSE, "status": "queued", "output": []}},
        *(
            event
            for index, item in enumerate(RESPONSE["output"])
            for event in (
                {"type": "response.output_item.added", "sequence_number": 1, "output_index": index, "item": item},
                {"type": "response.output_item.done", "sequence_number": 2, "output_index": index, "item": item},
            )
        ),
        {"type": "response.completed", "sequence_number": 9, "response": RESPONSE},
    ],
    "anthropic": [
        {
            "type": "message_start",
            "message": {**WHOLE["anthropic"], "content": [], "stop_reason": None, "usage": {"input_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {**WHOLE["anthropic"]["content"][2], "input": {}}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"x": null}'},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    "gemini": [
        {"candidates": [{"content": {"parts": [{"text": "Hel"}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "lo"}]}}]},
        {
            "candidates": [
                {
                    "content": {
                        "parts": [
                            {
                                "functionCall": {
                                    "name": "look",
                                    "partialArgs": [
                                        {"jsonPath": "$.n", "numberValue": 5},
                                        {"jsonPath": "$.s", "stringValue": "a", "willContinue": True},
                                        {"jsonPath": "$.s", "stringValue": "b"},
                                        {"jsonPath": "$.z", "nullValue": "NULL_VALUE"},
                                    ],
                                    "willContinue": True,
                                }
                            },
                            {"functionCall": {}},
                        ]
                    }
                }
            ]
        },
        WHOLE["gemini"],
    ],
}  # fmt: skip


def case_of(dialect: str, *, stream: bool) -> Case:
    body = json.dumps(WHOLE[dialect])
    if stream:
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in STREAMS[dialect])
        body += "data: [DONE]\n\n" if dialect == "openai-chat" else ""
    kind = "text/event-stream" if stream else "application/json"
    headers = (("content-type", kind),)
    return Case(dialect, "case", "openai", "m", (), 200, headers, stream, body.encode(), {})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", WHOLE)
def test_an_answer_rewritten_by_an_sdk_is_the_same(dialect: str, stream: bool) -> None:
    case = case_of(dialect, stream=stream)
    _, nulls = with_nulls(case)
    assert nulls >= 8
    report = compare_nulls([case])
    assert (report.restated, report.not_read, report.faults) == (1, 0, [])


def decode(dialect: str, body: Any) -> ms.Response:
    numbers = itertools.count(1)
    provider = provider_for(dialect, "google" if dialect == "gemini" else "openai")
    return DIALECTS[dialect].decode(json.dumps(body).encode(), provider, lambda: f"made-{next(numbers)}")


def gemini_parts(*parts: Any) -> list[Any]:
    """Return the blocks of an answer with these parts, without their state."""
    blocks = decode("gemini", {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}).content
    for block in blocks:
        if isinstance(block, ms.Text | ms.Thinking | ToolCall | ms.Image | ms.File):
            block.state = None
    return blocks


CALL = {"name": "f", "args": {"a": 1}}
BLOB = {"mimeType": "image/png", "data": "AAEC"}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"text": "", "functionCall": CALL}, [ToolCall("made-1", "f", '{"a":1}')]),
        ({"text": None, "functionCall": CALL}, [ToolCall("made-1", "f", '{"a":1}')]),
        ({"functionCall": None, "text": "hello"}, [ms.Text("hello")]),
        ({"functionCall": {}, "text": "hello"}, [ms.Text("hello")]),
        ({"inlineData": None, "text": "hello"}, [ms.Text("hello")]),
        ({"inlineData": None, "functionCall": CALL}, [ToolCall("made-1", "f", '{"a":1}')]),
        ({"fileData": None, "text": "", "inlineData": BLOB}, [ms.Image(data=b"\0\1\2", media_type="image/png")]),
        ({"executableCode": None, "thought": True, "text": "hm"}, [ms.Thinking("hm")]),
        ({"thought": None, "text": "hello"}, [ms.Text("hello")]),
        ({"text": "", "newKind": 1}, [ProviderBlock("google", {"text": "", "newKind": 1})]),
        ({"text": None, "executableCode": {"code": "1"}}, [ProviderBlock("google", {"executableCode": {"code": "1"}})]),
        # The protocol has no part of two kinds. If a server sends one, nothing of it is lost.
        ({"functionCall": CALL, "text": "hello"}, [ms.Text("hello"), ToolCall("made-1", "f", '{"a":1}')]),
        (
            {"text": "hello", "executableCode": {"code": "1"}, "newKind": 2},
            [ms.Text("hello"), ProviderBlock("google", {"executableCode": {"code": "1"}, "newKind": 2})],
        ),
        ({"functionCall": {**CALL, "partialArgs": None, "willContinue": None}}, [ToolCall("made-1", "f", '{"a":1}')]),
    ],
)  # fmt: skip
def test_no_member_of_a_gemini_part_hides_another(part: Any, expected: list[Any]) -> None:
    assert gemini_parts(part) == expected


def test_a_part_of_two_kinds_keeps_the_signature_on_the_call() -> None:
    part = {"text": "hello", "functionCall": CALL, "thoughtSignature": "c2ln"}
    text, call = decode("gemini", {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}).content
    assert isinstance(text, ms.Text)
    assert text.state is None
    assert isinstance(call, ToolCall)
    assert call.state.data == {"thoughtSignature": "c2ln"}


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ([{"jsonPath": "$.a", "boolValue": None, "nullValue": None, "numberValue": 5, "stringValue": None}], '{"a":5}'),
        ([{"jsonPath": "$.a", "stringValue": None, "boolValue": False}], '{"a":false}'),
        ([{"jsonPath": "$.a", "nullValue": None}], '{"a":null}'),
        ([{"jsonPath": "$.a", "nullValue": "NULL_VALUE"}], '{"a":null}'),
        ([{"jsonPath": "$.a", "nullValue": None, "stringValue": None, "willContinue": True}], "{}"),
    ],
)
def test_a_null_member_of_geminis_partial_arguments_is_absent(pieces: Any, arguments: str) -> None:
    call = {"functionCall": {"name": "f", "partialArgs": pieces}}
    assert gemini_parts(call) == [ToolCall("made-1", "f", arguments)]


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai-chat", {"choices": None, "detail": "no such model"}),
        ("openai-chat", {"choices": None}),
        ("openai-responses", {"output": None, "error": None, "status": None}),
        ("anthropic", {"content": None, "error": None}),
    ],
)
def test_a_body_whose_content_is_null_is_no_answer(dialect: str, body: Any) -> None:
    with pytest.raises(ms.ProviderError) as failed:
        decode(dialect, body)
    assert str(body.get("detail") or "") in failed.value.message


def test_a_null_type_of_a_responses_error_is_ignored() -> None:
    machine = DIALECTS["openai-responses"].machine(provider_for("openai-responses", "openai"), lambda: "made")
    machine.feed("", b'{"type":null,"error":{"message":"overloaded","type":"server_error"}}')
    assert machine.ended
