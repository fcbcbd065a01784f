"""The incremental JSON parser: correct at every prefix, for every way of cutting the text, and in linear time."""

import itertools
import tracemalloc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manystream.partial_json import DEEPEST, Change, LiveCalls, PartialJSON
from manystream.providers.json.json_values import JSON, loads
from manystream.providers.model.events import TextDelta, ToolCallDelta, ToolCallDone, ToolCallStart

TEXT = '{"city": "Zürich \\ud83d\\ude00\\n", "days": [1, -2.5e3, true, null], "deep": {"": {}, "x": []}, "last": false}'

scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    scalars | strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=12,
)


def written(value: JSON, style: int) -> str:
    """Write a value as JSON text: compact, indented, or with all possible escapes."""
    import json

    if style == 0:
        return orjson.dumps(value).decode()
    return json.dumps(value, indent=1 if style == 1 else None, ensure_ascii=style == 2)


def fed(*pieces: str) -> tuple[PartialJSON, list[Change]]:
    view = PartialJSON()
    changes = [change for piece in pieces for change in view.feed(piece)]
    return view, changes


def rebuilt(changes: list[Change]) -> JSON:
    """Return the value that results from applying the changes alone."""
    root: list[JSON] = []
    for change in changes:
        node: JSON = root
        for step in (0, *change.path[:-1]) if change.path else ():
            node = node[step]  # type: ignore[index,call-overload]
        key = change.path[-1] if change.path else 0
        before: JSON = None
        if isinstance(node, dict):
            before = node.get(str(key))
        elif isinstance(node, list) and key < len(node):  # type: ignore[operator]
            before = node[key]  # type: ignore[index]
        if isinstance(change.value, dict | list):
            after: JSON = before if change.ended else type(change.value)()
        elif isinstance(change.value, str) and isinstance(before, str):
            after = before + change.value
        else:
            after = change.value
        if isinstance(node, dict):
            node[str(key)] = after
        else:
            assert isinstance(node, list)
            node[len(node) if key == len(node) else key :] = [after]  # type: ignore[misc]
    return root[0] if root else None


def grows_into(partial: JSON, whole: JSON) -> bool:
    """Return whether `partial` can be an earlier state of `whole`."""
    if isinstance(partial, str) and isinstance(whole, str):
        return whole.startswith(partial)
    if isinstance(partial, list) and isinstance(whole, list):
        return len(partial) <= len(whole) and all(map(grows_into, partial, whole))
    if isinstance(partial, dict) and isinstance(whole, dict):
        return list(partial) == list(whole)[: len(partial)] and all(
            grows_into(member, whole[name]) for name, member in partial.items()
        )
    return type(partial) is type(whole) and partial == whole


def test_the_value_grows_as_the_text_does() -> None:
    view = PartialJSON()
    seen: list[tuple[str, str]] = []
    for piece in ('{"ci', 'ty": "Os', 'lo", "days', '": [1', "2, 3", "], ", '"ok": tr', "ue}"):
        view.feed(piece)
        seen.append((piece, orjson.dumps(view.value).decode()))
    assert [value for _, value in seen] == [
        "{}", '{"city":"Os"}', '{"city":"Oslo"}', '{"city":"Oslo","days":[]}', '{"city":"Oslo","days":[12]}',
        '{"city":"Oslo","days":[12,3]}', '{"city":"Oslo","days":[12,3]}', '{"city":"Oslo","days":[12,3],"ok":true}',
    ]  # fmt: skip
    assert view.ended
    assert view.broken is None


def test_changes_have_path_and_value() -> None:
    _, changes = fed('{"a": ["x', 'y", 1]}')
    assert [(change.path, change.value if not isinstance(change.value, dict | list) else "…", change.ended)
            for change in changes] == [
        ((), "…", False),
        (("a",), "…", False),
        (("a", 0), "x", False),
        (("a", 0), "y", True),
        (("a", 1), 1, True),
        (("a",), "…", True),
        ((), "…", True),
    ]  # fmt: skip


@pytest.mark.parametrize("cut", range(len(TEXT) + 1))
def test_any_cut_in_two_gives_the_same(cut: int) -> None:
    view, changes = fed(TEXT[:cut], TEXT[cut:])
    assert (view.value, view.ended, view.broken) == (orjson.loads(TEXT), True, None)
    assert rebuilt(changes) == view.value


@given(values, st.integers(0, 2), st.data())
def test_every_prefix_is_a_part_of_the_whole_value(value: JSON, style: int, data: st.DataObject) -> None:
    text = written(value, style)
    whole = orjson.loads(text)
    view = PartialJSON()
    changes: list[Change] = []
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=len(text) + 1)))
    for start, end in itertools.pairwise([0, *places, len(text)]):
        changes += view.feed(text[start:end])
        assert view.broken is None
        if view.value is not None:
            assert grows_into(view.value, whole)
    changes += view.close()
    assert view.ended
    assert view.broken is None
    assert view.value == whole
    assert rebuilt(changes) == whole


@given(st.text('{}[]",:\\u0123dDeE8-.tfn xé\n', max_size=40))
def test_broken_is_set_only_for_text_that_is_not_json(text: str) -> None:
    view, _ = fed(*text)
    view.close()
    try:
        expected = loads(text)
    except ValueError:
        assert view.broken is not None
    else:
        assert view.broken is None
        assert view.value == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a" 1}', "'1' found where ':' was expected"),
        ("{,}", "',' found where a member's name or '}' was expected"),
        ("[1,]", "']' found where a value was expected"),
        ("[1 2]", "'2' found where ',' or the closing bracket was expected"),
        ("[}", "'}' found where a value or ']' was expected"),
        ("{} {", "'{' found where nothing more was expected"),
        ("[tru]", "'tru' is neither a number nor a literal"),
        ("[01]", "'01' is neither a number nor a literal"),
        ('["\\x"]', "a string holds the escape '\\\\x'"),
        ('["\\u12g4"]', "a string holds the escape '\\\\u12g'"),
        ('["\n"]', "a string holds the control character '\\n'"),
        ('{"a": 1', "the text ends before the value does"),
        ("", "the text ends before the value does"),
    ],
)
def test_broken_has_the_reason_and_the_value_is_kept(text: str, why: str) -> None:
    view, _ = fed(*text)
    view.close()
    assert view.broken == why
    before = repr(view.value)
    assert view.feed('"more"') == []
    assert repr(view.value) == before


def test_nesting_is_limited() -> None:
    view, _ = fed("[" * DEEPEST)
    assert view.broken is None
    view.feed("[")
    assert view.broken == f"containers are nested more than {DEEPEST} deep"


@pytest.mark.parametrize(
    ("escape", "character"),
    [
        (r"\"", '"'),
        (r"\\", "\\"),
        (r"\/", "/"),
        (r"\b", "\x08"),
        (r"\f", "\x0c"),
        (r"\n", "\n"),
        (r"\r", "\r"),
        (r"\t", "\t"),
        (r"\u00e9", "é"),
        (r"\u00E9", "é"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud800\udc00", "\U00010000"),
        (r"\udbff\udfff", "\U0010ffff"),
        (r"\ud7ff", "\ud7ff"),
        (r"\ue000", "\ue000"),
    ],
)
def test_every_escape_of_json_is_read(escape: str, character: str) -> None:
    text = f'{{"a{escape}b": "c{escape}d"}}'
    for pieces in ((text,), tuple(text)):
        view, changes = fed(*pieces)
        assert (view.value, view.broken) == ({f"a{character}b": f"c{character}d"}, None)
        assert rebuilt(changes) == view.value


def test_lone_surrogates_become_the_replacement_character() -> None:
    view, _ = fed(*'["\\ud83d", "\\ude00x", "\\ud83d\\ud83d\\ude00", "\\ud83dn"]')
    assert view.value == ["\ufffd", "\ufffdx", "\ufffd😀", "\ufffdn"]
    view, _ = fed(*'["\\ud800", "\\udbff", "\\udc00", "\\udfff", "\\udbff\\ue000", "\\udbff\\udbff"]')
    assert view.value == ["\ufffd", "\ufffd", "\ufffd", "\ufffd", "\ufffd\ue000", "\ufffd\ufffd"]


def test_the_last_of_two_members_with_one_name_counts() -> None:
    view, _ = fed('{"a": [1], "a": "x')
    assert view.value == {"a": "x"}


def steps(length: int) -> int:
    """Return how many characters are read for a text of about this length that arrives in pieces of four."""
    looked = 0

    class Counted(str):
        pass

    import manystream.partial_json as module

    plain = module._PLAIN  # pyright: ignore[reportPrivateUsage]

    class Counting:
        def match(self, text: str, position: int) -> object:
            nonlocal looked
            match = plain.match(text, position)
            looked += 1 + (match.end() - position if match else 0)
            return match

    module._PLAIN = Counting()  # type: ignore[assignment]  # pyright: ignore
    try:
        text = orjson.dumps({"code": "line of code\n" * (length // 13)}).decode()
        fed(*(text[start : start + 4] for start in range(0, len(text), 4)))
    finally:
        module._PLAIN = plain  # pyright: ignore[reportPrivateUsage]
    return looked


def test_ten_times_the_text_is_ten_times_the_work() -> None:
    assert steps(20_000) < 11 * steps(2_000)


def nested(length: int) -> str:
    """Return text of about that length whose brackets are nearly as deep as allowed."""
    inner = DEEPEST - 100
    return "[" * inner + "[]," * (length // 3) + "[]" + "]" * inner


def peak_of_changes(text: str) -> int:
    """Return the most bytes allocated while a call's arguments of this text are parsed, delta by delta."""
    calls = LiveCalls()
    calls.on_event(ToolCallStart(0, "a", "f"))
    tracemalloc.start()
    try:
        for start in range(0, len(text), 20_000):
            calls.on_event(ToolCallDelta(0, text[start : start + 20_000]))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_deep_nesting_costs_linear_memory() -> None:
    text = nested(20_000)
    assert peak_of_changes(text) < 400 * len(text)
    (*_, last) = fed(text)[1][: 2 * (DEEPEST - 100)]
    assert len(last.path) > DEEPEST - 102


def test_live_calls_are_updated_by_a_streams_events() -> None:
    calls = LiveCalls()
    assert calls.on_event(TextDelta(0, "Let me look.")) == []
    calls.on_event(ToolCallStart(1, "a", "write"))
    calls.on_event(ToolCallStart(2, "b", "read"))
    calls.on_event(ToolCallDelta(1, '{"text": "Dear'))
    assert [change.value for change in calls.on_event(ToolCallDelta(1, " Ada"))] == [" Ada"]
    calls.on_event(ToolCallDelta(2, '{"path": "/"}'))
    calls.on_event(ToolCallDone(2, True))
    calls.on_event(ToolCallDone(1, False))
    assert [(call.name, call.arguments.value, call.done, call.complete) for call in calls] == [
        ("write", {"text": "Dear Ada"}, True, False),
        ("read", {"path": "/"}, True, True),
    ]
    assert calls[1].id == "a"
    assert calls.on_event(ToolCallDelta(7, "{}")) == []


def test_the_repr_shows_how_far_the_text_is() -> None:
    states = {"[1": "growing", "[1]": "ended", "[x": "growing", "[x]": "broken: 'x' is neither a number nor a literal"}
    for text, state in states.items():
        assert repr(fed(text)[0]) == f"<PartialJSON {state}>"
    calls = LiveCalls()
    calls.on_event(ToolCallStart(0, "a", "f"))
    assert (repr(calls[0]), calls[0].done, calls[0].complete) == ("<LiveCall f <PartialJSON growing>>", False, False)
    assert calls.on_event(ToolCallDone(3, True)) == []
    assert [call.id for call in calls] == ["a"]


def test_the_value_can_be_read_inside_every_kind_of_text() -> None:
    view = PartialJSON()
    seen: list[object] = []
    for piece in ('{"a', '": ', '"x\\', "n", '", "a', 'b": -', "1", ', "c": "\\ud83d', "\\ude0", '0y"', "}"):
        view.feed(piece)
        seen.append(orjson.loads(orjson.dumps(view.value)))
    assert seen == [
        {}, {}, {"a": "x"}, {"a": "x\n"}, {"a": "x\n"}, {"a": "x\n"}, {"a": "x\n"}, {"a": "x\n", "ab": -1, "c": ""},
        {"a": "x\n", "ab": -1, "c": ""}, {"a": "x\n", "ab": -1, "c": "😀y"}, {"a": "x\n", "ab": -1, "c": "😀y"},
    ]  # fmt: skip
    assert (view.ended, view.broken, view.close()) == (True, None, [])


def test_a_number_alone_ends_with_the_text() -> None:
    view, changes = fed("1", "2")
    assert (changes, view.ended, view.value) == ([], False, None)
    assert [(change.path, change.value, change.ended) for change in view.close()] == [((), 12, True)]
    assert (view.ended, view.value, view.close()) == (True, 12, [])
    view, _ = fed("12 ")
    assert view.ended
    broken, _ = fed('"a', "\x01")
    assert (broken.broken, broken.close(), broken.value) == ("a string holds the control character '\\x01'", [], "a")
