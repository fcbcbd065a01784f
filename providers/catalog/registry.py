"""The dialects by name. A dialect is imported when it is first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import InvalidRequestError
from .profile import Profile

if TYPE_CHECKING:
    from .dialect import Dialect

DIALECT_MODULES: dict[str, str] = {
    "openai-chat": "..openai.chat",
    "openai-responses": "..openai.responses",
    "anthropic": "..anthropic",
    "gemini": "..gemini",
    "gemini-interactions": "..gemini_interactions",
}
"""Name of a dialect for conversations → the package that implements it."""

PROMPT_DIALECTS = ("vllm-generate", "sglang-generate", "openai-completions")
"""Names of the dialects whose requests have a prompt and no conversation. They are in one package."""


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
