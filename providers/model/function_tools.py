"""Makes a tool of a Python function: its name, its docstring, and a JSON Schema that pydantic makes of its signature.

The part of the docstring before its sections describes the tool. The section with the parameters describes them, in the
forms of Google (`Args:`), NumPy (`Parameters`, underlined) and Sphinx (`:param name: …`). A description in the
signature (`Annotated[…, Field(description=…)]`) comes first.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import get_type_hints

from ..errors import InvalidRequestError
from ..json.json_types import Parsed
from ..json.json_values import JSONObject, mapping
from .structured import words_of

PARAMETERS = frozenset({"args", "arguments", "parameters", "params", "keyword args", "other parameters"})
SECTIONS = PARAMETERS | {
    "returns", "return", "yields", "raises", "examples", "example", "note", "notes", "see also", "references",
    "warnings", "warns", "todo", "attributes",
}  # fmt: skip
"""Headings of sections in a docstring, in lower case."""

SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
"""Words of Sphinx's fields that describe a parameter."""

_HEADING = re.compile(r"(?P<name>[A-Za-z]++(?: [A-Za-z]++)*+)\s*+(?::\s*+)?")
_UNDERLINE = re.compile(r"\s*-{3,}\s*")
_GOOGLE = re.compile(r"\*{0,2}(?P<name>\w++)\s*+(?:\([^)]*+\)\s*+)?:\s*+(?P<text>.*)")
_NUMPY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?::.*)?(?P<text>)")
_SPHINX = re.compile(r":(?P<kind>\w++)(?:\s++[^\s:]++)*?(?:\s++\*{0,2}(?P<name>\w++))?\s*+:\s*+(?P<text>.*)")


def schema_of_function(function: Callable[..., object]) -> JSONObject:
    """Return the JSON Schema of a function's arguments. Raises `InvalidRequestError`."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidRequestError("function", f"must be a function, not {type(function).__name__}") from None
    bound = getattr(function, "keywords", {})  # of a `functools.partial`: not the model's to choose
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name not in bound]
    for parameter in parameters:
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise InvalidRequestError("function", f"the parameter {parameter.name!r} has no name in a call")
    try:
        adapter: Parsed = import_module("pydantic").TypeAdapter(_resolved(function, parameters))
        schema: JSONObject = adapter.json_schema()
    except ModuleNotFoundError:
        raise InvalidRequestError("function", "needs pydantic: pip install pydantic") from None
    except Exception as error:
        reason = words_of(error).partition("\n")[0]
        raise InvalidRequestError("function", f"pydantic makes no schema of its signature: {reason}") from error
    described = dict(_parameters(function))
    properties: JSONObject = {}
    for name, member in mapping(schema, "properties").items():
        property = dict(member) if type(member) is dict else {}
        property.pop("title", None)  # the name again, in capitals
        if described.get(name):
            property.setdefault("description", described[name])
        properties[name] = property
    return {**schema, "properties": properties}


def _resolved(function: Callable[..., object], parameters: list[inspect.Parameter]) -> Callable[..., object]:
    """Return a function with these parameters whose annotations are types.

    pydantic reads annotations that are text, as all are after `from __future__ import annotations`, for plain functions
    only: not for methods, and not for the functions in caches and partials.
    """

    def resolved() -> None:
        """Hold the signature."""

    annotated = [parameter for parameter in parameters if parameter.annotation is not parameter.empty]
    resolved.__annotations__ = {parameter.name: parameter.annotation for parameter in annotated}
    names = getattr(_plain(function), "__globals__", {})
    resolved.__annotations__ = get_type_hints(resolved, names, include_extras=True)
    vars(resolved)["__signature__"] = inspect.Signature(parameters)
    return resolved


def _plain(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function or method that a callable runs: that of a cache, a partial, or an object with `__call__`."""
    inner = inspect.unwrap(function.func if isinstance(function, partial) else function)
    return inner if inspect.isroutine(inner) or isinstance(inner, type) else inner.__call__


def description_of(function: Callable[..., object]) -> str:
    """Return the text of a docstring before its first section."""
    lines = _lines(function)
    end = (n for n, line in enumerate(lines) if _SPHINX.fullmatch(line.strip()) or _is_heading(lines, n))
    return "\n".join(lines[: next(end, None)]).strip()


def _lines(function: Callable[..., object]) -> list[str]:
    return (inspect.getdoc(_plain(function)) or "").splitlines()


def _is_heading(lines: list[str], number: int) -> bool:
    """Return whether a section begins in this line: `Args:`, or `Parameters` with an underline."""
    line, following = lines[number], lines[number + 1] if number + 1 < len(lines) else ""
    heading = _HEADING.fullmatch(line)
    if heading is None or heading["name"].lower() not in SECTIONS:
        return False
    return line.rstrip().endswith(":") or _UNDERLINE.fullmatch(following) is not None


def _parameters(function: Callable[..., object]) -> Iterator[tuple[str, str]]:
    """Return each described parameter with its description, which may be on several lines."""
    lines, name, texts = _lines(function), "", list[str]()
    entry: re.Pattern[str] | None = None  # of the section's form; None outside a section with parameters
    margin = 0
    for number, line in enumerate(lines):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        begun: tuple[str, str] | None = None
        if (field := _SPHINX.fullmatch(text)) is not None:
            entry = _SPHINX if field["kind"] in SPHINX_PARAMETERS else None
            begun, margin = (field["name"] or "", field["text"]), indent
        elif _is_heading(lines, number):
            underlined = not line.rstrip().endswith(":")
            is_open = line.strip().rstrip(": ").lower() in PARAMETERS
            entry = (_NUMPY if underlined else _GOOGLE) if is_open else None
            begun, margin = ("", ""), -1
        elif entry is not None and text and not _UNDERLINE.fullmatch(line):
            margin = indent if margin < 0 else margin
            if indent <= margin:
                found = entry.fullmatch(text)
                begun = ("", "") if found is None else (found["name"] or "", found["text"] or "")
        if begun is not None:
            if name:
                yield name, " ".join(filter(None, texts))
            name, texts = (begun[0], [begun[1]]) if entry is not None else ("", [])
        elif text and not _UNDERLINE.fullmatch(line):
            texts.append(text)
    if name:
        yield name, " ".join(filter(None, texts))
