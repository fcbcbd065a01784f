"""The stream machine: each rule of the wire as text, whole, byte by byte and at every split point."""

from __future__ import annotations

import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.wire.delta_template import DeltaTemplate
from tests.providers.gemini_interactions.wire import (
    CREATED,
    DIALECT,
    END,
    PROVIDER,
    TAG,
    USAGE,
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
    usage = ms.Usage(30, 10, thinking_tokens=30, cached_tokens=5, total_tokens=70, raw=USAGE)
    assert outcome.events == [
        ms.Start("gemini-3.8-flash", "v1_1"),
        ms.TextDelta(0, "Hello"),
        ms.TextDelta(0, ", wörld"),
        ms.Done(ms.FinishReason.STOP, "completed", usage, {"service_tier": "standard"}),
    ]
    assert outcome.response.content == [ms.Text("Hello, wörld")]


@pytest.mark.parametrize("status", ["incomplete", "budget_exceeded", "requires_continuation", "failed"])
def test_the_last_call_of_a_cut_answer_is_not_complete(status: str) -> None:
    first = step(0, "function_call", arguments("{}"), **CALL)
    last = step(1, "function_call", arguments('{"a":'), **{**CALL, "id": "c2"})
    calls = run(CREATED + first + last + completed(status)).response.tool_calls
    assert [call.complete for call in calls] == [True, False]


def test_a_cancelled_interaction_is_an_error_with_what_came() -> None:
    outcome = run(CREATED + step(0, "model_output", text("a")) + completed("cancelled"))
    assert outcome.last.error.provider_code == "aborted"
    assert outcome.response.text == "a"


def test_a_failed_interaction_is_an_error_with_what_came() -> None:
    """As a failed answer of Responses is."""
    wire = CREATED + step(0, "model_output", text("a"))
    for end in (completed("failed"), sse({"event_type": "interaction.status_update", "status": "failed"}) + END):
        outcome = run_at_every_split(wire + end)
        assert isinstance(outcome.last, ms.ErrorEvent)
        assert (outcome.last.error.category, outcome.last.error.provider_code) == (ms.ErrorCategory.SERVER, "failed")
        assert outcome.last.error.message == "the interaction failed without a reason"
        assert (outcome.response.text, outcome.response.finish_reason) == ("a", ms.FinishReason.ERROR)
    with pytest.raises(ms.ProviderError) as caught:
        decode(interaction("failed", steps=[{"type": "model_output", "content": [text("a")]}]))
    assert str(caught.value) == str(outcome.last.error)
    assert caught.value.partial == outcome.response


def test_a_failed_interaction_with_an_error_is_that_error() -> None:
    errors = [{"code": "resource_exhausted", "message": "Too much."}]
    outcome = run(CREATED + completed("failed", errors=errors))
    assert outcome.last.error.category is ms.ErrorCategory.RATE_LIMIT
    failed = step(0, "model_output", error={"code": 13, "message": "It broke."})
    assert "It broke." in run(CREATED + failed + completed("failed")).last.error.message


@pytest.mark.parametrize(
    ("error", "category", "message"),
    [
        ({"message": "Boo.", "code": "internal_error"}, ms.ErrorCategory.SERVER, "Boo."),
        ({"message": "Boo.", "code": "resource_exhausted"}, ms.ErrorCategory.RATE_LIMIT, "Boo."),
        ({"message": "Boo.", "code": 503, "status": "UNAVAILABLE"}, ms.ErrorCategory.SERVER, "Boo."),
        ("raw text", ms.ErrorCategory.UNKNOWN, "raw text"),
        (None, ms.ErrorCategory.SERVER, "without a message"),
    ],
)
def test_an_error_event_ends_the_stream(error: Any, category: ms.ErrorCategory, message: str) -> None:
    wire = CREATED + step(0, "model_output", text("Half"), stop=False) + sse({"error": error, "event_type": "error"})
    outcome = run_at_every_split(wire + completed("failed"))
    assert isinstance(outcome.last, ms.ErrorEvent)
    assert outcome.last.error.category is category
    assert message in outcome.last.error.message
    assert outcome.response.text == "Half"


def test_json_lines_at_the_end_are_an_error() -> None:
    tail = '[{\n  "error": {\n    "code": 503,\n    "message": "Gone.",\n    "status": "UNAVAILABLE"\n  }\n}\n]\n'
    outcome = run_at_every_split(CREATED + step(0, "model_output", text("a"), stop=False) + tail)
    assert outcome.last.error.category is ms.ErrorCategory.SERVER


@pytest.mark.parametrize("end", ["", END, sse({"event_type": "interaction.status_update", "status": "in_progress"})])
def test_a_stream_without_its_end_is_truncated(end: str) -> None:
    outcome = run_at_every_split(CREATED + step(0, "model_output", text("a")) + end)
    assert outcome.last.error.category is ms.ErrorCategory.NETWORK
    assert "interaction.completed" in outcome.last.error.message


def test_a_status_and_the_mark_end_a_stream_without_completed() -> None:
    cut = sse({"event_type": "interaction.status_update", "status": "incomplete", "usage": USAGE})
    outcome = run_at_every_split(CREATED + step(0, "model_output", text("a")) + cut + END)
    assert (outcome.last.finish_reason, outcome.last.usage.total_tokens) == (ms.FinishReason.LENGTH, 70)


def test_an_event_has_the_type_of_its_data_or_its_name() -> None:
    wire = CREATED + step(0, "model_output", text("a")) + completed()
    bare = "".join(line for line in wire.splitlines(keepends=True) if not line.startswith("event:"))
    assert run_at_every_split(bare.replace("\n", "\r\n")) == run(wire)
    untyped = wire.replace(', "event_type": "step.delta"', "").replace(', "event_type": "interaction.completed"', "")
    assert "step.delta" in untyped
    assert run(untyped) == run(wire)


def test_an_answer_that_is_not_stored_has_its_id_late_or_never() -> None:
    begun = sse({"interaction": {"object": "interaction"}, "event_type": "interaction.created"})
    assert run(begun + completed()).response.id == "v1_1"
    outcome = run(begun + completed(id=None, model=None, usage=None))
    assert (outcome.response.id, outcome.response.model, outcome.response.usage) == (None, None, ms.Usage())


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
    expected = [ms.Thinking("hm", "s", state=TAG), ms.Text("Hello World"), ms.ToolCall("c1", "f", '{"a":1}')]
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
    assert isinstance(outcome.last, ms.ErrorEvent)
    assert outcome.last.error.category is ms.ErrorCategory.SERVER


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
    assert run(CREATED + wire + completed()).response.content == [ms.Text("ab", citations=[cited, cited], state=TAG)]
