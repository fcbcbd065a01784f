"""Assigning fragments of tool calls to calls."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from json import dumps

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.json.json_values import same_text
from manystream.providers.model.events import ToolCallDelta, ToolCallDone, ToolCallStart
from manystream.providers.openai.chat.tool_calls import LEGACY_INDEX, ToolCallMatcher
from manystream.providers.wire import accumulate
from manystream.providers.wire.accumulate import Accumulator
from tests.conformance.exchange import provider_for

Fragment = tuple[str, int | None, str, str]


def match(*fragments: Fragment) -> tuple[list[tuple[str, str, str]], list[ms.Event]]:
    """Return the calls that fragments make, and their events."""
    numbers = count(1)
    answer = Accumulator()
    matcher = ToolCallMatcher(answer, lambda: f"made-{next(numbers)}")
    events: list[ms.Event] = []
    for fragment in fragments:
        events.extend(matcher.fragment(*fragment)[1])
    events.extend(matcher.release())
    events.extend(answer.done(ms.FinishReason.STOP, "stop")[:-1])
    return [(call.id, call.name, call.arguments) for call in answer.response().tool_calls], events


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        # By index, with any id: an id that comes again at another index is another call.
        ([("a", 0, "t", "1"), ("b", 1, "u", "2"), ("a", 1, "", "3")], [("a", "t", "1"), ("b", "u", "23")]),
        ([("a", 0, "t", "{}"), ("a", 1, "t", "{}")], [("a", "t", "{}"), ("a_2", "t", "{}")]),
        ([("a", 0, "t", "1"), ("a", 1, "u", "2"), ("a", 0, "", "3"), ("a", 1, "", "4")],
            [("a", "t", "13"), ("a_2", "u", "24")]),
        ([("a", 0, "t", "1"), ("a", 1, "", "2"), ("a", 1, "u", "3")], [("a", "t", "1"), ("a_2", "u", "23")]),
        ([("a", 0, "t", "1"), ("a_2", 1, "u", "2"), ("a", 2, "v", "3")],
            [("a", "t", "1"), ("a_2", "u", "2"), ("a_3", "v", "3")]),
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
        # The whole arguments again, with and without id, index and name, after one piece or several.
        ([("a", 0, "t", '{"x":1}'), ("a", 0, "t", '{"x":1}')], [("a", "t", '{"x":1}')]),
        ([("a", 0, "t", '{"x":1}'), ("a", 0, "", '{"x":1}'), ("", 0, "", '{"x":1}')], [("a", "t", '{"x":1}')]),
        ([("a", 0, "t", '{"x":1}'), ("", 0, "t", '{"x":1}')], [("a", "t", '{"x":1}')]),
        ([("a", None, "t", '{"x":1}'), ("", None, "t", '{"x":1}')], [("a", "t", '{"x":1}')]),
        ([("", 0, "t", '{"x"'), ("", 0, "", ":1}"), ("", 0, "t", ' { "x" : 1 }\n')], [("made-1", "t", '{"x":1}')]),
        ([("", None, "t", "["), ("", None, "", "1]"), ("", None, "", "[ 1 ]")], [("made-1", "t", "[1]")]),
        ([("", LEGACY_INDEX, "t", "{}"), ("", LEGACY_INDEX, "t", "{}")], [("made-1", "t", "{}")]),
        ([("a", 0, "t", "{}"), ("b", 1, "t", "{}"), ("", 0, "t", "{}"), ("", 1, "t", "{}")],
            [("a", "t", "{}"), ("b", "t", "{}")]),
        # Other arguments are not the same again.
        ([("a", 0, "t", '{"x":1}'), ("a", 0, "t", '{"x":2}')], [("a", "t", '{"x":1}{"x":2}')]),
        ([("a", 0, "t", '{"x":1}'), ("a", 0, "t", '{"x":true}')], [("a", "t", '{"x":1}{"x":true}')]),
        ([("a", 0, "t", '{"x":1}'), ("", 0, "t", '{"x":2}')], [("a", "t", '{"x":1}'), ("made-1", "t", '{"x":2}')]),
        # The older single call.
        ([("", LEGACY_INDEX, "t", ""), ("", LEGACY_INDEX, "", "{}")], [("made-1", "t", "{}")]),
        ([("", LEGACY_INDEX, "get_", ""), ("", LEGACY_INDEX, "weather", "{}")], [("made-1", "get_weather", "{}")]),
        # A call without a name is not delivered.
        ([("a", 0, "", "1")], []),
    ],
)  # fmt: skip
def test_fragments_are_assigned_to_calls(fragments: list[Fragment], expected: list[tuple[str, str, str]]) -> None:
    assert match(*fragments)[0] == expected


def test_arguments_before_the_name_are_delivered_with_it() -> None:
    _, events = match(("a", 0, "", "1"), ("", 0, "", "2"), ("", 0, "t", "3"), ("", 0, "", "4"))
    assert events == [
        ToolCallStart(0, "a", "t"), ToolCallDelta(0, "123"), ToolCallDelta(0, "4"), ToolCallDone(0, complete=True),
    ]  # fmt: skip


def test_a_call_is_not_finished_because_its_arguments_parse() -> None:
    calls, events = match(("a", 0, "t", "{}"), ("a", 0, "", " "), ("a", 0, "", '{"b":2}'))
    assert calls == [("a", "t", '{} {"b":2}')]
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
    answer.done(ms.FinishReason.STOP, "stop")
    assert [call.id for call in answer.response().tool_calls] == ["made-1", "a", "a_2"]


def test_a_whole_call_without_a_name_joins_no_other() -> None:
    answer = Accumulator()
    matcher = ToolCallMatcher(answer, lambda: "made")
    matcher.whole("a", "t", '{"x":1}')
    for id in ("", "b", "a"):
        assert matcher.whole(id, "", '{"y":2}')[1] == ()
    answer.done(ms.FinishReason.STOP, "stop")
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


# --- arguments that come again, in every dialect ---

Make = Callable[[Sequence[str]], list[str]]


def chat(pieces: Sequence[str], *, first: str = '"id":"c",', name: str = '"name":"f",', later: str = "") -> list[str]:
    members = [(first, name), *[(later, "")] * (len(pieces) - 1)]
    calls = [
        f'{{"index":0,{id}"function":{{{named}"arguments":{dumps(text)}}}}}'
        for text, (id, named) in zip(pieces, members, strict=True)
    ]
    chunks = [f'{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}' for call in calls]
    return [*chunks, '{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}', "[DONE]"]


def chat_opened(pieces: Sequence[str]) -> list[str]:
    return chat(["", *pieces])


def chat_legacy(pieces: Sequence[str]) -> list[str]:
    calls = [f'{{"name":"f","arguments":{dumps(text)}}}' for text in pieces]
    chunks = [f'{{"choices":[{{"index":0,"delta":{{"function_call":{call}}}}}]}}' for call in calls]
    return [*chunks, '{"choices":[{"index":0,"delta":{},"finish_reason":"function_call"}]}', "[DONE]"]


def chat_usage(pieces: Sequence[str]) -> list[str]:
    usage = '"usage":{"completion_tokens":1},'
    return [text.replace('{"choices"', f'{{{usage}"choices"') for text in chat_opened(pieces)]


def anthropic(pieces: Sequence[str]) -> list[str]:
    deltas = [
        f'{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":{dumps(text)}}}}}'
        for text in pieces
    ]
    return [
        '{"type":"message_start","message":{}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}',
        *deltas,
        '{"type":"content_block_stop","index":0}',
        '{"type":"message_delta","delta":{"stop_reason":"tool_use"}}',
        '{"type":"message_stop"}',
    ]


def anthropic_late(pieces: Sequence[str]) -> list[str]:
    """Return a stream whose last piece comes after the end of its block."""
    events = anthropic(pieces)
    last, stop = events.index(events[-4]), events[-3]
    return [*events[:last], stop, events[last], *events[-2:]]


def responses(pieces: Sequence[str], kind: str = "function_call") -> list[str]:
    delta = "function_call_arguments" if kind == "function_call" else "custom_tool_call_input"
    deltas = [f'{{"type":"response.{delta}.delta","output_index":0,"delta":{dumps(text)}}}' for text in pieces]
    item = f'{{"type":"{kind}","id":"i","call_id":"c","name":"f"'
    return [
        f'{{"type":"response.output_item.added","output_index":0,"item":{item}}}}}',
        *deltas,
        f'{{"type":"response.output_item.done","output_index":0,"item":{item},"status":"completed"}}}}',
        '{"type":"response.completed","response":{"status":"completed"}}',
    ]


STREAMS: dict[str, tuple[str, Make]] = {
    "chat": ("openai-chat", chat),
    "chat, opened without arguments": ("openai-chat", chat_opened),
    "chat, ids repeated": ("openai-chat", partial(chat, later='"id":"c",')),
    "chat, no id": ("openai-chat", partial(chat, first="")),
    "chat, usage in each chunk": ("openai-chat", chat_usage),
    "chat, the older member": ("openai-chat", chat_legacy),
    "anthropic": ("anthropic", anthropic),
    "responses": ("openai-responses", responses),
}

AGAIN = [
    (['{"x":1}', '{"x":1}'], '{"x":1}'),
    (['{"x":1}', '{ "x": 1 }', '{"x":1}'], '{"x":1}'),
    (['{"', "x", '":', "1", "}", '{"x":1}'], '{"x":1}'),
    (['{"x":[{"y":1},', '{"y":1}', "]}", ' {"x": [{"y": 1}, {"y": 1}]}\n'], '{"x":[{"y":1},{"y":1}]}'),
    (['{"é":"\\ud83d\\ude00"', "}", '{"\\u00e9":"😀"}'], '{"é":"\\ud83d\\ude00"}'),
    (['{"b":1,"a":', "2}", '{"a":2,"b":1}'], '{"b":1,"a":2}'),
    (['{"x":', "NaN}", '{"x": NaN}'], '{"x":NaN}'),
    (["{}", "{}"], "{}"),
]
"""Pieces of a call whose arguments come again in the last piece, and the arguments."""


def run(dialect: str, events: Sequence[str]) -> tuple[list[ms.Event], ms.Response]:
    numbers = count(1)
    machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: f"made-{next(numbers)}")
    found = [each for event in events for each in machine.feed("", event.encode())]
    found += machine.end()
    return found, machine.response()


@pytest.mark.parametrize(("pieces", "arguments"), AGAIN)
@pytest.mark.parametrize("name", STREAMS)
def test_arguments_that_come_again_are_the_same_arguments(name: str, pieces: list[str], arguments: str) -> None:
    dialect, make = STREAMS[name]
    events, response = run(dialect, make(pieces))
    assert [(call.name, call.arguments, call.complete) for call in response.tool_calls] == [("f", arguments, True)]
    assert "".join(event.arguments for event in events if isinstance(event, ToolCallDelta)) == arguments
    assert response.warnings == ["the server sent the arguments of a call more than once; the call has them once"]
    assert response.finish_reason is ms.FinishReason.TOOL_USE


def test_arguments_that_come_again_after_their_block_are_equal() -> None:
    _, response = run("anthropic", anthropic_late(['{"x"', ":1}", '{"x":1}']))
    assert [call.arguments for call in response.tool_calls] == ['{"x":1}']


ONCE = [
    ['{"a":', '{"x":1}', ',"b":', '{"x":1}', "}"], ['{"a":[', '{"x":1}', ",", '{"x":1}', "]}"],
    ['{"a":"', '{"x":1}', '{"x":1}', '"}'], ['{"a":"}', "{", '"}'], ["[", "[1]", ",", "[1]", "]"],
    ['{"x":1}', '{"x":2}'], ['{"x":1}', '{"x":1,"y":2}'], ['{"x":1}', '{"x":tru'], ["{}", "[]"], ["1", "1"],
    ["{x}", "{x}"],
]  # fmt: skip
"""Pieces that are no repetition: pieces of a larger text, other values, and text that is no JSON."""


@pytest.mark.parametrize("pieces", ONCE)
@pytest.mark.parametrize("name", [name for name in STREAMS if "older" not in name])  # there, other arguments are a call
def test_pieces_that_are_equal_are_not_all_repetitions(name: str, pieces: list[str]) -> None:
    dialect, make = STREAMS[name]
    events, response = run(dialect, make(pieces))
    assert [call.arguments for call in response.tool_calls] == ["".join(pieces)]
    assert "".join(event.arguments for event in events if isinstance(event, ToolCallDelta)) == "".join(pieces)
    assert response.warnings == []


@pytest.mark.parametrize("name", STREAMS)
def test_a_repetition_in_pieces_is_removed_at_the_end(name: str) -> None:
    """Its deltas were delivered, and cannot be taken back."""
    dialect, make = STREAMS[name]
    pieces = ['{"x":', '"}{"}', '{"x": ', '"}{"} ', '{"x":"}{"}']
    events, response = run(dialect, make(pieces))
    assert [(call.arguments, call.complete) for call in response.tool_calls] == [('{"x":"}{"}', True)]
    assert "".join(event.arguments for event in events if isinstance(event, ToolCallDelta)) == "".join(pieces)
    assert response.warnings == ["the server sent the arguments of a call more than once; the call has them once"]


STREAMED = '"partialArgs":[{"jsonPath":"$.x[0].y","numberValue":1},{"jsonPath":"$.z","stringValue":"a"}],'
WHOLE = '{"z": "a", "x": [{"y": 1}]}'


@pytest.mark.parametrize("id", ["", '"id":"i",'])
@pytest.mark.parametrize(
    ("first", "last", "arguments"),
    [
        (STREAMED, f'"args":{WHOLE}', ['{"x":[{"y":1}],"z":"a"}']),
        (STREAMED, f'"args":{dumps(WHOLE)}', ['{"x":[{"y":1}],"z":"a"}']),
        (f'"args":{WHOLE},', f'"args":{WHOLE}', ['{"z":"a","x":[{"y":1}]}']),
        (STREAMED, '"args":{"z":"b"}', ['{"x":[{"y":1}],"z":"a"}', '{"z":"b"}']),
    ],
)
def test_streamed_gemini_arguments_that_come_whole(first: str, last: str, arguments: list[str], id: str) -> None:
    chunk = '{"candidates":[{"content":{"parts":[{"functionCall":{%s"name":"f",%s}}]}%s}]}'
    begun = chunk.replace("%s", id, 1).replace("%s", f'{first}"willContinue":true', 1).replace("%s", "")
    ended = chunk.replace("%s", id, 1).replace("%s", last, 1).replace("%s", ',"finishReason":"STOP"')
    events, response = run("gemini", [begun, ended])
    assert [call.arguments for call in response.tool_calls] == arguments
    assert all(call.complete for call in response.tool_calls)
    assert len([event for event in events if isinstance(event, ToolCallDone)]) == len(arguments)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"x":1}{"x":1}', '{"x":1}'),
        (' {"x":1}\n{"x": 1.0} {"x":1}', ' {"x":1}'),
        ('{"x":1}{"x":2}', '{"x":1}{"x":2}'),
        ('{"x":1}{"x":1', '{"x":1}{"x":1'),
        ('{"x":"}{"}', '{"x":"}{"}'),
        ("{}" * 50_000, "{}"),
        ("[" * 5000 + "]" * 5000 + "[" * 5000 + "]" * 5000, "[" * 5000 + "]" * 5000 + "[" * 5000 + "]" * 5000),
        ('{"n":' + "9" * 5000 + '}{"n":' + "9" * 4999 + "8}", '{"n":' + "9" * 5000 + '}{"n":' + "9" * 4999 + "8}"),
    ],
    ids=range(8),
)
def test_a_whole_answer_has_repeated_arguments_once(text: str, arguments: str) -> None:
    call = f'{{"id":"c","function":{{"name":"f","arguments":{dumps(text)}}}}}'
    body = f'{{"choices":[{{"message":{{"tool_calls":[{call}]}},"finish_reason":"tool_calls"}}]}}'
    response = DIALECTS["openai-chat"].decode(body.encode(), provider_for("openai-chat", "openai"), lambda: "made")
    assert [each.arguments for each in response.tool_calls] == [arguments]
    assert bool(response.warnings) is (text != arguments)


def test_the_input_of_a_custom_tool_is_any_text() -> None:
    pieces = ['{"x":1}', '{"x":1}']
    _, response = run("openai-responses", responses(pieces, "custom_tool_call"))
    assert [call.arguments for call in response.tool_calls] == ["".join(pieces)]
    calls = [f'{{"index":0,"id":"c","type":"custom","custom":{{"name":"f","input":{dumps(text)}}}}}' for text in pieces]
    chunks = [f'{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}' for call in calls]
    _, response = run("openai-chat", [*chunks, "[DONE]"])
    assert [call.arguments for call in response.tool_calls] == ["".join(pieces)]
    assert response.warnings == []


def test_repeated_pieces_take_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece looks like whole arguments. The text that is compared with them is bounded by their length."""
    compared: list[int] = []

    def same(one: str, other: str) -> bool:
        compared.append(len(one) + len(other))
        return same_text(one, other)

    monkeypatch.setattr(accumulate, "same_text", same)
    pieces = ['{"a":[', *['{"x":1}'] * 5000, "]}"]
    _, response = run("openai-chat", chat(pieces))
    assert response.tool_calls[0].arguments == "".join(pieces)
    assert sum(compared) <= 20 * len("".join(pieces))
