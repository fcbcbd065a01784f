"""A file of JSON lines that a batch appends to: locked, every line written whole, a torn last line repaired.

A file that a batch did not write is refused and left exactly as it is. Knows files. Must not know what a line means:
the owner is shown each line and may refuse it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from ..engine import private_file
from ..providers.errors import ManystreamError
from ..providers.json_values import JSON, JSONObject, MalformedJSONError, dumps, items, loads_object

OnRecord: TypeAlias = "Callable[[int, JSONObject], str | None]"
"""Is called with the position in bytes and the object of each line that the file holds when it is opened. Returns why
a batch cannot have written the line, or None."""

FIRST_BYTES = b'{"id":'
"""How every line of a batch begins. A torn last line that begins otherwise is somebody else's text."""

DEEPEST = 100
"""Levels of a value that are written where it cannot be written as it is."""


class JournalError(ManystreamError, RuntimeError):
    """The files cannot be used as they are. The message says which, and what to do."""


class LineFile:
    """An open file. Only regular files can be used: a batch is resumed from what it has written.

    path: as it was given. start: its size when it was opened, in bytes. Everything before is from earlier runs.
    """

    def __init__(self, path: Path, on_record: OnRecord) -> None:
        """Open the file, or create it, and read what it holds. Raises `JournalError`."""
        self.path = path
        self._failure: OSError | None = None
        self._descriptor: int | None = _open_locked(path)
        try:
            self._read(on_record)
            self._repair()
            self.start: int = self._size()
        except BaseException:
            self.close()
            raise

    @property
    def descriptor(self) -> int:
        """The open file's descriptor. Raises `JournalError` once the file was closed: the number may be another's."""
        if self._descriptor is None:
            raise JournalError(f"{self.path} is closed: the journal's block was left before the batch had ended")
        return self._descriptor

    def close(self) -> None:
        """Close the file. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def sync(self) -> None:
        """Wait until the disk has everything. Raises `OSError`."""
        os.fsync(self.descriptor)

    def append(self, record: JSONObject) -> None:
        """Write one line. Raises `OSError`; nothing of the line is in the file then."""
        if self._failure is not None:
            raise self._failure
        self._write(encoded(record) + b"\n")

    def records(self) -> Iterator[tuple[int, JSONObject]]:
        """Each line's position in bytes, and its object."""
        position = 0
        for number, line in enumerate(self._lines(), 1):
            yield position, self._object(line, number)
            position += len(line)

    def keep_only(self, positions: set[int]) -> None:
        """Remove every line that does not begin at one of these positions. Call it last: the file may be another one
        afterwards.

        The new text is written to a file of its own, which then takes the name, with mode and owner of the old one, so
        that no moment has half a file. Where that would change more than the text (several hard links, a folder or an
        owner that cannot be written), or the disk is full, the lines stay: superseded lines do no harm.
        """
        target = Path(os.path.realpath(self.path))
        status = os.fstat(self.descriptor)
        with contextlib.suppress(OSError):
            if not positions:
                self._empty(target, status)
            elif status.st_nlink == 1:
                self._replace(target, status, positions)

    # --- opening ---

    def _read(self, on_record: OnRecord) -> None:
        """Raises `JournalError` where a line was not written by a batch. Changes nothing."""
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
            f"{self.path} line {number} was not written by a batch: {reason}; mend the line, or choose another file"
        )

    def _repair(self) -> None:
        """A last line without its end was being written when the run was killed: complete it, or remove it."""
        end = self._size()
        start = _last_line_start(self.descriptor, end)
        if start == end:
            return
        if _object_or_none(os.pread(self.descriptor, end - start, start)) is None:
            os.ftruncate(self.descriptor, start)
        else:
            self._write(b"\n")  # no beginning of an object is an object: only the line's end is missing

    # --- reading and writing ---

    def _size(self) -> int:
        return os.fstat(self.descriptor).st_size

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
        """Remove a line that was not written to its end: another one behind it would make both unreadable."""
        try:
            if written:
                os.ftruncate(self.descriptor, self._size() - written)
        except OSError:
            self._failure = error

    def _empty(self, target: Path, status: os.stat_result) -> None:
        """Remove the file where a new one would be the same, else its text."""
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
    """The record as one line of JSON, whatever a server or a line has put into it: what JSON cannot hold is replaced,
    and the record says so under `warnings`."""
    try:
        return dumps(record)
    except TypeError:
        pass
    storable = _storable(record, DEEPEST)
    assert type(storable) is dict
    warnings = items(storable, "warnings")
    storable["warnings"] = [*warnings, "parts of this record could not be written as JSON and were replaced"]
    return dumps(storable)


def _storable(value: JSON, levels: int) -> JSON:
    """The value with null for what lies too deep, and U+FFFD for lone surrogates."""
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
    """The file's descriptor, locked. Raises `JournalError`."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, private_file.MODE)
        except OSError as error:
            raise JournalError(f"cannot write {path}: {error.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise JournalError(f"{path} is no regular file, so no batch can be resumed from it: choose another one")
            _lock(descriptor, path)
            # Between the two steps another run may have put a new file in its place.
            if _is_still_there(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(descriptor: int, path: Path) -> None:
    """Two runs on one file would answer everything twice. The system lets go of the lock when the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows: nobody is kept out
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalError(f"{path}: another batch is writing it; wait for its end or choose another file") from None
    except OSError as error:
        raise JournalError(f"cannot lock {path}: {error.strerror}; choose a file on another file system") from None


def _last_line_start(descriptor: int, end: int) -> int:
    """Where the last line begins that has no end; `end` where all have theirs."""
    position = end
    while position:
        step = min(64 * 1024, position)
        piece = os.pread(descriptor, step, position - step)
        found = piece.rfind(b"\n")
        if found >= 0:
            return position - step + found + 1
        position -= step
    return 0
