"""The three dialects as values."""

from __future__ import annotations

from ..catalog.dialect import Dialect, Headers
from ..model.provider_error import ProviderError
from ..wire import error_bodies
from .request import encode_completions, encode_sglang, encode_vllm
from .stream import CompletionsStream, SGLangStream, decode_completions, decode_sglang

OPTIONS = frozenset({"return_tokens", "logprobs", "prompt_token_ids", "continue_aborted"})

TOKENIZE = ("POST", r"(?P<rest>(?:/v1)?/(?:de)?tokenize)")

NOT_THERE = frozenset({403, 404, 405})


def decode_vllm_error(status: int, headers: Headers, body: bytes, now: float) -> ProviderError:
    """Convert an error response. The endpoint is there only if the server was started with an option."""
    error = error_bodies.decode_error(status, headers, body, now)
    if status in NOT_THERE:
        error.message = f"{error.message} (vLLM has /inference/v1/generate only if it runs with --enable-scale-out)"
    return error


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            name="vllm-generate",
            encode=encode_vllm,
            decode=decode_completions,
            machine=CompletionsStream,
            decode_error=decode_vllm_error,
            options=OPTIONS,
            served=(("POST", "/inference/v1/generate"), TOKENIZE),
        ),
        Dialect(
            name="sglang-generate",
            encode=encode_sglang,
            decode=decode_sglang,
            machine=SGLangStream,
            options=OPTIONS,
            served=(("POST", "/generate"), TOKENIZE),
        ),
        Dialect(
            name="openai-completions",
            encode=encode_completions,
            decode=decode_completions,
            machine=CompletionsStream,
            options=OPTIONS - {"continue_aborted"},
            served=(("POST", r"(?:/v1)?/completions"),),
        ),
    )
}
