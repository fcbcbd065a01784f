"""What of OpenAI's arguments fields of a request hold, what goes to `extra_body`, and what is refused by its path."""

from __future__ import annotations

import copy
import dataclasses

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.convert.sdk_arguments import CallOptions
from manystream.providers.openai.chat.arguments import read_body as read_chat
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.arguments import read_body as read_responses

SCHEMA: ms.JSONObject = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}

FUNCTION: ms.JSONObject = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}

TOOL = ms.Tool("f", parameters=SCHEMA)

SEARCH: ms.JSONObject = {"type": "web_search"}

AUTO_CHOICE = "must be 'auto', 'none', 'required' or an object"

HI = [ms.Message.user("Hi")]


def chat(extra_body: ms.JSONObject | None = None, /, **members: ms.JSON) -> ms.Request:
    body: ms.JSONObject = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **members}
    return read_chat(body, CallOptions(extra_body=extra_body or {}), "line")


def responses(extra_body: ms.JSONObject | None = None, /, **members: ms.JSON) -> ms.Request:
    body: ms.JSONObject = {"model": "m", "input": "Hi", **members}
    return read_responses(body, CallOptions(extra_body=extra_body or {}), "line")


def as_lists(request: ms.Request) -> ms.Request:
    """Return a request whose absent tools and stop sequences are empty lists."""
    return dataclasses.replace(request, tools=[*request.tools], stop=[*request.stop])


NAMED: ms.JSONObject = {"type": "function", "function": {"name": "f"}}

CUSTOM: ms.JSONObject = {"type": "custom", "custom": {"name": "g"}}

MANY: ms.JSONObject = {**FUNCTION, "defer_loading": True}

MORE: ms.JSONObject = {"type": "function", "function": {"name": "f", "new": 1}}

FORM: ms.JSONObject = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}

LOOSE: ms.JSONObject = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": False}}

WORDS: ms.JSONObject = {"type": "json_object"}

CHAT_FIELDS: dict[str, tuple[ms.JSONObject, ms.Request]] = {
    "nothing": ({}, ms.Request("m", HI)),
    "a limit": ({"max_completion_tokens": 5}, ms.Request("m", HI, max_output_tokens=5)),
    "an older limit": ({"max_tokens": 6}, ms.Request("m", HI, max_output_tokens=6)),
    "both limits": ({"max_completion_tokens": 5, "max_tokens": 6}, ms.Request("m", HI, max_output_tokens=5)),
    "a limit of 0": ({"max_completion_tokens": 0, "max_tokens": 6}, ms.Request("m", HI, max_output_tokens=0)),
    "an effort": ({"reasoning_effort": "high"}, ms.Request("m", HI, thinking=ms.ThinkingConfig(effort="high"))),
    "stops": ({"stop": ["a", "b"]}, ms.Request("m", HI, stop=["a", "b"])),
    "parallel calls": (
        {"tools": [FUNCTION], "parallel_tool_calls": True},
        ms.Request("m", HI, tools=[TOOL], parallel_tool_calls=True),
    ),
    "parallel calls without tools": (
        {"parallel_tool_calls": True},
        ms.Request("m", HI, extra_body={"parallel_tool_calls": True}),
    ),
    "a choice": ({"tools": [FUNCTION], "tool_choice": NAMED}, ms.Request("m", HI, tools=[TOOL], tool_choice="f")),
    "a flat choice": (
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "f"}},
        ms.Request("m", HI, tools=[TOOL], tool_choice="f"),
    ),
    "a choice without tools": ({"tool_choice": "none"}, ms.Request("m", HI, extra_body={"tool_choice": "none"})),
    "a named choice without tools": ({"tool_choice": NAMED}, ms.Request("m", HI, extra_body={"tool_choice": NAMED})),
    "an unknown word": (
        {"tools": [FUNCTION], "tool_choice": "any"},
        ms.Request("m", HI, tools=[TOOL], extra_body={"tool_choice": "any"}),
    ),
    "a choice of another type": (
        {"tools": [FUNCTION], "tool_choice": CUSTOM},
        ms.Request("m", HI, tools=[TOOL], extra_body={"tool_choice": CUSTOM}),
    ),
    "a choice without a name": (
        {"tools": [FUNCTION], "tool_choice": {"type": "function"}},
        ms.Request("m", HI, tools=[TOOL], extra_body={"tool_choice": {"type": "function"}}),
    ),
    "another tool": (
        {"tools": [FUNCTION, SEARCH], "tool_choice": "auto"},
        ms.Request("m", HI, extra_body={"tools": [FUNCTION, SEARCH], "tool_choice": "auto"}),
    ),
    "a tool with another member": ({"tools": [MANY]}, ms.Request("m", HI, extra_body={"tools": [MANY]})),
    "a function with another member": ({"tools": [MORE]}, ms.Request("m", HI, extra_body={"tools": [MORE]})),
    "a schema": ({"response_format": FORM}, ms.Request("m", HI, response_schema=SCHEMA)),
    "a loose schema": ({"response_format": LOOSE}, ms.Request("m", HI, extra_body={"response_format": LOOSE})),
    "another format": ({"response_format": WORDS}, ms.Request("m", HI, extra_body={"response_format": WORDS})),
    "a format that is no object": ({"response_format": "x"}, ms.Request("m", HI, extra_body={"response_format": "x"})),
    "other members": ({"top_k": 3, "user": "u"}, ms.Request("m", HI, extra_body={"top_k": 3, "user": "u"})),
    "system messages": (
        {"messages": [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"},
                      {"role": "user", "content": "Hi"}]},
        ms.Request("m", HI, system="a\n\nb"),
    ),
    "a system message alone": ({"messages": [{"role": "system", "content": "Hi"}]}, ms.Request("m", HI)),
}  # fmt: skip


@pytest.mark.parametrize(("members", "request_"), CHAT_FIELDS.values(), ids=CHAT_FIELDS)
def test_chat_arguments_are_fields_or_extra_members(members: ms.JSONObject, request_: ms.Request) -> None:
    assert as_lists(chat(**members)) == as_lists(request_)


def test_a_format_beside_a_class_is_left_out() -> None:
    class Place:
        pass

    body: ms.JSONObject = {"model": "m", "input": "Hi", "text": {"format": {"type": "text"}, "verbosity": "low"}}
    request = read_responses(body, CallOptions(), schema=Place)
    assert (request.response_schema, request.extra_body) == (Place, {"text": {"verbosity": "low"}})
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "response_format": WORDS}
    request = read_chat(body, CallOptions(), schema=Place)
    assert (request.response_schema, request.extra_body) == (Place, None)


def test_members_of_extra_body_replace_the_others() -> None:
    assert chat({"top_k": 4}, top_k=3, user="u").extra_body == {"top_k": 4, "user": "u"}
    assert responses({"top_k": 4}, top_k=3, user="u").extra_body == {"top_k": 4, "user": "u"}
    assert responses({"prompt": "p"}, input=None).extra_body == {"prompt": "p"}


EMPTY = "must hold at least one message"

NAMELESS: ms.JSONObject = {"type": "function", "function": {"parameters": {}}}

CHAT_ERRORS: list[tuple[ms.JSONObject, str]] = [
    ({"model": None}, "line.model: is missing"),
    ({"model": 5}, "line.model: must be text, not a number"),
    ({"messages": []}, f"line.messages: {EMPTY}"),
    ({"messages": None}, f"line.messages: {EMPTY}"),
    ({"messages": [{"role": "user", "content": 5}]}, "line.messages[0].content: must be text or a list of parts"),
    ({"messages": [5]}, "line.messages[0]: must be an object, not a number"),
    ({"tools": [FUNCTION, NAMELESS]}, "line.tools[1].name: is missing"),
    ({"tools": 5}, "line.tools: must be an array, not a number"),
    ({"tools": [FUNCTION], "tool_choice": 5}, f"line.tool_choice: {AUTO_CHOICE}"),
    (
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "line.tool_choice: 'g' is the name of no tool in tools",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "auto"}}],
         "tool_choice": {"type": "function", "function": {"name": "auto"}}},
        "line.tool_choice: 'auto' is the name of no tool in tools",
    ),
    ({"tools": [FUNCTION], "parallel_tool_calls": 1}, "line.parallel_tool_calls: must be true or false, not a number"),
    ({"max_completion_tokens": "x"}, "line.max_completion_tokens: must be a whole number, not text"),
    ({"max_tokens": 0.5}, "line.max_tokens: must be a whole number, not a number"),
    ({"temperature": "x"}, "line.temperature: must be a number, not text"),
    ({"top_p": "x"}, "line.top_p: must be a number, not text"),
    ({"stop": 5}, "line.stop: must be text or an array of texts, not a number"),
    ({"seed": "x"}, "line.seed: must be a whole number, not text"),
    ({"metadata": {"a": 1}}, "line.metadata.a: must be text, not a number"),
    ({"reasoning_effort": 1}, "line.reasoning_effort: must be text, not a number"),
]  # fmt: skip


@pytest.mark.parametrize(("members", "text"), CHAT_ERRORS, ids=[row[1] for row in CHAT_ERRORS])
def test_a_wrong_chat_argument_is_named_by_its_path(members: ms.JSONObject, text: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        chat(**members)
    assert str(caught.value) == text


@pytest.mark.parametrize("name", ["response_id", "starting_after", "parse_as"])
def test_an_argument_that_asks_for_nothing_is_refused(name: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        ms.Request.from_openai_responses(model="m", input="Hi", **{name: "x"})
    assert str(caught.value) == f"{name}: cannot be carried: it says how the SDK reads an answer, not what is asked"
    assert ms.Request.from_openai_responses(model="m", input="Hi", **{name: None}).messages == HI


ONLY_THE_SERVER = "a member that only the server knows goes into extra_body"


def test_an_unknown_argument_is_refused_by_the_methods_name() -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        ms.Request.from_openai(model="m", messages=[], qqqq=1)
    assert str(caught.value) == f"qqqq: is no argument of openai's client.chat.completions.create; {ONLY_THE_SERVER}"
    with pytest.raises(ms.InvalidRequestError) as caught:
        ms.Request.from_openai_responses(model="m", input="Hi", qqqq=1)
    assert str(caught.value) == f"qqqq: is no argument of openai's client.responses.create; {ONLY_THE_SERVER}"


LEFT_OUT = "messages: 'name' of a message with the role 'user' is left out"

USERS: list[dict[str, object]] = [
    {"role": "user", "content": "Hi", "name": "Ann"},
    {"role": "user", "content": "Ho", "name": "Bo"},
]


def warnings_of(request: ms.Request, provider: ms.Provider) -> list[str]:
    return DIALECTS[provider.profile.dialect_name].encode(request, "m", provider, stream=False).warnings


def test_a_name_is_sent_as_given_or_causes_a_warning() -> None:
    request = ms.Request.from_openai(model="m", messages=USERS)
    assert warnings_of(request, ms.OpenAIChat()) == []
    for other in (ms.Anthropic(), ms.Gemini(), ms.OpenAIResponses()):
        assert warnings_of(request, other) == [LEFT_OUT]
    longer = dataclasses.replace(request, messages=[*request.messages, ms.Message.user("more")])
    assert warnings_of(longer, ms.OpenAIChat()) == [LEFT_OUT]
    other = dataclasses.replace(request, messages=[ms.Message.user("other")])
    assert warnings_of(other, ms.Anthropic()) == []


def test_the_name_in_a_dict_causes_a_warning() -> None:
    request = ms.Request("m", USERS)
    for provider in (ms.OpenAIChat(), ms.Anthropic(), ms.Gemini(), ms.OpenAIResponses()):
        assert warnings_of(copy.deepcopy(request), provider) == [LEFT_OUT]


def test_members_that_are_read_or_empty_cause_no_warning() -> None:
    warnings: list[str] = []
    read: ms.JSONObject = {
        "refusal": "no", "annotations": [{"type": "url_citation"}], "audio": {"id": "a"}, "reasoning_content": "t",
    }  # fmt: skip
    messages: list[ms.JSONObject] = [
        {"role": "system", "content": "s", "name": ""},
        {"role": "assistant", "content": "a", "function_call": None, "tool_calls": [], "name": None, **read},
        {"role": "tool", "tool_call_id": "a", "content": "r", "name": "look"},
    ]
    ChatConverter().decode_messages(messages, [], warnings)
    assert warnings == []
    ChatConverter().decode_messages([{"role": "assistant", "content": "{", "prefix": True}], [], warnings)
    assert warnings == ["messages: 'prefix' of a message with the role 'assistant' is left out"]
