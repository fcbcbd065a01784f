"""The dialects with a prompt in and ids out: vLLM's generate endpoint, SGLang's, and OpenAI's Completions."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.tokens import WeightSpan
from manystream.transport.sse import SSEParser
from tests.support.event_order import OrderChecker

ASKED = frozenset({"ids", "logprobs"})

PROVIDERS: dict[str, ms.Provider] = {
    "vllm-generate": ms.VLLMGenerate(),
    "sglang-generate": ms.SGLangGenerate(),
    "openai-completions": ms.OpenAICompletions(base_url="http://h/v1"),
}

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1}}


def sse(values: Iterable[object]) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values) + b"data: [DONE]\n\n"


def read(dialect: str, body: bytes, cut: int = 0) -> tuple[list[ms.Event], ms.Response]:
    machine = DIALECTS[dialect].machine(PROVIDERS[dialect], lambda: "made")
    machine.asked = ASKED
    parser, events, order = SSEParser(2**20), list[ms.Event](), OrderChecker()
    for at in range(0, len(body), cut or len(body)):
        for name, data in parser.feed(body[at : at + (cut or len(body))]):
            events.extend(machine.feed(name, data))
    events.extend(machine.end())
    for event in events:
        order.check(event)
    return events, machine.response()


def decode(dialect: str, body: object) -> ms.Response:
    return DIALECTS[dialect].decode(json.dumps(body).encode(), PROVIDERS[dialect], lambda: "made")


def vllm(index: int, ids: list[int], finish: str | None = None, **members: Any) -> dict[str, Any]:
    """A choice of vLLM's generate endpoint. The log probability of an id is its negative."""
    content = [{"token_id": id, "logprob": -float(id), "rank": 1, "top_logprobs": []} for id in ids]
    return {
        "index": index, "finish_reason": finish, "stop_reason": None, "token_ids": ids, "routed_experts": None,
        "weight_versions": None, "logprobs": {"content": content}, **members,
    }  # fmt: skip


SPANS = [{"version": "v1", "start": 0, "end": 1}, {"version": "v2", "start": 1, "end": 4}]

VLLM_CHUNKS = [
    {"request_id": "r", "usage": None, "choices": [choice], **first}
    for choice, first in (
        (vllm(0, [5]), {"prompt_token_ids": [1, 2]}), (vllm(1, [6]), {}), (vllm(2, []), {}), (vllm(0, [7, 8]), {}),
        (vllm(2, [9], "abort"), {}), (vllm(0, [2], "stop", stop_reason=2, weight_versions=SPANS), {}),
        (vllm(1, [4], "length"), {}),
    )
]  # fmt: skip


def test_an_answer_aborted_in_its_first_chunk() -> None:
    for choice in (vllm(0, [], "abort"), vllm(0, [5], "abort")):
        chunk = {"request_id": "r", "choices": [choice], "usage": USAGE, "prompt_token_ids": [1, 2]}
        events, response = read("vllm-generate", sse([chunk]))
        assert isinstance(events[-1], ms.ErrorEvent)
        assert events[-1].error.provider_code == "aborted"
        with pytest.raises(ms.ProviderError) as caught:
            decode("vllm-generate", chunk)
        assert caught.value.partial == response
        assert [*response.tokens.ids] == choice["token_ids"]


def sglang(
    text: str, ids: list[int], count: int, finish: object = None, logprobs: list[int] | None = None, **members: Any
) -> dict[str, Any]:
    pairs = [[-float(id), id, None] for id in (ids if logprobs is None else logprobs)]
    meta = {
        "id": "r", "finish_reason": finish, "prompt_tokens": 3, "completion_tokens": count, "cached_tokens": 1,
        "weight_version": "v1", "output_token_logprobs": pairs,
    }  # fmt: skip
    return {"text": text, "output_ids": ids, "meta_info": meta, **members}


STOP = {"type": "stop", "matched": 8}

LENGTH = {"type": "length", "length": 3}

SGLANG: dict[str, list[dict[str, Any]]] = {
    "cumulative": [sglang("a", [5], 1), sglang("ab", [5, 6, 7], 3), sglang("ab", [5, 6, 7, 8], 4, STOP)],
    "incremental": [sglang("a", [5], 1), sglang("b", [6, 7], 3), sglang("", [8], 4, STOP)],
    "incremental ids, cumulative logprobs": [
        sglang("a", [5], 1), sglang("b", [6, 7], 3, None, [5, 6, 7]), sglang("", [8], 4, STOP, [5, 6, 7, 8]),
    ],
    "with an empty event": [
        sglang("", [], 0), sglang("a", [5], 1), sglang("a", [5], 1), sglang("ab", [5, 6, 7], 3),
        sglang("ab", [5, 6, 7, 8], 4, STOP),
    ],
    "incremental, with an empty event": [
        sglang("a", [5], 1), sglang("", [], 1), sglang("b", [6, 7], 3), sglang("", [8], 4, STOP),
    ],
}  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("form", SGLANG)
def test_sglang_sends_all_again_or_what_is_new(form: str, cut: int) -> None:
    _, response = read("sglang-generate", sse(SGLANG[form]), cut)
    assert response.text == "ab"
    assert response.tokens == ms.Tokens(
        array("q", [5, 6, 7, 8]), array("d", [-5.0, -6.0, -7.0, -8.0]), None, (WeightSpan("v1", 0, 4),), 1, 3
    )
    assert response == decode("sglang-generate", SGLANG["cumulative"][-1])
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (3, 4, 7)


JUMPS: dict[str, list[dict[str, Any]]] = {
    "a count that jumps": [sglang("a", [5], 1), sglang("ab", [5, 6], 9), sglang("abc", [5, 6, 7], 3, STOP)],
    "a count that jumps at the end": [sglang("a", [5], 1), sglang("ab", [5, 6, 7], 9, STOP)],
    "ids that change": [sglang("a", [5], 1), sglang("ab", [9, 6], 2, STOP)],
    "fewer log probabilities": [sglang("a", [5], 1), sglang("b", [6, 7], 3, STOP, [6])],
    "an id that is none": [sglang("a", [5], 1), sglang("b", [True], 2, STOP)],
}


@pytest.mark.parametrize("what", JUMPS)
def test_tokens_of_sglang_that_contradict_themselves(what: str) -> None:
    _, response = read("sglang-generate", sse(JUMPS[what]))
    assert response.tokens is not None
    assert not response.tokens.complete
    assert response.warnings[0].startswith("tokens: ")


BROKEN: dict[str, tuple[list[Any], list[list[Any]], list[int], int, bool]] = {
    "as it should be": ([[5], [6]], [[-1.0], [-2.0]], [1, 1], 2, True),
    "more tokens in the usage": ([[5], [6]], [[-1.0], [-2.0]], [1, 1], 3, False),
    "other counts in the middle": ([[5, 6], [7]], [[-1.0], [-2.0, -3.0]], [1, 1], 3, False),
    "no log probabilities at the end": ([[5], [6]], [[-1.0], []], [1, 1], 2, False),
    "true as an id": ([[5], [True]], [[-1.0], [-2.0]], [1, 1], 2, False),
    "an id below zero": ([[5], [-5]], [[-1.0], [-2.0]], [1, 1], 2, False),
    "a large number": ([[5], [6]], [[-1.0], [10**400]], [1, 1], 2, False),
    "another prompt": ([[5], [6]], [[-1.0], [-2.0]], [1, 2], 2, False),
}  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("dialect", ["vllm-generate", "openai-completions"])
@pytest.mark.parametrize("what", BROKEN)
def test_tokens_that_contradict_themselves_are_not_complete(what: str, dialect: str, cut: int) -> None:
    ids, values, prompts, count, complete = BROKEN[what]
    chunks: list[Any] = []
    for new, lps, prompt in zip(ids, values, prompts, strict=True):
        names = {"content": [{"logprob": value} for value in lps]} if dialect == "vllm-generate" else {
            "token_logprobs": lps, "tokens": ["a"] * len(lps),
        }  # fmt: skip
        chunks.append({"choices": [{"index": 0, "text": "a", "token_ids": new, "logprobs": names,
            "prompt_token_ids": [prompt]}]})  # fmt: skip
    chunks[-1]["choices"][0]["finish_reason"] = "length"
    usage = {"prompt_tokens": 1, "completion_tokens": count}
    _, response = read(dialect, sse([*chunks, {"choices": [], "usage": usage}]), cut)
    assert (response.text, response.tokens is not None and response.tokens.complete) == ("aa", complete)
    assert response.warnings == [] if complete else response.warnings[0].startswith("tokens: ")
    if prompts == [1, 1] and "middle" not in what:
        first, second = (chunk["choices"][0] for chunk in chunks)
        joined = {name: [*first["logprobs"][name], *second["logprobs"][name]] for name in first["logprobs"]}
        choice = {**second, "text": "aa", "token_ids": [*ids[0], *ids[1]], "logprobs": joined}
        assert decode(dialect, {"choices": [choice], "usage": usage}).tokens == response.tokens


def test_tokens_of_completions_may_be_written_as_ids() -> None:
    choice = completion(0, "ab", [5, 6], "length")
    choice["logprobs"]["tokens"], choice["token_ids"] = ["token_id:5", "token_id:6"], None
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    for response in (
        decode("openai-completions", {"id": "c", "choices": [choice], "usage": usage}),
        read("openai-completions", sse([{"id": "c", "choices": [choice]}, {"id": "c", "choices": [], "usage": usage}]))[
            1
        ],
    ):
        assert response.tokens == ms.Tokens(array("q", [5, 6]), array("d", [-5.0, -6.0]), text_count=2)


def test_sglang_sends_a_list_for_several_choices() -> None:
    whole = [sglang("a", [5], 1, LENGTH), sglang("b", [6], 1, LENGTH)]
    response = decode("sglang-generate", whole)
    assert [choice.text for choice in response.choices] == ["a", "b"]
    assert response.usage.output_tokens == 2
    _, streamed = read("sglang-generate", sse({**choice, "index": index} for index, choice in enumerate(whole)))
    assert [choice.tokens for choice in streamed.choices] == [choice.tokens for choice in response.choices]


def completion(index: int, text: str, ids: list[int] | None, finish: str | None = None) -> dict[str, Any]:
    logprobs = None if ids is None else {
        "tokens": [*text], "token_logprobs": [-float(id) for id in ids], "top_logprobs": None, "text_offset": [0],
    }  # fmt: skip
    return {
        "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish, "stop_reason": None,
        "token_ids": ids, "prompt_token_ids": None,
    }  # fmt: skip


def test_completions_with_and_without_ids() -> None:
    chunks = [
        {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
        for choice in (
            {**completion(0, "a", [5]), "prompt_token_ids": [1]}, completion(1, "x", [7]), completion(0, "", [6]),
            completion(0, "b", None, "stop"), completion(1, "", [8], "length"),
        )
    ]  # fmt: skip
    events, response = read("openai-completions", sse([*chunks, {"id": "c", "choices": [], "usage": USAGE}]))
    assert [choice.text for choice in response.choices] == ["ab", "x"]
    assert response.tokens == ms.Tokens(array("q", [5, 6]), array("d", [-5.0, -6.0]), array("q", [1]), (), 1, 1)
    assert [event.text for event in events if isinstance(event, ms.TextDelta)] == ["a", "", "b"]
    whole = decode("openai-completions", {"id": "c", "choices": [completion(0, "ab", None, "stop")], "usage": USAGE})
    assert (whole.text, whole.tokens, whole.model) == ("ab", None, None)
