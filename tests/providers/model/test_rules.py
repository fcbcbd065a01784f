"""Rules of fields: what each kind of rule takes, what its error says, and what its fast check accepts."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

import manystream as ms
from manystream.providers.catalog.profile_rules import PROFILE
from manystream.providers.catalog.profiles import PROFILES
from manystream.providers.model.request_rules import REQUEST, is_filled
from manystream.providers.model.rules import (
    Checker,
    FastCheck,
    Rule,
    checked,
    described,
    either,
    flag,
    instance,
    members,
    number,
    optional,
    sequence,
    text,
    whole,
    word,
)


class Name(str):
    """A text of a class of its own."""

    __slots__ = ()


class Size(enum.IntEnum):
    SMALL = 1


def complaint(rule: Rule, value: object) -> str:
    """The error of a rule for a value; empty if the value is accepted."""
    try:
        rule.check(value, "f")
    except ms.InvalidRequestError as error:
        return str(error)
    return ""


def accepts(rule: Rule, value: object) -> bool:
    """Whether a rule accepts a value, in each of its three forms where they must agree."""
    accepted = not complaint(rule, value)
    assert rule.passes(value) is accepted
    fast = value is not None and FastCheck(rule).passes(value)
    assert fast <= accepted
    return accepted


LARGEST_FLOAT = 1.7976931348623157e308

ACCEPTED: list[tuple[Rule, list[object], list[object]]] = [
    (text(), ["", "x", Name("x")], [None, 1, b"x", ["x"]]),
    (text(empty=False), ["x"], ["", None]),
    (whole(2), [2, 10**40, Size.SMALL + 1], [1, 2.0, True, "2", None, Size.SMALL]),
    (whole(2, 4), [2, 4], [1, 5]),
    (number(0, must="n"), [0, 0.0, 1, 1.5, LARGEST_FLOAT], [-0.1, math.inf, math.nan, True, "1", 10**400]),
    (number(0, 1, must="n"), [0, 1, 0.5], [-1, 1.1, 2]),
    (number(0, must="n", above=True), [5e-324, 1], [0, 0.0, -1]),
    (number(0, must="n", infinite=True), [0, math.inf], [-1, -math.inf, math.nan, 10**400]),
    (number(0, 1, must="n", infinite=True), [1, math.inf], [1.1]),
    (flag(), [True, False], [0, 1, None, "x"]),
    (word("a", "b"), ["a", "b"], ["c", "", "ab", None, 1]),
    (instance(dict, must="d"), [{}, {"a": 1}], [[], None, "x"]),
    (instance(int), [1, Size.SMALL], [True, 1.0]),
    (optional(whole(1)), [None, 1], [0, "x"]),
    (sequence(text(), "l"), [[], (), ["a"], ("a", "b")], ["a", b"a", [1], ["a", None], None, {"a": 1}, {"a"}]),
    (members(text(), "d"), [{}, {"a": "b"}], [{"a": 1}, {1: "a"}, [], None, "a"]),
    (instance(Sequence, must="s"), [[], (), range(2)], ["x", b"x", bytearray(), memoryview(b"")]),
    (instance(bytes, must="b"), [b"x"], ["x", bytearray()]),
]


@pytest.mark.parametrize(("rule", "right", "wrong"), ACCEPTED)
def test_a_rule_takes_these_values_and_no_others(rule: Rule, right: list[object], wrong: list[object]) -> None:
    assert [accepts(rule, value) for value in right] == [True] * len(right)
    assert [accepts(rule, value) for value in wrong] == [False] * len(wrong)


COMPLAINTS: list[tuple[Rule, object, str]] = [
    (text(), 1, "f: must be text, not 1"),
    (text("a name", empty=False), "", "f: must be a name, not ''"),
    (text(secret=True), 1, "f: must be text, not int"),
    (text(secret=True), None, "f: must be text, not None"),
    (text(forms={dict: "use {}"}), {}, "f: must be text, not dict; use dict"),
    (text(forms={int: "use str({})"}), 7, "f: must be text, not 7; use str(7)"),
    (text(forms={int: "use str({})"}), True, "f: must be text, not True"),
    (text(secret=True, forms={int: "use str({})"}), 7, "f: must be text, not int; use str(…)"),
    (whole(2), 1, "f: must be a whole number of at least 2, not 1"),
    (whole(2, must="w"), "x", "f: must be w, not 'x'"),
    (flag(), 1, "f: must be True or False, not 1"),
    (word("a", "b"), "c", "f: must be one of 'a', 'b', not 'c'"),
    (instance(ms.Image), 1, "f: must be an Image, not 1"),
    (instance(ms.Text, ms.File), int, "f: must be a Text or File, not the class int"),
    (sequence(whole(1), "a list"), [1, 0], "f[1]: must be a whole number of at least 1, not 0"),
    (sequence(whole(1), "a list", forms={int: "use [{}]"}), 5, "f: must be a list, not 5; use [5]"),
    (members(whole(1), "a dict"), {"a": 0}, "f['a']: must be a whole number of at least 1, not 0"),
    (members(whole(1), "a dict"), {2: 0}, "f: must have text as names, not 2"),
    (members(whole(1), "a dict", forms={list: "use dict({})"}), [], "f: must be a dict, not list; use dict(list)"),
]


@pytest.mark.parametrize(("rule", "value", "words"), COMPLAINTS)
def test_the_error_of_a_rule(rule: Rule, value: object, words: str) -> None:
    assert complaint(rule, value) == words


def test_a_wrong_value_is_described_briefly() -> None:
    assert described("x" * 58) == repr("x" * 58)
    assert described("x" * 59) == "str"
    assert (described(10**30), described(-(10**30))) == (str(10**30), str(-(10**30)))
    assert (described(10**30 + 1), described(-(10**30) - 1), described(10**5000)) == ("a larger int",) * 3
    assert [described(value) for value in (None, True, 1.5, [1], Name, Name("x"))] == [
        "None", "True", "1.5", "list", "the class Name", "'x'",
    ]  # fmt: skip


# --- tables of classes ---
@dataclass
class Inner:
    size: object = 1


@dataclass
class Egg:
    name: object = "n"


@dataclass
class Outer:
    name: object = "n"
    inner: object = field(default_factory=Inner)
    several: object = ()
    one: object = "word"
    maybe: object = None


INNER = Checker(Inner, {"size": whole(1)})

EGG = Checker(Egg, {"name": text(empty=False)})

OUTER = Checker(
    Outer, {"name": text(empty=False), "inner": checked(INNER, forms={int: "use Inner({})"}),
    "several": sequence(either("an Inner or Egg", INNER, EGG), "a list"),
    "one": either("an Inner or a word", INNER, texts=word("word")), "maybe": optional(checked(EGG))},
)  # fmt: skip


class Below(Inner):
    """A subclass, which has the rules of its class."""


@pytest.mark.parametrize(
    "right",
    [
        Outer(),
        Outer(several=[Inner(), Egg(), Inner(2)], maybe=Egg()),
        Outer(several=(Egg(),), one=Inner()),
        Outer(inner=Inner(5)),
    ],
)
def test_an_object_that_fits_its_table_passes_the_fast_check(right: Outer) -> None:
    assert OUTER.passes(right)
    assert OUTER.fits(right)
    OUTER.check(right)


def test_objects_of_uncommon_types_need_the_thorough_check() -> None:
    for right in (Outer(inner=Below()), Outer(name=Name("x")), Outer(several=[Below()]), Outer(one=Name("word"))):
        assert not OUTER.passes(right)
        OUTER.check(right)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Outer(name=""), "name: must be text, not ''"),
        (Outer(inner=Inner(0)), "inner.size: must be a whole number of at least 1, not 0"),
        (Outer(inner=Below(0)), "inner.size: must be a whole number of at least 1, not 0"),
        (Outer(inner=3), "inner: must be an Inner, not 3; use Inner(3)"),
        (Outer(inner=None), "inner: must be an Inner, not None"),
        (Outer(several=[Egg(), Egg("")]), "several[1].name: must be text, not ''"),
        (Outer(several=[Outer()]), "several[0]: must be an Inner or Egg, not Outer"),
        (Outer(several="x"), "several: must be a list, not 'x'"),
        (Outer(one="other"), "one: must be one of 'word', not 'other'"),
        (Outer(one=Inner(0)), "one.size: must be a whole number of at least 1, not 0"),
        (Outer(one=Egg()), "one: must be an Inner or a word, not Egg"),
        (Outer(maybe=Egg("")), "maybe.name: must be text, not ''"),
        (Outer(maybe=Inner()), "maybe: must be an Egg, not Inner"),
        (Inner(), "must be an Outer, not Inner"),
    ],
)
def test_an_object_that_does_not_fit_its_table_is_refused(wrong: object, words: str) -> None:
    assert not OUTER.passes(wrong)
    for where in ("", "here"):
        with pytest.raises(ms.InvalidRequestError) as caught:
            OUTER.check(wrong, where)
        separator = ": " if isinstance(wrong, Inner) else "."
        assert str(caught.value).removeprefix(": ") == (f"{where}{separator}{words}" if where else words)


STATE, MARK = ms.ProviderState("p", {"a": 1}), ms.CacheControl("1h")


def test_a_usual_request_passes_the_fast_check() -> None:
    assert REQUEST.passes(ms.Request("m", [ms.Message.user("a")]))
    request = ms.Request(
        "m",
        [ms.Message.user("a")],
        system=[ms.Text("s")],
        tools=[ms.Tool("f", "d", {"type": "object"}, True, MARK)],
        tool_choice="f",
        thinking=ms.ThinkingConfig(ms.ThinkingLevel.LOW, 5, "x", True),
        max_output_tokens=1,
        temperature=0.5,
        top_p=1,
        stop=["s"],
        seed=1,
        response_schema={"type": "object"},
        parallel_tool_calls=True,
        metadata={"a": "b"},
        timeouts=ms.Timeouts(connect=1),
        retry=ms.Retry(),
        extra_body={"a": 1},
        extra_headers={"a": "b"},
        priority="batch",
        tenant="t",
        session="s",
        tags={"agent": "planner", "step": 3, "score": 0.5, "last": True},
    )
    assert REQUEST.passes(request)
    assert all(PROFILE.passes(row) for row in PROFILES)


def test_a_name_of_spaces_is_not_filled() -> None:
    assert [is_filled(name) for name in ("", " \t\n", " a ", "a")] == [False, False, True, True]


def test_mappings_of_other_classes_are_taken() -> None:
    class Headers(dict[str, str]):
        pass

    rule = members(text(), "a dict")
    assert accepts(rule, Headers(a="b"))
    assert isinstance(Headers(), Mapping)
