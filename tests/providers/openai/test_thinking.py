"""Efforts and sampling by model: the tables of the two dialects."""

from __future__ import annotations

import typing

import pytest
from openai.types.shared.all_models import AllModels
from openai.types.shared.reasoning_effort import ReasoningEffort

import manystream as ms
from manystream.providers.openai import thinking
from manystream.providers.openai.thinking import (
    DEFAULT_IS_NONE,
    EFFORTS,
    NO_EFFORT,
    NOT_REASONING,
    Efforts,
    effort_for,
    family_name,
    is_reasoning_model,
    may_reason,
    takes_sampling,
)

LEVELS = (ms.ThinkingLevel.NONE, ms.ThinkingLevel.LOW, ms.ThinkingLevel.MED, ms.ThinkingLevel.HIGH)

WORDS = {word for word in typing.get_args(typing.get_args(ReasoningEffort)[0]) if word}


def efforts(model: str) -> list[str | None]:
    return [effort_for(model, ms.ThinkingConfig(level=level)) for level in LEVELS]


def openai_models() -> set[str]:
    """Return the model names that OpenAI's own client knows."""
    names: set[str] = set()
    pending: list[object] = [AllModels]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, str):
            names.add(annotation)
        pending.extend(typing.get_args(annotation))
    return names


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("o1", "low low medium high"),
        ("o1-pro-2025-03-19", "low low medium high"),
        ("o3-mini", "low low medium high"),
        ("o3", "none low medium high"),
        ("o4-mini-2025-04-16", "none low medium high"),
        ("gpt-5", "minimal low medium high"),
        ("gpt-5-nano-2025-08-07", "minimal low medium high"),
        ("gpt-5-codex", "low low medium high"),
        ("gpt-5-pro", "high high high high"),
        ("gpt-5.1", "none low medium high"),
        ("gpt-5.1-codex-mini", "none low medium high"),
        ("gpt-5.1-codex-max", "none low medium xhigh"),
        ("gpt-5.1-chat-latest", "medium medium medium medium"),
        ("gpt-5.2", "none low medium xhigh"),
        ("gpt-5.2-codex", "none low medium xhigh"),
        ("gpt-5.2-chat-latest", "medium medium medium medium"),
        ("gpt-5.2-pro-2025-12-11", "medium medium high xhigh"),
        ("gpt-5.3-codex", "low low medium xhigh"),
        ("gpt-5.4-mini", "none low medium xhigh"),
        ("gpt-5.5-pro", "medium medium high xhigh"),
        ("gpt-5.6-sol", "none low medium max"),
        ("gpt-6-sol", "none low medium max"),
        ("gpt-6-luna", "none low medium max"),
        ("gpt-6-astra", "low low medium max"),
        ("gpt-6.1-sol", "low low medium max"),
        ("gpt-6.1-terra", "none low medium max"),
        ("gpt-6.2-sol", "low low medium max"),
        ("gpt-6.2-astra-law", "low low medium max"),
        ("gpt-daybreak-blue-latest", "none low medium max"),
        ("gpt-oss-120b", "low low medium high"),
        ("openai/gpt-5.2", "none low medium xhigh"),
        ("openai.gpt-5.5", "none low medium xhigh"),
        ("GPT-5", "minimal low medium high"),
        ("gpt-7-nova", "none low medium high"),
    ],
)
def test_levels_by_model(model: str, words: str) -> None:
    assert efforts(model) == words.split()


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4.1-mini", "gpt-3.5-turbo", "gpt-5-chat-latest", "o1-mini", "o1-preview", "grok-4", "o30"]
)
def test_models_without_an_effort_have_none(model: str) -> None:
    assert efforts(model) == [None] * 4


def test_every_row_matches_its_name_and_longer_names() -> None:
    for family, row in EFFORTS.items():
        assert efforts(family) == list(row)
        assert efforts(f"{family}-2031-01-01") == list(row)
        assert set(row) <= WORDS, "only words of openai's own types"


def test_the_effort_of_a_request_wins_over_the_table() -> None:
    assert effort_for("gpt-5", ms.ThinkingConfig(level=ms.ThinkingLevel.LOW, effort="max")) == "max"
    assert effort_for("anything", ms.ThinkingConfig(effort="high")) == "high"


def test_without_a_level_there_is_nothing_to_say() -> None:
    assert effort_for("gpt-5", ms.ThinkingConfig(budget_tokens=100)) is None


def test_a_row_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(thinking.EFFORTS, "my-model", Efforts("a", "b", "c", "d"))
    assert efforts("my-model-2") == ["a", "b", "c", "d"]
    assert is_reasoning_model("my-model")


@pytest.mark.parametrize(
    "model",
    ["gpt-3.5-turbo", "gpt-4o", "gpt-5-chat-latest", "chatgpt-4o-latest", "gpt-audio-mini", "gpt-realtime-2",
     "davinci-002", "babbage-002"],
)  # fmt: skip
def test_these_have_no_reasoning_to_carry_over(model: str) -> None:
    assert not may_reason(model)
    assert may_reason(f"other-{model}")


def test_every_reasoning_model_of_openais_client_has_an_effort() -> None:
    models = openai_models()
    assert len(models) > 90
    for model in models:
        if is_reasoning_model(model) and not model.startswith(tuple(NO_EFFORT)):
            assert None not in efforts(model), model
        if model.startswith(NOT_REASONING):
            assert not is_reasoning_model(model), model
            assert not may_reason(model), model


@pytest.mark.parametrize(
    ("model", "reasons"),
    [("o1-mini", True), ("o3-pro", True), ("gpt-5.3", True), ("gpt-5.1-chat-latest", True), ("gpt-10", True),
     ("gpt-5-chat-latest", False), ("gpt-4.5-preview", False), ("chatgpt-4o-latest", False), ("llama-5", False)],
)  # fmt: skip
def test_which_models_reason(model: str, reasons: bool) -> None:
    assert is_reasoning_model(model) is reasons


@pytest.mark.parametrize("family", sorted(DEFAULT_IS_NONE))
def test_sampling_follows_the_effort(family: str) -> None:
    assert takes_sampling(family, None)
    assert takes_sampling(f"{family}-2026-01-01", None)
    assert takes_sampling(family, "none")
    assert not takes_sampling(family, "low")
    assert not takes_sampling(f"{family}-pro", None)


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("gpt-5.1-mini", True), ("gpt-5.1-nano-2025-11-13", True), ("gpt-5.1-2025-11-13", True), ("gpt-5.1-x", False),
        ("GPT-5.2 ", True), ("openai.gpt-5.4", True), ("a/b/gpt-5.4", True), ("gpt-5.1-2025-11-13-x", False),
        ("gpt-5-mini", False), ("gpt-9", False), ("gpt-12.5-x", False), ("gpt-50x", True), ("gpt-123", True),
    ],
)  # fmt: skip
def test_models_that_take_sampling(model: str, taken: bool) -> None:
    assert takes_sampling(model, None) is taken
    assert takes_sampling(model, "none")
    assert takes_sampling(model, "low") is not is_reasoning_model(model)


def test_a_family_is_the_name_without_its_reseller() -> None:
    names = {" OpenAI/GPT-5 ": "gpt-5", "openai.o3": "o3", "x.o3": "x.o3", "a/openai.b": "b"}
    assert {name: family_name(name) for name in names} == names


FAMILY_LEVELS = (ms.ThinkingLevel.NONE, ms.ThinkingLevel.LOW, ms.ThinkingLevel.MED, ms.ThinkingLevel.HIGH)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("o3-deep-research-2025-06-26", "medium medium medium medium"),
        ("o4-mini-deep-research", "medium medium medium medium"),
        ("computer-use-preview", "medium medium medium medium"),
        ("codex-mini-latest", "low low medium high"),
        ("gpt-5.3-chat-latest", "medium medium medium medium"),
        ("gpt-5.4-pro", "medium medium high xhigh"),
        ("gpt-5.5", "none low medium xhigh"),
        ("gpt-6", "none low medium max"),
        ("gpt-6.1", "low low medium max"),
    ],
)
def test_every_family_of_openai_has_its_efforts(model: str, words: str) -> None:
    assert [effort_for(model, ms.ThinkingConfig(level=level)) for level in FAMILY_LEVELS] == words.split()


@pytest.mark.parametrize(
    "model", ["gpt-3.5-turbo", "gpt-4o", "gpt-5-chat-latest", "chatgpt-4o-latest", "gpt-audio-mini", "gpt-realtime",
              "davinci-002", "babbage-002"],
)  # fmt: skip
def test_openai_models_without_reasoning_are_recognised(model: str) -> None:
    assert not is_reasoning_model(model)
