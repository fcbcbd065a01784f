"""Assigning fragments of tool calls to calls."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manystream.providers.model.events import Event, FinishReason, ToolCallDelta, ToolCallDone, ToolCallStart
from manystream.providers.wire.accumulate import Accumulator
from manystream.providers.wire.tool_calls import LEGACY_INDEX, ToolCallMatcher

Fragment = tuple[str, int | None, str, str]


def match(*fragments: Fragment) -> tuple[list[tuple[str, str, str]], list[Event]]:
    """Return the calls that fragments make, and their events."""
    numbers = count(1)
    answer = Accumulator()
    matcher = ToolCallMatcher(answer, lambda: f"made-{next(numbers)}")
    events: list[Event] = []
    for fragment in fragments:
        events.extend(matcher.fragment(*fragment)[1])
    events.extend(matcher.release())
    events.extend(answer.done(FinishReason.STOP, "stop")[:-1])
    return [(call.id, call.name, call.arguments) for call in answer.response().tool_calls], events


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        # By index, with any id: an id that comes again at another index is another call.
        ([("a", 0, "t", "1"), ("b", 1, "u", "2"), ("a", 1, "", "3")], [("a", "t", "1"), ("b", "u", "23")]),
        ([("a", 0, "t", "{}"), ("a", 1, "t", "{}")], [("a", "t", "{}"), ("a_2", "t", "{}")]),
        (
            [("a", 0, "t", "1"), ("a", 1, "u", "2"), ("a", 0, "", "3"), ("a", 1, "", "4")],
            [("a", "t", "13"), ("a_2", "u", "24")],
        ),
        ([("a", 0, "t", "1"), ("a", 1, "", "2"), ("a", 1, "u", "3")], [("a", "t", "1"), ("a_2", "u", "23")]),
        (
            [("a", 0, "t", "1"), ("a_2", 1, "u", "2"), ("a", 2, "v", "3")],
            [("a", "t", "1"), ("a_2", "u", "2"), ("a_3", "v", "3")],
        ),
        # Calls that are all numbered 0, with their ids in each fragment.
        ([("a", 0, "t", "1"), ("b", 0, "u", "2"), ("a", 0, "", "3")], [("a", "t", "13"), ("b", "u", "2")]),
        # Without an index, by id.
        ([("a", None, "t", "1"), ("b", None, "u", "2"), ("a", None, "", "3")], [("a", "t", "13"), ("b", "u", "2")]),
        # By index.
        ([("a", 0, "t", "1"), ("b", 1, "u", "2"), ("", 0, "", "3")], [("a", "t", "13"), ("b", "u", "2")]),
        ([("", 5, "t", "1"), ("", 5, "", "2")], [("made-1", "t", "12")]),
        # Otherwise the latest.
        ([("a", 0, "t", "1"), ("b", 1, "u", "2"), ("", None, "", "3")], [("a", "t", "1"), ("b", "u", "23")]),
        # The same index with a different id is a new call.
        ([("a", 0, "t", "1"), ("b", 0, "t", "2"), ("", 0, "", "3")], [("a", "t", "1"), ("b", "t", "23")]),
        # An id that changes with every fragment is ignored.
        ([("a", 0, "t", "1"), ("x", 0, "", "2"), ("y", 0, "", "3")], [("a", "t", "123")]),
        # A made id is kept when an id comes late, and the late one selects the call.
        ([("", 0, "t", "1"), ("late", 0, "", "2"), ("late", None, "", "3")], [("made-1", "t", "123")]),
        # A new id without a name begins no call, even before this call's name has come.
        ([("a", 0, "", "1"), ("b", 0, "", "2"), ("", 0, "t", "3")], [("a", "t", "123")]),
        # The id comes before the name, or after it.
        ([("a", 0, "", "1"), ("", 0, "t", "2")], [("a", "t", "12")]),
        ([("", 0, "", "1"), ("a", 0, "t", "2")], [("a", "t", "12")]),
        # A name that is repeated.
        ([("a", 0, "t", "1"), ("a", 0, "t", "2")], [("a", "t", "12")]),
        ([("", 0, "t", '{"x"'), ("", 0, "t", ": 1}")], [("made-1", "t", '{"x": 1}')]),
        # Without an id, another name at the same index is another call, and so is a second whole object.
        ([("", 0, "t", "1"), ("", 0, "u", "2")], [("made-1", "t", "1"), ("made-2", "u", "2")]),
        ([("", 0, "t", "{}"), ("", 0, "t", "{}")], [("made-1", "t", "{}"), ("made-2", "t", "{}")]),
        # Without id and index, each name begins a call.
        ([("", None, "t", "1"), ("", None, "t", "2")], [("made-1", "t", "1"), ("made-2", "t", "2")]),
        ([("", None, "", "1"), ("", None, "t", "2")], [("made-1", "t", "12")]),
        # A call without arguments.
        ([("a", 0, "t", "")], [("a", "t", "")]),
        # A name in pieces, with an id in the first one or in each, and one that grows.
        ([("a", 0, "get_", ""), ("", 0, "weather", ""), ("", 0, "", "{}")], [("a", "get_weather", "{}")]),
        ([("a", 0, "get_", ""), ("a", 0, "weather", "{}")], [("a", "get_weather", "{}")]),
        ([("a", None, "get_", ""), ("a", None, "weather", "{}")], [("a", "get_weather", "{}")]),
        ([("a", 0, "get_", ""), ("a", 0, "get_weather", ""), ("a", 0, "", "{}")], [("a", "get_weather", "{}")]),
        ([("a", 0, "t", ""), ("a", 0, "t", ""), ("a", 0, "", "{}")], [("a", "t", "{}")]),
        # No piece of a name: there are arguments, another call, another id, or no id at all.
        ([("a", 0, "t", "{"), ("a", 0, "u", "}")], [("a", "t", "{}")]),
        ([("a", 0, "t", ""), ("b", 1, "u", ""), ("a", 0, "v", "{}")], [("a", "t", "{}"), ("b", "u", "")]),
        ([("a", 0, "t", ""), ("b", 0, "u", "{}")], [("a", "t", ""), ("b", "u", "{}")]),
        ([("", 0, "t", ""), ("", 0, "u", "{}")], [("made-1", "t", ""), ("made-2", "u", "{}")]),
        ([("", None, "t", ""), ("", None, "u", "{}")], [("made-1", "t", ""), ("made-2", "u", "{}")]),
        # The older single call.
        ([("", LEGACY_INDEX, "t", ""), ("", LEGACY_INDEX, "", "{}")], [("made-1", "t", "{}")]),
        ([("", LEGACY_INDEX, "get_", ""), ("", LEGACY_INDEX, "weather", "{}")], [("made-1", "get_weather", "{}")]),
        # A call without a name is not delivered.
        ([("a", 0, "", "1")], []),
    ],
)
def test_fragments_are_assigned_to_calls(fragments: list[Fragment], expected: list[tuple[str, str, str]]) -> None:
    assert match(*fragments)[0] == expected


def test_arguments_before_the_name_are_delivered_with_it() -> None:
    _, events = match(("a", 0, "", "1"), ("", 0, "", "2"), ("", 0, "t", "3"), ("", 0, "", "4"))
    assert events == [
        ToolCallStart(0, "a", "t"),
        ToolCallDelta(0, "123"),
        ToolCallDelta(0, "4"),
        ToolCallDone(0, complete=True),
    ]


def test_a_call_is_not_finished_because_its_arguments_parse() -> None:
    calls, events = match(("a", 0, "t", "{}"), ("a", 0, "", " "), ("a", 0, "", "{}"))
    assert calls == [("a", "t", "{} {}")]
    assert isinstance(events[-1], ToolCallDone)
    assert not any(isinstance(event, ToolCallDone) for event in events[:-1])


def test_calls_without_a_name_are_counted() -> None:
    answer = Accumulator()
    matcher = ToolCallMatcher(answer, lambda: "made")
    assert matcher.nameless == 0
    matcher.fragment("a", 0, "", "1")
    matcher.fragment("", None, "", "2")
    matcher.fragment("b", 1, "", "")
    assert matcher.nameless == 2
    matcher.fragment("a", 0, "t", "")
    assert matcher.nameless == 1


def test_whole_calls_are_never_merged() -> None:
    numbers = count(1)
    answer = Accumulator()
    matcher = ToolCallMatcher(answer, lambda: f"made-{next(numbers)}")
    for id in ("", "a", "a"):
        matcher.whole(id, "t", "{}")
    answer.done(FinishReason.STOP, "stop")
    assert [call.id for call in answer.response().tool_calls] == ["made-1", "a", "a_2"]


def test_a_whole_call_without_a_name_joins_no_other() -> None:
    answer = Accumulator()
    matcher = ToolCallMatcher(answer, lambda: "made")
    matcher.whole("a", "t", '{"x":1}')
    for id in ("", "b", "a"):
        assert matcher.whole(id, "", '{"y":2}')[1] == ()
    answer.done(FinishReason.STOP, "stop")
    assert [(call.id, call.arguments) for call in answer.response().tool_calls] == [("a", '{"x":1}')]
    assert matcher.nameless == 3


@given(
    st.lists(st.tuples(st.integers(0, 3), st.text("xyz", min_size=1, max_size=4)), min_size=1, max_size=20),
    st.sampled_from(["ids once", "ids always", "no ids", "no indexes"]),
)
def test_interleaved_calls_are_assembled(pieces: list[tuple[int, str]], style: str) -> None:
    """Up to four calls whose pieces come in any order, in each style of identifying them."""
    seen: set[int] = set()
    fragments: list[Fragment] = []
    expected: dict[int, str] = {}
    for call, piece in pieces:
        first = call not in seen
        seen.add(call)
        expected[call] = expected.get(call, "") + piece
        id = "" if style == "no ids" or (style == "ids once" and not first) else f"id-{call}"
        fragments.append((id, None if style == "no indexes" else call, f"t{call}" if first else "", piece))
    calls, _ = match(*fragments)
    assert [arguments for _, _, arguments in calls] == list(expected.values())
    assert [name for _, name, _ in calls] == [f"t{call}" for call in expected]
