"""A file of JSON lines that a batch appends to.

The file is locked while it is open. A line is written whole or not at all. An incomplete last line is repaired when the
file is opened. A file that no batch has written is refused and not changed.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from .. import ManystreamError
from ..engine.observe import private_file
from ..providers.json.json_values import JSON, JSONObject, MalformedJSONError, dumps_printable, items, loads_object

OnRecord: TypeAlias = Callable[[int, JSONObject], str | None]
"""A callback for each line that the file holds when it is opened.

It receives the line's position in bytes and its object. It returns why a batch cannot have written the line, or None.
"""

FIRST_BYTES = b'{"id":'
"""The first bytes of every line of a batch. An incomplete last line with another beginning is not from a batch."""

READ_BYTES = 4096
"""A line is read again in pieces of so many bytes."""

DEEPEST = 100
"""Levels of nesting that are kept of a value that JSON cannot hold."""


class JournalError(ManystreamError, RuntimeError):
    """A file of the journal cannot be used. The message names the file and what to do."""


class LockedError(JournalError):
    """Another process has locked a file of the journal. It may end soon."""


class LineFile:
    """An open file of JSON lines. It must be a regular file, because a later run reads it again.

    start: the file's size when it was opened, in bytes. The lines before this position are from earlier runs.
    """

    def __init__(self, path: Path, on_record: OnRecord) -> None:
        """Open or create the file, and call `on_record` with each of its lines. Raises `JournalError`."""
        self.path = path
        self._failure: OSError | None = None
        self._descriptor: int | None = _open_locked(path)
        try:
            self._read(on_record)
            self._repair()
            self.start: int = self.size
        except BaseException:
            self.close()
            raise

    @property
    def descriptor(self) -> int:
        """The open file's descriptor.

        Raises `JournalError` after the file was closed: the number may then be the descriptor of another file.
        """
        if self._descriptor is None:
            raise JournalError(f"{self.path} is closed: the journal's block was left before the batch had ended")
        return self._descriptor

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    @property
    def size(self) -> int:
        """The size of the file in bytes: the position of the line that is written next."""
        return os.fstat(self.descriptor).st_size

    def sync(self) -> None:
        """Wait until all lines are on the disk. Raises `OSError`."""
        os.fsync(self.descriptor)

    def append(self, record: JSONObject) -> None:
        """Write one line. If this raises `OSError`, no part of the line is in the file."""
        self.append_encoded([encoded(record)])

    def append_encoded(self, lines: Sequence[bytes]) -> None:
        """Write several lines, encoded by `encoded`. If this raises `OSError`, no part of them is in the file."""
        if self._failure is not None:
            raise self._failure
        self._write(b"".join([part for line in lines for part in (line, b"\n")]))

    def line_at(self, position: int) -> bytes:
        """Return the line that begins at this position in bytes, without its line end. Raises `OSError`."""
        pieces: list[bytes] = []
        while piece := os.pread(self.descriptor, READ_BYTES, position):
            end = piece.find(b"\n")
            if end >= 0:
                pieces.append(piece[:end])
                break
            pieces.append(piece)
            position += len(piece)
        return b"".join(pieces)

    def records(self) -> Iterator[tuple[int, JSONObject]]:
        """Yield each line's position in bytes and its object."""
        position = 0
        for number, line in enumerate(self._lines(), 1):
            yield position, self._object(line, number)
            position += len(line)

    def keep_only(self, positions: set[int]) -> None:
        """Remove every line that does not begin at one of these positions, which are in bytes.

        Call this last: the path may lead to a new file afterwards, and this object keeps the old one.

        The remaining lines are written to a new file with the same mode and owner, which then replaces the old file, so
        that the path never leads to an incomplete file. No line is removed if the path leads to another file by now, if
        the file has several hard links, if its folder cannot be written, if its owner cannot be kept, or if the disk is
        full. Superseded lines do no harm.
        """
        target = Path(os.path.realpath(self.path))
        status = os.fstat(self.descriptor)
        with contextlib.suppress(OSError):
            if not os.path.samestat(target.lstat(), status):
                return
            if not positions:
                self._empty(target, status)
            elif status.st_nlink == 1:
                self._replace(target, status, positions)

    def loss(self) -> str:
        """Return what became of the lines of this run if the path leads to another file by now, in words; else "".

        Lines of a file that has no name any more are copied to a new file beside it. Raises `OSError`.
        """
        if self.size <= self.start or _is_still_there(self.descriptor, self.path):
            return ""
        what = f"{self.path} was removed or replaced during this run"
        if os.fstat(self.descriptor).st_nlink:
            return f"{what}: the records of the run are in the file that had this name before"
        copy = self.path.with_name(f"{self.path.stem}.rescued-{secrets.token_hex(4)}{self.path.suffix}")
        with os.fdopen(private_file.open_new(copy), "wb") as new:
            new.writelines(self._lines())
        return f"{what}: its records are in {copy}"

    # --- opening ---

    def _read(self, on_record: OnRecord) -> None:
        """Check all lines without changing the file. Raises `JournalError` for a line that no batch has written."""
        position = 0
        for number, line in enumerate(self._lines(), 1):
            record: JSONObject | None
            if line.endswith(b"\n"):
                record = self._object(line, number)
            elif line.startswith(FIRST_BYTES[: len(line)]):
                record = _object_or_none(line)
            else:
                raise self._foreign(number, f"it does not begin with {FIRST_BYTES.decode()}")
            reason = on_record(position, record) if record is not None else None
            if reason is not None:
                raise self._foreign(number, reason)
            position += len(line)

    def _object(self, line: bytes, number: int) -> JSONObject:
        try:
            return loads_object(line)
        except MalformedJSONError as error:
            raise self._foreign(number, str(error)) from None

    def _foreign(self, number: int, reason: str) -> JournalError:
        return JournalError(
            f"{self.path} line {number} was not written by a batch: {reason}; correct the line, or choose another file"
        )

    def _repair(self) -> None:
        """Complete the last line if only its line end is missing. Remove it if it is incomplete.

        Such a line was being written when an earlier run was killed.
        """
        end = self.size
        start = _last_line_start(self.descriptor, end)
        if start == end:
            return
        if _object_or_none(os.pread(self.descriptor, end - start, start)) is None:
            os.ftruncate(self.descriptor, start)
        else:
            self._write(b"\n")  # the object is complete, so only the line end is missing

    # --- reading and writing ---

    def _lines(self) -> Iterator[bytes]:
        with os.fdopen(os.dup(self.descriptor), "rb") as file:
            file.seek(0)
            yield from file

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.descriptor, view) :]
        except OSError as error:
            self._take_back(len(data) - len(view), error)
            raise

    def _take_back(self, written: int, error: OSError) -> None:
        """Remove the written part of a line after an error: the next line would make both unreadable."""
        try:
            if written:
                os.ftruncate(self.descriptor, self.size - written)
        except OSError:
            self._failure = error

    def _empty(self, target: Path, status: os.stat_result) -> None:
        """Remove the file if a new file would have the same owner, mode and links. Otherwise remove its text only."""
        mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        plain = status.st_nlink == 1 and not self.path.is_symlink()
        if mine and plain and stat.S_IMODE(status.st_mode) == private_file.MODE:
            target.unlink()
        else:
            os.ftruncate(self.descriptor, 0)

    def _replace(self, target: Path, status: os.stat_result, positions: set[int]) -> None:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as new:
                position = 0
                for line in self._lines():
                    if position in positions:
                        new.write(line)
                    position += len(line)
                new.flush()
                if hasattr(os, "fchown"):
                    os.fchown(descriptor, status.st_uid, status.st_gid)
                    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
                os.fsync(descriptor)
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise


def encoded(record: JSONObject) -> bytes:
    """Return the record as JSON in one line, without a line end.

    Values that JSON cannot hold are replaced, and a text under `warnings` reports this.
    """
    try:
        return dumps_printable(record)
    except TypeError:
        pass
    storable = _storable(record, DEEPEST)
    assert type(storable) is dict
    warnings = items(storable, "warnings")
    storable["warnings"] = [*warnings, "parts of this record could not be written as JSON and were replaced"]
    return dumps_printable(storable)


def _storable(value: JSON, levels: int) -> JSON:
    """Return the value with null for members below so many levels and for numbers that JSON does not have, and with
    U+FFFD for lone surrogates.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if type(value) is str:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(value) is list:
        return [_storable(member, levels - 1) for member in value] if levels else None
    if type(value) is dict:
        if not levels:
            return None
        return {str(_storable(name, levels)): _storable(member, levels - 1) for name, member in value.items()}
    return value


def _object_or_none(line: bytes) -> JSONObject | None:
    try:
        return loads_object(line)
    except MalformedJSONError:
        return None


def _open_locked(path: Path) -> int:
    """Open and lock the file, and return its descriptor. Raises `JournalError`.

    A file that exists may have a link as its name. A new one is made at this name and nowhere else.
    """
    while True:
        try:
            descriptor = _open_or_make(path)
        except FileExistsError:
            continue  # it was made a moment ago
        except OSError as error:
            raise JournalError(f"cannot write {path}: {error.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise JournalError(
                    f"{path} is not a regular file, so no batch can be resumed from it: choose another file"
                )
            _lock(descriptor, path)
            # Another run may have replaced the file between `open` and `_lock`.
            if _is_still_there(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open_or_make(path: Path) -> int:
    """Open or make a file, and return its descriptor. Raises `OSError`; `FileExistsError` if the name has just come."""
    flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)  # the open of a device or a pipe must not wait
    private_file.check_link(path)
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        if path.is_symlink():
            reason = "is a link that leads nowhere: make the file that it names, or choose another file"
            raise JournalError(f"{path} {reason}") from None
        return os.open(path, flags | private_file.NEW, private_file.MODE)


def _is_still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(descriptor: int, path: Path) -> None:
    """Lock the file, because two runs on one file would send every line twice. Raises `JournalError`.

    The system releases the lock when the process ends.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"{path}: another batch is writing this file; wait until that batch has ended, or choose another file"
        ) from None
    except OSError as error:
        raise JournalError(f"cannot lock {path}: {error.strerror}; choose a file on another file system") from None


def _last_line_start(descriptor: int, end: int) -> int:
    """Return the position of a last line without a line end, or `end` if every line has one."""
    position = end
    while position:
        step = min(64 * 1024, position)
        piece = os.pread(descriptor, step, position - step)
        found = piece.rfind(b"\n")
        if found >= 0:
            return position - step + found + 1
        position -= step
    return 0
