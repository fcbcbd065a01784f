"""Files that hold prompts or answers. Only the owner can read a new file, and an existing file is never written to."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

MODE = 0o600
"""The mode of a new file: its owner reads and writes it. The umask can only remove permissions."""

NEW = os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
"""The flags for opening a new file. They fail if the name exists, also as a link that leads nowhere."""


def open_new(path: str | os.PathLike[str]) -> int:
    """Create a file and return a descriptor for writing it.

    Raises `FileExistsError` if the name exists, also as a link that leads nowhere. Raises `OSError`.
    """
    try:
        return os.open(path, os.O_WRONLY | NEW, MODE)
    except FileExistsError:
        message = "exists already: choose another name, or pass replace=True"
        raise FileExistsError(errno.EEXIST, message, os.fspath(path)) from None


def open_replacement(path: str | os.PathLike[str], data: bytes = b"") -> int:
    """Create a file with this data that takes the name at once, and return a descriptor for writing on.

    The file that had the name before keeps its content: the target of a link, a file with other names, a file that
    another program has open. Raises `OSError`.
    """
    target = Path(path)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.replace(name, target)
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return descriptor


def create_missing(path: str | os.PathLike[str]) -> None:
    """Create an empty file if there is none, also at the end of a link that leads nowhere. Raises `OSError`."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | NEW, MODE))
