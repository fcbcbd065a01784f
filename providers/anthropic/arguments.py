"""Reads the arguments of `client.messages.create` (anthropic) into a `Request`.

The converter reads the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ..convert.sdk_arguments import (
    CALL_OPTIONS,
    CallOptions,
    SystemPrompt,
    check_names,
    joined_system,
    plain,
    present,
    read_conversation,
    schema_class,
    take_call_options,
)
from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, mapping, string
from ..json.object_reader import Members
from ..model.messages import Text
from ..model.request import Request, ThinkingConfig, ThinkingLevel, Tool, with_given
from ..wire.cache_marks import read_mark
from .converter import AnthropicConverter
from .request import NAME, SOURCES, TOOL_CHOICES

METHOD = "anthropic's client.messages.create"

ARGUMENTS = frozenset({
    "max_tokens", "messages", "model", "billing_policy", "cache_control", "compaction", "container",
    "context_management", "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo", "mcp_servers",
    "metadata", "output_config", "output_format", "service_tier", "speed", "stop_sequences", "system", "temperature",
    "thinking", "thread", "tool_choice", "tools", "top_k", "top_p", "betas", "user_profile_id", "workspace_id",
    *CALL_OPTIONS,
})  # fmt: skip
"""The arguments that the SDK's methods accept. They include those of `client.beta.messages`, and `temperature`, `top_k`
and `top_p` of older versions."""

BETA_HEADER = "anthropic-beta"

HEADERS: dict[str, str] = {
    "user_profile_id": "anthropic-user-profile-id",
    "workspace_id": "anthropic-workspace-id",
}
"""Argument with a text → the header in which the SDK sends it. The body has no such member."""

TOOL_MEMBERS = frozenset({"name", "description", "input_schema", "strict", "cache_control", "type"})
CHOICE_MEMBERS = frozenset({"type", "name", "disable_parallel_tool_use"})
OUTPUT_MEMBERS = frozenset({"effort", "format"})
CHOICES = {cast("str", wire["type"]): word for word, wire in TOOL_CHOICES.items()}
"""Maps `tool_choice.type` to the value of `Request.tool_choice`."""

SUMMARY: dict[str, bool] = {"summarized": True, "omitted": False}
"""Maps `thinking.display` to True if the response shall contain a summary of the reasoning."""


def read_arguments(arguments: Mapping[str, object]) -> Request:
    """Return the request. Raises `InvalidRequestError`, which names the argument or the path in it."""
    given = present(arguments)
    check_names(given, ARGUMENTS, METHOD)
    options = take_call_options(given)
    _take_betas(given, options)
    _take_headers(given, options)
    schema: type | None = None
    if isinstance(given.get("output_format"), type):
        schema = schema_class(given.pop("output_format"), "output_format")
    body = {name: plain(value, name) for name, value in given.items() if name not in options.extra_body}
    return read_body(body, options, schema=schema)


def _take_betas(given: dict[str, object], options: CallOptions) -> None:
    """Move `betas` to its header. The same header in `extra_headers` takes precedence, as in the SDK."""
    betas = plain(given.pop("betas", None), "betas")
    if betas is None:
        return
    names = [name for name in betas if type(name) is str] if type(betas) is list else []
    if type(betas) is not list or len(names) < len(betas):
        raise InvalidRequestError("betas", "must be a list of texts")
    if names:
        _add_header(BETA_HEADER, ",".join(names), options)


def _take_headers(given: dict[str, object], options: CallOptions) -> None:
    """Move the arguments of `HEADERS` to their headers. Raises `InvalidRequestError` for a value that is no text."""
    for argument, header in HEADERS.items():
        value = plain(given.pop(argument, None), argument)
        if value is None:
            continue
        if type(value) is not str:
            raise InvalidRequestError(argument, "must be text")
        _add_header(header, value, options)


def _add_header(name: str, value: str, options: CallOptions) -> None:
    """Add a header to the call, unless `extra_headers` has it."""
    headers = options.extra_headers or {}
    if not any(given.lower() == name for given in headers):
        options.extra_headers = {**headers, name: value}


def read_body(body: JSONObject, options: CallOptions, where: str = "", *, schema: type | None = None) -> Request:
    """Return the request of a body at the path `where`. schema: the class of the response, if one was given."""
    members = Members(body, where)
    extra: JSONObject = {}
    messages, lead = read_conversation(AnthropicConverter, members.some_objects("messages"), where)
    system = joined_system(_system(members.take("system")), lead)
    tools = _tools(members, extra)
    choice, parallel = _tool_choice(members, extra, tools)
    output = members.object("output_config") or {}
    form = output.get("format")
    described = form if type(form) is dict else {}
    if not output.keys() <= OUTPUT_MEMBERS or (form is not None and type(described.get("schema")) is not dict):
        extra["output_config"], output, described = output, {}, {}
    read = mapping(described, "schema") or None
    request = Request(
        members.needed_text("model"),
        messages,
        system=system,
        tools=tools,
        tool_choice=choice,
        thinking=_thinking(members, extra, string(output, "effort")),
        max_output_tokens=members.whole("max_tokens"),
        temperature=members.number("temperature"),
        top_p=members.number("top_p"),
        stop=members.texts("stop_sequences"),
        response_schema=schema if schema is not None else read,
        parallel_tool_calls=parallel,
        metadata=_metadata(members, extra),
        timeouts=options.timeouts,
        extra_headers=options.extra_headers,
        extra_body={**members.rest(), **extra, **options.extra_body} or None,
    )
    carried = {**body, **{f"output_config.{name}": value for name, value in output.items()}}
    written = {"output_config.format"} if schema is not None else set[str]()
    if lead is not None:
        written |= {"system", "messages"}  # Anthropic refuses a system message at the beginning
    return with_given(request, NAME, carried, SOURCES, frozenset(written))


def _system(value: JSON) -> SystemPrompt:
    """Return the system prompt. Its blocks are read like those of a message."""
    if value is None or type(value) is str:
        return value or None
    items: list[JSONObject] = [{"role": "user", "content": value}]
    try:
        messages, _ = read_conversation(AnthropicConverter, items)
    except InvalidRequestError as error:
        place = error.field.removeprefix("messages[0].content").removeprefix("messages[0]")
        raise InvalidRequestError(f"system{place}", str(error).removeprefix(f"{error.field}: ")) from None
    blocks: list[Text] = []
    for position, block in enumerate(block for message in messages for block in message.content):
        if not isinstance(block, Text):
            raise InvalidRequestError(f"system[{position}].type", "must be 'text'")
        blocks.append(block)
    return blocks[0].text if len(blocks) == 1 and blocks[0] == Text(blocks[0].text) else blocks


def _tools(members: Members, extra: JSONObject) -> list[Tool]:
    """Return the tools if `Tool` can hold all of them. Otherwise put all into `extra`, and return none."""
    wire = members.objects("tools")
    if not all(tool.keys() <= TOOL_MEMBERS and tool.get("type") in (None, "custom") for tool in wire):
        extra["tools"] = list(wire)
        return []
    return [_tool(tool, f"{members.field('tools')}[{place}]") for place, tool in enumerate(wire)]


def _tool(wire: JSONObject, where: str) -> Tool:
    members = Members(wire, where)
    schema = members.object("input_schema")
    if schema is None:
        raise InvalidRequestError(f"{where}.input_schema", "is missing")
    description, strict = members.text("description") or "", members.flag("strict")
    return Tool(members.needed_text("name"), description, schema, strict, read_mark(wire, where, InvalidRequestError))


def _tool_choice(members: Members, extra: JSONObject, tools: list[Tool]) -> tuple[str, bool | None]:
    """Return the tool choice and the option for parallel calls. A choice that no field holds goes to `extra`."""
    choice = members.object("tool_choice")
    if choice is None:
        return "auto", None
    kind, name, alone = string(choice, "type"), string(choice, "name"), choice.get("disable_parallel_tool_use")
    word = name if kind == "tool" else CHOICES.get(kind or "")
    if not tools or word is None or not choice.keys() <= CHOICE_MEMBERS:
        extra["tool_choice"] = choice
        return "auto", None
    return word, not alone if type(alone) is bool else None


def _thinking(members: Members, extra: JSONObject, effort: str | None) -> ThinkingConfig | None:
    thinking = members.object("thinking")
    if thinking is None:
        return ThinkingConfig(effort=effort) if effort is not None else None
    kind, display = string(thinking, "type"), string(thinking, "display")
    summary = SUMMARY.get(display or "")
    if kind == "enabled":
        budget = Members(thinking, members.field("thinking")).whole("budget_tokens")
        return ThinkingConfig(budget_tokens=budget, effort=effort, include_summary=summary)
    if kind == "adaptive":
        return ThinkingConfig(effort=effort, include_summary=summary)
    if kind == "disabled":
        return ThinkingConfig(ThinkingLevel.NONE, effort=effort)
    extra["thinking"] = thinking
    return ThinkingConfig(effort=effort) if effort is not None else None


def _metadata(members: Members, extra: JSONObject) -> dict[str, str] | None:
    """Return the metadata if all its values are texts. Otherwise put the member into `extra`."""
    metadata = members.object("metadata")
    if metadata is None:
        return None
    texts = {name: value for name, value in metadata.items() if type(value) is str}
    if len(texts) == len(metadata):
        return texts
    extra["metadata"] = metadata
    return None
