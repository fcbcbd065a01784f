"""What of a conversation is written already: so that a turn appended to a long one costs that turn, not all of them.

How it works. Every dialect writes messages in order, into one array. Its writer can write them in two stretches: the
later one is told what it has to know of the earlier one (`Stretch.left`: which call ids are taken, which calls wait for
a result), and refuses where more than that would cross the cut. So whatever it does not refuse is, byte for byte, what
it would have written in one.

A `Beginning` is such an earlier stretch that was kept: the bytes, and exactly what the messages held (`seen.py`). It
ends before the last round, for that is where agents still change things. When the next request begins with messages
that are still the same to the last value, only those after them are checked and written; the bytes are copied in.
Anything else (a message changed, taken out or put in, another model's rules, a result for a call that seemed lost) is
written anew, from the first message. What cannot be proved to be unchanged is never sent from memory.

A `WrittenMessages` belongs to one conversation and goes with it. It holds the beginnings for the last `KEPT` ways of
writing, so at most that many times the size of the conversation's wire form; short conversations leave nothing in it.

Knows the order of work. Must not know any wire form.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar, cast

from .errors import InvalidRequestError
from .exact_numbers import UnwritableNumberError
from .json_values import JSON, JSONObject, dumps, written
from .message_checks import validate_messages
from .messages import Message, Role
from .seen import Seen

Left = TypeVar("Left")

KEPT = 2
"""How many beginnings a conversation keeps: for two providers, or models, that take turns."""

SHORTEST = 16
"""Shorter conversations are written in the time that keeping them would take."""


@dataclass(slots=True)
class Stretch(Generic[Left]):
    """Some messages in their wire form.

    items: the array's elements. left: what the messages after these must know of them, and of all before; None where
    nothing can be written after them without knowing more. warnings: of these messages. unanswered: warnings of the
    calls that no message so far has answered, those of earlier stretches included; a later one may say otherwise.
    """

    items: list[JSONObject]
    left: Left | None
    warnings: list[str] = field(default_factory=lambda: [])
    unanswered: list[str] = field(default_factory=lambda: [])


Write: TypeAlias = "Callable[[Sequence[Message], int, Left | None], Stretch[Left] | None]"
"""A dialect's writer: messages, the number of the first, and what earlier ones left (None: there are none) → their
stretch, or None where these cannot be written apart from the earlier ones."""


@dataclass(slots=True, frozen=True)
class Beginning(Generic[Left]):
    """The first messages of a conversation, written. `wire`: the elements, with commas between them."""

    way: Hashable
    seen: Seen
    wire: bytes
    left: Left | None
    warnings: tuple[str, ...]

    def and_also(self, messages: Sequence[Message], write: Write[Left]) -> Beginning[Left] | None:
        """With more messages; None where they cannot be written apart, or kept."""
        if not messages:
            return self
        stretch = write(messages, len(self.seen), self.left)
        if stretch is None or stretch.left is None:
            return None
        seen = self.seen.and_also(messages)
        if seen is None:
            return None
        wire = b",".join(filter(None, (self.wire, _elements(stretch.items))))
        return Beginning(self.way, seen, wire, stretch.left, (*self.warnings, *stretch.warnings))


class WrittenMessages:
    """What is written of one conversation. Values in it are replaced, never changed."""

    __slots__ = ("_beginnings",)

    def __init__(self) -> None:
        self._beginnings: tuple[Beginning[object], ...] = ()

    def __repr__(self) -> str:
        held = ", ".join(f"{len(beginning.seen)} messages" for beginning in self._beginnings)
        return f"<WrittenMessages: {held or 'nothing'}>"

    def __reduce__(self) -> tuple[type[WrittenMessages], tuple[()]]:
        """A deep copy, or another process, begins anew."""
        return WrittenMessages, ()

    def copy(self) -> WrittenMessages:
        """The same for a copy of the conversation: what is equal need not be written again."""
        copied = WrittenMessages()
        copied._beginnings = self._beginnings
        return copied

    def clear(self) -> None:
        """Forget everything."""
        self._beginnings = ()

    def find(self, way: Hashable, messages: Sequence[Message]) -> Beginning[object] | None:
        """The beginning of exactly these messages, written in this way, if it was kept."""
        for beginning in self._beginnings:
            if beginning.way == way:
                return beginning if beginning.seen.is_still(messages[: len(beginning.seen)]) else None
        return None

    def keep(self, beginning: Beginning[object]) -> None:
        """Keep it in the place of the one that was written in the same way, or of the oldest."""
        others = [other for other in self._beginnings if other.way != beginning.way]
        self._beginnings = (beginning, *others[: KEPT - 1])

    def forget(self, way: Hashable) -> None:
        """Give up what was written in this way."""
        self._beginnings = tuple(other for other in self._beginnings if other.way != way)


def write_messages(
    messages: Sequence[Message],
    memory: WrittenMessages | None,
    way: Hashable,
    write: Write[Left],
    warnings: list[str],
    lead: Sequence[JSONObject] = (),
) -> JSON:
    """Check and write a conversation: the array of its elements, an empty list where there is nothing to send.

    memory: what is written of it already, if anybody keeps that. way: all besides the messages that their wire form
    depends on. lead: elements that stand before it, which are not kept. Raises `InvalidRequestError`, and leaves the
    memory as it was.
    """
    if memory is None or len(messages) < SHORTEST:
        validate_messages(messages)
        return [*lead, *_whole(messages, write, warnings)]
    found = memory.find(way, messages)
    nothing: Beginning[Left] = Beginning(way, Seen(), b"", None, ())
    # A way belongs to one dialect, which left what it reads.
    beginning = cast("Beginning[Left]", found) if found is not None else nothing
    known = len(beginning.seen)
    validate_messages(messages[known:], known)
    cut = max(last_round(messages), known)
    grown = beginning.and_also(messages[known:cut], write)
    rest = write(messages[cut:], cut, grown.left) if grown is not None else None
    if grown is None or rest is None:
        memory.forget(way)
        return [*lead, *_whole(messages, write, warnings)]
    wire = b",".join(filter(None, (_elements(lead), grown.wire, _elements(rest.items))))
    if cut:
        memory.keep(cast("Beginning[object]", grown))
    warnings += (*grown.warnings, *rest.warnings, *rest.unanswered)
    return written(b"[%b]" % wire) if wire else []


def serialised(body: JSONObject) -> bytes:
    """A request's body as bytes. Raises `InvalidRequestError` naming the member that is no JSON."""
    try:
        return dumps(body)
    except TypeError:
        pass
    for name, value in body.items():
        try:
            dumps(value)
        except UnwritableNumberError as error:
            raise InvalidRequestError(f"{name}{error.path}", f"{error.number} cannot be written as JSON") from None
        except TypeError as error:
            raise InvalidRequestError(name, f"cannot be written as JSON: {error}") from None
    raise InvalidRequestError("extra_body", "has a name that is no string")


def last_round(messages: Sequence[Message]) -> int:
    """The number of the first message of the model's last run of them: what a request for the next turn adds, with the
    results that answer it. 0 where there is none."""
    for number in range(len(messages) - 1, 0, -1):
        if messages[number].role is Role.ASSISTANT and messages[number - 1].role is not Role.ASSISTANT:
            return number
    return 0


def _whole(messages: Sequence[Message], write: Write[Left], warnings: list[str]) -> list[JSONObject]:
    stretch = write(messages, 0, None)
    assert stretch is not None, "there is nothing that these messages could not be written apart from"
    warnings += (*stretch.warnings, *stretch.unanswered)
    return stretch.items


def _elements(items: Sequence[JSONObject]) -> bytes:
    """An array's elements, with commas between them. Raises `InvalidRequestError` for what is no JSON."""
    try:
        return dumps(items)[1:-1] if items else b""
    except TypeError as error:
        raise InvalidRequestError("messages", f"hold a value that JSON cannot carry: {error}") from None
