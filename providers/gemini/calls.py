"""Reads function calls of an answer: whole ones, and calls whose arguments are streamed in several parts.

A streamed call begins with its name, continues with `partialArgs`, and ends with the first part without `willContinue`.
A part belongs to the open call with its id. A part without an id belongs to the latest open call. So calls with ids may
be streamed at the same time.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from ..catalog.dialect import MakeId
from ..json.json_values import JSON, JSONObject, arguments_text, mapping, objects, same_text, same_value, string
from ..model.events import Event
from ..model.messages import ProviderState
from ..wire.accumulate import Accumulator, ToolCallInProgress
from .partial_arguments import PartialArguments


@dataclass(slots=True, eq=False, repr=False)
class _OpenCall:
    """A call whose arguments are still arriving."""

    block: ToolCallInProgress  # the call
    id: str  # the server's id of the call; empty if it has none
    # its arguments that came in pieces; None before the first piece
    partial: PartialArguments | None = field(default=None, init=False)
    # arguments that came whole beside `willContinue`, used if no piece comes; None if there are none
    whole: JSON = field(default=None, init=False)

    def holds(self, arguments: JSON) -> bool:
        """Return whether whole arguments are those that came so far: some servers repeat them at the end."""
        if self.partial is None:
            return self.whole is not None and same_value(self.whole, arguments)
        so_far = "".join(self.block.pieces) + copy.deepcopy(self.partial).close()
        try:
            return same_text(so_far, arguments if type(arguments) is str else arguments_text(arguments))
        except TypeError:  # nested too deeply
            return False


class FunctionCalls:
    """The calls of one answer."""

    __slots__ = ("_answer", "_make_id", "_maker", "_open")

    def __init__(self, answer: Accumulator, maker: str, make_id: MakeId) -> None:
        self._answer = answer
        self._maker = maker
        self._make_id = make_id
        self._open: list[_OpenCall] = []  # in the order of their beginnings

    def begins(self, part: JSONObject) -> bool:
        call = mapping(part, "functionCall")
        return bool(string(call, "name")) and self._continued(call) is None

    def read(self, part: JSONObject, events: list[Event]) -> bool:
        """Read a part with a call, or a piece of one. Returns False if it belongs to no call.

        Raises `ProviderError` beyond a limit.
        """
        call = mapping(part, "functionCall")
        found, name = self._continued(call), string(call, "name")
        if found is not None:
            self._sign(found.block, part)
        elif name:
            found = self._begin(part, call, name, events)
        else:
            return not call
        if found is None:
            return True
        pieces = objects(call, "partialArgs")
        self._answer.count.check_parts(len(pieces))
        for piece in pieces:
            if found.partial is None:
                found.partial = PartialArguments()
            events.extend(found.block.delta(found.partial.add(piece)))
        found.whole = call.get("args") or found.whole
        if call.get("willContinue") is not True:
            self._open.remove(found)
            self._close(found, events, complete=True)
        return True

    def close(self, events: list[Event], *, complete: bool) -> None:
        while self._open:
            self._close(self._open.pop(0), events, complete=complete)

    def _continued(self, call: JSONObject) -> _OpenCall | None:
        """Return the open call that a part continues, or None."""
        wire_id, name = string(call, "id") or "", string(call, "name")
        latest = self._open[-1] if self._open else None
        same_id = next((each for each in self._open if each.id == wire_id), None) if wire_id else None
        if not name:
            if same_id is None and wire_id in (self._answer.call_ids or ()):
                return None  # a call that has ended
            return same_id or latest
        found = same_id if wire_id else latest
        if found is None or found.block.name != name:
            return None
        # A part may repeat the name beside more arguments, or all of them.
        if call.get("args"):
            return found if found.holds(call["args"]) else None
        return found if wire_id or call.get("partialArgs") is not None else None

    def _begin(self, part: JSONObject, call: JSONObject, name: str, events: list[Event]) -> _OpenCall | None:
        """Begin a call. Returns it if its arguments are streamed; else it has ended."""
        wire_id = string(call, "id") or ""
        if not wire_id or not all(each.id for each in self._open):
            self.close(events, complete=True)  # without ids, calls come one after the other
        block = self._answer.tool_call()
        events.extend(block.start(wire_id or self._make_id(), name))
        self._sign(block, part)
        if call.get("willContinue") is True or call.get("partialArgs"):
            self._open.append(_OpenCall(block, wire_id))
            return self._open[-1]
        self._deliver(block, call.get("args"), events)
        return None

    def _deliver(self, block: ToolCallInProgress, arguments: JSON, events: list[Event]) -> None:
        """Deliver whole arguments, and end the call. A few servers send an object's JSON text instead of the object."""
        try:
            text = arguments if type(arguments) is str else arguments_text(arguments or {})
        except TypeError:
            self._answer.warn(f"the arguments of call {block.id!r} are nested too deeply and were dropped")
            events.extend(block.finish(complete=False))
            return
        events.extend(block.delta(text or "{}"))
        events.extend(block.finish())

    def _close(self, call: _OpenCall, events: list[Event], *, complete: bool) -> None:
        block = call.block
        if complete and call.partial is None:
            self._deliver(block, call.whole, events)
            return
        partial = call.partial or PartialArguments()
        events.extend(block.delta(partial.close()) if complete else ())
        events.extend(block.finish(complete=complete and not partial.lost))

    def _sign(self, block: ToolCallInProgress, part: JSONObject) -> None:
        """Keep the members that are sent back with the call. A later part without a signature removes none."""
        members: dict[str, JSON] = dict(block.state.data) if block.state is not None else {}
        wire_id, signature = string(mapping(part, "functionCall"), "id"), string(part, "thoughtSignature")
        if wire_id and wire_id == block.wire_id:
            members["id"] = block.id
        if signature:
            members["thoughtSignature"] = signature
        if members:
            block.state = ProviderState(self._maker, members)
