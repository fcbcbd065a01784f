"""Requests with a prompt of ids."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from tests.providers.generate.test_answer import PROVIDERS

IDS = ms.Request(
    "m", prompt_token_ids=[1, 2], max_output_tokens=9, temperature=0.5, seed=3, logprobs=0,
    extra_body={"n": 2, "priority": 1},
)  # fmt: skip

BODIES: dict[str, tuple[str, dict[str, object]]] = {
    "vllm-generate": ("/inference/v1/generate", {
        "model": "m", "token_ids": [1, 2], "return_token_ids": True, "priority": 1,
        "sampling_params": {"max_tokens": 9, "temperature": 0.5, "seed": 3, "logprobs": 0, "n": 2},
    }),
    "sglang-generate": ("/generate", {
        "input_ids": [1, 2], "return_logprob": True, "priority": 1,
        "sampling_params": {"max_new_tokens": 9, "temperature": 0.5, "sampling_seed": 3, "n": 2},
    }),
    "openai-completions": ("/completions", {
        "model": "m", "prompt": [1, 2], "max_tokens": 9, "temperature": 0.5, "seed": 3, "logprobs": 0, "n": 2,
        "priority": 1,
    }),
}  # fmt: skip


@pytest.mark.parametrize("dialect", BODIES)
def test_what_is_sent(dialect: str) -> None:
    wire = DIALECTS[dialect].encode(IDS, "m", PROVIDERS[dialect], stream=False)
    path, body = BODIES[dialect]
    assert (wire.path, json.loads(wire.body)) == (path, body)
    assert (wire.choices, wire.max_output_tokens) == (2, 18)
    streamed = json.loads(DIALECTS[dialect].encode(IDS, "m", PROVIDERS[dialect], stream=True).body)
    assert streamed.pop("stream") is True
    assert streamed.pop("stream_options", None) == (None if dialect == "sglang-generate" else {"include_usage": True})
    assert streamed == body


PROMPTS = {
    "prompt_token_ids": "must hold at least one id",
    "prompt_token_ids ": "whole numbers from 0 on, of at most 63 bits: the one at place 0 is -1",
    "prompt_token_ids  ": "whole numbers from 0 on, of at most 63 bits: the one at place 0 is 'a'",
}


@pytest.mark.parametrize("dialect", BODIES)
def test_what_belongs_to_a_conversation_is_refused(dialect: str) -> None:
    encode = DIALECTS[dialect].encode
    tool = ms.Tool("f")
    conversation = [ms.Message.user("a"), ms.Message.assistant("b"), ms.Message.user("c")]
    for field, request in {
        "system": ms.Request("m", prompt_token_ids=[1], system="s"),
        "tools": ms.Request("m", prompt_token_ids=[1], tools=[tool]),
        "thinking": ms.Request("m", prompt_token_ids=[1], thinking="high"),
        "messages": ms.Request("m", "a", prompt_token_ids=[1]),
        "prompt_token_ids": ms.Request("m", prompt_token_ids=[]),
        "prompt_token_ids ": ms.Request("m", prompt_token_ids=[-1]),
        "prompt_token_ids  ": ms.Request("m", prompt_token_ids=["a"]),  # type: ignore[list-item]
        "messages ": ms.Request("m"),
    }.items():
        with pytest.raises(ms.InvalidRequestError) as caught:
            encode(request, "m", PROVIDERS[dialect], stream=False)
        assert caught.value.field == field.strip()
        if field in PROMPTS:
            assert PROMPTS[field] in str(caught.value)
    with pytest.raises(ms.InvalidRequestError):
        encode(ms.Request("m", conversation), "m", PROVIDERS[dialect], stream=False)
    text = ms.Request("m", "hello")
    if dialect == "vllm-generate":
        with pytest.raises(ms.InvalidRequestError, match="takes ids only"):
            encode(text, "m", PROVIDERS[dialect], stream=False)
    else:
        body = json.loads(encode(text, "m", PROVIDERS[dialect], stream=False).body)
        assert "hello" in (body.get("prompt"), body.get("text"))
