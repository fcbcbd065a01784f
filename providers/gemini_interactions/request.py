"""Writes a request as the body of `POST /v1beta/interactions`.

An option that it cannot express causes a warning in `WireRequest.warnings`, or `InvalidRequestError` if leaving it out
would change the meaning. `message_writer.py` writes the conversation, `thinking.py` the thinking. The schemas are
adapted as for `generateContent`.

The server stores nothing unless `extra_body={"store": True}` asks for it: the whole conversation is sent each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from ..catalog.dialect import WireRequest
from ..catalog.provider import Provider
from ..errors import InvalidRequestError
from ..gemini.message_writer import WriterState
from ..gemini.path import API_VERSION, VERSION
from ..gemini.request import add_rest, declaration, merged, sampling, system_texts
from ..gemini.schema import gemini_schema
from ..json.json_values import JSON, JSONObject
from ..limits.output_limits import output_limit
from ..model.messages import Message
from ..model.prefix_cache import Segment, serialised, write_messages
from ..model.request import TOOL_CHOICE_MODES, Request, given_of, prefix_cache_of
from ..model.request_rules import validate_options
from ..model.structured import schema_of
from ..wire.tool_names import check_tool_names
from ..wire.wire_head import JSON_TYPE, path_with_query, request_headers
from .block_writer import BlockWriter
from .message_writer import StepWriter
from .thinking import thinking_members

NAME = "gemini-interactions"

CONFIG = "generation_config"

PREVIOUS = "previous_interaction_id"
"""A member of `extra_body` that continues an interaction which the server has kept."""

SOURCES: dict[str, tuple[str, ...]] = {
    "system_instruction": ("system",),
    "input": ("messages",),
    "tools": ("tools",),
    "response_format": ("response_schema",),
    "labels": ("metadata",),
    "store": (),
    "generation_config.tool_choice": ("tool_choice", "tools"),
    "generation_config.max_output_tokens": ("max_output_tokens",),
    "generation_config.temperature": ("temperature",),
    "generation_config.top_p": ("top_p",),
    "generation_config.stop_sequences": ("stop",),
    "generation_config.seed": ("seed",),
    "generation_config.thinking_level": ("thinking", "model"),
    "generation_config.thinking_summaries": ("thinking", "model"),
}
"""Member of the body, or its path → the fields that it is written from."""

REVISION = {"api-revision": "2026-05-20"}
"""The revision of the shapes written here, as google-genai sends it. `extra_headers` may set another."""

ENDPOINT = "/interactions"

SAMPLING = ("max_output_tokens", "temperature", "top_p", "stop_sequences", "seed")

TOOL_CHOICES: dict[str, str] = {"auto": "auto", "none": "none", "required": "any"}
"""Value of `Request.tool_choice` → `tool_choice`. Any other value is a tool's name."""

STRICT_CHOICE = "validated"
"""Like `auto`, but calls must match their schemas. It applies to all functions; a single one cannot be strict."""


def encode_request(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    """Write a request. Raises `InvalidRequestError` naming a field that cannot be sent."""
    validate_options(request)
    warnings: list[str] = []
    quirks = provider.profile.quirks
    name = model.removeprefix("models/")
    body: dict[str, JSON] = {"model": name}
    texts = system_texts(request, warnings)
    if texts:
        body["system_instruction"] = "\n\n".join(texts)
    steps = _input(request, provider, warnings)
    if steps:
        body["input"] = steps
    elif not (request.extra_body or {}).get(PREVIOUS):
        raise InvalidRequestError("messages", "contain nothing that can be sent to Gemini: no text, no call, no file")
    check_tool_names(request.tools, "gemini", provider.name)
    if request.tools:
        body["tools"] = [
            declaration(tool, place, {"type": "function"}, "parameters", warnings)
            for place, tool in enumerate(request.tools)
        ]
    config = _generation_config(request, name.rpartition("/")[2], warnings)
    if config:
        body[CONFIG] = config
    if request.response_schema is not None:
        schema = gemini_schema(schema_of(request.response_schema), "response_schema", warnings)
        body["response_format"] = {"type": "text", "mime_type": JSON_TYPE, "schema": schema}
    add_rest(body, request, quirks, warnings)
    body["store"] = False
    if stream:
        body["stream"] = True
    given = given_of(request)
    if given is not None:
        given.restore(NAME, body, request, SOURCES, warnings)
    _add_durable(body, request)
    body = merged(body, dict(request.extra_body or {}))
    if request.durable and not (body.get("background") and body.get("store")):
        raise InvalidRequestError("durable", "needs the body's members background and store, which extra_body unsets")
    headers = request_headers(quirks, request.extra_headers, stream=stream, own=REVISION)
    wire = WireRequest(path_with_query(interactions_path(provider), quirks), headers, serialised(body))
    sent_config = body.get(CONFIG)
    if type(sent_config) is dict:
        wire.max_output_tokens = output_limit(sent_config, ("max_output_tokens",))
    if warnings:
        wire.warnings = list(dict.fromkeys(warnings))
    return wire


def _add_durable(body: dict[str, JSON], request: Request) -> None:
    """Let the server make a durable answer in the background, and keep it. Raises `InvalidRequestError`."""
    durable = request.durable_option
    if durable is None:
        return
    if durable.window is not None:
        raise InvalidRequestError("durable.window", "Interactions have no windows; OpenAI Responses has")
    body["background"] = body["store"] = True


def interactions_path(provider: Provider) -> str:
    """Return the endpoint's path below the base URL, which may contain a version, and then the path of a project."""
    path = urlsplit(provider.base_url).path
    return ENDPOINT if VERSION.search(path) else API_VERSION + ENDPOINT


def _input(request: Request, provider: Provider, warnings: list[str]) -> JSON:
    """Return the conversation."""

    def write(messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        warned: list[str] = []
        blocks = BlockWriter(provider, warned, media_in_results=True)
        return StepWriter(blocks, warned).write(messages, first, state)

    cache = prefix_cache_of(request)
    key = None if cache is None else (NAME, provider.profile.name, provider.maker, provider.base_url)
    return write_messages(request.messages, cache, key, write, warnings)


def _generation_config(request: Request, model: str, warnings: list[str]) -> JSONObject:
    config = sampling(request, model, SAMPLING, warnings)
    choice = _tool_choice(request)
    if choice is not None:
        config["tool_choice"] = choice
    if request.thinking_config is not None:
        config.update(thinking_members(model, request.thinking_config, warnings))
    return config


def _tool_choice(request: Request) -> JSON:
    if not request.tools:
        return None
    choice = request.tool_choice
    if choice not in TOOL_CHOICE_MODES:
        return {"allowed_tools": {"mode": "any", "tools": [choice]}}
    if choice == "auto" and any(tool.strict for tool in request.tools):
        return STRICT_CHOICE
    return TOOL_CHOICES[choice]
