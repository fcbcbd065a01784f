"""Messages and the content blocks they are made of. Pure values: no ids of their own, no storage, no dialect.

One message model serves every system in this package; rows, histories and wire formats are views of it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .errors import InvalidRequestError
from .exact_numbers import has_odd_numbers
from .json_values import JSON, JSONObject, MalformedJSONError, held_loads, strict_loads


class Role(enum.StrEnum):
    """Who speaks. The system prompt is a field of the request, not a role."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(slots=True, frozen=True)
class ProviderState:
    """What a provider wants back unchanged with the block it came with: signatures, encrypted items.

    provider: the profile that made it (`anthropic`, `openai-responses`, `google`, …). It is sent back only there.
    data: the provider's own members, in its wire form.
    """

    provider: str
    data: JSONObject


@dataclass(slots=True, frozen=True)
class CacheControl:
    """A mark "the prompt up to here may be cached", for dialects that have one. `ttl`: `5m`, `1h`, or default."""

    ttl: Literal["5m", "1h"] | None = None


@dataclass(slots=True)
class Text:
    """Text. `citations` are the provider's own objects, in order, where it cites sources."""

    text: str
    citations: list[JSONObject] = field(default_factory=lambda: [])
    cache_control: CacheControl | None = None
    state: ProviderState | None = None


@dataclass(slots=True)
class Thinking:
    """The model's visible reasoning. `signature` proves it to the provider that made it (`state.provider`;
    a signature without a state is taken to be Anthropic's, the only one that signs thinking text)."""

    text: str
    signature: str | None = None
    state: ProviderState | None = None


@dataclass(slots=True)
class RedactedThinking:
    """Reasoning that the provider encrypted (Anthropic `redacted_thinking`): sent back unchanged, never shown."""

    data: str
    state: ProviderState | None = None


@dataclass(slots=True)
class ToolCall:
    """A call that the model asks its caller to make.

    arguments: the JSON text as received; `parsed` gives the object.
    complete: False where the answer was cut off before the call ended: do not execute it.
    """

    id: str
    name: str
    arguments: str
    complete: bool = True
    state: ProviderState | None = None
    cache_control: CacheControl | None = None

    @property
    def parsed(self) -> JSONObject:
        """The arguments as an object; no text at all is the empty object. Raises `MalformedJSONError`, for a number
        that Python cannot hold with its path."""
        try:
            value = strict_loads(self.arguments)
        except ValueError:
            if not self.arguments.strip():
                return {}
            value = held_loads(self.arguments)
        else:
            if has_odd_numbers(self.arguments):
                value = held_loads(self.arguments)
        if type(value) is not dict:
            raise MalformedJSONError(f"the arguments of {self.name!r} are no JSON object: {self.arguments[:200]!r}")
        return value


@dataclass(slots=True)
class Image:
    """A picture: exactly one of `data` (bytes), `url` or `file_id`. `media_type` is needed with `data`.

    detail: `low`, `high` or `auto`, for dialects that have it.
    """

    data: bytes | None = None
    media_type: str | None = None
    url: str | None = None
    file_id: str | None = None
    detail: Literal["auto", "low", "high"] | None = None
    cache_control: CacheControl | None = None
    state: ProviderState | None = None

    @classmethod
    def from_base64(cls, data: str, media_type: str) -> Image:
        """A picture from base64 text."""
        import base64

        return cls(data=base64.b64decode(data, validate=True), media_type=media_type)


@dataclass(slots=True)
class File:
    """A document, sound or film: exactly one of `data` (bytes), `url` or `file_id`."""

    data: bytes | None = None
    media_type: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    cache_control: CacheControl | None = None
    state: ProviderState | None = None

    @classmethod
    def from_base64(cls, data: str, media_type: str, name: str | None = None) -> File:
        """A file from base64 text."""
        import base64

        return cls(data=base64.b64decode(data, validate=True), media_type=media_type, name=name)


@dataclass(slots=True)
class ToolResult:
    """What a tool call gave. `content` is text, or blocks (text, images, files) for dialects that take them."""

    tool_call_id: str
    content: str | list[Text | Image | File]
    is_error: bool = False
    cache_control: CacheControl | None = None

    @property
    def text(self) -> str:
        """The text of the content, blocks joined without separator."""
        if isinstance(self.content, str):
            return self.content
        return "".join(block.text for block in self.content if isinstance(block, Text))


@dataclass(slots=True)
class ProviderBlock:
    """Content that only its provider understands: a server-side tool call and its result, a compaction, …

    Kept in its place, as received, and sent back only to the provider that made it. Never a call for the caller.
    """

    provider: str
    data: JSONObject

    @property
    def kind(self) -> str:
        """The provider's own name for it (`server_tool_use`, `web_search_call`, …)."""
        kind = self.data.get("type")
        return kind if isinstance(kind, str) else ""


Block: TypeAlias = "Text | Thinking | RedactedThinking | ToolCall | ToolResult | Image | File | ProviderBlock"
BLOCK_TYPES = (Text, Thinking, RedactedThinking, ToolCall, ToolResult, Image, File, ProviderBlock)

Content: TypeAlias = "str | Block | Iterable[Block]"


def blocks_of(content: Content) -> list[Block]:
    """Content as callers write it → a list of blocks. A string is one text block. Raises `InvalidRequestError` for what
    holds no blocks."""
    if isinstance(content, str):
        return [Text(content)]
    if isinstance(content, BLOCK_TYPES):
        return [content]
    given: object = content
    if isinstance(given, bytes | dict) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(content).__name__
        raise InvalidRequestError("content", f"must be text, a block or a list of blocks, not {kind}")
    return list(content)


def role_of(role: Role | str) -> Role:
    """A role by its name. Raises `InvalidRequestError`."""
    try:
        return Role(role)
    except ValueError:
        names = ", ".join(repr(each.value) for each in Role)
        hint = "; a system prompt is the request's system=…" if role in ("system", "developer") else ""
        raise InvalidRequestError("role", f"must be one of {names}, not {role!r}{hint}") from None


@dataclass(slots=True)
class Message:
    """One turn, or a part of one. `content` may be given as text, a block, or blocks; it is kept as a list.

    provider_metadata: members that belong to the whole message rather than to a block; never sent elsewhere.
    """

    role: Role
    content: list[Block]
    provider_metadata: dict[str, JSON] = field(default_factory=lambda: {})

    def __init__(self, role: Role | str, content: Content, provider_metadata: dict[str, JSON] | None = None) -> None:
        self.role = role if type(role) is Role else role_of(role)
        self.content = blocks_of(content)
        self.provider_metadata = {} if provider_metadata is None else provider_metadata

    @classmethod
    def user(cls, content: Content) -> Message:
        """What the user says: text, or blocks."""
        return cls(Role.USER, content)

    @classmethod
    def assistant(cls, content: Content) -> Message:
        """What the model said: text, or blocks."""
        return cls(Role.ASSISTANT, content)

    @classmethod
    def tool_call(cls, id: str, name: str, arguments: str) -> Message:
        """An assistant message with one tool call; `arguments` is JSON text. Raises `InvalidRequestError` for an id,
        name or arguments that are no text, and for an empty id or name."""
        _check_call(id, name, arguments)
        return cls(Role.ASSISTANT, ToolCall(id, name, arguments))

    @classmethod
    def tool_result(
        cls, tool_call_id: str, content: str | list[Text | Image | File], is_error: bool = False
    ) -> Message:
        """A tool message with one result. Raises `InvalidRequestError` for an id that is empty or no text."""
        _check_text("tool_call_id", tool_call_id)
        return cls(Role.TOOL, ToolResult(tool_call_id, content, is_error))

    @classmethod
    def tool_call_with_thinking(
        cls,
        *,
        thinking_text: str | None = None,
        thinking_signature: str | None = None,
        redacted_data: str | None = None,
        tool_id: str,
        tool_name: str,
        tool_arguments: str,
    ) -> Message:
        """An assistant message whose blocks are, in this order: thinking (where text is given), redacted thinking
        (where data is given), tool call. Anthropic wants the thinking back before the call it led to. Raises
        `InvalidRequestError` for an id, name or arguments that are no text, and for an empty id or name."""
        _check_call(tool_id, tool_name, tool_arguments, prefix="tool_")
        content: list[Block] = []
        if thinking_text is not None:
            content.append(Thinking(thinking_text, thinking_signature))
        if redacted_data is not None:
            content.append(RedactedThinking(redacted_data))
        content.append(ToolCall(tool_id, tool_name, tool_arguments))
        return cls(Role.ASSISTANT, content)

    @property
    def text(self) -> str:
        """The text blocks, joined without separator."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls, in order."""
        return [block for block in self.content if isinstance(block, ToolCall)]


def _check_call(id: object, name: object, arguments: object, *, prefix: str = "") -> None:
    _check_text(f"{prefix}id", id)
    _check_text(f"{prefix}name", name)
    _check_text(f"{prefix}arguments", arguments, may_be_empty=True)


def _check_text(field_name: str, value: object, *, may_be_empty: bool = False) -> None:
    if not isinstance(value, str):
        raise InvalidRequestError(field_name, f"must be text, not {type(value).__name__}")
    if not value and not may_be_empty:
        raise InvalidRequestError(field_name, "must not be empty")
