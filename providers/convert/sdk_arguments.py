"""Functions that the readers of all SDKs' arguments share.

They convert an SDK's values to plain JSON, refuse unknown argument names, read the options of a call, and read the
conversation through the dialect's converter. An object of an SDK is read with its own method `model_dump`; no SDK is
imported.

| option of the call | result |
|---|---|
| `timeout` | `Timeouts`: `connect` for the connection, `read` for the first byte and between bytes |
| `extra_headers` | `Request.extra_headers` |
| `extra_body` | `Request.extra_body`; its members replace arguments of the same name |
| `extra_query` | refused: a query is part of the provider (`Quirks.query`) |
| `stream` | ignored: `engine.stream` and `engine.request` decide it |
| `stream_options` | sent as given with calls that are streamed, left out of the others |
"""

from __future__ import annotations

import base64
import difflib
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol, TypeAlias, cast, runtime_checkable

from ..errors import InvalidRequestError
from ..history.converter import HistoryConverter
from ..history.view import HistoryError
from ..json.json_values import JSON, JSONObject
from ..model.messages import BLOCK_TYPES, Message, Text, leading_system
from ..model.options import Timeouts
from ..model.structured import is_schema

ABSENT = frozenset({"NotGiven", "Omit"})
"""The names of the classes by whose values an SDK marks arguments that were not given."""

SDK_PACKAGES = frozenset({"openai", "anthropic"})

CALL_OPTIONS = ("extra_headers", "extra_query", "extra_body", "timeout", "stream")

DEEPEST = 200
"""The largest number of levels of an argument. A deeper one is an error, such as a list that contains itself."""

SystemPrompt: TypeAlias = str | list[Text] | None


@runtime_checkable
class Dumpable(Protocol):
    """A pydantic model. All SDKs use these for their values."""

    def model_dump(
        self,
        *,
        mode: str,
        by_alias: bool,
        exclude_unset: bool,
        exclude_none: bool,
        exclude: object,
        warnings: bool,
    ) -> dict[str, object]: ...


@runtime_checkable
class ToDict(Protocol):
    """A tool that an SDK has made from a function, such as anthropic's `@beta_tool`."""

    def to_dict(self) -> Mapping[str, object]: ...


@dataclass(slots=True)
class CallOptions:
    """The options of an SDK's call that are not members of the body."""

    timeouts: Timeouts | None = None
    extra_headers: dict[str, str] | None = None
    extra_body: JSONObject = field(default_factory=lambda: {})


def is_absent(value: object) -> bool:
    """Return True if the value is an SDK's mark for an argument that was not given."""
    return type(value).__name__ in ABSENT and _package(value) in SDK_PACKAGES


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def present(arguments: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in arguments.items() if not is_absent(value)}


def check_names(arguments: Mapping[str, object], known: Iterable[str], method: str) -> None:
    """Raise `InvalidRequestError` if the SDK's method does not have one of the arguments."""
    names = sorted(known)
    for name in arguments:
        if name in names:
            continue
        close = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {close[0]!r}?" if close else "a member that only the server knows goes into extra_body"
        raise InvalidRequestError(name, f"is no argument of {method}; {hint}")


def plain(value: object, where: str, depth: int = 0, *, base64_bytes: bool = False) -> JSON:
    """Convert an argument to plain JSON. Objects of an SDK are dumped, and iterables become lists.

    Raises `InvalidRequestError` with the path of a value that JSON does not have.

    where: the path of the value.
    depth: the number of levels around the value.
    base64_bytes: convert bytes to base64 text in the alphabet for URLs.
    """
    if value is None or type(value) in (str, int, bool):
        return cast("JSON", value)
    if depth > DEEPEST:
        raise InvalidRequestError(where, "is nested too deeply")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequestError(where, f"JSON cannot carry the number {value}")
        return value
    if isinstance(value, Enum):
        return plain(value.value, where, depth + 1, base64_bytes=base64_bytes)
    if isinstance(value, Mapping):
        return _plain_object(cast("Mapping[object, object]", value), where, depth, base64_bytes=base64_bytes)
    if isinstance(value, (Message, *BLOCK_TYPES)):
        raise InvalidRequestError(where, "is a value of manystream: build a Request of such ones, Request(model, […])")
    if isinstance(value, Dumpable) and not isinstance(value, type):
        return _plain_object(cast("Mapping[object, object]", dumped(value)), where, depth, base64_bytes=base64_bytes)
    if _package(value) in SDK_PACKAGES and isinstance(value, ToDict):
        return _plain_object(cast("Mapping[object, object]", value.to_dict()), where, depth, base64_bytes=base64_bytes)
    if isinstance(value, (str, int)):
        return str(value) if isinstance(value, str) else int(value)
    if isinstance(value, (list, tuple, Iterator)) and not isinstance(value, io.IOBase):
        items = cast("Iterable[object]", value)
        return [
            plain(item, f"{where}[{place}]", depth + 1, base64_bytes=base64_bytes) for place, item in enumerate(items)
        ]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")  # as pydantic writes it
    if base64_bytes and isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).decode()
    raise InvalidRequestError(where, f"cannot be carried: {_described(value)}")


def dumped(value: Dumpable) -> dict[str, object]:
    """Return the members of an SDK's object that were set, in the form that the SDK itself sends."""
    exclude: object = getattr(value, "__api_exclude__", None)
    # google-genai sends what is not None, such as the role of a `ModelContent`, which is a default.
    google = any(kind.__module__.startswith("google.genai.") for kind in type(value).__mro__)
    return value.model_dump(
        mode="json", by_alias=True, exclude_unset=not google, exclude_none=google, exclude=exclude, warnings=False
    )


def _plain_object(value: Mapping[object, object], where: str, depth: int, *, base64_bytes: bool) -> JSONObject:
    members: JSONObject = {}
    for name, member in value.items():
        if type(name) is int:  # as `json.dumps` writes it: the tokens of a `logit_bias` are often numbers
            name = str(name)
        if not isinstance(name, str):
            raise InvalidRequestError(where, f"must have text as names, not {type(name).__name__}")
        if not is_absent(member):
            place = f"{where}.{name}" if where else name
            members[name] = plain(member, place, depth + 1, base64_bytes=base64_bytes)
    return members


def _described(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes; give them as base64 text"
    if isinstance(value, io.IOBase) or hasattr(value, "__fspath__"):
        return "a file; give its content as base64 text"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value):
        return "a function; describe it as a tool with its JSON Schema"
    return f"{type(value).__name__} is neither JSON nor an object of an SDK"


# --- the call itself ---


def take_call_options(arguments: dict[str, object]) -> CallOptions:
    """Remove the options of the call from the arguments, and return them. Raises `InvalidRequestError`."""
    options = CallOptions()
    arguments.pop("stream", None)
    if arguments.pop("extra_query", None):
        raise InvalidRequestError(
            "extra_query", "cannot be carried: a query belongs to the provider, profile.quirks.query"
        )
    if "timeout" in arguments:
        options.timeouts = timeouts_of(arguments.pop("timeout"), "timeout")
    headers = arguments.pop("extra_headers", None)
    if headers is not None:
        options.extra_headers = headers_of(headers, "extra_headers")
    body = plain(arguments.pop("extra_body", None), "extra_body")
    if body is not None and type(body) is not dict:
        raise InvalidRequestError("extra_body", f"must be a dict, not {type(body).__name__}")
    options.extra_body = body or {}
    return options


def headers_of(value: object, where: str) -> dict[str, str]:
    """Return the headers as strings, by name. Raises `InvalidRequestError`."""
    headers = plain(value, where)
    if type(headers) is not dict:
        raise InvalidRequestError(where, "must be a dict of texts")
    found: dict[str, str] = {}
    for name, text in headers.items():
        if type(text) is not str:
            raise InvalidRequestError(f"{where}[{name!r}]", "must be text")
        found[name] = text
    return found


def timeouts_of(value: object, where: str) -> Timeouts:
    """Convert an SDK's timeout to `Timeouts`. Raises `InvalidRequestError`.

    A number applies to each phase separately, as in httpx. None disables the timeouts. The phases `write` and `pool` of
    an `httpx.Timeout` have no counterpart here and are ignored.
    """
    phases: list[object] = [getattr(value, name, value) for name in ("connect", "read")]
    connect, read = (_clock(phase, where) for phase in phases)
    return Timeouts(connect=connect, first_byte=read, idle=read)


def _clock(seconds: object, where: str) -> float:
    if seconds is None:
        return math.inf
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidRequestError(where, "must be seconds above 0, an httpx.Timeout, or None for no time-out")
    return seconds


# --- the conversation ---


def read_conversation(
    converter: type[HistoryConverter],
    items: Sequence[JSONObject],
    where: str = "",
    warnings: list[str] | None = None,
) -> tuple[list[Message], SystemPrompt]:
    """Return the messages, and the system prompt of the system messages at their beginning.

    Raises `InvalidRequestError`.

    where: the path of the body, for error messages.
    warnings: gets a warning for each kind of member that is left out.
    """
    return split_system(read_turns(converter, items, where, warnings))


def read_turns(
    converter: type[HistoryConverter],
    items: Sequence[JSONObject],
    where: str = "",
    warnings: list[str] | None = None,
) -> list[Message]:
    """Return the messages, system messages included. As `read_conversation`."""
    try:
        return converter().decode_messages(items, warnings=warnings)
    except HistoryError as error:
        place = f"{where}.{error.where}" if where else error.where
        raise InvalidRequestError(place, str(error).removeprefix(f"{error.where}: ")) from None


def split_system(messages: list[Message]) -> tuple[list[Message], SystemPrompt]:
    """Return the messages without the system messages at their beginning, and the system prompt that these are: one
    text, or blocks if a text has a cache mark.
    """
    lead = leading_system(messages)
    blocks = [block for message in messages[:lead] for block in message.content]
    texts = [Text(block.text, cache_control=block.cache_control) for block in blocks if isinstance(block, Text)]
    if any(text.cache_control is not None for text in texts):
        return messages[lead:], [text for text in texts if text.text]
    return messages[lead:], joined_system(*(text.text for text in texts))


def joined_system(*prompts: SystemPrompt) -> SystemPrompt:
    """Return system prompts as one: a text, or blocks if one of them is blocks."""
    texts = [prompt for prompt in prompts if isinstance(prompt, str) and prompt]
    if len(texts) == sum(bool(prompt) for prompt in prompts):
        return "\n\n".join(texts) or None
    blocks = [[Text(prompt)] if isinstance(prompt, str) else prompt for prompt in prompts if prompt]
    return [block for prompt in blocks for block in prompt]


def never_empty(messages: list[Message], system: SystemPrompt) -> tuple[list[Message], SystemPrompt]:
    """Return the messages and the system prompt of a whole request. A system prompt alone becomes the user's message.

    OpenAI answers a system message alone. No other provider does.
    """
    if system and not messages:
        return [Message.user([*system] if isinstance(system, list) else system)], None
    return messages, system


def schema_class(value: object, where: str) -> type:
    """Return `value` if it is a class that has a JSON Schema. Raises `InvalidRequestError` if not."""
    if not isinstance(value, type) or not is_schema(value):
        raise InvalidRequestError(where, f"must be a class with model_json_schema(), not {_described(value)}")
    return value
