"""The tables of thinking options per model, row by row, and how they are overridden."""

import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.providers.anthropic.thinking import (
    LEVEL_EFFORT,
    MODELS,
    NEW_CLAUDE,
    OTHER_MODEL,
    ThinkingModel,
    thinking_model,
    wire_thinking,
)

from .wire import STRICT
from .wire_types import check_body

NONE, LOW, MED, HIGH = ms.ThinkingLevel.NONE, ms.ThinkingLevel.LOW, ms.ThinkingLevel.MED, ms.ThinkingLevel.HIGH
ADAPTIVE = {"type": "adaptive", "display": "summarized"}


def body(model: str, thinking: ms.ThinkingLevel | ms.ThinkingConfig) -> tuple[Any, Any]:
    """Return the `thinking` member and the effort of a request."""
    wire = DIALECT.encode(ms.Request(model, [ms.Message.user("Hi")], thinking=thinking), model, STRICT, stream=False)
    sent = json.loads(wire.body)
    check_body(sent, stream=False)
    return sent.get("thinking"), sent.get("output_config", {}).get("effort")


def test_every_level_is_in_both_tables() -> None:
    assert set(LEVEL_EFFORT) == set(ms.ThinkingLevel)


@pytest.mark.parametrize(
    ("model", "budgets"),
    [
        ("claude-sonnet-4-5", (1024, 22016, 43008, 64000)),
        ("claude-sonnet-4-5-20250929", (1024, 22016, 43008, 64000)),
        ("claude-opus-4-5", (1024, 22016, 43008, 64000)),
        ("claude-opus-4-5-20251101", (1024, 22016, 43008, 64000)),
        ("claude-haiku-4-5", (1024, 11349, 21674, 32000)),
        ("claude-sonnet-4-20250514", (1024, 11349, 21674, 32000)),
        ("claude-opus-4-1-20250805", (1024, 11349, 21674, 32000)),
        ("claude-3-7-sonnet-latest", (1024, 11349, 21674, 32000)),
        ("glm-4.6", (1024, 11349, 21674, 32000)),
    ],
)
def test_levels_of_budget_models_are_thirds_of_their_range(model: str, budgets: tuple[int, ...]) -> None:
    for level, budget in zip((NONE, LOW, MED, HIGH), budgets, strict=True):
        assert body(model, level) == ({"type": "enabled", "budget_tokens": budget}, None)


BUDGET_MODELS = (
    "claude-3", "claude-haiku-4", "claude-sonnet-4", "claude-sonnet-4-5", "claude-opus-4", "claude-opus-4-5",
)  # fmt: skip
ADAPTIVE_MODELS = (
    "claude-sonnet-4-6", "claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-mythos-preview",
    "claude-sonnet-5", "claude-sonnet-5-5", "claude-opus-5", "claude-opus-5-5", "claude-haiku-5", "claude-fable-",
    "claude-mythos-",
)  # fmt: skip


def test_the_table_holds_these_models_and_no_others() -> None:
    forms = {**dict.fromkeys(BUDGET_MODELS, "budget"), **dict.fromkeys(ADAPTIVE_MODELS, "adaptive")}
    assert {name: row.form for name, row in MODELS.items()} == forms


@pytest.mark.parametrize("model", ADAPTIVE_MODELS)
def test_levels_of_adaptive_models_are_efforts(model: str) -> None:
    assert body(model, LOW) == (ADAPTIVE, "low")
    assert body(model, MED) == (ADAPTIVE, "medium")
    assert body(model, HIGH) == (ADAPTIVE, "high")


@pytest.mark.parametrize(
    ("model", "member", "effort"),
    [
        ("claude-opus-4-6", None, None),
        ("claude-sonnet-4-6", None, None),
        ("claude-opus-4-7", None, None),
        ("claude-opus-4-8", None, None),
        ("claude-sonnet-5", {"type": "disabled"}, None),
        ("claude-opus-5", {"type": "disabled"}, None),
        ("claude-haiku-5-5", {"type": "disabled"}, None),
        ("claude-sonnet-5-5", {"type": "between_tools"}, None),
        ("claude-opus-5-5", ADAPTIVE, "low"),
        ("claude-fable-5-1", ADAPTIVE, "low"),
        ("claude-mythos-5", ADAPTIVE, "low"),
        ("claude-mythos-preview", ADAPTIVE, "low"),
        ("claude-something-7", {"type": "disabled"}, None),
    ],
)
def test_level_none_disables_thinking_if_it_can(model: str, member: dict[str, str] | None, effort: str | None) -> None:
    assert body(model, NONE) == (member, effort)
    warnings = wire_thinking(ms.ThinkingConfig(level=NONE), model).warnings
    assert bool(warnings) is (effort is not None)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("claude-opus-4.6", "claude-opus-4-6"),
        ("us.anthropic.claude-opus-4-6-v1:0", "claude-opus-4-6"),
        ("claude-opus-4-6@20260205", "claude-opus-4-6"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("Claude-Sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-opus-4@20250514", "claude-opus-4"),
        ("claude-3.7-sonnet", "claude-3"),
    ],
)
def test_a_model_is_found_in_any_spelling_of_its_name(name: str, row: str) -> None:
    assert thinking_model(name) is MODELS[row]


def test_models_outside_the_table_have_their_own_rows() -> None:
    assert thinking_model("claude-nova-9") is NEW_CLAUDE
    assert thinking_model("kimi-k2-thinking") is OTHER_MODEL
    assert thinking_model("claude-mythos-preview") is not MODELS["claude-mythos-"]


def test_an_explicit_budget_replaces_the_levels() -> None:
    config = ms.ThinkingConfig(level=HIGH, budget_tokens=2000)
    for model in ("claude-sonnet-4-5", "claude-opus-4-6", "some-server-model"):
        assert body(model, config) == ({"type": "enabled", "budget_tokens": 2000}, None)


def test_an_explicit_effort_replaces_the_levels() -> None:
    assert body("claude-opus-4-7", ms.ThinkingConfig(level=LOW, effort="xhigh")) == (ADAPTIVE, "xhigh")
    assert body("claude-opus-4-7", ms.ThinkingConfig(effort="max")) == (ADAPTIVE, "max")
    config = ms.ThinkingConfig(level=NONE, effort="low")
    assert body("claude-opus-4-5", config) == ({"type": "enabled", "budget_tokens": 1024}, "low")
    assert body("claude-opus-4-5", ms.ThinkingConfig(effort="low")) == (None, "low")
    assert body("claude-opus-5", ms.ThinkingConfig(level=NONE, effort="low")) == ({"type": "disabled"}, "low")


@pytest.mark.parametrize("model", [name for name, row in MODELS.items() if not row.takes_budget])
def test_a_budget_is_refused_for_models_without_one(model: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match="takes no budget") as raised:
        body(model, ms.ThinkingConfig(budget_tokens=2000))
    assert raised.value.field == "thinking.budget_tokens"


@pytest.mark.parametrize("budget", [0, 1, 1023, -1])
def test_a_budget_below_anthropics_smallest_is_refused(budget: int) -> None:
    with pytest.raises(ms.InvalidRequestError, match="at least 1024"):
        body("claude-sonnet-4-5", ms.ThinkingConfig(budget_tokens=budget))


def test_include_summary_sets_display() -> None:
    for wanted, display in ((True, "summarized"), (False, "omitted")):
        config = ms.ThinkingConfig(level=LOW, include_summary=wanted)
        assert body("claude-opus-5", config)[0] == {"type": "adaptive", "display": display}
        assert body("claude-haiku-4-5", config)[0]["display"] == display
    assert body("claude-opus-5", ms.ThinkingConfig(include_summary=False)) == (
        {"type": "adaptive", "display": "omitted"},
        None,
    )


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-8"])
def test_include_summary_alone_does_not_enable_thinking(model: str) -> None:
    config = ms.ThinkingConfig(include_summary=True)
    assert body(model, config) == (None, None)
    assert wire_thinking(config, model).warnings
    assert body(model, ms.ThinkingConfig()) == (None, None)
    assert not wire_thinking(ms.ThinkingConfig(), model).warnings


def test_the_table_can_be_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "claude-sonnet-4-5", ThinkingModel(form="budget", minimum=2000, maximum=5000))
    monkeypatch.setitem(MODELS, "claude-nova", ThinkingModel(form="adaptive", off=None))
    assert body("claude-sonnet-4-5", MED)[0]["budget_tokens"] == 4000
    assert body("claude-nova-9", NONE) == (ADAPTIVE, "low")


@pytest.mark.parametrize(
    ("model", "config", "warnings"),
    [
        ("claude-opus-5-5", ms.ThinkingConfig(NONE),
            ["thinking.level: claude-opus-5-5 always thinks; sent as effort 'low'"]),
        ("claude-opus-5-5", ms.ThinkingConfig(LOW), []),
        ("claude-opus-4-8", ms.ThinkingConfig(include_summary=False),
            ["thinking.include_summary: has no effect without a level or an effort"]),
        ("claude-sonnet-4-5", ms.ThinkingConfig(include_summary=False),
            ["thinking.include_summary: has no effect without a level or a budget"]),
        ("claude-opus-5", ms.ThinkingConfig(include_summary=False), []),
    ],
)  # fmt: skip
def test_an_option_without_its_effect_causes_a_warning(
    model: str, config: ms.ThinkingConfig, warnings: list[str]
) -> None:
    assert wire_thinking(config, model).warnings == warnings


def test_the_smallest_budget_is_accepted() -> None:
    assert body("claude-sonnet-4-5", ms.ThinkingConfig(budget_tokens=1024))[0] == {
        "type": "enabled",
        "budget_tokens": 1024,
    }
    for model, budget, message in (
        ("claude-sonnet-4-5", 1023, "thinking.budget_tokens: must be at least 1024, not 1023"),
        ("claude-opus-4-7", 2000, "thinking.budget_tokens: claude-opus-4-7 takes no budget; give a level or an effort"),
    ):
        with pytest.raises(ms.InvalidRequestError) as raised:
            body(model, ms.ThinkingConfig(budget_tokens=budget))
        assert str(raised.value) == message


def test_only_a_model_that_will_think_gets_room_for_it() -> None:
    assert wire_thinking(None, "claude-opus-5").active
    assert not wire_thinking(None, "claude-opus-4-8").active
    assert not wire_thinking(ms.ThinkingConfig(NONE), "claude-opus-5").active
    assert not wire_thinking(ms.ThinkingConfig(effort="low"), "claude-sonnet-4-5").active
    assert wire_thinking(ms.ThinkingConfig(LOW), "claude-sonnet-4-5").active
    assert wire_thinking(ms.ThinkingConfig(budget_tokens=2000), "claude-sonnet-4-5").active
    assert wire_thinking(ms.ThinkingConfig(LOW), "claude-opus-4-8").active
