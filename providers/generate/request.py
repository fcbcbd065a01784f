"""Writes a request as the body of `POST /inference/v1/generate`, `/generate` or `/completions`.

Members of `extra_body` go into the body last. Its `n`, and the members of its `sampling_params`, go where the server
reads them. What belongs to a conversation cannot be sent: it is an error that names the field.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..catalog.dialect import WireRequest
from ..catalog.provider import Provider
from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, dumps, integer
from ..model.messages import Role, Text
from ..model.request import Request
from ..model.request_rules import validate_options
from ..wire.answer_tokens import IDS, LOGPROBS, asked_tokens
from ..wire.wire_head import path_with_query, request_headers

SAMPLING = "sampling_params"

OF_CONVERSATIONS = ("system", "tools", "thinking", "response_schema", "parallel_tool_calls", "metadata")
"""Options that a prompt cannot have."""

UNASKED = frozenset({"logprobs", "top_logprobs"})


def encode_vllm(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    """Write vLLM's request. Raises `InvalidRequestError` naming a field that cannot be sent."""
    ids = _prompt(request, "vLLM's generate endpoint")
    if isinstance(ids, str):
        raise InvalidRequestError(
            "prompt_token_ids", "vLLM's generate endpoint takes ids only: give them, or ask ms.OpenAICompletions"
        )
    sampling = _sampling(request, "max_tokens", "seed")
    if request.logprobs is not None:
        sampling["logprobs"] = request.logprobs
    body: JSONObject = {"model": model, "token_ids": ids, SAMPLING: sampling, "return_token_ids": True}
    if request.stop:
        body["output_mode"] = "text"  # the server finds texts only in text that it makes
    return _wire(request, body, "/inference/v1/generate", provider, stream=stream)


def encode_sglang(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    """Write SGLang's request. Raises `InvalidRequestError` naming a field that cannot be sent."""
    prompt = _prompt(request, "SGLang's generate endpoint")
    body: JSONObject = {"text" if isinstance(prompt, str) else "input_ids": prompt}
    body[SAMPLING] = _sampling(request, "max_new_tokens", "sampling_seed")
    if request.logprobs is not None:
        body["return_logprob"] = True
        if request.logprobs:
            body["top_logprobs_num"] = request.logprobs
    return _wire(request, body, "/generate", provider, stream=stream)


def encode_completions(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    """Write the request of OpenAI's Completions. Raises `InvalidRequestError` naming a field that cannot be sent."""
    body: JSONObject = {"model": model, "prompt": _prompt(request, "Completions")}
    body.update(_sampling(request, "max_tokens", "seed"))
    if request.logprobs is not None:
        body["logprobs"] = request.logprobs
    if request.return_tokens:
        if provider.profile.quirks.token_ids == "none":
            raise InvalidRequestError("return_tokens", f"{provider.name!r} sends no ids of tokens")
        body["return_token_ids"] = True
    return _wire(request, body, "/completions", provider, stream=stream)


def _prompt(request: Request, what: str) -> JSON:
    """Return the prompt: ids, or one user's text. Raises `InvalidRequestError`."""
    validate_options(request)
    for name in OF_CONVERSATIONS:
        if getattr(request, name):
            raise InvalidRequestError(name, f"{what} takes a prompt, which has no {name}")
    if request.prompt_token_ids is not None:
        if request.messages:
            raise InvalidRequestError("messages", "must be empty if there are prompt_token_ids: one of them is sent")
        return [*request.prompt_token_ids]
    messages: Sequence[object] = request.messages
    message = request.messages[0]
    if len(messages) > 1 or message.role is not Role.USER or any(type(block) is not Text for block in message.content):
        raise InvalidRequestError(
            "messages", f"{what} takes a prompt: prompt_token_ids, or one user's message with text alone"
        )
    return "".join(block.text for block in message.content if isinstance(block, Text))


def _sampling(request: Request, limit: str, seed: str) -> JSONObject:
    """Return the options of sampling that are given. limit, seed: the names of these two."""
    given: JSONObject = {
        limit: request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        seed: request.seed,
        "stop": [*request.stop] or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _wire(request: Request, body: JSONObject, path: str, provider: Provider, *, stream: bool) -> WireRequest:
    sampling = body.get(SAMPLING)
    for name, value in (request.extra_body or {}).items():
        if name == SAMPLING and type(sampling) is dict and type(value) is dict:
            sampling.update(value)
        elif name == "n" and type(sampling) is dict:
            sampling["n"] = value
        else:
            body[name] = value
    if stream:
        body["stream"] = True
        if path != "/generate":
            body.setdefault("stream_options", {"include_usage": True})
    quirks = provider.profile.quirks
    wire = WireRequest(
        path_with_query(path, quirks), request_headers(quirks, request.extra_headers, stream=stream), dumps(body)
    )
    source = sampling if type(sampling) is dict else body
    wire.choices = integer(source, "n") or 1
    limit = integer(source, "max_new_tokens" if path == "/generate" else "max_tokens")
    wire.max_output_tokens = None if limit is None else limit * wire.choices
    wire.unasked = frozenset() if request.logprobs else UNASKED
    wire.asked = asked_tokens(request) if path == "/completions" else asked_tokens(request) | {IDS}
    if body.get("echo"):
        wire.asked -= {IDS}  # the log probabilities begin with the prompt's, and the ids do not
    if LOGPROBS not in wire.asked and (body.get("logprobs") or source.get("logprobs") or body.get("return_logprob")):
        wire.unasked = frozenset()
    return wire
