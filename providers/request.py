"""What is asked of a model, in the words all dialects share. Values only: `checks` holds them against their rules."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypedDict

from .json_values import JSON, JSONObject
from .messages import CacheControl, Message, Text
from .options import Retry, Timeouts
from .prefix_cache import PrefixCache

TOOL_CHOICE_MODES = ("auto", "none", "required")


class ThinkingLevel(enum.StrEnum):
    """How much to think. What a level means in tokens or effort is a table per model, in each dialect."""

    NONE = "none"
    LOW = "low"
    MED = "med"
    HIGH = "high"


LevelName: TypeAlias = Literal["none", "low", "med", "medium", "high"]
LEVEL_NAMES: dict[str, ThinkingLevel] = {**{level.value: level for level in ThinkingLevel}, "medium": ThinkingLevel.MED}
"""What a level may be called in place of its `ThinkingLevel`."""


@dataclass(slots=True, frozen=True)
class ThinkingConfig:
    """Thinking in detail; what is given here wins over the level's table.

    level: as `ThinkingLevel`; its name is taken, too.
    budget_tokens: tokens, for models with a budget; -1 leaves it to models that can decide it.
    effort: the provider's own word (`minimal`, `xhigh`, `max`, …).
    include_summary: whether thinking text is wanted back (None: yes, where the dialect offers it).
    """

    level: ThinkingLevel | None = None
    budget_tokens: int | None = None
    effort: str | None = None
    include_summary: bool | None = None


@dataclass(slots=True, frozen=True)
class Tool:
    """A function that the model may ask for. `parameters` is a JSON Schema object.

    strict: hold the model to the schema, for dialects that can (None: the dialect's default).
    """

    name: str
    description: str = ""
    parameters: JSONObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None
    cache_control: CacheControl | None = None


class RequestOptions(TypedDict, total=False):
    """The options of a `Request`, for functions that pass them on: `**options: Unpack[ms.RequestOptions]`.

    `Request` says what each of them means."""

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


class _CachedForm:
    """What a request keeps beside its value: the cache of its conversation's wire form. It is not compared, shown or
    copied."""

    __slots__ = ("_prefix_cache",)


@dataclass(slots=True, frozen=True)
class Request(_CachedForm):
    """One request. Only `model` and `messages` are needed; None leaves a setting to the server.

    model: the model's name, with or without its provider's: `"claude-sonnet-4-5"`, `"vllm/llama-3"`.
    messages: the conversation, oldest first.
    system: the system prompt, text or text blocks.
    tools: the functions that the model may ask for.
    tool_choice: `auto`, `none`, `required`, or a tool's name.
    thinking: a level, by name too (`"high"`), or a `ThinkingConfig`.
    max_output_tokens: the longest answer.
    temperature: how much chance there is in the answer, from 0.
    top_p: only the most probable tokens, up to this sum of their probabilities.
    stop: texts at which the answer ends.
    seed: for answers that can be repeated, where the server offers that.
    response_schema: a JSON Schema that the answer's text must fit, or a class that makes one (`model_json_schema`, as
        pydantic's models have); the JSON object is then on `response.parsed`.
    parallel_tool_calls: whether one answer may ask for several tools.
    metadata: names and values that the provider keeps with the request.
    timeouts: the clocks of this call; those that are None are the engine's.
    retry: how often this call is attempted. Default: the engine's.
    extra_body: members merged into the wire body last.
    extra_headers: headers added last; no repr shows them.
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

    @property
    def system_blocks(self) -> list[Text]:
        """The system prompt as blocks, empty ones left out."""
        if self.system is None:
            return []
        blocks = [Text(self.system)] if isinstance(self.system, str) else list(self.system)
        return [block for block in blocks if block.text]

    @property
    def thinking_config(self) -> ThinkingConfig | None:
        """The thinking option in its long form, its level a `ThinkingLevel`."""
        thinking = self.thinking
        if isinstance(thinking, ThinkingConfig):
            level = thinking.level
            return thinking if level is None else replace(thinking, level=LEVEL_NAMES[level])
        return None if thinking is None else ThinkingConfig(level=LEVEL_NAMES[thinking])


def with_prefix_cache(request: Request, cache: PrefixCache) -> Request:
    """Give a request that a conversation has just made the conversation's cache. Returns the same request."""
    object.__setattr__(request, "_prefix_cache", cache)
    return request


def prefix_cache_of(request: Request) -> PrefixCache | None:
    """The cache of the conversation that made the request; None for any other request."""
    cache: PrefixCache | None = getattr(request, "_prefix_cache", None)
    return cache
