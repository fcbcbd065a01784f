"""A request → the body of `POST /v1/messages`.

Knows every option's wire form and what Anthropic refuses. What it cannot express is told in `WireRequest.warnings`,
or raised as `InvalidRequestError` where leaving it out would change what is asked. `message_writer.py` writes the
conversation, `thinking.py` the thinking, `schema.py` the schemas. Must not know keys or hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..checks import validate_options
from ..dialect import WireRequest
from ..errors import InvalidRequestError
from ..json_values import JSON, JSONObject
from ..messages import Message
from ..prefix_cache import Segment, serialised, write_messages
from ..provider import Provider
from ..request import Request, Tool, prefix_cache_of
from ..structured import schema_of
from ..tool_names import check_tool_names
from .block_writer import marked
from .message_writer import MessageWriter, WriterState
from .schema import adapt_schema
from .thinking import WireThinking, thinking_model, wire_thinking

API_VERSION = "2023-06-01"
"""The version of the API whose shapes are written here; `extra_headers` may name another."""

DEFAULT_MAX_TOKENS = 4096
"""`max_tokens` is required; this is sent where the request sets no limit."""

ADAPTIVE_MAX_TOKENS = 32_000
"""The same for a model that decides itself how much to think: its thinking counts towards the limit."""

TOOL_CHOICES: dict[str, JSONObject] = {
    "auto": {"type": "auto"},
    "none": {"type": "none"},
    "required": {"type": "any"},
}
"""Our word → `tool_choice`; any other word is a tool's name."""

MAX_TEMPERATURE = 1.0
MIN_TOP_P_WITH_THINKING = 0.95


def encode_request(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    """Serialise a request. Raises `InvalidRequestError` naming the field that cannot be sent."""
    validate_options(request)
    warnings: list[str] = []
    thinking = _thinking(request, model, warnings)
    body: dict[str, JSON] = {"model": model, "max_tokens": _max_tokens(request, thinking, warnings)}
    system = _system(request)
    if system:
        body["system"] = system
    body["messages"] = _messages(request, provider, warnings)
    check_tool_names(request.tools, provider.profile.quirks.tool_name, provider.name)
    _add_tools(body, request, warnings)
    if thinking.member is not None:
        body["thinking"] = thinking.member
    _add_output_config(body, request, thinking, warnings)
    _add_sampling(body, request, model, thinking, warnings)
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    _add_metadata(body, request, warnings)
    if request.seed is not None:
        warnings.append("seed: not sent; Anthropic has no such setting")
    if stream:
        body["stream"] = True
    if request.extra_body:
        body.update(request.extra_body)
    return WireRequest(
        path=_path(provider),
        headers=_headers(provider, request.extra_headers, stream=stream),
        body=serialised(body),
        warnings=list(dict.fromkeys(warnings)),
    )


def _messages(request: Request, provider: Provider, warnings: list[str]) -> JSON:
    """The conversation. Raises `InvalidRequestError` where nothing is left to send."""
    profile = provider.profile

    def write(messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        return MessageWriter(profile).write(messages, first, state)

    key = ("anthropic", profile)
    messages = write_messages(request.messages, prefix_cache_of(request), key, write, warnings)
    if not messages:
        raise InvalidRequestError("messages", "hold nothing that Anthropic takes: no text, no call, no file")
    return messages


def _path(provider: Provider) -> str:
    """The endpoint below the base URL, which people write with and without `/v1`."""
    path = "/messages" if provider.base_url.rstrip("/").endswith("/v1") else "/v1/messages"
    query = provider.profile.quirks.query
    return f"{path}?{query}" if query else path


def _headers(provider: Provider, extra: Mapping[str, str] | None, *, stream: bool) -> list[tuple[str, str]]:
    """The headers in order; the request's own replace their namesakes."""
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream" if stream else "application/json",
        "anthropic-version": API_VERSION,
    }
    for name, value in (*provider.profile.quirks.headers, *(extra or {}).items()):
        headers[name.lower()] = value
    return list(headers.items())


def _system(request: Request) -> JSON:
    """The system prompt: a string where it is one unmarked block, else blocks."""
    blocks = request.system_blocks
    if len(blocks) == 1 and blocks[0].cache_control is None:
        return blocks[0].text
    return [marked({"type": "text", "text": block.text}, block.cache_control) for block in blocks]


def _thinking(request: Request, model: str, warnings: list[str]) -> WireThinking:
    """Thinking, without a budget where a call is forced: Anthropic refuses the two together."""
    thinking = wire_thinking(request.thinking_config, model)
    warnings.extend(thinking.warnings)
    forced = request.tool_choice not in ("auto", "none")
    if thinking.budget and forced and thinking_model(model).known:
        warnings.append("thinking: not sent; Anthropic does not think before a tool call that tool_choice forces")
        return WireThinking(effort=thinking.effort)
    return thinking


def _max_tokens(request: Request, thinking: WireThinking, warnings: list[str]) -> int:
    """The limit on thinking and answer together. It has to be above the budget, so that there is room to answer."""
    limit = request.max_output_tokens
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
    """Temperature and top_p, where the model takes them: newer ones and thinking ones refuse what departs from
    their own. Other servers' models have their own limits, and get what was asked."""
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
    """Anthropic's metadata is one member, `user_id`."""
    metadata = request.metadata or {}
    if "user_id" in metadata:
        body["metadata"] = {"user_id": metadata["user_id"]}
    warnings.extend(f"metadata.{key}: not sent; Anthropic takes only user_id" for key in metadata if key != "user_id")
