"""How much memory an answer under construction takes, measured as bytes of text.

Walks containers, strings and objects with slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

SHARED = frozenset({"provider", "make_id", "target", "template"})
"""Slots of a stream machine that contain no part of the answer, or one that the answer contains as well."""


def kept_bytes(root: object) -> int:
    """Return the characters of all reachable strings and bytes, plus one for every other value, each counted once."""
    size = 0
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str | bytes):
            size += len(value)
            continue
        size += 1
        if value is None or isinstance(value, bool | int | float | type) or id(value) in seen:
            continue
        seen.add(id(value))
        waiting.extend(_inside(value))
    return size


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return (*members.keys(), *members.values())
    if isinstance(value, list | tuple | set):
        return cast("Iterable[object]", value)
    names = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    return [getattr(value, name, None) for name in names if name not in SHARED]
