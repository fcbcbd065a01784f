"""The dialects with a prompt in and ids out: vLLM's generate endpoint, SGLang's, and OpenAI's Completions."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Iterable
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.model.provider_error import ProviderError
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


FORMS: dict[str, tuple[str, ms.Provider, bool]] = {
    "generate": ("vllm-generate", PROVIDERS["vllm-generate"], False),
    "generate with texts": ("vllm-generate", PROVIDERS["vllm-generate"], True),
    "completions": ("openai-completions", PROVIDERS["openai-completions"], True),
    "chat": ("openai-chat", ms.OpenAIChat("key", "http://h/v1", profile="vllm"), True),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(12))
def test_chunks_that_match_a_template_are_read_as_others(form: str, seed: int) -> None:
    dialect, provider, texts = FORMS[form]
    chance, chunks = random.Random(seed), list[bytes]()
    for _ in range(30):
        ids = [chance.randrange(9) for _ in range(chance.choice((0, 1, 1, 1, 3)))]
        entries = [{"token": "é", "logprob": chance.choice((-0.5, None, -9999.0)), "bytes": [195, 169]} for _ in ids]
        text = chance.choice(("", "a", "b\n", '"'))
        choice: dict[str, Any] = {"index": 0, "finish_reason": None, "token_ids": ids}
        choice["logprobs"] = chance.choice(({"content": entries}, {"content": entries}, None))
        if dialect == "openai-chat":
            choice["delta"] = chance.choice(({"content": text}, {"content": text}, {}, {"reasoning": text}))
        elif texts:
            choice["text"] = text
        chunks.append(json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode())
    found: list[tuple[list[ms.Event], ms.Response]] = []
    matched = 0
    for with_template in (True, False):
        machine = DIALECTS[dialect].machine(provider, lambda: "made")
        machine.asked, events = ASKED, list[ms.Event]()
        for data in chunks:
            before = machine.template = machine.template if with_template else None
            events.extend(machine.feed("", data))
            matched += before is not None and machine.template is before
        found.append((events, machine.response()))
    assert found[0] == found[1]
    assert matched


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
VLLM_WHOLE = {
    "request_id": "r", "usage": USAGE, "prompt_token_ids": [1, 2], "choices": [
        vllm(0, [5, 7, 8, 2], "stop", stop_reason=2, weight_versions=SPANS), vllm(1, [6, 4], "length"),
        vllm(2, [9], "abort"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1, 13])
def test_vllm_streams_its_choices_interleaved(cut: int) -> None:
    end = {"request_id": "r", "choices": [], "usage": {**USAGE, "completion_tokens": 7}}
    events, response = read("vllm-generate", sse([*VLLM_CHUNKS, end]), cut)
    assert response == decode("vllm-generate", {**VLLM_WHOLE, "usage": end["usage"]})
    assert response.tokens == ms.Tokens(
        array("q", [5, 7, 8, 2]), array("d", [-5.0, -7.0, -8.0, -2.0]), array("q", [1, 2]),
        (WeightSpan("v1", 0, 1), WeightSpan("v2", 1, 4)), 1, 3,
    )  # fmt: skip
    assert [[*choice.tokens.ids] for choice in response.choices if choice.tokens is not None] == [
        [5, 7, 8, 2], [6, 4], [9],
    ]  # fmt: skip
    assert [choice.finish_reason for choice in response.choices] == [
        ms.FinishReason.STOP, ms.FinishReason.LENGTH, ms.FinishReason.ABORTED,
    ]  # fmt: skip
    deltas = [event for event in events if isinstance(event, ms.TextDelta)]
    assert [(delta.text, [*((delta.tokens or ms.Tokens()).ids or ())]) for delta in deltas] == [
        ("", [5]), ("", [7, 8]), ("", [2]),
    ]  # fmt: skip
    assert isinstance(events[-1], ms.Done)


def test_a_stream_without_its_end_is_cut_and_keeps_its_tokens() -> None:
    body = sse(VLLM_CHUNKS[:4]).removesuffix(b"data: [DONE]\n\n")
    events, response = read("vllm-generate", body)
    assert isinstance(events[-1], ms.ErrorEvent)
    assert events[-1].error.category is ms.ErrorCategory.NETWORK
    assert [*response.tokens.ids] == [5, 7, 8]


def test_an_answer_aborted_in_its_first_chunk() -> None:
    for choice in (vllm(0, [], "abort"), vllm(0, [5], "abort")):
        chunk = {"request_id": "r", "choices": [choice], "usage": USAGE, "prompt_token_ids": [1, 2]}
        events, response = read("vllm-generate", sse([chunk]))
        assert isinstance(events[-1], ms.ErrorEvent)
        assert events[-1].error.provider_code == "aborted"
        with pytest.raises(ProviderError) as caught:
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


@pytest.mark.parametrize("error", [{"message": "The request was aborted"}, "gone"])
def test_an_error_in_a_stream_ends_it(error: object) -> None:
    events, response = read("sglang-generate", sse([sglang("a", [5], 1), {"error": error}]))
    assert isinstance(events[-1], ms.ErrorEvent)
    assert response.tokens is not None
    with pytest.raises(ProviderError):
        decode("sglang-generate", {"error": error})


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


WRONG: list[object] = [[], {}, "a", None, {"choices": 1}, {"choices": [1]}, {"text": "a"}]


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("body", WRONG, ids=str)
def test_a_body_of_another_shape_is_an_error(dialect: str, body: object) -> None:
    with pytest.raises(ProviderError):
        decode(dialect, body)


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
