"""The context of a call: the context variables of the code that started it, in which its callbacks run."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Value = TypeVar("Value")


def has_same_values(one: Context, other: Context) -> bool:
    """Return True if each variable is the same object in both, or set in neither.

    `==` compares values instead. It takes two lists that are equal now for the same, and raises for values such as
    arrays.
    """
    if len(one) != len(other):
        return False
    return not one or all(other.get(variable, one) is value for variable, value in one.items())


class CallContext:
    """A context that functions run in, one after the other. What one of them sets, the next one sees."""

    __slots__ = ("_context", "_is_entered")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_entered = False

    def bind(self, function: Callable[[Value], object] | None) -> Callable[[Value], object] | None:
        """Return a function that calls this one in the context; None for none."""
        return None if function is None else partial(self.run, function)  # type: ignore[arg-type]  # mypy gives `run` no arguments here

    def run(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call the function in the context.

        A callback may close the engine, which completes its own call. Python cannot enter a context twice, so what is
        called then runs in a copy.
        """
        if self._is_entered:
            return self._context.copy().run(function, *arguments)
        self._is_entered = True
        try:
            return self._context.run(function, *arguments)
        finally:
            self._is_entered = False
