"""Malformed input: never an exception, always an `ErrorEvent` that quotes the bytes, or no event."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.providers.anthropic.stream import DELTAS, EVENTS
from manystream.providers.catalog.dialect import BARE_LINES
from tests.support.event_order import OrderChecker

from .wire import LENIENT, START, STOP, STRICT, finish, made_ids, message, run, text

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No deadline, because machines differ in speed."""

BAD_EVENTS: list[tuple[bytes, str]] = [
    (b"{", "malformed JSON"),
    (b'{"type":"content_block_delta","ind', "malformed JSON"),
    (b"not json", "malformed JSON"),
    (b"\xff\xfe\x00", "malformed JSON"),
    (b'"text"', "malformed event: expected an object, got"),
    (b"7", "malformed event: expected an object, got"),
    (b'{"type": "message_start"}', "message_start: no message object in"),
    (b'{"type": "message_start", "message": "hello"}', "message_start: no message object in"),
    (b'{"type": "message_start", "message": {"content": "hello"}}',
        "message_start: a content that is no array of objects in"),
    (b'{"type": "message_start", "message": {"content": ["hello"]}}',
        "message_start: a content that is no array of objects in"),
    (b'{"type": "content_block_start", "index": 1}', "content_block_start: no content_block object in"),
    (b'{"type": "content_block_start", "index": 1, "content_block": null}',
        "content_block_start: no content_block object in"),
    (b'{"type": "content_block_start", "index": "1", "content_block": {"type": "text"}}',
        "content_block_start: an index that is no number in"),
    (b'{"type": "content_block_start", "index": [], "content_block": {"type": "text"}}',
        "content_block_start: an index that is no number in"),
    (b'{"type": "content_block_delta", "index": 0}', "content_block_delta: no delta object in"),
    (b'{"type": "content_block_delta", "index": 0, "delta": "text"}', "content_block_delta: no delta object in"),
    (b'{"type": "content_block_delta", "index": {}, "delta": {"type": "text_delta", "text": "x"}}',
        "content_block_delta: an index that is no number in"),
    (b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}}',
        "content_block_delta: a text that is no text in"),
    (b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ["x"]}}',
        "content_block_delta: a text that is no text in"),
    (b'{"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": {}}}',
        "content_block_delta: a thinking that is no text in"),
    (b'{"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": 1}}',
        "content_block_delta: a signature that is no text in"),
    (b'{"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": {"a": 1}}}',
        "content_block_delta: a partial_json that is no text in"),
    (b'{"type": "content_block_stop", "index": "zero"}', "content_block_stop: an index that is no number in"),
]  # fmt: skip
"""Data of an event → the beginning of the message; the data follows, quoted."""


@pytest.mark.parametrize(("data", "reason"), BAD_EVENTS)
def test_a_malformed_event_is_an_error_that_quotes_it(data: bytes, reason: str) -> None:
    outcome = run((START + text(0, "half")).encode() + b"data: " + data + b"\n\n" + (finish() + STOP).encode())
    assert outcome.error.category is ms.ErrorCategory.SERVER
    assert not outcome.error.retryable
    assert outcome.error.body == data
    assert outcome.error.message.startswith(f"{reason} {data.decode('utf-8', 'replace')!r}")
    assert outcome.response.text == "half"


def test_an_error_event_of_any_bytes_is_an_error_with_their_text() -> None:
    error = run(START.encode() + b"event: error\ndata: busy \xff\n\n").error
    assert (error.message, error.http_status, error.body) == ("busy \N{REPLACEMENT CHARACTER}", 0, b"busy \xff")


@pytest.mark.parametrize("data", ["", "nonsense", "{"])
def test_the_data_of_a_ping_does_not_matter(data: str) -> None:
    wire = START + f"event: ping\ndata: {data}\n\n" + text(0, "a") + "event: mood\ndata: \n\n" + finish() + STOP
    assert run(wire) == run(START + text(0, "a") + finish() + STOP)


@pytest.mark.parametrize("null", ["text", "thinking", "signature", "partial_json"])
def test_a_null_instead_of_text_is_ignored(null: str) -> None:
    kind = {"partial_json": "input_json_delta"}.get(null, f"{null}_delta")
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": kind, null: None}}
    outcome = run(START + text(0, "a") + f"data: {json.dumps(delta)}\n\n" + finish() + STOP)
    assert outcome.error is None
    assert outcome.response.text == "a"


def test_harmless_stray_lines_do_not_hide_the_truncation() -> None:
    for stray in ("hello\n", '{"a": 1}\n', "[]\n", "{\n"):
        error = run(START + stray).error
        assert error.category is ms.ErrorCategory.NETWORK


@pytest.mark.parametrize("depth", [200, 900, 1000, 1020, 20_000])
def test_deep_nesting_is_read_or_refused_and_never_raised(depth: int) -> None:
    for leaf in ("1", '"\\ud800"'):
        nested = "[" * depth + leaf + "]" * depth
        for content in ('{"type": "tool_use", "id": "a", "name": "b", "input": {"c": %s}}', '{"type": "x", "y": %s}'):
            event = '{"type": "content_block_start", "index": 0, "content_block": ' + content % nested + "}"
            machine = DIALECT.machine(STRICT, made_ids())
            received = [*machine.feed("", event.encode()), *machine.end()]
            assert isinstance(received[-1], ms.ErrorEvent)  # the stream has no end, however deep its event is
            refused = received[-1].error.category is ms.ErrorCategory.SERVER
            whole = ('{"content": [' + content % nested + "]}").encode()
            if depth <= 200:
                assert not refused
                assert len(DIALECT.decode(whole, STRICT, made_ids()).content) == 1
            elif depth >= 20_000:
                assert refused
                with pytest.raises(ms.ProviderError) as caught:
                    DIALECT.decode(whole, STRICT, made_ids())
                assert caught.value.category is ms.ErrorCategory.SERVER
            else:
                with contextlib.suppress(ms.ProviderError):
                    DIALECT.decode(whole, STRICT, made_ids())


MEMBERS = {
    "type", "index", "message", "content_block", "delta", "text", "thinking", "partial_json", "input", "content",
    "citation", "usage", "stop_reason", "error", "code", "details", "to",
}  # fmt: skip
scalars = st.sampled_from([None, True, 0, 1, -1, 2**70, 0.5, 1e300, "", "a", "{}", '{"a": ', "é\u2028"])
words = st.sampled_from(
    [*EVENTS, *DELTAS, "error", "text", "thinking", "redacted_thinking", "tool_use", "fallback", "compaction"]
)
members = st.sampled_from(sorted(MEMBERS))
values = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(members, inner, max_size=3),
    max_leaves=5,
)
blocks = st.fixed_dictionaries(
    {"type": words | scalars},
    optional={"text": values, "input": values, "id": values, "name": values, "data": values, "citations": values},
)
indexes = st.integers(0, 2) | scalars
events = st.one_of(
    values,
    st.fixed_dictionaries({"type": words}, optional={"index": indexes, "delta": blocks, "content_block": blocks}),
    st.fixed_dictionaries({"type": st.just("content_block_start"), "index": indexes, "content_block": blocks}),
    st.fixed_dictionaries(
        {"type": st.just("content_block_delta"), "index": indexes},
        optional={
            "delta": st.fixed_dictionaries(
                {"type": words}, optional=dict.fromkeys(("text", "thinking", "partial_json", "citation"), values)
            )
        },
    ),
    st.fixed_dictionaries({"type": st.just("content_block_stop"), "index": indexes}),
    st.fixed_dictionaries({"type": st.just("message_start"), "message": values | blocks}),
    st.fixed_dictionaries({"type": st.just("message_delta")}, optional={"delta": values, "usage": values}),
)


@UNHURRIED
@given(st.lists(events, max_size=8), st.booleans(), st.sampled_from([STRICT, LENIENT]), st.binary(max_size=30))
def test_no_events_raise_or_break_the_order(
    payloads: list[object], begun: bool, provider: object, stray: bytes
) -> None:
    machine, order = DIALECT.machine(provider, made_ids()), OrderChecker()  # type: ignore[arg-type]
    received: list[ms.Event] = []
    if begun:
        received.extend(machine.feed("message_start", b'{"type": "message_start", "message": {"model": "m"}}'))
    for payload in payloads:
        received.extend(machine.feed("", json.dumps(payload).encode()))
        machine.response()
    received.extend(machine.feed(BARE_LINES, stray))
    received.extend(machine.end())
    for event in received:
        order.check(event)
    assert isinstance(received[-1], ms.Done | ms.ErrorEvent)
    assert sum(isinstance(event, ms.Done | ms.ErrorEvent) for event in received) == 1
    machine.response()


@UNHURRIED
@given(st.text(max_size=20), st.binary(max_size=200))
def test_no_bytes_raise(name: str, data: bytes) -> None:
    machine = DIALECT.machine(STRICT, made_ids())
    received = [*machine.feed(name, data), *machine.end()]
    # No such bytes are a whole answer: one error ends the stream, and no event follows it.
    assert [type(event) for event in received if isinstance(event, ms.Done | ms.ErrorEvent)] == [ms.ErrorEvent]
    assert isinstance(received[-1], ms.ErrorEvent)
    assert machine.end() == ()


@UNHURRIED
@given(values)
def test_no_json_body_raises_anything_but_a_provider_error(payload: object) -> None:
    whole = DIALECT.decode(json.dumps(message()).encode(), STRICT, made_ids())
    assert (whole.content, whole.finish_reason) == ([], ms.FinishReason.STOP)
    for body in (payload, {**message(), "content": payload}, {"error": payload}):
        try:
            response = DIALECT.decode(json.dumps(body).encode(), STRICT, made_ids())
        except ms.ProviderError as error:
            received = (error.message != "", error.body)
            assert received == (True, json.dumps(body).encode()[:4096])
        else:
            assert all(isinstance(call.parsed, dict) for call in response.tool_calls if call.complete)
