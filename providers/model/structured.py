"""Structured answers: converts the model's text to the value that the request's schema asks for.

Other keywords (`format`, `pattern`, `not`, `if`, …) are not checked; the caller checks them if needed.

A schema may also be a type: a pydantic model, or with pydantic a dataclass, a TypedDict, an enum, `list[…]` or a union.
Then pydantic reads the answer, and what it refuses is the response's `parse_error`, not a failure of the call. Nothing
here imports pydantic before such a type is used.

A null counts as absent, and is removed, if its property is not required and the schema does not allow null there.
Strict modes make every property required, so a model can leave one out only by sending null.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from types import UnionType
from typing import Final, cast, get_origin
from weakref import WeakKeyDictionary

from ..errors import InvalidRequestError, ManystreamError
from ..json.exact_numbers import find_unrepresentable
from ..json.json_types import Parsed
from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    UnrepresentableNumberError,
    arguments_text,
    exact_loads,
    items,
    mapping,
    same_value,
    shown,
)
from .events import FinishReason
from .provider_error import ErrorCategory, ProviderError
from .response import Response

FENCE = "```"
"""The characters that begin and end a code fence in Markdown."""

MAX_DEPTH = 100
"""The most levels in a value, and the most references that may follow each other."""

MAX_CHECKS = 100_000
"""The most comparisons of a value with a schema. Variants that refer to each other can make the work grow exponentially
with the depth, and other calls share the core.
"""

UNFINISHED: dict[FinishReason, str] = {
    FinishReason.LENGTH: "the answer was cut off by the length limit",
    FinishReason.CONTENT_FILTER: "the answer was stopped by the content filter",
    FinishReason.ERROR: "the answer ended with an error",
    FinishReason.UNKNOWN: "the answer has no known finish reason",
}
"""Finish reason → why the answer may be incomplete. A mismatch is then a warning on the response, not an error."""


SCHEMA_METHOD = "model_json_schema"
"""A class with this method makes its own schema, as pydantic models do."""

VALIDATE_METHOD = "model_validate_json"
"""A class with this method, too, reads the answer itself. The answer to any other class is JSON."""

BOX: Final = "value"
"""The only property of the object around a type that is no object, such as a list: strict modes accept objects only."""


@dataclasses.dataclass(slots=True, frozen=True)
class _TypeSchema:
    """The JSON Schema that a type made.

    schema: the schema that a request sends.
    boxed: whether it is the schema of an object around the value.
    validate: reads the JSON of an instance, for a type that pydantic adapts. A class has a method for it.
    """

    schema: JSONObject
    boxed: bool = False
    validate: Callable[[bytes], object] | None = None


LINK = "For further information visit "
"""The beginning of the lines in pydantic's errors that help nobody who reads them as text."""

_schemas: WeakKeyDictionary[type, _TypeSchema] = WeakKeyDictionary()
"""Class → the schema that it made. Making a schema takes longer than starting a call."""


def is_schema(value: object) -> bool:
    """Return whether a value can be a request's `response_schema`: a JSON Schema, or a type that makes one."""
    return isinstance(value, dict) or makes_schema(value) or _is_adapted(value)


def makes_schema(value: object) -> bool:
    """Return whether a value is a class that makes a JSON Schema, such as a pydantic model."""
    return isinstance(value, type) and get_origin(value) is None and callable(getattr(value, SCHEMA_METHOD, None))


def _is_adapted(value: object) -> bool:
    """Return whether a value is a type that pydantic's `TypeAdapter` reads, and no plain type such as `dict`."""
    if isinstance(value, UnionType) or get_origin(value) is not None or hasattr(value, "__value__"):  # `type Name = …`
        return True
    if not isinstance(value, type) or makes_schema(value):
        return False
    kind: type = value
    named = issubclass(kind, tuple) and hasattr(value, "_fields")
    typed_dict = hasattr(value, "__required_keys__")  # `typing.is_typeddict` does not know those of typing_extensions
    return dataclasses.is_dataclass(value) or issubclass(kind, enum.Enum) or typed_dict or named


def schema_of(value: object) -> JSONObject:
    """Return the JSON Schema of a `response_schema`. Raises `InvalidRequestError` if its class makes none."""
    return cast("JSONObject", value) if isinstance(value, dict) else _type_schema(value).schema


def _type_schema(value: object) -> _TypeSchema:
    if not makes_schema(value):
        try:
            return _adapted(value)
        except TypeError:  # a form with a value that has no hash, such as `Annotated[int, []]`, is made each time
            return _adapted.__wrapped__(value)
    kind = cast("type", value)
    found = _schemas.get(kind)
    if found is None:
        try:
            made: object = getattr(kind, SCHEMA_METHOD)()
        except Exception as error:
            text = f"{kind.__name__}.{SCHEMA_METHOD}() raised {type(error).__name__}: {error}"
            raise InvalidRequestError("response_schema", text) from error
        if not isinstance(made, dict):
            text = f"{kind.__name__}.{SCHEMA_METHOD}() must return a dict, not {type(made).__name__}"
            raise InvalidRequestError("response_schema", text)
        schema = cast("JSONObject", made)
        found = _schemas[kind] = _boxed(schema) if _validates(kind) else _TypeSchema(schema)
    return found


def _validates(value: object) -> bool:
    """Return whether a `response_schema` is a type that an answer becomes an instance of."""
    if makes_schema(value):
        return callable(getattr(value, VALIDATE_METHOD, None))
    return not isinstance(value, dict)


@lru_cache(maxsize=128)
def _adapted(kind: object) -> _TypeSchema:
    """Return the schema of a type that pydantic adapts.

    Raises `InvalidRequestError` without pydantic, and for a type that it cannot read.
    """
    name = getattr(kind, "__name__", None) if isinstance(kind, type) and get_origin(kind) is None else repr(kind)
    try:
        adapter: Parsed = import_module("pydantic").TypeAdapter(kind)
    except ModuleNotFoundError:
        reason = f"needs pydantic for the type {name}: pip install pydantic"
        raise InvalidRequestError("response_schema", reason) from None
    except Exception as error:
        raise InvalidRequestError("response_schema", f"pydantic cannot read {name}: {_reason(error)}") from error
    try:
        return _boxed(adapter.json_schema(), adapter.validate_json)
    except Exception as error:
        raise InvalidRequestError("response_schema", f"{name} has no JSON Schema: {_reason(error)}") from error


def _boxed(schema: JSONObject, validate: Callable[[bytes], object] | None = None) -> _TypeSchema:
    """Return a type's schema, put into that of an object unless the type is an object itself."""
    target, node = schema.get("$ref"), schema
    if type(target) is str and target.startswith("#/$defs/"):
        node = mapping(mapping(schema, "$defs"), target.removeprefix("#/$defs/"))
    if node.get("type") == "object":
        return _TypeSchema(schema, validate=validate)
    inner = {name: member for name, member in schema.items() if name != "$defs"}
    outer: JSONObject = {"type": "object", "properties": {BOX: inner}, "required": [BOX], "additionalProperties": False}
    if "$defs" in schema:
        outer["$defs"] = schema["$defs"]  # references begin at the root
    return _TypeSchema(outer, boxed=True, validate=validate)


def reader_of(value: object) -> Callable[[Response], None]:
    """Return the function that sets `parsed` of a response to a request with this `response_schema`.

    For a JSON Schema it is `add_parsed`. For a type it sets `parse_error` of an answer that does not fit the type, and
    raises nothing.
    """
    if not _validates(value):
        return partial(add_parsed, schema=schema_of(value))
    made = _type_schema(value)
    return partial(_add_instance, made=made, validate=made.validate or getattr(value, VALIDATE_METHOD))


def _add_instance(response: Response, made: _TypeSchema, validate: Callable[[bytes], object]) -> None:
    """Set `response.parsed` to the instance that the answer's text describes, or `response.parse_error` to the reason
    why a complete answer describes none. As `add_parsed` for any other answer.
    """
    if not _may_be_parsed(response):
        return
    try:
        response.parsed = validate(_json_of_instance(response, made))
    except ValueError as error:  # pydantic's `ValidationError` is one
        words = words_of(error)
    except Exception as error:  # of a validator, which is the program's code
        words = f"{type(error).__name__}: {error}"
    else:
        return
    unfinished = UNFINISHED.get(response.finish_reason)
    if unfinished is None:
        response.parse_error = words
    else:
        response.warnings.append(f"response_schema: nothing was parsed; {unfinished} ({words})")


def _json_of_instance(response: Response, made: _TypeSchema) -> bytes:
    """Return the answer's JSON for pydantic, without its box and without nulls that count as absent.

    Text that is no JSON, or does not match the schema, is returned as it is: pydantic's error is about it.
    """
    text = _without_fence(response.text)
    try:
        value = _fitted_or_same(exact_loads(text), made.schema)
        if made.boxed and type(value) is dict and value.keys() == {BOX}:
            value = value[BOX]
        return arguments_text(value).encode()
    except (MalformedJSONError, TypeError):  # no JSON, or nested too deeply
        return text.encode()


def _fitted_or_same(value: JSON, schema: JSONObject) -> JSON:
    try:
        return fitted(value, schema)
    except SchemaMismatchError:
        return value


def _reason(error: Exception) -> str:
    """Return the first line of an error's text."""
    return words_of(error).partition("\n")[0]


def words_of(error: Exception) -> str:
    """Return the text of an error of pydantic without the lines with links."""
    lines = str(error).splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith(LINK))


def json_of(response: Response, value: object) -> JSON:
    """Return what `response.parsed` is in JSON, for a request with the schema `value`."""
    if response.parsed is None or not _validates(value):
        return cast("JSON", response.parsed)
    return exact_loads(_json_of_instance(response, _type_schema(value)))


class SchemaMismatchError(ManystreamError, ValueError):
    """A value does not match a schema.

    path: the place in the value; its root is `$`.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


def add_parsed(response: Response, schema: JSONObject) -> None:
    """Set `response.parsed` to the value of the answer's text.

    It stays None for an answer with tool calls, and, with a warning, for a refusal and for an answer that was cut off.
    Raises `ProviderError` for a complete answer that does not match the schema.
    """
    if not _may_be_parsed(response):
        return
    try:
        response.parsed = parse_structured(response, schema)
    except ProviderError as error:
        unfinished = UNFINISHED.get(response.finish_reason)
        if unfinished is None:
            raise
        response.warnings.append(f"response_schema: nothing was parsed; {unfinished} ({error.message})")


def _may_be_parsed(response: Response) -> bool:
    """Return whether the answer's text should be the value: no refusal, which gets a warning, and no tool calls."""
    if response.refusal is not None:
        response.warnings.append("response_schema: nothing was parsed; the model refused")
        return False
    return response.finish_reason is not FinishReason.TOOL_USE


def parse_structured(response: Response, schema: JSONObject) -> JSON:
    """Return the value of the answer's text.

    Raises `ProviderError` that names the place in the value. It is UNKNOWN and not retryable: request and server were
    in order, and the caller decides whether to try again.
    """
    text = _without_fence(response.text)
    try:
        value = exact_loads(text)
        unrepresentable = find_unrepresentable(value)
        if unrepresentable is None or not unrepresentable[1].is_json:  # NaN is no number to a schema either
            value = fitted(value, schema)
        if unrepresentable is None:
            return value
        message = f"the answer holds a number that cannot be kept: {UnrepresentableNumberError(*unrepresentable)}"
    except MalformedJSONError:
        message = f"the answer is not JSON: {shown(text)}" if text else "the answer has no text"
    except SchemaMismatchError as error:
        message = f"the answer does not fit the response schema at {error}"
    raise ProviderError(message, category=ErrorCategory.UNKNOWN, http_status=200, retryable=False, body=text.encode())


def _without_fence(text: str) -> str:
    """Return the text inside a code fence. Models put one around JSON if their server does not enforce the schema."""
    text = text.strip()
    if text.startswith(FENCE) and text.endswith(FENCE) and "\n" in text:
        return text[text.index("\n") : -len(FENCE)].strip()
    return text


def fitted(value: JSON, schema: JSONObject) -> JSON:
    """Return the value without nulls that count as absent. Raises `SchemaMismatchError` if it does not match."""
    return _Checker(schema).check(value, schema, "$", 0)


class _Checker:
    """Checks one value. `check` returns the value, or a copy without nulls that count as absent."""

    def __init__(self, root: JSONObject) -> None:
        self.root = root
        self.checks = 0

    def check(self, value: JSON, schema: JSON, path: str, depth: int) -> JSON:
        """Check a value with all keywords of a schema. Raises `SchemaMismatchError`.

        path: the place in the value, for the error.
        depth: the number of levels above the value.
        """
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

    # Each method checks one row of `KEYWORDS`. Arguments, result and error are those of `check`.

    def check_reference(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        """Check `$ref`: the value must match the part of the root schema that a JSON pointer selects."""
        target = schema["$ref"]
        node: JSON = self.root
        for step in target[2:].split("/") if type(target) is str and target.startswith("#/") else ():
            step = step.replace("~1", "/").replace("~0", "~")
            node = node.get(step) if type(node) is dict else None
        if type(target) is not str or not target.startswith("#") or node is None:
            raise SchemaMismatchError(path, f"the schema's reference {target!r} points to nothing in it")
        return self.check(value, node, path, depth + 1)

    def check_type(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        """Check `type`: one type, or a list of which one must match."""
        stated = schema["type"]
        kinds = stated if type(stated) is list else [stated]
        tests = [TYPES[kind] for kind in kinds if type(kind) is str and kind in TYPES]
        if not any(test(value) for test in tests):
            raise SchemaMismatchError(path, f"must be {' or '.join(map(str, kinds))}, not {_brief(value)}")
        return value

    def check_enum(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        """Check `enum`: the value must equal one of its values."""
        if not any(same_value(value, allowed) for allowed in items(schema, "enum")):
            raise SchemaMismatchError(path, f"must be one of {_brief(schema['enum'])}, not {_brief(value)}")
        return value

    def check_const(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        if not same_value(value, schema["const"]):
            raise SchemaMismatchError(path, f"must be {_brief(schema['const'])}, not {_brief(value)}")
        return value

    def check_variants(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        """Check `anyOf` and `oneOf` in the same way, as dialects request them: one of the schemas must match."""
        for name in ("anyOf", "oneOf"):
            if name in schema:
                value = self._variant(value, items(schema, name), path, depth)
        return value

    def _variant(self, value: JSON, variants: list[JSON], path: str, depth: int) -> JSON:
        """Return the value as the first matching schema converts it. Raises the error that is deepest in the value."""
        nearest: SchemaMismatchError | None = None
        for variant in variants:
            if self.checks > MAX_CHECKS:
                break
            try:
                return self.check(value, variant, path, depth + 1)
            except SchemaMismatchError as error:
                # The variant with the deepest mismatch is most likely the one that the model meant.
                if nearest is None or len(error.path) > len(nearest.path):
                    nearest = error
        raise nearest or SchemaMismatchError(path, "the schema has no variants")

    def check_all_of(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        """Check `allOf`: the value must match every schema."""
        for part in items(schema, "allOf"):
            value = self.check(value, part, path, depth + 1)
        return value

    def check_object(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        """Check `properties`, `required` and `additionalProperties`, which depend on each other."""
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
        """Check `items`: every element of an array must match the schema."""
        if type(value) is not list:
            return value
        return [self.check(item, schema["items"], f"{path}[{n}]", depth + 1) for n, item in enumerate(value)]

    def check_limits(self, value: JSON, schema: JSONObject, path: str, depth: int) -> JSON:
        for name, (measure, fits, words) in LIMITS.items():
            limit, size = _number(schema.get(name)), measure(value)
            if limit is not None and size is not None and not fits(size, limit):
                raise SchemaMismatchError(path, f"must {words} {limit}, not {_brief(value)}")
        return value


def _number(value: JSON) -> float | None:
    """Return the value if it is a number, else None. A boolean is not a number."""
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
"""Name of a type → its test. 1.0 is an integer, as in JSON Schema."""

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
"""Limit → the function that measures a value (None: the limit does not apply), the comparison, and words for errors."""

KEYWORDS: tuple[tuple[frozenset[str], Callable[[_Checker, JSON, JSONObject, str, int], JSON]], ...] = (
    (frozenset({"$ref"}), _Checker.check_reference),
    (frozenset({"type"}), _Checker.check_type),
    (frozenset({"enum"}), _Checker.check_enum),
    (frozenset({"const"}), _Checker.check_const),
    (frozenset(LIMITS), _Checker.check_limits),
    (frozenset({"properties", "required", "additionalProperties"}), _Checker.check_object),
    (frozenset({"items"}), _Checker.check_items),
    (frozenset({"anyOf", "oneOf"}), _Checker.check_variants),
    (frozenset({"allOf"}), _Checker.check_all_of),
)
"""The checked keywords, in order, and the method that checks them. Other keywords are not checked."""


def _brief(value: JSON) -> str:
    """Return the value as an error's message quotes it. Any value can be quoted."""
    try:
        text = arguments_text(value)
    except TypeError:
        return "a value that is nested too deeply"
    return text if len(text) <= 100 else text[:100] + "…"
