"""The types of JSON values and of structured answers, for annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeForm  # type checkers know it without an installed package

    JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
    AnswerType: TypeAlias = TypeForm[Any]
else:
    JSON = AnswerType = object
"""JSON: a value that JSON can represent. AnswerType: the type of a structured answer, a class or a form such as
`list[int]`, `River | None` or `Literal["a"]`.

At run time both are `object`: before Python 3.12, a type that contains itself can be written for type checkers only,
and text would break `JSON | None` and the libraries that read annotations. `TypeForm` is in Python since 3.15.
"""

JSONObject: TypeAlias = dict[str, JSON]

Parsed: TypeAlias = Any
"""The value of a structured answer: JSON for a JSON Schema, an instance for a type."""
