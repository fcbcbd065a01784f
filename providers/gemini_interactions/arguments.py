"""Reads the arguments of `client.interactions.create` (google-genai) into a `Request`.

The converter reads the steps of the input.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..convert.sdk_arguments import (
    CALL_OPTIONS,
    CallOptions,
    check_names,
    plain,
    present,
    read_conversation,
    take_call_options,
)
from ..errors import InvalidRequestError
from ..gemini.request import without_added_tools
from ..json.json_values import JSON, JSONObject, items, mapping, string
from ..json.object_reader import Members
from ..model.messages import Message, Text
from ..model.request import Request, ThinkingConfig, Tool, with_given
from ..wire.wire_head import JSON_TYPE
from .converter import InteractionsConverter
from .message_writer import CONTENTS
from .request import CONFIG, NAME, PREVIOUS, SOURCES, TOOL_CHOICES
from .steps import INPUT
from .thinking import SUMMARIES

METHOD = "google-genai's client.interactions.create"

ARGUMENTS = frozenset({
    "background", "cached_content", "continuation_token", "environment", "generation_config", "input", "labels",
    "model", "previous_interaction_id", "response_format", "response_mime_type", "response_modalities",
    "safety_settings", "service_tier", "store", "system_instruction", "tools", "webhook_config", *CALL_OPTIONS,
})  # fmt: skip
"""The arguments that the SDK's method accepts for a model."""

NO_REQUEST = {
    "agent": "a Request names a model",
    "agent_config": "a Request names a model",
    "api_version": "it belongs to the provider",
}
"""Argument → why no request has it."""

IGNORED = ("automatic_continuation",)
"""Arguments that control how the SDK processes an answer."""

TOOL_MEMBERS = frozenset({"type", "name", "description", "parameters"})
MODES = {mode: word for word, mode in TOOL_CHOICES.items()}
SHOWN = {word: shown for shown, word in SUMMARIES.items()}


def read_arguments(arguments: Mapping[str, object]) -> Request:
    """Return the request. Raises `InvalidRequestError`, which names the argument or the path in it."""
    given = present(arguments)
    for name in IGNORED:
        given.pop(name, None)
    for name, reason in NO_REQUEST.items():
        if given.get(name) is not None:
            raise InvalidRequestError(name, f"cannot be carried: {reason}")
        given.pop(name, None)
    whole = plain(given.pop("request", None), "request")
    if type(whole) is dict:
        given |= whole
    check_names(given, ARGUMENTS, METHOD)
    options = take_call_options(given)
    body = {name: plain(value, name) for name, value in given.items() if value is not None}
    return read_body({name: value for name, value in body.items() if name not in options.extra_body}, options)


def read_body(body: JSONObject, options: CallOptions) -> Request:
    """Return the request of a body. Raises `InvalidRequestError`, which names the path of what is wrong."""
    given_input = body.get("input")
    kept = body.get(PREVIOUS) or options.extra_body.get(PREVIOUS)
    steps = _steps(given_input, may_be_absent=bool(kept))
    if type(given_input) is list:
        body = {**body, "input": [*steps]}
    members = Members(body)
    members.take("input")
    messages, _ = read_conversation(InteractionsConverter, steps)
    messages = messages or [Message.user([Text("")])]
    extra: JSONObject = {}
    config = Members(members.object(CONFIG) or {}, CONFIG)
    extra_config: JSONObject = {}
    tools = _tools(members, extra)
    request = Request(
        members.needed_text("model"),
        messages,
        system=members.text("system_instruction"),
        tools=tools,
        tool_choice=_tool_choice(config, extra_config, tools),
        thinking=_thinking(config, extra_config),
        max_output_tokens=config.whole("max_output_tokens"),
        temperature=config.number("temperature"),
        top_p=config.number("top_p"),
        stop=config.texts("stop_sequences"),
        seed=config.whole("seed"),
        response_schema=_schema(members, extra),
        metadata=members.strings("labels"),
        timeouts=options.timeouts,
        extra_headers=options.extra_headers,
    )
    extra_config.update(config.rest())
    if extra_config:
        extra[CONFIG] = extra_config
    extra_body: JSONObject = {**members.rest(), **extra, **options.extra_body}
    object.__setattr__(request, "extra_body", extra_body or None)
    given = mapping(body, CONFIG)
    read = {f"{CONFIG}.{name}": value for name, value in given.items() if name not in extra_config}
    return with_given(request, NAME, {**without_added_tools(body, extra), **read}, SOURCES)


def _steps(given: JSON, *, may_be_absent: bool) -> list[JSONObject]:
    """Return the input as steps, as the SDK makes them. It may be a text, one content, contents, or steps.

    may_be_absent: the input may be missing, because the server has the conversation.
    """
    if type(given) is str:
        given = {"type": "text", "text": given}
    steps: list[JSONObject] = []
    loose: list[JSON] | None = None  # adjacent contents outside a step
    elements = given if type(given) is list else [] if given is None else [given]
    for place, element in enumerate(elements):
        if type(element) is not dict:
            raise InvalidRequestError(f"input[{place}]", "must be an object: a content or a step")
        if string(element, "type") not in CONTENTS:
            loose = None
            steps.append(element)
        elif loose is None:
            loose = [element]
            steps.append({"type": INPUT, "content": loose})
        else:
            loose.append(element)
    if not steps and not may_be_absent:
        raise InvalidRequestError("input", "is missing")
    return steps


def _tools(members: Members, extra: JSONObject) -> list[Tool]:
    """Return the functions if `Tool` can hold all of them. Tools of other kinds go to `extra` unchanged."""
    wire = members.objects("tools")
    functions = [tool for tool in wire if tool.get("type") == "function"]
    if not all(tool.keys() <= TOOL_MEMBERS for tool in functions):
        extra["tools"] = [*wire]
        return []
    others: list[JSON] = [tool for tool in wire if tool.get("type") != "function"]
    if others:
        extra["tools"] = others
    tools: list[Tool] = []
    for place, tool in enumerate(functions):
        function = Members(tool, f"tools[{place}]")
        name, description = function.needed_text("name"), function.text("description") or ""
        schema = function.object("parameters")
        tools.append(Tool(name, description) if schema is None else Tool(name, description, schema))
    return tools


def _tool_choice(config: Members, extra: JSONObject, tools: list[Tool]) -> str:
    """Return the functions that the model may call. A choice that no field holds goes to `extra` unchanged."""
    choice = config.take("tool_choice")
    if choice is None:
        return "auto"
    if tools and type(choice) is str and choice in MODES:
        return MODES[choice]
    allowed = mapping(choice, "allowed_tools") if type(choice) is dict else {}
    names = items(allowed, "tools")
    name = names[0] if len(names) == 1 else None
    if string(allowed, "mode") == "any" and type(name) is str and any(tool.name == name for tool in tools):
        return name
    extra["tool_choice"] = choice
    return "auto"


def _schema(members: Members, extra: JSONObject) -> JSONObject | None:
    """Return the schema that the response must match. Other response formats go to `extra` unchanged."""
    form = members.take("response_format")
    if type(form) is dict and form.keys() == {"type", "mime_type", "schema"} and form["mime_type"] == JSON_TYPE:
        schema = form["schema"]
        if form["type"] == "text" and type(schema) is dict:
            return schema
    if form is not None:
        extra["response_format"] = form
    return None


def _thinking(config: Members, extra: JSONObject) -> ThinkingConfig | None:
    level, summaries = config.text("thinking_level"), config.text("thinking_summaries")
    if summaries is not None and summaries not in SHOWN:
        extra["thinking_summaries"] = summaries
        summaries = None
    if level is None and summaries is None:
        return None
    return ThinkingConfig(effort=level, include_summary=SHOWN.get(summaries or ""))
