"""Writes a request as the body of `POST /chat/completions`.

An option that a server cannot express causes a warning in `WireRequest.warnings`, or `InvalidRequestError` if leaving
it out would change the meaning. `message_writer.py` writes the conversation, `block_writer.py` its content,
`thinking.py` the thinking, `../schema.py` strict schemas.

Structured answers: OpenAI's strict mode accepts a subset of JSON Schema. A schema that can be adapted to it without
allowing more values is adapted and sent as strict. Any other is sent unchanged, not strict, with a warning. For a tool
with `strict`, the schema is sent as strict or an error is raised, because the caller relies on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...catalog.dialect import WireRequest
from ...catalog.provider import Provider
from ...errors import InvalidRequestError
from ...json.json_values import JSON, JSONObject, dumps_text, integer, string
from ...limits.output_limits import output_limit
from ...model.messages import Message, Text
from ...model.prefix_cache import Segment, serialised, write_messages
from ...model.request import TOOL_CHOICE_MODES, Request, Tool, given_of, prefix_cache_of
from ...model.request_rules import validate_options
from ...model.structured import schema_of
from ...wire.answer_tokens import asked_tokens
from ...wire.cache_marks import CACHE_CONTROL, written_mark
from ...wire.quirks import Quirks
from ...wire.tool_names import check_tool_names
from ...wire.wire_head import add_session, path_with_query, request_headers
from ..schema import strict_schema
from ..thinking import add_prewarm, is_reasoning_model, takes_sampling
from .block_writer import BlockWriter, cache_mark_member, plain_text
from .message_writer import MessageWriter, WriterState
from .thinking import thinking_members

NAME = "openai-chat"
PATH = "/chat/completions"

_THINKING = ("thinking", "model")
_LIMIT = ("max_output_tokens", "model")
_LIMITS = ("max_completion_tokens", "max_tokens")

SOURCES: dict[str, tuple[str, ...]] = {
    "messages": ("messages", "system"),
    "tools": ("tools",),
    "tool_choice": ("tool_choice", "tools"),
    "parallel_tool_calls": ("parallel_tool_calls", "tools"),
    "reasoning_effort": _THINKING,
    "reasoning": _THINKING,
    "thinking": _THINKING,
    "enable_thinking": _THINKING,
    "thinking_budget": _THINKING,
    "chat_template_kwargs": _THINKING,
    "response_format": ("response_schema",),
    "max_tokens": _LIMIT,
    "max_completion_tokens": _LIMIT,
    "temperature": ("temperature", *_THINKING),
    "top_p": ("top_p", *_THINKING),
    "stop": ("stop",),
    "seed": ("seed",),
    "random_seed": ("seed",),
    "metadata": ("metadata",),
}
"""Member of the body → the fields that it is written from."""

UNASKED = frozenset({"logprobs"})
"""Members of `Response.provider_data` that a server sends only if a body asks for them."""

_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


def encode_request(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    """Write a request. Raises `InvalidRequestError` naming a field that cannot be sent."""
    validate_options(request)
    quirks = provider.profile.quirks
    warnings: list[str] = []
    # Absent options cost no function call: a call whose code is in no processor cache takes a microsecond or two.
    system = request.system if isinstance(request.system, str) else request.system_blocks
    format_member: JSONObject = {}
    if request.response_schema is not None:
        system = request.system_blocks
        format_member = _response_format(schema_of(request.response_schema), quirks, system, warnings)
    body: JSONObject = {"model": model, "messages": _messages(request, system, model, provider, warnings)}
    if request.tools or request.parallel_tool_calls is not None:
        _add_tools(body, request, quirks, warnings)
    if request.thinking is not None:
        body.update(thinking_members(request.thinking_config, model, quirks, warnings))
    if format_member:
        body.update(format_member)
    _add_limits(body, request, model, quirks, warnings)
    if request.seed is not None or request.metadata is not None:
        _add_metadata(body, request, quirks, warnings)
    if request.return_tokens or request.logprobs is not None:
        _add_tokens(body, request, provider, stream=stream)
    if request.session is not None:
        add_session(body, request.session, quirks)
    if stream:
        body["stream"] = True
        if quirks.stream_usage:
            body["stream_options"] = {"include_usage": True}
    given = given_of(request)
    if given is not None:
        given.restore(NAME, body, request, SOURCES, warnings)
    extra = request.extra_body
    if extra:
        body.update(extra)
    if not stream:
        body.pop("stream_options", None)  # servers refuse it without a stream
    headers = request_headers(quirks, request.extra_headers, stream=stream)
    wire = WireRequest(path_with_query(PATH, quirks), headers, serialised(body))
    wire.max_output_tokens = output_limit(body, _LIMITS, "n")
    choices = integer(body, "n") if "n" in body else None
    wire.choices = choices or (0 if extra else 1)  # 0: another member of the program's own may ask for several
    if (request.logprobs is None or not request.logprobs) and not (extra and asks_for_probabilities(extra)):
        wire.unasked = UNASKED
    if request.return_tokens or request.logprobs is not None:
        wire.asked = asked_tokens(request)
    if warnings:
        wire.warnings = list(dict.fromkeys(warnings))
    return wire


def asks_for_probabilities(extra: Mapping[str, JSON]) -> bool:
    """Return whether members that a program adds to a body, or an object in them, ask for log probabilities.

    No field of a request asks for them. OpenAI's members are `logprobs` and `top_logprobs`, and servers have others
    (`return_logprob`, `n_probs`), some of them in an object of their own (`sampling_params`).
    """
    return any(
        asks_for_probabilities(value) if type(value) is dict else "prob" in name and value
        for name, value in extra.items()
    )


def _messages(request: Request, system: str | list[Text], model: str, provider: Provider, warnings: list[str]) -> JSON:
    """Return system prompt and conversation. Raises `InvalidRequestError` if there is nothing to send."""
    profile = provider.profile
    lead = _system_messages(system, model, profile.quirks, warnings) if system else []

    def write(messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        warned: list[str] = []
        return MessageWriter(provider, warned, model).write(messages, first, state)

    cache = prefix_cache_of(request)
    key = None if cache is None else (NAME, profile, provider.maker, cache_mark_member(profile.quirks, model))
    messages = write_messages(request.messages, cache, key, write, warnings, lead)
    if not messages:
        raise InvalidRequestError("messages", "contain nothing that can be sent: no text, no call, no file")
    return messages


def _system_messages(system: str | list[Text], model: str, quirks: Quirks, warnings: list[str]) -> list[JSONObject]:
    """Return one message with all system text: a string, or parts if there are cache marks."""
    if isinstance(system, str):
        return [{"role": quirks.system_role, "content": system}]
    content: JSON = plain_text(system)
    if content is None:
        content = BlockWriter(quirks, warnings, model).text_content(system, "system", separator="\n\n")
    return [{"role": quirks.system_role, "content": content}]


def _add_tools(body: JSONObject, request: Request, quirks: Quirks, warnings: list[str]) -> None:
    if not request.tools:
        if request.parallel_tool_calls is not None:
            warnings.append("parallel_tool_calls: not sent; the request has no tools")
        return
    check_tool_names(request.tools, quirks.tool_name, "the server")
    body["tools"] = [_tool(tool, position, quirks, warnings) for position, tool in enumerate(request.tools)]
    body["tool_choice"] = _tool_choice(request, quirks)
    if request.parallel_tool_calls is not None:
        if quirks.parallel_tool_calls:
            body["parallel_tool_calls"] = request.parallel_tool_calls
        else:
            warnings.append("parallel_tool_calls: not sent; the server has no such setting")


def _tool(tool: Tool, position: int, quirks: Quirks, warnings: list[str]) -> JSONObject:
    function: JSONObject = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters
    if tool.strict and quirks.tool_strict:
        function["parameters"] = strict_schema(tool.parameters, f"tools[{position}].parameters")
        function["strict"] = True
    elif tool.strict:
        warnings.append(f"tools[{position}].strict: not sent; the server has no such setting")
    elif tool.strict is False and quirks.tool_strict:
        function["strict"] = False
    wire: JSONObject = {"type": "function", "function": function}
    if tool.cache_control is not None:
        if quirks.cache_mark == CACHE_CONTROL:
            wire[CACHE_CONTROL] = written_mark(tool.cache_control, CACHE_CONTROL)
        else:
            warnings.append(f"tools[{position}].cache_control: not sent; the server caches by itself, or not at all")
    return wire


def _tool_choice(request: Request, quirks: Quirks) -> JSON:
    choice = request.tool_choice
    if choice == "required":
        return quirks.required_tool_choice
    if choice in TOOL_CHOICE_MODES:
        return choice
    if not quirks.named_tool_choice:
        raise InvalidRequestError("tool_choice", f"the server cannot be made to call {choice!r}; use 'required'")
    return {"type": "function", "function": {"name": choice}}


def _response_format(schema: JSONObject, quirks: Quirks, system: list[Text], warnings: list[str]) -> JSONObject:
    """Return `response_format`. If the server only guarantees some JSON, the schema goes into the system prompt."""
    if quirks.structured_output == "json_object":
        warnings.append("response_schema: the server guarantees only a JSON object; the schema was put into the prompt")
        system.append(Text(f"Answer with one JSON object that fits this JSON Schema: {dumps_text(schema)}"))
        return {"response_format": {"type": "json_object"}}
    name = _NOT_IN_NAME.sub("_", string(schema, "title") or "")[:64] or "response"
    described: JSONObject = {"name": name}
    try:
        described["schema"], described["strict"] = strict_schema(schema, "response_schema"), True
    except InvalidRequestError as error:
        described["schema"], described["strict"] = schema, False
        warnings.append(f"response_schema: sent as not strict, so the server may not enforce it; {error}")
    return {"response_format": {"type": "json_schema", "json_schema": described}}


def _add_limits(body: JSONObject, request: Request, model: str, quirks: Quirks, warnings: list[str]) -> None:
    if request.max_output_tokens == 0 and not quirks.load:
        add_prewarm(body, model)
    elif request.max_output_tokens is not None:
        member = quirks.max_tokens_member
        if member == "by_model":
            member = "max_completion_tokens" if is_reasoning_model(model) else "max_tokens"
        body[member] = request.max_output_tokens or 1  # an inference server writes the prompt to its cache in any case
    if request.temperature is not None or request.top_p is not None:
        refused = quirks.reasoning_refuses_sampling and not takes_sampling(model, string(body, "reasoning_effort"))
        for name, value in (("temperature", request.temperature), ("top_p", request.top_p)):
            if value is not None and refused:
                warnings.append(f"{name}: not sent; {model} takes it only without reasoning")
            elif value is not None:
                body[name] = value
    if request.stop:
        body["stop"] = list(request.stop)


def _add_tokens(body: JSONObject, request: Request, provider: Provider, *, stream: bool) -> None:
    form = provider.profile.quirks.token_ids
    if request.return_tokens and form == "none":
        raise InvalidRequestError(
            "return_tokens", f"{provider.name!r} sends no ids of tokens; logprobs=0 returns their log probabilities"
        )
    if request.return_tokens and form == "sglang" and stream:
        body["return_input_ids_in_sglext"] = body["return_output_ids_in_sglext"] = True
    elif request.return_tokens and form != "logprobs":
        body["return_token_ids"] = True
    if request.logprobs is not None or (request.return_tokens and form == "logprobs"):
        body["logprobs"] = True
    if request.logprobs:
        body["top_logprobs"] = request.logprobs


def _add_metadata(body: JSONObject, request: Request, quirks: Quirks, warnings: list[str]) -> None:
    if request.seed is not None:
        if quirks.seed_member:
            body[quirks.seed_member] = request.seed
        else:
            warnings.append("seed: not sent; the server has no such setting")
    if request.metadata is not None:
        if quirks.metadata:
            body["metadata"] = dict(request.metadata)
        else:
            warnings.append("metadata: not sent; the server has no such member")
