"""What a batch has submitted to a provider's batch interface: a file beside the journal, which every step is written to
before it is done. So nothing is submitted twice, whenever a run is killed.

The file has one line for each step, with the key of the provider's batch as `id`:

    {"id": KEY, "state": "intended", "provider", "model", "path", "headers", "lines": [ids], "generation", "at"}
    {"id": KEY, "state": "uploaded", "file": ID}
    {"id": KEY, "state": "sent", "at"}               the request that creates the batch is sent now
    {"id": KEY, "state": "submitted", "batch": ID}
    {"id": KEY, "state": "cancelled"}                the request that cancels it is sent now
    {"id": KEY, "state": "taken"}                    all results are in the journal; or "dropped": it was not created
    {"id": KEY, "state": "deleted"}                  the uploaded file
    {"id": TOKEN, "state": "named", "line": id, "way", "at"}     the server makes this answer in a window
    {"id": TOKEN, "state": "read", "line": id}       it is in the journal, or the server does not have it
    {"id": null, "state": "figures", "ways": …}      what went which way in one run
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ..providers.catalog.batches import BatchGroup
from ..providers.json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    integer,
    items,
    loads_object,
    mapping,
    string,
)
from .intake import WayFigures
from .line_file import LineFile
from .line_ids import LineIds
from .lines import LineId


@dataclass(slots=True)
class Submission:
    """One batch at a provider, from the intention to its end.

    key: its own key, which travels in its metadata or in the ids of its lines.
    provider: the provider's name.
    group: what its lines have in common.
    lines: the number of its lines.
    generation: how often its lines were in a batch before.
    at: when it was intended, in Unix seconds; later, when it was sent.
    position: where its intention begins in the file, in bytes.
    file: the id of the uploaded file, until it is deleted.
    sent: whether the request that creates it may have been sent.
    batch: the provider's id; None until it is known.
    cancelled: whether its cancellation was requested.
    """

    key: str
    provider: str
    group: BatchGroup
    lines: int
    generation: int
    at: float
    position: int
    file: str | None = None
    sent: bool = False
    batch: str | None = None
    cancelled: bool = False


@dataclass(slots=True)
class WindowAnswer:
    """An answer that a server makes in a window.

    token: with which it is read (`Call.resume_token`).
    way: the name of its way.
    at: when the server had named it, in Unix seconds.
    earlier: whether an earlier run has created it.
    """

    token: str
    way: str
    at: float
    earlier: bool = False


class Submissions:
    """The file, open for one run.

    open: key → submission that is not taken home.
    submitted: the ids of the lines in them.
    windows: line id → its answer in a window, which is not in the journal.
    leftover: key → (provider, file) of files that are to be deleted, of submissions that are taken home.
    ways: way → what went that way in earlier runs.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises `JournalError`."""
        self._begin(path)
        self._file = LineFile(path, self._read)
        for submission in self.open.values():
            self.submitted.update((id, 0) for id in self.ids(submission))

    def _begin(self, path: Path) -> None:
        self.path: Path = path
        self.open: dict[str, Submission] = {}
        self.submitted: LineIds = LineIds()
        self.windows: dict[LineId, WindowAnswer] = {}
        self.leftover: dict[str, tuple[str, str]] = {}
        self.ways: dict[str, WayFigures] = {}
        self._figures: list[int] = []

    @classmethod
    def peek(cls, path: Path) -> Submissions:
        """Read the file as it is now, also while a run has it open. Raises `OSError`."""
        found = cls.__new__(cls)
        found._begin(path)
        with path.open("rb") as file:
            for line in file:
                with suppress(MalformedJSONError):  # a run writes this line now, or was killed
                    found._read(0, loads_object(line))
        return found

    def close(self) -> None:
        """Close the file. If nothing is under way any more, only the figures remain in it."""
        try:
            if not self.open and not self.leftover and not self.windows:
                self._file.keep_only(set(self._figures))
        finally:
            self._file.close()

    def ids(self, submission: Submission) -> list[LineId]:
        """Return the ids of a submission's lines, in its order."""
        found: list[LineId] = []
        for id in items(loads_object(self._file.line_at(submission.position)), "lines"):
            assert type(id) is str or type(id) is int, "it was written so"
            found.append(id)
        return found

    # --- steps ---

    def new_key(self) -> str:
        """Return a key that no other batch has."""
        return secrets.token_hex(8)

    def intend(self, key: str, provider: str, group: BatchGroup, ids: Sequence[LineId], generation: int) -> Submission:
        """Write an intention. It is on the disk when this returns. Raises `OSError`."""
        position, at = self._file.size, time.time()
        headers: list[JSON] = [[name, value] for name, value in group.headers]
        record: JSONObject = {
            "id": key, "state": "intended", "provider": provider, "model": group.model, "path": group.path,
            "headers": headers, "generation": generation, "at": at, "lines": [*ids],
        }  # fmt: skip
        self._file.append(record)
        self._file.sync()
        submission = Submission(key, provider, group, len(ids), generation, at, position)
        self.open[key] = submission
        self.submitted.update((id, 0) for id in ids)
        return submission

    def uploaded(self, submission: Submission, file: str) -> None:
        """Note the uploaded file. Raises `OSError`."""
        submission.file = file
        self._note(submission, "uploaded", file=file)

    def sending(self, submission: Submission) -> None:
        """Note that the batch is created now. It is on the disk when this returns. Raises `OSError`."""
        submission.sent, submission.at = True, time.time()
        self._note(submission, "sent", at=submission.at)
        self._file.sync()

    def created(self, submission: Submission, batch: str) -> None:
        """Note the provider's id. Raises `OSError`."""
        submission.batch = batch
        self._note(submission, "submitted", batch=batch)

    def cancelling(self, submission: Submission) -> None:
        """Note that the batch is cancelled now. Raises `OSError`."""
        submission.cancelled = True
        self._note(submission, "cancelled")

    def end(self, submission: Submission, ids: Sequence[LineId], *, taken: bool) -> None:
        """Note that the results are in the journal, or that there is no such batch. Raises `OSError`."""
        self._note(submission, "taken" if taken else "dropped")
        del self.open[submission.key]
        for id in ids:
            self.submitted.pop(id, None)
        if submission.file is not None:
            self.leftover[submission.key] = submission.provider, submission.file

    def deleted(self, key: str) -> None:
        """Note that an uploaded file is deleted. Raises `OSError`."""
        self._file.append({"id": key, "state": "deleted"})
        del self.leftover[key]

    def named(self, id: LineId, token: str, way: str) -> None:
        """Note the answer of a line in a window. `sync` waits until it is on the disk. Raises `OSError`."""
        answer = WindowAnswer(token, way, time.time())
        self._file.append({"id": token, "state": "named", "line": id, "way": way, "at": answer.at})
        self.windows[id] = answer

    def sync(self) -> None:
        """Wait until all steps are on the disk. Raises `OSError`."""
        self._file.sync()

    def forget(self, id: LineId) -> None:
        """Note that the answer of a line in a window is in the journal, or lost. Raises `OSError`."""
        answer = self.windows.pop(id, None)
        if answer is not None:
            self._file.append({"id": answer.token, "state": "read", "line": id})

    def note_figures(self, ways: Mapping[str, WayFigures]) -> None:
        """Write what went which way in this run, for the receipts of later runs. Raises `OSError`."""
        self._figures.append(self._file.size)
        figures: JSONObject = {name: asdict(way) for name, way in ways.items()}
        self._file.append({"id": None, "state": "figures", "ways": figures})

    def _note(self, submission: Submission, state: str, **members: JSON) -> None:
        self._file.append({"id": submission.key, "state": state, **members})

    # --- records of earlier runs ---

    def _read(self, position: int, record: JSONObject) -> str | None:
        key, state = string(record, "id"), string(record, "state")
        if state == "figures":
            self._figures.append(position)
            for name, figures in _figures(record):
                add_figures(self.ways, name, figures)
            return None
        if key is None:
            return "it has no key of a provider's batch"
        line = record.get("line")
        if type(line) is str or type(line) is int:
            if state == "named":
                self.windows[line] = WindowAnswer(key, string(record, "way") or "", _at(record), earlier=True)
            else:
                self.windows.pop(line, None)
            return None
        if state == "intended":
            headers = tuple((str(pair[0]), str(pair[1])) for pair in items(record, "headers") if type(pair) is list)
            group = BatchGroup(string(record, "model") or "", string(record, "path") or "", headers)
            provider, generation = string(record, "provider") or "", integer(record, "generation") or 0
            count = len(items(record, "lines"))
            self.open[key] = Submission(key, provider, group, count, generation, _at(record), position)
        elif state == "deleted":
            self.leftover.pop(key, None)
        elif (submission := self.open.get(key)) is not None:
            self._advance(submission, state, record)
        return None

    def _advance(self, submission: Submission, state: str | None, record: JSONObject) -> None:
        if state == "uploaded":
            submission.file = string(record, "file")
        elif state == "sent":
            submission.sent, submission.at = True, _at(record)
        elif state == "submitted":
            submission.batch = string(record, "batch")
        elif state == "cancelled":
            submission.cancelled = True
        elif state in ("taken", "dropped"):
            del self.open[submission.key]
            if submission.file is not None:
                self.leftover[submission.key] = submission.provider, submission.file


def add_figures(ways: dict[str, WayFigures], name: str, more: WayFigures) -> None:
    """Add what went one way."""
    way = ways.setdefault(name, WayFigures())
    way.lines += more.lines
    way.input_tokens += more.input_tokens
    way.output_tokens += more.output_tokens
    way.list_price += more.list_price
    way.paid += more.paid


def _figures(record: JSONObject) -> Iterator[tuple[str, WayFigures]]:
    ways = mapping(record, "ways")
    for name in ways:
        way = mapping(ways, name)
        counts = (integer(way, member) or 0 for member in ("lines", "input_tokens", "output_tokens"))
        prices = (_number(way.get(member)) for member in ("list_price", "paid"))
        yield name, WayFigures(*counts, *prices)


def _at(record: JSONObject) -> float:
    return _number(record.get("at"))


def _number(value: JSON) -> float:
    return float(value) if type(value) is int or type(value) is float else 0.0
