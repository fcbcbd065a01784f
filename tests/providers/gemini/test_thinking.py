"""Thinking options, model by model."""

from __future__ import annotations

from typing import Any

import pytest
from google.genai import types as google

import manystream as ms
from manystream.providers.gemini.thinking import BUDGETS, LEVELS, needs_signatures, thinking_config, version_of

NONE, LOW, MED, HIGH = ms.ThinkingLevel.NONE, ms.ThinkingLevel.LOW, ms.ThinkingLevel.MED, ms.ThinkingLevel.HIGH


def config(model: str, level: ms.ThinkingLevel | None = None, **options: Any) -> dict[str, Any]:
    return thinking_config(model, ms.ThinkingConfig(level=level, **options), [])


@pytest.mark.parametrize(
    ("model", "level", "budget"),
    [
        ("gemini-2.5-pro", LOW, 11008),
        ("gemini-2.5-pro", MED, 21888),
        ("gemini-2.5-pro", HIGH, 32768),
        ("gemini-2.5-flash", NONE, 0),
        ("gemini-2.5-flash", LOW, 8192),
        ("gemini-2.5-flash", MED, 16384),
        ("gemini-2.5-flash", HIGH, 24576),
        ("gemini-2.5-flash-lite", LOW, 8533),
        ("gemini-2.5-flash-lite", MED, 16554),
        ("gemini-2.5-flash-lite", HIGH, 24576),
        ("gemini-2.5-flash-preview-09-2025", MED, 16384),
        ("gemini-2.5-flash-lite-preview-09-2025", LOW, 8533),
    ],
)
def test_a_level_is_a_part_of_the_models_budget(model: str, level: ms.ThinkingLevel, budget: int) -> None:
    assert config(model, level)["thinkingBudget"] == budget


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-2.5-flash-lite"])
def test_level_none_is_refused_if_thinking_cannot_be_disabled(model: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=f"thinking: {model} cannot disable thinking"):
        config(model, NONE)


WORDS = {
    "gemini-3-pro": ["LOW", "LOW", "HIGH", "HIGH"],
    "gemini-3-flash": ["MINIMAL", "LOW", "MEDIUM", "HIGH"],
    "gemini-3.1-flash": ["MINIMAL", "LOW", "MEDIUM", "HIGH"],
    "gemini-3.1-flash-image": ["MINIMAL", "MINIMAL", "HIGH", "HIGH"],
    "gemini-3.5-flash": ["MINIMAL", "LOW", "MEDIUM", "HIGH"],
    "gemini-3.6-flash": ["MINIMAL", "LOW", "MEDIUM", "HIGH"],
    "gemini-3.7-flash-lite": ["MINIMAL", "LOW", "MEDIUM", "HIGH"],
    "gemini-3.8-flash-lite": ["MINIMAL", "LOW", "MEDIUM", "HIGH"],
    "gemini-4-hydrogen": ["LOW", "LOW", "MEDIUM", "XHIGH"],
    "gemini-4-neon": ["LOW", "LOW", "MEDIUM", "XHIGH"],
    "gemini-flash-lite-latest": ["MINIMAL", "LOW", "MEDIUM", "HIGH"],
    "gemma-4": ["MINIMAL", "MINIMAL", "HIGH", "HIGH"],
}
UNKNOWN_WORDS = ["LOW", "LOW", "MEDIUM", "HIGH"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        *WORDS.items(),
        ("gemini-3-pro-preview", WORDS["gemini-3-pro"]),
        ("gemini-3.1-pro-preview", UNKNOWN_WORDS),
        ("gemini-3.1-flash-lite", WORDS["gemini-3.1-flash"]),
        ("gemini-3.7-flash", UNKNOWN_WORDS),
        ("gemini-3.8-flash", UNKNOWN_WORDS),
        ("gemini-flash-latest", UNKNOWN_WORDS),
        ("gemini-4-argon", UNKNOWN_WORDS),
        ("gemini-4-carbon", UNKNOWN_WORDS),
        ("gemma-4-31b-it", WORDS["gemma-4"]),
        ("my-tuned-model", UNKNOWN_WORDS),
    ],
)
def test_from_gemini_3_on_a_level_is_a_word(model: str, words: list[str]) -> None:
    assert [config(model, level)["thinkingLevel"] for level in ms.ThinkingLevel] == words


def test_every_row_is_covered_above() -> None:
    assert WORDS.keys() == LEVELS.keys()
    assert {"gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"} == BUDGETS.keys()
    used = {word for words in LEVELS.values() for word in words}
    assert used == {level.value for level in google.ThinkingLevel} - {"THINKING_LEVEL_UNSPECIFIED"}


def test_level_none_is_the_lowest_level_with_a_warning() -> None:
    warnings: list[str] = []
    sent = thinking_config("gemini-3-flash-preview", ms.ThinkingConfig(level=NONE), warnings)
    assert sent == {"thinkingLevel": "MINIMAL"}
    assert warnings == ["thinking: gemini-3-flash-preview cannot disable thinking; MINIMAL, its lowest level, was sent"]
    assert thinking_config("gemini-3-flash-preview", ms.ThinkingConfig(level=LOW), quiet := []) != {}
    assert quiet == []


@pytest.mark.parametrize("model", ["gemini-2.0-flash", "gemini-1.5-pro", "gemini-2.5-flash-image", "gemma-3-27b-it"])
def test_thinking_for_a_model_without_it_causes_a_warning(model: str) -> None:
    warnings: list[str] = []
    assert thinking_config(model, ms.ThinkingConfig(level=HIGH), warnings) == {}
    assert warnings == [f"thinking: left out, {model} does not think"]
    assert thinking_config(model, ms.ThinkingConfig(level=NONE), quiet := []) == {}
    assert quiet == []


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"level": MED}, True),
        ({"level": MED, "include_summary": False}, False),
        ({"level": NONE}, None),
        ({"level": NONE, "include_summary": True}, True),
        ({"budget_tokens": 100}, True),
        ({"budget_tokens": 0}, None),
        ({"include_summary": True}, True),
        ({"include_summary": False}, False),
    ],
)
def test_thoughts_are_requested_by_default(options: dict[str, Any], sent: bool | None) -> None:
    assert config("gemini-2.5-flash", **options).get("includeThoughts") is sent


def test_an_explicit_budget_replaces_the_levels() -> None:
    assert config("gemini-2.5-pro", LOW, budget_tokens=500)["thinkingBudget"] == 500
    assert config("gemini-2.5-pro", budget_tokens=-1)["thinkingBudget"] == -1
    assert config("gemini-3-pro-preview", budget_tokens=500)["thinkingBudget"] == 500


@pytest.mark.parametrize(
    ("model", "tokens"), [("gemini-2.5-pro", 0), ("gemini-2.5-pro", 40_000), ("gemini-2.5-flash", -2)]
)
def test_a_budget_outside_the_range_is_refused(model: str, tokens: int) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"thinking.budget_tokens: .* tokens"):
        config(model, budget_tokens=tokens)


@pytest.mark.parametrize(
    ("model", "least", "most"),
    [("gemini-2.5-pro", 128, 32768), ("gemini-2.5-flash", 0, 24576), ("gemini-2.5-flash-lite", 512, 24576)],
)
def test_a_budget_may_be_at_the_ends_of_the_range(model: str, least: int, most: int) -> None:
    for tokens in (least, most, -1):
        assert config(model, budget_tokens=tokens)["thinkingBudget"] == tokens
    for tokens in (least - 1, most + 1, -2):
        if tokens != -1:
            with pytest.raises(ms.InvalidRequestError) as raised:
                config(model, budget_tokens=tokens)
            assert str(raised.value) == (
                f"thinking.budget_tokens: {model} takes {least} to {most} tokens, or -1 to let it decide, not {tokens}"
            )


@pytest.mark.parametrize("model", ["gemini-3.1-pro", "gemini-3.4-x", "gemini-2.9"])
def test_the_budget_of_another_model_is_sent_as_given(model: str) -> None:
    for tokens in (-5, 0, 999_999):
        assert config(model, budget_tokens=tokens)["thinkingBudget"] == tokens


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("gemini-2.5-pro", {"level": NONE},
            "thinking: gemini-2.5-pro cannot disable thinking; LOW is its lowest level"),
        ("gemini-3.5-flash", {"budget_tokens": 1},
            "thinking.budget_tokens: gemini-3.5-flash takes a level, not a budget"),
        ("gemini-2.5-pro", {"effort": "high"},
            "thinking.effort: gemini-2.5-pro takes a level or budget_tokens, not an effort"),
        ("gemini-3-pro", {"effort": "high", "budget_tokens": 1},
            "thinking: Gemini takes budget_tokens or effort, not both"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_the_model_takes(model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        config(model, **options)
    assert str(raised.value) == message


@pytest.mark.parametrize("model", ["gemini-3.5-flash", "gemini-3.8-flash", "gemini-4-argon", "gemini-flash-latest"])
def test_newer_models_refuse_a_budget(model: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"thinking.budget_tokens: .* takes a level"):
        config(model, budget_tokens=500)


def test_an_effort_is_the_providers_own_word() -> None:
    assert config("gemini-3.8-flash", LOW, effort="xhigh") == {"thinkingLevel": "XHIGH", "includeThoughts": True}
    with pytest.raises(ms.InvalidRequestError, match=r"thinking\.effort"):
        config("gemini-2.5-pro", effort="high")
    with pytest.raises(ms.InvalidRequestError, match=r"not both"):
        config("gemini-3-pro", effort="high", budget_tokens=1)


def test_the_official_client_takes_every_config() -> None:
    for model in (*LEVELS, *BUDGETS, "gemini-3.8-flash"):
        for level in (LOW, MED, HIGH):
            google.ThinkingConfig.model_validate(config(model, level))


@pytest.mark.parametrize(
    ("model", "version", "signs"),
    [
        ("gemini-2.5-pro", (2, 5), False),
        ("gemini-3-pro-preview", (3, 0), True),
        ("gemini-3.8-flash", (3, 8), True),
        ("gemini-1.5-flash-8b", (1, 5), False),
        ("gemini-flash-latest", (1000, 0), True),
        ("gemini-2." + "9" * 5000, (2, 999_999_999), False),
    ],
)
def test_the_version_is_read_from_the_name(model: str, version: tuple[int, int], signs: bool) -> None:
    assert version_of(model) == version
    assert needs_signatures(model) is signs


def test_each_option_becomes_the_whole_config() -> None:
    assert config("gemini-2.5-flash") == {"includeThoughts": True}
    assert config("gemini-3-flash") == {"includeThoughts": True}
    assert config("gemini-3-flash", LOW, include_summary=False) == {"thinkingLevel": "LOW", "includeThoughts": False}
    assert config("gemini-2.5-flash", NONE) == {"thinkingBudget": 0}
    assert config("gemini-2.5-flash", NONE, budget_tokens=9) == {"thinkingBudget": 9}
    assert config("gemini-2.0-flash", LOW, budget_tokens=9, include_summary=True) == {}
