"""Calls in a stream: those that the caller executes, and those that the server executes."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from manystream.providers.model.events import TextDelta, ToolCallDelta, ToolCallDone, ToolCallStart
from tests.providers.anthropic.wire import (
    LENIENT,
    MESSAGE,
    START,
    STOP,
    block,
    call,
    finish,
    run,
    run_at_every_split,
    sse,
    text,
)


def test_a_call_ends_when_the_next_block_begins() -> None:
    wire = START + call(0, "", '{"city"', ': "Oslo"}') + call(1, '{"city": "Rome"}', id="toolu_2") + finish("tool_use")
    outcome = run_at_every_split(wire + STOP)
    assert outcome.events[1:-1] == [
        ToolCallStart(0, "toolu_1", "look"), ToolCallDelta(0, '{"city"'), ToolCallDelta(0, ': "Oslo"}'),
        ToolCallDone(0, True), ToolCallStart(1, "toolu_2", "look"), ToolCallDelta(1, '{"city": "Rome"}'),
        ToolCallDone(1, True),
    ]  # fmt: skip
    assert outcome.done.finish_reason is ms.FinishReason.TOOL_USE
    assert [c.parsed for c in outcome.response.tool_calls] == [{"city": "Oslo"}, {"city": "Rome"}]


@pytest.mark.parametrize("pieces", [(), ("",), ("", "")], ids=["no delta", "an empty delta", "two empty deltas"])
def test_a_call_without_arguments_has_the_empty_object(pieces: tuple[str, ...]) -> None:
    outcome = run_at_every_split(START + call(0, *pieces) + finish("tool_use") + STOP)
    assert outcome.response.content == [ms.ToolCall("toolu_1", "look", "{}")]
    assert outcome.events[1:-1] == [ToolCallStart(0, "toolu_1", "look"), ToolCallDelta(0, "{}"), ToolCallDone(0, True)]


def test_input_in_the_start_event_is_delivered_once() -> None:
    start: dict[str, object] = {"type": "tool_use", "id": "t", "name": "look", "input": {"city": "Åbo", "n": 1}}
    outcome = run_at_every_split(START + block(0, start) + finish("tool_use") + STOP)
    assert outcome.response.content == [ms.ToolCall("t", "look", '{"city": "Åbo", "n": 1}')]


def test_a_calls_other_members_are_kept_as_state() -> None:
    caller: dict[str, object] = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    start: dict[str, object] = {"type": "tool_use", "id": "t", "name": "look", "input": {}, "caller": caller}
    content = run(START + block(0, start) + finish("tool_use") + STOP).response.content
    assert content == [ms.ToolCall("t", "look", "{}", state=ms.ProviderState("anthropic", {"caller": caller}))]


def test_a_missing_call_id_is_made() -> None:
    start: dict[str, object] = {"type": "tool_use", "name": "look", "input": {}}
    assert run(START + block(0, start) + finish("tool_use") + STOP).response.tool_calls[0].id == "made_1"


def test_a_call_without_a_name_is_a_provider_block() -> None:
    start: dict[str, object] = {"type": "tool_use", "id": "t", "input": {}}
    assert run(START + block(0, start) + finish() + STOP).response.content == [ms.ProviderBlock("anthropic", start)]


@pytest.mark.parametrize("stop", [True, False], ids=["block stopped", "block left open"])
@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_a_call_that_was_cut_off_is_not_complete(reason: str, stop: bool) -> None:
    wire = START + call(0, '{"a": 1}') + call(1, '{"b": ', id="toolu_2", stop=stop) + finish(reason) + STOP
    outcome = run_at_every_split(wire)
    assert [c.complete for c in outcome.response.tool_calls] == [True, False]
    assert outcome.response.tool_calls[1].arguments == '{"b": '


def test_a_call_before_text_that_was_cut_off_is_complete() -> None:
    assert run(START + call(0, "{}") + text(1, "an") + finish("max_tokens") + STOP).response.tool_calls[0].complete


def test_server_side_calls_and_results_are_provider_blocks() -> None:
    use: dict[str, object] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    result: dict[str, object] = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "https://a.example", "encrypted_content": "x"}],
    }
    wire = (
        START + block(0, use, {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"query": '},
        {"type": "input_json_delta", "partial_json": '"rain"}'}) + block(1, result) + text(2, "Rain.") + finish()
        + STOP
    )  # fmt: skip
    outcome = run_at_every_split(wire)
    assert outcome.response.content == [
        ms.ProviderBlock("anthropic", {**use, "input": {"query": "rain"}}),
        ms.ProviderBlock("anthropic", result),
        ms.Text("Rain."),
    ]
    assert outcome.response.tool_calls == []
    assert outcome.done.finish_reason is ms.FinishReason.STOP


def test_a_cut_off_server_call_keeps_its_input_as_text() -> None:
    use: dict[str, object] = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    wire = START + block(0, use, {"type": "input_json_delta", "partial_json": '{"query": "ra'}, stop=False)
    for ending in (finish("max_tokens") + STOP, ""):
        assert run(wire + ending).response.content == [ms.ProviderBlock("anthropic", {**use, "input": '{"query": "ra'})]


def test_a_pair_cut_inside_a_server_calls_input_is_joined() -> None:
    start: dict[str, object] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    wire = START + block(0, start, stop=False)
    for piece in (r"{\"query\": \"\ud83c", r"\udf0a sea \ud83d", r"\"}"):
        delta = '{"type": "input_json_delta", "partial_json": "' + piece + '"}'
        wire += 'data: {"type": "content_block_delta", "index": 0, "delta": ' + delta + "}\n\n"
    content = run(wire + finish("pause_turn") + STOP).response.content[0]
    assert isinstance(content, ms.ProviderBlock)
    assert content.data["input"] == {"query": "🌊 sea \ufffd"}


def test_a_compaction_is_joined_from_its_deltas() -> None:
    start: dict[str, object] = {"type": "compaction", "content": None}
    delta: dict[str, object] = {"type": "compaction_delta", "content": "So far: …", "encrypted_content": None}
    content = run_at_every_split(START + block(0, start, delta) + text(1, "a") + finish() + STOP).response.content
    expected = {"type": "compaction", "content": "So far: …", "encrypted_content": None}
    assert content == [ms.ProviderBlock("anthropic", expected), ms.Text("a")]


def test_deltas_of_unknown_blocks_append_text_and_set_the_rest() -> None:
    start: dict[str, object] = {"type": "novelty", "note": "a", "parts": [1]}
    deltas: list[dict[str, object]] = [
        {"type": "novelty_delta", "note": "b", "level": 1},
        {"type": "novelty_delta", "note": "c", "level": 2, "parts": None},
    ]
    content = run(START + block(0, start, *deltas) + finish() + STOP).response.content
    assert content == [ms.ProviderBlock("anthropic", {"type": "novelty", "note": "abc", "parts": [1], "level": 2})]


def test_calls_in_message_start_end_when_the_next_block_begins() -> None:
    content: list[dict[str, object]] = [
        {"type": "tool_use", "id": "a", "name": "look", "input": {}},
        {"type": "tool_use", "id": "b", "name": "look", "input": {"n": 1}},
    ]
    start = sse({"type": "message_start", "message": {**MESSAGE, "content": content}})
    for reason in ("end_turn", "max_tokens"):
        outcome = run_at_every_split(start + text(2, "So.") + finish(reason) + STOP)
        assert outcome.events[1:-1] == [
            ToolCallStart(0, "a", "look"), ToolCallDelta(0, "{}"), ToolCallStart(1, "b", "look"),
            ToolCallDelta(1, '{"n": 1}'), ToolCallDone(0, True), ToolCallDone(1, True), TextDelta(2, "So."),
        ]  # fmt: skip


def test_a_call_that_stops_twice_ends_once() -> None:
    stop = sse({"type": "content_block_stop", "index": 0})
    outcome = run(START + call(0, '{"a": 1}') + stop + finish("tool_use") + STOP)
    assert outcome.events[1:-1] == [
        ToolCallStart(0, "toolu_1", "look"),
        ToolCallDelta(0, '{"a": 1}'),
        ToolCallDone(0, True),
    ]


def test_a_call_whose_index_is_used_again_is_cut_off() -> None:
    wire = START + call(0, '{"a": ', stop=False) + text(0, "So.") + finish() + STOP
    outcome = run_at_every_split(wire)
    assert outcome.events[1:-1] == [
        ToolCallStart(0, "toolu_1", "look"), ToolCallDelta(0, '{"a": '), ToolCallDone(0, False), TextDelta(1, "So."),
    ]  # fmt: skip


def test_a_server_call_whose_index_is_used_again_keeps_its_input() -> None:
    use: dict[str, Any] = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    delta: dict[str, object] = {"type": "input_json_delta", "partial_json": '{"query": "rain"}'}
    content = run(START + block(0, use, delta) + text(0, "Wet.") + finish() + STOP).response.content
    assert content == [ms.ProviderBlock("anthropic", {**use, "input": {"query": "rain"}}), ms.Text("Wet.")]


def test_an_event_may_leave_out_an_index_that_others_have() -> None:
    start = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
    later = {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}}
    wire = START + sse(start) + sse(delta) + sse(start) + sse(later) + sse(delta) + finish() + STOP
    assert run(wire).response.content == [ms.Text("aa"), ms.Text("b")]


def delta(index: int, kind: str, **members: object) -> str:
    """Return the event of one delta."""
    return sse({"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}})


def test_thinking_in_a_block_of_text_is_thinking() -> None:
    wire = (
        START + block(0, {"type": "text", "text": ""}, stop=False) + delta(0, "thinking_delta", thinking="The user ")
        + delta(0, "thinking_delta", thinking="greets.") + delta(0, "text_delta", text="Good ")
        + delta(0, "text_delta", text="day!") + finish() + STOP
    )  # fmt: skip
    response = run_at_every_split(wire, LENIENT).response
    assert (response.thinking, response.text) == ("The user greets.", "Good day!")
    assert [type(each) for each in response.content] == [ms.Text, ms.Thinking, ms.Text]


def test_text_in_a_block_of_thinking_is_text() -> None:
    wire = (
        START + block(0, {"type": "thinking", "thinking": ""}, stop=False) + delta(0, "thinking_delta", thinking="Hm.")
        + delta(0, "text_delta", text="Good ") + delta(0, "text_delta", text="day!") + finish() + STOP
    )  # fmt: skip
    outcome = run(wire)
    assert (outcome.response.thinking, outcome.response.text) == ("Hm.", "Good day!")
    assert outcome.events[1:4] == [ms.ThinkingDelta(0, "Hm."), TextDelta(1, "Good "), TextDelta(1, "day!")]


def test_text_inside_a_tool_call_is_text_beside_it() -> None:
    wire = (
        START + call(0, '{"city": ', stop=False) + delta(0, "text_delta", text="\n")
        + delta(0, "input_json_delta", partial_json='"Oslo"}') + delta(0, "text_delta", text="So.")
        + sse({"type": "content_block_stop", "index": 0}) + call(1, "{}", id="toolu_2") + finish("tool_use") + STOP
    )  # fmt: skip
    outcome = run_at_every_split(wire)
    assert outcome.response.content == [
        ms.ToolCall("toolu_1", "look", '{"city": "Oslo"}'),
        ms.Text("\nSo."),
        ms.ToolCall("toolu_2", "look", "{}"),
    ]
    assert outcome.events[2:6] == [
        ToolCallDelta(0, '{"city": '), TextDelta(1, "\n"), ToolCallDelta(0, '"Oslo"}'), TextDelta(1, "So."),
    ]  # fmt: skip


@pytest.mark.parametrize("stop", [True, False])
def test_a_cut_off_call_with_text_inside_is_not_complete(stop: bool) -> None:
    wire = START + call(0, '{"city": "Os', stop=False) + delta(0, "text_delta", text="\n")
    wire += sse({"type": "content_block_stop", "index": 0}) if stop else ""
    outcome = run(wire + finish("max_tokens") + STOP)
    assert outcome.response.tool_calls == [ms.ToolCall("toolu_1", "look", '{"city": "Os', complete=False)]
    assert outcome.events[-2] == ToolCallDone(0, complete=False)


@pytest.mark.parametrize(
    ("before", "index", "words"),
    [
        ("", 1, "content_block_delta: arguments for content block 1, which is no tool call, in "),
        (text(0, "Well."), 0, "content_block_delta: arguments for content block 0, which is no tool call, in "),
        (call(0, stop=True) + call(1, "{}", id="toolu_2"), 0,
            "content_block_delta: arguments for tool call 'toolu_1', which has ended, in "),
    ],
)  # fmt: skip
def test_arguments_that_no_call_can_have_are_an_error(before: str, index: int, words: str) -> None:
    stray = delta(index, "input_json_delta", partial_json='{"path": "/tmp"}')
    outcome = run(START + before + stray + finish("tool_use") + STOP)
    assert outcome.error is not None
    assert str(outcome.error).startswith(f"server: {words}")
    assert (outcome.error.category, outcome.error.retryable) == (ms.ErrorCategory.SERVER, False)


def test_empty_arguments_without_a_call_change_nothing() -> None:
    wire = START + text(0, "Well.") + delta(0, "input_json_delta", partial_json="") + finish() + STOP
    assert isinstance(run(wire).events[-1], ms.Done)


@pytest.mark.parametrize(
    ("stray", "warning"),
    [
        (delta(0, "signature_delta", signature="c2ln"),
            "the answer has a signature in a block that is no thinking; it was dropped"),
        (delta(7, "citations_delta", citation={"type": "char_location"}),
            "the answer has a citation in a block that is no text; it was dropped"),
    ],
)  # fmt: skip
def test_a_part_that_has_no_place_causes_a_warning(stray: str, warning: str) -> None:
    response = run(START + text(0, "Well.") + stray + stray + finish() + STOP).response
    assert (response.text, response.warnings) == ("Well.", [warning])
