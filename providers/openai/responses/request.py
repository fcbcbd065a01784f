"""Writes a request as the body of `POST /responses`.

An option that it cannot express causes a warning in `WireRequest.warnings`, and is never left out silently.
`message_writer.py` writes the conversation, `block_writer.py` its content, `../thinking.py` has the efforts,
`../schema.py` strict schemas.

Requests are stateless: `store` is false and reasoning comes back encrypted, so a conversation consists of its messages
alone. `extra_body` may change that (`{"store": true}`, `{"previous_response_id": …}`). Its members are added last and
replace those with the same name. An object is merged into the object of its name, so `text.verbosity` and
`reasoning.summary` can be set without losing the schema or the effort.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from ...catalog.dialect import WireRequest
from ...catalog.provider import Provider
from ...errors import InvalidRequestError
from ...json.json_values import JSON, JSONObject, string
from ...limits.output_limits import output_limit
from ...model.messages import Message
from ...model.prefix_cache import CachedPrefix, PrefixCache, Segment, Write, serialised, write_messages
from ...model.request import (
    LEVEL_PLACES,
    TOOL_CHOICE_MODES,
    Request,
    ThinkingConfig,
    ThinkingLevel,
    Tool,
    given_of,
    prefix_cache_of,
)
from ...model.request_rules import validate_options
from ...model.structured import schema_of
from ...wire.quirks import Quirks
from ...wire.tool_names import check_tool_names
from ...wire.wire_head import add_session, path_with_query, request_headers
from ..schema import is_strict, strict_schema
from ..thinking import add_prewarm, effort_for, is_reasoning_model, may_reason, takes_breakpoints, takes_sampling
from .block_writer import MARKS_LEFT_OUT, BlockWriter
from .message_writer import MessageWriter, WriterState
from .turns import NOT_IN_A_TURN, ResponsesTurn

HOUR = 3600.0


@dataclass(slots=True, frozen=True)
class Window:
    """A window of OpenAI's Responses (`background_options.completion_window`).

    name: the provider's word.
    seconds: its length.
    price: a part of the list price.
    """

    name: str
    seconds: float
    price: float


WINDOWS = (Window("8h", 8 * HOUR, 0.6), Window("2h", 2 * HOUR, 0.7))

WINDOW_PRICES = {"soonest": 1.0, **{window.name: window.price for window in WINDOWS}}


NAME = "openai-responses"
PATH = "/responses"

SOURCES: dict[str, tuple[str, ...]] = {
    "instructions": ("system", "messages"),
    "input": ("messages", "system"),
    "store": (),
    "include": (),
    "reasoning": ("thinking", "model"),
    "tools": ("tools",),
    "tool_choice": ("tool_choice", "tools"),
    "parallel_tool_calls": ("parallel_tool_calls",),
    "text.format": ("response_schema",),
    "max_output_tokens": ("max_output_tokens",),
    "temperature": ("temperature", "thinking", "model"),
    "top_p": ("top_p", "thinking", "model"),
    "metadata": ("metadata",),
}
"""Member of the body → the fields that it is written from; none: it is always as it was given, or absent."""

MIN_OUTPUT_TOKENS = 16
"""The smallest `max_output_tokens` that the API accepts."""

ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""The value of `include` that requests encrypted reasoning."""

KEEPS_CONVERSATION = ("previous_response_id", "conversation")
"""Members of `extra_body` for a conversation that the server stores."""

REPLACES_INPUT = ("input", "prompt", *KEEPS_CONVERSATION)
"""Members of `extra_body` that make messages optional."""

NO_PLACE: dict[str, str] = {
    "stop": "the Responses API has no stop sequences",
    "seed": "the Responses API has no seed",
}
"""Option that this dialect cannot carry → why."""

IN_THE_BACKGROUND = "is not supported: a response in the background is returned before its answer; use durable=True"
"""Why a request in the background that is not durable is refused."""

DURABLE_NEEDS_IT = "must not be false for a durable request: only an answer in the background can be read again"

_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


def encode_request(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    """Write a request. Raises `InvalidRequestError` naming a field that cannot be sent."""
    return _encode(request, model, provider, stream)[0]


def encode_turn(request: Request, model: str, provider: Provider, *, stream: bool, chain: object) -> WireRequest:
    """Write a request that may be sent over a WebSocket. chain: what the server knows there; None: nothing.

    Of a turn that continues the chain, the whole body is written only if it is asked for.
    """
    extra = request.extra_body or {}
    if given_of(request) is not None or not NOT_IN_A_TURN.isdisjoint(extra):
        return encode_request(request, model, provider, stream=stream)
    wire, body = _encode(request, model, provider, stream, is_turn=True)
    body.pop("stream", None)
    write, cache, key = _writer(request, model, provider)
    turn = ResponsesTurn(request.messages, body, write, chain)

    def whole(warnings: list[str]) -> bytes:
        items = _input(request, model, provider, extra, warnings)
        return serialised({**body, "input": items, **({"stream": True} if stream else {})})

    warnings = turn.warnings
    if turn.why:
        wire.body = whole(warnings)
        prefix = None if cache is None else cast("CachedPrefix[WriterState] | None", cache.find(key, request.messages))
        turn.send_whole(request.messages, write, prefix)
    else:
        _note_marks(request, warnings)
        wire.write_body = lambda: whole([])
    wire.turn, wire.warnings = turn, list(dict.fromkeys([*warnings, *wire.warnings]))
    return wire


def _encode(
    request: Request, model: str, provider: Provider, stream: bool, *, is_turn: bool = False
) -> tuple[WireRequest, JSONObject]:
    """Write a request. Returns it with the members of its body. That of a turn has no input and is not written."""
    validate_options(request)
    quirks = provider.profile.quirks
    warnings: list[str] = []
    extra: Mapping[str, JSON] = request.extra_body or {}
    body: JSONObject = {"model": model}
    instructions = "\n\n".join(block.text for block in request.system_blocks)
    if instructions:
        body["instructions"] = instructions
    if not is_turn:
        body["input"] = _input(request, model, provider, extra, warnings)
    body["store"] = False
    if may_reason(model):
        body["include"] = [ENCRYPTED_REASONING]
    _add_reasoning(body, request, model, quirks, warnings)
    check_tool_names(request.tools, quirks.tool_name, provider.name)
    _add_tools(body, request, extra)
    if request.response_schema is not None:
        schema = schema_of(request.response_schema)
        body["text"] = {"format": _text_format(schema)}
    _add_limits(body, request, model, warnings)
    if request.metadata is not None:
        body["metadata"] = dict(request.metadata)
    if request.session is not None:
        add_session(body, request.session, quirks)
    for name, reason in NO_PLACE.items():
        if getattr(request, name) not in (None, (), []):
            warnings.append(f"{name}: not sent; {reason}")
    if stream:
        body["stream"] = True
    given = given_of(request)
    if given is not None:
        given.restore(NAME, body, request, SOURCES, warnings)
    _add_durable(body, request)
    for name, value in extra.items():
        own = body.get(name)
        body[name] = {**own, **value} if type(own) is dict and type(value) is dict else value
    if bool(body.get("background")) is not bool(request.durable):
        raise InvalidRequestError("extra_body.background", DURABLE_NEEDS_IT if request.durable else IN_THE_BACKGROUND)
    if not stream:
        body.pop("stream_options", None)  # the server refuses it without a stream
    headers = request_headers(quirks, request.extra_headers, stream=stream)
    wire = WireRequest(path_with_query(PATH, quirks), headers, b"" if is_turn else serialised(body))
    wire.max_output_tokens = output_limit(body, ("max_output_tokens",))
    if warnings:
        wire.warnings = list(dict.fromkeys(warnings))
    return wire, body


def _add_durable(body: JSONObject, request: Request) -> None:
    """Let the server make a durable answer in the background, and keep it."""
    durable = request.durable_option
    if durable is None:
        return
    body["background"] = body["store"] = True
    if durable.window is not None:
        body["background_options"] = {"completion_window": durable.window}


def _writer(
    request: Request, model: str, provider: Provider
) -> tuple[Write[WriterState], PrefixCache | None, Hashable]:
    """Return what writes the conversation, its cache, and the key in it."""
    extra = request.extra_body or {}
    keeps = any(extra.get(member) is not None for member in KEEPS_CONVERSATION)
    stores = keeps or extra.get("store") is True
    breakpoints = takes_breakpoints(model)
    profile = provider.profile

    def write(messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        parts = BlockWriter(breakpoints=breakpoints)
        items = MessageWriter(provider, parts, keeps_calls=keeps, stores=stores)
        return items.write(messages, first, state)

    cache, made_of = prefix_cache_of(request), (breakpoints, keeps, stores)
    key = None if cache is None else (NAME, profile.name, provider.maker, profile.quirks.tool_name, *made_of)
    return write, cache, key


def _input(request: Request, model: str, provider: Provider, extra: Mapping[str, JSON], warnings: list[str]) -> JSON:
    """Return the conversation. Raises `InvalidRequestError` if there is nothing to send."""
    write, cache, key = _writer(request, model, provider)
    items = write_messages(request.messages, cache, key, write, warnings)
    _note_marks(request, warnings)
    if not items and not any(extra.get(member) for member in REPLACES_INPUT):
        raise InvalidRequestError(
            "messages", "contain nothing that can be sent to Responses: no text, no call, no file"
        )
    return items


def _note_marks(request: Request, warnings: list[str]) -> None:
    """Add a warning for marks of instructions and tools, which never have a place for one."""
    marks = [tool.cache_control for tool in request.tools] + [block.cache_control for block in request.system_blocks]
    if any(mark is not None for mark in marks):
        warnings.append(MARKS_LEFT_OUT)


def _add_reasoning(body: JSONObject, request: Request, model: str, quirks: Quirks, warnings: list[str]) -> None:
    """Add `reasoning`: the effort, and a summary if the model reasons and the request does not decline it."""
    config = request.thinking_config
    if config is None:
        return
    if config.budget_tokens is not None:
        config = _without_budget(config, warnings)
    effort = effort_for(model, config)
    if effort is None and config.level is not None and may_reason(model) and not is_reasoning_model(model):
        # Another maker's model, which is not in the table. The server's profile has its words.
        effort = quirks.efforts[LEVEL_PLACES[config.level]]
    reasoning: JSONObject = {}
    if effort is not None:
        reasoning["effort"] = effort
    elif config.level not in (None, ThinkingLevel.NONE):
        warnings.append(f"thinking: not sent; {model!r} takes no effort")
    thinks = effort != "none" if effort is not None else is_reasoning_model(model)
    if thinks and config.include_summary is not False:
        reasoning["summary"] = "auto"
    if reasoning:
        body["reasoning"] = reasoning


def _without_budget(config: ThinkingConfig, warnings: list[str]) -> ThinkingConfig:
    """Return the option without a budget, because the API has efforts only. A budget of 0 is the level NONE.

    Raises `InvalidRequestError` for any other budget without a level or an effort.
    """
    if config.level is not None or config.effort is not None:
        warnings.append("thinking.budget_tokens: not sent; the Responses API has efforts, no budgets")
        return config
    if config.budget_tokens:
        raise InvalidRequestError("thinking.budget_tokens", "the server takes no budget; give a level or an effort")
    return replace(config, level=ThinkingLevel.NONE)


def _add_tools(body: JSONObject, request: Request, extra: Mapping[str, JSON]) -> None:
    if request.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if not request.tools and not extra.get("tools"):
        return
    if request.tools:
        body["tools"] = [_tool(tool, f"tools[{place}].parameters") for place, tool in enumerate(request.tools)]
    choice = request.tool_choice
    body["tool_choice"] = choice if choice in TOOL_CHOICE_MODES else {"type": "function", "name": choice}


def _tool(tool: Tool, field: str) -> JSONObject:
    """Return a function tool.

    If the tool leaves `strict` to the dialect, it is true if the schema is strict as it is: for other schemas, the
    API's own default would change which values they allow.
    """
    strict = is_strict(tool.parameters) if tool.strict is None else tool.strict
    wire: JSONObject = {"type": "function", "name": tool.name}
    if tool.description:
        wire["description"] = tool.description
    wire["parameters"] = strict_schema(tool.parameters, field) if tool.strict else tool.parameters
    wire["strict"] = strict
    return wire


def _text_format(schema: JSONObject) -> JSONObject:
    name = _NOT_IN_NAME.sub("_", string(schema, "title") or "")[:64] or "response"
    adapted = strict_schema(schema, "response_schema")
    return {"type": "json_schema", "name": name, "schema": adapted, "strict": True}


def _add_limits(body: JSONObject, request: Request, model: str, warnings: list[str]) -> None:
    """Add the limit of output tokens, and sampling if the model accepts it."""
    limit = request.max_output_tokens
    if limit == 0:
        add_prewarm(body, model)
    elif limit is not None:
        if limit < MIN_OUTPUT_TOKENS:
            warnings.append(f"max_output_tokens: {limit} is below the API's minimum; sent as {MIN_OUTPUT_TOKENS}")
        body["max_output_tokens"] = max(limit, MIN_OUTPUT_TOKENS)
    reasoning = body.get("reasoning")
    effort = string(reasoning, "effort") if type(reasoning) is dict else None
    for name in ("temperature", "top_p"):
        value: float | None = getattr(request, name)
        if value is None:
            continue
        if takes_sampling(model, effort):
            body[name] = value
        else:
            warnings.append(f"{name}: not sent; {model!r} takes it only without reasoning")
