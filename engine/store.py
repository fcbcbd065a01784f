"""Conversations on disk: one SQLite file, append-only rows `kind, content, data_json`.

Knows SQLite (the standard library's). Must not know what a row means: `providers.rows` does.

- The API is plain and blocking; each call is a few file operations. Where a disk may be slow, call it through
  `trio.to_thread.run_sync`: a store may be used from any thread, one call at a time.
- One message is one transaction: a writer that is killed, at whatever moment, loses at most the message it was
  writing, and never leaves a part of one.
- The journal is a write-ahead log (WAL): any number of processes read while one writes. Writers wait for each other.
- `synchronous=NORMAL`: a commit is safe from a killed process; a power cut may take the last commits, and harms
  nothing before them. With `durable=True` (FULL) each message is on the disk when `append` returns.
- No connection is carried through a fork: it is closed before, and both processes open their own when they need it.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..providers.conversation import Conversation
from ..providers.messages import Message
from ..providers.rows import Row, rows_from_message

SCHEMA_VERSION = 1
APPLICATION_ID = 0x6D73_7472
"""What SQLite keeps in a file's head to tell whose it is: `mstr`."""

BUSY_SECONDS = 30.0
"""How long a call waits for another process's write."""

BUSY_PAUSE = 0.01

SCHEMA = f"""
CREATE TABLE conversations (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    parent TEXT REFERENCES conversations (id),
    parent_messages INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE rows (
    conversation TEXT NOT NULL REFERENCES conversations (id),
    message INTEGER NOT NULL,
    part INTEGER NOT NULL,
    kind TEXT NOT NULL,
    content TEXT,
    data_json TEXT,
    PRIMARY KEY (conversation, message, part)
) WITHOUT ROWID;
CREATE TRIGGER rows_are_kept BEFORE DELETE ON rows BEGIN SELECT RAISE (ABORT, 'rows are append-only'); END;
CREATE TRIGGER rows_stay BEFORE UPDATE ON rows BEGIN SELECT RAISE (ABORT, 'rows are append-only'); END;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
"""`message` counts a conversation's messages from 0, those of its parent included; `part` the rows of one message. A
fork shares its parent's first `parent_messages` messages, which never change."""


class StoreError(Exception):
    """The file cannot be used, or holds no such conversation. The message names the file and what to do."""


@dataclass(slots=True, frozen=True)
class StoredConversation:
    """A conversation as `list_conversations` tells it.

    created: Unix seconds. messages: how many, those before a fork included. parent: what it was forked from.
    """

    id: str
    title: str
    created: float
    messages: int
    parent: str | None


class ConversationStore:
    """Conversations in one file, which is made where there is none; `with` closes it. Raises `StoreError`."""

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = False) -> None:
        self.path: Path = Path(path)
        if str(path) == ":memory:":
            raise StoreError("a store needs a file: ':memory:' would be gone after the first fork")
        self._durable = durable
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        _stores.add(self)
        with self._use():
            pass

    def __repr__(self) -> str:
        return f"<ConversationStore {str(self.path)!r}{', closed' if self._closed else ''}>"

    def __enter__(self) -> ConversationStore:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. May be done more than once."""
        with self._lock:
            self._closed = True
            self._disconnect()

    # --- writing ---

    def create(self, title: str = "") -> str:
        """A new conversation; returns its id."""
        with self._write() as connection:
            return _insert(connection, title)

    def append(self, conversation: str, messages: Message | Iterable[Message]) -> None:
        """Append a message, or several: each in a transaction of its own, all of its rows or none."""
        for message in [messages] if isinstance(messages, Message) else messages:
            self._append(conversation, rows_from_message(message))

    def save(self, conversation: Conversation, title: str = "") -> str:
        """A new conversation with these messages; returns its id."""
        stored = self.create(title)
        self.append(stored, conversation.messages)
        return stored

    def fork(self, conversation: str, *, messages: int | None = None, title: str = "") -> str:
        """A new conversation that goes on from the first `messages` messages (default: all); returns its id. Nothing is
        copied. What is appended to either later, the other does not see."""
        with self._write() as connection:
            count = _count(connection, self._find(connection, conversation))
            kept = count if messages is None else messages
            if not 0 <= kept <= count:
                raise StoreError(f"conversation {conversation!r} has {count} messages: it cannot be forked at {kept}")
            return _insert(connection, title, conversation, kept)

    def _append(self, conversation: str, rows: Iterable[Row]) -> None:
        with self._write() as connection:
            message = _count(connection, self._find(connection, conversation))
            values = [
                (conversation, message, part, row.kind, row.content, row.data_json) for part, row in enumerate(rows)
            ]
            try:
                connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", values)
            except UnicodeEncodeError as error:
                raise StoreError(f"the message cannot be saved, for its text holds a lone surrogate: {error}") from None

    # --- reading ---

    def restore(self, conversation: str) -> Conversation:
        """The conversation as it was saved; of the pairs that `complete_tool` returned for one answer, only the last.
        Raises `RowError` for rows that somebody else wrote and that cannot be read."""
        return Conversation.from_rows(self.rows(conversation), strict=False)

    def rows(self, conversation: str) -> list[Row]:
        """All rows, in order, those before a fork included."""
        with self._read() as connection:
            found: list[list[Row]] = []
            stored: tuple[str, str | None, int] | None = self._find(connection, conversation)
            limit: int | None = None
            while stored is not None:
                id, parent, kept = stored
                query = "SELECT kind, content, data_json FROM rows WHERE conversation = ? AND message < ?"
                few = _NO_LIMIT if limit is None else limit
                found.append(
                    [Row(*row) for row in connection.execute(f"{query} ORDER BY message, part", (id, few)).fetchall()]
                )
                limit = kept if limit is None else min(limit, kept)
                stored = self._find(connection, parent) if parent is not None else None
            return [row for rows in reversed(found) for row in rows]

    def list_conversations(self) -> list[StoredConversation]:
        """All conversations, the newest first."""
        query = """
            SELECT id, title, created, MAX(parent_messages, COALESCE(
                (SELECT MAX(message) + 1 FROM rows WHERE conversation = id), 0)), parent
            FROM conversations ORDER BY created DESC, id
        """
        with self._read() as connection:
            return [StoredConversation(*row) for row in connection.execute(query).fetchall()]

    def _find(self, connection: sqlite3.Connection, conversation: str) -> tuple[str, str | None, int]:
        query = "SELECT id, parent, parent_messages FROM conversations WHERE id = ?"
        found: tuple[str, str | None, int] | None = connection.execute(query, (conversation,)).fetchone()
        if found is None:
            raise StoreError(f"{self.path} holds no conversation {conversation!r}")
        return found

    # --- the connection ---

    @contextmanager
    def _use(self) -> Generator[sqlite3.Connection]:
        """The connection, for one call alone."""
        with self._lock:
            if self._closed:
                raise StoreError(f"the store {self.path} is closed")
            try:
                if self._connection is None:
                    self._connection = self._connect()
                yield self._connection
            except sqlite3.Error as error:
                raise StoreError(f"{self.path}: {error}") from error

    @contextmanager
    def _read(self) -> Generator[sqlite3.Connection]:
        """One state of the file for several queries, whatever is written meanwhile."""
        with self._use() as connection, _transaction(connection, "BEGIN"):
            yield connection

    @contextmanager
    def _write(self) -> Generator[sqlite3.Connection]:
        with self._use() as connection, _transaction(connection, "BEGIN IMMEDIATE"):
            yield connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _use_write_ahead_log(connection)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            connection.execute("PRAGMA foreign_keys = ON")
            if _is_empty(connection):
                with _transaction(connection, "BEGIN IMMEDIATE"):
                    _make_schema(connection)
            self._check_schema(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        version = _number(connection, "user_version")
        if _number(connection, "application_id") != APPLICATION_ID:
            raise StoreError(f"{self.path} is a database of another program; give the store a file of its own")
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} was written by a newer manystream (schema {version}; this one knows {SCHEMA_VERSION}):"
                " use that version, or another file"
            )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- forks ---

    def before_process_fork(self) -> None:
        """Called by the interpreter before it forks."""
        self._lock.acquire()
        self._disconnect()

    def after_process_fork(self) -> None:
        """Called in both processes after it."""
        self._lock.release()


_NO_LIMIT = 2**62

_stores: weakref.WeakSet[ConversationStore] = weakref.WeakSet()
_forking: list[ConversationStore] = []
_fork = threading.Lock()


def _before_fork() -> None:
    _fork.acquire()
    _forking.extend(_stores)
    for store in _forking:
        store.before_process_fork()


def _after_fork() -> None:
    for store in _forking:
        store.after_process_fork()
    _forking.clear()
    _fork.release()


if hasattr(os, "register_at_fork"):
    # SQLite forbids a connection in two processes: even closing the copy may take the log from under the original.
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Generator[None]:
    connection.execute(begin)
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back where the disk is full
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the journal over. SQLite does not wait here for another process that is doing the same."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(BUSY_PAUSE)


def _insert(connection: sqlite3.Connection, title: str, parent: str | None = None, kept: int = 0) -> str:
    id = secrets.token_urlsafe(16)
    connection.execute("INSERT INTO conversations VALUES (?, ?, ?, ?, ?)", (id, title, time.time(), parent, kept))
    return id


def _count(connection: sqlite3.Connection, stored: tuple[str, str | None, int]) -> int:
    id, _, kept = stored
    query = "SELECT MAX(message) + 1 FROM rows WHERE conversation = ?"
    return max(kept, connection.execute(query, (id,)).fetchone()[0] or 0)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    value: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return value


def _is_empty(connection: sqlite3.Connection) -> bool:
    tables: int = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
    return not tables and not _number(connection, "user_version")


def _make_schema(connection: sqlite3.Connection) -> None:
    if _is_empty(connection):  # nobody else was quicker
        for statement in _statements(SCHEMA):
            connection.execute(statement)


def _statements(script: str) -> Iterator[str]:
    """The statements of a script: `executescript` would commit the transaction that they belong to."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
