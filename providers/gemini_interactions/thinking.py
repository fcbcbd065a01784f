"""Maps thinking options to the members of `generation_config`: a level by name, and whether to send summaries.

Every model takes a level here, those of Gemini 2.5 as well, and none takes a budget in tokens.
"""

from __future__ import annotations

from ..errors import InvalidRequestError
from ..gemini.thinking import WITHOUT_THINKING, word_of_level
from ..json.json_values import JSON
from ..model.request import ThinkingConfig, ThinkingLevel

SUMMARIES: dict[bool, str] = {True: "auto", False: "none"}
"""Whether summaries are asked for → the value of `thinking_summaries`."""


def thinking_members(model: str, wanted: ThinkingConfig, warnings: list[str]) -> dict[str, JSON]:
    """Return the members, none if nothing is to be sent. Raises `InvalidRequestError` for a budget."""
    if model.startswith(tuple(WITHOUT_THINKING)):
        if wanted.level is not ThinkingLevel.NONE:
            warnings.append(f"thinking: left out, {model} does not think")
        return {}
    if wanted.budget_tokens is not None:
        raise InvalidRequestError("thinking.budget_tokens", "Interactions takes a level or an effort, not a budget")
    members: dict[str, JSON] = {}
    if wanted.effort is not None:
        members["thinking_level"] = wanted.effort.lower()
    elif wanted.level is not None:
        members["thinking_level"] = word_of_level(model, wanted.level, warnings).lower()
    summaries = wanted.include_summary
    if summaries is None and wanted.level is not ThinkingLevel.NONE:
        summaries = True
    if summaries is not None:
        members["thinking_summaries"] = SUMMARIES[summaries]
    return members
