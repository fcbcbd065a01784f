"""What of the Responses API's arguments fields hold, and what is refused by its path."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.model.request import Request
from tests.providers.openai.chat.test_arguments import AUTO_CHOICE, EMPTY, HI, SCHEMA, SEARCH, TOOL, as_lists, responses

OPEN: ms.JSONObject = {"type": "object", "additionalProperties": {}}

FLAT: ms.JSONObject = {"type": "function", "name": "f", "parameters": SCHEMA}

RESPONSES_FIELDS: dict[str, tuple[ms.JSONObject, Request]] = {
    "nothing": ({}, Request("m", HI)),
    "instructions": ({"instructions": "s"}, Request("m", HI, system="s")),
    "instructions and a system message": (
        {"instructions": "s", "input": [{"role": "system", "content": "t"}, {"role": "user", "content": "Hi"}]},
        Request("m", HI, system="s\n\nt"),
    ),
    "empty instructions": ({"instructions": ""}, Request("m", HI)),
    "a limit": ({"max_output_tokens": 5}, Request("m", HI, max_output_tokens=5)),
    "an effort": ({"reasoning": {"effort": "low"}}, Request("m", HI, thinking=ms.ThinkingConfig(effort="low"))),
    "a summary": (
        {"reasoning": {"effort": None, "summary": "auto"}},
        Request("m", HI, thinking=ms.ThinkingConfig(include_summary=True)),
    ),
    "another member of reasoning": (
        {"reasoning": {"effort": "low", "new": 1}},
        Request("m", HI, extra_body={"reasoning": {"effort": "low", "new": 1}}),
    ),
    "a tool": (
        {"tools": [FLAT], "parallel_tool_calls": False},
        Request("m", HI, tools=[TOOL], parallel_tool_calls=False),
    ),
    "another tool": ({"tools": [FLAT, SEARCH]}, Request("m", HI, extra_body={"tools": [FLAT, SEARCH]})),
    "a tool with another member": (
        {"tools": [{**FLAT, "defer": 1}]},
        Request("m", HI, extra_body={"tools": [{**FLAT, "defer": 1}]}),
    ),
    "a choice": (
        {"tools": [FLAT], "tool_choice": {"type": "function", "name": "f"}},
        Request("m", HI, tools=[TOOL], tool_choice="f"),
    ),
    "a word": ({"tools": [FLAT], "tool_choice": "required"}, Request("m", HI, tools=[TOOL], tool_choice="required")),
    "an unknown word": (
        {"tools": [FLAT], "tool_choice": "any"},
        Request("m", HI, tools=[TOOL], extra_body={"tool_choice": "any"}),
    ),
    "a word as a name": (
        {"tools": [FLAT], "tool_choice": {"type": "function", "name": "auto"}},
        Request("m", HI, tools=[TOOL], extra_body={"tool_choice": {"type": "function", "name": "auto"}}),
    ),
    "a choice of another type": (
        {"tools": [FLAT], "tool_choice": {"type": "custom", "name": "f"}},
        Request("m", HI, tools=[TOOL], extra_body={"tool_choice": {"type": "custom", "name": "f"}}),
    ),
    "a choice without tools": ({"tool_choice": "auto"}, Request("m", HI, extra_body={"tool_choice": "auto"})),
    "a schema": (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
        Request("m", HI, response_schema=SCHEMA),
    ),
    "a schema and a verbosity": (
        {"text": {"format": {"type": "json_schema", "schema": SCHEMA, "strict": True}, "verbosity": "low"}},
        Request("m", HI, response_schema=SCHEMA, extra_body={"text": {"verbosity": "low"}}),
    ),
    "a schema that is not strict": (
        {"text": {"format": {"type": "json_schema", "schema": SCHEMA, "strict": False}}},
        Request("m", HI, extra_body={"text": {"format": {"type": "json_schema", "schema": SCHEMA, "strict": False}}}),
    ),
    "a schema that cannot be strict": (
        {"text": {"verbosity": "low", "format": {"schema": OPEN}}},
        Request("m", HI, extra_body={"text": {"verbosity": "low", "format": {"schema": OPEN}}}),
    ),
    "another format": (
        {"text": {"format": {"type": "text"}}},
        Request("m", HI, extra_body={"text": {"format": {"type": "text"}}}),
    ),
    "a verbosity": ({"text": {"verbosity": "low"}}, Request("m", HI, extra_body={"text": {"verbosity": "low"}})),
    "an empty text": ({"text": {}}, Request("m", HI)),
    "a prompt": (
        {"input": None, "prompt": {"id": "p"}},
        Request("m", [ms.Message.user([ms.Text("")])], extra_body={"prompt": {"id": "p"}}),
    ),
    "a conversation": (
        {"input": None, "conversation": "c"},
        Request("m", [ms.Message.user([ms.Text("")])], extra_body={"conversation": "c"}),
    ),
    "other members": ({"truncation": "auto"}, Request("m", HI, extra_body={"truncation": "auto"})),
    "metadata": ({"metadata": {"a": "b"}}, Request("m", HI, metadata={"a": "b"})),
    "sampling": ({"temperature": 0, "top_p": 0.5}, Request("m", HI, temperature=0, top_p=0.5)),
    "a reference alone": (
        {"input": [{"role": "assistant", "content": ""}]},
        Request("m", [ms.Message.user([ms.Text("")])]),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("members", "request_"), RESPONSES_FIELDS.values(), ids=RESPONSES_FIELDS)
def test_responses_arguments_are_fields_or_extra_members(members: ms.JSONObject, request_: Request) -> None:
    assert as_lists(responses(**members)) == as_lists(request_)


RESPONSES_ERRORS: list[tuple[ms.JSONObject, str]] = [
    ({"model": None}, "line.model: is missing"),
    ({"input": None}, f"line.input: {EMPTY}"),
    ({"input": []}, f"line.input: {EMPTY}"),
    ({"input": 5}, "line.input: must be an array, not a number"),
    ({"input": None, "prompt": None, "previous_response_id": ""}, f"line.input: {EMPTY}"),
    ({"input": [{"type": "smell"}]}, "line.input[0].type: unknown item 'smell'"),
    ({"instructions": 5}, "line.instructions: must be text, not a number"),
    ({"tools": [FLAT, {"type": "function"}]}, "line.tools[1].name: is missing"),
    ({"tools": [FLAT], "tool_choice": 5}, f"line.tool_choice: {AUTO_CHOICE}"),
    ({"reasoning": "low"}, "line.reasoning: must be an object, not text"),
    ({"text": "x"}, "line.text: must be an object, not text"),
    ({"max_output_tokens": "x"}, "line.max_output_tokens: must be a whole number, not text"),
    ({"temperature": "x"}, "line.temperature: must be a number, not text"),
    ({"top_p": "x"}, "line.top_p: must be a number, not text"),
    ({"parallel_tool_calls": "x"}, "line.parallel_tool_calls: must be true or false, not text"),
    ({"metadata": {"a": 1}}, "line.metadata.a: must be text, not a number"),
]


@pytest.mark.parametrize(("members", "text"), RESPONSES_ERRORS, ids=[row[1] for row in RESPONSES_ERRORS])
def test_a_wrong_responses_argument_is_named_by_its_path(members: ms.JSONObject, text: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        responses(**members)
    assert str(caught.value) == text
