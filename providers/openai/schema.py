"""Adapts a JSON Schema to the subset that OpenAI's strict mode accepts.

Every value that the adapted schema allows is allowed by the original, so an answer that fits the one fits the other. A
keyword that cannot be adapted under this rule is refused by name. It is never dropped silently.

The adaptation: every property becomes required, objects are closed, `oneOf` becomes `anyOf`, an `allOf` with one schema
is replaced by that schema, references with other keywords beside them are replaced by their target, and `default` is
dropped (every property is present, so no default applies).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, dumps, loads_object, shown

REFUSED: dict[str, str] = {
    "not": "strict mode has no negation",
    "if": "strict mode has no conditions",
    "then": "strict mode has no conditions",
    "else": "strict mode has no conditions",
    "patternProperties": "strict mode needs every property by its name",
    "propertyNames": "strict mode needs every property by its name",
    "minProperties": "strict mode requires every property",
    "maxProperties": "strict mode requires every property",
    "dependentRequired": "strict mode requires every property",
    "dependentSchemas": "strict mode has no conditions",
    "dependencies": "strict mode has no conditions",
    "unevaluatedProperties": "strict mode closes objects by additionalProperties alone",
    "unevaluatedItems": "strict mode has no tuples",
    "prefixItems": "strict mode has no tuples; use an object, or an array of one kind of item",
    "additionalItems": "strict mode has no tuples; use an object, or an array of one kind of item",
    "contains": "strict mode checks all items alike",
    "minContains": "strict mode checks all items alike",
    "maxContains": "strict mode checks all items alike",
    "uniqueItems": "strict mode cannot compare items",
    "$dynamicRef": "strict mode has plain references only",
}
"""Keyword → why strict mode does not accept it."""

DROPPED: frozenset[str] = frozenset({"default", "discriminator", "$schema", "$id", "$comment", "examples"})
"""Keywords that do not change which values are allowed, and that strict mode refuses or does not know."""

DESCRIBING: frozenset[str] = frozenset({"title", "description"})
DEFINITIONS = ("$defs", "definitions")


def strict_schema(schema: JSONObject, field: str = "schema") -> JSONObject:
    """Return the adapted schema. The argument is not changed.

    field: the name of the schema in errors.

    Raises `InvalidRequestError` whose field is the path to the part that strict mode does not accept.
    """
    adapted = _Adapter(schema, field).schema(schema, field, ())
    if adapted.get("type") != "object":
        raise InvalidRequestError(field, 'strict mode needs an object at the root: "type": "object"')
    return adapted


def is_strict(schema: JSONObject) -> bool:
    """Return whether strict mode accepts the schema as it is."""
    try:
        return _is_strict(dumps(schema))
    except TypeError:
        return False  # no JSON; the error is raised where the schema is written


@lru_cache(maxsize=256)
def _is_strict(text: bytes) -> bool:
    """Cached by the schema's JSON text, because an agent sends the same tools with every request."""
    schema = loads_object(text)
    try:
        return strict_schema(schema) == schema
    except InvalidRequestError:
        return False


def merged(inner: JSONObject, outer: JSONObject, where: str) -> JSONObject:
    """Return two schemas for one value as one. Raises `InvalidRequestError` for a keyword that both have.

    Titles, descriptions and definitions may be in both; those of `outer` are used.
    """
    for key in outer:
        if key in inner and key not in DESCRIBING and key not in DEFINITIONS:
            raise InvalidRequestError(f"{where}.{key}", "strict mode has no intersections; state it once")
    return {**inner, **outer}


@dataclass(slots=True, eq=False, repr=False)
class _Adapter:
    """Adapts one schema. Methods return the adapted part, or raise `InvalidRequestError` naming its place."""

    root: JSONObject  # the whole schema, which references point into
    field: str  # the place of the root in errors

    def schema(self, node: JSON, where: str, expanding: tuple[str, ...]) -> JSONObject:
        """Return a schema adapted.

        where: its place, for errors.
        expanding: references whose targets are being written out, so that a recursive one ends.
        """
        if type(node) is not dict:
            raise InvalidRequestError(where, f"must be a JSON Schema object, not {shown(repr(node))}")
        node = self.unwrapped(node, where)
        for keyword in node:
            if keyword in REFUSED:
                raise InvalidRequestError(f"{where}.{keyword}", REFUSED[keyword])
        if "$ref" in node:
            return self.reference(node, where, expanding)
        adapted: JSONObject = {keyword: value for keyword, value in node.items() if keyword not in DROPPED}
        for keyword in DEFINITIONS:
            if keyword in node:
                adapted[keyword] = self.named(node[keyword], f"{where}.{keyword}", expanding)
        if "anyOf" in node:
            adapted["anyOf"] = self.variants(node["anyOf"], f"{where}.anyOf", expanding)
        kinds = self.kinds(node, where)
        if kinds:
            adapted["type"] = node.get("type", kinds[0])
        if "object" in kinds:
            self.close_object(node, adapted, where, expanding)
        if "array" in kinds:
            if "items" not in node:
                raise InvalidRequestError(f"{where}.items", "strict mode needs the schema of an array's items")
            adapted["items"] = self.schema(node["items"], f"{where}.items", expanding)
        return adapted

    def kinds(self, node: JSONObject, where: str) -> list[JSON]:
        """Return the types that a schema allows. Without `type`, they follow from its other keywords."""
        stated = node.get("type")
        if stated is not None:
            return stated if type(stated) is list else [stated]
        if "properties" in node:
            return ["object"]
        if "items" in node:
            return ["array"]
        if "anyOf" not in node and "enum" not in node and "const" not in node:
            raise InvalidRequestError(f"{where}.type", "strict mode needs a type for every value")
        return []

    def reference(self, node: JSONObject, where: str, expanding: tuple[str, ...]) -> JSONObject:
        """Return a reference, or its target adapted.

        Strict mode allows no other keywords beside a reference. A reference with others is replaced by its target, once
        per recursion. So is a reference at the root, because the root must be an object itself.
        """
        target = node["$ref"]
        if type(target) is not str:
            raise InvalidRequestError(f"{where}.$ref", "must be a string")
        resolved = self.resolve(target, where)
        neighbours = {key: value for key, value in node.items() if key != "$ref" and key not in DROPPED}
        if target in expanding or (not neighbours and where != self.field):
            return {"$ref": target}
        return self.schema(merged(resolved, neighbours, where), where, (*expanding, target))

    def resolve(self, target: str, where: str) -> JSONObject:
        """Return the part of the root schema that a reference points to."""
        node: JSON = self.root
        if target != "#" and not target.startswith("#/"):
            raise InvalidRequestError(f"{where}.$ref", f"{target!r} points outside the schema")
        for step in target[2:].split("/") if target != "#" else ():
            step = step.replace("~1", "/").replace("~0", "~")
            node = node.get(step) if type(node) is dict else None
        if type(node) is not dict:
            raise InvalidRequestError(f"{where}.$ref", f"{target!r} points to nothing")
        return node

    def unwrapped(self, node: JSONObject, where: str) -> JSONObject:
        """Replace an `allOf` with one schema by that schema, and `oneOf` by `anyOf`.

        The two differ only for variants that overlap, which hardly occur.
        """
        if "allOf" in node:
            entries = node["allOf"]
            entry = entries[0] if type(entries) is list and len(entries) == 1 else None
            if type(entry) is not dict:
                raise InvalidRequestError(f"{where}.allOf", "strict mode has no intersections")
            node = merged(entry, {key: value for key, value in node.items() if key != "allOf"}, where)
        if "oneOf" in node:
            if "anyOf" in node:
                raise InvalidRequestError(f"{where}.oneOf", "strict mode cannot hold anyOf and oneOf together")
            node = {("anyOf" if key == "oneOf" else key): value for key, value in node.items()}
        return node

    def close_object(self, node: JSONObject, adapted: JSONObject, where: str, expanding: tuple[str, ...]) -> None:
        """Make every property of an object required, and forbid others."""
        others = node.get("additionalProperties", False)
        if others is not False:
            raise InvalidRequestError(
                f"{where}.additionalProperties", "strict mode needs every property by its name; must be false or absent"
            )
        if "properties" not in node and where != self.field:
            raise InvalidRequestError(
                f"{where}.properties", "strict mode has no free-form objects; name the properties"
            )
        properties = self.named(node.get("properties", {}), f"{where}.properties", expanding)
        required: list[JSON] = list(properties)
        stated = node.get("required")
        if type(stated) is list and set(map(str, stated)) == set(properties):
            required = stated
        adapted["properties"] = properties
        adapted["required"] = required
        adapted["additionalProperties"] = False

    def named(self, node: JSON, where: str, expanding: tuple[str, ...]) -> JSONObject:
        """Return an object of schemas with each schema adapted."""
        if type(node) is not dict:
            raise InvalidRequestError(where, "must be an object of schemas")
        return {name: self.schema(value, f"{where}.{name}", expanding) for name, value in node.items()}

    def variants(self, node: JSON, where: str, expanding: tuple[str, ...]) -> list[JSON]:
        """Return an array of schemas with each schema adapted."""
        if type(node) is not list or not node:
            raise InvalidRequestError(where, "must be an array of schemas")
        return [self.schema(value, f"{where}[{place}]", expanding) for place, value in enumerate(node)]
