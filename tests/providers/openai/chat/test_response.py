"""Arbitrary answers: no exception, events in order, and the same streamed and unstreamed."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.openai.chat import DIALECT
from manystream.providers.openai.chat.answer import MESSAGE_METHODS
from manystream.transport.sse import SSEParser

from .wire import OPENAI, SERVER, answer, chunk, id_maker, known, run

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)

NAMES = st.sampled_from(
    [*MESSAGE_METHODS, "id", "index", "name", "arguments", "function", "custom", "input", "type", "text", "thinking",
     "data", "url", "image_url", "transcript", "summary", "reference"]
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)
DELTA = st.dictionaries(NAMES, ANYTHING, max_size=4)
CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "index": ANYTHING | st.integers(0, 2),
        "delta": DELTA | ANYTHING,
        "message": DELTA | ANYTHING,
        "finish_reason": st.sampled_from([None, "", "stop", "length", "tool_calls", 5]),
        "logprobs": ANYTHING | st.dictionaries(st.text(max_size=3), ANYTHING, max_size=2),
        "usage": ANYTHING,
        "native_finish_reason": ANYTHING,
    },
)
CHUNK = st.fixed_dictionaries(
    {}, optional={"id": ANYTHING, "model": ANYTHING, "choices": st.lists(CHOICE, max_size=3) | ANYTHING,
    "usage": ANYTHING | st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), ANYTHING),
    "x_groq": ANYTHING, "object": ANYTHING, "citations": ANYTHING},
)  # fmt: skip


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@UNHURRIED
@given(st.lists(CHUNK | ANYTHING, max_size=8), st.sampled_from([OPENAI, SERVER, known("mistral")]))
def test_any_json(values: list[Any], provider: Any) -> None:
    run([("", encoded(value)) for value in values], provider)
    run([*(("", encoded(value)) for value in values), ("", b"[DONE]")], provider)


@UNHURRIED
@given(
    st.lists(st.tuples(st.sampled_from(["", "error", "x"]), st.binary(max_size=30)), max_size=5), st.binary(max_size=60)
)
def test_any_bytes(events: list[tuple[str, bytes]], stray: bytes) -> None:
    run(events, SERVER, stray)


@UNHURRIED
@given(CHUNK | ANYTHING)
def test_any_body(value: Any) -> None:
    with contextlib.suppress(ms.ProviderError):
        assert DIALECT.decode(encoded(value), SERVER, id_maker()).content is not None


@UNHURRIED
@given(st.lists(DELTA, max_size=6))
def test_any_deltas_after_a_template_matched(values: list[Any]) -> None:
    plain = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
    odd = [{**plain, "choices": [{"index": 0, "delta": value, "finish_reason": None}]} for value in values]
    run([("", encoded(value)) for value in (plain, plain, *odd, plain)])


@pytest.mark.parametrize("depth", [10, 500, 100_000])
def test_deep_nesting(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    for member in (b"content", b"tool_calls", b"reasoning_details", b"images", b"zz"):
        run([("", b'{"choices":[{"delta":{"' + member + b'":' + nested + b"}}]}")])
    for place in (b'"arguments":', b'"name":"t","arguments":'):
        run([("", b'{"choices":[{"delta":{"tool_calls":[{"function":{' + place + nested + b"}}]}}]}")])
    run([("", b'{"choices":[{"delta":{"reasoning_details":[{"index":' + nested + b"}]}}]}")])
    run([("", b'{"choices":' + b"[" * depth + b"]" * depth + b"}")])
    run([("", b'{"a":' * depth + b"1" + b"}" * depth)])


MESSAGES: dict[str, dict[str, object]] = {
    "text": {"content": "Hello, world!"},
    "empty": {"content": ""},
    "thinking": {"reasoning_content": "Let me think.", "content": "So."},
    "details": {"reasoning": "Sum", "reasoning_details": [{"type": "reasoning.summary", "summary": "Sum", "index": 0},
        {"type": "reasoning.encrypted", "data": "opaque", "index": 1}], "content": "So."},
    "calls": {"content": "Looking.", "tool_calls": [{"id": "a", "type": "function",
        "function": {"name": "t", "arguments": '{"city": "Rome"}'}},
        {"id": "b", "type": "function", "function": {"name": "u", "arguments": ""}}]},
    "refusal": {"content": None, "refusal": "I will not."},
    "parts": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hmm"}]},
        {"type": "text", "text": "So."}]},
    "legacy": {"content": None, "function_call": {"name": "t", "arguments": '{"x": 1}'}},
    "annotated": {"content": "See.", "annotations": [{"type": "url_citation", "url_citation": {"url": "https://x"}}]},
    "picture": {"content": "Here.",
        "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,YQ=="}}]},
    "sound": {"content": None, "audio": {"id": "a", "data": "UklGRg==", "transcript": "Hi", "expires_at": 5}},
}  # fmt: skip
ORDER = ("reasoning_content", "reasoning", "reasoning_details", "content", "refusal", "tool_calls")
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


def as_deltas(message: dict[str, object], size: int) -> list[dict[str, object]]:
    """Return a message cut into deltas: strings in pieces, other values whole."""
    found: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    for name, value in message.items():
        if isinstance(value, str):
            found += [{name: value[at : at + size]} for at in range(0, len(value), size)]
        elif name == "tool_calls":
            assert isinstance(value, list)
            for index, call in enumerate(value):
                found.append(
                    {"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]}
                )
                arguments = call["function"]["arguments"]
                found += [
                    {"tool_calls": [{"index": index, "function": {"arguments": arguments[at : at + size]}}]}
                    for at in range(0, len(arguments), size)
                ]
        elif name == "reasoning_details":
            assert isinstance(value, list)
            found += [{name: [detail]} for detail in value]
        else:
            found.append({name: value})
    return found


def body_of(message: dict[str, object], size: int, finish: str) -> bytes:
    chunks = [
        chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None}]) for delta in as_deltas(message, size)
    ]
    chunks.append(chunk(choices=[{"index": 0, "delta": {}, "finish_reason": finish}]))
    chunks.append(chunk(choices=[], usage=USAGE))
    lines = [f"data: {json.dumps(value)}\n\n" for value in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def streamed(body: bytes, *cuts: int) -> ms.Response:
    parser = SSEParser()
    pieces = [body[start:end] for start, end in zip((0, *cuts), (*cuts, len(body)), strict=True)]
    return run([event for piece in pieces for event in parser.feed(piece)]).response


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("name", MESSAGES)
def test_streamed_equals_unstreamed(name: str, finish: str, size: int) -> None:
    message = MESSAGES[name]
    whole = answer(message, finish, usage=USAGE)
    assert streamed(body_of(message, size, finish)) == whole


@pytest.mark.parametrize("name", ["calls", "details"])
def test_a_body_cut_at_every_byte_gives_the_same_answer(name: str) -> None:
    body = body_of(MESSAGES[name], 4, "stop")
    whole = streamed(body)
    for cut in range(len(body)):
        assert streamed(body, cut) == whole


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=st.text(max_size=20),
    thinking=st.text(max_size=20),
    arguments=st.lists(st.text(max_size=10), max_size=3),
    size=st.integers(1, 5),
    finish=st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
)
def test_any_answer(text: str, thinking: str, arguments: list[str], size: int, finish: str) -> None:
    message: dict[str, object] = {"reasoning": thinking, "content": text}
    message["tool_calls"] = [
        {"id": f"id-{place}", "function": {"name": "t", "arguments": value}} for place, value in enumerate(arguments)
    ]
    whole = answer(message, finish, usage=USAGE)
    assert streamed(body_of(message, size, finish)) == whole


def test_only_made_ids_differ() -> None:
    call = {"function": {"name": "t", "arguments": "{}"}}
    message: dict[str, object] = {"content": None, "tool_calls": [call, call]}
    assert streamed(body_of(message, 1, "stop")) == answer(message, "stop", usage=USAGE)
    other = DIALECT.decode(
        json.dumps(chunk(choices=[{"message": message, "finish_reason": "stop"}])).encode(), OPENAI, lambda: "other"
    )
    ours = answer(message, "stop")
    assert [replace(block, id="") for block in other.tool_calls] == [replace(block, id="") for block in ours.tool_calls]


def test_as_deltas_cuts_the_message_as_documented() -> None:
    assert as_deltas({"content": "abc"}, 2) == [
        {"role": "assistant", "content": ""},
        {"content": "ab"},
        {"content": "c"},
    ]
    assert id_maker()() == "made-1"
    assert SERVER.profile.name == "openai-compatible"
