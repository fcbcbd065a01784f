"""Tool calls in the forms that servers send."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.model.events import Start, ToolCallDelta, ToolCallDone, ToolCallStart

from .wire import OPENAI, answer, deltas, run


def fragment(**members: object) -> ms.JSONObject:
    """Return a delta with one fragment. `name` and `arguments` belong to its function."""
    function = {name: members.pop(name) for name in ("name", "arguments") if name in members}
    return {"tool_calls": [{**members, "function": function}]}  # type: ignore[dict-item]


def test_one_call_in_fragments() -> None:
    outcome = deltas(
        {"role": "assistant", "content": None}, fragment(index=0, id="call_1", type="function", name="weather",
        arguments=""), fragment(index=0, arguments='{"ci'), fragment(index=0, arguments='ty":1}'), finish="tool_calls",
        provider=OPENAI,
    )  # fmt: skip
    assert outcome.events[1:-1] == [
        ToolCallStart(0, "call_1", "weather"), ToolCallDelta(0, '{"ci'), ToolCallDelta(0, 'ty":1}'),
        ToolCallDone(0, complete=True),
    ]  # fmt: skip
    assert outcome.done.finish_reason is ms.FinishReason.TOOL_USE
    assert outcome.response.content == [ms.ToolCall("call_1", "weather", '{"city":1}')]


def test_a_name_in_pieces_is_delivered_once_it_is_complete() -> None:
    pieces = [fragment(index=0, id="a", name="get_", arguments=""), fragment(index=0, name="weather", arguments="")]
    outcome = deltas(*pieces, fragment(index=0, arguments="{}"), finish="tool_calls")
    assert outcome.events[:-1] == [
        Start("m-1", "chatcmpl-1"), ToolCallStart(0, "a", "get_weather"), ToolCallDelta(0, "{}"),
        ToolCallDone(0, complete=True),
    ]  # fmt: skip
    assert outcome.calls == [("a", "get_weather", "{}")]
    assert deltas(*pieces, finish="tool_calls").calls == [("a", "get_weather", "")]
    spoken = deltas(*pieces, {"content": "hm"}, fragment(index=0, arguments="{}"))
    assert [type(event).__name__ for event in spoken.events] == [
        "Start", "ToolCallStart", "TextDelta", "ToolCallDelta", "ToolCallDone", "Done",
    ]  # fmt: skip


def test_a_stream_that_is_cut_after_a_name_has_the_call() -> None:
    data = json.dumps({"choices": [{"delta": fragment(index=0, id="a", name="t", arguments="")}]}).encode()
    outcome = run([("", data)])
    assert outcome.error.error.message == "truncated stream"
    assert ToolCallStart(0, "a", "t") in outcome.events
    assert outcome.response.content == [ms.ToolCall("a", "t", "", complete=False)]


def several(*functions: tuple[str, str, str]) -> ms.JSONObject:
    """Return a delta with fragments of several calls, each an id, a name and arguments, and none with an index."""
    calls: list[ms.JSONObject] = []
    for id, name, arguments in functions:
        call = {"id": id, "function": {"name": name, "arguments": arguments}}
        calls.append({key: value for key, value in call.items() if value})
    return {"tool_calls": calls}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        # The calls of one delta continue in their order.
        ([several(("a", "t", ""), ("b", "u", "")), several(("", "", "["), ("", "", "{"))],
            [("a", "t", "["), ("b", "u", "{")]),
        # So do calls that began in a delta each.
        ([several(("a", "t", "")), several(("b", "u", "")), several(("", "", "["), ("", "", "{"))],
            [("a", "t", "["), ("b", "u", "{")]),
        # A fragment that is alone continues the latest call.
        ([several(("a", "t", "["), ("b", "u", "{")), several(("", "", "}"))], [("a", "t", "["), ("b", "u", "{}")]),
        # An id decides, wherever its fragment is; so does a name, which begins a call.
        ([several(("a", "t", "["), ("b", "u", "{")), several(("b", "", "}"), ("a", "", "]"))],
            [("a", "t", "[]"), ("b", "u", "{}")]),
        ([several(("a", "t", "[]"), ("b", "u", "{}")), several(("", "v", "1"), ("", "w", "2"))],
            [("a", "t", "[]"), ("b", "u", "{}"), ("made-1", "v", "1"), ("made-2", "w", "2")]),
        # More fragments than calls: the last ones continue the latest call.
        ([several(("a", "t", "1")), several(("", "", "2"), ("", "", "3"))], [("a", "t", "123")]),
    ],
)  # fmt: skip
def test_several_fragments_without_an_index(pieces: list[ms.JSONObject], calls: list[tuple[str, str, str]]) -> None:
    assert deltas(*pieces, finish="tool_calls").calls == calls


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        # Index and type missing.
        ([fragment(id="a", name="t", arguments="{}")], [("a", "t", "{}")]),
        # An index that begins with 1.
        ([fragment(index=1, id="a", name="t"), fragment(index=1, arguments="{}")], [("a", "t", "{}")]),
        # An empty id in later fragments.
        ([fragment(index=0, id="a", name="t"), fragment(index=0, id="", arguments="{}")], [("a", "t", "{}")]),
        # No id at all.
        ([fragment(index=0, name="t"), fragment(index=0, arguments="{}")], [("made-1", "t", "{}")]),
        ([fragment(index=0, id=None, name="t", arguments=None)], [("made-1", "t", "")]),
        # Id and name in every fragment.
        ([fragment(index=0, id="a", name="t", arguments="{"), fragment(index=0, id="a", name="t", arguments="}")],
            [("a", "t", "{}")]),
        # Every parallel call has index 0.
        ([fragment(index=0, id="a", name="t", arguments="1"), fragment(index=0, id="b", name="t", arguments="2")],
            [("a", "t", "1"), ("b", "t", "2")]),
        # The name comes late.
        ([fragment(index=0, id="a", arguments="{"), fragment(index=0, name="t", arguments="}")], [("a", "t", "{}")]),
        # Arguments as an object.
        ([fragment(index=0, id="a", name="t", arguments={"x": 1})], [("a", "t", '{"x":1}')]),
        # Fields of the wrong kind.
        ([fragment(index="0", id=5, name="t", arguments="{}")], [("made-1", "t", "{}")]),
    ],
)  # fmt: skip
def test_fragments_are_assigned_to_calls(fragments: list[ms.JSONObject], expected: list[tuple[str, str, str]]) -> None:
    outcome = deltas(*fragments, finish="tool_calls")
    assert outcome.calls == expected
    assert [(call.id, call.name, call.arguments) for call in outcome.response.tool_calls] == expected


@pytest.mark.parametrize(
    ("finish", "reason", "complete"),
    [
        ("stop", ms.FinishReason.TOOL_USE, True),
        ("tool_calls", ms.FinishReason.TOOL_USE, True),
        ("length", ms.FinishReason.LENGTH, False),
        ("content_filter", ms.FinishReason.CONTENT_FILTER, False),
        (None, ms.FinishReason.TOOL_USE, True),
        ("tired", ms.FinishReason.TOOL_USE, True),
    ],
)
def test_the_finish_reason_of_an_answer_with_calls(finish: str | None, reason: ms.FinishReason, complete: bool) -> None:
    outcome = deltas(fragment(index=0, id="a", name="t", arguments='{"x": 1}'), finish=finish)
    assert outcome.done.finish_reason is reason
    assert outcome.done.raw_finish_reason == finish
    assert outcome.events[-2] == ToolCallDone(0, complete)
    assert outcome.response.tool_calls[0].complete is complete


def test_the_older_function_call() -> None:
    outcome = deltas(
        {"function_call": {"name": "t", "arguments": ""}}, {"function_call": {"arguments": "{"}},
        {"function_call": {"arguments": "}"}}, finish="function_call",
    )  # fmt: skip
    assert outcome.calls == [("made-1", "t", "{}")]
    assert outcome.done.finish_reason is ms.FinishReason.TOOL_USE
    response = answer({"content": None, "function_call": {"name": "t", "arguments": "{}"}}, "function_call")
    assert response.content == outcome.response.content
    assert answer({"content": "a", "function_call": "odd"}).content == [ms.Text("a")]


def test_custom_tools() -> None:
    whole = {"id": "a", "type": "custom", "custom": {"name": "math", "input": "4 + 4"}}
    state = ms.ProviderState("openai-chat", {"type": "custom"})
    outcome = deltas(
        {"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "math", "input": "4 "}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "+ 4"}}]}, finish="tool_calls", provider=OPENAI,
    )  # fmt: skip
    assert outcome.response.content == [ms.ToolCall("a", "math", "4 + 4", state=state)]
    unstreamed = answer({"content": None, "tool_calls": [whole]}, "tool_calls")
    assert unstreamed.tool_calls[0].arguments == "4 + 4"


def test_a_function_with_an_empty_custom_member_is_a_function() -> None:
    call = {
        "id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"},
        "custom": {"name": "", "input": ""},
    }  # fmt: skip
    response = answer({"content": "", "tool_calls": [call]}, "")
    assert response.content == [ms.ToolCall("a", "t", "{}")]


def test_whole_calls_are_never_merged() -> None:
    """Two whole calls with missing or equal ids remain two calls."""
    plain = {"type": "function", "function": {"name": "t", "arguments": "{}"}}
    response = answer({"content": None, "tool_calls": [plain, plain, plain | {"id": "a"}, plain | {"id": "a"}]}, "stop")
    assert [call.id for call in response.tool_calls] == ["made-1", "made-2", "a", "a_2"]
    assert response.finish_reason is ms.FinishReason.TOOL_USE
