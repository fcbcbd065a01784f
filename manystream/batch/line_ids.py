"""The ids of a batch's lines, with a number for each: 100,000 in memory, and on disk where there are more.

A batch of ten million lines therefore needs no more memory than one of a hundred thousand.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, MutableMapping

from .lines import LineId

MOST_IN_MEMORY = 100_000
"""More ids than this are kept in a temporary database."""

CACHE_KIBIBYTES = 16 * 1024
"""The part of the database that is in memory."""


class LineIds(MutableMapping[LineId, int]):
    """Line id → number. Its use is that of a dict; `add` makes it a set.

    The database is a temporary file of SQLite, which nothing else can open and which goes when this object does.
    """

    def __init__(self) -> None:
        self._few: dict[LineId, int] = {}
        self._database: sqlite3.Connection | None = None

    def add(self, id: LineId) -> None:
        """Add an id whose number is of no interest."""
        self[id] = 0

    def __getitem__(self, id: LineId) -> int:
        if self._database is None:
            return self._few[id]
        found = self._database.execute("SELECT number FROM ids WHERE id = ?", (_key(id),)).fetchone()
        if found is None:
            raise KeyError(id)
        return int(found[0])

    def __contains__(self, id: object) -> bool:
        if self._database is None:
            return id in self._few
        return isinstance(id, str | int) and self.get(id) is not None

    def __setitem__(self, id: LineId, number: int) -> None:
        if self._database is not None:
            self._database.execute("INSERT OR REPLACE INTO ids VALUES (?, ?)", (_key(id), number))
            return
        self._few[id] = number
        if len(self._few) > MOST_IN_MEMORY:
            self._move()

    def __delitem__(self, id: LineId) -> None:
        if self._database is None:
            del self._few[id]
        elif not self._database.execute("DELETE FROM ids WHERE id = ?", (_key(id),)).rowcount:
            raise KeyError(id)

    def __iter__(self) -> Iterator[LineId]:
        if self._database is None:
            yield from self._few
            return
        for (key,) in self._database.execute("SELECT id FROM ids"):
            escaped = type(key) is str and key.startswith("\0")
            yield key if not escaped else key[1:] if key.startswith("\0\0") else int(key[1:])

    def __len__(self) -> int:
        if self._database is None:
            return len(self._few)
        return int(self._database.execute("SELECT count(*) FROM ids").fetchone()[0])

    def _move(self) -> None:
        """Move all ids to disk."""
        # The file without a name is temporary. One transaction that never ends: nobody reads the file after a crash.
        database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        database.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("CREATE TABLE ids (id PRIMARY KEY, number INTEGER) WITHOUT ROWID")
        database.execute("BEGIN")
        database.executemany("INSERT INTO ids VALUES (?, ?)", ((_key(id), n) for id, n in self._few.items()))
        self._database = database
        self._few = {}


def _key(id: LineId) -> LineId:
    """Return the id as SQLite can hold it: a whole number of more than 64 bits is a text with a NUL before it."""
    if type(id) is str:
        return f"\0{id}" if id.startswith("\0") else id
    return id if -(2**63) <= int(id) < 2**63 else f"\0{id}"
