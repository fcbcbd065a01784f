"""The keeper of answers: one journal for many actors. It knows what was answered, and returns it on a second request.

A block of a data set may be asked twice: Ray repeats a block whose actor has died, and a program may run again. So an
actor first looks its ids up, and records every answer before it returns a block. The first record of an id counts.
Recording the same answer again does no harm, so a call whose reply was lost can be repeated.

The journal is that of `manystream batch`: one file of answers and one of failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..batch.journal import Journal, places
from ..batch.line_file import LockedError
from ..batch.line_ids import LineIds
from ..batch.lines import LineId
from .exchange import Answer

LOCK_SECONDS = 10.0
"""A journal that another process has open is tried as long as this. Ray needs a moment to end the keeper of a program
that was killed."""

LOCK_EVERY_SECONDS = 0.1


class AnswerKeeper(Journal):
    """An open journal whose records can be read again. It is not safe for threads. Raises `JournalError`.

    path: the file of answers. The failures go to another file beside it, as in a batch.
    retry_failed: whether ids are asked again that failed in earlier runs.
    sleep: waits so many seconds, while another process has the journal open.
    """

    def __init__(self, path: str, *, retry_failed: bool = False, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(Path(path))
        waited = 0.0
        while True:
            try:
                self.__enter__()
                break
            except LockedError:
                if waited >= LOCK_SECONDS:
                    raise
            sleep(LOCK_EVERY_SECONDS)
            waited += LOCK_EVERY_SECONDS
        if retry_failed:
            self.failed: LineIds = LineIds()

    def lookup(self, ids: Sequence[LineId]) -> dict[LineId, bytes]:
        """Return id → record for those ids that were answered or have failed. Raises `OSError`."""
        found: dict[LineId, bytes] = {}
        for id in ids:
            for ids_of, file in ((self.answered, self._answers), (self.failed, self._errors)):
                position = ids_of.get(id)
                if position is not None and id not in found:
                    found[id] = self._opened(file).line_at(position)
        return found

    def record(self, answers: Sequence[Answer]) -> dict[LineId, bytes]:
        """Write the records of ids that have none yet. Raises `OSError` and `JournalError`.

        Returns id → the record that counts, for the other ids.
        """
        first: dict[LineId, Answer] = {}
        late: list[LineId] = []
        for answer in answers:
            if answer.id in first or answer.id in self.answered or answer.id in self.failed:
                late.append(answer.id)
            else:
                first[answer.id] = answer
        good = [(answer.id, answer.record) for answer in first.values() if not answer.failed]
        bad = [(answer.id, answer.record) for answer in first.values() if answer.failed]
        self.record_encoded(good, ())
        if bad:
            position = self._opened(self._errors).size
            self.record_encoded((), [record for _, record in bad])
            self.failed.update(places(bad, position))
        return self.lookup(late)

    def close(self) -> None:
        """Close the files. Recording raises `JournalError` after this."""
        self.__exit__(None, None, None)
