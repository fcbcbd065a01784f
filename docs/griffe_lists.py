"""Shows the attributes, parameters and options that a docstring describes as a list, one line each, with an anchor.

Our docstrings have one line per name, `name: meaning`, which Markdown would join into one paragraph. The anchor is the
path of the object and the name: `#manystream.engine.options.EngineOptions--retry`.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"(?P<names>\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*): (?P<meaning>.*)")


def as_list(text: str) -> str:
    """Return a docstring with its lines `name: meaning` as a list. Indented lines continue an entry.

    mkdocstrings puts the path of the object before each anchor.
    """
    lines: list[str] = []
    in_entry = False
    for line in text.splitlines():
        entry = ENTRY.fullmatch(line)
        if entry is not None:
            if not in_entry and lines and lines[-1]:
                lines.append("")
            names = (name.strip() for name in entry["names"].split(","))
            shown = ", ".join(f"`{name}`{{ #{name.lstrip('*')} }}" for name in names)
            lines.append(f"- {shown}: {entry['meaning']}")
            in_entry = True
        else:
            if in_entry and line and not line.startswith(" "):
                lines.append("")
            in_entry = in_entry and line.startswith(" ")
            lines.append(line)
    return "\n".join(lines)


class Lists(griffe.Extension):
    """The extension that mkdocstrings loads."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a class or function."""
        if obj.docstring is not None and (obj.is_class or obj.is_function):
            obj.docstring.value = as_list(obj.docstring.value)
