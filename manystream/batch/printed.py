"""The records of a batch on standard output, in place of a journal: for a pipe. No later run can continue from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import trio

from .. import JSONObject
from .line_file import LineFile, encoded
from .lines import LineId

MOST_UNWRITTEN = 1 << 20
"""While more bytes than this wait for the reader of the output, no further line of the input is read."""


class PrintedRecords:
    """Answers on one stream. Failures go to a file, or to another stream. It has the methods of `Journal`.

    A reader that is slow, or stops for a while, delays the batch and not its calls: a thread writes.

    failures: the stream of failures, or the path of their file.

    failure: why the answers cannot be written; None if they can.
    """

    def __init__(self, answers: BinaryIO, failures: BinaryIO | Path) -> None:
        self.answered: set[LineId] = set()
        self.failed: set[LineId] = set()
        self.answers_path: Path = Path("standard output")
        self.errors_path: Path = failures if isinstance(failures, Path) else Path("standard error")
        self.failure: OSError | None = None
        self._answers = answers
        self._failures = failures
        self._file: LineFile | None = None
        self._unwritten: list[bytes] = []
        self._size = 0
        self._changed = trio.Event()

    def __enter__(self) -> PrintedRecords:
        if isinstance(self._failures, Path):
            self._file = LineFile(self._failures, lambda position, record: None)
        return self

    def __exit__(self, *reason: object) -> None:
        if self._file is not None:
            self._file.close()

    def record_answer(self, id: LineId, record: JSONObject) -> None:
        """Write an answer soon. Raises `OSError` if the stream takes no more."""
        self.record_encoded([(id, encoded(record))], ())

    def record_failure(self, record: JSONObject) -> None:
        """Write a failure. Raises `OSError`."""
        self.record_encoded((), [encoded(record)])

    def record_encoded(self, answers: Sequence[tuple[LineId, bytes]], failures: Sequence[bytes]) -> None:
        """Write many records, each encoded by `line_file.encoded`. Raises `OSError`."""
        if self.failure is not None:
            raise self.failure
        self._unwritten += [record + b"\n" for _, record in answers]
        self._size += sum(len(record) + 1 for _, record in answers)
        self._notify()
        if self._file is not None:
            self._file.append_encoded(failures)
        elif not isinstance(self._failures, Path):
            self._failures.writelines(record + b"\n" for record in failures)
            self._failures.flush()

    def leave_unpaid(self, id: LineId) -> None:
        """Write nothing."""

    async def write(self) -> None:
        """Write the answers as they come, until this is cancelled or an error has ended it."""
        while self.failure is None:
            await self._wait_until(lambda: bool(self._unwritten))
            data, self._unwritten = b"".join(self._unwritten), []
            self.failure = await trio.to_thread.run_sync(self._write, data, abandon_on_cancel=True)
            self._size -= len(data)
            self._notify()

    async def wait_for_room(self) -> None:
        """Wait until few answers wait to be written."""
        await self._wait_until(lambda: self._size <= MOST_UNWRITTEN)

    async def flush(self, seconds: float = math.inf) -> None:
        """Wait until all answers are written, but not longer than this."""
        with trio.move_on_after(seconds):
            await self._wait_until(lambda: not self._size)

    def _write(self, data: bytes) -> OSError | None:
        try:
            self._answers.write(data)
            self._answers.flush()
        except OSError as error:
            return error
        return None

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while self.failure is None and not condition():
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
