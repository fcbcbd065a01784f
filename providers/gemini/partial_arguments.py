"""Converts arguments that arrive in pieces (`functionCall.partialArgs`) to the JSON text of one object, as it grows.

Each piece names its place with a JSONPath of plain steps (`$.recipe.steps[0]`, RFC 9535) and has a scalar value; a
string may come in several pieces. Models write in document order, so text can be delivered while it grows: containers
open and close as the path moves. A piece for a container that was closed is kept, and its member of the root is written
once more, whole, at the end: JSON parsers use the last of two members with one name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from ..json.json_values import JSON, JSONObject, arguments_text, string

Path: TypeAlias = tuple[str | int, ...]

SCALARS = ("stringValue", "numberValue", "boolValue", "nullValue")
"""The members for a piece's value. A piece has one of them."""

MOST_STEPS = 64
"""A path with more steps is treated as malformed."""

_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def path_steps(text: str) -> Path | None:
    """Parse a JSONPath to one member below the root. Returns its steps, or None for any other text."""
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            return None
        name, index, quoted, double_quoted = match.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(name if name is not None else _ESCAPED.sub(r"\1", quoted or double_quoted or ""))
        position = match.end()
        if len(steps) > MOST_STEPS:
            return None
    well_formed = text.startswith("$") and len(steps) > 0 and type(steps[0]) is str
    return tuple(steps) if well_formed else None


@dataclass(slots=True, eq=False, repr=False)
class _Container:
    """An object or array without its closing bracket."""

    is_array: bool
    count: int = field(default=0, init=False)  # the number of its members so far
    names: set[str | int] = field(default_factory=lambda: set(), init=False)  # the names of its members, for an object

    def takes(self, step: str | int) -> bool:
        """Return whether a member of that name or position can still be written."""
        if type(step) is int:
            return self.is_array and step >= self.count
        return not self.is_array and step not in self.names

    def enter(self, step: str | int) -> str:
        """Add a member. Returns the text before its value."""
        comma = "," if self.count else ""
        if type(step) is int:
            skipped = "null," * (step - self.count)
            self.count = step + 1
            return comma + skipped
        self.count += 1
        self.names.add(step)
        return f"{comma}{arguments_text(step)}:"


class PartialArguments:
    """The arguments of one call. `add` and `close` return the new text.

    A path may name an item of an array whose predecessors never came; those become null. One null is allowed for each
    character of the received paths and strings, so that a short path cannot create a large value. A piece that would
    need more is dropped.

    lost: whether a piece was dropped, so that the arguments are not complete.
    """

    __slots__ = ("_allowance", "_containers", "_late", "_path", "_received", "_string", "_values", "lost")

    def __init__(self) -> None:
        self._containers: list[_Container] = []  # from the root down; empty until the first piece
        self._path: list[str | int] = []  # the step to each open container below the root
        self._string: tuple[Path, list[str], bool] | None = None  # the open string: place, pieces, delivered so far?
        self._values: list[tuple[Path, JSON, list[str] | None]] = []  # all pieces: a scalar, or a string's pieces
        self._late: dict[str | int, None] = {}  # members of the root to be written again, in order
        self._received = 0  # characters of paths and strings
        self._allowance = 0  # nulls that may still be written for missing items
        self.lost: bool = False

    def add(self, piece: JSONObject) -> str:
        """Add one element of `partialArgs`. Returns the new text."""
        where = string(piece, "jsonPath") or ""
        path = path_steps(where)
        kind = _kind_of(piece)
        if path is None or kind is None:
            # A piece without a value only marks that its place continues or has ended.
            self.lost = self.lost or path is None
            return ""
        value: JSON = None if kind == "nullValue" else piece[kind]
        size = len(where) + (len(value) if type(value) is str else 0)
        self._received += size
        self._allowance += size
        if isinstance(value, dict | list) or not self._may_place(path):
            self.lost = True  # the protocol has only scalars, or the path creates too much
            return ""
        if type(value) is str:
            return self._add_string(path, value, more=piece.get("willContinue") is True)
        text = self._end_string() + self._place(path)
        self._values.append((path, value, None))
        return text if path[0] in self._late else text + arguments_text(value)

    def close(self) -> str:
        """End the arguments. Returns the text that is still missing."""
        text = [self._end_string()]
        if not self._containers:
            text.append(self._open(is_array=False))
        text.append(self._close_down_to(0))
        tree = self._tree() if self._late else {}
        for name in self._late:
            text.append(self._containers[0].enter(name) + arguments_text(tree.get(str(name))))
        text.append("}")
        return "".join(text)

    def _add_string(self, path: Path, value: str, *, more: bool) -> str:
        """Add a piece of a string. Returns the new text."""
        if self._string is not None and self._string[0] == path:
            text, delivered = "", self._string[2]
            self._string[1].append(value)
        else:
            text = self._end_string() + self._place(path)
            delivered = path[0] not in self._late
            text += '"' if delivered else ""
            pieces = [value]
            self._values.append((path, None, pieces))
            self._string = (path, pieces, delivered)
        if delivered:
            text += arguments_text(value)[1:-1]
        return text if more else text + self._end_string()

    def _end_string(self) -> str:
        delivered = self._string is not None and self._string[2]
        self._string = None
        return '"' if delivered else ""

    def _may_place(self, path: Path) -> bool:
        """Return whether the nulls for a path's missing items are within the allowance, and subtract them.

        For a late member, `_tree` writes the nulls and counts them.
        """
        if path[0] in self._late or (self._string is not None and self._string[0] == path):
            return True
        shared = self._shared(path)
        first = path[shared]
        missing = sum(step for step in path[shared + 1 :] if type(step) is int)
        if self._containers:
            if not self._containers[shared].takes(first):
                return True  # it becomes late
            missing += first - self._containers[shared].count if type(first) is int else 0
        if missing > self._allowance:
            return False
        self._allowance -= missing
        return True

    def _shared(self, path: Path) -> int:
        """Return the number of open containers below the root that a path leads through."""
        shared = 0
        while shared < min(len(self._path), len(path) - 1) and self._path[shared] == path[shared]:
            shared += 1
        return shared

    def _place(self, path: Path) -> str:
        """Return the text up to the place of a value. Marks the path's member as late if its place was closed."""
        opening = "" if self._containers else self._open(is_array=False)
        if path[0] in self._late:
            return opening
        shared = self._shared(path)
        if not self._containers[shared].takes(path[shared]):
            self._late[path[0]] = None
            return opening
        text = [opening, self._close_down_to(shared), self._containers[shared].enter(path[shared])]
        for step, following in zip(path[shared:-1], path[shared + 1 :], strict=True):
            self._path.append(step)
            text.append(self._open(is_array=type(following) is int))
            text.append(self._containers[-1].enter(following))
        return "".join(text)

    def _open(self, *, is_array: bool) -> str:
        self._containers.append(_Container(is_array))
        return "[" if is_array else "{"

    def _close_down_to(self, depth: int) -> str:
        closed = self._containers[depth + 1 :]
        del self._containers[depth + 1 :]
        del self._path[depth:]
        return "".join("]" if container.is_array else "}" for container in reversed(closed))

    def _tree(self) -> JSONObject:
        tree = _Tree(self._received)
        for path, value, pieces in self._values:
            if path[0] in self._late and not tree.set(path, value if pieces is None else "".join(pieces)):
                self.lost = True
        return tree.root


def _kind_of(piece: JSONObject) -> str | None:
    """Return the member with the piece's value, or None if there is none.

    A null member counts as absent. But a piece whose only value member is a null `nullValue` has the value null:
    protobuf's JSON mapping writes it so.
    """
    present = [name for name in SCALARS if name in piece]
    return next(
        (name for name in present if piece[name] is not None), "nullValue" if present == ["nullValue"] else None
    )


@dataclass(slots=True, eq=False, repr=False)
class _Tree:
    """An object that grows by paths."""

    allowance: int  # nulls that may still be written for missing items
    root: dict[str, JSON] = field(default_factory=lambda: {}, init=False)  # the object

    def set(self, path: Path, value: JSON) -> bool:
        """Set the value at a path. Returns False if that needs more nulls than are allowed."""
        node: dict[str, JSON] | list[JSON] = self.root
        for step, following in pairwise(path):
            child = _member(node, step)
            inner = child if isinstance(child, list if type(following) is int else dict) else _new_container(following)
            if inner is not child and not self._put(node, step, inner):
                return False
            node = inner
        return self._put(node, path[-1], value)

    def _put(self, node: dict[str, JSON] | list[JSON], step: str | int, value: JSON) -> bool:
        if isinstance(node, dict):
            node[str(step)] = value
        elif type(step) is int:
            missing = max(step - len(node), 0)
            if missing > self.allowance:
                return False
            self.allowance -= missing
            node.extend([None] * (step + 1 - len(node)))
            node[step] = value
        return True


def _new_container(first_step: str | int) -> dict[str, JSON] | list[JSON]:
    return [] if type(first_step) is int else {}


def _member(node: dict[str, JSON] | list[JSON], step: str | int) -> JSON:
    if isinstance(node, dict):
        return node.get(str(step))
    return node[step] if type(step) is int and step < len(node) else None
