"""Shows a table of the package as plain values, so that a test can compare it with a literal copy."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from typing import Any, cast


def table(place: str) -> object:
    """Return a table as plain values.

    place: module and name, such as `providers.openai.thinking.EFFORTS`.
    """
    module, _, name = place.rpartition(".")
    return plain(getattr(import_module(f"manystream.{module}"), name))


def plain(value: object) -> object:
    """Return a value with texts for members of enumerations, functions, classes and patterns; tuples for records."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, re.Pattern):
        return cast("re.Pattern[Any]", value).pattern
    if isinstance(value, dict):
        return {plain(key): plain(member) for key, member in cast("dict[object, object]", value).items()}
    if isinstance(value, set | frozenset):
        return {plain(member) for member in cast("set[object]", value)}
    if isinstance(value, tuple | list):
        return tuple(plain(member) for member in cast("list[object]", value))
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(plain(getattr(value, field.name)) for field in fields(value))
    return getattr(value, "__qualname__", value)
