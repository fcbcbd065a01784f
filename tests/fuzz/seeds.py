"""The seeds of fuzzing: valid input for each target, with many different parts to cut, move and join.

Written from the wire formats. The first byte of each input determines how a target cuts the rest.
"""

from __future__ import annotations

import html
import json
import re
from urllib.parse import quote

from tests.engine.request.test_redaction import KEY
from tests.support.dialects import DIALECTS, frame

CUT = b"\x3f"


def _chat(delta: dict[str, object], finish: str | None = None, **members: object) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return frame({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **members})


def _call(index: int, call_id: str | None, name: str | None, arguments: str) -> dict[str, object]:
    call: dict[str, object] = {"index": index, "function": {"name": name, "arguments": arguments}}
    if call_id is not None:
        call |= {"id": call_id, "type": "function"}
    return {"tool_calls": [call]}


def _token(text: str, logprob: float) -> str:
    probabilities = {"content": [{"token": text, "logprob": logprob, "bytes": list(text.encode())}]}
    choice = {"index": 0, "delta": {"content": text}, "logprobs": probabilities, "finish_reason": None}
    return frame({"id": "c1", "model": "m", "choices": [choice], "usage": None, "obfuscation": "k3J9q"})


CHAT = [
    _chat({"role": "assistant", "content": ""})
    + _chat({"reasoning_content": "hm"})
    + _chat({"content": "a"})
    + _chat({"content": "b"}, logprobs=None)
    + _chat(_call(0, "call_1", "look", ""))
    + _chat(_call(0, None, None, '{"x": '))
    + _chat(_call(1, "call_2", "find", "{}"))
    + _chat(_call(0, None, None, "1}"))
    + _chat({}, "tool_calls")
    + frame({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}})
    + "data: [DONE]\n\n",
    "".join(_chat({"content": text}, usage={"prompt_tokens": 3, "completion_tokens": count, "total_tokens": 3 + count})
        for count, text in enumerate(("Once", " upon", " a", " time"))) + _chat({}, "stop"),
    "".join(_token(text, -number / 4) for number, text in enumerate(("Once", " upon", " a", " time"), 1))
    + _chat({}, "stop"),
    _chat({"content": [{"type": "text", "text": "part"}], "refusal": "no"}) + _chat({}, "content_filter"),
    frame({"error": {"message": "overloaded", "type": "server_error", "code": 503}}),
    ': ping\n\ndata: {"error": "plain words"}\n\n{"detail": "stray"}\n',
]  # fmt: skip


def _responses(kind: str, **members: object) -> str:
    return frame({"type": kind, "sequence_number": 1, **members}, kind)


_FUNCTION = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"x": 1}'}
_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
_MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
_RESPONSE = {
    "id": "resp_1", "model": "m", "status": "completed", "output": [_REASONING, _MESSAGE, _FUNCTION],
    "usage": {"input_tokens": 3, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}},
}  # fmt: skip
RESPONSES = [
    _responses("response.created", response={**_RESPONSE, "status": "in_progress", "output": []})
    + _responses("response.output_item.added", output_index=0, item={**_REASONING, "summary": []})
    + _responses("response.reasoning_summary_text.delta", output_index=0, summary_index=0, item_id="rs_1", delta="hm")
    + _responses("response.output_item.done", output_index=0, item={**_REASONING, "encrypted_content": "xyz"})
    + _responses("response.output_item.added", output_index=1, item={**_MESSAGE, "content": []})
    + _responses("response.content_part.added", output_index=1, content_index=0, part={"type": "output_text"})
    + _responses("response.output_text.delta", output_index=1, content_index=0, item_id="msg_1", delta="a")
    + _responses("response.output_text.done", output_index=1, content_index=0, text="a")
    + _responses("response.output_item.done", output_index=1, item=_MESSAGE)
    + _responses("response.output_item.added", output_index=2, item={**_FUNCTION, "arguments": ""})
    + _responses("response.function_call_arguments.delta", output_index=2, item_id="fc_1", delta='{"x": 1}')
    + _responses("response.function_call_arguments.done", output_index=2, arguments='{"x": 1}')
    + _responses("response.output_item.done", output_index=2, item=_FUNCTION)
    + _responses("response.completed", response=_RESPONSE),
    _responses("response.incomplete", response={**_RESPONSE, "incomplete_details": {"reason": "max_output_tokens"}}),
    _responses("response.failed", response={**_RESPONSE, "error": {"code": "server_error", "message": "oh"}}),
]


def _anthropic(kind: str, **members: object) -> str:
    return frame({"type": kind, **members}, kind)


ANTHROPIC = [
    _anthropic("message_start", message={"id": "m1", "model": "m", "role": "assistant", "usage": {"input_tokens": 3}})
    + _anthropic("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""})
    + _anthropic("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"})
    + _anthropic("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "abc"})
    + _anthropic("content_block_stop", index=0)
    + _anthropic("content_block_start", index=1, content_block={"type": "redacted_thinking", "data": "xyz"})
    + _anthropic("content_block_stop", index=1)
    + _anthropic("ping")
    + _anthropic("content_block_start", index=2, content_block={"type": "text", "text": ""})
    + _anthropic("content_block_delta", index=2, delta={"type": "text_delta", "text": "a"})
    + _anthropic("content_block_stop", index=2)
    + _anthropic(
        "content_block_start", index=3, content_block={"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    )
    + _anthropic("content_block_delta", index=3, delta={"type": "input_json_delta", "partial_json": '{"x": 1}'})
    + _anthropic("content_block_stop", index=3)
    + _anthropic("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 9})
    + _anthropic("message_stop"),
    _anthropic("error", error={"type": "overloaded_error", "message": "busy"}),
]

GEMINI = [
    frame({"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}}], "modelVersion": "g"})
    + frame({"candidates": [{"content": {"parts": [{"text": "a", "thoughtSignature": "s"}]}, "index": 0}]})
    + frame(
        {
            "candidates": [
                {"content": {"parts": [{"functionCall": {"name": "look", "args": {"x": 1}}}]}, "finishReason": "STOP"}
            ],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5, "totalTokenCount": 8},
        }
    ),
    frame({"promptFeedback": {"blockReason": "SAFETY"}}),
    frame([{"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}}]),
]


def _interactions(kind: str, **members: object) -> str:
    return frame({"event_type": kind, **members}, kind)


def _step(index: int, step: dict[str, object], *deltas: dict[str, object]) -> str:
    events = [_interactions("step.start", index=index, step=step)]
    events += [_interactions("step.delta", index=index, delta=delta) for delta in deltas]
    return "".join([*events, _interactions("step.stop", index=index)])


INTERACTIONS = [
    _interactions("interaction.created", interaction={"id": "v1", "status": "in_progress", "model": "g"})
    + _step(
        0,
        {"type": "thought"},
        {"type": "thought_summary", "content": {"type": "text", "text": "hm"}},
        {"type": "thought_signature", "signature": "s"},
    )
    + _step(1, {"type": "model_output"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"})
    + _step(
        2,
        {"type": "function_call", "id": "c", "name": "look", "arguments": {}},
        {"type": "arguments_delta", "arguments": '{"x": '},
        {"type": "arguments_delta", "arguments": "1}"},
    )
    + _step(
        3, {"type": "google_search_call", "id": "g"}, {"type": "google_search_call", "arguments": {"queries": ["q"]}}
    )
    + _interactions(
        "interaction.completed",
        interaction={"id": "v1", "status": "requires_action", "usage": {"total_input_tokens": 3, "total_tokens": 8}},
    )
    + "event: done\ndata: [DONE]\n\n",
    _interactions("error", error={"code": "resource_exhausted", "message": "slow"}),
]

STREAMS = {
    "openai-chat": CHAT, "openai-responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI,
    "gemini-interactions": INTERACTIONS,
}  # fmt: skip
for _name, _wording in zip(STREAMS, DIALECTS, strict=True):
    STREAMS[_name] += [_wording.beginning + _wording.rest, _wording.beginning + _wording.overload]

_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
_CHUNKED = "5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"
_ROWS = [
    "user\nhello",
    'tool_call\n\n{"tool_call_id": "t", "tool_name": "look", "tool_args": {"x": 1}, "thinking": {"text": "hm", '
    '"signature": "s"}, "redacted_thinking": {"data": "d"}}',
    'tool_result\n\n{"tool_call_id": "t", "output": "fine", "success": true}',
    'assistant\n\n{"function": {"name": "look", "arguments": "{}"}, "id": "t"}',
]

SEEDS: dict[str, list[bytes]] = {
    "chunks": [_CHUNKED.encode(), b"FFFFFFFFFFFFFFF\r\nx", b"0\r\nA: 1\r\n folded\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"],
    "sse": [b"\xef\xbb\xbfdata: a\ndata: b\n\nevent: x\rdata\r\rid: 1\r\n: c\r\n\r\n",
        b"  data: a\n\nstray\n\ndata: x\n"],
    "responses": [
        f"HTTP/1.1 100 Continue\r\n\r\n{_HEAD}Transfer-Encoding: chunked\r\n\r\n{_CHUNKED}".encode(),
        f"{_HEAD}Content-Length: 5\r\nConnection: close\r\n\r\nhello".encode(),
        f"{_HEAD}\r\nhello until the end".encode(),
        b"HTTP/1.0 503 Busy\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\nX: a\r\n b\r\n\r\n0\r\n\r\n",
    ],
    **{name: [text.encode() for text in texts] for name, texts in STREAMS.items()},
    "answers": [
        json.dumps({"id": "c", "choices": [{"message": {"content": "a", "tool_calls": []}}], "usage": {}}).encode(),
        json.dumps(_RESPONSE).encode(),
        json.dumps({"content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn"}).encode(),
        json.dumps({"candidates": [{"content": {"parts": [{"text": "a"}]}}]}).encode(),
        json.dumps({"error": {"message": "no", "type": "overloaded_error", "code": 429, "status": "X"}}).encode(),
        json.dumps({"error": {"details": [{"@type": "x/RetryInfo", "retryDelay": "60s"}]}}).encode(),
        json.dumps({"detail": [{"loc": ["body"], "msg": "bad"}], "message": "m", "errors": ["x"]}).encode(),
        b"<html><title>502</title></html>",
    ],
    "headers": [b"retry-after: 5\nretry-after-ms: 1.5", b"retry-after: Wed, 21 Oct 2026 07:28:00 GMT",
        b"anthropic-ratelimit-requests-reset: 2027-01-15T08:00:00Z\nanthropic-ratelimit-requests-remaining: 0",
        b"x-ratelimit-reset-tokens: 6m0s\nx-ratelimit-remaining-tokens: 0"],
    "urls": [b"https://api.example.test:8443/v1?api-version=2", b"http://[::1]:80/a%20b/",
        "https://bücher.test".encode(), b"user:word@proxy:3128"],
    "rows": [text.encode() for text in _ROWS],
    "secrets": [json.dumps({"error": {"message": f"bad key {KEY}", "type": "invalid_api_key", "code": KEY}}).encode(),
        json.dumps({"error": {"message": json.dumps({"Authorization": f"Bearer {KEY}"}), "status": "X"}}).encode(),
        f"<html><h1>Bad gateway</h1>{html.escape(KEY)} {quote(KEY)}</html>".encode(),
        (f"POST / HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\n" * 3).encode()],
}  # fmt: skip
"""Target → valid inputs, without the first byte that determines the cuts."""

WORDS: list[bytes] = sorted(
    {word for seeds in SEEDS.values() for seed in seeds for word in re.findall(rb'"[\w.]+"|[\w-]+:|\r\n|\d+', seed)}
)
"""Tokens of the formats: a dictionary for mutations."""
