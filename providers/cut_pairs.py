"""Surrogate pairs that a server cut between two deltas: `"\\ud83d"` in one event, `"\\udc69"` in the next.

Servers that count UTF-16 units (JavaScript, Java, .NET) cut text anywhere. Each half is an escape that no strict JSON
parser takes, so such an event always goes through the lenient parser, which writes U+FFFD for a half and reports it to
`CutPairs.note`. Here the halves of one block's deltas are joined. A half that stays alone remains U+FFFD.

Knows events and the pieces of blocks. Must not know any wire form. A stream without halves has no `CutPairs`: it costs
such a stream one comparison per event that is parsed, and nothing where a delta matches the template
(`delta_template.py`): its string is parsed strictly, so it never holds a half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from .accumulate import InProgress, Placed, TextInProgress, ThinkingInProgress
from .events import Done, Error, Event, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallDone

REPLACEMENT = "\ufffd"


class CutPairs:
    """The halves of one stream.

    begun, ended: of the event that is being read, its strings that begin with a low half or end with a high one, as the
    lenient parser gives them, each with its half. held: block → the high half that its latest delta ended with, and the
    place of that delta among the block's pieces. The piece keeps a U+FFFD for it; the delta was reported without.
    """

    __slots__ = ("_begun", "_ended", "_held")

    def __init__(self) -> None:
        self._begun: list[tuple[str, str]] = []
        self._ended: list[tuple[str, str]] = []
        self._held: dict[int, tuple[str, int]] = {}

    @property
    def waits(self) -> bool:
        """Whether a half waits for its other half."""
        return bool(self._held)

    def note(self, raw: str, text: str) -> None:
        """A string of the event holds half a pair. `text`: the string without it."""
        if "\udc00" <= raw[0] <= "\udfff":
            self._begun.append((text, raw[0]))
        if "\ud800" <= raw[-1] <= "\udbff":
            self._ended.append((text, raw[-1]))

    def join(self, events: Sequence[Event], blocks: Sequence[InProgress]) -> Sequence[Event]:
        """The events of one wire event, with the halves that belong together joined."""
        told: list[Event] = []
        left = Counter(event.index for event in events if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta))
        for event in events:
            if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta):
                block = blocks[event.index]
                if not isinstance(block, Placed):
                    # Each delta is one piece of its block, the last delta the last piece.
                    place = len(block.pieces) - left[event.index]
                    left[event.index] -= 1
                    self._delta(event, block.pieces, place, told)
                    continue
            elif isinstance(event, ToolCallDone):
                self._give_up([event.index], blocks, told)
            elif isinstance(event, Done | Error):
                self._give_up(sorted(self._held), blocks, told)
            told.append(event)
        self._begun.clear()
        self._ended.clear()
        return told

    def _delta(
        self, event: TextDelta | ThinkingDelta | ToolCallDelta, pieces: list[str], place: int, told: list[Event]
    ) -> None:
        text = event.arguments if isinstance(event, ToolCallDelta) else event.text
        high, before = self._held.pop(event.index, ("", 0))
        low = _half(self._begun, text.startswith, text[:1])
        if high and low:
            character = (high + low).encode("utf-16", "surrogatepass").decode("utf-16")
            pieces[before] = pieces[before][:-1]
            pieces[place] = character + pieces[place][1:]
            text = character + text[1:]
        elif high:
            text = REPLACEMENT + text
        high = _half(self._ended, text.endswith, text[-1:])
        if high:
            self._held[event.index] = high, place
            text = text[:-1]
        if text:
            told.append(type(event)(event.index, text))

    def _give_up(self, indexes: Sequence[int], blocks: Sequence[InProgress], told: list[Event]) -> None:
        """The blocks end: halves that wait are alone."""
        for index in indexes:
            block = blocks[index]
            if self._held.pop(index, None) is not None and not isinstance(block, Placed):
                told.append(_delta_kind(block)(index, REPLACEMENT))


def _delta_kind(block: InProgress) -> type[TextDelta | ThinkingDelta | ToolCallDelta]:
    if isinstance(block, TextInProgress):
        return TextDelta
    return ThinkingDelta if isinstance(block, ThinkingInProgress) else ToolCallDelta


def _half(noted: list[tuple[str, str]], is_edge: Callable[[str], bool], edge: str) -> str:
    """The half that a delta begins or ends with; empty where there is none.

    A delta is the string itself, or, where its dialect writes it anew (Gemini's partial arguments), one made from it.
    """
    if edge != REPLACEMENT or not noted:
        return ""
    return next((half for text, half in noted if is_edge(text)), noted[0][1] if len(noted) == 1 else "")
