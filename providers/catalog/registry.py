"""The dialects by name: a row of what is known of each without importing it. It is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import InvalidRequestError
from ..json.json_types import JSONObject
from .profile import Profile

if TYPE_CHECKING:
    from ..model.request import Request
    from .dialect import Dialect


def _starts(value: JSONObject, name: str, *beginnings: str) -> bool:
    member = value.get(name)
    return type(member) is str and member.startswith(beginnings)


def _has_list(value: JSONObject, name: str) -> bool:
    return type(value.get(name)) is list


@dataclass(slots=True, frozen=True)
class DialectRow:
    """What is known of a dialect. A part that a dialect does not have is empty.

    package: the package that implements it.
    endpoint: a pattern of what the URL of a model call has behind the base URL's path.
    charges_as: the profile whose servers count requests as most servers of the dialect do.
    limits: the module with its `read_report`, which reads what a response reports of limits.
    conversation: the member of a body that has the conversation; empty for a dialect whose requests have a prompt. One
        with a conversation has a module `arguments`, which reads the arguments of its SDK.
    api: the name of its API, for messages.
    provider: the public class of its providers.
    is_form_of: whether an answer, or an event of one, has its form.
    """

    package: str
    endpoint: str
    charges_as: str = ""
    limits: str = ""
    conversation: str = ""
    api: str = ""
    provider: str = ""
    is_form_of: Callable[[JSONObject], bool] | None = None


ROWS: dict[str, DialectRow] = {
    "openai-chat": DialectRow(
        "..openai.chat", r"/(?:chat/completions|responses)/*$", "", "..openai.rate_limits", "messages",
        "OpenAI's Chat Completions", "OpenAIChat", lambda value: _has_list(value, "choices"),
    ),
    "openai-responses": DialectRow(
        "..openai.responses", r"/(?:chat/completions|responses)/*$", "", "..openai.rate_limits", "input",
        "OpenAI's Responses", "OpenAIResponses",
        lambda value: (
            _starts(value, "type", "response.") or (value.get("object") == "response" and _has_list(value, "output"))
        ),
    ),
    "anthropic": DialectRow(
        "..anthropic", r"/v1/messages/*$|/publishers/anthropic(?:/models(?:/[^/]*:\w+)?)?/*$", "anthropic",
        "..anthropic.rate_limits", "messages", "Anthropic's Messages", "Anthropic",
        lambda value: (
            _starts(value, "type", "message_", "content_block_")
            or (value.get("type") == "message" and _has_list(value, "content"))
        ),
    ),
    "gemini": DialectRow(
        "..gemini", r"/models(?:/[^/]*:[^/]*)?/*$", "google", "..gemini.rate_limits", "contents",
        "Gemini's generateContent", "Gemini", lambda value: _has_list(value, "candidates"),
    ),
    "gemini-interactions": DialectRow(
        "..gemini_interactions", r"/interactions/*$", "google", "..gemini.rate_limits", "input",
        "Gemini's Interactions", "GeminiInteractions",
        lambda value: value.get("object") == "interaction" or type(value.get("event_type")) is str,
    ),
    "vllm-generate": DialectRow(
        "..generate", r"(?:/inference)?/v1(?:/generate|/completions|/chat/completions)?/*$", "vllm"
    ),
    "sglang-generate": DialectRow("..generate", r"/(?:generate|v1)/*$", "sglang"),
    "openai-completions": DialectRow("..generate", r"/(?:chat/)?completions/*$"),
}  # fmt: skip
"""Name of a dialect → its row. If a provider's name belongs to several dialects, the first of this table is used."""

DIALECT_MODULES: dict[str, str] = {name: row.package for name, row in ROWS.items() if row.conversation}
"""Name of a dialect for conversations → the package that implements it."""

PROMPT_DIALECTS: tuple[str, ...] = tuple(name for name, row in ROWS.items() if not row.conversation)
"""Names of the dialects whose requests have a prompt and no conversation. They are in one package."""

DURABLE_DIALECTS = "OpenAI Responses (ms.OpenAIResponses) and Gemini Interactions (ms.GeminiInteractions)"
"""The dialects of this library whose servers keep answers, for errors."""


class Dialects(Mapping[str, "Dialect"]):
    """Dialect name → dialect. A dialect is imported when it is first used: most programs use one or two of them.

    Those for conversations are its members; the others are found by their names.
    """

    def __init__(self) -> None:
        self._loaded: dict[str, Dialect] = {}

    def __getitem__(self, name: str) -> Dialect:
        dialect = self._loaded.get(name)
        if dialect is None and name in PROMPT_DIALECTS:
            dialect = self._loaded[name] = import_module("..generate", __package__).DIALECTS[name]
        elif dialect is None:
            dialect = self._loaded[name] = import_module(DIALECT_MODULES[name], __package__).DIALECT
        return dialect

    def __iter__(self) -> Iterator[str]:
        return iter(DIALECT_MODULES)

    def __len__(self) -> int:
        return len(DIALECT_MODULES)


DIALECTS = Dialects()


def check_dialect(profile: Profile) -> None:
    """Raise `InvalidRequestError` if a profile names a dialect that there is not. Imports no dialect."""
    known = (*DIALECT_MODULES, *PROMPT_DIALECTS)
    if isinstance(profile.dialect, str) and profile.dialect not in known:
        raise InvalidRequestError(
            "profile.dialect",
            f"no dialect is named {profile.dialect!r}; known are {', '.join(known)}; for another wire format"
            " give the Dialect itself: Profile(dialect=my_dialect)",
        )


def dialect_of(profile: Profile) -> Dialect:
    """Return the dialect that a profile contains or names. Raises `InvalidRequestError` for an unknown name."""
    check_dialect(profile)
    return DIALECTS[profile.dialect] if isinstance(profile.dialect, str) else profile.dialect


def read_arguments(dialect: str, arguments: Mapping[str, object]) -> Request:
    """Return the request of the arguments of an SDK's call. Raises `InvalidRequestError`."""
    read: Callable[[Mapping[str, object]], Request]
    read = import_module(f"{ROWS[dialect].package}.arguments", __package__).read_arguments
    return read(arguments)
