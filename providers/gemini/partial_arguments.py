"""Arguments that arrive in pieces (`functionCall.partialArgs`) → the JSON text of one object, as it grows.

Each piece names its place by a JSONPath of plain steps (`$.recipe.steps[0]`, RFC 9535) and holds a scalar; a string
may come in several pieces. Models write in document order, so the text can be told while it grows: containers open
and close as the path moves. A piece for a container that is closed already is kept, and the member of the root that
it belongs to is written once more, whole, at the end: JSON readers take the last of two members of one name.

Knows JSON text and paths. Must not know chunks or events.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TypeAlias

from ..json_values import JSON, JSONObject, arguments_text, string

Path: TypeAlias = "tuple[str | int, ...]"

SCALARS = ("stringValue", "numberValue", "boolValue", "nullValue")
"""The members that hold a piece's value; one of them is there."""

MOST_STEPS = 64
"""A path with more steps is a mistake and not an argument."""

_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def path_steps(text: str) -> Path | None:
    """The steps of a JSONPath that leads to one member below the root; None for anything else."""
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


class _Container:
    """An object or array whose closing bracket is still to come."""

    __slots__ = ("count", "is_array", "names")

    def __init__(self, is_array: bool) -> None:
        self.is_array = is_array
        self.count = 0
        self.names: set[str | int] = set()

    def takes(self, step: str | int) -> bool:
        """Whether a member of that name can still be written here."""
        if type(step) is int:
            return self.is_array and step >= self.count
        return not self.is_array and step not in self.names

    def enter(self, step: str | int) -> str:
        """The text that comes before the member's value."""
        comma = "," if self.count else ""
        if type(step) is int:
            skipped = "null," * (step - self.count)
            self.count = step + 1
            return comma + skipped
        self.count += 1
        self.names.add(step)
        return f"{comma}{arguments_text(step)}:"


class PartialArguments:
    """The arguments of one call. `add` and `close` return the text that is new.

    A path may name an array's item whose predecessors never came; those become null. The paths and strings received
    bound how many: one null for each of their characters, so that a short path cannot create a large value. A piece
    that would need more is dropped.

    lost: a piece was dropped, so the arguments are not whole.
    """

    __slots__ = ("_allowance", "_containers", "_late", "_path", "_received", "_string", "_values", "lost")

    def __init__(self) -> None:
        self._containers: list[_Container] = []  # from the root down; empty until the first piece
        self._path: list[str | int] = []  # the step that led to each open container but the root
        self._string: tuple[Path, list[str], bool] | None = None  # the open string: where, its pieces, told already?
        self._values: list[tuple[Path, JSON, list[str] | None]] = []  # what came: a scalar, or a string's pieces
        self._late: dict[str | int, None] = {}  # members of the root to be written again, in order
        self._received = 0  # characters of paths and strings
        self._allowance = 0  # nulls that may still be written for items that were left out
        self.lost: bool = False

    def add(self, piece: JSONObject) -> str:
        """Take one element of `partialArgs`."""
        where = string(piece, "jsonPath") or ""
        path = path_steps(where)
        kind = _kind_of(piece)
        if path is None or kind is None:
            # A piece without a value only says that its place will go on, or has ended.
            self.lost = self.lost or path is None
            return ""
        value: JSON = None if kind == "nullValue" else piece[kind]
        size = len(where) + (len(value) if type(value) is str else 0)
        self._received += size
        self._allowance += size
        if isinstance(value, dict | list) or not self._may_place(path):
            self.lost = True  # the protocol has scalars only, or the path creates too much
            return ""
        if type(value) is str:
            return self._add_string(path, value, more=piece.get("willContinue") is True)
        text = self._end_string() + self._place(path)
        self._values.append((path, value, None))
        return text if path[0] in self._late else text + arguments_text(value)

    def close(self) -> str:
        """The call has ended: the text that is still missing."""
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
        if self._string is not None and self._string[0] == path:
            text, told = "", self._string[2]
            self._string[1].append(value)
        else:
            text = self._end_string() + self._place(path)
            told = path[0] not in self._late
            text += '"' if told else ""
            pieces = [value]
            self._values.append((path, None, pieces))
            self._string = (path, pieces, told)
        if told:
            text += arguments_text(value)[1:-1]
        return text if more else text + self._end_string()

    def _end_string(self) -> str:
        told = self._string is not None and self._string[2]
        self._string = None
        return '"' if told else ""

    def _may_place(self, path: Path) -> bool:
        """Whether the nulls for the items that the path leaves out fit the allowance, which they are taken from.
        Where the path's member is late, `_tree` writes the nulls, and counts them."""
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
        """How many of the open containers below the root the path leads through."""
        shared = 0
        while shared < min(len(self._path), len(path) - 1) and self._path[shared] == path[shared]:
            shared += 1
        return shared

    def _place(self, path: Path) -> str:
        """The text up to the place of a value; marks the path's member as late where the place has gone by."""
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
        """All that came, as a value."""
        tree = _Tree(self._received)
        for path, value, pieces in self._values:
            if path[0] in self._late and not tree.set(path, value if pieces is None else "".join(pieces)):
                self.lost = True
        return tree.root


def _kind_of(piece: JSONObject) -> str | None:
    """The member that holds the piece's value. A null one is absent; but a piece whose only value member is a null
    `nullValue` holds null, because protobuf's JSON mapping writes that value so."""
    present = [name for name in SCALARS if name in piece]
    return next(
        (name for name in present if piece[name] is not None), "nullValue" if present == ["nullValue"] else None
    )


class _Tree:
    """An object that grows by paths. allowance: nulls that may still be put in place of items that were left out."""

    __slots__ = ("allowance", "root")

    def __init__(self, allowance: int) -> None:
        self.allowance = allowance
        self.root: dict[str, JSON] = {}

    def set(self, path: Path, value: JSON) -> bool:
        """Put a value in its place; False where the allowance does not reach."""
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
