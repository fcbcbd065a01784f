"""The journal of a batch: a file of answers and a file of failures.

A later run continues from these files, however the earlier run ended. It skips lines whose id is in the answers. It
also skips lines whose id is in the failures, unless it is started with `retry_failed`. Each line is written once. If a
run is killed, only the last line of a file can be incomplete; it is repaired when the file is opened again.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from ..providers.json.json_values import JSON, JSONObject, mapping, string
from .budget import BatchBudget
from .line_file import JournalError, LineFile
from .line_ids import LineIds
from .lines import FORM_MEMBERS, LineId

INVALID_LINE = "invalid_line"
"""The category of a line that was not sent. Every run checks such a line again, since this costs nothing."""

NOT_FAILED = (INVALID_LINE, "cancelled")
"""Categories of failures whose lines a later run does not skip. A cancelled call does not mean that its line fails."""


UNRECORDED = "unrecorded"
"""The category of a line of the failures that has US dollars which no other record has: its member `unrecorded_usd`.

Such are those of calls that were cancelled, and what workers on a cluster were given and have not shown. The last line
counts. It is written before workers are given anything, so that a run that is killed has spent no more than it says.
"""

UNRECORDED_USD = "unrecorded_usd"

NEGLIGIBLE = 1e-6
"""A smaller amount of US dollars is the result of rounding."""


def default_errors_path(answers: Path) -> Path:
    """Return the path of the failures' file: `answers.errors.jsonl` for `answers.jsonl`. Raises `JournalError`."""
    if not answers.name:
        raise JournalError(f"{answers} names no file, such as answers.jsonl")
    return answers.with_name(f"{answers.stem}.errors{answers.suffix or '.jsonl'}")


def submissions_path(answers: Path) -> Path:
    """Return the path of the file of what is in a provider's batches: `answers.batches.jsonl` for `answers.jsonl`."""
    return answers.with_name(f"{answers.stem}.batches{answers.suffix or '.jsonl'}")


class Records(Protocol):
    """What a batch needs of a journal. A batch whose records go elsewhere has another implementation than `Journal`.

    answers_path: the place of the answers, for messages.
    errors_path: the place of the failures, for messages.
    """

    answers_path: Path
    errors_path: Path

    @property
    def answered(self) -> Container[LineId]:
        """Ids of lines with an answer."""
        ...

    @property
    def failed(self) -> Container[LineId]:
        """Ids of lines that failed in earlier runs."""
        ...

    def record_answer(self, id: LineId, record: JSONObject) -> None:
        """Record an answer. Raises `OSError` or `JournalError`."""
        ...

    def record_failure(self, record: JSONObject) -> None:
        """Record a failure. Raises `OSError` or `JournalError`."""
        ...

    def leave_unpaid(self, id: LineId) -> None:
        """Note that the budget did not allow a line. It has no record, so a later run sends it."""
        ...


class Journal:
    """The file of answers and the file of failures, open for one run.

    budget: receives the records of earlier runs, whose cost it counts; None for no budget.

    answers_path: the path of the file of answers.
    errors_path: the file of failures.
    answered: ids of lines with an answer → where the record begins, in bytes, if an earlier run or `record_encoded`
        has written it.
    failed: ids of lines that failed in earlier runs and have no answer → where the last record begins.
    makers: the providers of all recorded answers, from the answers' member `provider`.

    Leaving `with Journal(path) as journal:` closes the files. After that, recording raises `JournalError`.
    """

    def __init__(self, answers: Path, errors: Path | None = None, *, budget: BatchBudget | None = None) -> None:
        self.answers_path = answers
        self.errors_path: Path = errors if errors is not None else default_errors_path(answers)
        self.answered: LineIds = LineIds()
        self.failed: LineIds = LineIds()
        self.makers: set[str] = set()
        self._budget = budget
        self._unrecorded = self._unrecorded_before = 0.0
        self._answers: LineFile | None = None
        self._errors: LineFile | None = None

    def __enter__(self) -> Journal:
        try:
            self._answers = LineFile(self.answers_path, self._read_answer)
            if self._is_one_file(self._answers):
                raise JournalError(f"{self.errors_path} is {self.answers_path}: answers and failures need two files")
            # It is made now and kept open: later, the name may lead to a file of somebody else.
            self._errors = LineFile(self.errors_path, self._read_failure)
            if self._budget is not None:
                self._budget.unrecorded = self._unrecorded
            self._unrecorded_before = self._unrecorded
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        path = self.answers_path
        try:
            answers, errors = self._opened(self._answers), self._opened(self._errors)
            answers.sync()
            path = self.errors_path
            if self._budget is not None and self._budget.unrecorded > self._unrecorded_before:
                self.note_unrecorded(self._budget.unrecorded)
            errors.sync()
            lost = [loss for file in (answers, errors) if (loss := file.loss())]
            self._clean_errors(errors)
        except OSError as error:
            raise JournalError(f"cannot write {path}: {error.strerror}") from None
        finally:
            self._close()
        if lost:
            raise JournalError("; ".join(lost))

    def record_answer(self, id: LineId, record: JSONObject) -> None:
        """Write an answer. Raises `OSError`, and `JournalError` after the journal was closed."""
        self._opened(self._answers).append(record)
        self.answered.add(id)

    def record_encoded(self, answers: Sequence[tuple[LineId, bytes]], failures: Sequence[bytes]) -> None:
        """Write many records at a time, each encoded by `line_file.encoded`. Raises as `record_answer` does."""
        if answers:
            file = self._opened(self._answers)
            position = file.size
            file.append_encoded([record for _, record in answers])
            self.answered.update(places(answers, position))
        if failures:
            self._opened(self._errors).append_encoded(failures)

    def record_failure(self, record: JSONObject) -> None:
        """Write a failure. Raises `OSError`, and `JournalError` after the journal was closed."""
        self._opened(self._errors).append(record)

    def note_unrecorded(self, dollars: float) -> None:
        """Write the US dollars that no record has, if they have changed: they are in the file when this returns.

        Raises `OSError`, and `JournalError` after the journal was closed.
        """
        amount = round(dollars, 9) if dollars >= NEGLIGIBLE else 0.0
        if amount != self._unrecorded:
            record: JSONObject = {"id": None, "error": {"category": UNRECORDED}, UNRECORDED_USD: amount}
            self._opened(self._errors).append(record)
            self._unrecorded = amount

    def leave_unpaid(self, id: LineId) -> None:
        """Write nothing: a later run sends the line."""

    def _opened(self, file: LineFile | None) -> LineFile:
        if file is None:
            raise JournalError(f"{self.answers_path} is not open: the journal's block was left, or never entered")
        return file

    def _close(self) -> None:
        files, self._answers, self._errors = (self._answers, self._errors), None, None
        for file in files:
            if file is not None:
                file.close()

    def _is_one_file(self, answers: LineFile) -> bool:
        """Return whether both paths lead to one file: by another spelling, a hard link or a symbolic link."""
        try:
            return os.path.samestat(os.fstat(answers.descriptor), self.errors_path.stat())
        except OSError:
            return False

    # --- records of earlier runs ---

    def _read_answer(self, position: int, record: JSONObject) -> str | None:
        id = line_id(record)
        if id is not None:
            self.answered[id] = position
            self.makers.add(string(record, "provider") or "")
            if self._budget is not None:
                self._budget.read_answer(record)
        return _prompt_reason(record) or (None if id is not None else "it has no id")

    def _read_failure(self, position: int, record: JSONObject) -> str | None:
        if _category(record) == UNRECORDED:
            amount = record.get(UNRECORDED_USD)
            if not (type(amount) is float or type(amount) is int) or not 0 <= amount < 1e300:
                return f"{UNRECORDED_USD!r} must be a number of US dollars"
            self._unrecorded = float(amount)
            return None
        id = line_id(record)
        if id is not None and id not in self.answered and _category(record) not in NOT_FAILED:
            self.failed[id] = position
            if self._budget is not None:
                self._budget.read_failure(id, record)
        return _prompt_reason(record) or (None if type(record.get("error")) is dict else "it has no error")

    def _clean_errors(self, errors: LineFile) -> None:
        """Remove failures that no longer count.

        These are all but the last failure of each id, failures of lines that have an answer by now, the records of
        earlier runs about lines that were not sent, and all but the last amount that no record has.
        """
        last: dict[LineId, int] = {}
        kept: set[int] = set()
        unrecorded: set[int] = set()
        count = 0
        for position, record in errors.records():
            id, category = line_id(record), _category(record)
            count += 1
            if category == UNRECORDED:
                unrecorded = {position} if record.get(UNRECORDED_USD) else set()
            elif category == INVALID_LINE:
                if position >= errors.start:
                    kept.add(position)
            elif id is not None and id not in self.answered and category not in NOT_FAILED:
                last[id] = position
        kept.update(last.values(), unrecorded)
        if count != len(kept) or not count:
            errors.keep_only(kept)


def places(records: Sequence[tuple[LineId, bytes]], position: int) -> Iterator[tuple[LineId, int]]:
    """Yield where each of the records begins that are written one after the other from this position."""
    for id, record in records:
        yield id, position
        position += len(record) + 1


def line_id(record: JSONObject) -> LineId | None:
    """Return the id of a record, or None if it has none that a line can have."""
    id: JSON = record.get("id")
    return id if type(id) is int or type(id) is str else None


def _category(record: JSONObject) -> str | None:
    return string(mapping(record, "error"), "category")


def _prompt_reason(record: JSONObject) -> str | None:
    """Return why the line belongs to a batch's input, or None if it does not."""
    named = next((name for name in FORM_MEMBERS if name in record), None)
    return f"it has {named!r}, so it is a prompt" if named is not None else None
