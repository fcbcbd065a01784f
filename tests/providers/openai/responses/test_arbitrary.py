"""Arbitrary input raises nothing: it gives events, or an error as a value."""

import contextlib
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.catalog.dialect import BARE_LINES
from manystream.providers.json import json_values
from manystream.providers.json.json_values import JSON
from manystream.providers.openai.responses.dialect import DIALECT
from manystream.providers.openai.responses.stream import EVENTS
from tests.providers.openai.responses.wire import LENIENT, PROVIDER, make_id
from tests.support.event_order import OrderChecker

KINDS = [
    "message", "reasoning", "function_call", "custom_tool_call", "web_search_call", "output_text", "refusal",
    "summary_text", "reasoning_text", "custom", "future",
]  # fmt: skip
MEMBERS = [
    "type", "delta", "item", "part", "text", "refusal", "content", "summary", "output", "response", "arguments",
    "input", "call_id", "name", "id", "status", "output_index", "content_index", "annotation", "annotations",
    "logprobs", "usage", "error", "message", "code", "incomplete_details", "reason", "tools", "phase", "model",
    "encrypted_content", "input_tokens", "output_tokens", "total_tokens", "output_tokens_details", "reasoning_tokens",
]  # fmt: skip
STATUSES = ["completed", "incomplete", "failed", "cancelled", "in_progress"]

LEAVES = (
    st.none() | st.booleans() | st.integers(min_value=-2, max_value=3)
    | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(KINDS) | st.sampled_from(STATUSES)
    | st.text(max_size=4)
)  # fmt: skip
VALUES: st.SearchStrategy[JSON] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=6),
    max_leaves=20,
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "call_id": st.sampled_from(["a", "b"]) | VALUES,
        "name": st.just("f") | VALUES,
        "content": st.lists(st.fixed_dictionaries({"type": st.sampled_from(KINDS), "text": st.text(max_size=3)}))
        | VALUES,
        "summary": VALUES,
        "arguments": st.text(max_size=3) | VALUES,
        "status": st.sampled_from(STATUSES) | VALUES,
    },
)
WIRE_EVENTS = st.tuples(
    st.sampled_from([*EVENTS, "response.future.delta", ""]),
    st.fixed_dictionaries(
        {},
        optional={
            "output_index": st.integers(min_value=0, max_value=2) | VALUES,
            "content_index": st.integers(min_value=0, max_value=1) | VALUES,
            "delta": st.text(max_size=3) | VALUES,
            "item": ITEMS | VALUES,
            "part": ITEMS | VALUES,
            "response": st.fixed_dictionaries({}, optional={"output": st.lists(ITEMS), "status": VALUES}) | VALUES,
            "error": VALUES,
            "type": VALUES,
        },
    ),
)


def run(events: list[tuple[str, bytes]], stray: bytes = b"", *, lenient: bool = False) -> None:
    machine = DIALECT.machine(LENIENT if lenient else PROVIDER, make_id)
    checker = OrderChecker()
    for name, data in events:
        for event in machine.feed(name, data):
            checker.check(event)
        machine.response()
    for event in [*machine.feed(BARE_LINES, stray), *machine.end()]:
        checker.check(event)
    assert machine.ended
    assert checker.stream == "ended"


@settings(max_examples=120, deadline=None)
@given(st.lists(WIRE_EVENTS, max_size=8), st.booleans())
def test_arbitrary_events_of_the_dialect_never_raise(events: list[tuple[str, ms.JSONObject]], lenient: bool) -> None:
    run([(name, json.dumps(value).encode()) for name, value in events], lenient=lenient)
    typed = [("", json.dumps({**value, "type": name}).encode()) for name, value in events]
    run([*typed, ("", b"[DONE]")], lenient=lenient)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*EVENTS, "", "ping"]), st.binary(max_size=12)), max_size=4),
    st.binary(max_size=12),
)
def test_arbitrary_bytes_never_raise(events: list[tuple[str, bytes]], stray: bytes) -> None:
    run(events, stray)


@settings(max_examples=80, deadline=None)
@given(VALUES | st.fixed_dictionaries({}, optional={"output": st.lists(ITEMS), "status": st.sampled_from(STATUSES)}))
def test_an_arbitrary_body_is_an_answer_or_a_provider_error(body: JSON) -> None:
    with contextlib.suppress(ms.ProviderError):
        response = DIALECT.decode(json.dumps(body).encode(), PROVIDER, make_id)
        assert all(call.name and call.id for call in response.tool_calls)


@settings(max_examples=60, deadline=None)
@given(st.lists(ITEMS, max_size=5), st.sampled_from(["completed", "incomplete"]))
def test_arbitrary_items_are_equal_streamed_and_unstreamed(output: list[ms.JSONObject], status: str) -> None:
    response: ms.JSONObject = {"status": status, "output": [*output]}
    body = json.dumps(response).encode()
    machine = DIALECT.machine(PROVIDER, make_id)
    for index, item in enumerate(output):
        machine.feed(
            "", json.dumps({"type": "response.output_item.done", "output_index": index, "item": item}).encode()
        )
    end = machine.feed("", json.dumps({"type": f"response.{status}", "response": response}).encode())
    assert not isinstance(end[-1], ms.ErrorEvent)
    assert machine.response() == DIALECT.decode(body, PROVIDER, make_id)


def test_arguments_that_are_a_deep_object_are_written_as_text() -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    item = b'{"type":"function_call","name":"f","arguments":' + deep + b"}"
    (call,) = DIALECT.decode(b'{"output":[' + item + b"]}", PROVIDER, make_id).tool_calls
    assert call.arguments == deep.decode()


DEEP = b'{"a":' * 1010 + b"1" + b"}" * 1010
"""More levels than orjson writes, and fewer than it parses."""

DEEP_CALL = b'{"type":"function_call","name":"f","arguments":' + DEEP + b"}"


def refuse_depth(value: object) -> str:
    raise RecursionError("maximum recursion depth exceeded while encoding a JSON object")


def test_arguments_too_deep_to_write_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Python's encoder in CPython 3.11. In newer versions it accepts more levels than the parser.
    monkeypatch.setattr(json_values, "_compact_encode", refuse_depth)
    machine = DIALECT.machine(PROVIDER, make_id)
    events = machine.feed("", b'{"type":"response.output_item.done","output_index":0,"item":' + DEEP_CALL + b"}")
    assert isinstance(events[-1], ms.ErrorEvent)
    with pytest.raises(ms.ProviderError, match="arguments"):
        DIALECT.decode(b'{"output":[' + DEEP_CALL + b"]}", PROVIDER, make_id)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the encoder of CPython 3.11 refuses a thousand levels")
def test_arguments_of_a_thousand_levels_are_whole() -> None:
    machine = DIALECT.machine(PROVIDER, make_id)
    events = machine.feed("", b'{"type":"response.output_item.done","output_index":0,"item":' + DEEP_CALL + b"}")
    assert "".join(event.arguments for event in events if isinstance(event, ms.ToolCallDelta)) == DEEP.decode()
    (call,) = DIALECT.decode(b'{"output":[' + DEEP_CALL + b"]}", PROVIDER, make_id).tool_calls
    assert call.arguments == DEEP.decode()
