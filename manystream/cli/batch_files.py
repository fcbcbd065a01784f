"""The files of `manystream batch`: it checks them before anything is sent."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

from .output.errors import CommandError
from .output.standard_streams import is_closed

EXAMPLE = '{"id": "1", "messages": [{"role": "user", "content": "Hello"}]}'


def read_path(option: str, given: str) -> Path:
    """Return the path of a file that is written. Raises `CommandError` for a path without a file's name."""
    path = Path(given)
    if not path.name:
        raise CommandError(f"{option} {given or repr(given)} names no file, such as answers.jsonl", status=2)
    return path


def check_files(prompts: Path | None, output: Path | None, errors: Path | None) -> None:
    """Raise `CommandError` if the input cannot be read, or if two of the three files are the same file.

    prompts: the input; None for standard input.
    output: the file of answers; None for standard output.
    errors: the file of failures; None for standard error.
    """
    if prompts is None and is_closed(sys.stdin):
        raise CommandError("cannot read standard input: it is closed", status=2)
    try:
        status = _readable(prompts) if prompts is not None else os.fstat(sys.stdin.fileno())
    except (OSError, ValueError) as error:
        if prompts is None:
            return  # standard input is closed or not a file; reading it raises the error
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandError(f"cannot read {prompts}: {reason}; a file of prompts has lines such as {EXAMPLE}") from None
    for name, path in (("-o", output), ("--errors", errors)):
        if path is not None and _is_file(path, status):
            raise CommandError(f"{name} {path} is the input itself: name another file with {name}", status=2)
    found = _status(errors) if errors is not None else None
    if found is not None and output is not None and _is_file(output, found):
        raise CommandError(f"--errors {errors} is the file of answers itself: name another file", status=2)


def _readable(path: Path) -> os.stat_result:
    """Return the status of a file that can be read. Raises `OSError` or `ValueError`.

    A named pipe is not opened: its writer would take the end of this check for the end of the batch.
    """
    status = path.stat()
    if stat.S_ISFIFO(status.st_mode):
        if not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return status
    with path.open("rb") as file:
        return os.fstat(file.fileno())


def _is_file(path: Path, status: os.stat_result) -> bool:
    """Return whether the path leads to this file, also by another spelling, a hard link or a symbolic link."""
    found = _status(path)
    return found is not None and os.path.samestat(found, status)


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file; None if there is none, or if the journal will report why it cannot be used."""
    try:
        return path.stat()
    except OSError:
        return None
