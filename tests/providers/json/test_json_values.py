"""Reading and writing JSON: what is returned for each value, what an error says, and the limits."""

import json
from collections.abc import Callable

import pytest

import manystream as ms
from manystream.providers.json import json_values
from manystream.providers.json.exact_numbers import (
    NumberWriter,
    UnrepresentableNumber,
    UnwritableNumberError,
    find_unrepresentable,
    has_plain_numbers,
    shortened,
)
from manystream.providers.json.json_values import (
    JSON,
    LARGE,
    MAX_VALUES,
    STAND_IN,
    MalformedJSONError,
    UnrepresentableNumberError,
    arguments_text,
    ascii_dumps,
    dumps,
    dumps_text,
    exact_loads,
    exactly,
    exactly_object,
    fragment,
    integer,
    items,
    loads,
    loads_object,
    mapping,
    objects,
    parse_object,
    representable_loads,
    shown,
    string,
    without_nulls,
)

BIG = 10**30

HUGE = "1e999"


# --- parsing ---
@pytest.mark.parametrize("half", [True, False])
def test_a_half_of_a_pair_is_reported_and_replaced(half: bool) -> None:
    halves: list[tuple[str, str]] = []
    data = b'{"\\ud83d": ["\\ud83dx", "\\ud83d\\ude00", "x"], "b": {"c": "\\ude00"}}'
    expected = {"\ufffd": ["\ufffdx", "😀", "x"], "b": {"c": "\ufffd"}}

    def note(raw: str, text: str) -> None:
        halves.append((raw, text))

    assert loads(data, note if half else None) == expected
    assert halves == ([("\ud83dx", "\ufffdx"), ("\ude00", "\ufffd")] if half else [])
    assert loads(data.decode()) == expected


@pytest.mark.parametrize(
    ("data", "value"),
    [(b'"\xff"', "\ufffd"), (b"[NaN]", None), (str(BIG), float(BIG)), (b"[1.5, true, null]", [1.5, True, None])],
)
def test_what_other_parsers_accept_is_read(data: bytes | str, value: JSON) -> None:
    found = loads(data)
    if value is None:
        assert isinstance(found, list)
        assert isinstance(found[0], UnrepresentableNumber)
    else:
        assert found == value


def test_the_error_of_malformed_json_quotes_its_beginning() -> None:
    with pytest.raises(MalformedJSONError, match=r"^malformed JSON '\{x': Expecting"):
        loads(b"{x")
    with pytest.raises(MalformedJSONError) as caught:
        loads("x" * 300)
    assert str(caught.value).startswith(f"malformed JSON '{'x' * 200}…': Expecting value")
    assert caught.value.__context__ is None


def test_a_text_is_shown_up_to_200_characters() -> None:
    assert shown("x" * 200) == f"'{'x' * 200}'"
    assert shown("x" * 201) == f"'{'x' * 200}…'"
    assert shown(b"x" * 201) == f"'{'x' * 200}…'"
    assert shown("😀".encode() * 200) == f"'{'😀' * 200}'"
    assert shown(b"\xff\n") == "'\ufffd\\n'"


def test_whole_numbers_of_any_size_are_exact() -> None:
    text = f'[{BIG}, -{BIG}, 1, 1.5, {HUGE}, "{BIG}"]'
    exact = exact_loads(text)
    assert isinstance(exact, list)
    assert exact[:4] == [BIG, -BIG, 1, 1.5]
    assert isinstance(exact[0], int)
    assert (repr(exact[4]), exact[5]) == ("UnrepresentableNumber(1e999)", str(BIG))
    value: JSON = [1]
    assert exactly(value, b'["12345678901234567890"]') is value
    assert exactly(value, f"[{BIG}]") == [BIG]
    deep = b"[" * 100_000 + str(BIG).encode() + b"]" * 100_000
    assert exactly(value, deep) is value
    inner: ms.JSONObject = {"a": 1}
    assert exactly_object(inner, b'{"a": 1}') is inner
    assert exactly_object(inner, f'{{"a": {BIG}}}'.encode()) == {"a": BIG}


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        (HUGE, "", "the value is 1e999: Python cannot hold it"),
        (f'{{"a": [1, {HUGE}]}}', ".a[1]", "a[1] is 1e999: Python cannot hold it"),
        (f"[{'9' * 5000}]", "[0]", f"[0] is {'9' * 20}… (5000 characters): Python cannot hold it"),
    ],
)
def test_a_number_that_python_cannot_hold_is_named(text: str, path: str, words: str) -> None:
    with pytest.raises(UnrepresentableNumberError) as caught:
        representable_loads(text)
    assert (caught.value.path, str(caught.value)) == (path, words)
    assert representable_loads('{"a": "1e999"}') == {"a": "1e999"}
    assert representable_loads(f"[{BIG}]") == [BIG]


def test_the_first_such_number_is_found() -> None:
    first, second = UnrepresentableNumber("1e400"), UnrepresentableNumber("1e500")
    assert find_unrepresentable({"a": [1, {"b": first}], "c": second}) == (".a[1].b", first)
    assert find_unrepresentable([[second], first]) == ("[0][0]", second)
    assert find_unrepresentable({"a": [1.5, "x", None]}) is None


@pytest.mark.parametrize(
    ("number", "is_plain"),
    [
        ("9" * 19, True),  # up to 64 bits
        ("9" * 20, False),
        ("-" + "9" * 18, True),
        ("-" + "9" * 19, False),
        ("-" + "9" * 30, False),
        ("0." + "9" * 40, True),  # fractions, such as log probabilities
        ("-12." + "9" * 40, True),
        ("-1.7976931348623157e+308", True),
        ("1e100", True),
        ("1e-100", True),
        ("1.0", True),
    ],
)
def test_numbers_that_a_parser_changes_are_noticed(number: str, is_plain: bool) -> None:
    assert has_plain_numbers(number) is is_plain
    for text in (f'["a",{number}]', f'{{"a": {number}}}', f'{{"a":{number}}}', f"[[{number}]]", f"[1,\n\t{number}\r]"):
        assert has_plain_numbers(text.encode()) is is_plain
    for before in (65_534 - 30, 65_536 - 21, 65_536 - 10, 65_536 - 1, 65_536, 65_536 + 18, 131_072 - 5):
        assert has_plain_numbers(" " * before + number + " " * 65_536) is is_plain


def test_a_long_number_is_shortened() -> None:
    assert shortened("9" * 40) == "9" * 40
    assert shortened("9" * 41) == "9" * 20 + "… (41 characters)"


def test_the_text_of_an_object() -> None:
    for text in ("", " \n"):
        assert parse_object(text, "x") == {}
    assert parse_object('{"a": 1}', "x") == {"a": 1}
    assert parse_object(f'{{"a": {BIG}, "b": "\\ud83d"}}', "x") == {"a": BIG, "b": "\ufffd"}
    with pytest.raises(MalformedJSONError) as caught:
        parse_object("[" + "1," * 300 + "1]", "the arguments")
    assert str(caught.value) == f"the arguments are no JSON object: {('[' + '1,' * 300)[:200]!r}"
    with pytest.raises(UnrepresentableNumberError):
        parse_object('{"a": 1e999}', "x")
    assert loads_object(f'{{"a": {BIG}}}') == {"a": BIG}
    with pytest.raises(MalformedJSONError, match=r"^expected a JSON object, got '\[1\]'$"):
        loads_object(b"[1]")


def test_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "MAX_VALUES", 20)
    monkeypatch.setattr(json_values, "LARGE", 40)
    text = "[" + "1," * 18 + "1]"  # 19 values in one container
    assert loads(text + " " * 9) == [1] * 19
    with pytest.raises(MalformedJSONError, match=r"^more than 20 JSON values in '\[1,"):
        loads(text[:-1] + ",1]" + " " * 9)
    with pytest.raises(MalformedJSONError, match="more than 20 JSON values"):
        loads((text[:-1] + ",1]" + " " * 9).encode())
    assert loads('["' + "," * 60 + '"]') == ["," * 60]
    assert loads('["' + "[" * 60 + '"]') == ["[" * 60]
    assert loads("[" + "[],{}," * 9 + "1]") == [*([[], {}] * 9), 1]
    with pytest.raises(MalformedJSONError, match="more than 20 JSON values"):
        loads("[" + "[]," * 19 + "{}]")
    with pytest.raises(MalformedJSONError, match="more than 20 JSON values"):
        loads("[" * 21 + "1" + "]" * 21)
    assert loads("[" * 19 + "1" + "]" * 19) is not None


@pytest.mark.parametrize(
    "value",
    [
        {"a": "x" * 100},
        {"a": "x" * 100, "b": ["y", 1.5, None, {"c": "x" * 90}]},
        ["x" * 100, "x" * 100],
        {"x" * 100: 1},
        {"a": {"b": [1, "x" * 100]}},
        "x" * 100,
        ["é" * 100],
        ['"' * 100],
        ["\\" * 100],
        ["\n" * 100],
        ["x" * 10] * 20,
        [json_values.STAND_IN, "x" * 100],
    ],
)
def test_one_large_string_is_read_in_place(value: JSON, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "LARGE", 60)
    monkeypatch.setattr(json_values, "LOOKED_AT", 16)
    for data in (dumps(value), b" " + dumps(value) + b" ", dumps_text(value), ascii_dumps("x" * 99)):
        expected = "x" * 99 if data == ascii_dumps("x" * 99) else value
        assert loads(data) == expected


def test_a_large_string_with_a_control_character_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "LARGE", 60)
    for place in (0, 50, 99):
        text = "x" * place + "\x1f" + "x" * (99 - place)
        with pytest.raises(MalformedJSONError, match="Invalid control character"):
            loads(f'["{text}"]'.encode())
    assert loads(b'["' + b"\xff" * 100 + b'"]') == ["\ufffd" * 100]


# --- writing ---
def test_values_are_written_compactly() -> None:
    assert dumps({"a": [1, BIG, "é", None, True, 1.5]}) == f'{{"a":[1,{BIG},"é",null,true,1.5]}}'.encode()
    assert dumps_text((BIG, {"b": fragment(b"[1, 2]")})) == f'[{BIG},{{"b":[1, 2]}}]'
    assert dumps([fragment(b"{ }")]) == b"[{ }]"
    assert ascii_dumps("é\n") == b'"\\u00e9\\n"'
    for wrong in (object(), {1: BIG}, [BIG, b"x"]):
        with pytest.raises(TypeError):
            dumps(wrong)


@pytest.mark.parametrize(
    ("value", "path", "number"),
    [
        ([BIG, float("inf")], "[1]", "inf"),
        ({"a": [BIG, UnrepresentableNumber("1e999")]}, ".a[1]", "1e999"),
        ([BIG, 10**5000], "[1]", "a whole number of too many digits"),
    ],
)
def test_a_number_that_cannot_be_written_is_named(value: JSON, path: str, number: str) -> None:
    with pytest.raises(UnwritableNumberError) as caught:
        dumps(value)
    assert (caught.value.path, caught.value.number) == (path, number)
    assert str(caught.value) == f"{path.removeprefix('.')} is {number}, which JSON or Python cannot hold"


def test_a_number_alone_that_cannot_be_written() -> None:
    with pytest.raises(UnwritableNumberError, match=r"^the value is nan, which JSON or Python cannot hold$"):
        NumberWriter(repr).text(float("nan"))


def test_arguments_are_written_with_every_number_as_it_was_sent() -> None:
    value: JSON = {"a": [BIG, UnrepresentableNumber("1e999"), "é"], "b": {}}
    assert arguments_text(value) == f'{{"a":[{BIG},1e999,"é"],"b":{{}}}}'
    assert arguments_text(value, spaced=True) == f'{{"a": [{BIG}, 1e999, "é"], "b": {{}}}}'
    assert arguments_text({"a": [1, "é"]}) == '{"a":[1,"é"]}'
    assert arguments_text({"a": [1, "é"]}, spaced=True) == '{"a": [1, "é"]}'


def nested(levels: int, inner: JSON) -> JSON:
    for _ in range(levels):
        inner = [inner]
    return inner


def test_levels_of_arguments() -> None:
    for inner in (1, BIG):
        assert arguments_text(nested(300, inner)) == "[" * 300 + str(inner) + "]" * 300
        assert arguments_text(nested(254, inner), spaced=True) == "[" * 254 + str(inner) + "]" * 254
    for spaced in (False, True):
        with pytest.raises(TypeError, match=r"^it is nested too deeply$"):
            arguments_text(nested(100_000, 1), spaced=spaced)
    with pytest.raises(TypeError, match=r"^it is nested too deeply$"):
        NumberWriter(repr).text(nested(255, 1))
    assert NumberWriter(repr).text(nested(254, 1)) == "[" * 254 + "1" + "]" * 254
    with pytest.raises(TypeError, match=r"^the name of a member must be a string$"):
        NumberWriter(repr).text({1: 2})


# --- typed members ---
ANY: ms.JSONObject = {"s": "x", "i": 1, "f": 12.0, "h": 1.5, "b": True, "n": None, "l": [{"a": 1}, 2], "o": {"a": 1}}


def test_a_member_of_another_type_is_absent() -> None:
    assert [string(ANY, name) for name in ("s", "i", "n", "l", "none")] == ["x", None, None, None, None]
    assert [integer(ANY, name) for name in ("i", "f", "h", "b", "s", "n")] == [1, 12, None, None, None, None]
    assert [mapping(ANY, name) for name in ("o", "l", "n", "none")] == [{"a": 1}, {}, {}, {}]
    assert [items(ANY, name) for name in ("l", "o", "n", "none")] == [[{"a": 1}, 2], [], [], []]
    assert [objects(ANY, name) for name in ("l", "o", "none")] == [[{"a": 1}], [], []]
    assert without_nulls({"a": None, "b": {"c": None}}) == {"b": {"c": None}}
    same: ms.JSONObject = {"a": 0, "b": False}
    assert without_nulls(same) is same


def test_the_largest_whole_numbers() -> None:
    numbers: ms.JSONObject = {"a": 2**64 - 1, "b": 2**64, "c": -(2**63), "d": -(2**63) - 1, "e": 1e300}
    assert [integer(numbers, name) for name in numbers] == [2**64 - 1, None, -(2**63), None, None]


@pytest.mark.parametrize("parse", [loads, exact_loads, loads_object])
def test_a_byte_order_mark_before_json_is_ignored(parse: Callable[[bytes], JSON]) -> None:
    assert parse(b'\xef\xbb\xbf{"a":12345678901234567890123}') == {"a": 12345678901234567890123}
    assert parse(b'\xef\xbb\xbf{"a":"\xef\xbb\xbf"}') == {"a": "\ufeff"}
    with pytest.raises(MalformedJSONError):
        parse(b"\xef\xbb\xbf\xef\xbb\xbf{}")


LONG = "x" * LARGE


@pytest.mark.parametrize(
    "value",
    [
        LONG,
        {"text": LONG},
        {"a": [1, None, {"text": LONG + "ö🙂", "rest": "short"}], "b": "behind"},
        {"first": LONG, "second": LONG + "y"},
        {LONG: "a name"},
        {"a": LONG, "b": STAND_IN},
        {"text": LONG + '"quoted"' + LONG},
        {"text": LONG + "\\" + LONG},
        {"text": LONG + "\n"},
        {"many": ["s"] * 2000, "text": LONG},
        ["s" * 100] * 20_000,
        list(range(400_000)),
    ],
    ids=lambda value: str(value)[:12],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_large_text_is_read_as_the_standard_library_reads_it(value: object, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert len(data) > LARGE
    assert loads(data) == value
    assert loads(data.decode()) == value


@pytest.mark.parametrize("broken", [b'{"a":"%b', b'{"a":"%b"', b'{"a":"%b"}}', b'{"a" "%b"}', b"%b", b'"%b\x01"'])
def test_what_is_no_json_is_refused(broken: bytes) -> None:
    with pytest.raises(MalformedJSONError) as caught:
        loads(broken % LONG.encode())
    assert len(str(caught.value)) < 1000


def test_a_deeply_nested_one_is_read_too() -> None:
    depth = 1000
    value = loads(b"[" * depth + b'"%b"' % LONG.encode() + b"]" * depth)
    for _ in range(depth):
        assert isinstance(value, list)
        (value,) = value
    assert value == LONG


def test_bytes_that_are_no_utf_8_are_replaced_as_in_a_short_text() -> None:
    assert loads(b'{"a":"%b\xff"}' % LONG.encode()) == {"a": LONG + "\ufffd"}


def test_a_lone_surrogate_escape_is_replaced_as_in_a_short_text() -> None:
    assert loads(b'{"a":"%b\\ud800"}' % LONG.encode()) == {"a": LONG + "\ufffd"}


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (b"[" + b"[]," * MAX_VALUES + b"1]", False),
        (b"[" + b"0," * (MAX_VALUES + 1) + b"0]", False),
        (b'{"a":"' + b"[]," * MAX_VALUES + b'"}', True),
        (b'{"a":"' + rb"\"," * MAX_VALUES + b'","b":[' + b"0," * 1000 + b"0]}", True),
    ],
    ids=["empty lists", "numbers", "commas in a string", "escaped quotes and commas in a string"],
)
def test_a_text_of_too_many_values_is_not_parsed(text: bytes, allowed: bool) -> None:
    assert len(text) > 2 * MAX_VALUES
    if allowed:
        assert isinstance(loads(text), dict)
    else:
        with pytest.raises(MalformedJSONError, match=f"more than {MAX_VALUES} JSON values"):
            loads(text)


def test_an_unterminated_string_is_scanned_once() -> None:
    with pytest.raises(MalformedJSONError):
        loads(b'{"a":"' + rb"\"," * MAX_VALUES)
