"""The exception that ends a command with a one-line message instead of a traceback."""

from __future__ import annotations


class CommandError(Exception):
    """The command cannot continue. The message is one line for the user, and holds no key.

    status: the exit status; 2 if the command line is wrong.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status
