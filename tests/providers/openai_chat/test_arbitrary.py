"""For any input, a machine raises nothing, keeps the order of events, and ends exactly once."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manystream.providers.errors import ProviderError
from manystream.providers.openai.chat import DIALECT
from manystream.providers.openai.chat.answer import MESSAGE_METHODS

from .wire import OPENAI, SERVER, id_maker, known, run

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
    with contextlib.suppress(ProviderError):
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
