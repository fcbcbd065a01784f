"""Ids of tool calls, made unique: a result is matched to its call by the id alone.

Some servers give two parallel calls one id, and some count from 0 in every answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from .messages import Message, Role, ToolCall, ToolResult


class TakenIds(set[str]):
    """Ids that are taken. numbers: how far each id was numbered, so that a thousand calls with one id do not try all
    numbers anew."""

    __slots__ = ("numbers",)

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}


def unique_id(id: str, taken: TakenIds, form: Callable[[str], str] = str) -> str:
    """The id where it is free, else numbered: `a`, `a_2`, `a_3`. `form`: rewrites an id to one that a server takes."""
    unique = form(id)
    if unique in taken:
        number = taken.numbers.get(id, 1)
        while unique in taken:
            number += 1
            unique = form(f"{id}_{number}")
        taken.numbers[id] = number
    return unique


def separate_calls(messages: Iterable[Message]) -> None:
    """Give calls of one run of the model's messages that share an id ids of their own, and their results likewise: they
    answer the calls in order. Changes the messages."""
    run = 0
    taken = TakenIds()
    waiting: dict[str, deque[tuple[int, str]]] = {}
    for message in messages:
        run += message.role is not Role.ASSISTANT
        for block in message.content:
            if isinstance(block, ToolCall):
                calls = waiting.setdefault(block.id, deque())
                while calls and calls[0][0] != run:
                    calls.popleft()  # an earlier run left it unanswered
                if calls:
                    block.id = unique_id(block.id, taken)
                calls.append((run, block.id))
                taken.add(block.id)
            elif isinstance(block, ToolResult):
                answered = waiting.get(block.tool_call_id)
                if answered:
                    block.tool_call_id = answered.popleft()[1]
