"""Answers that were paid for once: an engine that has a cache sends no request whose answer it holds.

    with AnswerCache("answers.sqlite") as cache:
        async with ms.open_engine([provider], cache=cache) as engine:
            ...

An answer is kept as the bytes that the server sent, and read again as they were: a stream has the same events. The key
is what is sent: the server, the path and the body, without members that do not change the answer. A stream and the
same request unstreamed are two. Only complete answers are kept, with status 200.

A hit costs one read of SQLite on the engine's thread. A thread of the cache writes. Several processes may use one file.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from . import ManystreamError
from .engine.embedding import KeptAnswer, Note, NoteLogger, Notes, Prepared, Redaction
from .engine.observe import private_file
from .engine.request.value_rules import PATH
from .providers.json.json_values import MalformedJSONError, dumps, exact_loads
from .providers.model.rules import Rule, check_arguments, number
from .transport.exchange import RawHeaders

logger: NoteLogger = NoteLogger("manystream.cache")

FILE = "answers.sqlite"
"""The name of the file if the path is a folder."""

LARGEST_ANSWER = 8 << 20
"""The largest answer that is kept, in bytes."""

BUSY_SECONDS, CLOSING_SECONDS = 5.0, 1.0
"""How long a write waits for other processes, and how long after `close`."""

LOOK_SECONDS = 0.1
"""How often a write that waits looks whether the cache was closed."""

MOST_WAITING = 64 << 20
"""The most bytes of answers that wait to be written."""

LEFT_AFTER_ROOM = 0.9
"""The part of `max_bytes` that is left when old answers are removed."""

IRRELEVANT = frozenset(
    {"metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"}
    | {"store", "service_tier", "session_id", "labels", "priority"}
)
"""Members of a body that do not change what a model answers: who asks, how it is billed, and where it is cached."""

RELEVANT_HEADERS = frozenset({b"anthropic-beta", b"anthropic-version", b"openai-beta"})
"""The headers of a request that change what a server answers."""

SECRET_FREE = frozenset({b"content-type", b"request-id", b"x-request-id"})
"""The headers of an answer that are kept: no other one is needed to read it."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, made REAL, used REAL, size INTEGER, head BLOB, body BLOB);
CREATE INDEX IF NOT EXISTS by_use ON answers (used, size);
"""

OWN_NAMES = frozenset({"answers", "by_use", "sqlite_autoindex_answers_1"})
"""The tables and indices of a cache."""

MAKE_ROOM = """
DELETE FROM answers WHERE rowid IN (
    SELECT rowid FROM (SELECT rowid, size, total(size) OVER (ORDER BY used, rowid) AS freed FROM answers)
    WHERE freed - size < ?
)
"""
"""Removes the answers that were used longest ago, of so many bytes."""

CHECK_BYTES = 16
"""The length of the checksum with which a head begins in the file."""


class _Answer(NamedTuple):
    """An answer: its headers as lines, its body, and when it was made."""

    head: bytes
    body: bytes
    made: float

    @property
    def size(self) -> int:
        return len(self.head) + len(self.body)


ARGUMENTS: dict[str, Rule] = {
    "path": PATH,
    "max_bytes": number(0, must="a number above 0", above=True, infinite=True),
    "max_age": number(0, must="a number of seconds above 0", above=True, infinite=True),
}


class CacheError(ManystreamError, RuntimeError):
    """The file of a cache cannot be used. The message names the file and what to do."""


class AnswerCache:
    """A file of answers: `with AnswerCache(path) as cache`, and `open_engine(…, cache=cache)`.

    hits: requests that were answered from the file.
    misses: requests that were not.

    An error of the file during a call is logged once, and the call is sent.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int = 1 << 30, max_age: float = math.inf) -> None:
        """Open the file, or create it so that only its owner can read it. Raises `CacheError`.

        path: the file, or a folder that has it under the name `answers.sqlite`.
        max_bytes: the most bytes of answers that are kept; those that were used longest ago are removed.
        max_age: seconds after which an answer is no longer used.
        """
        check_arguments(ARGUMENTS, path=path, max_bytes=max_bytes, max_age=max_age)
        place = Path(path)
        self.path: Path = place / FILE if place.is_dir() else place
        self.hits: int = 0
        self.misses: int = 0
        self._max_bytes = max_bytes
        self._max_age = max_age
        self.notes: Notes = Notes(logger, f"the cache {self.path} is not used", sqlite3.Error, CacheError)
        self._changed = threading.Condition()  # guards what follows
        self._answers: dict[bytes, _Answer] = {}  # by key: those that are not written yet
        self._used: dict[bytes, float] = {}  # key → when its answer was used
        self._size = 0  # of the answers, in bytes
        self._closed_at = math.inf
        self._reader: sqlite3.Connection | None = self._connect()
        self._reader.execute("PRAGMA busy_timeout = 0")  # it runs on the engine's thread
        writer = self._connect()
        writer.execute(f"PRAGMA busy_timeout = {LOOK_SECONDS * 1000:.0f}")
        self._writer = threading.Thread(target=self._write, args=[writer], name="manystream cache", daemon=True)
        self._writer.start()

    def __repr__(self) -> str:
        return f"<AnswerCache {self.path.name}, {self.hits} hits, {self.misses} misses>"

    def __enter__(self) -> AnswerCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what waits, and close the file. Idempotent. If another process holds the file for a second, what waits
        is not written."""
        if self._reader is not None:
            with self._changed:
                self._closed_at = time.monotonic()
                self._changed.notify()
            if not sys.is_finalizing():  # else the thread has stopped
                self._writer.join()
            self._reader.close()
            self._reader = None

    def find(self, prepared: Prepared) -> KeptAnswer | None:
        """Return the answer to a request, or None if there is none that can be used. Raises `CacheError` and
        `sqlite3.Error` if it is damaged."""
        if self._reader is None:
            return None
        key, now = _key(prepared), time.time()
        self.misses += 1
        answer = self._answers.get(key)
        if answer is None:
            row = self._reader.execute("SELECT head, body, made FROM answers WHERE key = ?", (key,)).fetchone()
            answer = None if row is None else _read(key, *row)
        if answer is None or not now - self._max_age < answer.made <= now + self._max_age:
            return None
        self.misses, self.hits = self.misses - 1, self.hits + 1
        with self._changed:
            self._used[key] = now
            self._changed.notify()
        head = [header.partition(b":") for header in answer.head.split(b"\n")]
        return [(name, value) for name, _, value in head], answer.body

    def note(self, prepared: Prepared, call: object = None) -> Note:
        """Return what keeps the answer if it is complete."""
        return _Copy(self, _key(prepared), prepared.secrets)

    def keep(self, key: bytes, headers: RawHeaders, body: bytes) -> None:
        """Keep an answer. It is found at once, and written soon. Raises `CacheError` if too many wait for that."""
        head = b"\n".join([b"%b:%b" % header for header in headers if header[0].lower() in SECRET_FREE])
        with self._changed:
            if self._reader is None:
                return
            if self._size > MOST_WAITING:
                raise CacheError("answers come faster than the file takes them, and some are not kept")
            self._forget(key)
            self._answers[key] = answer = _Answer(head, body, time.time())
            self._size += answer.size
            self._changed.notify()

    def _forget(self, key: bytes) -> None:
        """Forget an answer that waits to be written."""
        answer = self._answers.pop(key, None)
        if answer is not None:
            self._size -= answer.size

    # --- the thread that writes ---

    def _write(self, writer: sqlite3.Connection) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._answers or self._used or self._closed_at < math.inf)
                answers, used, self._used = dict(self._answers), self._used, {}
            if not answers and not used:
                break
            self.notes.take(self._perform, writer, answers, used)
            with self._changed:
                for key, answer in answers.items():
                    if self._answers.get(key) is answer:
                        self._forget(key)
        writer.close()

    def _perform(self, writer: sqlite3.Connection, answers: dict[bytes, _Answer], used: dict[bytes, float]) -> None:
        """Write answers, and make room."""
        self._begin(writer)
        with writer:
            for key, (head, body, made) in answers.items():
                row = (key, made, made, len(head) + len(body), _checksum(key, head, body) + head, body)
                writer.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)", row)
            writer.executemany("UPDATE answers SET used = ? WHERE key = ?", [(when, key) for key, when in used.items()])
            (size,) = writer.execute("SELECT total(size) FROM answers").fetchone()
            if size > self._max_bytes:
                writer.execute(MAKE_ROOM, (size - self._max_bytes * LEFT_AFTER_ROOM,))

    def _begin(self, writer: sqlite3.Connection) -> None:
        """Begin a transaction. Waits for other processes, and not long once the cache is closed."""
        began = time.monotonic()
        while True:
            try:
                writer.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                deadline = min(began + BUSY_SECONDS, self._closed_at + CLOSING_SECONDS)
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise

    def _connect(self) -> sqlite3.Connection:
        try:
            private_file.create_missing(self.path)
            if private_file.look_at_database(self.path, _is_foreign):
                raise CacheError(f"{self.path} is no cache of answers: another program has made it; name another file")
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=8
            )
        except OSError as error:
            raise CacheError(f"cannot open {self.path}: {error.strerror}; name another file or folder") from None
        except sqlite3.Error as error:
            raise CacheError(f"{self.path} is no cache of answers: {error}; name another file, or delete it") from None
        try:
            connection.executescript(SCHEMA)  # before there is a log: so the file itself shows that it is a cache
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error as error:
            connection.close()
            raise CacheError(f"{self.path} is no cache of answers: {error}; name another file, or delete it") from None
        return connection


def _is_foreign(connection: sqlite3.Connection, has_log: bool) -> bool:
    """Return whether another program has made a database. One without tables and log may become a cache."""
    marks = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return marks != [(0,), (0,)] or (not names <= OWN_NAMES if names else has_log)


@dataclass(slots=True, eq=False, repr=False)
class _Copy:
    """Copies an answer."""

    _cache: AnswerCache
    _key: bytes
    _secrets: Redaction
    _headers: RawHeaders | None = field(default=None, init=False)
    _body: list[bytes] = field(default_factory=list[bytes], init=False)
    _size: int = field(default=0, init=False)

    def head(self, status: int, headers: RawHeaders) -> None:
        self._headers = headers if status == 200 else None

    def body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= LARGEST_ANSWER:
            self._body.append(data)

    def ended(self, how: str) -> None:
        """Do nothing: only an answer that is accepted is kept."""

    def accepted(self) -> None:
        """Keep the answer, unless it repeats the key of the provider."""
        if self._headers is not None and self._size <= LARGEST_ANSWER:
            body = b"".join(self._body)
            parts = [body, *(value for name, value in self._headers if name.lower() in SECRET_FREE)]
            if all(self._secrets.hide_bytes(part) == part for part in parts):
                self._cache.keep(self._key, self._headers, body)


def _checksum(key: bytes, head: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(b"%b%d\n%b%b" % (key, len(head), head, body), digest_size=CHECK_BYTES).digest()


def _read(key: bytes, head: object, body: object, made: object) -> _Answer:
    """Read an answer from its row. Raises `CacheError` if it is damaged."""
    if isinstance(head, bytes) and isinstance(body, bytes) and isinstance(made, float):
        answer = _Answer(head[CHECK_BYTES:], body, made)
        if head[:CHECK_BYTES] == _checksum(key, answer.head, body):
            return answer
    raise CacheError("an answer in it is damaged")


def _key(prepared: Prepared) -> bytes:
    """Return the key of a request: a hash of its server, path, query and body. The path names the dialect.

    Nothing is redacted first: a query that differs in a secret may lead to another deployment. The hash shows nothing.
    """
    body = prepared.body
    try:
        members = exact_loads(body)
        if type(members) is dict:
            kept = {name: members[name] for name in sorted(members) if name not in IRRELEVANT}
            body = dumps(kept)
    except MalformedJSONError:
        pass
    asked = [b"%b:%b" % header for header in prepared.head.headers if header[0].lower() in RELEVANT_HEADERS]
    parts = (str(prepared.origin).encode(), prepared.head.target, *asked, body)
    return hashlib.blake2b(b"\n".join(parts), digest_size=20).digest()
