"""The stream machine: each rule of the wire as text, whole, byte by byte and at every split point."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream.providers.model.events import (
    Done,
    ErrorEvent,
    FinishReason,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
)
from manystream.providers.model.messages import File, Image, ProviderBlock, ProviderState, Text, Thinking, ToolCall
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.providers.model.tokens import Usage
from manystream.providers.wire.delta_template import DeltaTemplate

from .wire import (
    CREATED,
    DIALECT,
    END,
    MAKER,
    PROVIDER,
    TAG,
    USAGE,
    Outcome,
    arguments,
    completed,
    decode,
    delta,
    interaction,
    run,
    run_at_every_split,
    signature,
    sse,
    step,
    summary,
    text,
)

CALL: dict[str, Any] = {"id": "c1", "name": "look", "arguments": {}}


def test_text_is_delivered_as_deltas_and_ends_with_the_status() -> None:
    outcome = run_at_every_split(CREATED + step(0, "model_output", text("Hello"), text(", wörld")) + completed())
    usage = Usage(30, 10, thinking_tokens=30, cached_tokens=5, total_tokens=70, raw=USAGE)
    assert outcome.events == [
        Start("gemini-3.8-flash", "v1_1"),
        TextDelta(0, "Hello"),
        TextDelta(0, ", wörld"),
        Done(FinishReason.STOP, "completed", usage, {"service_tier": "standard"}),
    ]
    assert outcome.response.content == [Text("Hello, wörld")]


def test_thoughts_have_summaries_and_signatures() -> None:
    thought = step(0, "thought", summary("Let "), summary("me see."), signature("c2ln"))
    outcome = run_at_every_split(CREATED + thought + step(1, "model_output", text("Yes.")) + completed())
    assert outcome.response.content == [Thinking("Let me see.", "c2ln", state=TAG), Text("Yes.")]
    assert outcome.events[1:4] == [ThinkingDelta(0, "Let "), ThinkingDelta(0, "me see."), TextDelta(1, "Yes.")]


def test_parallel_calls_stream_their_arguments() -> None:
    wire = (
        CREATED
        + step(1, "function_call", arguments('{"city":'), arguments(' "Bern"}'), **CALL)
        + step(2, "function_call", arguments('{"city": "Genf"}'), **{**CALL, "id": "c2"})
        + completed("requires_action")
    )
    outcome = run_at_every_split(wire)
    assert outcome.events[1:-1] == [
        ToolCallStart(0, "c1", "look"),
        ToolCallDelta(0, '{"city":'),
        ToolCallDelta(0, ' "Bern"}'),
        ToolCallDone(0, True),
        ToolCallStart(1, "c2", "look"),
        ToolCallDelta(1, '{"city": "Genf"}'),
        ToolCallDone(1, True),
    ]
    assert outcome.last.finish_reason is FinishReason.TOOL_USE


def test_calls_whose_deltas_alternate_are_told_by_index() -> None:
    begun = step(4, "function_call", stop=False, **CALL) + step(7, "function_call", stop=False, **{**CALL, "id": "c2"})
    pieces = [(4, '{"a":'), (7, '{"b":'), (4, "1}"), (7, "2}")]
    wire = CREATED + begun + "".join(delta(index, arguments(piece)) for index, piece in pieces)
    outcome = run_at_every_split(wire + completed("requires_action"))
    assert outcome.response.tool_calls == [ToolCall("c1", "look", '{"a":1}'), ToolCall("c2", "look", '{"b":2}')]


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
        assert calls == [ToolCall("c1", "look", "{}", state=ProviderState(MAKER, {"signature": "c2ln"}))]


@pytest.mark.parametrize("status", ["incomplete", "budget_exceeded", "requires_continuation", "failed"])
def test_the_last_call_of_a_cut_answer_is_not_complete(status: str) -> None:
    first = step(0, "function_call", arguments("{}"), **CALL)
    last = step(1, "function_call", arguments('{"a":'), **{**CALL, "id": "c2"})
    calls = run(CREATED + first + last + completed(status)).response.tool_calls
    assert [call.complete for call in calls] == [True, False]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("completed", FinishReason.STOP),
        ("requires_action", FinishReason.STOP),  # no call
        ("incomplete", FinishReason.LENGTH),
        ("requires_continuation", FinishReason.LENGTH),
        ("budget_exceeded", FinishReason.LENGTH),
        ("throttled_by_policy", FinishReason.UNKNOWN),
    ],
)
def test_the_status_is_the_finish_reason(status: str, reason: FinishReason) -> None:
    outcome = run(CREATED + step(0, "model_output", text("a")) + completed(status))
    assert (outcome.last.finish_reason, outcome.last.raw_finish_reason) == (reason, status)
    whole = decode(interaction(status, steps=[{"type": "model_output", "content": [text("a")]}]))
    assert (whole.finish_reason, whole.raw_finish_reason) == (reason, status)


def test_a_cancelled_interaction_is_an_error_with_what_came() -> None:
    outcome = run(CREATED + step(0, "model_output", text("a")) + completed("cancelled"))
    assert outcome.last.error.provider_code == "aborted"
    assert outcome.response.text == "a"


def test_a_failed_interaction_is_an_error_with_what_came() -> None:
    """As a failed answer of Responses is."""
    wire = CREATED + step(0, "model_output", text("a"))
    for end in (completed("failed"), sse({"event_type": "interaction.status_update", "status": "failed"}) + END):
        outcome = run_at_every_split(wire + end)
        assert isinstance(outcome.last, ErrorEvent)
        assert (outcome.last.error.category, outcome.last.error.provider_code) == (ErrorCategory.SERVER, "failed")
        assert outcome.last.error.message == "the interaction failed without a reason"
        assert (outcome.response.text, outcome.response.finish_reason) == ("a", FinishReason.ERROR)
    with pytest.raises(ProviderError) as caught:
        decode(interaction("failed", steps=[{"type": "model_output", "content": [text("a")]}]))
    assert str(caught.value) == str(outcome.last.error)
    assert caught.value.partial == outcome.response


def test_a_failed_interaction_with_an_error_is_that_error() -> None:
    errors = [{"code": "resource_exhausted", "message": "Too much."}]
    outcome = run(CREATED + completed("failed", errors=errors))
    assert outcome.last.error.category is ErrorCategory.RATE_LIMIT
    failed = step(0, "model_output", error={"code": 13, "message": "It broke."})
    assert "It broke." in run(CREATED + failed + completed("failed")).last.error.message


@pytest.mark.parametrize(
    ("error", "category", "message"),
    [
        ({"message": "Boo.", "code": "internal_error"}, ErrorCategory.SERVER, "Boo."),
        ({"message": "Boo.", "code": "resource_exhausted"}, ErrorCategory.RATE_LIMIT, "Boo."),
        ({"message": "Boo.", "code": 503, "status": "UNAVAILABLE"}, ErrorCategory.SERVER, "Boo."),
        ("raw text", ErrorCategory.UNKNOWN, "raw text"),
        (None, ErrorCategory.SERVER, "without a message"),
    ],
)
def test_an_error_event_ends_the_stream(error: Any, category: ErrorCategory, message: str) -> None:
    wire = CREATED + step(0, "model_output", text("Half"), stop=False) + sse({"error": error, "event_type": "error"})
    outcome = run_at_every_split(wire + completed("failed"))
    assert isinstance(outcome.last, ErrorEvent)
    assert outcome.last.error.category is category
    assert message in outcome.last.error.message
    assert outcome.response.text == "Half"


def test_json_lines_at_the_end_are_an_error() -> None:
    tail = '[{\n  "error": {\n    "code": 503,\n    "message": "Gone.",\n    "status": "UNAVAILABLE"\n  }\n}\n]\n'
    outcome = run_at_every_split(CREATED + step(0, "model_output", text("a"), stop=False) + tail)
    assert outcome.last.error.category is ErrorCategory.SERVER


@pytest.mark.parametrize("end", ["", END, sse({"event_type": "interaction.status_update", "status": "in_progress"})])
def test_a_stream_without_its_end_is_truncated(end: str) -> None:
    outcome = run_at_every_split(CREATED + step(0, "model_output", text("a")) + end)
    assert outcome.last.error.category is ErrorCategory.NETWORK
    assert "interaction.completed" in outcome.last.error.message


def test_a_status_and_the_mark_end_a_stream_without_completed() -> None:
    cut = sse({"event_type": "interaction.status_update", "status": "incomplete", "usage": USAGE})
    outcome = run_at_every_split(CREATED + step(0, "model_output", text("a")) + cut + END)
    assert (outcome.last.finish_reason, outcome.last.usage.total_tokens) == (FinishReason.LENGTH, 70)


def test_an_event_has_the_type_of_its_data_or_its_name() -> None:
    wire = CREATED + step(0, "model_output", text("a")) + completed()
    bare = "".join(line for line in wire.splitlines(keepends=True) if not line.startswith("event:"))
    assert run_at_every_split(bare.replace("\n", "\r\n")) == run(wire)
    untyped = wire.replace(', "event_type": "step.delta"', "").replace(', "event_type": "interaction.completed"', "")
    assert "step.delta" in untyped
    assert run(untyped) == run(wire)


def test_steps_that_were_not_streamed_are_read_from_the_end() -> None:
    steps = [
        {"type": "thought", "signature": "s", "summary": [text("why")]},
        {"type": "model_output", "content": [text("a")]},
    ]
    outcome = run(CREATED + completed(steps=steps))
    assert outcome.response.content == [Thinking("why", "s", state=TAG), Text("a")]
    assert outcome.of(TextDelta, ThinkingDelta) == [ThinkingDelta(0, "why"), TextDelta(1, "a")]
    streamed = run(CREATED + step(0, "model_output", text("a")) + completed(steps=steps))
    assert streamed.response.content == [Text("a")]


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
        assert "".join(event.text for event in outcome.of(TextDelta)) == "ab"


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
        ProviderBlock(
            MAKER, {"type": "code_execution_call", "id": "e1", "arguments": call["arguments"], "signature": "s"}
        ),
        ProviderBlock(MAKER, {"type": "code_execution_result", "call_id": "e1", "is_error": None, "result": "Linux"}),
        ProviderBlock(MAKER, {"type": "google_search_result", "call_id": "", "result": [{"url": "u"}]}),
        ProviderBlock(MAKER, {"type": "memory_write", "key": "k"}),
        ProviderBlock(MAKER, {"type": "mcp_server_tool_call", "id": "m", "name": "docs", "arguments": {"q": 1}}),
    ]
    assert outcome.last.finish_reason is FinishReason.STOP


def test_files_and_unknown_contents_stand_between_texts() -> None:
    picture = {"type": "image", "mime_type": "image/png", "data": "AAEC", "resolution": "low"}
    film = {"type": "video", "mime_type": "video/mp4", "uri": "gs://a/b.mp4"}
    odd: dict[str, Any] = {"type": "hologram", "data": "AA"}
    wire = step(0, "model_output", text("a"), picture, text("b"), film, odd, {"type": "mood_delta"}, text("c"))
    content = run_at_every_split(CREATED + wire + completed()).response.content
    expected = [
        Text("a"),
        Image(data=b"\0\1\2", media_type="image/png", state=ProviderState(MAKER, {"resolution": "low"})),
        Text("b"),
        File(url="gs://a/b.mp4", media_type="video/mp4"),
        ProviderBlock(MAKER, {"type": "model_output", "content": [odd]}),
        Text("c"),
    ]
    assert content == expected
    contents = [text("a"), picture, text("b"), film, odd, text("c")]
    assert decode(interaction("completed", steps=[{"type": "model_output", "content": contents}])).content == expected


def test_pieces_of_a_sound_are_one_sound() -> None:
    pieces = [sound("AAE="), sound("AgM=")]
    outcome = run(CREATED + step(0, "model_output", *pieces) + step(1, "model_output", pieces[0]) + completed())
    state = ProviderState(MAKER, {"sample_rate": 24000})
    assert outcome.response.content == [
        File(data=b"\0\1\2\3", media_type="audio/l16", state=state),
        File(data=b"\0\1", media_type="audio/l16", state=state),
    ]


def test_annotations_belong_to_the_text_before_them() -> None:
    cited: dict[str, Any] = {"type": "url_citation", "url": "https://a.example", "start_index": 0, "end_index": 5}
    note = {"type": "text_annotation_delta", "annotations": [cited]}
    outcome = run(CREATED + step(0, "model_output", text("Done."), note, text(" Well.")) + completed())
    assert outcome.response.content == [Text("Done. Well.", citations=[cited], state=TAG)]
    alone = run(CREATED + step(0, "model_output", note) + completed())
    assert "annotation" in alone.response.warnings[0]


def test_a_picture_in_a_summary_is_kept_with_the_thought() -> None:
    picture: dict[str, Any] = {"type": "image", "mime_type": "image/png", "data": "AA=="}
    outcome = run(
        CREATED + step(0, "thought", summary("a"), {"type": "thought_summary", "content": picture}) + completed()
    )
    assert outcome.response.content == [Thinking("a", state=ProviderState(MAKER, {"summary": [picture]}))]


def test_the_content_of_a_start_comes_before_the_deltas() -> None:
    wire = (
        CREATED
        + step(0, "thought", signature("s"), summary=[text("hm ")], signature="")
        + step(1, "model_output", text("b"), content=[text("a")])
    )
    assert run(wire + completed()).response.content == [Thinking("hm ", "s", state=TAG), Text("ab")]


def test_an_answer_that_is_not_stored_has_its_id_late_or_never() -> None:
    begun = sse({"interaction": {"object": "interaction"}, "event_type": "interaction.created"})
    assert run(begun + completed()).response.id == "v1_1"
    outcome = run(begun + completed(id=None, model=None, usage=None))
    assert (outcome.response.id, outcome.response.model, outcome.response.usage) == (None, None, Usage())


def test_usage_of_steps_and_deltas_counts_until_the_end() -> None:
    stop = sse({"index": 0, "usage": {"total_tokens": 7}, "step_usage": {"total_tokens": 3}, "event_type": "step.stop"})
    wire = CREATED + step(0, "model_output", text("a"), stop=False) + stop
    assert run(wire).response.usage.total_tokens == 7
    metered = delta(0, text("b"), metadata={"total_usage": {"total_tokens": 9}})
    assert run(wire + metered).response.usage.total_tokens == 9
    assert run(wire + completed()).response.usage.total_tokens == 70


def test_the_form_of_before_june_2026_is_read() -> None:
    def content(index: int, kind: str, *deltas: dict[str, Any]) -> str:
        events = [sse({"index": index, "content": {"type": kind}, "event_type": "content.start"})]
        events += [sse({"index": index, "delta": each, "event_type": "content.delta"}) for each in deltas]
        return "".join([*events, sse({"index": index, "event_type": "content.stop"})])

    call = {"type": "function_call", "id": "c1", "name": "f", "arguments": {"a": 1}}
    wire = (
        CREATED.replace("interaction.created", "interaction.start")
        + content(0, "thought", summary("hm"), signature("s"))
        + content(1, "text", text("Hello "), text("World"))
        + content(2, "function_call", call)
        + completed("requires_action").replace("interaction.completed", "interaction.complete")
    )
    outcome = run_at_every_split(wire)
    expected = [Thinking("hm", "s", state=TAG), Text("Hello World"), ToolCall("c1", "f", '{"a":1}')]
    assert outcome.response.content == expected
    outputs = [{"type": "thought", "signature": "s", "summary": [text("hm")]}, text("Hello World"), call]
    assert decode(interaction("requires_action", outputs=outputs)).content == expected


ODD: dict[str, str] = {
    "no step": sse({"index": 0, "event_type": "step.start"}),
    "a step that is no object": sse({"index": 0, "step": [], "event_type": "step.start"}),
    "an index that is no number": delta(0, text("a")).replace('"index": 0', '"index": "0"'),
    "no delta": sse({"index": 0, "event_type": "step.delta"}),
    "a text that is no text": delta(0, text(["a"])),
    "a summary that is no text": delta(0, summary(1)),
    "arguments that are no text": delta(0, arguments({"a": 1})),
    "arguments without a call": delta(0, arguments("{}")),
    "arguments of an output": step(0, "model_output", arguments("{}")),
    "arguments after the end": step(0, "function_call", arguments("{}"), **CALL)
    + step(1, "model_output")
    + delta(0, arguments("[1]")),
    "contents that are no array": step(0, "model_output", content="a"),
    "summaries that are no objects": step(0, "thought", summary=["a"]),
    "no JSON": "event: step.delta\ndata: {\n\n",
    "an array": "event: step.delta\ndata: [1]\n\n",
}


@pytest.mark.parametrize("wire", ODD.values(), ids=ODD)
def test_a_malformed_event_is_an_error_that_shows_it(wire: str) -> None:
    outcome = run(CREATED + wire + completed())
    assert isinstance(outcome.last, ErrorEvent)
    assert outcome.last.error.category is ErrorCategory.SERVER


HARMLESS: dict[str, str] = {
    "an unknown event": sse({"event_type": "interaction.moved", "to": 1}),
    "a ping": "event: ping\ndata: {}\n\n",
    "a comment": ": still here\n\n",
    "an unknown delta": delta(5, {"type": "mood", "mood": "merry"}),
    "a delta without a type": delta(0, {"text": "b"}),
    "nulls": sse({"event_type": "interaction.status_update", "status": None, "usage": None, "interaction": None}),
    "a second beginning": CREATED,
    "a stop of nothing": sse({"index": 9, "event_type": "step.stop"}),
    "a step of the user's": step(0, "user_input", content=[text("Hi")]),
}


@pytest.mark.parametrize("wire", HARMLESS.values(), ids=HARMLESS)
def test_what_brings_nothing_changes_nothing(wire: str) -> None:
    said = step(1, "model_output", text("a"))
    plain = run(CREATED + said + completed())
    assert run_at_every_split(CREATED + wire + said + completed()) == plain
    assert run(CREATED + said + wire + completed()) == plain


def test_a_delta_without_its_start_begins_a_step() -> None:
    outcome = run(CREATED + delta(3, summary("hm")) + delta(4, text("a")) + completed())
    assert outcome.response.content == [Thinking("hm", state=TAG), Text("a")]


def test_a_call_without_a_name_is_kept_as_the_servers_step() -> None:
    outcome = run(CREATED + step(0, "function_call", id="c", arguments={}) + completed())
    assert outcome.response.content == [ProviderBlock(MAKER, {"type": "function_call", "id": "c", "arguments": {}})]


def test_halves_of_a_pair_in_two_deltas_are_joined() -> None:
    half = '{"index": 0, "delta": {"text": "%s", "type": "text"}, "event_type": "step.delta"}'
    halves = "".join(f"data: {half % each}\n\n" for each in (r"a\ud83d", r"\ude00b"))
    outcome = run_at_every_split(CREATED + step(0, "model_output", stop=False) + halves + completed())
    assert outcome.response.text == "a😀b"


@pytest.mark.parametrize(
    ("make", "kind", "members"),
    [(text, "model_output", {}), (summary, "thought", {}), (arguments, "function_call", CALL)],
    ids=["text", "summary", "arguments"],
)
def test_deltas_that_repeat_take_the_fast_path(make: Any, kind: str, members: dict[str, Any]) -> None:
    machine = DIALECT.machine(PROVIDER, lambda: "id")
    parsed = json.loads(step(0, kind, stop=False, **members).partition("data: ")[2])
    machine.feed("step.start", json.dumps(parsed).encode())
    wire = {"index": 0, "delta": make("one"), "event_type": "step.delta"}
    machine.feed("step.delta", json.dumps(wire).encode())
    assert isinstance(machine.template, DeltaTemplate)
    wire["delta"] = make("two")
    data = json.dumps(wire).encode()
    assert machine.template.match(data, machine.template.start, machine.template.end) == "two"


def test_a_delta_with_more_than_a_text_is_read_whole() -> None:
    cited: dict[str, Any] = {"type": "url_citation", "url": "u"}
    wire = step(0, "model_output", {**text("a"), "annotations": [cited]}, {**text("b"), "annotations": [cited]})
    assert run(CREATED + wire + completed()).response.content == [Text("ab", citations=[cited, cited], state=TAG)]
