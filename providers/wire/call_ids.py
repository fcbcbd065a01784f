"""Unique ids for tool calls. A result is matched to its call by the id alone.

Some servers give two parallel calls one id, and some count from 0 in every answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ..model.messages import Message, Role, ToolCall, ToolResult

Place: TypeAlias = tuple[int, int]
"""The position of a block in the conversation: of its message, and within the message."""

TakenIds: TypeAlias = dict[str, int]
"""Id in use → the last number that was appended to it to make another id; 1 if there is none. Without the number, a
thousand calls with one id would try all numbers each time.
"""


def field_of(number: int, position: int) -> str:
    """Return the path of a block, for errors and warnings, from the two numbers of its `Place`."""
    return f"messages[{number}].content[{position}]"


def unique_id(id: str, taken: TakenIds, form: Callable[[str], str] = str) -> str:
    """Return the id if it is free, else a numbered one: `a`, `a_2`, `a_3`.

    taken: the ids in use. The number of `id` is updated; the returned id is not added.
    form: rewrites an id to one that the server accepts.
    """
    unique = form(id)
    if unique in taken:
        number = taken.get(id, 1)
        while unique in taken:
            number += 1
            unique = form(f"{id}_{number}")
        taken[id] = number
    return unique


def separate_calls(messages: Iterable[Message]) -> None:
    """Give tool calls that share an id different ids, and their results the same ids, in place.

    Only calls in one run of assistant messages are separated; their results answer them in order.
    """
    run = 0
    taken: TakenIds = {}
    waiting: dict[str, deque[tuple[int, str]]] = {}
    for message in messages:
        run += message.role is not Role.ASSISTANT
        for block in message.content:
            if isinstance(block, ToolCall):
                calls = waiting.setdefault(block.id, deque())
                while calls and calls[0][0] != run:
                    calls.popleft()  # a call of an earlier run that got no result
                if calls:
                    block.id = unique_id(block.id, taken)
                calls.append((run, block.id))
                taken.setdefault(block.id, 1)
            elif isinstance(block, ToolResult):
                answered = waiting.get(block.tool_call_id)
                if answered:
                    block.tool_call_id = answered.popleft()[1]
