"""Anthropic's own request types, as a judge of what we write: the body must fit them, member by member.

Pydantic reads the SDK's `TypedDict`s. It validates an `Iterable` only as it is read and leaves out members that a type
does not have, so the validated value is read to its end and compared with what went in.
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
    """Assert that a body is what Anthropic's types describe, and holds nothing else."""
    known = {name: value for name, value in body.items() if name not in OLDER_MEMBERS}
    assert drained(PARAMETERS[stream].validate_python(known)) == known


def drained(value: object) -> object:
    """The value with every lazily validated part read. The types also take the blocks of an answer as they are."""
    if isinstance(value, BaseModel):
        return drained(value.model_dump(exclude_unset=True))
    if isinstance(value, Mapping):
        return {key: drained(member) for key, member in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [drained(member) for member in value]
    return value
