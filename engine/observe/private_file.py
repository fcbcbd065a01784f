"""Files that hold prompts or answers. Only the owner can read a new file. An existing file is not written to, unless it
begins as the files of the program that writes it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import sqlite3

Value = TypeVar("Value")

MODE = 0o600
"""The mode of a new file: its owner reads and writes it. The umask can only remove permissions."""

NEW = os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
"""The flags for opening a new file. They fail if the name exists, also as a link that leads nowhere."""


def open_new(path: str | os.PathLike[str], advice: str = "choose another name, or pass replace=True") -> int:
    """Create a file and return a descriptor for writing it.

    Raises `FileExistsError` if the name exists, also as a link that leads nowhere. Raises `OSError`.
    """
    try:
        return os.open(path, os.O_WRONLY | NEW, MODE)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, f"exists already: {advice}", os.fspath(path)) from None


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


def open_own(path: str | os.PathLike[str], beginning: bytes) -> int:
    """Open a file of lines to append to it, or create it, and return a descriptor. Its mode becomes `MODE`.

    Raises `OSError` for a link, for what is no regular file, and for a file of another user or of another program.

    beginning: the bytes with which each of its lines begins.
    """
    wait = getattr(os, "O_NONBLOCK", 0)  # the open of a pipe must not wait
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | wait | (NEW & ~os.O_EXCL), MODE)
    try:
        found = os.fstat(descriptor)
        is_owner = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
        if not stat.S_ISREG(found.st_mode) or not is_owner or found.st_nlink > 1:
            raise OSError(errno.EINVAL, "it is no regular file of this user alone", os.fspath(path))
        if os.pread(descriptor, len(beginning), 0) not in (b"", beginning):
            raise OSError(errno.EINVAL, "another program has written it", os.fspath(path))
        if stat.S_IMODE(found.st_mode) != MODE:
            os.fchmod(descriptor, MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def look_at_database(path: str | os.PathLike[str], look: Callable[[sqlite3.Connection, bool], Value]) -> Value:
    """Return what `look` finds in an SQLite database, of which nothing changes: neither the file nor its log.

    SQLite reads the file alone: without its log, and without a lock or a repair. Raises `OSError` for what is no
    regular file, and `sqlite3.Error`.

    look: takes the connection, and whether there is a log, which may have the tables of another program.
    """
    import sqlite3

    if not os.path.isfile(path):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    log = Path(f"{os.path.realpath(path)}-wal")
    uri = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
        return look(connection, log.exists() and log.stat().st_size > 0)


def check_link(path: str | os.PathLike[str]) -> None:
    """Raise `OSError` for a symbolic link of another user than this one and root: it leads where that user wants."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode) and hasattr(os, "geteuid") and found.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "it is a symbolic link of another user", os.fspath(path))


def create_missing(path: str | os.PathLike[str]) -> None:
    """Create an empty file if there is none, also at the end of a link that leads nowhere, unless that is another
    user's. Raises `OSError`."""
    check_link(path)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | NEW, MODE))
