"""Details of streams that servers send now and then: repeated starts, missing members, and what a cut stream keeps."""

from __future__ import annotations

import json

import pytest

from manystream.providers.anthropic import DIALECT
from manystream.providers.catalog.provider import Provider
from manystream.providers.errors import ProviderError
from manystream.providers.model.events import Done, Error, FinishReason, Start, TextDelta, ToolCallDelta
from manystream.providers.model.messages import ProviderState, Text, Thinking, ToolCall
from manystream.providers.model.usage import Usage
from manystream.providers.wire.answer_limits import AnswerLimits

from .wire import LENIENT, MESSAGE, START, STOP, STRICT, block, call, finish, made_ids, run, sse, text

DELTA: dict[str, object] = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "text_delta", "text": "a"},
}


def test_blocks_are_counted_anew_after_a_second_start() -> None:
    begin = sse({"type": "content_block_start", "content_block": {"type": "text", "text": ""}})
    outcome = run(START + begin + sse(DELTA) + START + begin + sse(DELTA) + finish() + STOP)
    assert outcome.response.content == [Text("a"), Text("a")]


def test_a_cut_stream_keeps_its_stop_reason() -> None:
    assert run(START + text(0, "a") + finish("max_tokens")).response.raw_finish_reason == "max_tokens"
    assert run(START + text(0, "a")).response.raw_finish_reason is None


def test_the_last_stop_reason_counts() -> None:
    assert run(START + finish("pause_turn") + finish("end_turn") + STOP).done.raw_finish_reason == "end_turn"
    assert run(START + finish("end_turn") + finish(None) + STOP).done.raw_finish_reason == "end_turn"


def test_members_of_the_last_event_are_provider_data() -> None:
    metrics: dict[str, object] = {"inputTokenCount": 1}
    stop = sse({"type": "message_stop", "invocationMetrics": metrics, "usage": {}, "absent": None})
    outcome = run(START + text(0, "a") + finish() + stop)
    assert outcome.done.provider_data == outcome.response.provider_data == {"invocationMetrics": metrics}


def test_a_message_without_content_or_usage_is_begun() -> None:
    outcome = run(sse({"type": "message_start", "message": {"model": "m"}}) + text(0, "a") + finish(usage={}) + STOP)
    assert outcome.events == [Start("m", None), TextDelta(0, "a"), Done(FinishReason.STOP, "end_turn", Usage())]


@pytest.mark.parametrize(("provider", "maker"), [(LENIENT, "lookalike"), (STRICT, "anthropic")])
def test_an_empty_signature_is_none(provider: Provider, maker: str) -> None:
    thinking = block(0, {"type": "thinking", "thinking": "hm"}, {"type": "signature_delta", "signature": ""})
    content = run(START + thinking + finish() + STOP, provider).response.content
    assert content == [Thinking("hm", None, state=ProviderState(maker, {}))]


def test_a_signature_may_come_in_pieces_and_in_the_start() -> None:
    start: dict[str, object] = {"type": "thinking", "thinking": "h", "signature": "a"}
    deltas: list[dict[str, object]] = [
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "b"},
        {"type": "signature_delta", "signature": "c"},
    ]
    assert run(START + block(0, start, *deltas) + finish() + STOP).response.content == [Thinking("hm", "abc")]
    state = ProviderState("lookalike", {})
    content = run(START + block(0, start, *deltas) + finish() + STOP, LENIENT).response.content
    assert content == [Thinking("hm", "abc", state=state)]


def test_a_signature_that_is_sent_twice_is_kept_once() -> None:
    again: dict[str, object] = {"type": "signature_delta", "signature": "EqQBCg=="}
    in_start: dict[str, object] = {"type": "thinking", "thinking": "hm", "signature": "EqQBCg=="}
    assert run(START + block(0, in_start, again) + finish() + STOP).response.content == [Thinking("hm", "EqQBCg==")]
    plain: dict[str, object] = {"type": "thinking", "thinking": "hm"}
    content = run(START + block(0, plain, again, again) + finish() + STOP).response.content
    assert content == [Thinking("hm", "EqQBCg==")]


def test_usage_in_the_last_event_is_read() -> None:
    last = sse({"type": "message_stop", "usage": {"input_tokens": 30, "output_tokens": 9}}, "message_stop")
    usage = run(START + text(0, "a") + finish(usage={}) + last).done.usage
    assert (usage.input_tokens, usage.output_tokens) == (30, 9)


def test_a_null_piece_of_arguments_is_ignored() -> None:
    start: dict[str, object] = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    deltas: list[dict[str, object]] = [
        {"type": "input_json_delta", "partial_json": None},
        {"type": "input_json_delta", "partial_json": '{"a": 1}'},
        {"type": "input_json_delta"},
    ]
    outcome = run(START + block(0, start, *deltas) + finish("tool_use") + STOP)
    assert [event for event in outcome.events if isinstance(event, ToolCallDelta)] == [ToolCallDelta(0, '{"a": 1}')]


def test_large_numbers_of_a_call_in_the_start_are_exact() -> None:
    content = [{"type": "tool_use", "id": "t", "name": "look", "input": {"n": 2**70}}]
    outcome = run(sse({"type": "message_start", "message": {**MESSAGE, "content": content}}) + finish() + STOP)
    assert outcome.response.content == [ToolCall("t", "look", '{"n": 1180591620717411303424}')]


def test_a_stream_may_begin_with_any_event() -> None:
    thinking = {"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": "hm"}}
    for wire in (text(0, "a"), sse(DELTA), call(0, "{}"), sse(thinking)):
        events = run(wire + finish() + STOP).events
        assert events[0] == Start(None, None)
        assert sum(isinstance(event, Start) for event in events) == 1


def test_a_content_block_may_begin_with_its_text() -> None:
    outcome = run(
        START + block(0, {"type": "text", "text": "a"}, {"type": "text_delta", "text": "b"}) + finish() + STOP
    )
    assert outcome.events[1:3] == [TextDelta(0, "a"), TextDelta(0, "b")]


def test_a_call_nested_too_deeply_is_an_error_that_says_so() -> None:
    used = '{"type": "tool_use", "id": "t", "name": "look", "input": {"a": ' + "[" * 1010 + "]" * 1010 + "}}"
    event = '{"type": "content_block_start", "index": 0, "content_block": ' + used + "}"
    outcome = run(START + f"data: {event}\n\n")
    error = outcome.error
    assert error is not None
    assert outcome.response.content == []
    assert error.message.startswith("content_block_start: a call's input is nested too deeply in '{")
    body = ('{"type": "message", "content": [' + used + "]}").encode()
    with pytest.raises(ProviderError) as raised:
        DIALECT.decode(body, STRICT, made_ids())
    assert raised.value.message.startswith("a call's input is nested too deeply in '{")


def test_an_answer_has_at_most_so_many_blocks() -> None:
    limits = AnswerLimits(max_blocks=3)
    parts = "the answer has more than 3 content parts in one event (limits.max_blocks)"
    blocks = "the answer has more than 3 content blocks (limits.max_blocks)"
    empty: dict[str, object] = {"type": "text", "text": ""}
    for number, at_once, in_turn in ((3, "", ""), (4, parts, blocks)):
        whole = {"type": "message_start", "message": {**MESSAGE, "content": [empty] * number}}
        begun = [{"type": "content_block_start", "index": n, "content_block": empty} for n in range(number)]
        for payloads, message in (([whole], at_once), (begun, in_turn)):
            machine = DIALECT.machine(STRICT, made_ids(), limits)
            events = [event for payload in payloads for event in machine.feed("", json.dumps(payload).encode())]
            assert [event.error.message for event in events if isinstance(event, Error)] == (
                [message] if message else []
            )
