"""Token ids and log probabilities of every choice."""

from typing import Any

from manystream.providers.model.events import FinishReason
from tests.providers.catalog.test_dialect import chunk_member, decode, read

VLLM = [
    {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [1, 2]},
    chunk_member(0, "Hel", token_ids=[11, 12], stop_reason=None, logprobs={"content": [{"token": "Hel"}]}),
    chunk_member(1, "Sal", token_ids=[21], logprobs={"content": [{"token": "Sal"}]}),
    chunk_member(0, "lo", token_ids=[13], logprobs={"content": [{"token": "lo"}]}),
    chunk_member(1, "ut", token_ids=[22, 23], logprobs={"content": [{"token": "ut"}]}),
    chunk_member(0, "", token_ids=[14], finish="stop", stop_reason=7),
    chunk_member(1, "", token_ids=[24], finish="stop", stop_reason="\n"),
]


def test_every_choice_keeps_its_token_ids_and_logprobs() -> None:
    response = read("openai-chat", *VLLM)
    data, tokens = response.provider_data, response.tokens
    assert tokens.prompt_ids is not None
    assert ([*tokens.ids], [*tokens.prompt_ids]) == ([11, 12, 13, 14], [1, 2])
    assert data["stop_reason"] == 7
    assert data["logprobs"] == {"content": [{"token": "Hel"}, {"token": "lo"}]}
    (choice,) = response.others
    assert (choice.text, choice.finish_reason, [*choice.tokens.ids]) == ("Salut", FinishReason.STOP, [21, 22, 23, 24])
    assert [each.text for each in response.choices] == ["Hello", "Salut"]
    assert choice.provider_data == {
        "stop_reason": "\n", "logprobs": {"content": [{"token": "Sal"}, {"token": "ut"}]},
    }  # fmt: skip


def test_the_same_answer_unstreamed_keeps_the_same() -> None:
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
            "token_ids": ids,
            "stop_reason": stop,
            "logprobs": {"content": [{"token": piece} for piece in tokens]},
        }
        for index, text, ids, stop, tokens in (
            (0, "Hello", [11, 12, 13, 14], 7, ("Hel", "lo")),
            (1, "Salut", [21, 22, 23, 24], "\n", ("Sal", "ut")),
        )
    ]
    whole = decode("openai-chat", {"id": "c", "choices": choices, "prompt_token_ids": [1, 2]})
    assert whole == read("openai-chat", *VLLM)


def test_a_list_of_the_whole_chunk_is_replaced() -> None:
    # Perplexity repeats its sources in every chunk.
    first, second = chunk_member(0, "a"), chunk_member(0, "b", finish="stop")
    first["citations"], second["citations"] = ["u1"], ["u1", "u2"]
    assert read("openai-chat", first, second).provider_data["citations"] == ["u1", "u2"]


def test_log_probabilities_that_only_the_deltas_have_are_kept() -> None:
    def delta(text: str) -> Any:
        return {
            "type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text,
            "logprobs": [{"token": text, "logprob": -0.5}],
        }  # fmt: skip

    end = {"type": "response.completed", "response": {"status": "completed"}}
    # Equal events, as for a repeated word: each has its own log probabilities.
    response = read("openai-responses", *map(delta, ["ha", "ha", "ha", "!"]), end)
    assert response.text == "hahaha!"
    tokens = [token["token"] for token in response.provider_data["logprobs"]]  # type: ignore[index,union-attr,call-overload]
    assert tokens == ["ha", "ha", "ha", "!"]
