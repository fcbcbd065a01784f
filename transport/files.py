"""Files that a program or a command names for reading."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file. Raises `OSError`, also for a named pipe."""
    refuse_pipe(path)
    return Path(path).read_bytes()


def refuse_pipe(path: str | os.PathLike[str] | None) -> None:
    """Raise `OSError` for a named pipe, whose writer would be waited for. A pipe of the shell, `<(…)`, has no name."""
    if path is not None and Path(os.path.realpath(path)).is_fifo():
        raise OSError(errno.EINVAL, "it is a named pipe: name a file", os.fspath(path))
