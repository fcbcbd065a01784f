"""Keeps the members of a body as the caller of an SDK wrote them, beside the fields that were read from them.

The fields of `Request` do not hold every form of a member: a text may be a string or a list of one part, and a default
may be written or left out. When SDK arguments are read into fields, the members are also kept in their given form. The
dialect for which they were written sends that form. Thus the body is the one that the SDK would send, and the
provider's prompt cache still matches it.

A member is sent in its given form only while all fields that were read from it have their values. After a change of a
field, and for another dialect, the member is written from the fields, as in any other request.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ..json.json_types import JSON, JSONObject
from .messages import Message

if TYPE_CHECKING:
    from .snapshot import Snapshot

Sources: TypeAlias = Mapping[str, tuple[str, ...]]
"""Maps a member of the body, or its path with dots, to the fields of `Request` from which it is written."""

MESSAGES = "messages"


@dataclass(slots=True, frozen=True)
class GivenBody:
    """The given members of a body, and the values of the fields that were read from them.

    dialect: the name of the dialect for which the members were written.
    members: the members' values by name; the name of an inner member is its path with dots.
    written: the members that were not given in their wire form, such as a class in place of a schema. They are always
        written from the fields.
    fields: copies of the fields' values, by name.
    snapshot: a snapshot of the messages; None if a value in them has no snapshot, and then they count as changed.
    left_out: warnings about members of the given messages that the fields do not hold.
    first: the first message that was read. A conversation that still begins with it needs these warnings.
    """

    dialect: str
    members: JSONObject
    written: frozenset[str]
    fields: dict[str, object] = field(repr=False)
    snapshot: Snapshot | None = field(repr=False)
    left_out: tuple[str, ...] = ()
    first: Message | None = field(default=None, repr=False)

    def restore(self, dialect: str, body: JSONObject, request: object, sources: Sources, warnings: list[str]) -> None:
        """Replace members of a body that was written from fields by their given form, if their fields are unchanged.

        A member that was not given is removed if its fields are unchanged, such as a default that the dialect writes.
        Warnings about the fields of members in given form are removed from `warnings`, and warnings about what the
        fields do not hold are added where the messages are written from them.
        """
        if dialect != self.dialect:
            self._warn(request, warnings)
            return
        changed = {name for names in sources.values() for name in names if self._is_changed(name, request)}
        for path, names in sources.items():
            if path not in self.written and changed.isdisjoint(names):
                _put(body, path.split("."), self.members.get(path), given=path in self.members)
        warnings[:] = [warning for warning in warnings if _field_of(warning) in changed or not _names(warning, sources)]
        if MESSAGES in changed:
            self._warn(request, warnings)

    def _warn(self, request: object, warnings: list[str]) -> None:
        messages: Sequence[Message] = getattr(request, MESSAGES)
        if messages and messages[0] is self.first:
            warnings += self.left_out

    def _is_changed(self, name: str, request: object) -> bool:
        value: object = getattr(request, name)
        if name == MESSAGES:
            messages: Sequence[Message] = getattr(request, MESSAGES)
            return self.snapshot is None or not self.snapshot.matches(messages)
        return bool(value != self.fields[name])


def given_body(
    dialect: str,
    members: JSONObject,
    request: object,
    sources: Sources,
    written: frozenset[str] = frozenset(),
    left_out: Sequence[str] = (),
) -> GivenBody:
    """Make the `GivenBody` of a request that was read from `members`."""
    from .snapshot import Snapshot

    names = {name for row in sources.values() for name in row}
    fields = {name: copy.deepcopy(getattr(request, name)) for name in sorted(names - {MESSAGES})}
    messages: Sequence[Message] = getattr(request, MESSAGES)
    first = messages[0] if messages else None
    return GivenBody(dialect, members, written, fields, Snapshot().extended(messages), tuple(left_out), first)


def nothing_given(messages: Sequence[Message], left_out: Sequence[str]) -> GivenBody:
    """Make the `GivenBody` of a request whose messages lost members when they were read, and are always written."""
    return GivenBody("", {}, frozenset(), {}, None, tuple(left_out), messages[0] if messages else None)


def _put(body: JSONObject, path: Sequence[str], value: JSON, *, given: bool) -> None:
    """Set the member at `path` if it was given; else remove it, and the objects that become empty."""
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
    """Return the name of the field with which a warning begins."""
    end = next((place for place, character in enumerate(warning) if not (character.isalnum() or character == "_")), 0)
    return warning[:end]


def _names(warning: str, sources: Sources) -> bool:
    return any(_field_of(warning) in names for names in sources.values())
