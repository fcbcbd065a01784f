"""The limit on a request's output: the one that is sent."""

from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import dialect_of
from manystream.providers.limits.output_limits import largest_output, raised_output

PROVIDERS_OUTPUT: dict[str, ms.Provider] = {
    "chat": ms.OpenAIChat("k"), "responses": ms.OpenAIResponses("k"), "anthropic": ms.Anthropic("k"),
    "gemini": ms.Gemini("k"),
}  # fmt: skip


def sent_limit(name: str, model: str = "model", **options: object) -> int | None:
    provider = PROVIDERS_OUTPUT[name]
    request = ms.Request(model, [ms.Message.user("hello")], **options)  # type: ignore[arg-type]
    return dialect_of(provider.profile).encode(request, model, provider, stream=False).max_output_tokens


@pytest.mark.parametrize("name", PROVIDERS_OUTPUT)
def test_the_limit_of_a_request_is_the_one_that_is_sent(name: str) -> None:
    assert sent_limit(name, max_output_tokens=77) == 77


@pytest.mark.parametrize("name", ["chat", "responses", "gemini"])
def test_without_a_limit_there_is_none(name: str) -> None:
    assert sent_limit(name) is None


def test_anthropic_always_sends_one_and_thinking_raises_it() -> None:
    assert sent_limit("anthropic", "claude-sonnet-4-5") == 4096
    thinking = sent_limit(
        "anthropic", "claude-sonnet-4-5", max_output_tokens=1000, thinking=ms.ThinkingConfig(budget_tokens=2000)
    )
    assert thinking == 3000


EXTRA: dict[str, tuple[str, dict[str, object], int | None]] = {
    "older member": ("chat", {"max_tokens": 40}, 40),
    "one token": ("chat", {"max_completion_tokens": 1}, 1),
    "no token": ("chat", {"max_completion_tokens": 0}, None),
    "several choices": ("chat", {"max_completion_tokens": 40, "n": 3}, 120),
    "a float": ("chat", {"max_completion_tokens": 100000.0}, 100_000),
    "a text": ("chat", {"max_completion_tokens": "100000", "n": "2"}, 200_000),
    "a power": ("chat", {"max_completion_tokens": "1e5"}, 100_000),
    "the larger of two": ("chat", {"max_tokens": 900, "max_completion_tokens": 10}, 900),
    "no whole number": ("chat", {"max_tokens": 10.5}, None),
    "no number": ("chat", {"max_tokens": "nan"}, None),
    "no end": ("chat", {"max_tokens": -1}, None),
    "junk": ("chat", {"max_tokens": "many"}, None),
    "true is no number": ("chat", {"max_tokens": True}, None),
    "responses": ("responses", {"max_output_tokens": 9}, 9),
    "anthropic": ("anthropic", {"max_tokens": 12}, 12),
    "gemini": ("gemini", {"generationConfig": {"maxOutputTokens": 5, "candidateCount": 2}}, 10),
    "gemini's junk": ("gemini", {"generationConfig": [1]}, None),
}


@pytest.mark.parametrize(("name", "extra", "limit"), EXTRA.values(), ids=EXTRA)
def test_extra_body_counts(name: str, extra: dict[str, object], limit: int | None) -> None:
    assert sent_limit(name, extra_body=extra) == limit


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({}, (0, 1)),
        ({"max_tokens": None, "n": None}, (0, 1)),
        ({"max_tokens": 5, "max_new_tokens": 900.0, "n": 2, "best_of": "8"}, (900, 8)),
        ({"generation_config": {"max_output_tokens": "70", "candidate_count": 3}}, (70, 3)),
        ({"options": {"num_predict": 12}, "metadata": {"max_tokens": "many"}}, (12, 1)),
        ({"options": 3, "max_tokens_per_image": "x"}, (0, 1)),
    ],
)
def test_every_member_for_the_output_counts(body: dict[str, Any], found: tuple[int, int]) -> None:
    assert raised_output(body) == found


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"n_predict": -1}, "n_predict"),
        ({"max_tokens": 0.5}, "max_tokens"),
        ({"max_tokens": 1e400}, "max_tokens"),
        ({"n": True}, "n"),
        ({"max_tokens": [5]}, "max_tokens"),
        ({"generationConfig": {"maxOutputTokens": "x"}}, "generationConfig.maxOutputTokens"),
    ],
)
def test_what_is_no_count_is_named(body: dict[str, Any], member: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"a budget limits the output") as raised:
        raised_output(body)
    assert raised.value.field == member


def test_some_models_have_a_published_limit() -> None:
    assert largest_output("openai-chat", "gpt-4o-mini") == 16_384
    assert largest_output("google", "gemini-2.5-flash") == 65_536
    assert largest_output("openai-chat", "mine") is None
    assert largest_output("vllm", "gpt-5") is None
