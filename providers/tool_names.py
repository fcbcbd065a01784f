"""Which names of tools a provider takes, and what becomes of one that it refuses.

Knows the forms of names, from the providers' own documentation. Must not know any wire form.

A tool of the request is refused: the model would call it by another name than the caller's. A call that is part of the
conversation is history, perhaps another provider's: its name is adapted, always to the same text, with a warning.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from .errors import InvalidRequestError
from .messages import ToolCall
from .profile import ToolNameForm
from .request import Tool

NAMES_REMEMBERED = 1024


@dataclass(slots=True, frozen=True)
class _Form:
    """pattern: of a name that is taken. refused: a character that is not. longest: in characters. words: for errors."""

    pattern: re.Pattern[str]
    refused: re.Pattern[str]
    longest: int
    words: str


_NOT_A_WORD = re.compile(r"[^a-zA-Z0-9_-]")

_FORMS: dict[ToolNameForm, _Form] = {
    "word_64": _Form(re.compile(r"[a-zA-Z0-9_-]{1,64}"), _NOT_A_WORD, 64, "letters, digits, _ and -, up to 64"),
    "word_128": _Form(re.compile(r"[a-zA-Z0-9_-]{1,128}"), _NOT_A_WORD, 128, "letters, digits, _ and -, up to 128"),
    "gemini": _Form(
        re.compile(r"[A-Za-z_][A-Za-z0-9_.:\-]{0,127}", re.ASCII),
        re.compile(r"[^A-Za-z0-9_.:\-]", re.ASCII),
        128,
        "letters, digits and _ . : - up to 128, not first a digit",
    ),
}
"""Form, but for `any` → what fits it."""


def check_tool_names(tools: Sequence[Tool], form: ToolNameForm, provider: str) -> None:
    """Refuse the tools of a request whose names the provider refuses. Raises `InvalidRequestError`."""
    for place, tool in enumerate(tools):
        if _wire_name(tool.name, form) != tool.name:
            words = _FORMS[form].words
            raise InvalidRequestError(
                f"tools[{place}].name", f"{tool.name!r} is none that {provider!r} takes: {words}; rename the tool"
            )


def named_call(call: ToolCall, form: ToolNameForm, warnings: list[str]) -> ToolCall:
    """A call of the conversation under a name that the provider takes."""
    if form == "any":
        return call
    name = _wire_name(call.name, form)
    if name == call.name:
        return call
    warnings.append(f"messages: the tool name {call.name!r} is sent as {name!r}; the provider refuses it as it is")
    return replace(call, name=name)


@functools.lru_cache(maxsize=NAMES_REMEMBERED)
def _wire_name(name: str, form: ToolNameForm) -> str:
    """The name itself where it fits the form, else one derived from it; the digest keeps two of those apart."""
    known = _FORMS.get(form)
    if known is None or known.pattern.fullmatch(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"_{known.refused.sub('_', name)}"[: known.longest - 9] + f"_{digest}"
