"""The types of a call's callbacks, and their check: only plain functions are accepted. Others are refused when the call
is started.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TypeAlias, cast

from ...providers.errors import InvalidRequestError
from ...providers.model.events import Event
from ...providers.rules.plain_functions import ANY_DEFERRED, why_deferred
from .completion import Completion

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
