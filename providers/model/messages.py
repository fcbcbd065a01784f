"""Messages and their content blocks. Pure values: no ids of their own, no storage, no dialect.

All parts of this package share this one message model; rows, histories and wire formats are converted from and to it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar, cast

from ..errors import InvalidRequestError
from ..json.json_types import JSON, JSONObject


class Role(enum.StrEnum):
    """The author of a message.

    SYSTEM is an instruction of the program in the middle of a conversation, which applies from there on. At the
    beginning of a conversation it is the system prompt, a field of the request: `Request(system=…)`.
    """

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


ASSISTANT = Role.ASSISTANT
SYSTEM = Role.SYSTEM
"""The members, for code that compares each message's role."""


@dataclass(slots=True, frozen=True)
class ProviderState:
    """What a provider must get back unchanged with a block: signatures, encrypted items.

    provider: the provider that made it, as its `Provider.maker`: mostly the profile's name (`anthropic`,
        `openai-responses`, `google`, …). It is sent to no other.
    data: the provider's own members, in its wire form.
    """

    provider: str
    data: JSONObject


def state_for(state: ProviderState | None, maker: str) -> JSONObject:
    """Return the members of a state if this provider made it; none of another one's."""
    return state.data if state is not None and state.provider == maker else {}


@dataclass(slots=True, frozen=True)
class CacheControl:
    """A mark that the prompt up to here may be cached, for dialects that have such marks.

    ttl: how long: `5m`, `1h`, or None for the provider's default.
    """

    ttl: Literal["5m", "1h"] | None = None


_no_citations = cast("Callable[[], list[JSONObject]]", list)


@dataclass(slots=True)
class Text:
    """Text.

    text: the text.
    citations: the provider's own objects, in order, if it cites sources.
    cache_control: marks the end of a part of the prompt that may be cached.
    state: what the provider must get back with the block.
    """

    text: str
    citations: list[JSONObject] = field(default_factory=_no_citations)
    cache_control: CacheControl | None = None
    state: ProviderState | None = None


@dataclass(slots=True)
class Thinking:
    """The model's visible reasoning.

    text: the reasoning.
    signature: proves to the provider in `state.provider` that it made the text. A signature without a state counts as
        Anthropic's, the only provider that signs the text of thinking.
    state: what the provider must get back with the block.
    """

    text: str
    signature: str | None = None
    state: ProviderState | None = None


@dataclass(slots=True)
class RedactedThinking:
    """Reasoning that the provider encrypted (Anthropic's `redacted_thinking`). It is sent back unchanged.

    data: the encrypted text.
    state: what the provider must get back with the block.
    """

    data: str
    state: ProviderState | None = None


@dataclass(slots=True)
class ToolCall:
    """A call that the model asks its caller to execute.

    id: connects the call with its result.
    name: the tool's name.
    arguments: the JSON text as received; `parsed` is the object.
    complete: False if the answer was cut off before the call ended. Do not execute such a call.
    state: what the provider must get back with the call.
    cache_control: marks the end of a part of the prompt that may be cached.
    """

    id: str
    name: str
    arguments: str
    complete: bool = True
    state: ProviderState | None = None
    cache_control: CacheControl | None = None

    @property
    def parsed(self) -> JSONObject:
        """The arguments as an object; the empty object if there is no text.

        Raises `MalformedJSONError` if they are no JSON object. For a number that Python cannot represent, the error has
        the number's path.
        """
        from ..json.json_values import parse_object

        return parse_object(self.arguments, f"the arguments of {self.name!r}")


ImageDetail: TypeAlias = Literal["auto", "low", "high", "original"]
IMAGE_DETAILS: dict[str, ImageDetail] = {"auto": "auto", "low": "low", "high": "high", "original": "original"}
"""Name of a detail → the same name, as a value of its type."""


@dataclass(slots=True)
class Image:
    """A picture, with exactly one of `data`, `url` and `file_id`.

    data: the picture's bytes.
    media_type: its MIME type, such as `image/png`; required with `data`.
    url: where the provider fetches it.
    file_id: the provider's id of an uploaded file.
    detail: `low`, `high`, `original` or `auto`, for dialects that have it.
    cache_control: marks the end of a part of the prompt that may be cached.
    state: what the provider must get back with the block.
    """

    data: bytes | None = None
    media_type: str | None = None
    url: str | None = None
    file_id: str | None = None
    detail: ImageDetail | None = None
    cache_control: CacheControl | None = None
    state: ProviderState | None = None

    def __post_init__(self) -> None:
        """Check the source here, where a program most often takes an image's URL or path for its bytes."""
        _check_source(self.data, self.url)

    @classmethod
    def from_base64(cls, data: str, media_type: str) -> Image:
        """Return a picture with the bytes of base64 text. Raises `InvalidRequestError` for text that is not base64, and
        for an empty media type.
        """
        return cls(data=_decoded(data, media_type), media_type=media_type)


@dataclass(slots=True)
class File:
    """A document, sound or film, with exactly one of `data`, `url` and `file_id`.

    data: the file's bytes.
    media_type: its MIME type, such as `application/pdf`; required with `data`.
    url: where the provider fetches it.
    file_id: the provider's id of an uploaded file.
    name: the file's name, for dialects that send it.
    cache_control: marks the end of a part of the prompt that may be cached.
    state: what the provider must get back with the block.
    """

    data: bytes | None = None
    media_type: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    cache_control: CacheControl | None = None
    state: ProviderState | None = None

    def __post_init__(self) -> None:
        """Check the source, as `Image` does."""
        _check_source(self.data, self.url)

    @classmethod
    def from_base64(cls, data: str, media_type: str, name: str | None = None) -> File:
        """Return a file with the bytes of base64 text. Raises `InvalidRequestError` for text that is not base64, and
        for an empty media type.
        """
        if name is not None:
            _check_text("name", name)
        return cls(data=_decoded(data, media_type), media_type=media_type, name=name)


@dataclass(slots=True)
class ToolResult:
    """The result of a tool call.

    tool_call_id: the id of the call.
    content: text, or blocks (text, images, files) for dialects that accept them.
    is_error: whether the tool failed.
    cache_control: marks the end of a part of the prompt that may be cached.
    """

    tool_call_id: str
    content: str | list[Text | Image | File]
    is_error: bool = False
    cache_control: CacheControl | None = None

    @property
    def text(self) -> str:
        """The text of the content, with blocks joined without a separator."""
        if isinstance(self.content, str):
            return self.content
        return "".join(block.text for block in self.content if isinstance(block, Text))


@dataclass(slots=True)
class ProviderBlock:
    """Content that only its provider understands: a server-side tool call and its result, a compaction, …

    It keeps its position, is kept as received, and is sent back only to its provider. It is never a call for the
    caller.

    provider: the provider that made it, as its `Provider.maker`, or the name of the profile that it is for.
    data: the block in the provider's wire form.
    """

    provider: str
    data: JSONObject

    @property
    def kind(self) -> str:
        """The provider's own name for the type of content (`server_tool_use`, `web_search_call`, …)."""
        kind = self.data.get("type")
        return kind if isinstance(kind, str) else ""


Block: TypeAlias = Text | Thinking | RedactedThinking | ToolCall | ToolResult | Image | File | ProviderBlock
BLOCK_TYPES = (Text, Thinking, RedactedThinking, ToolCall, ToolResult, Image, File, ProviderBlock)

Content: TypeAlias = str | Block | Iterable[Block]
BlockItem = TypeVar("BlockItem", bound=Block)


def blocks_of(content: Content) -> list[Block]:
    """Convert content in any accepted form to a list of blocks. A string becomes one text block.

    Raises `InvalidRequestError` for a value that is no content, and for an item that is no block.
    """
    if isinstance(content, str):
        return [Text(content)]
    if isinstance(content, BLOCK_TYPES):
        return [content]
    given: object = content
    if isinstance(given, bytes | dict) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(content).__name__
        raise InvalidRequestError("content", f"must be text, a block or a list of blocks, not {kind}")
    return _checked_blocks(content, BLOCK_TYPES)


def _checked_blocks(content: Iterable[BlockItem], kinds: tuple[type, ...]) -> list[BlockItem]:
    blocks = list(content)
    for position, block in enumerate(blocks):
        if not isinstance(block, kinds):
            names = "a block" if kinds is BLOCK_TYPES else "a Text, Image or File block"
            hint = "; use Text(…)" if isinstance(block, str) else ""
            raise InvalidRequestError(f"content[{position}]", f"must be {names}, not {type(block).__name__}{hint}")
    return blocks


def role_of(role: Role | str) -> Role:
    """Return the role with this name. Raises `InvalidRequestError` for an unknown name."""
    try:
        return Role(role)
    except ValueError:
        names = ", ".join(repr(each.value) for each in Role)
        hint = "; use 'system'" if role == "developer" else ""
        raise InvalidRequestError("role", f"must be one of {names}, not {role!r}{hint}") from None


@dataclass(slots=True)
class Message:
    """One turn of a conversation, or a part of one.

    role: the author.
    content: the blocks. The constructor also accepts text or one block.
    provider_metadata: what a program keeps with the whole message instead of a block. Rows and stores keep it, and no
        provider gets it.
    """

    role: Role
    content: list[Block]
    provider_metadata: dict[str, JSON] = field(default_factory=lambda: {})

    def __init__(self, role: Role | str, content: Content, provider_metadata: dict[str, JSON] | None = None) -> None:
        self.role = role if type(role) is Role else role_of(role)
        self.content = blocks_of(content)
        if provider_metadata is not None and not isinstance(provider_metadata, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError("provider_metadata", f"must be a dict, not {type(provider_metadata).__name__}")
        self.provider_metadata = {} if provider_metadata is None else provider_metadata

    @classmethod
    def user(cls, content: Content) -> Message:
        """Return a message of the user: text, or blocks."""
        return cls(Role.USER, content)

    @classmethod
    def assistant(cls, content: Content) -> Message:
        """Return a message of the model: text, or blocks."""
        return cls(Role.ASSISTANT, content)

    @classmethod
    def system(cls, content: Content) -> Message:
        """Return an instruction in the middle of a conversation: text, or blocks of text.

        OpenAI's dialects and Anthropic have such messages; a request to Gemini with one raises `InvalidRequestError`.
        """
        return cls(Role.SYSTEM, content)

    @classmethod
    def tool_call(cls, id: str, name: str, arguments: str) -> Message:
        """Return an assistant message with one tool call. `arguments` is JSON text.

        Raises `InvalidRequestError` for an id, name or arguments that are not text, and for an empty id or name.
        """
        _check_call(id, name, arguments)
        return cls(Role.ASSISTANT, ToolCall(id, name, arguments))

    @classmethod
    def tool_result(
        cls, tool_call_id: str, content: str | list[Text | Image | File], is_error: bool = False
    ) -> Message:
        """Return a tool message with one result. Raises `InvalidRequestError` for an id that is empty or not text, and
        for content that is no text and no list of blocks.
        """
        return cls(Role.TOOL, checked_result(tool_call_id, content, is_error))

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
        """Return an assistant message with thinking (if text is given), redacted thinking (if data is given) and a tool
        call, in this order: Anthropic requires the thinking before the call that it led to.

        Raises `InvalidRequestError` for an id, name or arguments that are not text, and for an empty id or name.
        """
        _check_call(tool_id, tool_name, tool_arguments, prefix="tool_")
        thought = {
            "thinking_text": thinking_text,
            "thinking_signature": thinking_signature,
            "redacted_data": redacted_data,
        }
        for field_name, value in thought.items():
            if value is not None:
                _check_text(field_name, value, may_be_empty=True)
        content: list[Block] = []
        if thinking_text is not None:
            content.append(Thinking(thinking_text, thinking_signature))
        if redacted_data is not None:
            content.append(RedactedThinking(redacted_data))
        content.append(ToolCall(tool_id, tool_name, tool_arguments))
        return cls(Role.ASSISTANT, content)

    @property
    def text(self) -> str:
        """The text blocks, joined without a separator."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls, in order."""
        return [block for block in self.content if isinstance(block, ToolCall)]


def leading_system(messages: Sequence[Message]) -> int:
    """Return the number of messages at the beginning that are the system prompt: system messages of text only."""
    lead = 0
    for message in messages:
        if message.role is not SYSTEM or not all(isinstance(block, Text) for block in message.content):
            break
        lead += 1
    return lead


def checked_result(
    tool_call_id: str,
    content: str | list[Text | Image | File],
    is_error: bool,
    *,
    id_field: str = "tool_call_id",
    content_field: str = "content",
) -> ToolResult:
    """Return the result of a tool call. Raises `InvalidRequestError` for values that no result has.

    id_field, content_field: the names of the caller's parameters.
    """
    _check_text(id_field, tool_call_id)
    if not isinstance(cast("object", content), str | list):
        raise InvalidRequestError(content_field, f"must be text or a list of blocks, not {type(content).__name__}")
    if not isinstance(content, str):
        try:
            _checked_blocks(content, (Text, Image, File))
        except InvalidRequestError as error:
            place = error.field.replace("content", content_field, 1)
            raise InvalidRequestError(place, str(error).partition(": ")[2]) from None
    if not isinstance(is_error, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequestError("is_error", f"must be True or False, not {type(is_error).__name__}")
    return ToolResult(tool_call_id, content, is_error)


FROM_TEXT = "use url=… for a URL, data=Path(…).read_bytes() for a file, from_base64(…) for base64 text"


def _check_source(data: object, url: object) -> None:
    """Raise `InvalidRequestError` for data that is no bytes, and for a path in place of a URL."""
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        hint = FROM_TEXT
        if isinstance(data, str) and "://" in data[:12]:
            hint = "use url=…"
        elif hasattr(data, "read_bytes"):
            hint = "use data=path.read_bytes()"
        elif hasattr(data, "read"):
            hint = "use data=file.read()"
        raise InvalidRequestError("data", f"must be bytes, not {type(data).__name__}; {hint}")
    if hasattr(url, "__fspath__"):
        raise InvalidRequestError("url", "must be text, not a path; use data=path.read_bytes()")


def _decoded(data: str, media_type: str) -> bytes:
    import base64

    _check_text("data", data, may_be_empty=True)
    _check_text("media_type", media_type)
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:  # not base64, or not ASCII
        raise InvalidRequestError("data", "is not base64 text") from None


def _check_call(id: object, name: object, arguments: object, *, prefix: str = "") -> None:
    _check_text(f"{prefix}id", id)
    _check_text(f"{prefix}name", name)
    _check_text(f"{prefix}arguments", arguments, may_be_empty=True)


def _check_text(field_name: str, value: object, *, may_be_empty: bool = False) -> None:
    if not isinstance(value, str):
        raise InvalidRequestError(field_name, f"must be text, not {type(value).__name__}")
    if not value and not may_be_empty:
        raise InvalidRequestError(field_name, "must not be empty")
