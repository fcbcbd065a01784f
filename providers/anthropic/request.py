"""Writes a request as the body of `POST /v1/messages`.

An option that it cannot express causes a warning in `WireRequest.warnings`, or `InvalidRequestError` if leaving it out
would change the meaning. `message_writer.py` writes the conversation, `thinking.py` the thinking, `schema.py` the
schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from ..catalog.dialect import WireRequest
from ..catalog.provider import Provider
from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject
from ..limits.output_limits import output_limit
from ..model.messages import Message
from ..model.prefix_cache import Segment, serialised, write_messages
from ..model.request import Request, Tool, given_of, prefix_cache_of
from ..model.request_rules import validate_options
from ..model.structured import schema_of
from ..wire.tool_names import check_tool_names
from ..wire.wire_head import add_session, path_with_query, request_headers
from .block_writer import marked
from .message_writer import MessageWriter, WriterState
from .schema import adapt_schema
from .thinking import WireThinking, thinking_model, wire_thinking

NAME = "anthropic"

_THINKING = ("thinking", "model", "tool_choice")

SOURCES: dict[str, tuple[str, ...]] = {
    "system": ("system",),
    "messages": ("messages",),
    "max_tokens": ("max_output_tokens", *_THINKING),
    "tools": ("tools",),
    "tool_choice": ("tool_choice", "tools", "parallel_tool_calls"),
    "thinking": _THINKING,
    "output_config.effort": _THINKING,
    "output_config.format": ("response_schema",),
    "temperature": ("temperature", *_THINKING),
    "top_p": ("top_p", *_THINKING),
    "stop_sequences": ("stop",),
    "metadata": ("metadata",),
}
"""Member of the body → the fields that it is written from."""

API_VERSION = "2023-06-01"
"""The API version of the shapes written here. `extra_headers` may set another."""

VERTEX_VERSION = "vertex-2023-10-16"
"""The value of `anthropic_version` on Vertex AI."""

PUBLISHER = "/publishers/anthropic"

DEFAULT_MAX_TOKENS = 4096
"""The `max_tokens` of a request without a limit, because Anthropic requires the member."""

ADAPTIVE_MAX_TOKENS = 32_000
"""The `max_tokens` for a model that decides how much to think: its thinking counts towards the limit."""

TOOL_CHOICES: dict[str, JSONObject] = {
    "auto": {"type": "auto"},
    "none": {"type": "none"},
    "required": {"type": "any"},
}
"""Value of `Request.tool_choice` → the member `tool_choice`. Any other value is a tool's name."""

MAX_TEMPERATURE = 1.0
MIN_TOP_P_WITH_THINKING = 0.95
"""The ranges that Anthropic accepts for sampling."""


def encode_request(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    """Write a request. Raises `InvalidRequestError` naming a field that cannot be sent."""
    validate_options(request)
    warnings: list[str] = []
    if request.max_output_tokens == 0:
        _check_prewarm(request, stream=stream)
    thinking = _thinking(request, model, warnings)
    quirks = provider.profile.quirks
    body: dict[str, JSON] = {"anthropic_version": VERTEX_VERSION} if quirks.raw_predict else {"model": model}
    body["max_tokens"] = _max_tokens(request, thinking, warnings)
    system = _system(request)
    if system:
        body["system"] = system
    body["messages"] = _messages(request, provider, warnings)
    check_tool_names(request.tools, quirks.tool_name, provider.name)
    _add_tools(body, request, warnings)
    if thinking.member is not None:
        body["thinking"] = thinking.member
    _add_output_config(body, request, thinking, warnings)
    _add_sampling(body, request, model, thinking, warnings)
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    _add_metadata(body, request, warnings)
    if request.session is not None:
        add_session(body, request.session, quirks)
    if request.seed is not None:
        warnings.append("seed: not sent; Anthropic has no such setting")
    if stream:
        body["stream"] = True
    given = given_of(request)
    if given is not None:
        given.restore(NAME, body, request, SOURCES, warnings)
    if request.extra_body:
        body.update(request.extra_body)
    path = _raw_path(provider, model, stream=stream) if quirks.raw_predict else _path(provider)
    own = {} if quirks.raw_predict else {"anthropic-version": API_VERSION}
    headers = request_headers(quirks, request.extra_headers, stream=stream, own=own)
    wire = WireRequest(path_with_query(path, quirks), headers, serialised(body))
    wire.max_output_tokens = output_limit(body, ("max_tokens",))
    if warnings:
        wire.warnings = list(dict.fromkeys(warnings))
    return wire


def _check_prewarm(request: Request, *, stream: bool) -> None:
    """Raise `InvalidRequestError` for what Anthropic refuses in a request that only writes the prompt to the cache."""
    refused = {
        "thinking": request.thinking is not None,
        "response_schema": request.response_schema is not None,
        "tool_choice": request.tool_choice not in ("auto", "none"),
        "max_output_tokens": stream,
    }
    for name, is_refused in refused.items():
        if is_refused:
            raise InvalidRequestError(name, "does not go with max_output_tokens=0 or a stream of it: use engine.warm")


def _messages(request: Request, provider: Provider, warnings: list[str]) -> JSON:
    """Return the conversation. Raises `InvalidRequestError` if there is nothing to send."""

    def write(messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        return MessageWriter(provider).write(messages, first, state)

    cache = prefix_cache_of(request)
    key = None if cache is None else ("anthropic", provider.profile, provider.maker)
    messages = write_messages(request.messages, cache, key, write, warnings)
    if not messages:
        raise InvalidRequestError("messages", "contain nothing that Anthropic accepts: no text, no call, no file")
    return messages


def _path(provider: Provider) -> str:
    """Return the endpoint's path below the base URL, which may or may not end with `/v1`."""
    path = provider.base_url.partition("?")[0].rstrip("/")
    return "/messages" if path.endswith("/v1") else "/v1/messages"


def _raw_path(provider: Provider, model: str, *, stream: bool) -> str:
    """Return the path of a model below the base URL, which ends with a project's location or with the publisher.

    Raises `InvalidRequestError` for a text that is no model's name.
    """
    if "/" in model or model in (".", ".."):
        raise InvalidRequestError("model", f"{model!r} is no model's name")
    path = provider.base_url.partition("?")[0].rstrip("/")
    publisher = "" if path.endswith(PUBLISHER) else PUBLISHER
    return f"{publisher}/models/{quote(model, safe='@')}:{'streamRawPredict' if stream else 'rawPredict'}"


def _system(request: Request) -> JSON:
    """Return the system prompt: a string if it is one block without a cache mark, else blocks."""
    blocks = request.system_blocks
    if len(blocks) == 1 and blocks[0].cache_control is None:
        return blocks[0].text
    return [marked({"type": "text", "text": block.text}, block.cache_control) for block in blocks]


def _thinking(request: Request, model: str, warnings: list[str]) -> WireThinking:
    """Return the thinking, without a budget if a call is forced: Anthropic refuses the two together."""
    thinking = wire_thinking(request.thinking_config, model)
    warnings.extend(thinking.warnings)
    forced = request.tool_choice not in ("auto", "none")
    if thinking.budget and forced and thinking_model(model).known:
        warnings.append("thinking: not sent; Anthropic does not think before a tool call that tool_choice forces")
        return WireThinking(effort=thinking.effort)
    return thinking


def _max_tokens(request: Request, thinking: WireThinking, warnings: list[str]) -> int:
    """Return the limit on thinking and answer together. It must be above the budget, to leave room for the answer."""
    limit = request.max_output_tokens
    if limit == 0:
        return 0
    if limit is None:
        default = ADAPTIVE_MAX_TOKENS if thinking.active and not thinking.budget else DEFAULT_MAX_TOKENS
        return thinking.budget + default
    if limit > thinking.budget:
        return limit
    raised = thinking.budget + limit
    warnings.append(
        f"max_output_tokens: {limit} leaves no room beside a thinking budget of {thinking.budget}; sent as {raised}"
    )
    return raised


def _add_tools(body: dict[str, JSON], request: Request, warnings: list[str]) -> None:
    if not request.tools:
        if request.parallel_tool_calls is not None:
            warnings.append("parallel_tool_calls: not sent; the request has no tools")
        return
    body["tools"] = [_tool(tool, position, warnings) for position, tool in enumerate(request.tools)]
    known = TOOL_CHOICES.get(request.tool_choice)
    choice: dict[str, JSON] = {"type": "tool", "name": request.tool_choice} if known is None else dict(known)
    if request.parallel_tool_calls is False and request.tool_choice != "none":
        choice["disable_parallel_tool_use"] = True
    body["tool_choice"] = choice


def _tool(tool: Tool, position: int, warnings: list[str]) -> JSONObject:
    schema: JSONObject = {"type": "object", **tool.parameters}
    wire: dict[str, JSON] = {"name": tool.name}
    if tool.description:
        wire["description"] = tool.description
    if tool.strict:
        schema = adapt_schema(schema, f"tools[{position}].parameters", warnings)
    wire["input_schema"] = schema
    if tool.strict is not None:
        wire["strict"] = tool.strict
    return marked(wire, tool.cache_control)


def _add_output_config(body: dict[str, JSON], request: Request, thinking: WireThinking, warnings: list[str]) -> None:
    config: dict[str, JSON] = {}
    if thinking.effort is not None:
        config["effort"] = thinking.effort
    if request.response_schema is not None:
        schema = schema_of(request.response_schema)
        adapted = adapt_schema(schema, "response_schema", warnings)
        config["format"] = {"type": "json_schema", "schema": adapted}
    if config:
        body["output_config"] = config


def _add_sampling(
    body: dict[str, JSON], request: Request, model: str, thinking: WireThinking, warnings: list[str]
) -> None:
    """Add temperature and top_p if the model accepts them.

    Newer models, and models that think, refuse values other than their own. Models of other servers have their own
    limits, and get the values of the request.
    """
    temperature, top_p = request.temperature, request.top_p
    if temperature is None and top_p is None:
        return
    row = thinking_model(model)
    if row.known and temperature is not None:
        if not row.takes_sampling:
            warnings.append(f"temperature: not sent; {model} takes none")
            temperature = None
        elif thinking.active and temperature != MAX_TEMPERATURE:
            warnings.append("temperature: not sent; with thinking Anthropic takes only 1")
            temperature = None
        elif temperature > MAX_TEMPERATURE:
            warnings.append(f"temperature: {temperature} is above Anthropic's range of 0 to 1; sent as 1")
            temperature = MAX_TEMPERATURE
    if row.known and top_p is not None:
        if not row.takes_sampling:
            warnings.append(f"top_p: not sent; {model} takes none")
            top_p = None
        elif thinking.active and top_p < MIN_TOP_P_WITH_THINKING:
            warnings.append("top_p: not sent; with thinking Anthropic takes 0.95 to 1")
            top_p = None
    if temperature is not None:
        body["temperature"] = temperature
    if top_p is not None:
        body["top_p"] = top_p


def _add_metadata(body: dict[str, JSON], request: Request, warnings: list[str]) -> None:
    """Add `user_id`, the only member of Anthropic's metadata."""
    metadata = request.metadata or {}
    if "user_id" in metadata:
        body["metadata"] = {"user_id": metadata["user_id"]}
    warnings.extend(f"metadata.{key}: not sent; Anthropic takes only user_id" for key in metadata if key != "user_id")
