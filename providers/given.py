"""The body of a request as a caller of an SDK wrote it, kept beside what was read of it.

The fields of `Request` say what is asked in words that all dialects share. They do not hold every spelling: a text may
be a string or a list of one part, a default may be written or left out. Where an SDK's arguments were read into fields,
the members are kept as they were given, and the dialect that they were written for sends them so: the body is the same,
and with it what the provider has cached for it.

A member is sent as given only while each field that it was read into still has its value. A changed field, another
model's rules or another dialect: the member is written from the fields, as in any other request.

Knows members by their names. Must not know any dialect: each gives its table of members and fields.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .json_values import JSON, JSONObject
from .messages import Message
from .snapshot import Snapshot

Sources: TypeAlias = "Mapping[str, tuple[str, ...]]"
"""A member of the body, or its path with dots → the fields of `Request` that it is written from."""

MESSAGES = "messages"


@dataclass(slots=True, frozen=True)
class GivenBody:
    """Members of a body as they were given, and the values of the fields that they were read into.

    dialect: the name of the dialect that they were written for.
    members: member → its value; a member inside another one by its path with dots.
    written: members that were given in another form than the wire's, such as a class in place of a schema: they are
        always written from the fields.
    fields: field → a copy of its value.
    snapshot: of the messages; None where they hold a value that has no snapshot, and then count as changed.
    """

    dialect: str
    members: JSONObject
    written: frozenset[str]
    fields: dict[str, object] = field(repr=False)
    snapshot: Snapshot | None = field(repr=False)

    def restore(self, dialect: str, body: JSONObject, request: object, sources: Sources, warnings: list[str]) -> None:
        """Put the members as given into a body that was written from the fields. A member that was not given is taken
        out, where its fields have not changed: such as a default that the dialect writes. Warnings about fields whose
        members are sent as given are removed."""
        if dialect != self.dialect:
            return
        changed = {name for names in sources.values() for name in names if self._is_changed(name, request)}
        for path, names in sources.items():
            if path not in self.written and changed.isdisjoint(names):
                _put(body, path.split("."), self.members.get(path), given=path in self.members)
        warnings[:] = [warning for warning in warnings if _field_of(warning) in changed or not _names(warning, sources)]

    def _is_changed(self, name: str, request: object) -> bool:
        value: object = getattr(request, name)
        if name == MESSAGES:
            messages: Sequence[Message] = getattr(request, MESSAGES)
            return self.snapshot is None or not self.snapshot.matches(messages)
        return bool(value != self.fields[name])


def given_body(
    dialect: str, members: JSONObject, request: object, sources: Sources, written: frozenset[str] = frozenset()
) -> GivenBody:
    """The members beside the request that they were read into."""
    names = {name for row in sources.values() for name in row}
    fields = {name: copy.deepcopy(getattr(request, name)) for name in sorted(names - {MESSAGES})}
    messages: Sequence[Message] = getattr(request, MESSAGES)
    return GivenBody(dialect, members, written, fields, Snapshot().extended(messages))


def _put(body: JSONObject, path: Sequence[str], value: JSON, *, given: bool) -> None:
    """Set a member, or take it out. An object that is left empty is taken out, too."""
    name, *rest = path
    if not rest:
        if given:
            body[name] = value
        else:
            body.pop(name, None)
        return
    inner = body.get(name)
    if type(inner) is not dict:
        if not given:
            return
        inner = body[name] = {}
    _put(inner, rest, value, given=given)
    if not inner:
        del body[name]


def _field_of(warning: str) -> str:
    """The field that a warning begins with."""
    end = next((place for place, character in enumerate(warning) if not (character.isalnum() or character == "_")), 0)
    return warning[:end]


def _names(warning: str, sources: Sources) -> bool:
    return any(_field_of(warning) in names for names in sources.values())
