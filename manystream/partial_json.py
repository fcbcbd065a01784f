"""Parses JSON text that is still growing, for interfaces that show a tool call's arguments while the model writes them.

Each character is read once. The parser keeps state and never parses text again. Its use is optional: the response has
the finished call's arguments, and no other part of the library parses them early.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from . import Event, ToolCallDelta, ToolCallDone, ToolCallStart
from .providers.json.exact_numbers import has_plain_numbers
from .providers.json.json_values import JSON, representable_loads, shown, strict_loads

Path: TypeAlias = tuple[str | int, ...]
Container: TypeAlias = dict[str, JSON] | list[JSON]

DEEPEST = 1024
"""The most containers inside each other: as many as the parser of whole texts accepts."""

ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
REPLACEMENT = "\ufffd"

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_HEX = re.compile(r"[0-9a-fA-F]{0,4}")
_WORD = re.compile(r"[-+.0-9A-Za-z]+")


class Expects(enum.Enum):
    """What the grammar allows next, outside strings, numbers and literals."""

    VALUE = "a value"
    FIRST_ITEM = "a value or ']'"
    FIRST_NAME = "a member's name or '}'"
    NAME = "a member's name"
    COLON = "':'"
    SEPARATOR = "',' or the closing bracket"
    NOTHING = "nothing more"


VALUES = frozenset({Expects.VALUE, Expects.FIRST_ITEM})
NAMES = frozenset({Expects.FIRST_NAME, Expects.NAME})
CLOSABLE: dict[str, tuple[type[Container], frozenset[Expects]]] = {
    "}": (dict, frozenset({Expects.FIRST_NAME, Expects.SEPARATOR})),
    "]": (list, frozenset({Expects.FIRST_ITEM, Expects.SEPARATOR})),
}


Place: TypeAlias = "tuple[Place, str | int] | None"
"""A path as links from the inside out: the container's place and the member's name or position in it; None for the
root. Changes share the places of their containers. Separate paths would cost depth times length for deep nesting.
"""


@dataclass(slots=True)
class Change:
    """One change of the value.

    place: where, as links from the inside out; `path` has the same in order.
    value: the new number or literal; the text that was appended to a string; or the container, which keeps growing.
    ended: whether the value at this place is complete.
    """

    place: Place = field(repr=False)
    value: JSON
    ended: bool

    @property
    def path(self) -> Path:
        """Names and positions that lead from the root to this place; () for the root. Built at each access."""
        steps: list[str | int] = []
        place = self.place
        while place is not None:
            place, step = place
            steps.append(step)
        return tuple(reversed(steps))


class PartialJSON:
    """One JSON value whose text arrives in pieces.

    ended: whether the value is complete.
    broken: why the text is not JSON, or None. After an error nothing more is read, and `value` does not change.
    """

    __slots__ = (
        "_changes", "_expects", "_held", "_is_name", "_keys", "_pieces", "_places", "_read", "_root", "_stack", "_word",
        "broken", "ended",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ended: bool = False
        self.broken: str | None = None
        self._root: JSON = None
        self._stack: list[Container] = []  # open containers, outermost first
        self._places: list[Place] = []  # the place of each open container
        self._keys: list[str | int] = []  # for each open container, the member that is being read
        self._expects = Expects.VALUE
        self._pieces: list[str] = []  # of the string that is being read
        self._is_name = False  # whether that string is a member's name
        self._word: list[str] = []  # pieces of the number or literal that is being read
        self._held = ""  # the beginning of an incomplete escape, at most eleven characters
        self._changes: list[Change] = []
        self._read: Callable[[str, int], int] = self._read_structure

    def __repr__(self) -> str:
        state = f"broken: {self.broken}" if self.broken else "ended" if self.ended else "growing"
        return f"<PartialJSON {state}>"

    @property
    def value(self) -> JSON:
        """The value so far. Do not change it.

        Containers grow with the text. A number, a literal and a member's name appear when they are complete. A string
        grows; reading `value` inside a string costs time in proportion to the string's length. So a display reads it
        once per frame, or applies the changes that `feed` returns.
        """
        if self._read == self._read_string and not self._is_name:
            text = "".join(self._pieces)
            self._pieces = [text]
            self._put(text)
        return self._root

    def feed(self, text: str) -> list[Change]:
        """Parse more text. Returns the changes in order. Never raises for malformed text: see `broken`."""
        if self._held:
            text, self._held = self._held + text, ""
        position = 0
        while position < len(text) and self.broken is None:
            position = self._read(text, position)
        changes, self._changes = self._changes, []
        return changes

    def close(self) -> list[Change]:
        """Report the end of the text. Returns the last changes.

        A number at the root is complete now. An incomplete value sets `broken`.
        """
        if self.broken is None and self._word:
            self._end_word()
        if self.broken is None and not self.ended:
            self._break("the text ends before the value does")
        changes, self._changes = self._changes, []
        return changes

    # --- readers: each parses the text from a position on and returns the position after it ---

    def _read_structure(self, text: str, position: int) -> int:
        match = _WHITESPACE.match(text, position)
        assert match is not None
        position = match.end()
        if position == len(text):
            return position
        character, expects = text[position], self._expects
        if character == '"' and (expects in VALUES or expects in NAMES):
            self._begin_string(is_name=expects in NAMES)
        elif character in "{[" and expects in VALUES:
            self._open({} if character == "{" else [])
        elif character in CLOSABLE and self._stack:
            kind, allowed = CLOSABLE[character]
            if type(self._stack[-1]) is not kind or expects not in allowed:
                self._unexpected(character)
            else:
                self._close()
        elif character == "," and expects is Expects.SEPARATOR:
            self._next_member()
        elif character == ":" and expects is Expects.COLON:
            self._expects = Expects.VALUE
        elif expects in VALUES and _WORD.match(character):
            self._read = self._read_word
            return position
        else:
            self._unexpected(character)
        return position + 1

    def _read_string(self, text: str, position: int) -> int:
        began = len(self._pieces)
        while position < len(text):
            match = _PLAIN.match(text, position)
            if match is not None:
                self._pieces.append(match.group())
                position = match.end()
                continue
            character = text[position]
            if character == '"':
                self._end_string(began)
                return position + 1
            if character != "\\":
                self._break(f"a string holds the control character {character!r}")
                return position
            following = self._read_escape(text, position)
            if following == position:  # not whole yet
                self._held = text[position:]
                break
            position = following
            if self.broken is not None:
                return position
        if not self._is_name and len(self._pieces) > began:
            self._add_change("".join(self._pieces[began:]), ended=False)
        return len(text)

    def _read_escape(self, text: str, position: int) -> int:
        """Parse the escape at this position. Returns the position itself if the escape may continue in later text."""
        kind = text[position + 1 : position + 2]
        if kind in ESCAPES:
            self._pieces.append(ESCAPES[kind])
            return position + 2
        if kind != "u":
            if kind:
                self._break(f"a string holds the escape {shown(text[position : position + 2])}")
            return position
        match = _HEX.match(text, position + 2)
        assert match is not None
        end = match.end()
        if end - position < 6:
            if end < len(text):
                self._break(f"a string holds the escape {shown(text[position : end + 1])}")
            return position
        code = int(match.group(), 16)
        if 0xD800 <= code < 0xDC00:
            return self._read_pair(text, position, code)
        self._pieces.append(REPLACEMENT if 0xDC00 <= code < 0xE000 else chr(code))
        return end

    def _read_pair(self, text: str, position: int, high: int) -> int:
        """Parse the escape of a high surrogate. Without a low one's after it, it becomes U+FFFD, as in `loads`."""
        second = text[position + 6 : position + 12]
        if len(second) < 6 and "\\u".startswith(second[:2]) and _HEX.fullmatch(second[2:]):
            return position
        low = int(second[2:], 16) if second.startswith("\\u") and len(second) == 6 and _is_hex(second[2:]) else 0
        if 0xDC00 <= low < 0xE000:
            self._pieces.append(chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)))
            return position + 12
        self._pieces.append(REPLACEMENT)
        return position + 6

    def _read_word(self, text: str, position: int) -> int:
        match = _WORD.match(text, position)
        if match is not None:
            self._word.append(match.group())
            position = match.end()
        if position < len(text):
            self._end_word()
        return position

    # --- the effects of what was read ---

    def _begin_string(self, *, is_name: bool) -> None:
        self._pieces = []
        self._is_name = is_name
        self._read = self._read_string
        if not is_name:
            self._put("")

    def _end_string(self, began: int) -> None:
        added = "".join(self._pieces[began:])
        text = "".join(self._pieces)
        self._pieces = []
        self._read = self._read_structure
        if self._is_name:
            self._keys[-1] = text
            self._expects = Expects.COLON
        else:
            self._put(text)
            self._add_change(added, ended=True)
            self._value_ended()

    def _end_word(self) -> None:
        word = "".join(self._word)
        self._word = []
        self._read = self._read_structure
        try:
            value = strict_loads(word.encode())
            if not has_plain_numbers(word):
                value = representable_loads(word)
        except ValueError:
            self._break(f"{shown(word)} is neither a number nor a literal")
            return
        self._put(value)
        self._add_change(value, ended=True)
        self._value_ended()

    def _open(self, container: Container) -> None:
        if len(self._stack) == DEEPEST:
            self._break(f"containers are nested more than {DEEPEST} deep")
            return
        self._put(container)
        place = self._place()
        self._changes.append(Change(place, container, False))
        self._stack.append(container)
        self._places.append(place)
        self._keys.append("" if type(container) is dict else 0)
        self._expects = Expects.FIRST_NAME if type(container) is dict else Expects.FIRST_ITEM

    def _close(self) -> None:
        container = self._stack.pop()
        self._keys.pop()
        self._changes.append(Change(self._places.pop(), container, True))
        self._value_ended()

    def _next_member(self) -> None:
        key = self._keys[-1]
        if type(key) is int:
            self._keys[-1] = key + 1
            self._expects = Expects.VALUE
        else:
            self._expects = Expects.NAME

    def _value_ended(self) -> None:
        self._expects = Expects.SEPARATOR if self._stack else Expects.NOTHING
        self.ended = not self._stack

    def _put(self, value: JSON) -> None:
        """Store a value at the place that is being read."""
        if not self._stack:
            self._root = value
            return
        container, key = self._stack[-1], self._keys[-1]
        if isinstance(container, dict):
            container[str(key)] = value
        elif key == len(container):
            container.append(value)
        else:
            container[-1] = value

    def _place(self) -> Place:
        """Return the place of the member that is being read."""
        return (self._places[-1], self._keys[-1]) if self._stack else None

    def _add_change(self, value: JSON, *, ended: bool) -> None:
        self._changes.append(Change(self._place(), value, ended))

    def _unexpected(self, character: str) -> None:
        self._break(f"{character!r} found where {self._expects.value} was expected")

    def _break(self, why: str) -> None:
        self.broken = why


def _is_hex(text: str) -> bool:
    match = _HEX.fullmatch(text)
    return match is not None and len(text) == 4


@dataclass(slots=True, eq=False, repr=False)
class LiveCall:
    """A tool call while the model writes it."""

    id: str  # the call's id
    name: str  # the tool's name
    arguments: PartialJSON = field(default_factory=PartialJSON, init=False)  # the arguments so far
    done: bool = field(default=False, init=False)  # whether the call has ended
    # False if the answer was cut off inside the call; valid once `done` is True
    complete: bool = field(default=False, init=False)

    def __repr__(self) -> str:
        return f"<LiveCall {self.name} {self.arguments!r}>"


class LiveCalls:
    """The tool calls of one stream while the model writes them. Pass every event of the stream to `on_event`.

    calls = LiveCalls()

    def on_event(event):
        for change in calls.on_event(event):
            …                                   # or use calls[event.index].arguments.value
    """

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[int, LiveCall] = {}

    def __getitem__(self, index: int) -> LiveCall:
        return self._calls[index]

    def __iter__(self) -> Iterator[LiveCall]:
        """Iterate over the calls in the order in which they began."""
        return iter(self._calls.values())

    def on_event(self, event: Event) -> list[Change]:
        """Process an event. Returns the changes of the arguments of the call at its index."""
        if isinstance(event, ToolCallDelta):
            call = self._calls.get(event.index)
            return [] if call is None else call.arguments.feed(event.arguments)
        if isinstance(event, ToolCallStart):
            self._calls[event.index] = LiveCall(event.id, event.name)
        elif isinstance(event, ToolCallDone) and event.index in self._calls:
            call = self._calls[event.index]
            call.done, call.complete = True, event.complete
        return []
