"""The knobs: their defaults, where they are read, and the error about a wrong word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manystream.simulator import (
    KnobError,
    Knobs,
    combine,
)
from manystream.simulator.knobs import READERS, directive_in_model, directive_in_text, read_directive

FAULTY: list[Knobs] = [
    Knobs(drop=True), Knobs(fail=500), Knobs(cut=0), Knobs(reset=0), Knobs(truncate=0), Knobs(stall=0),
    Knobs(malformed=0), Knobs(error=0),
]  # fmt: skip


@pytest.mark.parametrize("knobs", FAULTY)
def test_a_fault_can_be_left_out(knobs: Knobs) -> None:
    assert knobs.faulty
    assert replace(knobs, events=3, rate=2.0, error_status=501).without_faults() == Knobs(
        events=3, rate=2.0, error_status=501
    )


def test_other_knobs_are_no_faults() -> None:
    harmless = Knobs(
        rate=1.0, delay=1.0, chunk=1, ping=1.0, retry_after=1.0, code="x", error_status=501, times=1, key="k"
    )
    assert not harmless.faulty
    assert harmless.without_faults() == harmless


WRONG_KNOBS: list[tuple[str, str]] = [
    ("kind=x", "kind='x': kind takes one of text, thinking, tools, mixed"),
    ("text=x", "text='x': text takes one of sentences, unicode"),
    ("finish=x", "finish='x': finish takes one of stop, length, content_filter"),
    ("Retry-After=x", "retry_after='x': retry_after takes 0 to 86400 seconds"),
    ("events=", "events='': events takes 0 to 1000000"),
    ("=5",
        "'=5' is not a knob; write name=value, with a name out of: kind, text, events, calls, steps, finish, cached,"
        " redacted, seed, stamp, rate, delay, chunk, ping, fail, retry_after, code, drop, cut, reset, truncate, stall,"
        " silent, cut_bytes, close, largest, lifetime, malformed, error, error_status, times, key"),
]  # fmt: skip


@pytest.mark.parametrize(("directive", "message"), WRONG_KNOBS)
def test_a_wrong_knob_is_told_what_it_takes(directive: str, message: str) -> None:
    with pytest.raises(KnobError) as caught:
        read_directive(directive)
    assert str(caught.value) == message


def test_a_directive_may_be_written_freely() -> None:
    assert read_directive(" ,EVENTS=5,\n\tretry-after=1 ,error_status=501,, ") == {
        "events": 5,
        "retry_after": 1.0,
        "error_status": 501,
    }
    assert read_directive("key=a=b code=x=") == {"key": "a=b", "code": "x="}


def test_directives_that_say_nothing_change_nothing() -> None:
    defaults = Knobs(events=3)
    assert combine(defaults) is defaults
    assert combine(defaults, "", " ") is defaults
    assert combine(defaults, "rate=2", "", "rate=3,kind=text") == Knobs(events=3, rate=3.0, kind="text")
    assert combine(Knobs(), "stamp=1", "chunk=0") == Knobs(stamp=True)
    with pytest.raises(KnobError) as caught:
        combine(Knobs(chunk=4), "stamp=1")
    assert str(caught.value) == "stamp and chunk exclude each other: a stamp is made when its event is sent whole"


@pytest.mark.parametrize(
    ("text", "directive"),
    [
        ("simulate:events=1", "events=1"),
        ("\n simulate: a", " a"),
        ("simulate events=1", ""),
        ("Simulate: a", ""),
        ("Please simulate: a storm", ""),
        ("{not json", ""),
        ('\t{"simulate": {"events": 1, "key": "k", "stamp": true}}', "events=1,key=k,stamp=True"),
        ('{"simulate": "events=1"}', ""),
        ('{"other": {"events": 1}}', ""),
        ("[]", ""),
    ],
)
def test_a_message_holds_a_directive_at_its_start(text: str, directive: str) -> None:
    assert directive_in_text(text) == directive


@pytest.mark.parametrize(
    ("model", "directive"),
    [
        ("sim", ""),
        ("sim@", ""),
        ("sim-thinking", "kind=thinking,"),
        ("sim-tools@a=b@c", "kind=tools,a=b@c"),
        ("sim-else@a=b", "a=b"),
        ("text@a=b", ""),
        ("similar@a=b", "a=b"),
        ("gpt-5@home", ""),
    ],
)
def test_a_model_holds_a_directive_behind_its_kind(model: str, directive: str) -> None:
    assert directive_in_model(model) == directive


BOUNDS: dict[str, tuple[list[str], list[str]]] = {
    "kind": (["text", "thinking", "tools", "mixed"], ["", "tool", "Text"]),
    "text": (["sentences", "unicode"], ["words"]),
    "events": (["0", "1000000"], ["-1", "1000001", "1.5"]),
    "calls": (["0", "1000"], ["-1", "1001"]),
    "steps": (["0", "1000"], ["-1", "1001"]),
    "finish": (["stop", "length", "content_filter"], ["tool_use"]),
    "cached": (["0", "1000000000"], ["-1", "1000000001"]),
    "redacted": (["1", "true", "yes", "0", "false", "no"], ["2"]),
    "seed": (["0", "9223372036854775807"], ["-1", "9223372036854775808"]),
    "stamp": (["1", "0", "TRUE"], ["on"]),
    "rate": (["0", "1000000"], ["-0.1", "1000000.1", "nan"]),
    "delay": (["0", "3600"], ["-0.1", "3600.1"]),
    "chunk": (["0", "1048576"], ["-1", "1048577"]),
    "ping": (["0", "3600"], ["-0.1", "3600.1"]),
    "fail": (["400", "599"], ["399", "600"]),
    "retry_after": (["0", "86400"], ["-0.1", "86400.1"]),
    "code": (["rate_limit_exceeded"], []),
    "drop": (["1", "0"], ["-1"]),
    "cut": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "reset": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "truncate": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "stall": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "malformed": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "error": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "error_status": (["400", "599"], ["399", "600"]),
    "times": (["0", "1000000"], ["-1", "1000001"]),
    "key": (["run-1"], []),
}
"""Knob → texts that it accepts, and texts that it refuses."""


def test_each_knob_has_these_bounds() -> None:
    for name, (accepted, refused) in BOUNDS.items():
        read, _ = READERS[name]
        for text in accepted:
            read(text)
        for text in refused:
            with pytest.raises((ValueError, KeyError)):
                read(text)


SWITCHES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def test_a_switch_is_one_of_six_words() -> None:
    assert {text: READERS["drop"][0](text) for text in SWITCHES} == SWITCHES
