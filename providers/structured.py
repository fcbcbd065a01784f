"""Structured answers: the model's text → the object that the request's schema asks for.

Knows JSON Schema as far as `KEYWORDS` goes: `type`, `enum`, `const`, `properties`, `required`,
`additionalProperties`, `items`, `anyOf`, `oneOf`, `allOf`, `$ref` within the schema, and the plain limits of numbers,
texts, arrays and objects. Other keywords (`format`, `pattern`, `not`, `if`, …) are not checked: what they allow is a
matter between the caller and the model. Must not know how a dialect asks for such an answer.

A null for a property that is not required, and that the schema does not let be null, is taken as absent and left out:
strict modes can only make every property required, so that is how a model leaves one out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import cast
from weakref import WeakKeyDictionary

from .errors import ErrorCategory, InvalidRequestError, ManystreamError, ProviderError
from .events import FinishReason
from .json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    UnheldNumberError,
    dumps_text,
    held_loads,
    items,
    mapping,
    shown,
)
from .response import Response

FENCE = "```"

MAX_DEPTH = 100
"""How deep a value may be nested, and how many references may follow each other."""

MAX_CHECKS = 100_000
"""How many values are held against a schema before it is given up: variants that refer to each other can make the
work grow with the power of the depth, and an engine has other calls to serve."""

UNFINISHED: dict[FinishReason, str] = {
    FinishReason.LENGTH: "the answer was cut off by the length limit",
    FinishReason.CONTENT_FILTER: "the answer was stopped by the content filter",
    FinishReason.ERROR: "the answer ended with an error",
    FinishReason.UNKNOWN: "the answer did not end as a whole one does",
}
"""Finish reasons of answers that need not be whole: what does not fit the schema there is a warning, not an error."""


SCHEMA_METHOD = "model_json_schema"
"""A class with this method makes its own schema, as pydantic's models do."""

_schemas: WeakKeyDictionary[type, JSONObject] = WeakKeyDictionary()
"""The schemas of classes that were asked: making one takes longer than starting a call."""


def is_schema(value: object) -> bool:
    """Whether it can be a request's `response_schema`: a JSON Schema, or a class that makes one."""
    return isinstance(value, dict) or (isinstance(value, type) and callable(getattr(value, SCHEMA_METHOD, None)))


def schema_of(value: JSONObject | type) -> JSONObject:
    """The JSON Schema that a `response_schema` stands for. Raises `InvalidRequestError` where its class makes none."""
    if not isinstance(value, type):
        return value
    schema = _schemas.get(value)
    if schema is None:
        try:
            made: object = getattr(value, SCHEMA_METHOD)()
        except Exception as error:
            text = f"{value.__name__}.{SCHEMA_METHOD}() raised {type(error).__name__}: {error}"
            raise InvalidRequestError("response_schema", text) from error
        if not isinstance(made, dict):
            text = f"{value.__name__}.{SCHEMA_METHOD}() must return a dict, not {type(made).__name__}"
            raise InvalidRequestError("response_schema", text)
        schema = _schemas[value] = cast("JSONObject", made)
    return schema


class SchemaMismatchError(ManystreamError, ValueError):
    """A value does not fit a schema. `path` is the place in the value, `$` its root."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


def add_parsed(response: Response, schema: JSONObject) -> None:
    """Set `response.parsed`. Where it cannot be: None, with a warning for a refusal and for an answer that was cut off,
    and without one for an answer that calls tools. Raises `ProviderError` for a whole answer that does not fit."""
    if response.refusal is not None:
        response.warnings.append("response_schema: nothing was parsed; the model refused")
        return
    if response.finish_reason is FinishReason.TOOL_USE:
        return
    try:
        response.parsed = parse_structured(response, schema)
    except ProviderError as error:
        unfinished = UNFINISHED.get(response.finish_reason)
        if unfinished is None:
            raise
        response.warnings.append(f"response_schema: nothing was parsed; {unfinished} ({error.message})")


def parse_structured(response: Response, schema: JSONObject) -> JSON:
    """The object that the answer's text holds. Raises `ProviderError` (UNKNOWN, not retryable: the request was in order
    and the server did its part; another try is the caller's choice) that names the place in the value."""
    text = _without_fence(response.text)
    try:
        return fitted(held_loads(text), schema)
    except UnheldNumberError as error:
        message = f"the answer holds a number that cannot be kept: {error}"
    except MalformedJSONError:
        message = f"the answer is no JSON: {shown(text)}" if text else "the answer has no text"
    except SchemaMismatchError as error:
        message = f"the answer does not fit the response schema at {error}"
    raise ProviderError(message, category=ErrorCategory.UNKNOWN, http_status=200, retryable=False, body=text.encode())


def _without_fence(text: str) -> str:
    """The text inside a code fence, which models put around JSON where their server does not hold them to a schema."""
    text = text.strip()
    if text.startswith(FENCE) and text.endswith(FENCE) and "\n" in text:
        return text[text.index("\n") : -len(FENCE)].strip()
    return text


def fitted(value: JSON, schema: JSONObject) -> JSON:
    """The value, where it fits the schema. Raises `SchemaMismatchError`."""
    return _Checker(schema).check(value, schema, "$", 0)


class _Checker:
    """One check. `check` returns the value as it fits: a new one where nulls were left out."""

    __slots__ = ("checks", "root")

    def __init__(self, root: JSONObject) -> None:
        self.root = root
        self.checks = 0

    def check(self, value: JSON, schema: JSON, path: str, depth: int) -> JSON:
        if schema is True or schema == {}:
            return value
        if type(schema) is not dict:
            raise SchemaMismatchError(path, "the schema allows nothing here")
        self.checks += 1
        if depth > MAX_DEPTH or self.checks > MAX_CHECKS:
            raise SchemaMismatchError(path, f"value or schema is nested more than {MAX_DEPTH} deep, or too large")
        for keywords, check in KEYWORDS:
            if not keywords.isdisjoint(schema):
                value = check(self, value, schema, path, depth)
        return value

    # Each takes the value, its schema, the place and the depth, and returns the value.

    def check_reference(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        target = schema["$ref"]
        node: JSON = self.root
        for step in target[2:].split("/") if type(target) is str and target.startswith("#/") else ():
            step = step.replace("~1", "/").replace("~0", "~")
            node = node.get(step) if type(node) is dict else None
        if type(target) is not str or not target.startswith("#") or node is None:
            raise SchemaMismatchError(path, f"the schema's reference {target!r} leads nowhere in it")
        return self.check(value, node, path, depth + 1)

    def check_type(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        stated = schema["type"]
        kinds = stated if type(stated) is list else [stated]
        tests = [TYPES[kind] for kind in kinds if type(kind) is str and kind in TYPES]
        if not any(test(value) for test in tests):
            raise SchemaMismatchError(path, f"must be {' or '.join(map(str, kinds))}, not {_brief(value)}")
        return value

    def check_enum(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        if not any(_same(value, allowed) for allowed in items(schema, "enum")):
            raise SchemaMismatchError(path, f"must be one of {_brief(schema['enum'])}, not {_brief(value)}")
        return value

    def check_const(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        if not _same(value, schema["const"]):
            raise SchemaMismatchError(path, f"must be {_brief(schema['const'])}, not {_brief(value)}")
        return value

    def check_any_of(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        return self._variant(value, items(schema, "anyOf"), path, depth)

    def check_one_of(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        """As `anyOf`: dialects ask for the one as for the other."""
        return self._variant(value, items(schema, "oneOf"), path, depth)

    def _variant(self, value: JSON, variants: list[JSON], path: str, depth: int) -> JSON:
        nearest: SchemaMismatchError | None = None
        for variant in variants:
            if self.checks > MAX_CHECKS:
                break
            try:
                return self.check(value, variant, path, depth + 1)
            except SchemaMismatchError as error:
                # The variant that the value fits furthest is the one that was meant.
                if nearest is None or len(error.path) > len(nearest.path):
                    nearest = error
        raise nearest or SchemaMismatchError(path, "the schema has no variants")

    def check_all_of(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        for part in items(schema, "allOf"):
            value = self.check(value, part, path, depth + 1)
        return value

    def check_object(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        """`properties`, `required` and `additionalProperties`, which belong together."""
        if type(value) is not dict:
            return value
        properties, required = mapping(schema, "properties"), items(schema, "required")
        others = schema.get("additionalProperties", True)
        found: JSONObject = {}
        for name in required:
            if type(name) is str and name not in value:
                raise SchemaMismatchError(path, f"the property {name!r} is missing")
        for name, member in value.items():
            where = f"{path}.{name}"
            if name not in properties and others is False:
                raise SchemaMismatchError(where, "is not allowed: the schema has no such property")
            try:
                found[name] = self.check(member, properties.get(name, others), where, depth + 1)
            except SchemaMismatchError:
                if member is not None or name in required:
                    raise
        return found

    def check_items(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        if type(value) is not list:
            return value
        return [self.check(item, schema["items"], f"{path}[{n}]", depth + 1) for n, item in enumerate(value)]

    def check_limits(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        """All limits that are stated."""
        for name, (measure, fits, words) in LIMITS.items():
            limit, size = _number(schema.get(name)), measure(value)
            if limit is not None and size is not None and not fits(size, limit):
                raise SchemaMismatchError(path, f"must {words} {limit}, not {_brief(value)}")
        return value


def _number(value: JSON) -> float | None:
    """The value where it is a number; a boolean is none."""
    return value if type(value) is int or type(value) is float else None


def _length(value: JSON) -> int | None:
    return len(value) if type(value) is str else None


def _count(value: JSON) -> int | None:
    return len(value) if type(value) is list else None


def _members(value: JSON) -> int | None:
    return len(value) if type(value) is dict else None


def _is_whole(value: JSON) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


TYPES: dict[str, Callable[[JSON], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "integer": _is_whole,
    "number": lambda value: _number(value) is not None,
    "string": lambda value: type(value) is str,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}
"""Type → its test. 1.0 is an integer, as JSON Schema has it."""

LIMITS: dict[str, tuple[Callable[[JSON], float | None], Callable[[float, float], bool], str]] = {
    "minimum": (_number, operator.ge, "be at least"),
    "maximum": (_number, operator.le, "be at most"),
    "exclusiveMinimum": (_number, operator.gt, "be above"),
    "exclusiveMaximum": (_number, operator.lt, "be below"),
    "minLength": (_length, operator.ge, "have a length of at least"),
    "maxLength": (_length, operator.le, "have a length of at most"),
    "minItems": (_count, operator.ge, "have at least this many items:"),
    "maxItems": (_count, operator.le, "have at most this many items:"),
    "minProperties": (_members, operator.ge, "have at least this many properties:"),
    "maxProperties": (_members, operator.le, "have at most this many properties:"),
}
"""Limit → what it measures (None: the limit is not about such a value), how, and how that is said."""

KEYWORDS: tuple[tuple[frozenset[str], Callable[[_Checker, JSON, JSONObject, str, int], JSON]], ...] = (
    (frozenset({"$ref"}), _Checker.check_reference),
    (frozenset({"type"}), _Checker.check_type),
    (frozenset({"enum"}), _Checker.check_enum),
    (frozenset({"const"}), _Checker.check_const),
    (frozenset(LIMITS), _Checker.check_limits),
    (frozenset({"properties", "required", "additionalProperties"}), _Checker.check_object),
    (frozenset({"items"}), _Checker.check_items),
    (frozenset({"anyOf"}), _Checker.check_any_of),
    (frozenset({"oneOf"}), _Checker.check_one_of),
    (frozenset({"allOf"}), _Checker.check_all_of),
)
"""What is checked, in order. Any other keyword is not."""


def _same(one: JSON, other: JSON) -> bool:
    """Equal as JSON: `true` is not 1, while 1.0 is."""
    if type(one) is bool or type(other) is bool:
        return one is other
    if type(one) is list and type(other) is list:
        return len(one) == len(other) and all(map(_same, one, other))
    if type(one) is dict and type(other) is dict:
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return one == other


def _brief(value: JSON) -> str:
    text = dumps_text(value)
    return text if len(text) <= 100 else text[:100] + "…"
