"""The callbacks of a call: their types, their check, and the context in which they run.

Only plain functions are accepted; others are refused when the call is started. They run with the context variables of
the code that started the call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TypeAlias, TypeVar, TypeVarTuple, cast

from ...providers.errors import InvalidRequestError
from ...providers.model.events import ErrorEvent, Event
from ...providers.model.rules import ANY_DEFERRED, why_deferred
from .completion import Completion

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Value = TypeVar("Value")

OnEvent: TypeAlias = Callable[[Event], object]
"""A callback for the events of a stream. What it returns is ignored."""

OnCompletion: TypeAlias = Callable[[Completion], object]
"""A callback for the end of a call. What it returns is ignored."""

RIGHT_FORM = (
    "callbacks are plain functions. Give a plain one, which may hand its argument to a task; code that awaits for each"
    " event reads them from engine.stream(request)"
)


def check_callback(field: str, callback: object) -> None:
    """Raise `InvalidRequestError` with the field and the callback, unless it is a plain callable or None."""
    if callback is None:
        return
    kind = type(callback)
    function = cast("MethodType", callback).__func__ if kind is MethodType else callback
    if type(function) is FunctionType:
        if not function.__code__.co_flags & ANY_DEFERRED and not function.__dict__:
            return  # nearly every callback
    elif kind is BuiltinFunctionType:
        return
    if not callable(callback):
        raise InvalidRequestError(field, f"must be a function, not {type(callback).__name__}")
    deferred = why_deferred(callback)
    if deferred:
        raise InvalidRequestError(field, f"{deferred}, which would never run; {RIGHT_FORM}")


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


def context_of_the_caller(own: Context) -> CallContext | None:
    """Return the context in which the callbacks of a call run that is started here; None for the engine's own, which
    costs no event.

    The caller's is the engine's own if each variable is the same object in both, or set in neither. `==` compares
    values instead: it takes two lists that are equal now for the same, and raises for values such as arrays.
    """
    here = copy_context()
    if len(here) == len(own) and (not own or all(own.get(variable, here) is value for variable, value in here.items())):
        return None
    return CallContext(here)


def without_first(count: int, on_event: OnEvent) -> OnEvent:
    """Return a callback that leaves out the first events of a stream, but never an error."""
    first = iter(range(count))

    def take(event: Event) -> None:
        if isinstance(event, ErrorEvent) or next(first, None) is None:
            on_event(event)

    return take
