"""The steps of an interaction: thoughts, calls, files, and those of the server's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

import manystream as ms
from tests.providers.gemini_interactions.test_stream import CALL
from tests.providers.gemini_interactions.wire import (
    CREATED,
    MAKER,
    TAG,
    Outcome,
    arguments,
    completed,
    decode,
    delta,
    interaction,
    run,
    run_at_every_split,
    signature,
    step,
    summary,
    text,
)


def test_thoughts_have_summaries_and_signatures() -> None:
    thought = step(0, "thought", summary("Let "), summary("me see."), signature("c2ln"))
    outcome = run_at_every_split(CREATED + thought + step(1, "model_output", text("Yes.")) + completed())
    assert outcome.response.content == [ms.Thinking("Let me see.", "c2ln", state=TAG), ms.Text("Yes.")]
    assert outcome.events[1:4] == [ms.ThinkingDelta(0, "Let "), ms.ThinkingDelta(0, "me see."), ms.TextDelta(1, "Yes.")]


def test_parallel_calls_stream_their_arguments() -> None:
    wire = (
        CREATED
        + step(1, "function_call", arguments('{"city":'), arguments(' "Bern"}'), **CALL)
        + step(2, "function_call", arguments('{"city": "Genf"}'), **{**CALL, "id": "c2"})
        + completed("requires_action")
    )
    outcome = run_at_every_split(wire)
    assert outcome.events[1:-1] == [
        ms.ToolCallStart(0, "c1", "look"),
        ms.ToolCallDelta(0, '{"city":'),
        ms.ToolCallDelta(0, ' "Bern"}'),
        ms.ToolCallDone(0, True),
        ms.ToolCallStart(1, "c2", "look"),
        ms.ToolCallDelta(1, '{"city": "Genf"}'),
        ms.ToolCallDone(1, True),
    ]
    assert outcome.last.finish_reason is ms.FinishReason.TOOL_USE


def test_calls_whose_deltas_alternate_are_told_by_index() -> None:
    begun = step(4, "function_call", stop=False, **CALL) + step(7, "function_call", stop=False, **{**CALL, "id": "c2"})
    pieces = [(4, '{"a":'), (7, '{"b":'), (4, "1}"), (7, "2}")]
    wire = CREATED + begun + "".join(delta(index, arguments(piece)) for index, piece in pieces)
    outcome = run_at_every_split(wire + completed("requires_action"))
    assert outcome.response.tool_calls == [ms.ToolCall("c1", "look", '{"a":1}'), ms.ToolCall("c2", "look", '{"b":2}')]


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "{}"), ({"a": [1, 2]}, '{"a":[1,2]}'), (None, "{}"), ("", "{}"), ({"n": 12345678901234567890123}, None)],
)
def test_arguments_may_come_whole_with_the_start(given: Any, expected: str | None) -> None:
    outcome = run(CREATED + step(0, "function_call", **{**CALL, "arguments": given}) + completed("requires_action"))
    assert outcome.response.tool_calls[0].arguments == (expected or json.dumps(given, separators=(",", ":")))


def test_a_signature_of_a_call_is_its_state() -> None:
    for wire in (
        step(0, "function_call", arguments("{}"), signature("c2ln"), signature=""),
        step(0, "function_call", arguments("{}"), signature="c2ln"),
    ):
        head: dict[str, Any] = {"id": "c1", "name": "look", "arguments": {}}
        begun = wire.replace('"type": "function_call"', '"type": "function_call", ' + json.dumps(head)[1:-1], 1)
        calls = run(CREATED + begun + completed("requires_action")).response.tool_calls
        assert calls == [ms.ToolCall("c1", "look", "{}", state=ms.ProviderState(MAKER, {"signature": "c2ln"}))]


def test_steps_that_were_not_streamed_are_read_from_the_end() -> None:
    steps = [
        {"type": "thought", "signature": "s", "summary": [text("why")]},
        {"type": "model_output", "content": [text("a")]},
    ]
    outcome = run(CREATED + completed(steps=steps))
    assert outcome.response.content == [ms.Thinking("why", "s", state=TAG), ms.Text("a")]
    assert outcome.of(ms.TextDelta, ms.ThinkingDelta) == [ms.ThinkingDelta(0, "why"), ms.TextDelta(1, "a")]
    streamed = run(CREATED + step(0, "model_output", text("a")) + completed(steps=steps))
    assert streamed.response.content == [ms.Text("a")]


def sound(data: str) -> dict[str, Any]:
    return {"type": "audio", "mime_type": "audio/l16", "data": data, "sample_rate": 24000}


def whole_after(wire: str, *steps: dict[str, Any], status: str = "completed") -> Outcome:
    """Return the outcome of a stream that was cut, and of the whole interaction in place of its rest."""
    return run(CREATED + wire + f"data: {json.dumps(interaction(status, steps=steps))}\n\n")


def test_a_whole_interaction_completes_the_steps_of_a_cut_stream() -> None:
    thought = {"type": "thought", "signature": "s", "summary": [text("why")]}
    output: dict[str, Any] = {"type": "model_output", "content": [text("ab"), sound("AAECAw==")]}
    search: dict[str, Any] = {"type": "google_search_call", "id": "g", "arguments": {"queries": ["x"]}}
    calls: list[dict[str, Any]] = [{"type": "function_call", "name": "f", "arguments": {"n": n}} for n in range(2)]
    parts = {
        "nothing": "",
        "a part of a thought": step(0, "thought", summary("w"), stop=False),
        "a part of a text": step(0, "thought", summary("why"), signature("s"))
        + step(1, "model_output", text("a"), stop=False),
        "a part of a sound": step(0, "thought", summary("why"), signature("s"))
        + step(1, "model_output", text("ab"), sound("AAE="), stop=False),
        "a part of the server's call": step(0, "thought", summary("why"), signature("s"))
        + step(1, "model_output", text("ab"), sound("AAECAw=="))
        + step(2, "google_search_call", arguments('{"que'), id="g", stop=False),
    }
    expected = decode(interaction("requires_action", steps=[thought, output, search, *calls]))
    for name, part in parts.items():
        outcome = whole_after(part, thought, output, search, *calls, status="requires_action")
        assert outcome.response == expected, name
        assert "".join(event.text for event in outcome.of(ms.TextDelta)) == "ab"


def test_arguments_that_have_ended_are_not_read_again() -> None:
    call: dict[str, Any] = {"type": "function_call", "id": "c", "name": "f", "arguments": {"a": 1}}
    second: dict[str, Any] = {**call, "id": "d"}
    outcome = whole_after(step(0, "function_call", arguments('{ "a": 1 }'), id="c", name="f"), call, second)
    assert [block.arguments for block in outcome.response.tool_calls] == ['{ "a": 1 }', '{"a":1}']
    assert outcome.response.warnings == []


def test_a_text_that_differs_from_its_part_is_a_warning() -> None:
    outcome = whole_after(step(0, "model_output", text("One")), {"type": "model_output", "content": [text("Two.")]})
    assert outcome.response.text == "Two."
    assert "final text differs" in outcome.response.warnings[0]


def test_steps_of_the_servers_own_are_kept_with_their_deltas() -> None:
    call: dict[str, Any] = {
        "type": "code_execution_call",
        "arguments": {"code": "1", "n": 12345678901234567890},
        "signature": "s",
    }
    result = [{"type": "code_execution_result", "result": "Lin"}, {"type": "code_execution_result", "result": "ux"}]
    searched = {"type": "google_search_result", "call_id": "", "result": [{"url": "u"}]}
    wire = (
        CREATED
        + step(0, "code_execution_call", call, id="e1")
        + step(1, "code_execution_result", *result, call_id="e1", is_error=None)
        + step(2, "google_search_result", searched, searched, call_id="", result=None)
        + step(3, "memory_write", key="k")
        + step(4, "mcp_server_tool_call", arguments('{"q":'), arguments("1}"), id="m", name="docs", arguments={})
        + completed()
    )
    outcome = run_at_every_split(wire)
    assert outcome.response.content == [
        ms.ProviderBlock(
            MAKER, {"type": "code_execution_call", "id": "e1", "arguments": call["arguments"], "signature": "s"}
        ),
        ms.ProviderBlock(
            MAKER, {"type": "code_execution_result", "call_id": "e1", "is_error": None, "result": "Linux"}
        ),
        ms.ProviderBlock(MAKER, {"type": "google_search_result", "call_id": "", "result": [{"url": "u"}]}),
        ms.ProviderBlock(MAKER, {"type": "memory_write", "key": "k"}),
        ms.ProviderBlock(MAKER, {"type": "mcp_server_tool_call", "id": "m", "name": "docs", "arguments": {"q": 1}}),
    ]
    assert outcome.last.finish_reason is ms.FinishReason.STOP


def test_files_and_unknown_contents_stand_between_texts() -> None:
    picture = {"type": "image", "mime_type": "image/png", "data": "AAEC", "resolution": "low"}
    film = {"type": "video", "mime_type": "video/mp4", "uri": "gs://a/b.mp4"}
    odd: dict[str, Any] = {"type": "hologram", "data": "AA"}
    wire = step(0, "model_output", text("a"), picture, text("b"), film, odd, {"type": "mood_delta"}, text("c"))
    content = run_at_every_split(CREATED + wire + completed()).response.content
    expected = [
        ms.Text("a"),
        ms.Image(data=b"\0\1\2", media_type="image/png", state=ms.ProviderState(MAKER, {"resolution": "low"})),
        ms.Text("b"),
        ms.File(url="gs://a/b.mp4", media_type="video/mp4"),
        ms.ProviderBlock(MAKER, {"type": "model_output", "content": [odd]}),
        ms.Text("c"),
    ]
    assert content == expected
    contents = [text("a"), picture, text("b"), film, odd, text("c")]
    assert decode(interaction("completed", steps=[{"type": "model_output", "content": contents}])).content == expected


def test_pieces_of_a_sound_are_one_sound() -> None:
    pieces = [sound("AAE="), sound("AgM=")]
    outcome = run(CREATED + step(0, "model_output", *pieces) + step(1, "model_output", pieces[0]) + completed())
    state = ms.ProviderState(MAKER, {"sample_rate": 24000})
    assert outcome.response.content == [
        ms.File(data=b"\0\1\2\3", media_type="audio/l16", state=state),
        ms.File(data=b"\0\1", media_type="audio/l16", state=state),
    ]


def test_annotations_belong_to_the_text_before_them() -> None:
    cited: dict[str, Any] = {"type": "url_citation", "url": "https://a.example", "start_index": 0, "end_index": 5}
    note = {"type": "text_annotation_delta", "annotations": [cited]}
    outcome = run(CREATED + step(0, "model_output", text("Done."), note, text(" Well.")) + completed())
    assert outcome.response.content == [ms.Text("Done. Well.", citations=[cited], state=TAG)]
    alone = run(CREATED + step(0, "model_output", note) + completed())
    assert "annotation" in alone.response.warnings[0]


def test_a_picture_in_a_summary_is_kept_with_the_thought() -> None:
    picture: dict[str, Any] = {"type": "image", "mime_type": "image/png", "data": "AA=="}
    outcome = run(
        CREATED + step(0, "thought", summary("a"), {"type": "thought_summary", "content": picture}) + completed()
    )
    assert outcome.response.content == [ms.Thinking("a", state=ms.ProviderState(MAKER, {"summary": [picture]}))]


def test_the_content_of_a_start_comes_before_the_deltas() -> None:
    wire = (
        CREATED
        + step(0, "thought", signature("s"), summary=[text("hm ")], signature="")
        + step(1, "model_output", text("b"), content=[text("a")])
    )
    assert run(wire + completed()).response.content == [ms.Thinking("hm ", "s", state=TAG), ms.Text("ab")]


def test_a_delta_without_its_start_begins_a_step() -> None:
    outcome = run(CREATED + delta(3, summary("hm")) + delta(4, text("a")) + completed())
    assert outcome.response.content == [ms.Thinking("hm", state=TAG), ms.Text("a")]


def test_a_call_without_a_name_is_kept_as_the_servers_step() -> None:
    outcome = run(CREATED + step(0, "function_call", id="c", arguments={}) + completed())
    assert outcome.response.content == [ms.ProviderBlock(MAKER, {"type": "function_call", "id": "c", "arguments": {}})]
