"""Writes a request as the body of `generateContent`.

An option that it cannot express causes a warning in `WireRequest.warnings`, or `InvalidRequestError` if leaving it out
would change the meaning. `message_writer.py` writes the conversation, `thinking.py` the thinking, `schema.py` the
schemas, `path.py` the path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..catalog.dialect import WireRequest
from ..catalog.provider import Provider
from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, items
from ..limits.output_limits import output_limit
from ..model.messages import Message
from ..model.prefix_cache import Segment, serialised, write_messages
from ..model.request import TOOL_CHOICE_MODES, Request, Tool, given_of, prefix_cache_of
from ..model.request_rules import validate_options
from ..model.structured import schema_of
from ..wire.quirks import Quirks
from ..wire.tool_names import check_tool_names
from ..wire.wire_head import JSON_TYPE, add_session, path_with_query, request_headers
from .block_writer import BlockWriter
from .message_writer import MessageWriter, WriterState
from .path import request_path
from .schema import gemini_schema, parameters_schema
from .thinking import ignores_sampling, needs_signatures, thinking_config

NAME = "gemini"

SOURCES: dict[str, tuple[str, ...]] = {
    "systemInstruction": ("system",),
    "contents": ("messages",),
    "tools": ("tools",),
    "toolConfig": ("tool_choice", "tools"),
    "generationConfig.maxOutputTokens": ("max_output_tokens",),
    "generationConfig.temperature": ("temperature",),
    "generationConfig.topP": ("top_p",),
    "generationConfig.stopSequences": ("stop",),
    "generationConfig.seed": ("seed",),
    "generationConfig.responseMimeType": ("response_schema",),
    "generationConfig.responseJsonSchema": ("response_schema",),
    "generationConfig.thinkingConfig": ("thinking", "model"),
    "labels": ("metadata",),
}
"""Member of the body, or its path → the fields that it is written from."""

TOOL_CHOICES: dict[str, str] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
"""Value of `Request.tool_choice` → `functionCallingConfig.mode`. Any other value is a tool's name."""

STRICT_MODE = "VALIDATED"
"""Like AUTO, but calls must match their schemas. It applies to all functions; a single one cannot be strict."""

_LABEL = re.compile(r"[a-z][a-z0-9_\-]{0,62}", re.ASCII)
_LABEL_VALUE = re.compile(r"[a-z0-9_\-]{0,63}", re.ASCII)
"""Patterns of the labels that Google Cloud accepts."""
MOST_LABELS = 64
"""The most labels that Google Cloud accepts."""

SAMPLING = ("maxOutputTokens", "temperature", "topP", "stopSequences", "seed")


def encode_request(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    """Write a request. Raises `InvalidRequestError` naming a field that cannot be sent."""
    validate_options(request)
    warnings: list[str] = []
    name = model.rpartition("/")[2]
    path, quirks = request_path(provider.base_url, model, stream=stream), provider.profile.quirks
    body: dict[str, JSON] = {}
    texts = system_texts(request, warnings)
    if texts:
        body["systemInstruction"] = {"parts": [{"text": text} for text in texts]}
    body["contents"] = _contents(request, name, provider, warnings)
    check_tool_names(request.tools, "gemini", provider.name)
    _add_tools(body, request, warnings)
    config = _generation_config(request, name, warnings)
    if config:
        body["generationConfig"] = config
    add_rest(body, request, quirks, warnings)
    given = given_of(request)
    if given is not None:
        given.restore(NAME, body, request, SOURCES, warnings)
    body = merged(body, dict(request.extra_body or {}))
    sent_config = body.get("generationConfig")
    headers = request_headers(quirks, request.extra_headers, stream=stream)
    wire = WireRequest(path_with_query(path, quirks), headers, serialised(body))
    if type(sent_config) is dict:
        wire.max_output_tokens = output_limit(sent_config, ("maxOutputTokens",), "candidateCount")
    if warnings:
        wire.warnings = list(dict.fromkeys(warnings))
    return wire


def merged(body: JSONObject, extra: JSONObject) -> JSONObject:
    """Return `body` with `extra` merged into it: objects member by member, any other value replaced.

    `tools` are appended instead of replaced, because each kind of tool is an element beside the functions.
    """
    result: dict[str, JSON] = dict(body)
    for key, value in extra.items():
        present = result.get(key)
        if type(present) is dict and type(value) is dict:
            result[key] = merged(present, value)
        elif key == "tools" and type(present) is list and type(value) is list:
            result[key] = [*present, *value]
        else:
            result[key] = value
    return result


def without_added_tools(body: JSONObject, extra: JSONObject) -> JSONObject:
    """Return `body` without the tools that `merged` adds to it from `extra`."""
    added = items(extra, "tools")
    if not added:
        return body
    kept = [tool for tool in items(body, "tools") if tool not in added]
    others: JSONObject = {name: value for name, value in body.items() if name != "tools"}
    return {**others, "tools": kept} if kept else others


def system_texts(request: Request, warnings: list[str]) -> list[str]:
    """Return the texts of the system prompt. Their cache marks are left out."""
    if any(block.cache_control is not None for block in request.system_blocks):
        warnings.append("system.cache_control: left out, Gemini caches by itself or by cachedContent")
    return [block.text for block in request.system_blocks]


def _contents(request: Request, model: str, provider: Provider, warnings: list[str]) -> JSON:
    """Return the conversation. Raises `InvalidRequestError` if there is nothing to send."""
    modern = needs_signatures(model)

    def write(messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        warned: list[str] = []
        parts = BlockWriter(provider, warned, media_in_results=modern)
        return MessageWriter(parts, warned, sign_calls=modern).write(messages, first, state)

    cache = prefix_cache_of(request)
    key = None if cache is None else ("gemini", provider.profile.name, provider.maker, provider.base_url, modern)
    contents = write_messages(request.messages, cache, key, write, warnings)
    if not contents:
        raise InvalidRequestError("messages", "contain nothing that can be sent to Gemini: no text, no call, no file")
    return contents


def _add_tools(body: dict[str, JSON], request: Request, warnings: list[str]) -> None:
    if not request.tools:
        return
    tools = enumerate(request.tools)
    declarations = [declaration(tool, place, {}, "parametersJsonSchema", warnings) for place, tool in tools]
    body["tools"] = [{"functionDeclarations": [*declarations]}]
    choice = request.tool_choice
    config: dict[str, JSON]
    if choice not in TOOL_CHOICE_MODES:
        config = {"mode": "ANY", "allowedFunctionNames": [choice]}
    elif choice == "auto" and any(tool.strict for tool in request.tools):
        config = {"mode": STRICT_MODE}
    else:
        config = {"mode": TOOL_CHOICES[choice]}
    body["toolConfig"] = {"functionCallingConfig": config}


def declaration(tool: Tool, place: int, first: JSONObject, schema: str, warnings: list[str]) -> JSONObject:
    """Return a function's declaration.

    place: its place in `Request.tools`.
    first: members before its name.
    schema: the member with the schema of its arguments.
    """
    field = f"tools[{place}]"
    if tool.cache_control is not None:
        warnings.append(f"{field}.cache_control: left out, Gemini caches by itself or by cachedContent")
    declared: dict[str, JSON] = {**first, "name": tool.name}
    if tool.description:
        declared["description"] = tool.description
    parameters = parameters_schema(tool.parameters, f"{field}.parameters", warnings if tool.strict else None)
    if parameters is not None:
        declared[schema] = parameters
    return declared


def _generation_config(request: Request, model: str, warnings: list[str]) -> JSONObject:
    config = sampling(request, model, SAMPLING, warnings)
    if request.response_schema is not None:
        schema = schema_of(request.response_schema)
        config["responseMimeType"] = JSON_TYPE
        config["responseJsonSchema"] = gemini_schema(schema, "response_schema", warnings)
    if request.thinking_config is not None:
        thinking = thinking_config(model, request.thinking_config, warnings)
        if thinking:
            config["thinkingConfig"] = thinking
    return config


def sampling(request: Request, model: str, names: Sequence[str], warnings: list[str]) -> dict[str, JSON]:
    """Return the options of a generation's config that are given. names: theirs on the wire, as in `SAMPLING`."""
    if ignores_sampling(model):
        for name, value in (("temperature", request.temperature), ("top_p", request.top_p)):
            if value is not None:
                warnings.append(f"{name}: sent, but {model} ignores it")
    values: list[JSON] = [
        request.max_output_tokens, request.temperature, request.top_p, list(request.stop) or None, request.seed
    ]  # fmt: skip
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def add_rest(body: dict[str, JSON], request: Request, quirks: Quirks, warnings: list[str]) -> None:
    """Add what both dialects of Google have at the end of a body: labels and the session."""
    _add_labels(body, request, warnings)
    if request.session is not None:
        add_session(body, request.session, quirks)
    if request.parallel_tool_calls is False:
        warnings.append("parallel_tool_calls: left out, Gemini has no such switch")


def _add_labels(body: dict[str, JSON], request: Request, warnings: list[str]) -> None:
    """Add metadata as labels, which appear in billing. Metadata that is no valid label is left out with a warning."""
    labels: dict[str, JSON] = {}
    for name, value in (request.metadata or {}).items():
        if _LABEL.fullmatch(name) and _LABEL_VALUE.fullmatch(value) and len(labels) < MOST_LABELS:
            labels[name] = value
        else:
            warnings.append(
                f"metadata.{name}: left out, Google takes labels of lower-case letters, digits, _ and - only"
            )
    if labels:
        body["labels"] = labels
