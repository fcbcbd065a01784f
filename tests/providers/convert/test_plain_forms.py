"""Messages and tools as people write them: text and OpenAI's dicts become values where the request is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

import manystream as ms
from manystream.providers.convert.plain_forms import function_tool, is_mapping, read_tools
from manystream.providers.openai.chat.arguments import read_messages
from tests.providers.test_argument_values import BYTES, refusal

USER = ms.Message.user("Hi")

CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def test_a_text_is_one_users_message() -> None:
    assert ms.Request("m", "Hi") == ms.Request("m", [USER])


def test_one_message_is_a_list_of_it() -> None:
    assert ms.Request("m", USER) == ms.Request("m", [USER])


def test_dicts_in_openais_form_become_messages() -> None:
    request = ms.Request(
        "m", [{"role": "user", "content": "Look."}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
        {"role": "user", "content": [{"type": "text", "text": "So?"}]}],
    )  # fmt: skip
    assert list(request.messages) == [
        ms.Message.user("Look."), ms.Message.tool_call("c", "look", "{}"), ms.Message.tool_result("c", "42"),
        ms.Message.user("So?"),
    ]  # fmt: skip


def test_leading_system_messages_become_the_system_prompt() -> None:
    request = ms.Request(
        "m", [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Hi"}],
    )  # fmt: skip
    assert (request.system, list(request.messages)) == ("Be brief.\n\nBe kind.", [USER])


def test_values_and_dicts_may_stand_beside_each_other() -> None:
    request = ms.Request("m", [USER, {"role": "assistant", "content": "Yes?"}, USER])
    assert list(request.messages) == [USER, ms.Message.assistant("Yes?"), USER]


def test_messages_that_are_values_stay_the_same_object() -> None:
    for messages in ([USER], (USER, USER), []):
        assert ms.Request("m", messages).messages is messages


def test_tools_in_openais_form_become_tools() -> None:
    schema = {"type": "object"}
    nested = {"type": "function", "function": {"name": "a", "description": "A.", "parameters": schema, "strict": True}}
    flat = {"type": "function", "name": "b", "parameters": schema}
    request = ms.Request("m", "Hi", tools=[nested, flat, {"name": "c"}, ms.Tool("d")])
    assert list(request.tools) == [
        ms.Tool("a", "A.", {"type": "object"}, strict=True), ms.Tool("b", "", {"type": "object"}), ms.Tool("c"),
        ms.Tool("d"),
    ]  # fmt: skip


def test_tools_of_a_data_set_have_no_nulls() -> None:
    """Arrow gives each row the members of all rows; Transformers' form of a function has the schema of its result."""
    city = {"type": "string", "description": None, "default": None, "enum": ["a", None], "items": None}
    schema: dict[str, object] = {"type": "object", "properties": {"city": city, "default": None}, "required": None}
    function = {"name": "a", "description": None, "parameters": schema, "return": {"type": "string"}, "strict": None}
    wanted = {"type": "object", "properties": {"city": {"type": "string", "default": None, "enum": ["a", None]}}}
    sent: list[dict[str, object]] = [
        {"type": "function", "function": function, "name": None, "parameters": None},
        {**function, "type": "function"},
    ]
    for tool in sent:
        assert [*ms.Request("m", "Hi", tools=[tool]).tools] == [ms.Tool("a", parameters=cast("ms.JSONObject", wanted))]


def test_tools_that_are_values_stay_the_same_object() -> None:
    tools: Sequence[ms.Tool] = (ms.Tool("d"),)
    assert ms.Request("m", "Hi", tools=tools).tools is tools


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([{"role": "user"}], "messages[0].content: must be text or a list of parts"),
        ([{"role": "robot", "content": "x"}], "messages[0].role: unknown role 'robot'"),
        ([USER, {"role": "user", "content": [{"type": "smell"}]}], "messages[1].content[0].type: unknown part"),
        ([USER, USER, {"role": "user", "content": {1}}], "messages[2].content: cannot be carried: set"),
    ],
)
def test_a_dict_that_is_no_message_is_refused_by_its_path(messages: list[ms.Message], complaint: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        ms.Request("m", messages)
    assert str(caught.value).startswith(complaint)


def test_two_system_prompts_are_refused() -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[0\]: is a system prompt"):
        ms.Request("m", [{"role": "system", "content": "a"}], system="b")


@pytest.mark.parametrize(
    ("tool", "complaint"),
    [
        ({"type": "web_search"},
            "tools[0].type: must be 'function', not 'web_search': put other tools into extra_body"),
        ({"type": "function", "function": {"description": "x"}}, "tools[0].name: is missing"),
        ({"name": "a", "parameter": {}},
            "tools[0].parameter: is not a member of this form; did you mean 'parameters'?"),
    ],
)  # fmt: skip
def test_a_dict_that_is_no_tool_is_refused_by_its_path(tool: dict[str, object], complaint: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        ms.Request("m", "Hi", tools=[tool])
    assert str(caught.value).startswith(complaint)


# --- messages and tools in plain forms ---
FIRST_USER, SYSTEM = {"role": "user", "content": "u"}, {"role": "system", "content": "s"}

MESSAGE = ms.Message.user("m")


@pytest.mark.parametrize(
    ("given", "messages", "system"),
    [
        ("x", [ms.Message.user("x")], None),
        (MESSAGE, [MESSAGE], None),
        ([SYSTEM, FIRST_USER], [ms.Message.user("u")], "s"),
        ((FIRST_USER, MESSAGE, FIRST_USER), [ms.Message.user("u"), MESSAGE, ms.Message.user("u")], None),
        ([MESSAGE, FIRST_USER, FIRST_USER], [MESSAGE, ms.Message.user("u"), ms.Message.user("u")], None),
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
    assert read_messages([FIRST_USER], "s") == ([ms.Message.user("u")], "s")


TWICE = "is a system prompt, which stands first, or in system=…: give one of the two"


@pytest.mark.parametrize(
    ("given", "system", "words"),
    [
        ([SYSTEM, FIRST_USER], "s", f"messages[0]: {TWICE}"),
        ([ms.Message.system("a"), FIRST_USER], "s", f"messages[0]: {TWICE}"),
        ([MESSAGE, MESSAGE, FIRST_USER, {"role": "robot"}], None, "messages[3].role: unknown role 'robot'"),
        ([{"role": "robot"}], None, "messages[0].role: unknown role 'robot'"),
        ([MESSAGE, FIRST_USER, {"role": "user", "content": b"x"}], None, f"messages[2].content: {BYTES}"),
        ([FIRST_USER, MESSAGE, 7], None, "messages[2]: must be a Message or a dict in OpenAI's chat form, not int"),
        ([None, FIRST_USER], None, "messages[0]: must be a Message or a dict in OpenAI's chat form, not NoneType"),
        ([FIRST_USER, "x"], None,
            "messages[1]: must be a Message or a dict in OpenAI's chat form, not str; use Message.user(…)"),
    ],
)  # fmt: skip
def test_a_plain_message_is_refused_by_its_place(given: object, system: str | None, words: str) -> None:
    assert refusal(lambda: read_messages(given, system)) == words


def test_a_later_system_message_is_a_message() -> None:
    read, system = read_messages([MESSAGE, FIRST_USER, SYSTEM], None)
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
