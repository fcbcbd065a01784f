"""Assigns fragments of tool calls to calls: by index, else by id, else to the latest call.

Knows how servers number, name and repeat the pieces of their calls, and returns the events for each piece. Must not
know any wire format: a dialect passes in the parts of a fragment. A call is never finished because its arguments happen
to parse; the accumulator closes all calls at the answer's terminal marker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .accumulate import Accumulator, ToolCallInProgress
from .events import Event
from .json_values import MalformedJSONError, loads

LEGACY_INDEX = -1
"""The index for the one call of OpenAI's older `function_call` member, which has neither id nor index."""


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
    - Without id and index, a fragment with a name begins a call. Any other fragment continues the latest call.
    - A call is delivered once its name is known, with the arguments that came before. A call without an id gets one.
    """

    __slots__ = ("_answer", "_by_id", "_by_index", "_by_index_and_id", "_id_known", "_latest", "_make_id", "_nameless")

    def __init__(self, answer: Accumulator, make_id: Callable[[], str]) -> None:
        self._answer = answer
        self._make_id = make_id
        self._by_id: dict[str, ToolCallInProgress] = {}
        self._by_index: dict[int, ToolCallInProgress] = {}
        self._by_index_and_id: dict[tuple[int, str], ToolCallInProgress] = {}
        self._id_known: set[int] = set()
        self._latest: ToolCallInProgress | None = None
        self._nameless: tuple[ToolCallInProgress, ...] = ()  # those that came whole

    def fragment(
        self, id: str, index: int | None, name: str, arguments: str
    ) -> tuple[ToolCallInProgress, Sequence[Event]]:
        """Add one fragment. Returns its call and the events to deliver.

        An empty string, or None for the index, stands for a part that the fragment does not have.
        """
        call = self._find(id, index, name, arguments)
        if call is None:
            call = self._begin(index)
        if id:
            self._learn_id(call, index, id)
        self._latest = call
        events: Sequence[Event] = call.delta(arguments)
        if name and not call.started:
            # `start` returns the arguments that came before the name, this fragment's included.
            return call, call.start(call.id or self._make_id(), name)
        return call, events

    def whole(self, id: str, name: str, arguments: str) -> tuple[ToolCallInProgress, Sequence[Event]]:
        """Add a call that came whole, in a list of calls: no other fragment can belong to it. Returns the call and the
        events to deliver, which are none if it has no name.
        """
        call = self._begin(None)
        self._latest = call
        call.delta(arguments)
        if not name:
            self._nameless = (*self._nameless, call)
            return call, ()
        return call, call.start(id or self._make_id(), name)

    @property
    def nameless(self) -> int:
        """The number of calls that never got a name and so were never delivered."""
        calls = {call.index: call for call in (*self._by_id.values(), *self._by_index.values(), *self._nameless)}
        if self._latest is not None:
            calls[self._latest.index] = self._latest
        return sum(not call.started for call in calls.values())

    def _find(self, id: str, index: int | None, name: str, arguments: str) -> ToolCallInProgress | None:
        if index is None:
            return self._by_id.get(id) or self._find_latest(id, name)
        call = self._by_index_and_id.get((index, id)) or self._by_index.get(index)
        if call is None or (index, id) in self._by_index_and_id:
            return call
        if id and call.index in self._id_known:
            return None if name else call
        if not id and name and call.started and (name != call.name or (arguments and _came_whole(call))):
            return None
        return call

    def _find_latest(self, id: str, name: str) -> ToolCallInProgress | None:
        latest = self._latest
        if latest is None or (id and latest.index in self._id_known):
            return None
        return None if name and latest.started else latest

    def _begin(self, index: int | None) -> ToolCallInProgress:
        call = self._answer.tool_call()
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


def _came_whole(call: ToolCallInProgress) -> bool:
    if len(call.pieces) != 1 or call.pieces[0][:1] != "{":
        return False
    try:
        value = loads(call.pieces[0])
    except MalformedJSONError:
        return False
    return type(value) is dict
