"""How each Claude model is told how much to think: a table, and the function that reads it.

Two forms exist. Models up to 4.5 take a token budget (`thinking: {type: "enabled", budget_tokens}`); later ones
decide for themselves (`{type: "adaptive"}`) and take an effort (`output_config.effort`). The 4.6 models take both.
Source: https://platform.claude.com/docs/en/build-with-claude/thinking and …/effort.

`MODELS` is data: replace a row, or add one under a new prefix, to override it. Knows nothing of the rest of a
request; `request.py` asks here what to send.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..errors import InvalidRequestError
from ..json_values import JSON, JSONObject
from ..request import ThinkingConfig, ThinkingLevel

MINIMUM_BUDGET = 1024
"""Anthropic refuses a smaller `budget_tokens`."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ThinkingModel:
    """How one family of models takes its thinking.

    form: `budget` or `adaptive`. minimum, maximum: the budgets of NONE and HIGH, for models that take one.
    takes_budget: whether an explicit budget is accepted. off: the `thinking.type` that switches thinking off;
    `omit` where leaving the member out does, None where thinking cannot be switched off.
    by_default: thinks where the request says nothing. takes_sampling: temperature and top_p are accepted.
    known: False for models that are not Anthropic's own, whose limits are their server's business.
    """

    form: Literal["budget", "adaptive"]
    minimum: int = MINIMUM_BUDGET
    maximum: int = 32_000
    takes_budget: bool = True
    off: Literal["omit", "disabled", "between_tools"] | None = "omit"
    by_default: bool = False
    takes_sampling: bool = True
    known: bool = True


_TO_32K = ThinkingModel(form="budget", maximum=32_000)
_TO_64K = ThinkingModel(form="budget", maximum=64_000)
_BOTH = ThinkingModel(form="adaptive")
_ADAPTIVE = ThinkingModel(form="adaptive", takes_budget=False, takes_sampling=False)
_DEFAULT_ON = ThinkingModel(form="adaptive", takes_budget=False, off="disabled", by_default=True, takes_sampling=False)
_BETWEEN_TOOLS = ThinkingModel(
    form="adaptive", takes_budget=False, off="between_tools", by_default=True, takes_sampling=False
)
_ALWAYS_ON = ThinkingModel(form="adaptive", takes_budget=False, off=None, by_default=True, takes_sampling=False)

MODELS: dict[str, ThinkingModel] = {
    "claude-3": _TO_32K,
    "claude-haiku-4": _TO_32K,
    "claude-sonnet-4": _TO_32K,
    "claude-sonnet-4-5": _TO_64K,
    "claude-sonnet-4-6": _BOTH,
    "claude-opus-4": _TO_32K,
    "claude-opus-4-5": _TO_64K,
    "claude-opus-4-6": _BOTH,
    "claude-opus-4-7": _ADAPTIVE,
    "claude-opus-4-8": _ADAPTIVE,
    "claude-mythos-preview": ThinkingModel(form="adaptive", off=None, by_default=True),
    "claude-sonnet-5": _DEFAULT_ON,
    "claude-sonnet-5-5": _BETWEEN_TOOLS,
    "claude-opus-5": _DEFAULT_ON,
    "claude-opus-5-5": _ALWAYS_ON,
    "claude-haiku-5": _DEFAULT_ON,
    "claude-fable-": _ALWAYS_ON,
    "claude-mythos-": _ALWAYS_ON,
}
"""Beginning of a model's name → how it thinks. The longest beginning that fits wins."""

NEW_CLAUDE = _DEFAULT_ON
"""For a `claude-` model that the table does not know: taken to be newer than the table."""

OTHER_MODEL = ThinkingModel(form="budget", known=False)
"""For models of compatible servers: they follow the older form."""

LEVEL_STEPS: dict[ThinkingLevel, int] = {
    ThinkingLevel.NONE: 0,
    ThinkingLevel.LOW: 1,
    ThinkingLevel.MED: 2,
    ThinkingLevel.HIGH: 3,
}
"""Level → how many thirds of the way from the smallest budget to the largest."""

LEVEL_EFFORT: dict[ThinkingLevel, str] = {
    ThinkingLevel.NONE: "low",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MED: "medium",
    ThinkingLevel.HIGH: "high",
}
"""Level → effort. NONE switches thinking off where the model allows it; else it is the least effort there is."""


@dataclass(slots=True)
class WireThinking:
    """What a request says about thinking.

    member: the `thinking` member, None to leave it out. effort: for `output_config`. budget: its tokens, or 0.
    active: the model will think. warnings: what was asked for and could not be said.
    """

    member: JSONObject | None = None
    effort: str | None = None
    budget: int = 0
    active: bool = False
    warnings: list[str] = field(default_factory=lambda: [])


def thinking_model(model: str) -> ThinkingModel:
    """The row for a model, by its name as this or another host writes it: `claude-opus-4.6`,
    `us.anthropic.claude-opus-4-6-v1:0` and `claude-opus-4-6@20260205` are the same model."""
    name = model.lower()
    start = name.find("claude-")
    if start < 0:
        return OTHER_MODEL
    name = name[start:].replace(".", "-").replace("@", "-")
    for end in range(len(name), 0, -1):
        row = MODELS.get(name[:end])
        if row is not None:
            return row
    return NEW_CLAUDE


def level_budget(row: ThinkingModel, level: ThinkingLevel) -> int:
    """The token budget of a level: the smallest, plus that many thirds of the range."""
    return row.minimum + (row.maximum - row.minimum) * LEVEL_STEPS[level] // 3


def wire_thinking(config: ThinkingConfig | None, model: str) -> WireThinking:
    """What to send for a thinking option. Raises `InvalidRequestError` for a budget the model does not take."""
    row = thinking_model(model)
    if config is None:
        return WireThinking(active=row.by_default)
    if config.budget_tokens is not None:
        return _explicit_budget(config, config.budget_tokens, row, model)
    if row.form == "budget":
        return _level_budget(config, row)
    if config.level is ThinkingLevel.NONE:
        return _off(config, row, model)
    return _adaptive(config, row, model)


def _explicit_budget(config: ThinkingConfig, budget: int, row: ThinkingModel, model: str) -> WireThinking:
    if not row.takes_budget:
        raise InvalidRequestError("thinking.budget_tokens", f"{model} takes no budget; give a level or an effort")
    if budget < MINIMUM_BUDGET:
        raise InvalidRequestError("thinking.budget_tokens", f"must be at least {MINIMUM_BUDGET}, not {budget!r}")
    return WireThinking(_enabled(budget, config), config.effort, budget, active=True)


def _level_budget(config: ThinkingConfig, row: ThinkingModel) -> WireThinking:
    if config.level is None:
        wire = WireThinking(effort=config.effort)
        if config.include_summary is not None:
            wire.warnings.append("thinking.include_summary: has no effect without a level or a budget")
        return wire
    budget = level_budget(row, config.level)
    return WireThinking(_enabled(budget, config), config.effort, budget, active=True)


def _enabled(budget: int, config: ThinkingConfig) -> JSONObject:
    member: dict[str, JSON] = {"type": "enabled", "budget_tokens": budget}
    if config.include_summary is not None:
        member["display"] = "summarized" if config.include_summary else "omitted"
    return member


def _off(config: ThinkingConfig, row: ThinkingModel, model: str) -> WireThinking:
    if row.off is None:
        wire = _adaptive(config, row, model)
        wire.warnings.append(f"thinking.level: {model} always thinks; sent as effort {wire.effort!r}")
        return wire
    member: JSONObject | None = None if row.off == "omit" else {"type": row.off}
    return WireThinking(member, config.effort)


def _adaptive(config: ThinkingConfig, row: ThinkingModel, model: str) -> WireThinking:
    effort = config.effort
    if effort is None and config.level is not None:
        effort = LEVEL_EFFORT[config.level]
    if effort is None and not row.by_default:
        # Nothing but `include_summary` was said: that alone must not switch thinking on.
        wire = WireThinking()
        if config.include_summary is not None:
            wire.warnings.append("thinking.include_summary: has no effect without a level or an effort")
        return wire
    # Said always: since 4.7 the models' own default is to leave the thinking text out.
    display = "omitted" if config.include_summary is False else "summarized"
    return WireThinking({"type": "adaptive", "display": display}, effort, active=True)
