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
from manystream.providers.convert.plain_forms import function_tool, is_mapping, read_tools
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
from manystream.providers.errors import InvalidRequestError
from manystream.providers.model.given_body import GivenBody
from manystream.providers.model.rules import why_deferred
from manystream.providers.openai.chat.arguments import read_messages
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.wire.answer_bytes import kept_bytes


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
    with pytest.raises(InvalidRequestError) as caught:
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


# --- messages and tools in plain forms ---

USER, SYSTEM = {"role": "user", "content": "u"}, {"role": "system", "content": "s"}
MESSAGE = ms.Message.user("m")


@pytest.mark.parametrize(
    ("given", "messages", "system"),
    [
        ("x", [ms.Message.user("x")], None),
        (MESSAGE, [MESSAGE], None),
        ([SYSTEM, USER], [ms.Message.user("u")], "s"),
        ((USER, MESSAGE, USER), [ms.Message.user("u"), MESSAGE, ms.Message.user("u")], None),
        ([MESSAGE, USER, USER], [MESSAGE, ms.Message.user("u"), ms.Message.user("u")], None),
        ([SYSTEM], [], "s"),
    ],
)
def test_plain_messages_are_read(given: object, messages: list[ms.Message], system: str | None) -> None:
    assert read_messages(given, None) == (messages, system)


def test_values_that_are_no_plain_messages_are_returned_as_is() -> None:
    for given in ([MESSAGE], (MESSAGE,), [MESSAGE, 7], 7, [], None):
        assert read_messages(given, "s")[0] is given
        assert read_messages(given, "s")[1] == "s"
    assert read_messages("x", "s") == ([ms.Message.user("x")], "s")
    assert read_messages(MESSAGE, "s") == ([MESSAGE], "s")
    assert read_messages([USER], "s") == ([ms.Message.user("u")], "s")


TWICE = "is a system prompt, which stands first, or in system=…: give one of the two"


@pytest.mark.parametrize(
    ("given", "system", "words"),
    [
        ([SYSTEM, USER], "s", f"messages[0]: {TWICE}"),
        ([ms.Message.system("a"), USER], "s", f"messages[0]: {TWICE}"),
        ([MESSAGE, MESSAGE, USER, {"role": "robot"}], None, "messages[3].role: unknown role 'robot'"),
        ([{"role": "robot"}], None, "messages[0].role: unknown role 'robot'"),
        ([MESSAGE, USER, {"role": "user", "content": b"x"}], None, f"messages[2].content: {BYTES}"),
        ([USER, MESSAGE, 7], None, "messages[2]: must be a Message or a dict in OpenAI's chat form, not int"),
        ([None, USER], None, "messages[0]: must be a Message or a dict in OpenAI's chat form, not NoneType"),
        ([USER, "x"], None,
            "messages[1]: must be a Message or a dict in OpenAI's chat form, not str; use Message.user(…)"),
    ],
)  # fmt: skip
def test_a_plain_message_is_refused_by_its_place(given: object, system: str | None, words: str) -> None:
    assert refusal(lambda: read_messages(given, system)) == words


def test_a_later_system_message_is_a_message() -> None:
    read, system = read_messages([MESSAGE, USER, SYSTEM], None)
    assert (read[1:], system) == ([ms.Message.user("u"), ms.Message.system("s")], None)


def test_plain_tools_are_read() -> None:
    schema = {"type": "object"}
    flat = {"name": "f", "description": "d", "parameters": schema, "strict": True}
    tool = ms.Tool("f", "d", schema, True)  # type: ignore[arg-type]
    assert read_tools([flat, {"type": "function", "function": flat}, tool, 7]) == [tool, tool, tool, 7]
    assert read_tools(({"name": "f"},)) == [ms.Tool("f")]
    given: object = "x"
    assert read_tools(given) is given
    assert is_mapping(flat)
    assert not is_mapping([flat])


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ({"type": "web_search"}, "t.type: must be 'function', not 'web_search': put other tools into extra_body"),
        ({}, "t.name: is missing"),
        ({"name": ""}, "t.name: is missing"),
        ({"name": 1}, "t.name: must be text, not a number"),
        ({"name": "f", "description": 1}, "t.description: must be text, not a number"),
        ({"name": "f", "parameters": []}, "t.parameters: must be an object, not an array"),
        ({"name": "f", "strict": "x"}, "t.strict: must be true or false, not text"),
        ({"name": "f", "strikt": True}, "t.strikt: is not a member of this form; did you mean 'strict'?"),
        ({"name": "f", "zz": True},
            "t.zz: is not a member of this form; its members are name, description, parameters, strict"),
    ],
)  # fmt: skip
def test_a_plain_tool_is_refused_by_its_member(tool: dict[str, object], words: str) -> None:
    assert refusal(lambda: function_tool(tool, "t")) == words  # type: ignore[arg-type]
    assert refusal(lambda: read_tools([{"name": "f"}, tool])) == f"tools[1]{words[1:]}"


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


# --- the given form of a body ---

SOURCES = {"a": ("seed",), "b.c": ("stop", "top_p"), "d": ("top_p",), "e": ("messages",)}


def given_body(request: ms.Request, written: frozenset[str] = frozenset()) -> GivenBody:
    from manystream.providers.model.given_body import given_body as make

    return make("chat", {"a": 1, "b.c": [2], "e": "u"}, request, SOURCES, written)


def restored(request: ms.Request, body: GivenBody, dialect: str = "chat") -> tuple[object, list[str]]:
    members: dict[str, object] = {"a": 7, "b": {"c": 8}, "d": 9, "e": [], "x": 0}
    warnings = ["seed: w", "stop is w", "other: w", "top_p: w", ""]
    body.restore(dialect, members, request, SOURCES, warnings)  # type: ignore[arg-type]
    return members, warnings


def test_members_of_unchanged_fields_are_sent_as_given() -> None:
    request = ms.Request("m", [MESSAGE], seed=1)
    body = given_body(request)
    assert restored(request, body) == ({"a": 1, "b": {"c": [2]}, "e": "u", "x": 0}, ["other: w", ""])
    written: dict[str, object] = {"a": 7, "b": {"c": 8}, "d": 9, "e": [], "x": 0}
    assert restored(request, body, "other") == (written, ["seed: w", "stop is w", "other: w", "top_p: w", ""])
    changed = ms.Request("m", [MESSAGE], seed=2)
    assert restored(changed, body) == ({"a": 7, "b": {"c": [2]}, "e": "u", "x": 0}, ["seed: w", "other: w", ""])
    changed = ms.Request("m", [MESSAGE], seed=1, top_p=0.5)
    assert restored(changed, body) == ({**written, "a": 1, "e": "u"}, ["other: w", "top_p: w", ""])
    changed = ms.Request("m", [MESSAGE, MESSAGE], seed=1)
    assert restored(changed, body)[0] == {"a": 1, "b": {"c": [2]}, "e": [], "x": 0}
    kept = given_body(request, frozenset({"a", "d"}))
    assert restored(request, kept)[0] == {"a": 7, "b": {"c": [2]}, "d": 9, "e": "u", "x": 0}


def test_a_member_of_an_object_is_put_and_removed() -> None:
    request = ms.Request("m", [MESSAGE])
    sources = {"a.b.c": ("seed",), "a.d": ("stop",)}
    body: dict[str, object] = {}
    put = GivenBody("chat", {"a.b.c": 1}, frozenset(), {"seed": None, "stop": ()}, None)
    put.restore("chat", body, request, sources, [])  # type: ignore[arg-type]
    assert body == {"a": {"b": {"c": 1}}}
    body = {"a": {"b": {"c": 1}, "d": 2}, "x": 0}
    gone = GivenBody("chat", {}, frozenset(), {"seed": None, "stop": ()}, None)
    gone.restore("chat", body, request, sources, [])  # type: ignore[arg-type]
    assert body == {"x": 0}
    body = {"a": 7}
    gone.restore("chat", body, request, sources, [])  # type: ignore[arg-type]
    assert body == {"a": 7}


# --- memory ---


class Slots:
    __slots__ = ("a", "provider", "unset")

    def __init__(self) -> None:
        self.a = "abc"
        self.provider = "x" * 1000


def test_the_size_of_kept_values_is_counted() -> None:
    shared = ["ab"]
    assert kept_bytes("abc") == 3
    assert kept_bytes(b"abcd") == 4
    assert [kept_bytes(value) for value in (None, True, 5, 1.5, int)] == [1] * 5
    assert kept_bytes({"ab": ["c", None]}) == 1 + 2 + 1 + 1 + 1
    assert kept_bytes(("a", {"b"})) == 4
    assert kept_bytes([shared, shared]) == 1 + 1 + 2 + 1
    assert kept_bytes(Slots()) == 1 + 3 + 1
