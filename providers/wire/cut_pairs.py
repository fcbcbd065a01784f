"""Joins surrogate pairs that a server cut between two deltas: `"\\ud83d"` in one event, `"\\udc69"` in the next.

Servers that count UTF-16 units (JavaScript, Java, .NET) cut text anywhere. A strict JSON parser refuses the escape of
half a pair, so such an event always goes through the lenient parser, which writes U+FFFD for a half and reports it to
`CutPairs.note`. Here the halves at the ends of one block's deltas are joined. A half without its other half remains
U+FFFD.

A stream without halves has no `CutPairs`. This costs it one comparison per parsed event, and nothing for a delta that
matches the template (`delta_template.py`): that text is parsed strictly, so it never contains a half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..json.json_types import JSONObject
from ..model.events import Done, ErrorEvent, Event, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallDone
from .accumulate import CutText, InProgress, Placed, TextInProgress, ThinkingInProgress

REPLACEMENT = "\ufffd"


@dataclass(slots=True, eq=False, repr=False)
class CutPairs:
    """The surrogate halves of one stream."""

    # strings of the current event that begin with a low half, as the lenient parser returned them, each with its half
    _begins_low: list[tuple[str, str]] = field(default_factory=lambda: [], init=False)
    # strings of the current event that end with a high half, likewise
    _ends_high: list[tuple[str, str]] = field(default_factory=lambda: [], init=False)
    # index of a block → the high half that its latest delta ended with. The block's last piece ends with U+FFFD for the
    # half; the delivered event does not. A whole text may have replaced that piece since.
    _pending: dict[int, str] = field(default_factory=lambda: {}, init=False)

    @property
    def waits(self) -> bool:
        """Whether a high half waits for the next delta of its block."""
        return bool(self._pending)

    def note(self, raw: str, text: str) -> None:
        """Record a string of the event that contains half a pair.

        text: the string with U+FFFD instead.
        """
        if "\udc00" <= raw[0] <= "\udfff":
            self._begins_low.append((text, raw[0]))
        if "\ud800" <= raw[-1] <= "\udbff":
            self._ends_high.append((text, raw[-1]))

    def as_sent(self, members: JSONObject) -> JSONObject:
        """Return members of the event whose texts have their halves again, for a block that has no events.

        `join_pieces` makes a text of them.
        """
        return {name: self._with_halves(value) if type(value) is str else value for name, value in members.items()}

    def _with_halves(self, text: str) -> str:
        low = next((half for noted, half in self._begins_low if noted == text), "")
        high = next((half for noted, half in self._ends_high if noted == text), "")
        text = low + text[1:] if low else text
        return text[:-1] + high if high else text

    def join(self, events: Sequence[Event], blocks: Sequence[InProgress]) -> Sequence[Event]:
        """Return the events of one wire event, with halves that belong together joined."""
        joined: list[Event] = []
        left = Counter(event.index for event in events if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta))
        for event in events:
            if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta):
                block = blocks[event.index]
                if not isinstance(block, Placed):
                    # Each delta is one piece of its block. The event's last delta is the block's last piece.
                    place = len(block.pieces) - left[event.index]
                    left[event.index] -= 1
                    self._delta(event, block.pieces, place, joined)
                    continue
            elif isinstance(event, ToolCallDone):
                self._release([event.index], blocks, joined)
            elif isinstance(event, Done | ErrorEvent):
                self._release(sorted(self._pending), blocks, joined)
            joined.append(event)
        self._begins_low.clear()
        self._ends_high.clear()
        return joined

    def _delta(
        self, event: TextDelta | ThinkingDelta | ToolCallDelta, pieces: list[str], place: int, joined: list[Event]
    ) -> None:
        """Append one delta to `joined`: joined with the half before it, and without a half at its end."""
        text = event.arguments if isinstance(event, ToolCallDelta) else event.text
        before = _waiting(pieces, place)
        high = self._pending.pop(event.index, "")
        if before < 0:
            high = ""  # a whole text has taken the place of the piece
        low = _half(self._begins_low, text.startswith, text[:1])
        if high and low:
            character = (high + low).encode("utf-16", "surrogatepass").decode("utf-16")
            pieces[before] = pieces[before][:-1]
            pieces[place] = character + pieces[place][1:]
            text = character + text[1:]
        elif high:
            text = REPLACEMENT + text
        high = _half(self._ends_high, text.endswith, text[-1:])
        if high:
            self._pending[event.index] = high
            pieces[place] = CutText(pieces[place])
            text = text[:-1]
        if text:
            joined.append(type(event)(event.index, text))

    def _release(self, indexes: Sequence[int], blocks: Sequence[InProgress], joined: list[Event]) -> None:
        """Append a U+FFFD delta for each block that ends while one of its halves waits."""
        for index in indexes:
            block = blocks[index]
            if self._pending.pop(index, None) is None or isinstance(block, Placed):
                continue
            if _waiting(block.pieces, len(block.pieces)) >= 0:
                joined.append(_delta_kind(block)(index, REPLACEMENT))


def join_pieces(pieces: Sequence[str]) -> str:
    """Return the text of pieces that may begin and end with halves. A half without its other half is U+FFFD."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _waiting(pieces: list[str], end: int) -> int:
    """Return the position of the last piece before `end` that has a text, if that ends with U+FFFD; else -1."""
    place = end - 1
    while place >= 0 and not pieces[place]:
        place -= 1
    return place if place >= 0 and pieces[place][-1] == REPLACEMENT else -1


def _delta_kind(block: InProgress) -> type[TextDelta | ThinkingDelta | ToolCallDelta]:
    if isinstance(block, TextInProgress):
        return TextDelta
    return ThinkingDelta if isinstance(block, ThinkingInProgress) else ToolCallDelta


def _half(noted: list[tuple[str, str]], is_edge: Callable[[str], bool], edge: str) -> str:
    """Return the half that a delta begins or ends with, or an empty string.

    noted: the event's strings with such a half, and their halves.
    is_edge: whether the delta begins or ends with a string.
    edge: the delta's first or last character.

    The delta is the string itself, except where its dialect makes a new text from it (Gemini's partial arguments). Then
    the half of the only noted string is taken.
    """
    if edge != REPLACEMENT or not noted:
        return ""
    return next((half for text, half in noted if is_edge(text)), noted[0][1] if len(noted) == 1 else "")
