"""Distinguishes callables that run when they are called from those that only return an object to await or iterate.

A call of a coroutine function or a generator function runs none of its body. So where a plain function is expected,
such a callable would have no effect.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import cast

DEFERRED: dict[int, str] = {
    inspect.CO_COROUTINE: "a coroutine function (async def)",
    inspect.CO_ASYNC_GENERATOR: "an asynchronous generator function (async def with yield)",
    inspect.CO_ITERABLE_COROUTINE: "a coroutine function (types.coroutine)",
    inspect.CO_GENERATOR: "a generator function (yield)",
}
"""Flag of a function's code → the kind of function in words. None of them runs its body when it is called.

A function that `types.coroutine` made has the generator's flag as well, so its own flag comes first.
"""

ANY_DEFERRED = sum(DEFERRED)
"""All flags of `DEFERRED`, combined."""


def why_deferred(function: Callable[..., object]) -> str:
    """Return why a callable does not run when it is called, such as "fetch is a coroutine function (async def)".

    Returns an empty text for a callable that runs.
    """
    inner, name = _function_of(function)
    flags = inner.__code__.co_flags if isinstance(inner, FunctionType) else 0
    found = [words for flag, words in DEFERRED.items() if flags & flag]
    if not found and (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)):
        found = [DEFERRED[inspect.CO_COROUTINE]]  # marked as one: inspect.markcoroutinefunction, AsyncMock
    return f"{name} is {found[0]}" if found else ""


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Return whether a call of a callable returns a coroutine, which runs when it is awaited."""
    inner, _ = _function_of(function)
    flags = inner.__code__.co_flags if isinstance(inner, FunctionType) else 0
    marked = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)
    return marked or bool(flags & (inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE))


def _function_of(callback: Callable[..., object]) -> tuple[object, str]:
    """Return the function inside partials, bound methods and objects with `__call__`, and its name."""
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
