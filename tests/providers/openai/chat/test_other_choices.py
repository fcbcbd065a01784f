"""The other choices of a chat answer: each is a response with everything that its message has."""

from __future__ import annotations

import json

import pytest

from manystream.providers.json.json_values import JSONObject
from manystream.providers.model.events import FinishReason
from manystream.providers.model.response import Response
from tests.providers.openai.chat.wire import decode, run

FIRST: JSONObject = {"role": "assistant", "content": "a"}
PICTURE: JSONObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

MESSAGES: dict[str, JSONObject] = {
    "a call of a custom tool": {"content": None,
        "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}]},
    "a call that Google signed": {"content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "S1"}}}]},
    "sound": {"content": None, "audio": {"id": "audio_1", "data": "AAAA", "expires_at": 99, "transcript": "Hi"}},
    "a picture": {"content": "b", "images": [PICTURE]},
    "a picture at an address": {"content": None,
        "images": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
    "encrypted reasoning": {"content": "b", "reasoning_details": [{"type": "reasoning.encrypted", "data": "E1",
        "index": 0}]},
    "signed reasoning": {"content": "b", "reasoning_content": "hm",
        "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "S1"}]},
    "parts of an unknown type": {"content": [{"type": "text", "text": "b"}, {"type": "chart", "points": [1, 2]},
        {"type": "text", "text": "c"}]},
    "references": {"content": [{"type": "text", "text": "b"}, {"type": "reference", "reference_ids": [1]}]},
}  # fmt: skip
"""Members of the second choice's message."""


def streamed(message: JSONObject) -> Response:
    calls = message.get("tool_calls")
    delta = dict(message)
    if type(calls) is list:
        delta["tool_calls"] = [{**call, "index": n} for n, call in enumerate(calls) if type(call) is dict]
    chunks: list[JSONObject] = [
        {"choices": [{"index": 0, "delta": FIRST}, {"index": 1, "delta": delta}]},
        {"choices": [{"index": n, "delta": {}, "finish_reason": "stop"} for n in (0, 1)]},
    ]
    return run([*(("", json.dumps(chunk).encode()) for chunk in chunks), ("", b"[DONE]")]).response


def whole(message: JSONObject) -> Response:
    choices: list[JSONObject] = [
        {"index": n, "message": given, "finish_reason": "stop"} for n, given in enumerate((FIRST, message))
    ]
    return decode({"choices": [*choices]})


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_second_choice_has_what_an_only_one_would_have(message: JSONObject) -> None:
    alone = decode({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    for response in (whole(message), streamed(message)):
        (other,) = response.others
        assert (other.content, other.finish_reason, other.provider_data) == (
            alone.content, alone.finish_reason, alone.provider_data,
        )  # fmt: skip


def chunks(*choices: JSONObject) -> list[tuple[str, bytes]]:
    """Return a stream with one choice per chunk."""
    return [*(("", json.dumps({"choices": [choice]}).encode()) for choice in choices), ("", b"[DONE]")]


def piece(index: int, text: str) -> JSONObject:
    return {"index": index, "delta": {"content": text}, "finish_reason": None}


def end(index: int, reason: str = "stop") -> JSONObject:
    return {"index": index, "delta": {}, "finish_reason": reason}


ORDERS: dict[str, tuple[list[JSONObject], str, FinishReason, list[str]]] = {
    "the second first": ([piece(1, "b"), piece(0, "a"), piece(1, "B"), piece(0, "A"), end(1), end(0, "length")], "aA",
        FinishReason.LENGTH, ["bB"]),
    "the second whole before the first": ([piece(1, "b"), end(1), piece(0, "a"), end(0)], "a", FinishReason.STOP,
        ["b"]),
    "three, backwards": ([piece(2, "c"), piece(1, "b"), piece(0, "a"), end(2), end(1), end(0)], "a", FinishReason.STOP,
        ["b", "c"]),
    "the first has only a finish": ([piece(1, "b"), end(1), end(0, "content_filter")], "", FinishReason.CONTENT_FILTER,
        ["b"]),
    "the first never comes": ([piece(1, "b"), end(1)], "", FinishReason.UNKNOWN, ["b"]),
}  # fmt: skip


@pytest.mark.parametrize("asked", [0, 2])
@pytest.mark.parametrize("name", [name for name in ORDERS if "never" not in name])
def test_the_answer_is_the_choice_with_index_0(name: str, asked: int) -> None:
    choices, text, reason, others = ORDERS[name]
    outcome = run(chunks(*choices), choices=asked)
    assert (outcome.response.text, outcome.response.finish_reason) == (text, reason)
    assert [choice.text for choice in outcome.response.others] == others


def test_the_choice_0_of_several_that_never_comes_is_empty() -> None:
    choices, text, reason, others = ORDERS["the first never comes"]
    outcome = run(chunks(*choices), choices=2)
    response = outcome.response
    assert (response.text, response.finish_reason, outcome.done.finish_reason) == (text, reason, reason)
    assert [choice.text for choice in response.others] == others
    assert response.warnings == ["the server sent other choices, but no choice 0"]


CALL: JSONObject = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("asked", [0, 1])
def test_an_only_choice_is_the_answer_with_any_index(asked: int) -> None:
    thought: JSONObject = {"index": 3, "delta": {"reasoning": "hm", "tool_calls": [CALL]}, "finish_reason": None}
    ids: JSONObject = {"index": 3, "delta": {}, "token_ids": [1, 2], "finish_reason": "stop"}
    outcome = run(chunks(piece(3, "a"), thought, piece(3, "b"), ids), choices=asked)
    response = outcome.response
    assert (response.text, response.thinking, response.finish_reason) == ("ab", "hm", FinishReason.TOOL_USE)
    assert [(call.id, call.name, call.arguments, call.complete) for call in response.tool_calls] == [
        ("c", "f", "{}", True)
    ]
    assert ([*response.tokens.ids], response.provider_data) == ([1, 2], {})


@pytest.mark.parametrize("indexes", [(1, 0), (0, 0), (None, None), (None, 0), (3, 1)])
def test_a_whole_body_s_answer_is_its_lowest_index_or_first(indexes: tuple[int | None, ...]) -> None:
    given: list[JSONObject] = [
        {"index": index, "message": {"content": text}, "finish_reason": "stop"}
        for index, text in zip(indexes, "ab", strict=True)
    ]
    response = decode({"choices": [*given]})
    texts = ["b", "a"] if indexes in ((1, 0), (3, 1)) else ["a", "b"]
    assert [choice.text for choice in response.choices] == texts
