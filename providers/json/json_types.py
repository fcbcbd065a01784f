"""The types of JSON values, for annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
else:
    JSON = object
"""A value that JSON can represent. At run time it is `object`: before Python 3.12, a type that contains itself can be
written for type checkers only, and text would break `JSON | None` and the libraries that read annotations."""

JSONObject: TypeAlias = dict[str, JSON]
"""A JSON object."""

Parsed: TypeAlias = Any
"""The value of a structured answer. Its type depends on the request: JSON for a JSON Schema, an instance for a type."""
