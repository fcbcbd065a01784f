"""Values that callers give in other forms: an SDK's arguments, dicts as messages and tools, functions as keys."""

from __future__ import annotations

import enum
import functools
import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import AsyncMock

import openai
import pydantic
import pytest

import manystream as ms
from manystream.providers.convert.sdk_arguments import (
    CallOptions,
    check_names,
    headers_of,
    is_absent,
    never_empty,
    plain,
    present,
    read_conversation,
    schema_class,
    take_call_options,
    timeouts_of,
)
from manystream.providers.model.rules import why_deferred
from manystream.providers.openai.chat.converter import ChatConverter


class Color(enum.Enum):
    RED = "red"
    MANY = (1, 2)


class Number(enum.IntEnum):
    THREE = 3


class Word(str):
    __slots__ = ()


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(default="x", alias="Name")
    size: int | None = None


class Plain:
    pass


def refusal(make: Callable[[], object]) -> str:
    with pytest.raises(ms.InvalidRequestError) as caught:
        make()
    assert str(caught.value).startswith(f"{caught.value.field}: ")
    return str(caught.value)


def numbers() -> Iterator[int]:
    yield 1
    yield 2


# --- arguments of an SDK as JSON ---
@pytest.mark.parametrize(
    ("value", "json"),
    [
        (None, None),
        (True, True),
        ("x", "x"),
        (1.5, 1.5),
        (Word("x"), "x"),
        (Number.THREE, 3),
        (Color.RED, "red"),
        (Color.MANY, [1, 2]),
        ((1, [2]), [1, [2]]),
        (iter([1]), [1]),
        ({"a": {"b": None}, 3: "x"}, {"a": {"b": None}, "3": "x"}),
        ({"a": openai.NOT_GIVEN, "b": openai.omit}, {}),
        (Model(Name="y"), {"Name": "y"}),
        (Model(), {}),
        ([Model(size=None)], [{"size": None}]),
    ],
)
def test_an_argument_as_json(value: object, json: object) -> None:
    found = plain(value, "a")
    assert found == json
    assert type(found) is type(json)


def test_bytes_are_base64_only_where_that_is_asked() -> None:
    assert plain([b"\xff\xfe", {"a": b"?>"}], "a", base64_bytes=True) == ["__4=", {"a": "Pz4="}]
    assert plain({"a": (b"?>",)}, "a", base64_bytes=True) == {"a": ["Pz4="]}


BYTES, FILE = (
    "cannot be carried: bytes; give them as base64 text",
    "cannot be carried: a file; give its content as base64 text",
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"b": [b"x"]}, f"a.b[0]: {BYTES}"),
        (bytearray(b"x"), f"a: {BYTES}"),
        (memoryview(b"x"), f"a: {BYTES}"),
        (io.BytesIO(b"x"), f"a: {FILE}"),
        (Path("x"), f"a: {FILE}"),
        (Plain, "a: cannot be carried: the class Plain"),
        (Model, "a: cannot be carried: the class Model"),
        (print, "a: cannot be carried: a function; describe it as a tool with its JSON Schema"),
        (Plain(), "a: cannot be carried: Plain is neither JSON nor an object of an SDK"),
        (math.inf, "a: JSON cannot carry the number inf"),
        ({1.5: 1}, "a: must have text as names, not float"),
        ({"b": {None: 1}}, "a.b: must have text as names, not NoneType"),
        ([ms.Text("x")], "a[0]: is a value of manystream: build a Request of such ones, Request(model, […])"),
    ],
)
def test_an_argument_that_is_no_json_is_refused(value: object, words: str) -> None:
    assert refusal(lambda: plain(value, "a")) == words


def test_an_object_without_a_path_names_its_members() -> None:
    assert refusal(lambda: plain({"b": b"x"}, "")) == f"b: {BYTES}"


def test_arguments_that_were_not_given() -> None:
    class NotGiven:
        pass

    assert [is_absent(value) for value in (openai.NOT_GIVEN, openai.omit, None, NotGiven())] == [
        True, True, False, False,
    ]  # fmt: skip
    arguments: dict[str, object] = {"a": openai.NOT_GIVEN, "b": None}
    assert present(arguments) == {"b": None}


def test_the_name_of_an_argument_is_checked() -> None:
    check_names({"stop": 1}, ["stop", "model"], "create")
    assert refusal(lambda: check_names({"stop": 1, "modle": 1}, ["stop", "model"], "create")) == (
        "modle: is no argument of create; did you mean 'model'?"
    )
    assert refusal(lambda: check_names({"zz": 1}, ["stop"], "create")) == (
        "zz: is no argument of create; a member that only the server knows goes into extra_body"
    )


def test_the_options_of_a_call() -> None:
    arguments: dict[str, object] = {
        "model": "m", "stream": True, "extra_query": {}, "timeout": 2, "extra_headers": {"a": "b"},
        "extra_body": {"c": 1},
    }  # fmt: skip
    expected = CallOptions(ms.Timeouts(connect=2, first_byte=2, idle=2), {"a": "b"}, {"c": 1})
    assert take_call_options(arguments) == expected
    assert arguments == {"model": "m"}
    assert take_call_options({}) == CallOptions(None, None, {})
    assert refusal(lambda: take_call_options({"extra_query": {"a": 1}})) == (
        "extra_query: cannot be carried: a query belongs to the provider, profile.quirks.query"
    )
    assert refusal(lambda: take_call_options({"extra_body": [1]})) == "extra_body: must be a dict, not list"
    assert refusal(lambda: headers_of([], "h")) == "h: must be a dict of texts"
    assert refusal(lambda: headers_of({"a": 1}, "h")) == "h['a']: must be text"


@pytest.mark.parametrize("wrong", [0, -1, True, "5", math.nan])
def test_a_timeout_is_seconds_above_0(wrong: object) -> None:
    words = "t: must be seconds above 0, an httpx.Timeout, or None for no time-out"
    assert refusal(lambda: timeouts_of(wrong, "t")) == words
    assert timeouts_of(0.1, "t") == ms.Timeouts(connect=0.1, first_byte=0.1, idle=0.1)


def test_a_conversation_of_an_sdk() -> None:
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
    assert read_conversation(ChatConverter, [system, system, user]) == ([ms.Message.user("u")], "s\n\ns")  # type: ignore[list-item]
    assert read_conversation(ChatConverter, [user]) == ([ms.Message.user("u")], None)  # type: ignore[list-item]
    wrong = {"role": "robot"}
    assert refusal(lambda: read_conversation(ChatConverter, [wrong])) == "messages[0].role: unknown role 'robot'"  # type: ignore[list-item]
    assert refusal(lambda: read_conversation(ChatConverter, [wrong], "body")) == (  # type: ignore[list-item]
        "body.messages[0].role: unknown role 'robot'"
    )
    assert never_empty([], "s") == ([ms.Message.user("s")], None)
    assert never_empty([], None) == ([], None)
    assert never_empty([ms.Message.user("u")], "s") == ([ms.Message.user("u")], "s")


def test_a_class_with_a_schema_is_needed() -> None:
    assert schema_class(Model, "f") is Model
    words = "f: must be a class with model_json_schema(), not "
    assert refusal(lambda: schema_class(int, "f")) == f"{words}the class int"
    assert refusal(lambda: schema_class({"a": 1}, "f")) == f"{words}dict is neither JSON nor an object of an SDK"


# --- functions ---
class Caller:
    async def __call__(self) -> str:
        return "k"

    async def method(self) -> str:
        return "k"

    @staticmethod
    def plain() -> str:
        return "k"


ASYNC = "is a coroutine function (async def)"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (Caller(), f"Caller.__call__ {ASYNC}"),
        (Caller().method, f"Caller.method {ASYNC}"),
        (functools.partial(functools.partial(Caller().method)), f"Caller.method {ASYNC}"),
        (AsyncMock(), f"AsyncMock.__call__ {ASYNC}"),
        (Caller.plain, ""),
        (functools.partial(Caller.plain), ""),
        (Caller, ""),
        (print, ""),
        (lambda: "k", ""),
    ],
)
def test_a_callable_that_would_not_run_is_named(function: Callable[[], object], words: str) -> None:
    assert why_deferred(function) == words
