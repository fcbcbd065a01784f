"""Files that hold prompts or answers: a new one can be read by its owner alone, and is never somebody else's file.

Knows the operating system's flags. Must not know what is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

MODE = 0o600
"""What a new file may be used for: its owner reads and writes it. The umask can only take from this."""

_NEW = os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


def open_new(path: str | os.PathLike[str]) -> int:
    """A descriptor for writing a file that was not there. Raises `FileExistsError` for whatever is there, a link that
    leads nowhere included, and `OSError`."""
    try:
        return os.open(path, os.O_WRONLY | _NEW, MODE)
    except FileExistsError:
        message = "exists already: choose another name, or pass replace=True"
        raise FileExistsError(errno.EEXIST, message, os.fspath(path)) from None


def open_replacement(path: str | os.PathLike[str]) -> int:
    """A descriptor for writing a new file that takes the name at once. What had the name before stays as it is: a
    link's target, a file with other names, a file that another program has open. Raises `OSError`."""
    target = Path(path)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        os.replace(name, target)
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return descriptor


def create_missing(path: str | os.PathLike[str]) -> None:
    """Make an empty file where there is none, at the end of a link that leads nowhere as well. Raises `OSError`."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | _NEW, MODE))
