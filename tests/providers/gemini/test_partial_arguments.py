"""Arguments in pieces: for any pieces, the text is JSON with their values."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.gemini.partial_arguments import PartialArguments, path_steps

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No deadline, because the machine may be busy."""


def assembled(pieces: list[dict[str, Any]]) -> tuple[Any, PartialArguments]:
    arguments = PartialArguments()
    text = "".join([*map(arguments.add, pieces), arguments.close()])
    return json.loads(text), arguments


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$.a", ("a",)),
        ("$.a.b[0][12].c_d", ("a", "b", 0, 12, "c_d")),
        ("$['a b'].c", ("a b", "c")),
        ("$[\"a\\\"b\"]['c\\'d'][0]", ('a"b', "c'd", 0)),
        ("$.größe", ("größe",)),
        ("$.a-b", ("a-b",)),
        ("$", None),
        ("", None),
        ("a", None),
        ("$[0]", None),
        ("$..a", None),
        ("$.a[*]", None),
        ("$.a[", None),
        ("$.a[-1]", None),
        ("$" + ".a" * 65, None),
    ],
)
def test_a_path_is_parsed_into_its_steps(path: str, steps: tuple[str | int, ...] | None) -> None:
    assert path_steps(path) == steps


def test_no_pieces_make_the_empty_object() -> None:
    assert assembled([])[0] == {}


def test_pieces_out_of_order_are_written_again_at_the_end() -> None:
    value, arguments = assembled(
        [{"jsonPath": "$.a.x", "numberValue": 1}, {"jsonPath": "$.b", "boolValue": False},
        {"jsonPath": "$.a.y", "stringValue": "la", "willContinue": True}, {"jsonPath": "$.a.y", "stringValue": "te"},
        {"jsonPath": "$.b", "boolValue": True}]
    )  # fmt: skip
    assert value == {"a": {"x": 1, "y": "late"}, "b": True}
    assert not arguments.lost


def test_members_of_late_items_of_an_array_are_kept() -> None:
    value, arguments = assembled(
        [{"jsonPath": "$.a[0].x", "numberValue": 1}, {"jsonPath": "$.a[1].x", "numberValue": 2},
        {"jsonPath": "$.b", "boolValue": True}, {"jsonPath": "$.a[0].y", "numberValue": 3},
        {"jsonPath": "$.a[1].y[0]", "numberValue": 4}, {"jsonPath": "$.a[1].y[1]", "numberValue": 5}]
    )  # fmt: skip
    assert value == {"a": [{"x": 1, "y": 3}, {"x": 2, "y": [4, 5]}], "b": True}
    assert not arguments.lost


def test_missing_items_are_null() -> None:
    assert assembled([{"jsonPath": "$.a[2]", "numberValue": 1}])[0] == {"a": [None, None, 1]}


def test_a_piece_without_a_value_adds_nothing() -> None:
    value, arguments = assembled([{"jsonPath": "$.a", "stringValue": "x", "willContinue": True}, {"jsonPath": "$.a"}])
    assert value == {"a": "x"}
    assert not arguments.lost


@pytest.mark.parametrize("piece", [{}, {"jsonPath": "$..a", "stringValue": "x"}, {"jsonPath": 5, "numberValue": 1}])
def test_a_piece_without_a_valid_path_sets_lost(piece: dict[str, Any]) -> None:
    assert assembled([piece])[1].lost


def test_a_history_may_have_a_call_whose_arguments_are_in_pieces() -> None:
    """A program that keeps the parts of a stream as they came sends them back in the next request."""
    pieces = [
        {"jsonPath": "$.city", "stringValue": "Ro", "willContinue": True},
        {"jsonPath": "$.days", "numberValue": 2},
    ]
    call = {"functionCall": {"id": "c1", "name": "look", "partialArgs": pieces, "willContinue": True}}
    [message] = GeminiConverter().decode_messages([{"role": "model", "parts": [call]}])
    assert isinstance(message, ms.Message)
    [block] = message.content
    assert isinstance(block, ms.ToolCall)
    assert (block.id, block.name, block.arguments, block.complete) == ("c1", "look", '{"city":"Ro","days":2}', True)


SCALAR_MEMBERS = {str: "stringValue", bool: "boolValue", int: "numberValue", float: "numberValue"}


def pieces_of(value: Any, path: str = "$") -> list[dict[str, Any]]:
    """Return a value as the server streams it: in document order, strings in pieces of two letters."""
    if isinstance(value, dict):
        return [piece for name, member in value.items() for piece in pieces_of(member, f"{path}['{name}']")]
    if isinstance(value, list):
        return [piece for index, member in enumerate(value) for piece in pieces_of(member, f"{path}[{index}]")]
    if isinstance(value, str):
        parts = [value[at : at + 2] for at in range(0, len(value), 2)]
        return [
            *({"jsonPath": path, "stringValue": part, "willContinue": True} for part in parts),
            {"jsonPath": path, "stringValue": ""},
        ]
    if value is None:
        return [{"jsonPath": path, "nullValue": "NULL_VALUE"}]
    return [{"jsonPath": path, SCALAR_MEMBERS[type(value)]: value}]


NAMES = st.text("abcde_é ", min_size=1, max_size=3)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(NAMES, inner, min_size=1, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


@PATIENT
@given(OBJECTS)
def test_any_object_is_rebuilt_from_its_pieces(value: dict[str, Any]) -> None:
    got, arguments = assembled(pieces_of(value))
    assert got == value
    assert not arguments.lost


@PATIENT
@given(
    st.lists(st.tuples(st.lists(st.sampled_from(["a", "b", 0, 1, 2]), min_size=1, max_size=4), SCALARS), max_size=12)
)
def test_pieces_in_any_order_at_any_place_give_json(placed: list[tuple[list[str | int], Any]]) -> None:
    pieces: list[dict[str, Any]] = []
    for steps, value in placed:
        path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
        pieces.extend(pieces_of(value, path))
    got, _ = assembled(pieces)
    assert isinstance(got, dict)
    if placed and isinstance(placed[-1][0][0], str):
        node: Any = got
        for step in placed[-1][0]:
            node = node[step]
        assert node == placed[-1][1]


def text_of(pieces: list[dict[str, Any]]) -> tuple[str, PartialArguments]:
    arguments = PartialArguments()
    return "".join([*map(arguments.add, pieces), arguments.close()]), arguments


DEEP = "$.a" + "[1000]" * 63
HOSTILE_PATHS: dict[str, list[dict[str, Any]]] = {
    "one far item": [{"jsonPath": "$.a[100000000]", "numberValue": 1}],
    "the farthest item": [{"jsonPath": "$.a[999999999]", "numberValue": 1}],
    "far items at every depth": [{"jsonPath": DEEP, "numberValue": 1}] * 762,
    "a far item of an array that has begun": [{"jsonPath": "$.a[0]", "numberValue": 1},
        {"jsonPath": "$.a[999999999]", "numberValue": 1}],
    "far items of a member that is late": [{"jsonPath": "$.a.x", "numberValue": 1},
        {"jsonPath": "$.b", "numberValue": 1}, *([{"jsonPath": "$.a.y[999999999]", "numberValue": 1}] * 5),
        *([{"jsonPath": DEEP.replace("$.a", "$.a.z"), "numberValue": 1}] * 762)],
    "arrays and objects in turn": [{"jsonPath": "$.a.x", "numberValue": 1}, {"jsonPath": "$.b", "numberValue": 1},
        *[{"jsonPath": path, "numberValue": 1} for _ in range(400) for path in ("$.a[900]", "$.a.x")]],
    "steps without end": [{"jsonPath": "$" + ".a" * 100_000, "numberValue": 1}],
    "far items in the path of a string": [{"jsonPath": "$.a[5000]", "stringValue": "x", "willContinue": True}] * 9,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_PATHS)
def test_a_path_cannot_create_more_than_was_received(name: str) -> None:
    pieces = HOSTILE_PATHS[name]
    received = len(json.dumps(pieces))
    tracemalloc.start()
    try:
        text, arguments = text_of(pieces)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert arguments.lost, "what is left out is noticed"
    assert isinstance(json.loads(text), dict)
    assert len(text) < 12 * received + 100
    assert peak < 100 * received + 100_000


def test_missing_items_are_null_within_the_allowance() -> None:
    value, arguments = assembled(
        [{"jsonPath": "$.text", "stringValue": "x" * 100}, {"jsonPath": "$.items[50]", "numberValue": 1},
        {"jsonPath": "$.items[99]", "numberValue": 2}]
    )  # fmt: skip
    assert value["items"] == [None] * 50 + [1] + [None] * 48 + [2]
    assert not arguments.lost


@pytest.mark.parametrize("value", [[1], {"a": 1}])
def test_a_number_that_is_no_scalar_sets_lost(value: object) -> None:
    text, arguments = text_of([{"jsonPath": "$.a", "numberValue": value}])
    assert (json.loads(text), arguments.lost) == ({}, True)


def test_a_number_beyond_64_bits_is_written_exactly() -> None:
    assert assembled([{"jsonPath": "$.a", "numberValue": 2**70}])[0] == {"a": 2**70}


def number(path: str, value: object = 1) -> dict[str, Any]:
    return {"jsonPath": path, "numberValue": value}


def string(path: str, value: str, *, more: bool = False) -> dict[str, Any]:
    return {"jsonPath": path, "stringValue": value, **({"willContinue": True} if more else {})}


TEXTS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "scalars": [(number("$.a"), '{"a":1'), ({"jsonPath": "$.b", "boolValue": False}, ',"b":false'),
        ({"jsonPath": "$.c", "nullValue": None}, ',"c":null'),
        ({"jsonPath": "$.d", "nullValue": "NULL_VALUE", "numberValue": None}, ',"d":null'),
        (string("$.e", 'x"'), ',"e":"x\\""'), (number("$['f g']", 0.5), ',"f g":0.5'), ({}, "}")],
    "a string in pieces": [(string("$.a", "x", more=True), '{"a":"x'), (string("$.a", "", more=True), ""),
        ({"jsonPath": "$.a"}, ""), (string("$.a", "y", more=True), "y"), (string("$.a", "z"), 'z"'), ({}, "}")],
    "a string that another place ends": [(string("$.a", "x", more=True), '{"a":"x'),
        (string("$.b", "y", more=True), '","b":"y'), (number("$.c"), '","c":1'), ({}, "}")],
    "a string that is never ended": [(string("$.a[0]", "x", more=True), '{"a":["x'), ({}, '"]}')],
    "containers": [(number("$.a.b[1].c"), '{"a":{"b":[null,{"c":1'), (number("$.a.b[1].d"), ',"d":1'),
        (number("$.a.b[4]"), "},null,null,1"), (number("$.a.e"), '],"e":1'), (number("$.f[0][0]"), '},"f":[[1'),
        (number("$.f[0][1]"), ",1"), (number("$.f[1][0]"), "],[1"), ({}, "]]}")],
    "late pieces": [(number("$.a.x"), '{"a":{"x":1'), (number("$.b"), '},"b":1'),
        (string("$.a.y", "l", more=True), ""), (string("$.a.y", "ate", more=True), ""), (number("$.b", 2), ""),
        (number("$.c"), ',"c":1'), (number("$.a.z[1]"), ""), ({}, ',"a":{"x":1,"y":"late","z":[null,1]},"b":2}')],
    "a late item": [(number("$.a[1]"), '{"a":[null,1'), (number("$.a[0]", 5), ""), (number("$.a[2]", 7), ""),
        ({}, '],"a":[5,1,7]}')],
    "a value where a container is": [(number("$.a.b"), '{"a":{"b":1'), (number("$.a[0]"), ""), ({}, '},"a":[1]}')],
}  # fmt: skip


@pytest.mark.parametrize("pieces", TEXTS.values(), ids=TEXTS)
def test_each_piece_gives_its_text_at_once(pieces: list[tuple[dict[str, Any], str]]) -> None:
    arguments = PartialArguments()
    *added, (_, end) = pieces
    assert [arguments.add(piece) for piece, _ in added] == [text for _, text in added]
    assert (arguments.close(), arguments.lost) == (end, False)


def test_a_path_has_at_most_64_steps_and_nine_digits() -> None:
    assert path_steps("$" + ".a" * 64) == ("a",) * 64
    assert path_steps("$" + ".a" * 65) is None
    assert path_steps("$.a[999999999]") == ("a", 999_999_999)
    assert path_steps("$.a[1000000000]") is None
    assert path_steps("$.a['']") == ("a", "")


ALLOWANCES: list[tuple[list[dict[str, Any]], bool]] = [
    ([number("$.a[6]")], False),
    ([number("$.a[7]")], True),
    ([number("$.a[4][5]")], False),
    ([number("$.a[5][5]")], True),
    ([number("$.a[0]"), number("$.a[13]")], False),
    ([number("$.a[0]"), number("$.a[15]")], True),
    ([string("$.a", "x" * 10), number("$.b[20]")], False),
    ([string("$.a", "x" * 10), number("$.b[21]")], True),
    ([number("$.a[6]"), number("$.b[6]")], False),
    ([number("$.a[5]"), number("$.b[7]")], False),
    ([number("$.a[6]"), number("$.b[7]")], True),
    ([number("$.a.x"), number("$.b"), number("$.a.y[17]")], False),
    ([number("$.a.x"), number("$.b"), number("$.a.y[18]")], True),
    ([number("$.a.x"), number("$.b"), number("$.a.y[9]"), number("$.a.z[16]")], False),
    ([number("$.a.x"), number("$.b"), number("$.a.y[9]"), number("$.a.z[19]")], True),
]


@pytest.mark.parametrize(("pieces", "lost"), ALLOWANCES)
def test_a_path_may_create_one_null_for_each_received_character(pieces: list[dict[str, Any]], lost: bool) -> None:
    assert text_of(pieces)[1].lost is lost
