"""Maps thinking options to the members of a request, per Claude model.

Two forms exist. Models up to 4.5 accept a token budget (`thinking: {type: "enabled", budget_tokens}`). Later models
decide themselves (`{type: "adaptive"}`) and accept an effort (`output_config.effort`). The 4.6 models accept both.
Source: https://platform.claude.com/docs/en/build-with-claude/thinking and …/effort.

`MODELS` is data: replace a row, or add one under a new prefix, to override it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject
from ..model.request import LEVEL_PLACES, ThinkingConfig, ThinkingLevel

MINIMUM_BUDGET = 1024
"""The smallest `budget_tokens` that Anthropic accepts."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ThinkingModel:
    """The thinking options of one family of models.

    form: `budget` or `adaptive`.
    minimum: the budget of level NONE, for models with a budget.
    maximum: the budget of level HIGH, for models with a budget.
    takes_budget: whether an explicit budget is accepted.
    off: the `thinking.type` that disables thinking; `omit` if leaving the member out does; None if thinking cannot be
        disabled.
    by_default: whether the model thinks if the request has no `thinking`.
    takes_sampling: whether temperature and top_p are accepted.
    known: False for models that are not Anthropic's. Their servers' limits are unknown.
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
"""Beginning of a model's name → its thinking options. The longest match is used."""

NEW_CLAUDE = _DEFAULT_ON
"""For a `claude-` model that is not in the table: assumed to be newer than the table."""

OTHER_MODEL = ThinkingModel(form="budget", known=False)
"""For models of compatible servers, which use the older form."""

LEVEL_EFFORT: dict[ThinkingLevel, str] = {
    ThinkingLevel.NONE: "low",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MED: "medium",
    ThinkingLevel.HIGH: "high",
}
"""Level → effort. NONE disables thinking if the model allows it; otherwise it is the lowest effort."""


@dataclass(slots=True)
class WireThinking:
    """The parts of a request that control thinking.

    member: the `thinking` member; None to leave it out.
    effort: the effort for `output_config`, or None.
    budget: the budget in tokens, or 0.
    warnings: options that cannot be sent.
    """

    member: JSONObject | None = None
    effort: str | None = None
    budget: int = 0
    active: bool = False
    warnings: list[str] = field(default_factory=lambda: [])


def thinking_model(model: str) -> ThinkingModel:
    """Return the row for a model. The name may be written as another host does.

    `claude-opus-4.6`, `us.anthropic.claude-opus-4-6-v1:0` and `claude-opus-4-6@20260205` are the same model.
    """
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
    """Return the token budget of a level: the minimum plus the level's thirds of the range."""
    return row.minimum + (row.maximum - row.minimum) * LEVEL_PLACES[level] // 3


def wire_thinking(config: ThinkingConfig | None, model: str) -> WireThinking:
    """Return what to send for a thinking option. Raises `InvalidRequestError` for a budget that the model refuses."""
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
        # The option has nothing but `include_summary`, which alone must not enable thinking.
        wire = WireThinking()
        if config.include_summary is not None:
            wire.warnings.append("thinking.include_summary: has no effect without a level or an effort")
        return wire
    # Always sent: since 4.7 the models omit the thinking's text by default.
    display = "omitted" if config.include_summary is False else "summarized"
    return WireThinking({"type": "adaptive", "display": display}, effort, active=True)
