"""Adapts a JSON Schema for Gemini's `parametersJsonSchema` and `responseJsonSchema`.

These two members accept standard JSON Schema (type lists, `anyOf`, `additionalProperties`, `$defs`). The older
`parameters` and `responseSchema` accept only a subset of OpenAPI's, so they are not used. A few rules of the
documentation (Gemini API, `GenerationConfig.responseJsonSchema`) require changes: definitions are in the root's
`$defs`, no keyword is beside a `$ref`, literals are an `enum`.

A constraint that Gemini does not know is sent nevertheless, with a warning: the server ignores it.
"""

from __future__ import annotations

from functools import lru_cache

from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, dumps, loads_object
from .json_names import with_null

ROOT = "__root__"
"""The name of the definition for references to the whole schema (`#`)."""

DEEPEST = 100
"""The most levels of a schema. Deeper ones would cause a recursion error here or on the server."""

DEFINITIONS = ("$defs", "definitions")
SILENT = frozenset({"$schema", "$comment"})
"""Keywords that do not describe a value."""

UNENFORCED = frozenset(
    {"const", "pattern", "minLength", "maxLength", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"}
    | {"uniqueItems", "contains", "minContains", "maxContains", "additionalItems", "unevaluatedItems"}
    | {"minProperties", "maxProperties", "patternProperties", "propertyNames", "unevaluatedProperties"}
    | {"dependentRequired", "dependentSchemas", "dependencies", "allOf", "not", "if", "then", "else"}
)
"""Keywords that constrain a value, but that Gemini does not enforce."""

OF_NO_PARAMETERS = frozenset(
    {"type", "title", "description", "properties", "required", "default", "examples", "nullable", "$defs", "$id"}
)
"""Keywords that a schema without parameters may have. Any other one may allow or require some."""

SCHEMA_MEMBERS = frozenset(
    {"items", "additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords whose value is a schema."""
SCHEMA_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
SCHEMA_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose value maps names to schemas."""

MAY_LACK_NULL = ("type", "enum", "anyOf")
"""Keywords that say which values are allowed, so that `nullable` matters beside them."""

TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


def gemini_schema(schema: JSONObject, field: str, warnings: list[str] | None) -> JSONObject:
    """Return the schema as Gemini accepts it. The argument is not changed.

    field: the name of the schema in errors and warnings.
    warnings: gets a warning for each constraint that is not enforced; None if the caller does not rely on constraints.

    Raises `InvalidRequestError` whose field is the path to a part that cannot be sent.
    """
    return _Writer(schema, field, warnings).root()


def parameters_schema(schema: JSONObject, field: str, warnings: list[str] | None) -> JSONObject | None:
    """Return the schema of a function's parameters; None if it has none, because Gemini then requires no schema."""
    if warnings is None:
        try:
            return _remembered(dumps(schema), field)
        except TypeError:
            pass  # no JSON; the error is raised where the schema is written
    return _parameters_schema(schema, field, warnings)


@lru_cache(maxsize=256)
def _remembered(text: bytes, field: str) -> JSONObject | None:
    """Cached by the schema's JSON text, because an agent sends the same tools with every request. Do not change the
    result.
    """
    return _parameters_schema(loads_object(text), field, None)


def _parameters_schema(schema: JSONObject, field: str, warnings: list[str] | None) -> JSONObject | None:
    written = gemini_schema(schema, field, warnings)
    kind = written.setdefault("type", "object")
    if kind != "object":
        raise InvalidRequestError(f"{field}.type", f"a function's parameters are an object, not {kind!r}")
    return written if written.get("properties") or not written.keys() <= OF_NO_PARAMETERS else None


class _Writer:
    """Writes one schema.

    _whole: the schema.
    _field: its name in errors and warnings.
    _used: name → definition, adapted, for each one that a reference names.
    """

    def __init__(self, schema: JSONObject, field: str, warnings: list[str] | None) -> None:
        self._whole = schema
        self._field = field
        self._warnings = warnings
        self._definitions: dict[str, JSONObject] = {}
        for key in DEFINITIONS:
            members = schema.get(key)
            if type(members) is dict:
                for name, member in members.items():
                    self._definitions[name] = member if type(member) is dict else {}
        self._used: dict[str, JSON] = {}

    def root(self) -> JSONObject:
        members = {key: value for key, value in self._whole.items() if key not in DEFINITIONS}
        written = self._schema(members, self._field, (), 0)
        if "$ref" in written:
            # The root must have its own type.
            name = self._definition_name(written["$ref"], self._field)
            written = self._schema(self._definitions[name], self._field, (name,), 0)
        return {**written, "$defs": self._used} if self._used else written

    def _schema(self, schema: JSONObject, field: str, inside: tuple[str, ...], depth: int) -> dict[str, JSON]:
        """Return one schema adapted. `inside`: the definitions that are being written out around it."""
        if depth > DEEPEST:
            raise InvalidRequestError(field, f"is nested more than {DEEPEST} deep")
        schema = _without_wrapper(schema)
        if "$ref" in schema:
            return self._reference(schema, field, inside, depth)
        written: dict[str, JSON] = {}
        for key, value in schema.items():
            if key in SILENT:
                continue
            if key == "const" and type(value) in (str, int, float) and "enum" not in schema:
                written["enum"] = [value]
                continue
            if key in UNENFORCED and self._warnings is not None:
                self._warnings.append(f"{field}.{key}: Gemini does not enforce it")
            written[key] = self._member(key, value, f"{field}.{key}", inside, depth + 1)
        return _with_json_type(written, field)

    def _member(self, key: str, value: JSON, field: str, inside: tuple[str, ...], depth: int) -> JSON:
        if key in SCHEMA_MEMBERS and type(value) is dict:
            return self._schema(value, field, inside, depth)
        if key in SCHEMA_LISTS and type(value) is list:
            return [self._any(member, f"{field}[{place}]", inside, depth) for place, member in enumerate(value)]
        if key in SCHEMA_MAPS and type(value) is dict:
            return {name: self._any(member, f"{field}.{name}", inside, depth) for name, member in value.items()}
        return value

    def _any(self, value: JSON, field: str, inside: tuple[str, ...], depth: int) -> JSON:
        return self._schema(value, field, inside, depth) if type(value) is dict else value

    def _reference(self, schema: JSONObject, field: str, inside: tuple[str, ...], depth: int) -> dict[str, JSON]:
        name = self._definition_name(schema["$ref"], field)
        beside = {key: value for key, value in schema.items() if key != "$ref" and not key.startswith("$")}
        if beside and name not in inside:
            # No keyword may be beside a `$ref`, so the definition is written out here with the other keywords.
            return self._schema({**self._definitions[name], **beside}, field, (*inside, name), depth + 1)
        if beside and self._warnings is not None:
            self._warnings.append(f"{field}: {', '.join(beside)} beside a recursive $ref cannot be sent")
        if name not in self._used:
            self._used[name] = {}  # set before it is written, because it may refer to itself
            self._used[name] = self._schema(self._definitions[name], f"{self._field}.$defs.{name}", (name,), depth + 1)
        return {"$ref": "#/$defs/" + name.replace("~", "~0").replace("/", "~1")}

    def _definition_name(self, reference: JSON, field: str) -> str:
        """Return the name of the definition that a reference names. A reference to the root gets a definition."""
        if reference == "#":
            self._definitions[ROOT] = {key: value for key, value in self._whole.items() if key not in DEFINITIONS}
            return ROOT
        if type(reference) is str:
            for key in DEFINITIONS:
                name = reference.removeprefix(f"#/{key}/").replace("~1", "/").replace("~0", "~")
                if reference.startswith(f"#/{key}/") and name in self._definitions:
                    return name
        raise InvalidRequestError(f"{field}.$ref", f"{reference!r} names nothing in the root's $defs")


def _without_wrapper(schema: JSONObject) -> JSONObject:
    """Replace an `allOf` with one schema by that schema. Generators write it to put a keyword beside a `$ref`."""
    alternatives = schema.get("allOf")
    if type(alternatives) is not list or len(alternatives) != 1 or type(alternatives[0]) is not dict:
        return schema
    rest = {key: value for key, value in schema.items() if key != "allOf"}
    return {**alternatives[0], **rest} if not alternatives[0].keys() & rest.keys() - {"description"} else schema


def _with_json_type(schema: dict[str, JSON], field: str) -> dict[str, JSON]:
    """Write the type in JSON Schema's form. Schemas made for Gemini often have OpenAPI's (`STRING`, `nullable`)."""
    kind = schema.get("type")
    for each in kind if type(kind) is list else [] if kind is None else [kind]:
        if type(each) is not str or each.lower() not in TYPES:
            raise InvalidRequestError(f"{field}.type", f"{each!r} is not a JSON Schema type")
    if type(kind) is list:
        schema["type"] = [str(each).lower() for each in kind]
    elif kind is not None:
        schema["type"] = str(kind).lower()
    if schema.keys().isdisjoint(MAY_LACK_NULL):
        return schema
    return with_null(schema) if schema.pop("nullable", False) is True else schema
