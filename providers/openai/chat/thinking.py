"""Maps thinking options to the members that a chat server expects."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InvalidRequestError
from ...json.json_values import JSONObject
from ...model.request import LEVEL_PLACES, ThinkingConfig, ThinkingLevel
from ...wire.quirks import Quirks, ThinkingMember
from ..thinking import effort_for, is_reasoning_model

BUDGETS: dict[ThinkingLevel, int] = {
    ThinkingLevel.NONE: 0,
    ThinkingLevel.LOW: 4096,
    ThinkingLevel.MED: 12288,
    ThinkingLevel.HIGH: 32768,
}
"""Level → tokens, for servers that expect tokens and whose models' limits are unknown."""

_OFF = "none"


def thinking_members(config: ThinkingConfig | None, model: str, quirks: Quirks, warnings: list[str]) -> JSONObject:
    """Return the members to send. Raises `InvalidRequestError` if no part of the option can be sent."""
    if config is None or config == ThinkingConfig():
        return {}
    if config.include_summary is not None and quirks.thinking != "reasoning":
        warnings.append("thinking.include_summary: not sent; the server shows its reasoning, or not, by itself")
    return _MEMBERS[quirks.thinking](config, model, quirks, warnings)


def _effort(config: ThinkingConfig, model: str, quirks: Quirks) -> str | None:
    """Return the effort word: the request's own, else that of the model in OpenAI's table, else the server's."""
    effort = effort_for(model, config)
    if effort is None and config.level is not None and not _refuses_effort(model):
        effort = quirks.efforts[LEVEL_PLACES[config.level]]
    return effort


def _refuses_effort(model: str) -> bool:
    """Return whether a model refuses the member: OpenAI's models without reasoning do."""
    name = model.rsplit("/", 1)[-1]
    return name.startswith(("gpt-", "chatgpt-")) and not is_reasoning_model(model)


def _thinks(config: ThinkingConfig) -> bool:
    if config.budget_tokens is not None:
        return config.budget_tokens > 0
    if config.effort is not None:
        return config.effort != _OFF
    return config.level is not ThinkingLevel.NONE


def _says_how_much(config: ThinkingConfig) -> bool:
    """Return whether the option has a level or an effort."""
    return config.level is not None or config.effort is not None


def _drop_budget(config: ThinkingConfig, warnings: list[str]) -> None:
    """Warn about a budget. Raises `InvalidRequestError` if the option has nothing else."""
    if config.budget_tokens is None:
        return
    if not _says_how_much(config) and config.budget_tokens > 0:
        raise InvalidRequestError("thinking.budget_tokens", "the server takes no budget; give a level or an effort")
    warnings.append("thinking.budget_tokens: not sent; the server takes no budget")


def _reasoning_effort(config: ThinkingConfig, model: str, quirks: Quirks, warnings: list[str]) -> JSONObject:
    """Return `reasoning_effort`, a word."""
    _drop_budget(config, warnings)
    if config.budget_tokens is not None and not _says_how_much(config):
        config = ThinkingConfig(level=ThinkingLevel.NONE)
    effort = _effort(config, model, quirks)
    if effort is None:
        if _says_how_much(config) and config.level is not ThinkingLevel.NONE:
            warnings.append(f"thinking: not sent; {model} takes no reasoning effort")
        return {}
    return {"reasoning_effort": effort}


def _reasoning(config: ThinkingConfig, model: str, quirks: Quirks, warnings: list[str]) -> JSONObject:
    """Return `reasoning`, an object with a budget or an effort (OpenRouter)."""
    reasoning: JSONObject = {}
    if config.budget_tokens is not None:
        reasoning["max_tokens"] = config.budget_tokens
        if config.effort is not None:
            warnings.append("thinking.effort: not sent; the server takes a budget or an effort, and a budget is given")
    else:
        effort = _effort(config, model, quirks)
        if effort is not None:
            reasoning["effort"] = effort
    if config.include_summary is False:
        reasoning["exclude"] = True
    elif config.include_summary and not reasoning:
        reasoning["enabled"] = True
    return {"reasoning": reasoning} if reasoning else {}


def _thinking_type(config: ThinkingConfig, model: str, quirks: Quirks, warnings: list[str]) -> JSONObject:
    """Return `thinking: {type}`, on or off (DeepSeek, Z.ai, Moonshot)."""
    if config.budget_tokens is not None:
        warnings.append("thinking.budget_tokens: only on or off is sent; the server takes no budget")
    if not _says_how_much(config) and config.budget_tokens is None:
        return {}
    members: JSONObject = {"thinking": {"type": "enabled" if _thinks(config) else "disabled"}}
    if config.effort is not None and config.effort != _OFF:
        members["reasoning_effort"] = config.effort
    return members


def _budget(config: ThinkingConfig) -> int | None:
    """Return the option's budget, or that of its level; None if it has neither."""
    if config.budget_tokens is not None or config.level is None:
        return config.budget_tokens
    return BUDGETS[config.level]


def _thinking_budget(config: ThinkingConfig, model: str, quirks: Quirks, warnings: list[str]) -> JSONObject:
    """Return `thinking` with a budget (Claude behind a chat server)."""
    if config.effort is not None:
        # Such servers have models of several makers. Those with efforts expect `reasoning_effort`.
        return {"reasoning_effort": config.effort}
    budget = _budget(config)
    if budget is None:
        return {}
    if budget == 0:
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _enable_thinking(config: ThinkingConfig, model: str, quirks: Quirks, warnings: list[str]) -> JSONObject:
    """Return `enable_thinking` with `thinking_budget` (Alibaba)."""
    if config.effort is not None:
        warnings.append("thinking.effort: only on or off is sent; the server takes a budget")
    if not _says_how_much(config) and config.budget_tokens is None:
        return {}
    members: JSONObject = {"enable_thinking": _thinks(config)}
    # For HIGH, the model's own limit applies.
    budget = None if config.level is ThinkingLevel.HIGH and config.budget_tokens is None else _budget(config)
    if budget and _thinks(config):
        members["thinking_budget"] = budget
    return members


def _chat_template(config: ThinkingConfig, model: str, quirks: Quirks, warnings: list[str]) -> JSONObject:
    """Return `chat_template_kwargs`, for open models. Models with efforts (gpt-oss) expect `reasoning_effort`."""
    if config.budget_tokens is not None:
        warnings.append("thinking.budget_tokens: only on or off is sent; the server takes no budget")
    if not _says_how_much(config) and config.budget_tokens is None:
        return {}
    effort = effort_for(model, config)
    if effort is not None:
        return {"reasoning_effort": effort}
    return {"chat_template_kwargs": {"enable_thinking": _thinks(config)}}


def _nothing(config: ThinkingConfig, model: str, quirks: Quirks, warnings: list[str]) -> JSONObject:
    """Return nothing, for servers without such a setting."""
    warnings.append("thinking: not sent; the server has no such setting")
    return {}


_MEMBERS: dict[ThinkingMember, Callable[[ThinkingConfig, str, Quirks, list[str]], JSONObject]] = {
    "reasoning_effort": _reasoning_effort,
    "reasoning": _reasoning,
    "thinking_type": _thinking_type,
    "thinking_budget": _thinking_budget,
    "enable_thinking": _enable_thinking,
    "chat_template_kwargs": _chat_template,
    "none": _nothing,
}
