"""The files of a batch: answers, and failures apart from them. Every line is written whole, in one go, once.

What a run leaves behind, however it ends, is what the next one starts from: ids in the answers are done; failures are
known, and tried again on demand. Only the last line can be torn, and that is repaired when the files are opened.

Knows files and ids. Must not know calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from ...providers.json_values import JSON, JSONObject, MalformedJSONError, dumps, loads_object, mapping, string
from .lines import LineId

INVALID_LINE = "invalid_line"
"""The category of a line that was never sent. It is looked at anew in each run, since it costs nothing."""


class JournalError(RuntimeError):
    """The files cannot be used as they are. The message says which, and what to do."""


def default_errors_path(answers: Path) -> Path:
    """`answers.jsonl` → `answers.errors.jsonl`."""
    return answers.with_name(f"{answers.stem}.errors{answers.suffix or '.jsonl'}")


class Journal:
    """The answers' file and the failures' file, open for one run.

    answered: ids that have their answer. failed: ids whose failure is known from earlier runs. makers: who answered
    so far, as `provider` in the answers says.
    """

    def __init__(self, answers: Path, errors: Path | None = None) -> None:
        self.answers_path = answers
        self.errors_path: Path = errors if errors is not None else default_errors_path(answers)
        self.answered: set[LineId] = set()
        self.failed: set[LineId] = set()
        self.makers: set[str] = set()
        self._open = ExitStack()
        self._answers = -1
        self._errors: int | None = None

    def __enter__(self) -> Journal:
        if self.answers_path.resolve() == self.errors_path.resolve():
            raise JournalError(f"{self.answers_path}: answers and failures need two files")
        try:
            self._answers = self._opened(self.answers_path)
            _lock(self._answers, self.answers_path)
            _repair(self._answers, self.answers_path)
            for record in _records(self.answers_path):
                id = _id(record)
                if id is not None:
                    self.answered.add(id)
                    self.makers.add(string(record, "provider") or "")
            self._clean_errors(opening=True)
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            os.fsync(self._answers)
            if self._errors is not None:
                os.fsync(self._errors)
            self._clean_errors(opening=False)
        finally:
            self._open.close()

    def record_answer(self, id: LineId, record: JSONObject) -> None:
        """Keep an answer. Raises `OSError`."""
        _append(self._answers, dumps(record) + b"\n")
        self.answered.add(id)

    def record_failure(self, record: JSONObject) -> None:
        """Keep a failure. Raises `OSError`."""
        if self._errors is None:
            self._errors = self._opened(self.errors_path)
        _append(self._errors, dumps(record) + b"\n")

    def _opened(self, path: Path) -> int:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise JournalError(f"cannot write {path}: {error.strerror}") from None
        self._open.callback(os.close, descriptor)
        return descriptor

    def _clean_errors(self, *, opening: bool) -> None:
        """Rewrite the failures: the last of each id, none that has been answered since, invalid lines of this run
        only. Written beside and renamed, so that no moment has half a file."""
        if not self.errors_path.exists():
            return
        if opening:
            descriptor = os.open(self.errors_path, os.O_RDWR | os.O_APPEND)
            try:
                _repair(descriptor, self.errors_path)
            finally:
                os.close(descriptor)
        last: dict[LineId, int] = {}
        invalid: list[int] = []
        count = 0
        for place, record in enumerate(_records(self.errors_path)):
            id, count = _id(record), place + 1
            if string(mapping(record, "error"), "category") == INVALID_LINE:
                if not opening:
                    invalid.append(place)
            elif id is not None and id not in self.answered:
                last[id] = place
        self.failed = set(last)
        if count != len(last) + len(invalid) or not count:
            self._rewrite_errors({*last.values(), *invalid})

    def _rewrite_errors(self, places: set[int]) -> None:
        if not places:
            self.errors_path.unlink()
            return
        beside = self.errors_path.with_name(self.errors_path.name + ".tmp")
        with beside.open("wb") as new, self.errors_path.open("rb") as old:
            new.writelines(line for place, line in enumerate(old) if place in places)
            new.flush()
            os.fsync(new.fileno())
        beside.replace(self.errors_path)


def _id(record: JSONObject) -> LineId | None:
    id: JSON = record.get("id")
    return id if type(id) is int or type(id) is str else None


def _records(path: Path) -> Iterator[JSONObject]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield loads_object(line)
            except MalformedJSONError as error:
                raise JournalError(
                    f"{path} line {number} was not written by a batch: {error}; mend the line, or choose another file"
                ) from None


def _repair(descriptor: int, path: Path) -> None:
    """A last line without its end was being written when the run was killed: complete it, or take it away."""
    end = os.fstat(descriptor).st_size
    start = _last_line_start(descriptor, end)
    if start == end:
        return
    try:
        loads_object(os.pread(descriptor, end - start, start))
    except MalformedJSONError:
        os.ftruncate(descriptor, start)
    else:
        _append(descriptor, b"\n")  # no beginning of an object is an object: only the line's end is missing


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


def _append(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _lock(descriptor: int, path: Path) -> None:
    """Two runs on one file would answer everything twice. The system lets go of the lock when the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows: nobody is kept out
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise JournalError(f"{path}: another batch is writing it; wait for its end or choose another file") from None
