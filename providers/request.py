"""A request to a model, in the words that all dialects share. Values only: `checks.py` validates them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypedDict

from .json_values import JSON, JSONObject
from .messages import CacheControl, Message, Text
from .options import Priority, PriorityName, Retry, Timeouts
from .prefix_cache import PrefixCache

TOOL_CHOICE_MODES = ("auto", "none", "required")
"""Values of `Request.tool_choice` that are not a tool's name."""


class ThinkingLevel(enum.StrEnum):
    """How much the model should think. Each dialect has a table per model that maps a level to tokens or effort."""

    NONE = "none"
    LOW = "low"
    MED = "med"
    HIGH = "high"


LevelName: TypeAlias = Literal["none", "low", "med", "medium", "high"]
LEVEL_NAMES: dict[str, ThinkingLevel] = {**{level.value: level for level in ThinkingLevel}, "medium": ThinkingLevel.MED}
"""Name of a level → its `ThinkingLevel`. A request may have either."""


@dataclass(slots=True, frozen=True)
class ThinkingConfig:
    """Thinking in detail. A value given here replaces what the level's table would give.

    level: a `ThinkingLevel` or its name.
    budget_tokens: tokens, for models with a budget; -1 lets the model decide, if it can.
    effort: the provider's own word (`minimal`, `xhigh`, `max`, …).
    include_summary: whether the thinking's text should be returned. None: yes, if the dialect offers it.
    """

    level: ThinkingLevel | None = None
    budget_tokens: int | None = None
    effort: str | None = None
    include_summary: bool | None = None


@dataclass(slots=True, frozen=True)
class Tool:
    """A function that the model may call.

    name: the function's name.
    description: what it does, for the model.
    parameters: a JSON Schema of type `object`.
    strict: whether the server must enforce the schema, for dialects that can. None: the dialect's default.
    cache_control: marks the end of a part of the prompt that may be cached.
    """

    name: str
    description: str = ""
    parameters: JSONObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None
    cache_control: CacheControl | None = None


class RequestOptions(TypedDict, total=False):
    """The options of a `Request`, for functions that pass them on: `**options: Unpack[ms.RequestOptions]`.

    `Request` documents each option.
    """

    system: str | Sequence[Text] | None
    tools: Sequence[Tool]
    tool_choice: Literal["auto", "none", "required"] | str
    thinking: LevelName | ThinkingLevel | ThinkingConfig | None
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    stop: Sequence[str]
    seed: int | None
    response_schema: JSONObject | type | None
    parallel_tool_calls: bool | None
    metadata: Mapping[str, str] | None
    timeouts: Timeouts | None
    retry: Retry | None
    extra_body: Mapping[str, JSON] | None
    extra_headers: Mapping[str, str] | None
    priority: PriorityName | Priority
    tenant: str | None
    session: str | None


class _CachedForm:
    """The cache of a conversation's wire form, which a request has beside its value.

    It is not compared, shown or copied.
    """

    __slots__ = ("_prefix_cache",)


@dataclass(slots=True, frozen=True)
class Request(_CachedForm):
    """One request. Only `model` and `messages` are required. None leaves a setting to the server.

    model: the model's name, with or without the provider's (`"anthropic/claude-sonnet-4-5"`).
    messages: the conversation so far.
    system: the system prompt, as text or text blocks.
    tools: functions that the model may call.
    tool_choice: `auto`, `none`, `required`, or a tool's name.
    thinking: a level, its name (`"high"`), or a `ThinkingConfig`.
    max_output_tokens: the most tokens that the model may generate.
    temperature: randomness of the output, 0 or more; the upper end depends on the provider.
    top_p: the part of the probability mass that tokens are chosen from, 0 to 1.
    stop: texts at which the model stops.
    seed: a number for reproducible output, for servers that support it.
    response_schema: a JSON Schema that the answer's text must match, or a class with `model_json_schema()`, such as a
        pydantic model. The parsed value is then on `response.parsed`.
    parallel_tool_calls: whether the model may make several calls in one answer.
    metadata: names and values that are stored with the request, for providers that support it.
    timeouts: replaces the engine's timeouts where given.
    retry: replaces the engine's retry policy.
    extra_body: members that are merged into the wire body last.
    extra_headers: headers that are added last. No repr shows them.
    priority: which calls are sent first where calls wait for a limit: `"interactive"`, `"normal"` or `"batch"`.
    tenant: the name of the customer or user that the call is made for. Tenants with waiting calls get the same number
        of tokens.
    session: the conversation that the call belongs to.

    `priority`, `tenant` and `session` are never sent, and have no effect in an engine without `traffic`.
    """

    model: str
    messages: Sequence[Message]
    system: str | Sequence[Text] | None = field(default=None, kw_only=True)
    tools: Sequence[Tool] = field(default=(), kw_only=True)
    tool_choice: Literal["auto", "none", "required"] | str = field(default="auto", kw_only=True)
    thinking: LevelName | ThinkingLevel | ThinkingConfig | None = field(default=None, kw_only=True)
    max_output_tokens: int | None = field(default=None, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    top_p: float | None = field(default=None, kw_only=True)
    stop: Sequence[str] = field(default=(), kw_only=True)
    seed: int | None = field(default=None, kw_only=True)
    response_schema: JSONObject | type | None = field(default=None, kw_only=True)
    parallel_tool_calls: bool | None = field(default=None, kw_only=True)
    metadata: Mapping[str, str] | None = field(default=None, kw_only=True)
    timeouts: Timeouts | None = field(default=None, kw_only=True)
    retry: Retry | None = field(default=None, kw_only=True)
    extra_body: Mapping[str, JSON] | None = field(default=None, kw_only=True)
    extra_headers: Mapping[str, str] | None = field(default=None, kw_only=True, repr=False)
    priority: PriorityName | Priority = field(default=Priority.NORMAL, kw_only=True)
    tenant: str | None = field(default=None, kw_only=True)
    session: str | None = field(default=None, kw_only=True)

    @property
    def system_blocks(self) -> list[Text]:
        """The system prompt as blocks, without empty ones."""
        if self.system is None:
            return []
        blocks = [Text(self.system)] if isinstance(self.system, str) else list(self.system)
        return [block for block in blocks if block.text]

    @property
    def thinking_config(self) -> ThinkingConfig | None:
        """The thinking option as a `ThinkingConfig`, with a level that is a `ThinkingLevel`; None if not given."""
        thinking = self.thinking
        if isinstance(thinking, ThinkingConfig):
            level = thinking.level
            return thinking if level is None else replace(thinking, level=LEVEL_NAMES[level])
        return None if thinking is None else ThinkingConfig(level=LEVEL_NAMES[thinking])


def with_prefix_cache(request: Request, cache: PrefixCache) -> Request:
    """Give a request that a conversation has just made the conversation's cache. Returns the request itself."""
    object.__setattr__(request, "_prefix_cache", cache)
    return request


def prefix_cache_of(request: Request) -> PrefixCache | None:
    """The cache of the conversation that made the request; None for any other request."""
    cache: PrefixCache | None = getattr(request, "_prefix_cache", None)
    return cache
