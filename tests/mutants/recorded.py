"""The file with the recordings of the tests: one line of JSON for each test file, appended as soon as it is known.

Must not know pytest or coverage.py. The file's name contains the hash of the package's sources, and each row the hash
of its test file. A row stays valid until one of the two changes, however often the tool is started or interrupted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """The recording of one test file.

    file: path below the root.
    digest: hash of the file.
    seconds: test → duration in seconds, in the order of the run.
    unusable: tests that did not pass.
    lines: path of a source → line → numbers of the tests that ran it.
    """

    file: str
    digest: str
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    unusable: list[str] = field(default_factory=list[str])
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict[str, dict[str, list[int]]])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_of_folders(root: Path, folders: Iterable[str]) -> str:
    """Return one hash of all Python files below the folders and of their paths."""
    whole = hashlib.sha256()
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            if path.is_file():
                whole.update(f"{path.relative_to(root).as_posix()} {digest(path)}\n".encode())
    return whole.hexdigest()


def append(target: Path, row: Row) -> None:
    """Append a row with one write, so that two processes can append to the same file."""
    data = json.dumps(dataclasses.asdict(row)).encode() + b"\n"
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def add_empty_rows(root: Path, recording: Path, files: Iterable[str]) -> None:
    """Append an empty row for each of these files that has none: they were run and contain no selected test.

    root: the tree in which they were run.
    """
    rows = valid_rows(root, recording)
    for file in files:
        if file not in rows:
            append(recording, Row(file, digest(root / file)))


def valid_rows(root: Path, recording: Path) -> dict[str, Row]:
    """Return test file → its last row, for files that have not changed since. Truncated lines are skipped."""
    rows: dict[str, Row] = {}
    if recording.exists():
        for line in recording.read_bytes().splitlines():
            try:
                row = Row(**json.loads(line))
            except ValueError:
                continue
            path = root / row.file
            if path.exists() and digest(path) == row.digest:
                rows[row.file] = row
    return rows
