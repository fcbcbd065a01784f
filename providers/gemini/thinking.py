"""Maps thinking options to `thinkingConfig`, per Gemini model.

Models up to Gemini 2.5 accept a budget in tokens, models from Gemini 3 on a level by name. A request may have one of
the two (Gemini API documentation, "Thinking"). The tables are plain data: a row may be added or replaced. A request's
`ThinkingConfig(budget_tokens=…)` or `ThinkingConfig(effort=…)` bypasses them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject
from ..model.request import LEVEL_PLACES, ThinkingConfig, ThinkingLevel

Row = TypeVar("Row")


@dataclass(slots=True, frozen=True)
class Budget:
    """The range of tokens that a model may spend on thinking. With a minimum above 0, thinking cannot be disabled."""

    minimum: int
    maximum: int

    def tokens(self, level: ThinkingLevel) -> int:
        """Return the level's budget: the minimum plus none, a third, two thirds or all of the range."""
        return self.minimum + (self.maximum - self.minimum) * LEVEL_PLACES[level] // 3


BUDGETS: dict[str, Budget] = {
    "gemini-2.5-pro": Budget(128, 32768),
    "gemini-2.5-flash": Budget(0, 24576),
    "gemini-2.5-flash-lite": Budget(512, 24576),
}
"""Beginning of a model's name → its budget. The longest match is used."""

Words = tuple[str, str, str, str]

FROM_MINIMAL: Words = ("MINIMAL", "LOW", "MEDIUM", "HIGH")
FROM_LOW: Words = ("LOW", "LOW", "MEDIUM", "HIGH")
TO_XHIGH: Words = ("LOW", "LOW", "MEDIUM", "XHIGH")

LEVELS: dict[str, Words] = {
    "gemini-3-pro": ("LOW", "LOW", "HIGH", "HIGH"),
    "gemini-3-flash": FROM_MINIMAL,
    "gemini-3.1-flash": FROM_MINIMAL,
    "gemini-3.1-flash-image": ("MINIMAL", "MINIMAL", "HIGH", "HIGH"),
    "gemini-3.5-flash": FROM_MINIMAL,
    "gemini-3.6-flash": FROM_MINIMAL,
    "gemini-3.7-flash-lite": FROM_MINIMAL,
    "gemini-3.8-flash-lite": FROM_MINIMAL,
    "gemini-4-hydrogen": TO_XHIGH,
    "gemini-4-neon": TO_XHIGH,
    "gemini-flash-lite-latest": FROM_MINIMAL,
    "gemma-4": ("MINIMAL", "MINIMAL", "HIGH", "HIGH"),
}
"""Beginning of a model's name → its words for NONE, LOW, MED and HIGH. Thinking cannot be disabled for these models, so
their word for NONE is the lowest that they have.
"""

OTHER_LEVELS = FROM_LOW
"""For models without a row: the words that all models with levels accept, except the first."""

WITHOUT_THINKING: frozenset[str] = frozenset(
    {
        "gemini-1.",
        "gemini-2.0",
        "gemini-2.5-flash-image",
        "gemini-2.5-flash-preview-tts",
        "gemini-2.5-pro-preview-tts",
        "gemma-3",
    }
)
"""Beginnings of the names of models that refuse a `thinkingConfig`."""

LEVELS_ONLY_FROM = (3, 5)
"""From this version on a budget is refused. Gemini 3.0 and 3.1 still accept one."""

SIGNATURES_FROM = (3, 0)
"""From this version on a function call must be sent back with its thought signature."""

SAMPLING_IGNORED_FROM = (3, 6)
"""From this version on temperature and top_p are ignored (Gemini 3.6 developer guide)."""

UNVERSIONED = (1000, 0)
"""The version of a name without one (`gemini-flash-latest`, a tuned model): counts as new."""

_VERSION = re.compile(r"gemini-(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)


def version_of(model: str) -> tuple[int, int]:
    """Return the version in a model's name, or `UNVERSIONED`."""
    match = _VERSION.match(model)
    return (int(match[1]), int(match[2] or 0)) if match else UNVERSIONED


def needs_signatures(model: str) -> bool:
    """Return whether a model refuses function calls that are sent back without a thought signature."""
    return version_of(model) >= SIGNATURES_FROM


def ignores_sampling(model: str) -> bool:
    """Return whether a model is known to ignore temperature and top_p."""
    return SAMPLING_IGNORED_FROM <= version_of(model) < UNVERSIONED


def thinking_config(model: str, wanted: ThinkingConfig, warnings: list[str]) -> JSONObject:
    """Return `generationConfig.thinkingConfig`, empty if nothing is to be sent.

    Raises `InvalidRequestError` for an option that the model refuses. Adds a warning for one that it can only
    approximate.
    """
    budget = _row(BUDGETS, model)
    config: dict[str, JSON] = {}
    if any(model.startswith(name) for name in WITHOUT_THINKING):
        if wanted.level is not ThinkingLevel.NONE:
            warnings.append(f"thinking: left out, {model} does not think")
        return config
    if wanted.budget_tokens is not None and wanted.effort is not None:
        raise InvalidRequestError("thinking", "Gemini takes budget_tokens or effort, not both")
    if wanted.budget_tokens is not None:
        config["thinkingBudget"] = _checked_budget(model, budget, wanted.budget_tokens)
    elif wanted.effort is not None:
        if budget is not None:
            raise InvalidRequestError("thinking.effort", f"{model} takes a level or budget_tokens, not an effort")
        config["thinkingLevel"] = wanted.effort.upper()
    elif wanted.level is not None and budget is not None:
        config["thinkingBudget"] = _budget_of_level(model, budget, wanted.level)
    elif wanted.level is not None:
        config["thinkingLevel"] = word_of_level(model, wanted.level, warnings)
    if wanted.include_summary is not None:
        config["includeThoughts"] = wanted.include_summary
    elif wanted.level is not ThinkingLevel.NONE and config.get("thinkingBudget") != 0:
        config["includeThoughts"] = True
    return config


def _row(table: dict[str, Row], model: str) -> Row | None:
    names = [name for name in table if model.startswith(name)]
    return table[max(names, key=len)] if names else None


def _budget_of_level(model: str, budget: Budget, level: ThinkingLevel) -> int:
    if level is ThinkingLevel.NONE and budget.minimum > 0:
        raise InvalidRequestError("thinking", f"{model} cannot disable thinking; LOW is its lowest level")
    return budget.tokens(level)


def word_of_level(model: str, level: ThinkingLevel, warnings: list[str]) -> str:
    """Return a model's word for a level, in upper case. Adds a warning if the model cannot disable thinking."""
    word = (_row(LEVELS, model) or OTHER_LEVELS)[LEVEL_PLACES[level]]
    if level is ThinkingLevel.NONE:
        warnings.append(f"thinking: {model} cannot disable thinking; {word}, its lowest level, was sent")
    return word


def _checked_budget(model: str, budget: Budget | None, tokens: int) -> int:
    if budget is None and version_of(model) >= LEVELS_ONLY_FROM:
        raise InvalidRequestError("thinking.budget_tokens", f"{model} takes a level, not a budget")
    # -1 lets the model decide. Every model with a budget accepts it.
    if budget is not None and tokens != -1 and not budget.minimum <= tokens <= budget.maximum:
        raise InvalidRequestError(
            "thinking.budget_tokens",
            f"{model} takes {budget.minimum} to {budget.maximum} tokens, or -1 to let it decide, not {tokens}",
        )
    return tokens
