"""The standard streams of the process: they may be closed, have an encoding of few characters, or take no output."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TextIO

from .terminal import harmless_writer

STRICT = ("strict", "surrogateescape")
"""The error handlers that raise for a character which the encoding of a stream does not have."""

DESCRIPTORS = (0, 1, 2)
"""The descriptors of the standard streams."""

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Numbers of errors of a write to an open file."""


def prepare_streams() -> None:
    """Make standard output and standard error usable, whatever the process was started with.

    A closed one becomes the null device. A closed standard input stays None in `sys.stdin`, but its descriptor is in
    use, so that no file that is opened later is taken for it. A character that the encoding does not have is written as
    an escape, such as `\\u2192`. Control characters in what is written to either are replaced.
    """
    for descriptor in DESCRIPTORS:
        _occupy(descriptor)
    if is_closed(sys.stdout):
        sys.stdout = _null_device(1)
    if is_closed(sys.stderr):
        sys.stderr = _null_device(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in STRICT:
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = harmless_writer(sys.stdout), harmless_writer(sys.stderr)


def is_closed(stream: TextIO | None) -> bool:
    """Return whether a standard stream was closed when the process was started. Its type in `sys` does not show it."""
    return stream is None


def is_output_error(error: OSError) -> bool:
    """Return whether the error is one of writing to an open file, such as that of a full disk."""
    return error.filename is None and error.errno in OUTPUT_ERRORS


def drop_output() -> None:
    """Let standard output, and standard error if it takes no more text, write to the null device from now on.

    Python flushes both at exit, which would raise again.
    """
    _redirect(sys.stdout)
    try:
        sys.stderr.flush()
    except OSError:
        _redirect(sys.stderr)


def _redirect(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
        os.dup2(null, stream.fileno())
    os.close(null)


def _occupy(descriptor: int) -> None:
    """Open the null device at the descriptor if nothing is open there."""
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)


def _null_device(descriptor: int) -> TextIO:
    """Return a stream that writes to the descriptor, at which the null device is open."""
    return open(descriptor, "w", encoding="utf-8", closefd=False)
