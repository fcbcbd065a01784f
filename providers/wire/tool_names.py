"""Which tool names a provider accepts, and how a name that it refuses is replaced.

A tool of the request with a refused name is an error: the model would call it by a name that the caller does not know.
A call in the conversation is history, perhaps from another provider. Its name is replaced, always by the same one, with
a warning.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from ..errors import InvalidRequestError
from ..model.messages import ToolCall
from ..model.request import Tool
from .quirks import ToolNameForm

NAMES_REMEMBERED = 1024
"""Names whose wire form is cached."""


@dataclass(slots=True, frozen=True)
class _Form:
    """One form of tool names.

    pattern: matches a name that is accepted.
    refused: matches a character that is not accepted.
    longest: the maximum length, in characters.
    """

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
"""Name of a form → the form. `any` has no row: it accepts every name."""


def check_tool_names(tools: Sequence[Tool], form: ToolNameForm, provider: str) -> None:
    """Raise `InvalidRequestError` if the provider refuses the name of one of the request's tools."""
    if form == "any":
        return
    for place, tool in enumerate(tools):
        if _wire_name(tool.name, form) != tool.name:
            words = _FORMS[form].words
            raise InvalidRequestError(
                f"tools[{place}].name",
                f"{tool.name!r} is not accepted by {provider!r}, which accepts {words}; rename the tool",
            )


def named_call(call: ToolCall, form: ToolNameForm, warnings: list[str]) -> ToolCall:
    """Return a call of the conversation with a name that the provider accepts. Adds a warning if the name changes."""
    if form == "any":
        return call
    name = _wire_name(call.name, form)
    if name == call.name:
        return call
    warnings.append(f"messages: the tool name {call.name!r} is sent as {name!r}; the provider refuses it as it is")
    return replace(call, name=name)


@functools.lru_cache(maxsize=NAMES_REMEMBERED)
def _wire_name(name: str, form: ToolNameForm) -> str:
    """Return the name if it fits the form, else one derived from it. A digest keeps derived names different."""
    known = _FORMS.get(form)
    if known is None or known.pattern.fullmatch(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"_{known.refused.sub('_', name)}"[: known.longest - 9] + f"_{digest}"
