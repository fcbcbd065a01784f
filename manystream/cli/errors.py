"""What ends a command with one line instead of a traceback. Values only."""

from __future__ import annotations


class CommandError(Exception):
    """The command cannot go on. The message is one line for the person at the terminal, and holds no key.

    status: the exit status; 2 where the command line itself was wrong.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status
