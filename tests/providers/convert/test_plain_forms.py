"""Messages and tools as people write them: text and OpenAI's dicts become values where the request is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

import manystream as ms

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
