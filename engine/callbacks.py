"""Callbacks as programs give them: only plain functions, refused where the call is started.

Calling a coroutine function or a generator function only makes an object: nothing in its body runs until somebody
awaits or iterates that object, and the engine, which waits for nothing, does neither.

Knows what Python says about callables. Must not know calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import cast

from ..providers.errors import InvalidRequestError

DEFERRED: dict[int, str] = {
    inspect.CO_COROUTINE: "a coroutine function (async def)",
    inspect.CO_ASYNC_GENERATOR: "an asynchronous generator function (async def with yield)",
    inspect.CO_ITERABLE_COROUTINE: "a coroutine function (types.coroutine)",
    inspect.CO_GENERATOR: "a generator function (yield)",
}
"""Flag of a function's code → what such a function is. None of them runs its body when it is called. A function that
`types.coroutine` made has the generator's flag, too, so its own flag comes first."""

ANY_DEFERRED = sum(DEFERRED)

RIGHT_FORM = (
    "callbacks are plain functions. Give a plain one, which may hand its argument to a task; code that awaits for each"
    " event reads them from engine.stream(request)"
)


def check_callback(field: str, callback: object) -> None:
    """Raises `InvalidRequestError` naming the field and the callback, unless it is a plain callable, or None."""
    if callback is None:
        return
    kind = type(callback)
    function = cast("MethodType", callback).__func__ if kind is MethodType else callback
    if type(function) is FunctionType:
        if not function.__code__.co_flags & ANY_DEFERRED and not function.__dict__:
            return  # nearly every callback
    elif kind is BuiltinFunctionType:
        return
    _examine(field, callback)


def _examine(field: str, callback: object) -> None:
    if not callable(callback):
        raise InvalidRequestError(field, f"must be a function, not {type(callback).__name__}")
    function, name = _function_of(callback)
    flags = function.__code__.co_flags if isinstance(function, FunctionType) else 0
    found = [words for flag, words in DEFERRED.items() if flags & flag]
    if not found and (inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(function)):
        found = [DEFERRED[inspect.CO_COROUTINE]]  # marked as one: inspect.markcoroutinefunction, AsyncMock
    if found:
        raise InvalidRequestError(field, f"{name} is {found[0]}, which would never run; {RIGHT_FORM}")


def _function_of(callback: Callable[..., object]) -> tuple[object, str]:
    """The function that runs in the end, inside partials, bound methods and objects with `__call__`; and its name."""
    function: object = callback
    while True:
        if isinstance(function, partial):
            function = cast("partial[object]", function).func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, FunctionType | type):
            return function, function.__qualname__
        else:
            owner = type(function)
            return owner.__call__, f"{owner.__qualname__}.__call__"
