"""The wordings of a prompt that is too long."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.wire.error_bodies import is_context_overflow


def decode(dialect: str, status: int, body: object) -> ms.ProviderError:
    return DIALECTS[dialect].decode_error(status, {}, json.dumps(body).encode(), 0.0)


def chat(message: str, kind: str | None = "invalid_request_error", code: str | int | None = None) -> object:
    return {"error": {"message": message, "type": kind, "param": "messages", "code": code}}


TOO_LONG: dict[str, tuple[str, int, object]] = {
    "OpenAI Chat": ("openai-chat", 400,
        chat("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        code="context_length_exceeded")),
    "OpenAI Responses": ("openai-responses", 400,
        chat("Your input exceeds the context window of this model. Please adjust your input and try again.")),
    "Anthropic": ("anthropic", 400, {"type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
    "Anthropic with max_tokens": ("anthropic", 400,
        {"type": "error", "error": {"type": "invalid_request_error",
        "message": "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000"}}),
    "Gemini": ("gemini", 400,
        {"error": {"code": 400,
        "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "status": "INVALID_ARGUMENT"}}),
    "vLLM": ("openai-chat", 400,
        {"object": "error",
        "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "type": "BadRequestError", "code": 400}),
    "vLLM, newer": ("openai-chat", 400,
        chat("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", "BadRequestError")),
    "SGLang": ("openai-chat", 400,
        {"object": "error",
        "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).", "code": 400}),
    "llama.cpp": ("openai-chat", 400, chat("the request exceeds the available context size, try increasing it",
        "exceed_context_size_error", 400)),
    "TGI": ("openai-chat", 422,
        {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
        "error_type": "validation"}),
    "TGI, the inputs alone": ("openai-chat", 422,
        {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 5000",
        "error_type": "validation"}),
    "TGI, the inputs alone, older": ("openai-chat", 422,
        {"error": "Input validation error: inputs must have less than 1024 tokens. Given: 5000"}),
    "Mistral": ("openai-chat", 400,
        {"object": "error",
        "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "type": "invalid_request_error", "code": "3051"}),
    "Bedrock": ("openai-chat", 400, {"message": "Input is too long for requested model."}),
    "xAI": ("openai-chat", 400,
        {"code": "400",
        "error": "This model's maximum prompt length is 131072 but the request contains 140000 tokens."}),
    "an error inside a stream": ("openai-chat", 200,
        chat("maximum context length is 8192 tokens", code="context_length_exceeded")),
    "an error inside a stream of a server without codes": ("openai-chat", 200,
        {"error": {"message": "the prompt is too long"}}),
}  # fmt: skip


@pytest.mark.parametrize(("dialect", "status", "body"), TOO_LONG.values(), ids=TOO_LONG)
def test_a_prompt_that_is_too_long_is_recognised(dialect: str, status: int, body: object) -> None:
    error = decode(dialect, status, body)
    assert error.context_overflow
    assert (error.category, error.retryable) == (ms.ErrorCategory.INVALID_ARG, False)


WORDINGS = [
    "prompt is too long", "it exceeds the context", "they exceed the model length", "it is longer than the context",
    "you have reached the context", "the tokens to keep are greater than the context length",
    "5152 tokens exceeds max_seq_len 2048", "context length exceeded from messages",
    "the context window exceeds the limit", "prompt too long: 5152 tokens", "the maximum context length is 10",
    "the maximum prompt length is 10", "input length 12 exceeds the maximum allowed input length of 10 tokens",
    "too large for model with 10 maximum context", "the input token count (12) exceeds 10",
    "prompt token count of 12 exceeds the limit of 10", "your request exceeded model token limit: 10 (requested: 12)",
    "the prompt exceeds max length", "range of input length should be [1, 10]", "input is too long for requested model",
    "`inputs` tokens + `max_new_tokens` must be <= 10", "`inputs` must have less than 10 tokens",
    "the input must have less than 10 tokens",
]  # fmt: skip


@pytest.mark.parametrize("message", WORDINGS)
def test_each_wording_is_recognised_without_the_others(message: str) -> None:
    assert is_context_overflow(ms.ErrorCategory.INVALID_ARG, [], message)


OTHER: dict[str, tuple[str, int, object]] = {
    "a wrong argument": ("openai-chat", 400, chat("temperature must be at most 2", code="invalid_value")),
    "a limit on tokens per minute": ("openai-chat", 429,
        chat("Request too large for gpt-5: Limit 30000, Requested 40000", "tokens", "rate_limit_exceeded")),
    "a name that is too long": ("openai-responses", 400,
        chat("Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64.", code="x")),
    "a number of tokens": ("openai-chat", 400, chat("max_tokens is too large: 20000. At most 16384 is supported.")),
    "a context that is missing": ("openai-chat", 400, chat("the context size must be a number")),
    "a body that is too large": ("anthropic", 413,
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    "an overload": ("gemini", 503, {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}),
    "a text in a server error": ("openai-chat", 500, chat("lost the maximum context length", "server_error")),
}  # fmt: skip


@pytest.mark.parametrize(("dialect", "status", "body"), OTHER.values(), ids=OTHER)
def test_other_errors_are_no_overflow(dialect: str, status: int, body: object) -> None:
    assert not decode(dialect, status, body).context_overflow
