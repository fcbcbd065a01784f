"""Checks bodies against Anthropic's own request types, member by member.

Pydantic reads the SDK's `TypedDict`s. It validates an `Iterable` only when it is read, and leaves out members that a
type does not have. So the validated value is read to its end and compared with the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anthropic.types import message_create_params
from pydantic import BaseModel, TypeAdapter

PARAMETERS: dict[bool, TypeAdapter[object]] = {
    False: TypeAdapter(message_create_params.MessageCreateParamsNonStreaming),
    True: TypeAdapter(message_create_params.MessageCreateParamsStreaming),
}

OLDER_MEMBERS = frozenset({"temperature", "top_p"})
"""Members of API version 2023-06-01 that the SDK's types, which are of a later version, no longer have."""


def check_body(body: dict[str, object], *, stream: bool) -> None:
    """Assert that a body matches Anthropic's types and has no other members."""
    known = {name: value for name, value in body.items() if name not in OLDER_MEMBERS}
    assert drained(PARAMETERS[stream].validate_python(known)) == known


def drained(value: object) -> object:
    """Return the value with every lazily validated part read. The types also accept blocks of an answer as they are."""
    if isinstance(value, BaseModel):
        return drained(value.model_dump(exclude_unset=True))
    if isinstance(value, Mapping):
        return {key: drained(member) for key, member in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [drained(member) for member in value]
    return value
