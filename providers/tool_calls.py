"""Which tool call a fragment belongs to: by index, else by id, else the latest.

Knows the ways in which servers number, name and repeat the pieces of their calls, and tells each piece as events.
Must not know any wire format: a dialect hands in what a fragment says. A call is never finished because its
arguments happen to parse; the accumulator closes all calls when the answer's terminal marker has come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .accumulate import Accumulator, ToolCallInProgress
from .events import Event
from .json_values import MalformedJSONError, loads

LEGACY_INDEX = -1
"""The index of the one call of OpenAI's older `function_call` member, which has neither id nor index."""


class ToolCallMatcher:
    """The calls of one answer.

    The rules, each for servers that need it:

    - The index decides where there is one. An id that is known from another index is another call: some servers give
      parallel calls one id.
    - The same index with a *different*, non-empty id is a new call where the fragment has a name (some servers number
      every parallel call 0). Without a name it continues the call: some servers make up an id for each fragment.
    - Without an index, an id that is known names its call.
    - An id that comes after its call began is taken as that call's, but the call keeps the id it was told under.
    - Without an id, the same index with a different name is a new call, and so is one with the same name and
      arguments of its own where the call's arguments came whole (nothing can follow a whole JSON object).
    - Without id and index, a fragment that has a name begins a call, any other one continues the latest.
    - A call is told when its name is known; arguments that came before are told then. A call without id gets one.
    """

    __slots__ = ("_answer", "_by_id", "_by_index", "_by_index_and_id", "_id_known", "_latest", "_make_id")

    def __init__(self, answer: Accumulator, make_id: Callable[[], str]) -> None:
        self._answer = answer
        self._make_id = make_id
        self._by_id: dict[str, ToolCallInProgress] = {}
        self._by_index: dict[int, ToolCallInProgress] = {}
        self._by_index_and_id: dict[tuple[int, str], ToolCallInProgress] = {}
        self._id_known: set[int] = set()
        self._latest: ToolCallInProgress | None = None

    def fragment(
        self, id: str, index: int | None, name: str, arguments: str
    ) -> tuple[ToolCallInProgress, Sequence[Event]]:
        """Take one fragment; empty strings stand for what it does not say. Returns its call and what to tell."""
        call = self._find(id, index, name, arguments)
        if call is None:
            call = self._begin(index)
        if id:
            self._learn_id(call, index, id)
        self._latest = call
        told: Sequence[Event] = call.delta(arguments)
        if name and not call.started:
            # `start` tells the arguments that are waiting, this fragment's among them.
            return call, call.start(call.id or self._make_id(), name)
        return call, told

    def whole(self, id: str, name: str, arguments: str) -> tuple[ToolCallInProgress, Sequence[Event]]:
        """Take a call that came whole, in a list of calls: nothing else can belong to it."""
        call = self._begin(None)
        self._latest = call
        call.delta(arguments)
        return call, call.start(id or self._make_id(), name)

    @property
    def nameless(self) -> int:
        """How many calls never got a name; they cannot be told."""
        calls = {call.index: call for call in (*self._by_id.values(), *self._by_index.values())}
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
