"""Which callables run when they are called, and which ones only make an object that somebody must await or iterate.

Calling a coroutine function or a generator function runs nothing of its body. Where a plain function is expected, such
a callable would therefore never do anything.

Knows what Python says about callables. Must not know what they are for.
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
"""Flag of a function's code → what such a function is. None of them runs its body when it is called. A function that
`types.coroutine` made has the generator's flag, too, so its own flag comes first."""

ANY_DEFERRED = sum(DEFERRED)


def why_deferred(function: Callable[..., object]) -> str:
    """A clause such as "fetch is a coroutine function (async def)"; empty for a function that runs when it is
    called."""
    inner, name = _function_of(function)
    flags = inner.__code__.co_flags if isinstance(inner, FunctionType) else 0
    found = [words for flag, words in DEFERRED.items() if flags & flag]
    if not found and (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)):
        found = [DEFERRED[inspect.CO_COROUTINE]]  # marked as one: inspect.markcoroutinefunction, AsyncMock
    return f"{name} is {found[0]}" if found else ""


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
