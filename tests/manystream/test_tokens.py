"""Tokens of answers: ids and log probabilities as the server sends them, streamed and whole, and what it leaves out.

One file because all of it asks small servers of the same wire, whose chunks are written here once.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
from array import array
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.tokens import WeightSpan, chat_template
from tests.support.peers import NO_RETRY, STREAM_HEAD, Line, Recorder, answer, chunked, open_peer, replies, reply_once

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}}


def logprob(token: str, value: float | None, **members: object) -> dict[str, Any]:
    return {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": [], **members}


def logprobs(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"content": list(entries)}


def piece(
    delta: dict[str, Any], ids: object = None, entries: Sequence[dict[str, Any]] | None = None, **members: Any
) -> dict[str, Any]:
    """Return a chunk of vLLM's."""
    choice = {
        "index": 0, "delta": delta, "logprobs": None if entries is None else logprobs(*entries), "finish_reason": None,
        **members,
    }  # fmt: skip
    if ids is not None:
        choice["token_ids"] = ids
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def first(*prompt: int) -> dict[str, Any]:
    return piece({"role": "assistant", "content": ""}) | {"prompt_token_ids": [*prompt], "prompt_text": None}


def whole(message: dict[str, Any], **members: Any) -> dict[str, Any]:
    top = {"prompt_token_ids": members.pop("prompt", [1, 2, 3])}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **members}
    return {"id": "c", "created": 1, "model": "m", "choices": [choice], "usage": USAGE, **top}


END = {"id": "c", "created": 1, "model": "m", "choices": [], "usage": USAGE}


@dataclass
class Asked:
    """What a call sent and delivered."""

    body: dict[str, Any] = field(default_factory=dict[str, Any])
    recorder: Recorder = field(default_factory=Recorder)

    @property
    def completion(self) -> ms.Completion:
        return self.recorder.completion

    @property
    def response(self) -> ms.Response:
        assert self.completion.success, self.completion.error
        assert self.completion.response is not None
        return self.completion.response

    @property
    def tokens(self) -> ms.Tokens:
        assert self.response.tokens is not None
        return self.response.tokens

    @property
    def deltas(self) -> list[tuple[str, str, list[int], list[float] | None]]:
        """Type, text, ids and log probabilities of each delta that has tokens."""
        return [
            (event.type, event.text, [*(event.tokens.ids or ())], event.tokens.logprobs and [*event.tokens.logprobs])
            for event in self.recorder.events
            if isinstance(event, (ms.TextDelta, ms.ThinkingDelta)) and event.tokens is not None
        ]


def ids_in(value: Any) -> int:
    """Return the number of ids, or else of log probabilities, in a body or in the chunks of a stream."""
    chunks = value if isinstance(value, list) else [value]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    ids = [len(choice.get("token_ids") or ()) for choice in choices]
    return sum(ids) or sum(len((choice.get("logprobs") or {}).get("content", ())) for choice in choices)


def with_count(body: Any, count: int) -> Any:
    """Return a body, or the chunks of a stream, whose usage counts so many tokens of output."""
    if isinstance(body, bytes):
        return body
    usage = {**USAGE, "completion_tokens": count, "total_tokens": 3 + count}
    chunks = (
        [{**chunk, "usage": usage} if "usage" in chunk else chunk for chunk in body] if isinstance(body, list) else []
    )
    return chunks or {**body, "usage": usage}


def sse(chunks: Sequence[object]) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n" for chunk in chunks)


async def ask(
    body: bytes | Sequence[object] | dict[str, Any], cut: int = 0, *, count: int | None = None, **options: Any
) -> Asked:
    """Send a request to a server that answers with this body, or with a stream of these chunks.

    cut: the stream arrives in pieces of so many bytes; 0: as one chunk an event.
    count: the number of tokens that the usage reports; None: those that are there.
    """
    body = body if isinstance(body, bytes) else with_count(body, (ids_in(body) or 4) if count is None else count)
    asked = Asked()
    profile = options.pop("profile", "vllm")
    stream = not isinstance(body, dict)
    options = {"return_tokens": True, **options}

    async def serve(line: Line) -> None:
        _, _, sent = (await line.request()).partition(b"\r\n\r\n")
        asked.body = json.loads(sent)
        if isinstance(body, dict):
            await line.send(answer(json.dumps(body)))
            return
        data = body if isinstance(body, bytes) else sse(body) + b"data: [DONE]\n\n"
        pieces = [data[at : at + cut] for at in range(0, len(data), cut)] if cut else data.splitlines(keepends=True)
        await line.send(STREAM_HEAD)
        for part in pieces:
            await line.send(chunked(part, end=False))
        await line.send("0\r\n\r\n")

    async with open_peer(serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, profile=profile)
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            start = engine.start_stream if stream else engine.start_request
            recorder = asked.recorder
            request = ms.Request("m", "hello", **options)
            call = (
                start(request, recorder.on_event, recorder.on_completion)
                if stream
                else engine.start_request(request, recorder.on_completion)
            )
            await call.wait()
    return asked


STREAM = [
    first(1, 2, 3),
    piece({"content": "Hel"}, [11, 12], [logprob("He", -0.5), logprob("l", -0.25)]),
    *(piece({"content": text}, [id], [logprob(text, -id / 8)]) for text, id in (("lo", 13), (" w", 14), ("or", 15))),
    piece({"content": ""}, [16], [logprob("", -9999.0, bytes=[])]),
    piece({"content": "ld"}, [17], [logprob("ld", None)]),
    piece({"content": ""}, [2], [logprob("<end>", -0.125)], finish_reason="stop", stop_reason=None),
    END,
]
IDS = [11, 12, 13, 14, 15, 16, 17, 2]
LOGPROBS = [-0.5, -0.25, -13 / 8, -14 / 8, -15 / 8, -9999.0, math.nan, -0.125]


@pytest.mark.parametrize("cut", [0, 1, 7, 100, 1000])
async def test_a_stream_has_tokens_on_deltas_and_response(cut: int) -> None:
    asked = await ask(STREAM, cut, logprobs=0)
    assert (asked.body["return_token_ids"], asked.body["logprobs"], "top_logprobs" in asked.body) == (True, True, False)
    tokens = asked.tokens
    assert tokens.ids == array("q", IDS)
    assert tokens == ms.Tokens(
        array("q", IDS), array("d", LOGPROBS), array("q", [1, 2, 3]), cached=2, text_count=len(IDS) - 1
    )
    assert tokens.text_ids is not None
    assert [*tokens.text_ids] == IDS[:-1]
    assert [id for _, _, ids, _ in asked.deltas for id in ids] == IDS
    assert [(text, ids) for _, text, ids, _ in asked.deltas][:2] == [("Hel", [11, 12]), ("lo", [13])]
    assert ("text_delta", "", [16], [-9999.0]) in asked.deltas
    assert asked.response.text == "Hello world"
    assert "logprobs" not in asked.response.provider_data
    assert "token_ids" not in asked.response.provider_data


async def test_a_whole_answer_equals_the_streamed_one() -> None:
    entries = [
        logprob("He", -0.5), logprob("l", -0.25), logprob("lo", -13 / 8), logprob(" w", -14 / 8),
        logprob("or", -15 / 8), logprob("", -9999.0, bytes=[]), logprob("ld", None), logprob("<end>", -0.125),
    ]  # fmt: skip
    body = whole({"content": "Hello world"}, token_ids=IDS, logprobs=logprobs(*entries), stop_reason=None)
    asked = await ask(body, logprobs=0)
    assert asked.response == (await ask(STREAM, logprobs=0)).response


async def test_nothing_is_there_that_was_not_asked_for() -> None:
    plain = [piece({"content": "a"}), piece({"content": "b"}), piece({"content": ""}, finish_reason="stop"), END]
    asked = await ask(plain, return_tokens=False)
    assert asked.response.tokens is None
    assert all(event.tokens is None for event in asked.recorder.events if isinstance(event, ms.TextDelta))
    assert not {"return_token_ids", "logprobs"} & asked.body.keys()
    sent = [piece({"content": "a"}, entries=[logprob("a", -1.0)], finish_reason="stop"), END]
    assert (await ask(sent, return_tokens=False)).response.tokens is None
    unstreamed = whole({"content": "a"}, logprobs=logprobs(logprob("a", -1.0)), prompt=None)
    assert (await ask(unstreamed, return_tokens=False)).response.tokens is None


async def test_ids_alone_have_no_log_probabilities() -> None:
    asked = await ask([first(1), piece({"content": "a"}, [2**31 + 5]), piece({}, [2**62], finish_reason="length"), END])
    assert asked.tokens == ms.Tokens(array("q", [2**31 + 5, 2**62]), None, array("q", [1]), cached=2, text_count=2)
    assert [ids for _, _, ids, _ in asked.deltas] == [[2**31 + 5], [2**62]]


async def test_thinking_has_tokens_and_the_open_block_hidden_ones() -> None:
    chunks = [
        first(1),
        piece({}, [20]),  # opens the thinking: it is not clear yet to which block it belongs
        piece({"reasoning": "hm"}, [21]),
        piece({}, [22]),
        piece({"content": "x"}, [23]),
        piece({}, [2], finish_reason="stop", stop_reason=None),
        END,
    ]
    asked = await ask(chunks)
    assert [(kind, text, ids) for kind, text, ids, _ in asked.deltas] == [
        ("thinking_delta", "hm", [20, 21]), ("thinking_delta", "", [22]), ("text_delta", "x", [23]),
        ("text_delta", "", [2]),
    ]  # fmt: skip
    assert (asked.response.thinking, asked.response.text) == ("hm", "x")
    message = {"reasoning": "hm", "content": "x"}
    body = whole(message, token_ids=[20, 21, 22, 23, 2], prompt=[1], stop_reason=None)
    assert (await ask(body)).response == asked.response


async def test_ids_of_tool_calls_are_on_the_response_alone() -> None:
    function = {"name": "f", "arguments": ""}
    call = [{"index": 0, "id": "x", "type": "function", "function": function}]
    rest = [{"index": 0, "function": {"arguments": '{"a":1}'}}]
    chunks = [
        first(1),
        piece({"content": "a"}, [10]),
        piece({"tool_calls": call}, [11, 12]),
        piece({"tool_calls": rest}, [13]),
        piece({}, [2], finish_reason="tool_calls", stop_reason=None),
        END,
    ]
    asked = await ask(chunks)
    assert [ids for _, _, ids, _ in asked.deltas] == [[10]]
    assert [*asked.tokens.ids] == [10, 11, 12, 13, 2]
    assert asked.tokens.text_count == 4
    assert asked.response.tool_calls == [ms.ToolCall("x", "f", '{"a":1}')]


STOPS: dict[str, tuple[dict[str, Any], int | None]] = {
    "the model's end": ({"finish_reason": "stop", "stop_reason": None}, 3),
    "a token": ({"finish_reason": "stop", "stop_reason": 14}, 3),
    "another token": ({"finish_reason": "stop", "stop_reason": 99}, 4),
    "the limit": ({"finish_reason": "length", "stop_reason": None}, 4),
    "a text": ({"finish_reason": "stop", "stop_reason": "cd"}, 2),
    "a matched text": ({"finish_reason": "stop", "matched_stop": "cd"}, 2),
}


@pytest.mark.parametrize("how", STOPS)
async def test_the_ids_of_the_text_end_where_the_server_stopped(how: str) -> None:
    members, count = STOPS[how]
    entries = [logprob("a", -1.0), logprob("bc", -1.0), logprob("d", -1.0), logprob("e", -1.0)]
    text = "ab" if count == 2 else "abcde"
    body = whole({"content": text}, token_ids=[11, 12, 13, 14], logprobs=logprobs(*entries), **members)
    tokens = (await ask(body, logprobs=0)).tokens
    assert (tokens.text_count, [*(tokens.text_ids or ())]) == (count, [11, 12, 13, 14][:count])
    chunks = [first(1, 2, 3), piece({"content": text}, [11, 12, 13, 14], entries, **members), END]
    assert (await ask(chunks, logprobs=0)).tokens == tokens
    if count == 2:
        assert (await ask({**body, "choices": [{**body["choices"][0], "logprobs": None}]})).tokens.text_ids is None


SGLANG = {"output_ids": [[5, 6]], "input_ids": [1, 2]}


async def test_the_forms_of_sglang() -> None:
    entries = [logprob("a", -1.0), logprob("b", -2.0)]
    chunks = [
        piece({"role": "assistant", "content": ""}),
        piece({"content": "a"}, entries=entries[:1]),
        piece({"content": "b"}, entries=entries[1:]),
        piece({}, finish_reason="stop", matched_stop=6),
        {"id": "c", "model": "m", "choices": [], "sglext": SGLANG, "metadata": {"weight_version": "v7"}},
        END,
    ]
    asked = await ask(chunks, profile="sglang", logprobs=2, count=2)
    sent = {name: value for name, value in asked.body.items() if "return" in name or "logprobs" in name}
    assert sent == {
        "return_input_ids_in_sglext": True, "return_output_ids_in_sglext": True, "logprobs": True, "top_logprobs": 2,
    }  # fmt: skip
    expected = ms.Tokens(
        array("q", [5, 6]), array("d", [-1.0, -2.0]), array("q", [1, 2]), (WeightSpan("v7", 0, 2),), 2, 1
    )
    assert asked.tokens == expected
    assert [(text, values) for _, text, _, values in asked.deltas] == [("a", [-1.0]), ("b", [-2.0])]
    assert asked.response.provider_data["logprobs"] == logprobs(*entries)
    choice = {
        "index": 0, "message": {"content": "ab"}, "logprobs": logprobs(*entries), "finish_reason": "stop",
        "matched_stop": 6, "prompt_token_ids": [1, 2], "response_token_ids": [5, 6],
    }  # fmt: skip
    spans = [{"version": "v6", "start": 0, "end": 1}, {"version": "v7", "start": 1, "end": 2}]
    body = {"id": "c", "model": "m", "choices": [choice], "usage": USAGE, "metadata": {"weight_versions": spans}}
    asked = await ask(body, profile="sglang", logprobs=2)
    assert asked.body["return_token_ids"] is True
    assert asked.tokens.weight_versions == (WeightSpan("v6", 0, 1), WeightSpan("v7", 1, 2))
    assert (asked.tokens.ids, asked.tokens.prompt_ids) == (expected.ids, expected.prompt_ids)


@pytest.mark.parametrize("with_logprobs", [False, True])
async def test_llama_cpp_has_ids_among_its_log_probabilities(with_logprobs: bool) -> None:
    options = {"profile": "llama-cpp", "logprobs": 0 if with_logprobs else None}
    entries = [logprob("a", -1.0, id=5), logprob("b", -2.0, id=6)]
    chunks = [
        *(piece({"content": entry["token"]}, entries=[entry]) for entry in entries),
        piece({}, finish_reason="length"),
        END,
    ]
    asked = await ask(chunks, **options)
    assert (asked.body["logprobs"], "return_token_ids" in asked.body) == (True, False)
    assert asked.tokens == ms.Tokens(
        array("q", [5, 6]), array("d", [-1.0, -2.0]) if with_logprobs else None, cached=2, text_count=2
    )
    assert [values for *_, values in asked.deltas] == ([[-1.0], [-2.0]] if with_logprobs else [None, None])
    body = whole({"content": "ab"}, logprobs=logprobs(*entries), prompt=None, finish_reason="length")
    assert (await ask(body, **options)).tokens == asked.tokens


async def test_a_token_may_be_written_as_its_id() -> None:
    entries = [logprob("token_id:5", -1.0), logprob("token_id:6", -2.0)]
    body = whole({"content": "ab"}, logprobs=logprobs(*entries))
    assert [*(await ask(body, logprobs=0)).tokens.ids] == [5, 6]
    body = whole({"content": "ab"}, logprobs=logprobs(*entries), token_ids=[5, 6])
    assert [*(await ask(body, logprobs=0)).tokens.ids] == [5, 6]
    chunks = [piece({"content": "ab"}, [5, 6], entries), piece({}, [], [], finish_reason="length"), END]
    assert [*(await ask(chunks, logprobs=0)).tokens.ids] == [5, 6]


async def test_log_probabilities_without_ids() -> None:
    chunks = [
        *(piece({"content": text}, entries=[logprob(text, -1.0), logprob(text, math.nan)]) for text in "abc"),
        piece({}, finish_reason="stop"),
        END,
    ]
    for profile in ("openai-chat", "vllm"):
        asked = await ask(chunks, profile=profile, return_tokens=False, logprobs=0)
        assert asked.tokens.ids is None
        assert asked.tokens == ms.Tokens(logprobs=array("d", [-1.0, math.nan] * 3), cached=2, text_count=None)
    body = json.dumps(whole({"content": "a"}, logprobs=logprobs(logprob("a", -math.inf)), prompt=None))
    assert "-Infinity" in body
    tokens = (await ask(json.loads(body), return_tokens=False, logprobs=0)).tokens
    assert tokens.logprobs == array("d", [-math.inf])


MISSING: dict[str, tuple[Any, dict[str, Any], str]] = {
    "ids": ([piece({"content": "a"}), piece({}, finish_reason="stop"), END], {}, "no token ids that can be read"),
    "whole ids": (whole({"content": "a"}), {}, "no token ids that can be read"),
    "log probabilities": (
        whole({"content": "a"}, token_ids=[5]), {"logprobs": 0}, r"no log probabilities .*\(logprobs\)",
    ),
    "both": (whole({"content": "a"}, prompt=None), {"logprobs": 1}, "no token ids and log probabilities"),
    "ids that are text": (whole({"content": "a"}, token_ids=["5"]), {}, "no token ids that can be read"),
    "ids that are too large": (
        [piece({"content": "a"}, [5]), piece({"content": "b"}, [2**64]), piece({}, [6], finish_reason="stop"), END], {},
        "no token ids that can be read",
    ),
    "ids that become text": (
        [*(piece({"content": "a"}, [5]) for _ in range(4)), piece({"content": "b"}, ["x"]),
        piece({}, [6], finish_reason="stop"), END], {}, "no token ids that can be read",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISSING)
async def test_a_server_that_does_not_send_them_is_an_error(what: str) -> None:
    body, options, message = MISSING[what]
    asked = await ask(body, **options)
    error = asked.completion.error
    assert error is not None
    with pytest.raises(ms.ProviderError, match=message):
        raise error
    assert not error.retryable
    assert asked.completion.response.text[:1] == "a"


# --- tokens that do not fit together ---

PAIR = [logprob("a", -1.0), logprob("b", -2.0)]
CLOSED = piece({}, finish_reason="stop", stop_reason="x")


def two(ids: Sequence[object], entries: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a stream of two pieces of text with these ids and log probabilities."""
    pieces = zip("ab", ids, entries, strict=True)
    return [first(1), *(piece({"content": text}, each, lps) for text, each, lps in pieces), CLOSED, END]


def meta(pairs: Sequence[object], **members: Any) -> dict[str, Any]:
    return {"meta_info": {"output_token_logprobs": [*pairs], **members}}


LATE = [*(piece({"content": text}, entries=[logprob(text, -1.0)]) for text in "ab"), CLOSED]
CONTRADICTIONS: dict[str, tuple[Any, int, str]] = {
    "ids that are missing": (two([[5], []], [PAIR[:1], []]), 2, "counts 2 of the answer, and sent 1 ids"),
    "ids that are missing, whole": (
        whole({"content": "ab"}, token_ids=[5], logprobs=logprobs(*PAIR[:1])), 2, "counts 2 .* sent 1 ids",
    ),
    "log probabilities that are missing": (
        [*LATE, {"id": "c", "choices": [], "sglext": {"output_ids": [[5, 6, 7]]}}, END], 3,
        "3 ids and 2 log probabilities",
    ),
    "more log probabilities": (two([[5], []], [PAIR[:1], PAIR[1:]]), 1, "1 ids and 2 log probabilities"),
    "more log probabilities, whole": (
        whole({"content": "ab"}, token_ids=[5], logprobs=logprobs(*PAIR)), 1, "1 ids and 2 log probabilities",
    ),
    "counts that differ in the middle": (two([[5, 6], [7]], [PAIR[:1], PAIR]), 3, "2 ids and 1 log probabilities"),
    "a prompt that changes": (
        [*two([[5], [6]], [PAIR[:1], PAIR[1:]])[:2], first(2), *two([[5], [6]], [PAIR[:1], PAIR[1:]])[2:]], 2,
        "ids of the prompt change",
    ),
    "true as an id": (two([[5], [True]], [PAIR[:1], PAIR[1:]]), 2, "no token ids that can be read"),
    "true among ids": (whole({"content": "ab"}, token_ids=[5, True], logprobs=logprobs(*PAIR)), 2, "no token ids"),
    "an id below zero": (two([[5], [-5]], [PAIR[:1], PAIR[1:]]), 2, "no token ids that can be read"),
    "ids below zero": (whole({"content": "ab"}, token_ids=[5, -5], logprobs=logprobs(*PAIR)), 2, "no token ids"),
    **{
        f"{value!r:.9} as a log probability{form}": (body, 2, "a log probability is no number")
        for value in (10**400, True, "x")
        for entries in ([PAIR[0], logprob("b", value)],)  # type: ignore[arg-type]
        for form, body in (
            ("", two([[5], [6]], [entries[:1], entries[1:]])),
            (", whole", whole({"content": "ab"}, token_ids=[5, 6], logprobs=logprobs(*entries))),
        )
    },
    "pairs that other ids contradict": (
        whole({"content": "ab"}, token_ids=[5, 7], logprobs=None, **meta([[-1.0, 5, "a"], [-2.0, 6, "b"]])), 2,
        "the ids change",
    ),
    "pairs that another count contradicts": (
        whole({"content": "ab"}, logprobs=None, **meta([[-1.0, 5, "a"], [-2.0, 6, "b"]], completion_tokens=9)), 2,
        "counts 9 tokens, where 2 ids",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CONTRADICTIONS)
async def test_tokens_that_do_not_fit_together_are_an_error(what: str, caplog: pytest.LogCaptureFixture) -> None:
    body, count, message = CONTRADICTIONS[what]
    asked = await ask(body, count=count, logprobs=0)
    error, tokens = asked.completion.error, asked.completion.response.tokens
    assert error is not None
    with pytest.raises(ms.ProviderError, match=message):
        raise error
    assert not error.retryable
    assert not caplog.records
    assert not tokens.complete
    assert asked.completion.response.text == "ab"
    with pytest.raises(ms.InvalidRequestError, match=r"^response: has (no ids|ids that are not all)"):
        ms.Turns().add(asked.completion.response)
    unasked = await ask(body, count=count, return_tokens=False, logprobs=0)
    assert not unasked.tokens.complete  # the program sees it, and trains on no ids that it has not asked for
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert unasked.response.warnings[0].startswith("tokens: ")


async def test_the_end_of_an_answer_may_have_no_log_probability(caplog: pytest.LogCaptureFixture) -> None:
    body = [*LATE, END]
    for count, complete, warnings in ((2, True, 0), (3, False, 0), (4, False, 1)):
        caplog.clear()
        asked = await ask(body, count=count, profile="openai-chat", return_tokens=False, logprobs=0)
        assert (asked.tokens.complete, len(caplog.records), asked.tokens.ids) == (complete, warnings, None)


async def test_each_of_several_choices_has_its_ids() -> None:
    choices = [{"index": index, "message": {"content": "a"}, "finish_reason": "stop"} for index in range(2)]
    for ids, right in (([[5], [6]], True), ([[5], None], False), ([[5], [6, 7]], False)):
        body = {
            **whole({}),
            "choices": [{**choice, "token_ids": each} for choice, each in zip(choices, ids, strict=True)],
        }
        asked = await ask(body, count=2, extra_body={"n": 2})
        assert asked.completion.success is right


async def test_pairs_of_sglang_are_ids_and_log_probabilities() -> None:
    pairs = [[-1.0, 5, "a"], [-2.0, 6, None]]
    for body in (
        whole({"content": "ab"}, logprobs=logprobs(*PAIR), **meta(pairs, completion_tokens=2)),
        [first(1, 2, 3), piece({"content": "ab"}, None, PAIR, **meta(pairs)), CLOSED, END],
    ):
        asked = await ask(body, count=2, profile="sglang", logprobs=0)
        assert (asked.tokens.ids, asked.tokens.logprobs) == (array("q", [5, 6]), array("d", [-1.0, -2.0]))
        assert asked.tokens.complete


@pytest.mark.parametrize("before", [[], [piece({}, [7])], [piece({"role": "assistant"})]])
async def test_an_answer_of_a_stop_token_has_a_delta(before: list[dict[str, Any]]) -> None:
    ids = [id for chunk in before for id in chunk["choices"][0].get("token_ids", ())] + [2]
    chunks = [*before, piece({}, [2], finish_reason="stop", stop_reason=None), END]
    asked = await ask(chunks)
    assert ([*(asked.tokens.ids or ())], [delta[:3] for delta in asked.deltas]) == (ids, [("text_delta", "", ids)])
    assert asked.response.content == []


TEXTS: dict[str, tuple[list[str], str, str, int | None]] = {
    "invalid characters": (["a", "", "", "st", "op"], "a\ufffd\ufffd", "stop", 3),
    "half a character of the stop": (["a", "", "é", "nd"], "a", "éend"[0:1] + "nd", 1),
    "a token in two": (["a", "bst", "op"], "ab", "stop", 2),
    "a token behind": (["a", "stop", "b"], "a", "stop", 1),
    "a stop string that is kept": (["a", "st", "op"], "astop", "stop", 3),
    "the stop string alone": (["st", "op"], "", "stop", 0),
    "special tokens before": (["<think>", "a", "stop"], "a", "stop", 2),
    "a text without it": (["a", "b"], "a", "stop", None),
    "very many tokens": ([*(["ab"] * 99), "st", "op"], "ab" * 99, "stop", 99),
    "an overlap": (["x", "aaa"], "x", "aa", 1),
}


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize("completions", [False, True])
def test_the_last_tokens_show_where_the_text_ends(what: str, completions: bool) -> None:
    texts, text, stop, count = TEXTS[what]
    ids, values = [*range(len(texts))], [-1.0] * len(texts)
    entries: dict[str, Any] = (
        {"tokens": texts, "token_logprobs": values}
        if completions
        else logprobs(*(logprob(each, -1.0) for each in texts))
    )
    body = whole({"content": text}, token_ids=ids, logprobs=entries, stop_reason=stop)
    body["choices"][0]["text"] = text
    name = "openai-completions" if completions else "openai-chat"
    provider = ms.OpenAICompletions(base_url="http://h") if completions else ms.OpenAIChat("key", "http://h/v1")
    response = DIALECTS[name].decode(json.dumps(body).encode(), provider, lambda: "made")
    assert response.text == text
    assert response.tokens is not None
    assert response.tokens.text_count == count


async def test_an_option_that_a_server_lacks_is_refused_unsent() -> None:
    providers = [ms.Anthropic("key", "http://127.0.0.1:9"), ms.OpenAIChat("key"), ms.OpenAIResponses("key", name="r")]
    async with ms.open_engine(providers) as engine:
        for model, option, value in (
            ("anthropic/m", "return_tokens", True), ("anthropic/m", "logprobs", 0),
            ("openai-chat/m", "return_tokens", True), ("r/m", "logprobs", 0),
        ):  # fmt: skip
            with pytest.raises(ms.InvalidRequestError, match=option):
                engine.start_request(ms.Request(model, "hi", **{option: value}))  # type: ignore[arg-type]
        for wrong in (-1, True, "1"):
            with pytest.raises(ms.InvalidRequestError, match="logprobs"):
                engine.start_request(ms.Request("openai-chat/m", "hi", logprobs=wrong))  # type: ignore[arg-type]


async def test_a_cut_stream_keeps_the_tokens_that_came() -> None:
    asked = await ask(sse(STREAM[:4]), logprobs=0)
    response = asked.completion.response
    assert asked.completion.error.category is ms.ErrorCategory.NETWORK
    assert [*response.tokens.ids] == IDS[:4]


async def test_an_aborted_answer_keeps_its_tokens() -> None:
    abort: dict[str, Any] = {"finish_reason": "abort", "stop_reason": None}
    for body in (
        [first(1), piece({"content": "a"}, [5]), piece({}, [], **abort), END],
        [first(1), piece({}, [5], **abort), END],
        whole({"content": "a"}, token_ids=[5], prompt=[1], **abort),
    ):
        asked = await ask(body)
        error, response = asked.completion.error, asked.completion.response
        assert error.provider_code == "aborted"
        assert ([*response.tokens.ids], response.tokens.text_count) == ([5], 1)


def test_tokens_are_plain_values() -> None:
    tokens = ms.Tokens(array("q", [1, 2]), array("d", [-1.0, math.nan]), text_count=1)
    assert tokens == copy.deepcopy(tokens) == pickle.loads(pickle.dumps(tokens))
    assert tokens != ms.Tokens(array("q", [1, 2]), array("d", [-1.0, -2.0]), text_count=1)
    assert tokens.to_json()["logprobs"] == [-1.0, None]
    delta = ms.TextDelta(0, "a")
    other = copy.copy(delta)
    assert delta == other
    other.tokens = tokens
    assert delta != other
    assert (delta.tokens, pickle.loads(pickle.dumps(other)).tokens) == (None, tokens)
    assert delta != ms.ThinkingDelta(0, "a")


# --- answers that go on ---


def part(ids: Sequence[int], finish: str | None = None, version: str | None = None, **members: Any) -> dict[str, Any]:
    """A chunk of vLLM's generate endpoint. The log probability of an id is its negative."""
    content = [{"token_id": id, "logprob": -float(id), "rank": 1, "top_logprobs": []} for id in ids]
    spans = None if version is None else [{"version": version, "start": 0, "end": members.pop("end")}]
    choice = {
        "index": 0, "finish_reason": finish, "stop_reason": None, "token_ids": [*ids], "weight_versions": spans,
        "logprobs": {"content": content},
    }  # fmt: skip
    return {"request_id": "r", "usage": None, "choices": [choice], **members}


def counted(prompt: int, output: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


PARTS: list[list[dict[str, Any] | None]] = [
    [part([5, 6], prompt_token_ids=[1, 2]), part([7], "abort", "v1", end=3), {"choices": [], "usage": counted(2, 3)}],
    [part([], "abort")],
    [part([8]), None],  # killed
    [part([9]), part([2], "stop", "v2", end=2), {"choices": [], "usage": counted(6, 2)}],
]
"""The answers of one server after another, as chunks; None: the connection breaks."""

JOINED = ms.Tokens(
    array("q", [5, 6, 7, 8, 9, 2]), array("d", [-5.0, -6.0, -7.0, -8.0, -9.0, -2.0]), array("q", [1, 2]),
    (WeightSpan("v1", 0, 3), WeightSpan("v2", 4, 6)), None, 5,
)  # fmt: skip


@dataclass
class Pieces:
    """What a call in several parts sent and delivered."""

    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    recorder: Recorder = field(default_factory=Recorder)


async def in_parts(parts: Sequence[Sequence[dict[str, Any] | None]], **options: Any) -> Pieces:
    asked = Pieces()
    left = iter(parts)

    async def serve(line: Line) -> None:
        while request := await line.request():
            asked.bodies.append(json.loads(request.partition(b"\r\n\r\n")[2]))
            chunks = next(left)
            await line.send(STREAM_HEAD)
            for value in chunks:
                if value is None:
                    return line.reset()
                await line.send(chunked(sse([value]), end=False))
            await line.send(chunked("data: [DONE]\n\n"))
        return None

    async with open_peer(serve) as peer:
        retry = ms.Retry(max_attempts=3, base=0, jitter=0)
        async with ms.open_engine([ms.VLLMGenerate(base_url=peer.origin)], retry=retry) as engine:
            recorder = asked.recorder
            request = ms.Request("m", prompt_token_ids=[1, 2], max_output_tokens=9, logprobs=0, **options)
            await engine.start_stream(request, recorder.on_event, recorder.on_completion).wait()
    return asked


async def test_a_stopped_answer_goes_on_with_its_ids_as_the_prompt() -> None:
    asked = await in_parts(PARTS, continue_aborted=True)
    completion = asked.recorder.completion
    assert completion.success, completion.error
    assert completion.response.tokens == JOINED
    usage = completion.response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (2, 6, 8)
    sent = [(body["token_ids"], body["sampling_params"]["max_tokens"]) for body in asked.bodies]
    assert sent == [([1, 2], 9), ([1, 2, 5, 6, 7], 6), ([1, 2, 5, 6, 7], 6), ([1, 2, 5, 6, 7, 8], 5)]
    events = asked.recorder.events
    assert asked.recorder.types.count("START") == asked.recorder.types.count("DONE") == 1
    deltas = [event for event in events if isinstance(event, ms.TextDelta)]
    assert [id for delta in deltas if delta.tokens for id in delta.tokens.ids] == [*JOINED.ids]
    assert isinstance(events[-1], ms.Done)
    assert events[-1].usage == usage


async def test_an_answer_that_was_stopped_is_not_asked_again_by_itself() -> None:
    asked = await in_parts(PARTS)
    completion = asked.recorder.completion
    assert completion.error.provider_code == "aborted"
    assert (completion.attempts, len(asked.bodies)) == (1, 1)
    assert [*completion.response.tokens.ids] == [5, 6, 7]


async def test_an_answer_does_not_go_on_for_ever() -> None:
    asked = await in_parts([PARTS[0], *([part([], "abort")] for _ in range(9))], continue_aborted=True)
    completion = asked.recorder.completion
    assert completion.error.provider_code == "aborted"
    assert len(asked.bodies) == 4
    assert [*completion.response.tokens.ids] == [5, 6, 7]


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_answers_go_on_when_their_server_is_back(attempts: int, autojump_clock: MockClock) -> None:
    """Attempts that only showed that the server is away are not counted."""
    is_back = False

    async def serve(stream: trio.SocketStream) -> None:
        line = Line(stream)
        while await line.request():
            await line.send(STREAM_HEAD)
            end = [part([6], "stop")] if is_back else [part([5], prompt_token_ids=[1, 2])]
            await line.send(chunked(sse(end), end=False))
            if not is_back:
                await trio.sleep(60)
            await line.send(chunked("data: [DONE]\n\n"))

    async def listen(task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        nonlocal is_back
        port = 0
        for seconds in (2.0, math.inf):
            listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
            port = listeners[0].socket.getsockname()[1]
            with trio.move_on_after(seconds):
                task_status.started(port) if not is_back else None
                await trio.serve_listeners(serve, listeners)
            await trio.sleep(6)
            is_back = True

    async with trio.open_nursery() as nursery:
        here = ms.VLLMGenerate(base_url=f"http://127.0.0.1:{await nursery.start(listen)}")
        request = ms.Request("m", prompt_token_ids=[1, 2], max_output_tokens=9, continue_aborted=True)
        options = ms.Retry(max_attempts=attempts)
        async with ms.open_engine([here], retry=options, traffic=ms.Traffic()) as engine:
            completions = [await call.wait() for call in [engine.start_stream(request) for _ in range(8)]]
        nursery.cancel_scope.cancel()
    assert [each.error for each in completions if not each.success] == []
    assert all([*each.response.tokens.ids] == [5, 6] for each in completions)


async def test_an_answer_that_lacks_ids_does_not_go_on() -> None:
    lacking = [part([5, 6], prompt_token_ids=[1, 2]), part([], "abort"), {"choices": [], "usage": counted(2, 3)}]
    asked = await in_parts([lacking, PARTS[3]], continue_aborted=True)
    completion = asked.recorder.completion
    assert (completion.error.provider_code, len(asked.bodies)) == ("aborted", 1)
    assert not completion.response.tokens.complete


NINE = [5, 6, 7, 8, 9, 10, 11, 12, 13]


@pytest.mark.parametrize("parts", [
    [[part(NINE[:4]), part(NINE[4:], "abort")]],
    [[part(NINE), None]],
    [[part(NINE[:4]), None], [part(NINE[4:], "abort", "v1", end=5), {"choices": [], "usage": counted(6, 5)}]],
], ids=["stopped", "killed", "in the second part"])  # fmt: skip
async def test_an_answer_that_was_stopped_at_its_length_is_whole(parts: list[list[dict[str, Any] | None]]) -> None:
    asked = await in_parts(parts, continue_aborted=True)
    completion = asked.recorder.completion
    assert completion.success, completion.error
    assert [*completion.response.tokens.ids] == NINE
    assert completion.response.finish_reason is ms.FinishReason.LENGTH
    assert asked.recorder.types.count("START") == asked.recorder.types.count("DONE") == 1
    assert len(asked.bodies) == len(parts)
    done = asked.recorder.events[-1]
    assert isinstance(done, ms.Done)
    assert (done.finish_reason, done.usage) == (ms.FinishReason.LENGTH, completion.response.usage)


async def test_whole_answers_go_on_too() -> None:
    bodies: list[dict[str, Any]] = []
    answers = [
        {**part([5], "abort", "v1", end=1), "usage": counted(1, 1), "prompt_token_ids": [1]},
        {**part([6, 2], "stop", "v1", end=2), "usage": counted(2, 2), "prompt_token_ids": [1, 5]},
    ]

    async def serve(line: Line) -> None:
        while request := await line.request():
            bodies.append(json.loads(request.partition(b"\r\n\r\n")[2]))
            await line.send(answer(json.dumps(answers[len(bodies) - 1])))

    async with open_peer(serve) as peer, ms.open_engine([ms.VLLMGenerate(base_url=peer.origin)]) as engine:
        response = await engine.request(ms.Request("m", prompt_token_ids=[1], logprobs=0, continue_aborted=True))
        with pytest.raises(ms.InvalidRequestError, match="one choice"):
            engine.start_request(ms.Request("m", prompt_token_ids=[1], continue_aborted=True, extra_body={"n": 2}))
        limit = {"sampling_params": {"max_tokens": 9}}
        with pytest.raises(ms.InvalidRequestError, match="max_output_tokens, which counts all parts"):
            engine.start_request(ms.Request("m", prompt_token_ids=[1], continue_aborted=True, extra_body=limit))
    assert [body["token_ids"] for body in bodies] == [[1], [1, 5]]
    assert response.tokens == ms.Tokens(
        array("q", [5, 6, 2]), array("d", [-5.0, -6.0, -2.0]), array("q", [1]), (WeightSpan("v1", 0, 3),), None, 2
    )


# --- pauses ---


CONTROLS: dict[str, tuple[type[ms.Provider], list[tuple[str, str, bytes]]]] = {
    "vllm": (ms.VLLMGenerate, [
        ("abort", "/pause?mode=abort", b"{}"), ("wait", "/pause?mode=wait", b"{}"), ("keep", "/pause?mode=keep", b"{}"),
        ("", "/resume", b"{}"),
    ]),
    "sglang": (ms.SGLangGenerate, [
        ("abort", "/pause_generation", b'{"mode":"abort"}'), ("keep", "/pause_generation", b'{"mode":"in_place"}'),
        ("", "/continue_generation", b"{}"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTROLS)
async def test_a_server_is_paused_and_goes_on(name: str) -> None:
    kind, rows = CONTROLS[name]
    seen: list[tuple[str, bytes]] = []

    async def serve(line: Line) -> None:
        while request := await line.request():
            head, _, body = request.partition(b"\r\n\r\n")
            seen.append((head.split(b" ")[1].decode(), body))
            await line.send(answer('{"status":"ok"}'))

    async with open_peer(serve) as peer, ms.open_engine([kind(base_url=peer.origin, name="own"), peer.chat]) as engine:
        for mode, _, _ in rows:
            await (engine.pause("own", mode) if mode else engine.resume("own"))  # type: ignore[arg-type]
        with pytest.raises(ms.InvalidRequestError, match="VLLMGenerate"):
            await engine.pause("peer")
        with pytest.raises(ms.InvalidRequestError, match="no provider is named"):
            await engine.pause("nobody")
        with pytest.raises(ms.InvalidRequestError, match="mode"):
            await engine.pause("own", "never")  # type: ignore[arg-type]
    assert seen == [(path, body) for _, path, body in rows]


async def test_a_server_that_refuses_a_pause_is_an_error() -> None:
    serve = replies(answer('{"error":{"message":"not in this mode"}}', status="404 Not Found"))
    async with open_peer(serve) as peer, ms.open_engine([ms.VLLMGenerate(base_url=peer.origin)]) as engine:
        with pytest.raises(ms.ProviderError, match="not in this mode"):
            await engine.pause("vllm-generate")


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found"])
async def test_the_head_of_an_answer_says_whether_a_server_pauses(status: str) -> None:
    serve = reply_once(answer('{"status":"ok"}', status=status)[:-3])
    expected = nullcontext() if status == "200 OK" else pytest.raises(ms.ProviderError)
    async with open_peer(serve) as peer, ms.open_engine([ms.VLLMGenerate(base_url=peer.origin)]) as engine:
        with expected:
            await engine.pause("vllm-generate")


@pytest.mark.parametrize("paused", [True, False])
async def test_the_silence_of_a_paused_server_is_no_timeout(paused: bool, autojump_clock: MockClock) -> None:
    gone_on = trio.Event()

    async def serve(line: Line) -> None:
        while request := await line.request():
            path = request.split(b" ")[1]
            if path != b"/inference/v1/generate":
                await line.send(answer("{}"))
                continue
            await line.send(STREAM_HEAD)
            await line.send(chunked(sse([part([5], prompt_token_ids=[1])]), end=False))
            await gone_on.wait()
            await line.send(chunked(sse([part([2], "stop")]) + b"data: [DONE]\n\n"))

    async with open_peer(serve) as peer:
        timeouts = ms.Timeouts(idle=30, first_byte=30)
        providers = [ms.VLLMGenerate(base_url=peer.origin)]
        async with ms.open_engine(providers, timeouts=timeouts, retry=NO_RETRY) as engine:
            call = engine.start_stream(ms.Request("m", prompt_token_ids=[1]))
            await trio.sleep(1)
            if paused:
                await engine.pause("vllm-generate", "keep")
            await trio.sleep(300)
            if paused:
                await engine.resume("vllm-generate")
            await trio.sleep(20)
            gone_on.set()
            completion = await call.wait()
    assert completion.success is paused
    if not paused:
        assert completion.error_category is ms.ErrorCategory.TIMEOUT


@pytest.mark.parametrize("paused", [True, False])
async def test_traffic_control_learns_nothing_from_a_pause(paused: bool, autojump_clock: MockClock) -> None:
    """The first call shows how fast the server is; the other eight have their first tokens after 300 s."""
    gone_on = trio.Event()

    async def serve(line: Line) -> None:
        while request := await line.request():
            if request.split(b" ")[1] != b"/inference/v1/generate":
                await line.send(answer("{}"))
                continue
            await line.send(STREAM_HEAD)
            if b'"token_ids":[2]' in request:
                await gone_on.wait()
            await line.send(chunked(sse([part([5], "stop", prompt_token_ids=[1])]) + b"data: [DONE]\n\n"))

    async with open_peer(serve) as peer:
        providers = [ms.VLLMGenerate(base_url=peer.origin)]
        timeouts = ms.Timeouts(idle=600, first_byte=600)
        async with ms.open_engine(providers, timeouts=timeouts, traffic=ms.Traffic()) as engine:
            assert (await engine.start_stream(ms.Request("m", prompt_token_ids=[1])).wait()).success
            calls = [engine.start_stream(ms.Request("m", prompt_token_ids=[2])) for _ in range(8)]
            await trio.sleep(1)
            if paused:
                await engine.pause("vllm-generate", "keep")
            await trio.sleep(300)
            if paused:
                await engine.resume("vllm-generate")
            gone_on.set()
            assert all([(await call.wait()).success for call in calls])
            (limiter,) = engine.statistics().traffic.limiters.values()
    assert limiter.concurrent is not None
    assert (limiter.concurrent >= 8) is paused


# --- turns ---


def reply(prompt: Sequence[int], ids: Sequence[int]) -> ms.Response:
    return ms.Response(tokens=ms.Tokens(array("q", ids), array("d", [-1.0] * len(ids)), array("q", prompt)))


def test_turns_only_grow() -> None:
    turns = ms.Turns([1, 2])
    request = turns.request("m", return_tokens=True)
    assert (request.prompt_token_ids, request.return_tokens) == (array("q", [1, 2]), True)
    turns.add(reply([1, 2], [5, 6]))
    turns.append([3])
    assert request.prompt_token_ids == array("q", [1, 2])
    turns.extend_to([1, 2, 5, 6, 3, 4])
    turns.add(reply([1, 2, 5, 6, 3, 4], [7]))
    assert [*turns.ids] == [1, 2, 5, 6, 3, 4, 7]
    assert ([*turns.sampled], len(turns)) == ([0, 0, 1, 1, 0, 0, 1], 7)
    assert [value for value in turns.logprobs if value == value] == [-1.0, -1.0, -1.0]
    for prompt, shared in (([1, 2, 5, 9, 3, 4, 7, 8], 3), ([1, 2], 2), ([9], 0)):
        with pytest.raises(ms.InvalidRequestError, match=rf"they share {shared}\."):
            turns.extend_to(prompt)
        with pytest.raises(ms.InvalidRequestError, match="share"):
            turns.add(reply(prompt, [8]))
    with pytest.raises(ms.InvalidRequestError, match=r"^response: must be a Response, not None"):
        turns.add(None)  # type: ignore[arg-type]
    for response in (ms.Response(), ms.Response(tokens=ms.Tokens())):
        with pytest.raises(ms.InvalidRequestError, match="has no ids"):
            turns.add(response)
    assert len(turns) == 7


START, END_OF_MESSAGE = 1, 2


def written(message: dict[str, Any]) -> list[int]:
    """Return the ids that the template of these tests writes for a message."""
    calls = "".join(f"<{call['function']['arguments']}>" for call in message.get("tool_calls", ()))
    return [START, *message["role"].encode(), *f"{message['content'] or ''}{calls}".encode(), END_OF_MESSAGE, 10]


async def rendered(turns: ms.Turns, messages: str | list[ms.Message], error: str = "", **answers: Any) -> list[str]:
    """Render messages at a server with that template. Returns the targets of the requests.

    error: the error that is expected.
    """
    targets: list[str] = []

    async def serve(line: Line) -> None:
        while request := await line.request():
            targets.append(request.split(b" ")[1].decode())
            body = json.loads(request.partition(b"\r\n\r\n")[2])
            ids = [*(99 for _ in body.get("tools", ())), *chain(*map(written, body["messages"])), START, 97]
            await line.send(answer(json.dumps({"count": len(ids), "tokens": ids, **answers})))

    async with open_peer(serve) as peer, ms.open_engine([chat_template(base_url=peer.origin)]) as engine:
        tool = ms.Tool("look", "Look.", {"type": "object", "properties": {}})
        expected = pytest.raises((ms.ProviderError, ms.InvalidRequestError), match=error) if error else nullcontext()
        with expected:
            await turns.render(engine.request, "chat-template/m", messages, tools=[tool])
    return targets


USER = ms.Message.user("So?")
RESULTS = [ms.Message.tool_result(id, "wet") for id in ("c1", "c2")]


@pytest.mark.parametrize(("sampled", "closing", "news"), [
    ([7, 8, END_OF_MESSAGE], [], [USER]),
    ([7, 8], [END_OF_MESSAGE], [USER]),
    ([7, ord(">"), END_OF_MESSAGE], [], RESULTS),
    ([7, ord(">"), END_OF_MESSAGE], [], [*RESULTS, USER]),
    ([7, ord(">")], [END_OF_MESSAGE], RESULTS),
], ids=["ended", "cut", "calls", "calls and a text", "calls without an end"])  # fmt: skip
async def test_a_template_writes_only_the_new(sampled: list[int], closing: list[int], news: list[ms.Message]) -> None:
    turns = ms.Turns()
    assert await rendered(turns, "Hi") == ["/tokenize"]
    first = [99, *written({"role": "user", "content": "Hi"}), START, 97]
    assert [*turns.ids] == first
    turns.add(reply(first, sampled))
    assert await rendered(turns, news) == ["/tokenize"] * 2
    texts = [{"role": "user", "content": "So?"} if one is USER else {"role": "tool", "content": "wet"} for one in news]
    behind = [*closing, 10, *chain(*map(written, texts)), START, 97]
    assert [*turns.ids] == [*first, *sampled, *behind]
    assert [*turns.sampled] == [*[0] * len(first), *[1] * len(sampled), *[0] * len(behind)]


@pytest.mark.parametrize("answers", [{"tokens": None}, {"tokens": [1, "a"]}, {"tokens": [2**64]}, {"tokens": []}])
async def test_a_template_without_ids_is_an_error(answers: dict[str, Any]) -> None:
    turns = ms.Turns()
    await rendered(turns, "Hi", "malformed answer", **answers)
    assert not len(turns)


@pytest.mark.parametrize(
    "ids", [None, 3, "ab", b"12345678", {1: 2}, [None], ["1"], [1.5], [2**63], [-1], [True], array("d", [1.0])]
)
def test_ids_that_are_none_are_refused(ids: Any) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"^ids: must be ids of tokens"):
        ms.Turns(ids)
    turns = ms.Turns(iter([1, 2]))
    with pytest.raises(ms.InvalidRequestError, match=r"^prompt_ids: must be ids of tokens"):
        turns.extend_to(ids)
    assert [*turns.ids] == [1, 2]


@pytest.mark.parametrize("option", ["base_url", "name"])
def test_a_template_s_options_are_texts(option: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=f"^{option}: must be text"):
        chat_template(**{option: None})  # type: ignore[arg-type]


@pytest.mark.parametrize(("news", "answers"), [
    ([USER], {"tokens": [5, 6]}), (RESULTS, {"tokens": [5, 6]}), (RESULTS, {}),
], ids=["a text", "results", "an answer that has no end"])  # fmt: skip
async def test_a_template_that_writes_before_is_refused(news: list[ms.Message], answers: dict[str, Any]) -> None:
    turns = ms.Turns([1])
    turns.add(reply([1], [7]))
    await rendered(turns, news, "template does not write them behind", **answers)
    assert [*turns.ids] == [1, 7]


async def test_the_ids_of_a_prompt_come_from_a_template_and_whole() -> None:
    async with ms.open_engine([chat_template(), ms.OpenAIChat("key")]) as engine:
        with pytest.raises(ms.InvalidRequestError, match=r"engine\.request"):
            engine.start_stream(ms.Request("chat-template/m", "Hi"))

    async def ask(request: ms.Request) -> ms.Response:
        return ms.Response()

    with pytest.raises(ms.InvalidRequestError, match=r"is no chat_template"):
        await ms.Turns().render(ask, "m", "Hi")
