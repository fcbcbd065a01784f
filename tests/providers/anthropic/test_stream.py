"""The stream machine: each rule of the wire as text, whole, byte by byte and at every split point."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.providers.wire.answer_limits import AnswerLimits
from tests.providers.anthropic.wire import (
    LENIENT,
    MESSAGE,
    PING,
    START,
    STOP,
    STRICT,
    block,
    call,
    finish,
    made_ids,
    run,
    run_at_every_split,
    sse,
    text,
)


def test_text_is_delivered_as_deltas_and_ends_with_done() -> None:
    outcome = run_at_every_split(START + text(0, "Hello", ", wörld") + finish() + STOP)
    assert outcome.events == [
        ms.Start("claude-sonnet-4-5", "msg_1"), ms.TextDelta(0, "Hello"), ms.TextDelta(0, ", wörld"),
        ms.Done(ms.FinishReason.STOP, "end_turn", ms.Usage(input_tokens=10, output_tokens=5, total_tokens=15,
        raw={"input_tokens": 10, "output_tokens": 5})),
    ]  # fmt: skip
    assert outcome.response.text == "Hello, wörld"


def test_the_datas_type_counts_if_event_names_are_missing() -> None:
    named = START + PING + text(0, "Hi") + call(1, "{}") + finish("tool_use") + STOP
    bare = "".join(line for line in named.splitlines(keepends=True) if not line.startswith("event:"))
    assert run_at_every_split(bare) == run(named)


def test_the_events_name_counts_if_the_data_has_no_type() -> None:
    wire = START + text(0, "Hi") + finish() + "event: message_stop\ndata: {}\n\n"
    assert run(wire).done.finish_reason is ms.FinishReason.STOP


def test_json_white_space_and_carriage_returns_change_nothing() -> None:
    wire = START + text(0, "Hi") + finish() + STOP
    padded = wire.replace("}\n\n", "}        \n\n")
    assert run(padded) == run(wire)
    assert run_at_every_split(wire.replace("\n", "\r\n")) == run(wire)


def test_pings_are_ignored_anywhere_with_any_data() -> None:
    odd = "event: ping\ndata: pong\n\n" + "event: ping\ndata: {}\n\n"
    wire = PING + odd + START + PING + text(0, "a") + odd + finish() + PING + STOP
    assert run_at_every_split(wire) == run(START + text(0, "a") + finish() + STOP)


def test_unknown_event_and_delta_types_are_ignored() -> None:
    unknown = sse({"type": "content_block_thought", "index": 0}) + sse({"type": 7})
    strange = block(0, {"type": "text", "text": ""}, {"type": "mood_delta", "mood": "merry"}, {"type": "text_delta"})
    outcome = run(START + unknown + strange + finish() + STOP)
    assert outcome.response.content == [ms.Text("")]
    assert [type(event) for event in outcome.events] == [ms.Start, ms.Done]


def test_thinking_without_text_has_a_signature_and_no_events() -> None:
    thinking = block(
        0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": ""},
        {"type": "signature_delta", "signature": "c2ln"},
    )  # fmt: skip
    outcome = run_at_every_split(START + thinking + text(1, "a") + finish() + STOP)
    assert outcome.response.content == [ms.Thinking("", "c2ln"), ms.Text("a")]
    assert outcome.events[1] == ms.TextDelta(1, "a")


def test_another_servers_thinking_is_tagged_with_it() -> None:
    thinking = block(0, {"type": "thinking", "thinking": "hm"}) + block(1, {"type": "redacted_thinking", "data": "x"})
    state = ms.ProviderState("lookalike", {})
    content = run(START + thinking + finish() + STOP, LENIENT).response.content
    assert content == [ms.Thinking("hm", None, state=state), ms.RedactedThinking("x", state=state)]


def test_citations_are_added_to_their_text() -> None:
    first: dict[str, object] = {"type": "char_location", "cited_text": "a", "document_index": 0}
    second: dict[str, object] = {"type": "page_location", "cited_text": "b", "document_index": 1}
    cited = block(
        0, {"type": "text", "text": "", "citations": [first]}, {"type": "citations_delta", "citation": second},
        {"type": "text_delta", "text": "So it is."}, {"type": "citations_delta", "citation": "not an object"},
    )  # fmt: skip
    outcome = run_at_every_split(START + cited + finish() + STOP)
    assert outcome.response.content == [ms.Text("So it is.", citations=[first, second])]


def test_interleaved_blocks_are_separated_by_index() -> None:
    def delta(index: int, **members: object) -> str:
        return sse({"type": "content_block_delta", "index": index, "delta": members})

    wire = (
        START
        + block(0, {"type": "text", "text": ""}, stop=False)
        + block(1, {"type": "tool_use", "id": "a", "name": "look", "input": {}}, stop=False)
        + block(2, {"type": "tool_use", "id": "b", "name": "look", "input": {}}, stop=False)
        + delta(2, type="input_json_delta", partial_json='{"n": 2}')
        + delta(0, type="text_delta", text="so")
        + delta(1, type="input_json_delta", partial_json='{"n": 1}')
        + sse({"type": "content_block_stop", "index": 2})
        + delta(0, type="text_delta", text=" it is")
        + sse({"type": "content_block_stop", "index": 1})
        + sse({"type": "content_block_stop", "index": 0})
        + finish("tool_use")
        + STOP
    )
    content = run_at_every_split(wire).response.content
    assert content == [ms.Text("so it is"), ms.ToolCall("a", "look", '{"n": 1}'), ms.ToolCall("b", "look", '{"n": 2}')]


def test_a_delta_for_a_block_that_never_began_begins_it() -> None:
    wire = (
        START
        + sse({"type": "content_block_delta", "index": 4, "delta": {"type": "thinking_delta", "thinking": "hm"}})
        + sse({"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "a"}})
        + sse({"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "b"}})
        + sse({"type": "content_block_delta", "index": 6, "delta": {"type": "input_json_delta", "partial_json": ""}})
        + sse({"type": "content_block_stop", "index": 9})
        + finish()
        + STOP
    )
    assert run(wire).response.content == [ms.Thinking("hm", state=ms.ProviderState("anthropic", {})), ms.Text("ab")]


def test_a_delta_without_an_index_belongs_to_the_latest_block() -> None:
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "b"}}
    wire = START + text(0, "a") + block(1, {"type": "text", "text": ""}, stop=False) + sse(delta) + finish() + STOP
    assert run(wire).response.content == [ms.Text("a"), ms.Text("b")]


def test_a_server_may_leave_out_every_index() -> None:
    wire = START + text(0, "a", "b") + call(1, "{", "}") + finish("tool_use") + STOP
    assert run(wire.replace('"index": 0, ', "").replace('"index": 1, ', "")).events == run(wire).events


def test_deltas_of_the_wrong_kind_leave_their_block_alone() -> None:
    deltas: list[dict[str, object]] = [
        {"type": "text_delta", "text": "x"}, {"type": "thinking_delta", "thinking": "x"},
        {"type": "signature_delta", "signature": "x"}, {"type": "citations_delta", "citation": {}},
    ]  # fmt: skip
    wire = START + block(0, {"type": "tool_use", "id": "t", "name": "look", "input": {}}, *deltas)
    response = run(wire + finish("tool_use") + STOP).response
    assert response.tool_calls == [ms.ToolCall("t", "look", "{}")]
    assert (response.text, response.thinking, len(response.warnings)) == ("x", "x", 2)


def test_a_fallback_block_changes_the_answers_model() -> None:
    fallback: dict[str, object] = {"type": "fallback", "from": {"model": "claude-a"}, "to": {"model": "claude-b"}}
    outcome = run_at_every_split(START + block(0, fallback) + text(1, "a") + finish() + STOP)
    assert outcome.response.model == "claude-b"
    assert outcome.response.content[0] == ms.ProviderBlock("anthropic", fallback)


def test_content_and_stop_reason_may_be_in_message_start_already() -> None:
    content = [{"type": "text", "text": "So: "}, {"type": "tool_use", "id": "t", "name": "roll", "input": {"n": 6}}]
    start = {**MESSAGE, "content": content, "stop_reason": "tool_use", "container": {"id": "c"}}
    outcome = run_at_every_split(sse({"type": "message_start", "message": start}, "message_start") + STOP)
    assert outcome.events == [
        ms.Start("claude-sonnet-4-5", "msg_1"), ms.TextDelta(0, "So: "), ms.ToolCallStart(1, "t", "roll"),
        ms.ToolCallDelta(1, '{"n": 6}'), ms.ToolCallDone(1, True),
        ms.Done(ms.FinishReason.TOOL_USE, "tool_use", outcome.response.usage, {"container": {"id": "c"}}),
    ]  # fmt: skip


def test_streamed_blocks_follow_content_in_message_start() -> None:
    start = {**MESSAGE, "content": [{"type": "text", "text": "a"}]}
    wire = sse({"type": "message_start", "message": start}) + text(1, "b") + text(2, "c") + finish() + STOP
    assert run(wire).response.content == [ms.Text("a"), ms.Text("b"), ms.Text("c")]


def test_a_second_message_start_keeps_delivered_events() -> None:
    second = sse({"type": "message_start", "message": {**MESSAGE, "id": "msg_2"}})
    wire = (
        START + call(0, '{"n": ', stop=False) + second + call(0, '{"n": 1}', id="toolu_2") + finish("tool_use") + STOP
    )
    outcome = run_at_every_split(wire)
    assert [(c.id, c.arguments, c.complete) for c in outcome.response.tool_calls] == [
        ("toolu_1", '{"n": ', False),
        ("toolu_2", '{"n": 1}', True),
    ]
    assert outcome.response.id == "msg_1"
    assert sum(isinstance(event, ms.Start) for event in outcome.events) == 1


def test_a_stream_without_message_start_still_begins_with_start() -> None:
    assert run(text(0, "a") + finish() + STOP).events[0] == ms.Start(None, None)
    assert run(finish() + STOP).events[0] == ms.Start(None, None)


def test_unknown_members_of_a_message_are_provider_data() -> None:
    edits: dict[str, object] = {"applied_edits": []}
    delta = {
        "type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END",
        "container": {"id": "c2"}}, "context_management": edits, "usage": {"output_tokens": 2},
    }  # fmt: skip
    start = {**MESSAGE, "container": {"id": "c1"}, "diagnostics": None}
    outcome = run(sse({"type": "message_start", "message": start}) + text(0, "a") + sse(delta) + STOP)
    expected = {"stop_sequence": "END", "container": {"id": "c2"}, "context_management": edits}
    assert outcome.done.provider_data == outcome.response.provider_data == expected


@pytest.mark.parametrize("ending", ["", finish()], ids=["in mid text", "after the stop reason"])
def test_a_strict_stream_without_message_stop_is_truncated(ending: str) -> None:
    outcome = run_at_every_split(START + text(0, "half") + ending)
    assert (outcome.error.category, outcome.error.retryable) == (ms.ErrorCategory.NETWORK, True)
    assert outcome.error.message.startswith("truncated stream")
    assert outcome.response.text == "half"


def test_a_lenient_stream_may_end_after_its_stop_reason() -> None:
    assert run(START + text(0, "a") + finish(), LENIENT).done.finish_reason is ms.FinishReason.STOP
    assert run(START + text(0, "a"), LENIENT).error is not None


def test_a_done_marker_ends_a_message_with_a_stop_reason() -> None:
    mark = "data: [DONE]\n\n"
    assert run_at_every_split(START + text(0, "a") + finish() + mark).done.finish_reason is ms.FinishReason.STOP
    assert run(START + text(0, "a") + mark).error is not None
    assert run(START + text(0, "a") + finish() + STOP + mark).done.finish_reason is ms.FinishReason.STOP


def test_an_event_that_lacks_its_last_empty_line_is_read() -> None:
    wire = START + text(0, "a") + finish() + STOP
    assert run(wire.rstrip("\n")) == run(wire)


@pytest.mark.parametrize(
    "wire",
    [
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}\n\n',
        'data: {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}\n\n',
        'event: error\ndata: {"error": {"type": "overloaded_error", "message": "m"}}\n\n',
        'data: {"error": {"type": "overloaded_error", "message": "m"}}\n\n',
        '{"type": "error", "error": {"type": "overloaded_error", "message": "m"}}\n',
        '{"type": "error", "error": {"type": "overloaded_error", "message": "m"}}',
    ],
    ids=["named", "no name", "no type", "neither", "no SSE field", "no SSE field, no line end"],
)
def test_an_error_is_recognised_in_any_framing(wire: str) -> None:
    for before in ("", START, START + text(0, "a")):
        error = run(before + wire).error
        assert (error.category, error.message) == (ms.ErrorCategory.SERVER, "overloaded_error: m")


# --- details of streams that servers send now and then: repeated starts, missing members, and what a cut ---
DELTA: dict[str, object] = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}


def test_blocks_are_counted_anew_after_a_second_start() -> None:
    begin = sse({"type": "content_block_start", "content_block": {"type": "text", "text": ""}})
    outcome = run(START + begin + sse(DELTA) + START + begin + sse(DELTA) + finish() + STOP)
    assert outcome.response.content == [ms.Text("a"), ms.Text("a")]


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
    assert outcome.events == [
        ms.Start("m", None),
        ms.TextDelta(0, "a"),
        ms.Done(ms.FinishReason.STOP, "end_turn", ms.Usage()),
    ]


@pytest.mark.parametrize(("provider", "maker"), [(LENIENT, "lookalike"), (STRICT, "anthropic")])
def test_an_empty_signature_is_none(provider: ms.Provider, maker: str) -> None:
    thinking = block(0, {"type": "thinking", "thinking": "hm"}, {"type": "signature_delta", "signature": ""})
    content = run(START + thinking + finish() + STOP, provider).response.content
    assert content == [ms.Thinking("hm", None, state=ms.ProviderState(maker, {}))]


def test_a_signature_may_come_in_pieces_and_in_the_start() -> None:
    start: dict[str, object] = {"type": "thinking", "thinking": "h", "signature": "a"}
    deltas: list[dict[str, object]] = [
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "b"},
        {"type": "signature_delta", "signature": "c"},
    ]
    assert run(START + block(0, start, *deltas) + finish() + STOP).response.content == [ms.Thinking("hm", "abc")]
    state = ms.ProviderState("lookalike", {})
    content = run(START + block(0, start, *deltas) + finish() + STOP, LENIENT).response.content
    assert content == [ms.Thinking("hm", "abc", state=state)]


def test_a_signature_that_is_sent_twice_is_kept_once() -> None:
    again: dict[str, object] = {"type": "signature_delta", "signature": "EqQBCg=="}
    in_start: dict[str, object] = {"type": "thinking", "thinking": "hm", "signature": "EqQBCg=="}
    assert run(START + block(0, in_start, again) + finish() + STOP).response.content == [ms.Thinking("hm", "EqQBCg==")]
    plain: dict[str, object] = {"type": "thinking", "thinking": "hm"}
    content = run(START + block(0, plain, again, again) + finish() + STOP).response.content
    assert content == [ms.Thinking("hm", "EqQBCg==")]


def test_a_null_piece_of_arguments_is_ignored() -> None:
    start: dict[str, object] = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    deltas: list[dict[str, object]] = [
        {"type": "input_json_delta", "partial_json": None},
        {"type": "input_json_delta", "partial_json": '{"a": 1}'},
        {"type": "input_json_delta"},
    ]
    outcome = run(START + block(0, start, *deltas) + finish("tool_use") + STOP)
    assert [event for event in outcome.events if isinstance(event, ms.ToolCallDelta)] == [
        ms.ToolCallDelta(0, '{"a": 1}')
    ]


def test_large_numbers_of_a_call_in_the_start_are_exact() -> None:
    content = [{"type": "tool_use", "id": "t", "name": "look", "input": {"n": 2**70}}]
    outcome = run(sse({"type": "message_start", "message": {**MESSAGE, "content": content}}) + finish() + STOP)
    assert outcome.response.content == [ms.ToolCall("t", "look", '{"n": 1180591620717411303424}')]


def test_a_stream_may_begin_with_any_event() -> None:
    thinking = {"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": "hm"}}
    for wire in (text(0, "a"), sse(DELTA), call(0, "{}"), sse(thinking)):
        events = run(wire + finish() + STOP).events
        assert events[0] == ms.Start(None, None)
        assert sum(isinstance(event, ms.Start) for event in events) == 1


def test_a_content_block_may_begin_with_its_text() -> None:
    outcome = run(
        START + block(0, {"type": "text", "text": "a"}, {"type": "text_delta", "text": "b"}) + finish() + STOP
    )
    assert outcome.events[1:3] == [ms.TextDelta(0, "a"), ms.TextDelta(0, "b")]


def test_a_call_nested_too_deeply_is_an_error_that_says_so() -> None:
    used = '{"type": "tool_use", "id": "t", "name": "look", "input": {"a": ' + "[" * 1010 + "]" * 1010 + "}}"
    event = '{"type": "content_block_start", "index": 0, "content_block": ' + used + "}"
    outcome = run(START + f"data: {event}\n\n")
    error = outcome.error
    assert error is not None
    assert outcome.response.content == []
    assert error.message.startswith("content_block_start: a call's input is nested too deeply in '{")
    body = ('{"type": "message", "content": [' + used + "]}").encode()
    with pytest.raises(ms.ProviderError) as raised:
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
            assert [event.error.message for event in events if isinstance(event, ms.ErrorEvent)] == (
                [message] if message else []
            )
