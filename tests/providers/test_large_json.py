"""JSON that is nearly all one string: decoding the string in place gives the same value as the parser."""

from __future__ import annotations

import json

import pytest

from manystream.providers.json.json_values import LARGE, STAND_IN, MalformedJSONError, loads

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
