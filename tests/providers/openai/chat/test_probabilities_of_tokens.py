"""Log probabilities: how many a stream may have, and the form of Together's streams, one number per chunk
(`Choice.logprobs: float`)."""

import json

import manystream as ms
from manystream.providers.json.json_values import JSON, MAX_VALUES, JSONObject
from tests.providers.openai.chat.wire import Outcome, decode, run


def stream(*choices: JSONObject) -> Outcome:
    chunks: list[JSONObject] = [{"id": "c", "model": "m", "choices": [{"index": 0, **choice}]} for choice in choices]
    return run([*(("", json.dumps(chunk).encode()) for chunk in chunks), ("", b"[DONE]")])


def test_a_number_per_chunk_becomes_a_list() -> None:
    numbers: list[JSON] = [-0.25, 0, -1.5, -2.75, 0.0]
    choices: list[JSONObject] = [
        {"delta": {"content": text}, "logprobs": number, "finish_reason": None}
        for text, number in zip("abcde", numbers, strict=True)
    ]
    response = stream(*choices, {"delta": {}, "logprobs": None, "finish_reason": "stop"}).response
    assert response.text == "abcde"
    assert response.provider_data["logprobs"] == {"token_logprobs": numbers}


def test_top_log_probabilities_of_all_chunks_are_kept() -> None:
    choices: list[JSONObject] = [
        {"delta": {"content": text}, "logprobs": -0.5, "top_logprobs": {text: -0.5}, "finish_reason": None}
        for text in "abc"
    ]
    response = stream(*choices, {"delta": {}, "finish_reason": "eos"}).response
    assert response.provider_data["logprobs"] == {
        "token_logprobs": [-0.5, -0.5, -0.5],
        "top_logprobs": [{"a": -0.5}, {"b": -0.5}, {"c": -0.5}],
    }


def test_an_unstreamed_answer_has_the_lists_as_received() -> None:
    logprobs: JSONObject = {"tokens": ["a"], "token_ids": [7], "token_logprobs": [-0.5]}
    choice: JSONObject = {"index": 0, "message": {"content": "a"}, "logprobs": logprobs, "finish_reason": "eos"}
    assert decode({"choices": [choice]}).provider_data["logprobs"] == logprobs


def test_a_long_stream_may_have_more_values_than_one_body() -> None:
    """20,000 tokens, each with 20 alternatives and their bytes, have more than the most values of one JSON text."""
    entry: JSONObject = {"token": "a", "logprob": -0.5, "bytes": [97] * 12_000, "top_logprobs": []}
    choice: JSONObject = {"delta": {"content": "a"}, "logprobs": {"content": [entry]}, "finish_reason": None}
    count = MAX_VALUES // 12_000 + 2
    outcome = stream(*[choice] * count, {"delta": {}, "finish_reason": "stop"})
    assert outcome.done.finish_reason is ms.FinishReason.STOP
    logprobs = outcome.response.provider_data["logprobs"]
    assert isinstance(logprobs, dict)
    assert logprobs["content"] == [entry] * count
    assert outcome.response.tokens is not None
    assert len(outcome.response.tokens.logprobs or ()) == count
