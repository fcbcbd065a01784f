"""A provider's row of data: where it is, how its key is called, and where it departs from its dialect.

Knows the shape of a row. Must not know any row (`profiles` does) nor any dialect's code: what a quirk's value
means on the wire is the dialect's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from .dialect import Dialect

MaxTokensMember: TypeAlias = Literal["max_completion_tokens", "max_tokens", "by_model"]
ThinkingMember: TypeAlias = Literal[
    "reasoning_effort",
    "reasoning",
    "thinking_type",
    "thinking_budget",
    "enable_thinking",
    "chat_template_kwargs",
    "none",
]
ReasoningReturn: TypeAlias = Literal[
    "none", "as_received", "reasoning_content", "reasoning", "reasoning_details", "thinking_parts"
]
ToolNameForm: TypeAlias = Literal["any", "word_64", "word_128", "gemini"]
ToolCallIdForm: TypeAlias = Literal["any", "at_most_40", "nine_alphanumerics"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Quirks:
    """Where a server departs from its dialect. Every member's default is the dialect's own way; those after
    `strict_end`, `auth_header`, `query` and `headers` are read by OpenAI Chat alone unless they say otherwise.

    The stream's end and the way in:

    - strict_end: the stream's terminal marker is required; otherwise a finish reason and the end of the body will do.
    - auth_header: the header that carries the key. `authorization` carries it as `Bearer …`, any other one bare.
    - query: sent with every request, without `?` (`api-version=…`).
    - headers: sent with every request.
    - tool_name: the names of tools that are accepted, in every dialect (Gemini has one form for all its servers). A
      tool of the request with another name is an error; in the conversation such a name is replaced by one derived
      from it. `word_64`, `word_128`: so many letters, digits, `_` and `-`.

    How a request is spelled:

    - max_tokens_member: the member for `max_output_tokens`. `by_model`: `max_completion_tokens` for OpenAI's
      reasoning models, which refuse the other, and `max_tokens` for the rest, which every server knows.
    - stream_usage: `stream_options.include_usage` may be sent (some servers refuse the member, and report anyway).
    - system_role: the role of the system prompt.
    - thinking: how thinking is asked for. `reasoning_effort: word`; `reasoning: {effort | max_tokens, exclude}`
      (OpenRouter); `thinking: {type: enabled | disabled}` (`thinking_type`: DeepSeek, Z.ai, Moonshot);
      the same with `budget_tokens` (`thinking_budget`: Claude behind a chat server); `enable_thinking` with
      `thinking_budget` (Alibaba); `chat_template_kwargs: {enable_thinking}` (servers that run open models);
      or not at all.
    - efforts: the effort words for the levels NONE, LOW, MED and HIGH, for models that OpenAI's table does not hold.
    - tool_call_id: the ids that are accepted; any other id is replaced by one derived from it, in call and result.
    - required_tool_choice: the word for "some tool must be called".
    - named_tool_choice: one tool can be demanded by name.
    - reasoning_refuses_sampling: OpenAI's reasoning models refuse `temperature` and `top_p` here, as at OpenAI.
    - seed_member: the member for `seed`; empty where there is none.
    - parallel_tool_calls, metadata, tool_strict: the member is accepted.
    - structured_output: `json_schema`, or `json_object` for servers that can only promise some JSON object.
    - cache_control: Anthropic's cache marks are accepted on content parts.
    - file_parts: documents and sound may be sent as content parts. file_urls: by URL, too. video_parts: films.

    What goes back with the history:

    - reasoning_return: the member that carries the model's own reasoning back with its tool calls. `as_received`:
      under the name it came by. `reasoning_details`: OpenRouter's signed list, else its `reasoning`.
      `thinking_parts`: in the content (Mistral).
    - signed_thinking_only: Anthropic's dialect: thinking without a signature is refused, so it stays behind. A server
      that signs nothing gets its own thinking back.
    - reasoning_required: the member must be there with every tool call, empty where no reasoning is known.
    """

    strict_end: bool = False
    auth_header: str = "authorization"
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    tool_name: ToolNameForm = "any"

    max_tokens_member: MaxTokensMember = "max_completion_tokens"
    stream_usage: bool = True
    system_role: Literal["system", "developer"] = "system"
    thinking: ThinkingMember = "reasoning_effort"
    efforts: tuple[str, str, str, str] = ("none", "low", "medium", "high")
    tool_call_id: ToolCallIdForm = "any"
    required_tool_choice: Literal["required", "any"] = "required"
    named_tool_choice: bool = True
    reasoning_refuses_sampling: bool = False
    seed_member: str = "seed"
    parallel_tool_calls: bool = True
    metadata: bool = True
    tool_strict: bool = True
    structured_output: Literal["json_schema", "json_object"] = "json_schema"
    cache_control: bool = False
    file_parts: bool = True
    file_urls: bool = False
    video_parts: bool = False

    reasoning_return: ReasoningReturn = "none"
    reasoning_required: bool = False
    signed_thinking_only: bool = False


@dataclass(slots=True, frozen=True, kw_only=True)
class Profile:
    """One provider.

    name: its row's name, and the tag on the state it wants back; no two rows share one. dialect: the name of one of the
    four, or a `Dialect` of your own. aliases: other names for
    `"name/model"`. prefixes: beginnings of model names that belong to it. key_variables: environment variables that
    hold its key, first found wins. needs_key: False for servers that run without one. generic: stands for servers
    without a row; its aliases and prefixes count where no known row's do. base_url: empty where every customer has
    their own. addresses: patterns of `host[:port]` or `host[:port]/path` (`*` matches anything) that
    belong to the row besides its own base URL's host.
    """

    name: str
    dialect: str | Dialect
    base_url: str
    key_variables: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    needs_key: bool = True
    generic: bool = False
    addresses: tuple[str, ...] = ()
    quirks: Quirks = field(default_factory=Quirks)

    @property
    def dialect_name(self) -> str:
        """What the dialect is called."""
        return self.dialect if isinstance(self.dialect, str) else self.dialect.name
