"""The guard around what is only noted: in a trace, a recording, a cache, a log, or by an observer.

What raises there must not touch the answer: the note is lost, and the log says so once.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ...providers.json.exact_numbers import UnwritableError
from ...providers.json.json_values import MalformedJSONError

P = ParamSpec("P")
Value = TypeVar("Value")

EXPLAINED = (OSError, UnwritableError, MalformedJSONError, RecursionError)
"""Errors of a file, and of a value that a server or a client sent. Their text explains them."""


class NoteLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that never raises, whatever a handler or a filter of the program does."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: object) -> None:
        with contextlib.suppress(Exception):
            # One more level, so that the record names the caller of `warning` and not this function.
            self.logger.log(level, msg, *args, **{"stacklevel": 2, **kwargs})  # type: ignore[arg-type]


class Notes:
    """Takes the notes of one kind.

    lost: the number of notes that were lost.
    """

    def __init__(self, logger: NoteLogger, said: str, *known: type[Exception]) -> None:
        """Create the guard.

        said: what the log says of the first note that is lost, such as "the trace a.jsonl lacks calls".
        known: errors whose text explains them, besides `EXPLAINED`. Of any other error the log has the traceback.
        """
        self._known = EXPLAINED + known
        self._logger = logger
        self._said = said
        self.lost: int = 0

    def take(self, note: Callable[P, Value], *args: P.args, **kwargs: P.kwargs) -> Value | None:
        """Call a function that notes something. Returns None if it raised."""
        try:
            return note(*args, **kwargs)
        except Exception as error:
            self.lose(error)
            return None

    def lose(self, error: BaseException) -> None:
        """Count a note that is lost, and log the first one."""
        self.lost += 1
        if self.lost > 1:
            return
        if isinstance(error, self._known):
            self._logger.error("%s: %s", self._said, getattr(error, "strerror", None) or error)
        else:
            self._logger.error("%s", self._said, exc_info=error)
