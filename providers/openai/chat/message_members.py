"""Reads members of a message that servers write in more than one way: arguments as text or as an object."""

from __future__ import annotations

from ...json.json_values import JSON, JSONObject, MalformedJSONError, arguments_text, mapping, objects

CALL_MEMBERS = frozenset({"tool_calls", "function_call"})
"""Members of a message with calls, or with pieces of them."""

PADDING = frozenset({"role", "name", "index", "token_id", "thought_signature"})
"""Members of a message or delta that are ignored. `extra_content` contains the signature as well."""


def has_object_arguments(choice: JSONObject) -> bool:
    """Return whether a choice has a call with arguments that are an object instead of text."""
    message = mapping(choice, "delta") or mapping(choice, "message")
    if "tool_calls" not in message and "function_call" not in message:
        return False
    calls = [mapping(call, "function") for call in objects(message, "tool_calls")]
    return any(type(call.get("arguments")) is dict for call in (*calls, mapping(message, "function_call")))


def has_content(delta: JSON) -> bool:
    """Return whether a delta has a member that is read."""
    return type(delta) is dict and any(value for name, value in delta.items() if name not in PADDING)


def arguments_of(value: JSON) -> str:
    """Return arguments as JSON text. A few servers send the object itself."""
    if type(value) is str:
        return value
    return "" if value is None else as_text(value, "arguments")


def as_text(value: JSON, name: str) -> str:
    """Return the JSON text of a value, for a member that should have been text."""
    try:
        return arguments_text(value)
    except TypeError:
        raise MalformedJSONError(f"{name} cannot be written as JSON text") from None
