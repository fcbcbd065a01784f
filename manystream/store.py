"""Conversations on disk: one SQLite file with append-only rows `kind, content, data_json`.

- The API is blocking; each call is a few file operations. On a slow disk, call it through `trio.to_thread.run_sync`: a
  store may be used from any thread, and runs one call at a time.
- One message is one transaction. A process that is killed loses at most the message it was writing, and never leaves a
  part of a message in the file.
- The journal is a write-ahead log (WAL). Any number of processes can read while one writes. Writers wait for each
  other.
- With `synchronous=NORMAL` a killed process loses no committed message. A power failure may lose the last commits, but
  damages nothing before them. With `durable=True` (`synchronous=FULL`) each message is on the disk when `append`
  returns.
- No connection is used across a fork of the process. It is closed before the fork, and each process opens its own when
  it needs one.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeGuard, TypeVar

from . import Conversation, ManystreamError, Message
from .engine.observe import private_file
from .engine.request.value_rules import PATH
from .providers.json.json_values import strict_loads
from .providers.model.rows import Row as Row
from .providers.model.rows import RowError as RowError
from .providers.model.rows import message_from_row as message_from_row
from .providers.model.rows import rows_from_message as rows_from_message
from .providers.model.rules import check_arguments, check_iterable, flag, instance, optional, text

Result = TypeVar("Result")
Work: TypeAlias = Callable[[sqlite3.Connection], Result]
"""A function that runs in one transaction. It may run again after a rollback."""

HALF = "\\ud"
"""How the escape of half a surrogate pair begins."""

ARGUMENTS = {
    "path": PATH,
    "durable": flag(),
    "title": text(),
    "conversation": text("the id of a conversation", forms={Conversation: "use the id that `save` returned"}),
    "messages": optional(instance(int, must="a whole number")),
}

SCHEMA_VERSION = 1
APPLICATION_ID = 0x6D73_7472
"""The id of this program in the file's SQLite header: `mstr`."""

BUSY_SECONDS = 30.0
"""The longest time that a call waits for another process's write, in seconds."""

BUSY_PAUSE = 0.01
"""Seconds between two tries. SQLite's own wait is not used, because Ctrl-C would take effect only after it."""

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
"""The statements that make the tables.

conversations.parent_messages: the number of messages at the start of the parent that belong to this conversation, too.
    They never change.
rows.message: the message's index in its conversation, from 0. The parent's messages are counted, too.
rows.part: the row's index in its message, from 0.
"""


class StoreError(ManystreamError):
    """The file cannot be used, a conversation is not in it, or a message cannot be saved."""


@dataclass(slots=True, frozen=True)
class StoredConversation:
    """A conversation as `list_conversations` returns it.

    id: the id that `create`, `save` or `fork` returned.
    title: its title, may be empty.
    created: when it was made, in Unix seconds.
    messages: the number of its messages, those before a fork included.
    parent: the id of the conversation that it was forked from, or None.
    """

    id: str
    title: str
    created: float
    messages: int
    parent: str | None


@dataclass(slots=True, frozen=True)
class _Stored:
    """A row of the table `conversations`.

    id: the conversation's id.
    parent: the id of the conversation that it was forked from, or None.
    kept: the number of the parent's messages that it begins with.
    """

    id: str
    parent: str | None
    kept: int


class ConversationStore:
    """Conversations in one SQLite file.

    path: the file. It is made if it does not exist.
    durable: whether each message is on the disk when `append` returns, so that a power failure cannot lose it.

    Leaving `with ConversationStore(path) as store:` closes the file. All methods raise `StoreError`, and
    `InvalidRequestError` for an argument of another type.
    """

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = False) -> None:
        check_arguments(ARGUMENTS, path=path, durable=durable)
        self.path: Path = Path(path)
        if str(path) == ":memory:":
            raise StoreError("a store needs a file: ':memory:' would be gone after the first fork")
        self._durable = durable
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        _stores.add(self)
        self._read(lambda connection: None)

    def __repr__(self) -> str:
        return f"<ConversationStore {str(self.path)!r}{', closed' if self._closed else ''}>"

    def __enter__(self) -> ConversationStore:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        with self._lock:
            self._closed = True
            self._disconnect()

    # --- writing ---

    def create(self, title: str = "") -> str:
        """Make an empty conversation and return its id."""
        check_arguments(ARGUMENTS, title=title)
        return self._write(lambda connection: _insert(connection, title))

    def append(self, conversation: str, messages: Message | Iterable[Message]) -> None:
        """Append one message or several. Each message is written in one transaction, with all of its rows or none."""
        check_arguments(ARGUMENTS, conversation=conversation)
        given = [messages] if isinstance(messages, Message) else messages
        check_iterable(given, "messages", "a Message or several")
        for message in given:
            try:
                rows = rows_from_message(message)
                for row in rows:
                    if row.data_json is not None and HALF in row.data_json:
                        strict_loads(row.data_json)  # it refuses half a pair, which would not be restored as it was
            except (TypeError, ValueError, RecursionError) as error:  # a value that JSON cannot hold
                raise StoreError(f"the message cannot be saved: {error}") from None
            self._append(conversation, rows)

    def save(self, conversation: Conversation, title: str = "") -> str:
        """Make a conversation with the messages of `conversation`, and return its id."""
        instance(Conversation).check(conversation, "conversation")
        stored = self.create(title)
        self.append(stored, conversation.messages)
        return stored

    def fork(self, conversation: str, *, messages: int | None = None, title: str = "") -> str:
        """Make a conversation that begins with messages of another, and return its id.

        conversation: the id of the other conversation.
        messages: how many of its first messages to share; None shares all.
        title: the title of the new conversation.

        No message is copied. Messages that are appended later to either conversation do not appear in the other.
        """

        check_arguments(ARGUMENTS, conversation=conversation, messages=messages, title=title)

        def write(connection: sqlite3.Connection) -> str:
            count = self._count(connection, self._find(connection, conversation))
            kept = count if messages is None else messages
            if not 0 <= kept <= count:
                raise StoreError(f"conversation {conversation!r} has {count} messages: it cannot be forked at {kept}")
            return _insert(connection, title, conversation, kept)

        return self._write(write)

    def _append(self, conversation: str, rows: list[Row]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            message = self._count(connection, self._find(connection, conversation))
            values = [
                (conversation, message, part, row.kind, row.content, row.data_json) for part, row in enumerate(rows)
            ]
            connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", values)

        self._write(write)

    # --- reading ---

    def restore(self, conversation: str) -> Conversation:
        """Return a saved conversation.

        Where `complete_tool` returned several pairs of messages for one answer, only the last pair is restored.
        Raises `RowError` for rows of another program that cannot be read.
        """
        return Conversation.from_rows(self.rows(conversation), strict=False)

    def rows(self, conversation: str) -> list[Row]:
        """Return all rows of a conversation in order, those before a fork included."""
        check_arguments(ARGUMENTS, conversation=conversation)

        def read(connection: sqlite3.Connection) -> list[Row]:
            found: list[list[Row]] = []
            seen: set[str] = set()
            stored: _Stored | None = self._find(connection, conversation)
            limit: int | None = None
            while stored is not None:
                if stored.id in seen:
                    raise self._damaged(f"conversation {stored.id!r} is forked from itself")
                seen.add(stored.id)
                found.append(self._own_rows(connection, stored, limit))
                limit = stored.kept if limit is None else min(limit, stored.kept)
                stored = self._find(connection, stored.parent) if stored.parent is not None else None
            return [row for rows in reversed(found) for row in rows]

        return self._read(read)

    def list_conversations(self) -> list[StoredConversation]:
        """Return all conversations, the newest first."""
        query = """
            SELECT id, title, created, MAX(parent_messages, COALESCE(
                (SELECT MAX(message) + 1 FROM rows WHERE conversation = id), 0)), parent
            FROM conversations ORDER BY created DESC, id
        """
        found: list[tuple[object, ...]] = self._read(lambda connection: connection.execute(query).fetchall())
        return [self._listed(*row) for row in found]

    def _own_rows(self, connection: sqlite3.Connection, stored: _Stored, limit: int | None) -> list[Row]:
        """Return the rows of a conversation's first `limit` messages, without those before its fork."""
        query = "SELECT kind, content, data_json FROM rows WHERE conversation = ? AND message < ?"
        bounds = (stored.id, _NO_LIMIT if limit is None else limit)
        found: list[tuple[object, ...]] = connection.execute(f"{query} ORDER BY message, part", bounds).fetchall()
        return [self._row(*row) for row in found]

    def _find(self, connection: sqlite3.Connection, conversation: str) -> _Stored:
        query = "SELECT id, parent, parent_messages FROM conversations WHERE id = ?"
        found: tuple[object, ...] | None = connection.execute(query, (conversation,)).fetchone()
        if found is None:
            raise StoreError(f"{self.path} holds no conversation {conversation!r}")
        return self._stored(*found)

    def _count(self, connection: sqlite3.Connection, stored: _Stored) -> int:
        query = "SELECT COALESCE(MAX(message) + 1, 0) FROM rows WHERE conversation = ?"
        count: object = connection.execute(query, (stored.id,)).fetchone()[0]
        if type(count) is not int:
            raise self._damaged("a message's number is not a whole number")
        return max(stored.kept, count)

    # --- checks of types: the columns of a damaged file can hold values of any type ---

    def _stored(self, id: object, parent: object, kept: object) -> _Stored:
        if type(id) is str and _is_text(parent) and type(kept) is int:
            return _Stored(id, parent, kept)
        raise self._damaged("a conversation's row holds values of other types")

    def _listed(
        self, id: object, title: object, created: object, messages: object, parent: object
    ) -> StoredConversation:
        place = self._stored(id, parent, messages)
        if type(title) is str and type(created) is float:
            return StoredConversation(place.id, title, created, place.kept, place.parent)
        raise self._damaged("a conversation's row holds values of other types")

    def _row(self, kind: object, content: object, data_json: object) -> Row:
        if type(kind) is str and _is_text(content) and _is_text(data_json):
            return Row(kind, content, data_json)
        raise self._damaged("a message's row holds values of other types")

    def _damaged(self, what: str) -> StoreError:
        return StoreError(f"{self.path} is damaged: {what}; restore the file from a copy")

    # --- the connection ---

    def _read(self, work: Work[Result]) -> Result:
        """Run several queries on one state of the file. Writes of other processes do not change it meanwhile."""
        return self._run("BEGIN", work)

    def _write(self, work: Work[Result]) -> Result:
        return self._run("BEGIN IMMEDIATE", work)

    def _run(self, begin: str, work: Work[Result]) -> Result:
        """Run `work` in a transaction, one call at a time. Try again while another process holds the file's lock.

        This uses no context manager that is written as a generator: Ctrl-C between its two halves would leave the lock
        and the transaction open.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        with self._lock:
            while True:
                if self._closed:
                    raise StoreError(f"the store {self.path} is closed")
                try:
                    if self._connection is None:
                        self._connection = self._connect()
                    return _in_transaction(self._connection, begin, work)
                except sqlite3.Error as error:
                    if not _is_busy(error) or time.monotonic() > deadline:
                        raise StoreError(f"{self.path}: {error}") from error
                except UnicodeDecodeError as error:  # its `object` holds the damaged bytes
                    raise self._damaged(ascii(error.object)) from None
                except UnicodeEncodeError as error:
                    raise StoreError(f"a text with a lone surrogate cannot be saved or looked up: {error}") from None
                time.sleep(BUSY_PAUSE)

    def _connect(self) -> sqlite3.Connection:
        with _creating:
            try:
                private_file.create_missing(self.path)  # SQLite gives its log the mode of the file
            except OSError as error:
                raise StoreError(f"{self.path}: unable to open database file: {error.strerror}") from None
        self._check_untouched()
        connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            if _is_empty(connection):
                # Before there is a log: so the file itself shows from the beginning that it is a store.
                _in_transaction(connection, "BEGIN IMMEDIATE", _make_schema)
            self._check_schema(connection)  # before anything changes: another file may have taken the name
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_untouched(self) -> None:
        """Raise `StoreError` for a database of another program, and change nothing. A file without tables may become a
        store, unless there is a log."""

        def is_foreign(connection: sqlite3.Connection, has_log: bool) -> bool:
            has_tables = has_log or not _is_empty(connection)
            return has_tables and _number(connection, "application_id") != APPLICATION_ID

        try:
            if private_file.look_at_database(self.path, is_foreign):
                raise self._foreign()
        except OSError as error:
            raise StoreError(f"{self.path}: unable to open database file: {error.strerror}") from None

    def _foreign(self) -> StoreError:
        return StoreError(f"{self.path} is a database of another program; give the store a file of its own")

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        version = _number(connection, "user_version")
        if _number(connection, "application_id") != APPLICATION_ID:
            raise self._foreign()
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} was written by a newer manystream (schema {version}; this one knows {SCHEMA_VERSION}):"
                " use that version, or another file"
            )
        query = "SELECT sql FROM sqlite_master WHERE LOWER(tbl_name) IN ('conversations', 'rows') AND type <> 'index'"
        found: list[tuple[object]] = connection.execute(query).fetchall()
        if sorted(_plain(str(sql)) for (sql,) in found) != _OWN_SQL:
            # A foreign view or trigger could run any statement, and never end.
            raise self._damaged("its tables and triggers are not the ones that the store creates")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- forks ---

    def before_process_fork(self) -> None:
        """Close the connection and hold the lock. The interpreter calls this before it forks the process."""
        self._lock.acquire()
        self._disconnect()

    def after_process_fork(self) -> None:
        """Release the lock. The interpreter calls this in both processes after a fork."""
        self._lock.release()


_NO_LIMIT = 2**62

_stores: weakref.WeakSet[ConversationStore] = weakref.WeakSet()
_forking: list[ConversationStore] = []
_fork = threading.Lock()
_creating = threading.Lock()
"""Held while a file is made.

When a process closes any descriptor of a file, POSIX removes all locks that the process holds on that file, those of
other connections included.
"""


def _before_fork() -> None:
    _fork.acquire()
    _forking.extend(_stores)
    for store in _forking:
        store.before_process_fork()
    _creating.acquire()


def _after_fork() -> None:
    _creating.release()
    for store in _forking:
        store.after_process_fork()
    _forking.clear()
    _fork.release()


if hasattr(os, "register_at_fork"):
    # SQLite forbids a connection in two processes: closing the copy may remove the log that the original uses.
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _in_transaction(connection: sqlite3.Connection, begin: str, work: Work[Result]) -> Result:
    """Run `work` and commit all that it wrote, or nothing if it raised."""
    try:
        if connection.in_transaction:  # left open by a call that was interrupted while it ended
            connection.execute("ROLLBACK")
        connection.execute(begin)
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # False where SQLite has rolled back itself, such as on a full disk
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
    return result


def _is_text(value: object) -> TypeGuard[str | None]:
    return value is None or type(value) is str


def _is_busy(error: sqlite3.Error) -> bool:
    """Return whether another process holds the file's lock, so that the transaction may be tried again."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_BUSY


def _insert(connection: sqlite3.Connection, title: str, parent: str | None = None, kept: int = 0) -> str:
    id = secrets.token_urlsafe(16)
    connection.execute("INSERT INTO conversations VALUES (?, ?, ?, ?, ?)", (id, title, time.time(), parent, kept))
    return id


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    value: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return value


def _is_empty(connection: sqlite3.Connection) -> bool:
    tables: int = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
    is_marked = _number(connection, "user_version") or _number(connection, "application_id") not in (0, APPLICATION_ID)
    return not tables and not is_marked


def _make_schema(connection: sqlite3.Connection) -> None:
    if _is_empty(connection):  # another process may have made the tables meanwhile
        for statement in _statements(SCHEMA):
            connection.execute(statement)


def _plain(sql: str) -> str:
    return " ".join(sql.split()).removesuffix(";")


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. `executescript` is not used: it would commit the running transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


_OWN_SQL = sorted(sql for sql in map(_plain, _statements(SCHEMA)) if sql.startswith("CREATE"))
"""The SQL text of the tables and triggers, as SQLite keeps it in the file."""
