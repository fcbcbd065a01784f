"""Reads the arguments of `client.chat.completions.create` (openai) into a `Request`, and the messages of
`Request(messages=…)`: text, and dicts in the form of these arguments.

The converter reads the messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TypeAlias, cast

from ...convert.plain_forms import function_tool, is_mapping
from ...convert.sdk_arguments import (
    CALL_OPTIONS,
    CallOptions,
    check_names,
    never_empty,
    plain,
    present,
    read_conversation,
    read_turns,
    schema_class,
    split_system,
    take_call_options,
)
from ...errors import InvalidRequestError
from ...json.json_values import JSON, JSONObject, mapping, string
from ...json.object_reader import Members
from ...model.messages import Message, Text, leading_system
from ...model.request import Request, ThinkingConfig, Tool, with_given
from .converter import ChatConverter
from .request import NAME, SOURCES

System: TypeAlias = str | Sequence[Text] | None

METHOD = "openai's client.chat.completions.create"

ARGUMENTS = frozenset({
    "messages", "model", "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "metadata", "modalities", "moderation", "n", "parallel_tool_calls",
    "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "stop", "store",
    "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity",
    "web_search_options", *CALL_OPTIONS,
})  # fmt: skip
"""The arguments that the SDK's method accepts."""

MODES = ("auto", "none", "required")
TOOL_MEMBERS = frozenset({"type", "function"})
FUNCTION_MEMBERS = frozenset({"name", "description", "parameters", "strict"})


def read_arguments(arguments: Mapping[str, object]) -> Request:
    """Return the request. Raises `InvalidRequestError`, which names the argument or the path in it."""
    given = present(arguments)
    check_names(given, ARGUMENTS, METHOD)
    options = take_call_options(given)
    schema: type | None = None
    if isinstance(given.get("response_format"), type):
        schema = schema_class(given.pop("response_format"), "response_format")
    body = {name: plain(value, name) for name, value in given.items() if name not in options.extra_body}
    return read_body(body, options, schema=schema)


def read_body(body: JSONObject, options: CallOptions, where: str = "", *, schema: type | None = None) -> Request:
    """Return the request of a body at the path `where`. schema: the class of the response, if one was given."""
    members = Members(body, where)
    extra: JSONObject = {}
    left_out: list[str] = []
    conversation = read_conversation(ChatConverter, members.some_objects("messages"), where, left_out)
    messages, system = never_empty(*conversation)
    tools = _tools(members, extra)
    choice = tool_choice_of(members, extra, tools)
    parallel = None
    if tools:
        parallel = members.flag("parallel_tool_calls")
    form = members.take("response_format")
    effort = members.text("reasoning_effort")
    limit, older_limit = members.whole("max_completion_tokens"), members.whole("max_tokens")
    request = Request(
        members.needed_text("model"),
        messages,
        system=system,
        tools=tools,
        tool_choice=choice,
        thinking=ThinkingConfig(effort=effort) if effort is not None else None,
        max_output_tokens=limit if limit is not None else older_limit,
        temperature=members.number("temperature"),
        top_p=members.number("top_p"),
        stop=members.texts("stop"),
        seed=members.whole("seed"),
        response_schema=schema if schema is not None else _schema(form, extra),
        parallel_tool_calls=parallel,
        metadata=members.strings("metadata"),
        timeouts=options.timeouts,
        extra_headers=options.extra_headers,
        extra_body={**members.rest(), **extra, **options.extra_body} or None,
    )
    written = frozenset({"response_format"}) if schema is not None else frozenset[str]()
    return with_given(request, NAME, body, SOURCES, written, left_out)


def _tools(members: Members, extra: JSONObject) -> list[Tool]:
    """Return the tools if `Tool` can hold all of them. Otherwise put all into `extra`, and return none."""
    wire = members.objects("tools")
    if all(_is_plain(tool) for tool in wire):
        return [function_tool(tool, f"{members.field('tools')}[{place}]") for place, tool in enumerate(wire)]
    extra["tools"] = list(wire)
    return []


def _is_plain(tool: JSONObject) -> bool:
    function = mapping(tool, "function")
    return tool.get("type") == "function" and tool.keys() <= TOOL_MEMBERS and function.keys() <= FUNCTION_MEMBERS


def tool_choice_of(members: Members, extra: JSONObject, tools: list[Tool]) -> str:
    """Return the tools that the model may call. A choice that no field holds goes to `extra` unchanged."""
    choice = members.take("tool_choice")
    wire = choice if type(choice) is dict else {}
    name = string(mapping(wire, "function"), "name") or string(wire, "name")
    if choice is None:
        return "auto"
    if tools and type(choice) is str and choice in MODES:
        return choice
    if tools and wire.get("type") == "function" and name is not None:
        if name in MODES or all(tool.name != name for tool in tools):
            raise InvalidRequestError(members.field("tool_choice"), f"{name!r} is the name of no tool in tools")
        return name
    if type(choice) not in (str, dict):
        raise InvalidRequestError(members.field("tool_choice"), "must be 'auto', 'none', 'required' or an object")
    extra["tool_choice"] = choice
    return "auto"


def _schema(form: JSON, extra: JSONObject) -> JSONObject | None:
    """Return the schema that the response must match.

    A format without a schema, or with `strict` false, goes to `extra` unchanged.
    """
    described = mapping(form, "json_schema") if type(form) is dict else {}
    schema = mapping(described, "schema")
    if schema and described.get("strict") is not False:
        return schema
    if form is not None:
        extra["response_format"] = form
    return None


def read_messages(given: object, system: System, warnings: list[str] | None = None) -> tuple[Sequence[Message], System]:
    """Convert the messages of a `Request` to `Message` values. Return them and the system prompt.

    System messages at the beginning become the system prompt. Raises `InvalidRequestError`.

    warnings: gets a warning for each kind of member that is left out.
    """
    if isinstance(given, str):
        return [Message.user(given)], system
    items = cast("Sequence[object]", [given] if isinstance(given, Message) else given)
    if not isinstance(items, (list, tuple)):
        return cast("Sequence[Message]", given), system
    for place, item in enumerate(items):
        if not isinstance(item, (Message, Mapping)):
            if not any(map(is_mapping, items)):
                return cast("Sequence[Message]", given), system  # the checks of the request name it
            hint = "; use Message.user(…)" if isinstance(item, str) else ""
            raise InvalidRequestError(
                f"messages[{place}]",
                f"must be a Message or a dict in OpenAI's chat form, not {type(item).__name__}{hint}",
            )
    if all(isinstance(item, Message) for item in items) and not leading_system(cast("Sequence[Message]", items)):
        return cast("Sequence[Message]", items), system
    messages: list[Message] = []
    place = 0
    for are_ready, run in groupby(items, lambda item: isinstance(item, Message)):
        group = list(run)
        messages += cast("list[Message]", group) if are_ready else _read_run(group, place, warnings)
        place += len(group)
    turns, lead = split_system(messages)
    if lead is not None and system is not None:
        raise InvalidRequestError(
            "messages[0]", "is a system prompt, which stands first, or in system=…: give one of the two"
        )
    return turns, lead if lead is not None else system


def _read_run(group: Sequence[object], place: int, warnings: list[str] | None) -> list[Message]:
    """Convert a run of adjacent dicts. `place`: the index of the first one, for error messages."""
    wire = [cast("JSONObject", plain(item, f"messages[{place + number}]")) for number, item in enumerate(group)]
    try:
        return read_turns(ChatConverter, wire, warnings=warnings)
    except InvalidRequestError as error:
        if not place:
            raise
        number, _, rest = error.field.removeprefix("messages[").partition("]")
        field = f"messages[{int(number) + place}]{rest}" if number.isdigit() else error.field
        raise InvalidRequestError(field, str(error).removeprefix(f"{error.field}: ")) from None
