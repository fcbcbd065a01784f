"""What OpenAI's models accept, by their names: effort words for thinking levels, sampling options, cache marks.

Both OpenAI dialects use these tables. They age with every new model, so a row may be added or replaced at run time, and
a request may set an effort itself.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import InvalidRequestError
from ..json.json_types import JSONObject
from ..model.cached_requests import NO_PREWARM
from ..model.request import LEVEL_PLACES, ThinkingConfig


class Efforts(NamedTuple):
    """The effort word of each level. If two levels have the same word, the model has no lower (or higher) one."""

    none: str
    low: str
    med: str
    high: str


_TO_HIGH = Efforts("none", "low", "medium", "high")
_TO_XHIGH = Efforts("none", "low", "medium", "xhigh")
_TO_MAX = Efforts("none", "low", "medium", "max")
_ALWAYS_THINKS_TO_MAX = Efforts("low", "low", "medium", "max")
_ALWAYS_THINKS = Efforts("low", "low", "medium", "high")
_ALWAYS_THINKS_TO_XHIGH = Efforts("low", "low", "medium", "xhigh")
_PRO = Efforts("medium", "medium", "high", "xhigh")
_MEDIUM_ONLY = Efforts("medium", "medium", "medium", "medium")
_HIGH_ONLY = Efforts("high", "high", "high", "high")

EFFORTS: dict[str, Efforts] = {
    "o1": _ALWAYS_THINKS,
    "o3": _TO_HIGH,
    "o3-mini": _ALWAYS_THINKS,
    "o3-deep-research": _MEDIUM_ONLY,
    "o4-mini": _TO_HIGH,
    "o4-mini-deep-research": _MEDIUM_ONLY,
    "codex-mini": _ALWAYS_THINKS,
    "computer-use-preview": _MEDIUM_ONLY,
    "gpt-oss": _ALWAYS_THINKS,
    "gpt-5": Efforts("minimal", "low", "medium", "high"),
    "gpt-5-codex": _ALWAYS_THINKS,
    "gpt-5-pro": _HIGH_ONLY,
    "gpt-5.1": _TO_HIGH,
    "gpt-5.1-codex-max": _TO_XHIGH,
    "gpt-5.1-chat": _MEDIUM_ONLY,
    "gpt-5.2": _TO_XHIGH,
    "gpt-5.2-chat": _MEDIUM_ONLY,
    "gpt-5.2-pro": _PRO,
    "gpt-5.3-chat": _MEDIUM_ONLY,
    "gpt-5.3-codex": _ALWAYS_THINKS_TO_XHIGH,
    "gpt-5.4": _TO_XHIGH,
    "gpt-5.4-pro": _PRO,
    "gpt-5.5": _TO_XHIGH,
    "gpt-5.5-pro": _PRO,
    "gpt-5.6": _TO_MAX,
    "gpt-6": _TO_MAX,
    "gpt-6-astra": _ALWAYS_THINKS_TO_MAX,
    "gpt-6.1": _ALWAYS_THINKS_TO_MAX,
    "gpt-6.1-terra": _TO_MAX,
    "gpt-6.2": _ALWAYS_THINKS_TO_MAX,
    "gpt-daybreak": _TO_MAX,
}
"""Model family → its effort words. A row applies to `family` and `family-…`; the longest matching family is used.

Set a row here to add a model. Set `ThinkingConfig(effort=…)` to bypass the table for one request.
Sources: OpenAI's model pages and reasoning guide, and the names in the types of its own client library.
"""

NO_EFFORT: frozenset[str] = frozenset({"o1-mini", "o1-preview", "gpt-5-chat"})
"""Families that match a row above but accept no effort."""

NOT_REASONING: tuple[str, ...] = (
    "gpt-3.5",
    "gpt-4",
    "gpt-5-chat",
    "chatgpt-4o",
    "gpt-audio",
    "gpt-realtime",
    "davinci-002",
    "babbage-002",
)
"""Beginnings of the names of OpenAI models that do not reason."""

DEFAULT_IS_NONE: frozenset[str] = frozenset({"gpt-5.1", "gpt-5.2", "gpt-5.4"})
"""Families that reason only on request: without an effort theirs is `none`, so they accept sampling settings. A family
with a suffix of its own (`gpt-5.1-codex`, `gpt-5.4-pro`) is another family.
"""

BREAKPOINTS_FROM = (5, 6)
"""The first version of GPT that accepts explicit cache marks."""

_VERSION = re.compile(r"gpt-(\d{1,9})(?:\.(\d{1,9}))?(?:$|-)")
_LATER_GPT = re.compile(r"gpt-(?:[5-9]|[1-9]\d)(?:\.\d+)?(?:$|-)")
_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_SIZES = ("-mini", "-nano")


def family_name(model: str) -> str:
    """Return a model's name in lower case, without the prefix of a reseller (`openai/`, `openai.`)."""
    name = model.strip().lower().rsplit("/", 1)[-1]
    return name.removeprefix("openai.")


def effort_for(model: str, config: ThinkingConfig) -> str | None:
    """Return the effort to send for a model, or None to send none.

    None means that no level was given, or that the model is not in the table and is not known to have efforts.
    `config.effort` takes precedence and is returned as it is.
    """
    if config.effort is not None:
        return config.effort
    if config.level is None:
        return None
    efforts = _efforts(family_name(model))
    return None if efforts is None else efforts[LEVEL_PLACES[config.level]]


def is_reasoning_model(model: str) -> bool:
    """Return whether an OpenAI model reasons. True for a GPT of a later generation than the table's."""
    name = family_name(model)
    if name.startswith(NOT_REASONING):
        return False
    return _longest(name, EFFORTS) is not None or _longest(name, NO_EFFORT) is not None or bool(_LATER_GPT.match(name))


def may_reason(model: str) -> bool:
    """Return whether a model may have reasoning to send back: True unless it is known not to reason."""
    return not family_name(model).startswith(NOT_REASONING)


def takes_sampling(model: str, effort: str | None) -> bool:
    """Return whether a model accepts `temperature` and `top_p`.

    True for models that do not reason, and for models whose effort is `none`, as requested or by default.
    """
    if not is_reasoning_model(model):
        return True
    if effort is not None:
        return effort == "none"
    name = _DATE.sub("", family_name(model))
    for size in _SIZES:
        name = name.removesuffix(size)
    return name in DEFAULT_IS_NONE


def takes_breakpoints(model: str) -> bool:
    """Return whether a model accepts explicit cache marks. Older ones cache by themselves and refuse the mark."""
    version = _VERSION.match(family_name(model))
    return version is not None and (int(version[1]), int(version[2] or 0)) >= BREAKPOINTS_FROM


def add_prewarm(body: JSONObject, model: str) -> None:
    """Let a request write its prompt to the cache without an answer. Raises `InvalidRequestError` for older models."""
    if not takes_breakpoints(model):
        raise InvalidRequestError("max_output_tokens", f"must be at least 1 for {model!r}{NO_PREWARM}")
    body["prompt_cache_options"] = {"prewarm": True}


def _efforts(name: str) -> Efforts | None:
    if name.startswith(NOT_REASONING) or _longest(name, NO_EFFORT) is not None:
        return None
    family = _longest(name, EFFORTS)
    if family is not None:
        return EFFORTS[family]
    return _TO_HIGH if _LATER_GPT.match(name) else None


def _longest(name: str, families: dict[str, Efforts] | frozenset[str]) -> str | None:
    """Return the longest family that equals the name or precedes a hyphen in it, or None."""
    end = len(name)
    while end > 0:
        if name[:end] in families:
            return name[:end]
        end = name.rfind("-", 0, end)
    return None
