"""Assigns fragments of tool calls to calls: by index, else by id, else to the latest call.

A call is never finished because its arguments happen to parse; the accumulator closes all calls at the answer's
terminal marker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...json.json_values import MalformedJSONError, loads
from ...model.events import Event
from ...wire.accumulate import Accumulator, ToolCallInProgress

LEGACY_INDEX = -1
"""The index for the one call of OpenAI's older `function_call` member, which has neither id nor index."""


@dataclass(slots=True, eq=False, repr=False)
class ToolCallMatcher:
    """The tool calls of one answer.

    The rules, each required by some server:

    - The index decides, if there is one. A known id at another index is another call: some servers give parallel calls
      one id.
    - The same index with a *different*, non-empty id is a new call if the fragment has a name (some servers number
      every parallel call 0). Without a name it continues the call: some servers make up an id for each fragment.
    - Without an index, a known id selects its call.
    - An id that arrives after its call began belongs to that call. The call keeps the id that was delivered.
    - Without an id, the same index with a different name is a new call. So is the same name with arguments, if the
      call's arguments came whole (nothing can follow a whole JSON object).
    - Without id and index, a fragment with a name begins a call. Any other fragment continues the latest call. But
      several in one delta continue as many calls, each the one at its place: some servers leave out all indexes.
    - A fragment without an id that has the name and the whole arguments of a call with an id is that call again: some
      servers end a call so, and a server that gives ids gives one to each call.
    - A name may come in pieces, be repeated, or grow. It is complete once arguments or anything else follow.
    - A call is delivered once its name is complete, with the arguments that came before. A call without an id gets one.
    """

    _answer: Accumulator
    _make_id: Callable[[], str]
    _begun: list[ToolCallInProgress] = field(default_factory=lambda: [], init=False)  # all, in order
    _by_id: dict[str, ToolCallInProgress] = field(default_factory=lambda: {}, init=False)
    _by_index: dict[int, ToolCallInProgress] = field(default_factory=lambda: {}, init=False)
    _by_index_and_id: dict[tuple[int, str], ToolCallInProgress] = field(default_factory=lambda: {}, init=False)
    # a call with a name that may still grow, and without arguments
    _held: ToolCallInProgress | None = field(default=None, init=False)
    _id_known: set[int] = field(default_factory=lambda: set(), init=False)
    _latest: ToolCallInProgress | None = field(default=None, init=False)

    def fragment(
        self,
        id: str,
        index: int | None,
        name: str,
        arguments: str,
        *,
        place: int | None = None,
        free_text: bool = False,
    ) -> tuple[ToolCallInProgress, Sequence[Event]]:
        """Add one fragment. Returns its call and the events to deliver.

        An empty string, or None for the index, stands for a part that the fragment does not have.

        place: its position in its delta; None if it is the only fragment there.
        free_text: whether the arguments are any text, and no JSON.
        """
        call = self._find(id, index, name, arguments, place)
        events = self.release() if self._held is not call else ()
        if call is None:
            call = self._begin(index)
        call.free_text = free_text or call.free_text
        if id:
            self._learn_id(call, index, id)
        self._latest = call
        if call.started:
            return call, [*events, *call.delta(arguments)] if events else call.delta(arguments)
        call.delta(arguments)
        call.name = _joined(call.name, name)
        self._held = call if call.name else self._held
        if call.name and call.pieces:
            return call, [*events, *self.release()]
        return call, events

    def release(self) -> Sequence[Event]:
        """Deliver the call whose name may still grow, if there is one: its name is complete. Returns its events.

        They include the arguments that came before the name.
        """
        call, self._held = self._held, None
        return call.start(call.id or self._make_id(), call.name) if call is not None else ()

    def whole(
        self, id: str, name: str, arguments: str, *, free_text: bool = False
    ) -> tuple[ToolCallInProgress, Sequence[Event]]:
        """Add a call that came whole, in a list of calls: no other fragment can belong to it. Returns the call and the
        events to deliver, which are none if it has no name. `free_text`: as in `fragment`.
        """
        call = self._begin(None)
        call.free_text = free_text
        self._latest = call
        call.delta(arguments)
        return call, call.start(id or self._make_id(), name) if name else ()

    @property
    def nameless(self) -> int:
        """The number of calls that never got a name and so were never delivered."""
        return sum(not call.started for call in self._begun)

    def _find(
        self, id: str, index: int | None, name: str, arguments: str, place: int | None
    ) -> ToolCallInProgress | None:
        if index is None:
            if place is not None and not (id or name) and place < len(self._begun):
                return self._begun[place]
            return self._by_id.get(id) or self._find_latest(id, name, arguments)
        call = self._by_index_and_id.get((index, id)) or self._by_index.get(index)
        if call is None or (index, id) in self._by_index_and_id:
            return call
        if id and call.index in self._id_known:
            return None if name else call
        if not id and self._comes_again(call, name, arguments):
            return call
        if not id and name and call.name and (name != call.name or (arguments and _came_whole(call))):
            # The rest of a name, if the call has an id: a server that gives ids gives one to each call.
            alone = call.index in self._id_known or index == LEGACY_INDEX
            return call if call is self._held and alone else None
        return call

    def _comes_again(self, call: ToolCallInProgress, name: str, arguments: str) -> bool:
        """Return whether a fragment without an id is a whole call again. The older member has one call only."""
        has_id = call.index in self._id_known or self._by_index.get(LEGACY_INDEX) is call
        return has_id and name == call.name and call.repeats(arguments)

    def _find_latest(self, id: str, name: str, arguments: str) -> ToolCallInProgress | None:
        latest = self._latest
        if latest is None or (id and latest.index in self._id_known):
            return None
        if not id and self._comes_again(latest, name, arguments):
            return latest
        return None if name and latest.name else latest

    def _begin(self, index: int | None) -> ToolCallInProgress:
        call = self._answer.tool_call()
        self._begun.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _learn_id(self, call: ToolCallInProgress, index: int | None, id: str) -> None:
        self._by_id[id] = call
        if index is not None:
            self._by_index_and_id[index, id] = call
        self._id_known.add(call.index)
        if not call.started and not call.id:
            call.id = id


def _joined(name: str, piece: str) -> str:
    """Return a name with its next piece, which may also be the name again, or the longer name so far."""
    return piece if piece.startswith(name) else name + piece if piece else name


def _came_whole(call: ToolCallInProgress) -> bool:
    if len(call.pieces) != 1 or call.pieces[0][:1] != "{":
        return False
    try:
        value = loads(call.pieces[0])
    except MalformedJSONError:
        return False
    return type(value) is dict
