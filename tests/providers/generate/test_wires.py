"""The addresses of the endpoints."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS


def test_a_server_without_the_endpoint_says_how_it_gets_it() -> None:
    error = DIALECTS["vllm-generate"].decode_error(403, {}, b'{"error":{"message":"no"}}', 0.0)
    assert "--enable-scale-out" in error.message


@pytest.mark.parametrize(
    ("provider", "url"),
    [
        (ms.VLLMGenerate(base_url="http://h:8000/v1"), "http://h:8000"),
        (ms.VLLMGenerate(base_url="http://h:8000/inference/v1/generate"), "http://h:8000"),
        (ms.VLLMGenerate(), "http://localhost:8000"),
        (ms.SGLangGenerate(base_url="http://h/generate/"), "http://h"),
        (ms.OpenAICompletions(base_url="http://h/v1/completions"), "http://h/v1"),
        (ms.OpenAICompletions("k"), "https://api.openai.com/v1"),
    ],
)
def test_the_addresses(provider: ms.Provider, url: str) -> None:
    assert provider.base_url == url
