"""What a batch has submitted to a provider's batch interface: a file beside the journal, which every step is written to
before it is done. So nothing is submitted twice, whenever a run is killed.

The file has one line for each step, with the key of the provider's batch as `id`:

    {"id": KEY, "state": "intended", "provider", "profile", "url", "model", "path", "headers", "lines": [ids],
                                    "generation", "at"}
    {"id": KEY, "state": "uploaded", "file": ID}
    {"id": KEY, "state": "sent", "at"}               the request that creates the batch is sent now
    {"id": KEY, "state": "submitted", "batch": ID}
    {"id": KEY, "state": "cancelled"}                the request that cancels it is sent now
    {"id": KEY, "state": "taken"}                    all results are in the journal; or "dropped": it was not created
    {"id": KEY, "state": "deleted"}                  the uploaded file
    {"id": TOKEN, "state": "named", "line": id, "way", "at"}     the server makes this answer in a window
    {"id": TOKEN, "state": "read", "line": id}       it is in the journal, or the server does not have it
    {"id": null, "state": "figures", "ways": …}      what went which way in one run

`note` writes a step. This run and the next read it with one method, so the next run knows what this one did.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .. import Provider
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
from .lines import LineId

STATES = frozenset(
    {"intended", "uploaded", "sent", "submitted", "cancelled", "taken", "dropped", "deleted", "named", "read"}
)

LATEST = 1e11
"""The latest time that is read from a file, in Unix seconds: the year 5138."""

MOST = 1e18
"""More than any number that a run writes."""

FIGURES = tuple(WayFigures.__dataclass_fields__)


@dataclass(slots=True)
class Submission:
    """One batch at a provider, from the intention to its end.

    key: its own key, which travels in its metadata or in the ids of its lines.
    profile: the name of the provider's profile.
    url: the provider's base URL; empty if that may hold a secret.
    group: what its lines have in common.
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
    profile: str
    url: str
    group: BatchGroup
    generation: int
    lines: int = 0
    at: float = 0.0
    position: int = 0
    file: str | None = None
    sent: bool = False
    batch: str | None = None
    cancelled: bool = False


@dataclass(slots=True)
class WindowAnswer:
    """An answer that a server makes in a window.

    token: with which it is read (`Call.resume_token`).
    at: when the server had named it, in Unix seconds.
    earlier: whether another call has created it, such as one of an earlier run.
    failures: how often in a row it could not be read.
    """

    token: str
    way: str
    at: float
    earlier: bool
    failures: int = 0


class Submissions:
    """The file, open for one run.

    open: key → submission whose results are not taken.
    windows: line id → its answer in a window, which is not in the journal.
    leftover: key → (provider, file) of files that are to be deleted, of the other submissions.
    ways: way → what went that way in earlier runs.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises `JournalError`."""
        self._begin(path)
        self._file = LineFile(path, self._read)
        self._earlier = False

    def _begin(self, path: Path) -> None:
        self.path: Path = path
        self.open: dict[str, Submission] = {}
        self.windows: dict[LineId, WindowAnswer] = {}
        self.leftover: dict[str, tuple[str, str]] = {}
        self.ways: dict[str, WayFigures] = {}
        self._figures: list[int] = []
        self._earlier = True

    @classmethod
    def peek(cls, path: Path) -> Submissions:
        """Read the file as it is now, also while a run has it open. Raises `OSError`."""
        found = cls.__new__(cls)
        found._begin(path)
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is no regular file", str(path))  # a pipe would be waited for
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

    def ids(self, submission: Submission) -> Iterator[LineId]:
        """Yield the ids of a submission's lines, in its order."""
        for id in items(loads_object(self._file.line_at(submission.position)), "lines"):
            assert type(id) is str or type(id) is int, "it was written so"
            yield id

    # --- steps ---

    def intend(self, submission: Submission, ids: Sequence[LineId]) -> Submission:
        """Write an intention. It is on the disk when this returns. Returns it as it was written. Raises `OSError`."""
        group = submission.group
        self.note(
            submission.key, "intended", sync=True, provider=submission.provider, profile=submission.profile,
            url=submission.url, model=group.model, path=group.path, headers=[[*pair] for pair in group.headers],
            generation=submission.generation, at=time.time(), lines=[*ids],
        )  # fmt: skip
        return self.open[submission.key]

    def note(self, key: str, state: str, *, sync: bool = False, **members: JSON) -> None:
        """Write a step of a batch or of an answer in a window. Raises `OSError`.

        sync: whether it is on the disk when this returns.
        """
        position, record = self._file.size, {"id": key, "state": state, **members}
        self._file.append(record)
        if sync:
            self._file.sync()
        self._read(position, record)

    def sync(self) -> None:
        """Wait until all steps are on the disk. Raises `OSError`."""
        self._file.sync()

    def forget(self, id: LineId) -> None:
        """Note that the answer of a line in a window is in the journal, or lost. Raises `OSError`."""
        if id in self.windows:
            self.note(self.windows[id].token, "read", line=id)

    def note_figures(self, ways: JSONObject) -> None:
        """Add what went which way in this run, and write it for the receipts of later runs. Raises `OSError`."""
        record: JSONObject = {"id": None, "state": "figures", "ways": ways}
        self._read(self._file.size, record)
        self._file.append(record)

    # --- what a step says ---

    def _read(self, position: int, record: JSONObject) -> str | None:
        key, state, line = string(record, "id"), string(record, "state"), record.get("line")
        if state == "figures":
            self._figures.append(position)
            ways = mapping(record, "ways")
            for name in ways:
                way, more = self.ways.setdefault(name, WayFigures()), mapping(ways, name)
                for member in FIGURES:
                    if more.get(member) is not None:
                        setattr(way, member, (getattr(way, member) or 0) + _number(more.get(member)))
        elif key is None or state not in STATES:
            return "it is no step of a provider's batch"
        elif type(line) is str or type(line) is int:
            self.windows.pop(line, None)
            if state == "named":
                self.windows[line] = WindowAnswer(key, string(record, "way") or "", _at(record), self._earlier)
        elif state == "intended":
            headers = tuple((str(pair[0]), str(pair[1])) for pair in _pairs(record))
            if len(headers) < len(items(record, "headers")) or any(
                type(id) is not str and type(id) is not int for id in items(record, "lines")
            ):
                return "it is no intention of a batch"
            group = BatchGroup(string(record, "model") or "", string(record, "path") or "", headers)
            provider, profile, url = (string(record, member) or "" for member in ("provider", "profile", "url"))
            generation, count = integer(record, "generation") or 0, len(items(record, "lines"))
            made = Submission(key, provider, profile, url, group, generation, count, _at(record), position)
            self.open[key] = made
        elif state == "deleted":
            self.leftover.pop(key, None)
        elif key in self.open:
            self._advance(self.open[key], state, record)
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


def shown_url(provider: Provider) -> str:
    """Return a provider's base URL; empty if its query or its user may be a secret."""
    return "" if "?" in provider.base_url or "@" in provider.base_url else provider.base_url


def _at(record: JSONObject) -> float:
    return min(max(0.0, float(_number(record.get("at")))), LATEST)


def _number(value: JSON) -> float:
    """Return a number of a file; 0 for another value and for a number that no run can have written."""
    return value if (type(value) is int or type(value) is float) and abs(value) < MOST else 0


def _pairs(record: JSONObject) -> list[list[JSON]]:
    return [pair for pair in items(record, "headers") if type(pair) is list and [*map(type, pair)] == [str, str]]
