"""Reads the arguments of `client.responses.create` (openai) into a `Request`.

The converter reads the input items.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...convert.plain_forms import function_tool
from ...convert.sdk_arguments import (
    CALL_OPTIONS,
    CallOptions,
    SystemPrompt,
    check_names,
    joined_system,
    never_empty,
    plain,
    present,
    read_conversation,
    schema_class,
    take_call_options,
)
from ...errors import InvalidRequestError
from ...json.json_values import JSON, JSONObject, mapping, string
from ...json.object_reader import Members
from ...model.messages import Message, Text
from ...model.request import TOOL_CHOICE_MODES, Request, ThinkingConfig, Tool, with_given
from ..schema import strict_schema
from .converter import ResponsesConverter
from .request import NAME, REPLACES_INPUT, SOURCES

METHOD = "openai's client.responses.create"

ARGUMENTS = frozenset({
    "access_programs", "background", "background_options", "context_management", "conversation", "image", "include",
    "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation",
    "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream_options",
    "temperature", "text", "text_format", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
    "verbosity", *CALL_OPTIONS,
})  # fmt: skip
"""The arguments that the SDK's method accepts, and `text_format` of `parse` and `stream`."""

NO_REQUEST = ("response_id", "starting_after", "parse_as")
"""Arguments of `stream` and `parse` that request no new response, or control how the SDK parses it."""

TOOL_MEMBERS = frozenset({"type", "name", "description", "parameters", "strict"})
REASONING_MEMBERS = frozenset({"effort", "summary"})


def read_arguments(arguments: Mapping[str, object]) -> Request:
    """Return the request. Raises `InvalidRequestError`, which names the argument or the path in it."""
    given = present(arguments)
    for name in NO_REQUEST:
        if given.pop(name, None) is not None:
            raise InvalidRequestError(name, "cannot be carried: it says how the SDK reads an answer, not what is asked")
    check_names(given, ARGUMENTS, METHOD)
    options = take_call_options(given)
    schema: type | None = None
    if given.get("text_format") is not None:
        schema = schema_class(given["text_format"], "text_format")
    given.pop("text_format", None)
    body = {name: plain(value, name) for name, value in given.items() if name not in options.extra_body}
    return read_body(body, options, schema=schema)


def read_body(body: JSONObject, options: CallOptions, where: str = "", *, schema: type | None = None) -> Request:
    """Return the request of a body at the path `where`. schema: the class of the response, if one was given."""
    members = Members(body, where)
    extra: JSONObject = {}
    keeps = any(body.get(name) or options.extra_body.get(name) for name in REPLACES_INPUT)
    messages, lead = _input(members, where, may_be_absent=keeps)
    instructions = members.text("instructions")
    tools = _tools(members, extra)
    text = members.object("text") or {}
    form, rest = text.get("format"), {name: value for name, value in text.items() if name != "format"}
    read = _schema(form, where) if schema is None else None
    if form is not None and read is None and schema is None:
        rest["format"] = form
    if rest:
        extra["text"] = rest
    request = Request(
        members.needed_text("model"),
        messages,
        system=joined_system(instructions, lead),
        tools=tools,
        tool_choice=_tool_choice(members, extra, tools),
        thinking=_thinking(members, extra),
        max_output_tokens=members.whole("max_output_tokens"),
        temperature=members.number("temperature"),
        top_p=members.number("top_p"),
        response_schema=schema if schema is not None else read,
        parallel_tool_calls=members.flag("parallel_tool_calls"),
        metadata=members.strings("metadata"),
        timeouts=options.timeouts,
        extra_headers=options.extra_headers,
        extra_body={**members.rest(), **extra, **options.extra_body} or None,
    )
    carried = {**body, "text.format": form} if read is not None else body
    written = frozenset({"text.format"}) if schema is not None else frozenset[str]()
    return with_given(request, NAME, carried, SOURCES, written)


def _input(members: Members, where: str, *, may_be_absent: bool) -> tuple[list[Message], SystemPrompt]:
    """Return the messages, and the system prompt of the system messages before them.

    may_be_absent: the input may be missing, because the server has the prompt.
    """
    given = members.take("input")
    if type(given) is str:
        return [Message.user(given)], None
    if given is None and may_be_absent:
        return [Message.user([Text("")])], None
    items = Members({"input": given}, where).some_objects("input")
    messages, lead = never_empty(*read_conversation(ResponsesConverter, items, where))
    return messages or [Message.user([Text("")])], lead


def _tools(members: Members, extra: JSONObject) -> list[Tool]:
    """Return the tools if `Tool` can hold all of them. Otherwise put all into `extra`, and return none."""
    wire = members.objects("tools")
    if all(tool.get("type") == "function" and tool.keys() <= TOOL_MEMBERS for tool in wire):
        return [function_tool(tool, f"{members.field('tools')}[{place}]") for place, tool in enumerate(wire)]
    extra["tools"] = list(wire)
    return []


def _tool_choice(members: Members, extra: JSONObject, tools: list[Tool]) -> str:
    """Return the tools that the model may call. A choice that no field holds goes to `extra` unchanged."""
    choice = members.take("tool_choice")
    if choice is None:
        return "auto"
    if type(choice) not in (str, dict):
        raise InvalidRequestError(members.field("tool_choice"), "must be 'auto', 'none', 'required' or an object")
    name = string(choice, "name") if type(choice) is dict and choice.get("type") == "function" else choice
    if tools and type(name) is str and (name in TOOL_CHOICE_MODES) is (type(choice) is str):
        return name
    extra["tool_choice"] = choice
    return "auto"


def _thinking(members: Members, extra: JSONObject) -> ThinkingConfig | None:
    reasoning = members.object("reasoning")
    if reasoning is None:
        return None
    if not reasoning.keys() <= REASONING_MEMBERS:
        extra["reasoning"] = reasoning
        return None
    summary = True if reasoning.get("summary") is not None else None
    return ThinkingConfig(effort=string(reasoning, "effort"), include_summary=summary)


def _schema(form: JSON, where: str) -> JSONObject | None:
    """Return the schema that the response must match; None if there is none, or if `strict` is false."""
    described = form if type(form) is dict else {}
    schema = mapping(described, "schema")
    if not schema or described.get("strict") is False:
        return None
    try:
        strict_schema(schema, where)
    except InvalidRequestError:
        return None
    return schema
