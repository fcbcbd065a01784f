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
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from .engine.call.runtime import KeptAnswer, Note
from .engine.observe import private_file
from .engine.request.noting import NoteLogger, Notes
from .engine.request.prepared import Prepared
from .engine.request.value_rules import PATH
from .providers.errors import ManystreamError
from .providers.json.json_values import MalformedJSONError, dumps, exact_loads
from .providers.model.rules import Rule, check_arguments, number
from .transport.exchange import RawHeaders

logger = NoteLogger("manystream.cache")

FILE = "answers.sqlite"
"""The name of the file if the path is a folder."""

LARGEST_ANSWER = 8 << 20
"""The largest answer that is kept, in bytes."""

BUSY_SECONDS = 5.0
"""How long a write waits for other processes."""

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

_Job: TypeAlias = Callable[[sqlite3.Connection], object]


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
        self.notes: Notes = Notes(logger, f"the cache {self.path} is not used", (sqlite3.Error, CacheError))
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._reader: sqlite3.Connection | None = self._connect()
        self._writer = threading.Thread(target=self._write, name="manystream cache", daemon=True)
        self._writer.start()

    def __repr__(self) -> str:
        return f"<AnswerCache {self.path.name}, {self.hits} hits, {self.misses} misses>"

    def __enter__(self) -> AnswerCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what waits, and close the file. Idempotent."""
        if self._reader is not None:
            self._jobs.put(None)
            self._writer.join()
            self._reader.close()
            self._reader = None

    def find(self, prepared: Prepared) -> KeptAnswer | None:
        """Return the answer to a request, or None if there is none that can be used."""
        reader = self._reader
        if reader is None:
            return None
        key, now = _key(prepared), time.time()
        found = reader.execute("SELECT head, body, made FROM answers WHERE key = ?", (key,)).fetchone()
        if found is None or not now - self._max_age < found[2] <= now + self._max_age:
            self.misses += 1
            return None
        self.hits += 1
        self._jobs.put(lambda writer: writer.execute("UPDATE answers SET used = ? WHERE key = ?", (now, key)))
        head = [header.partition(b":") for header in found[0].split(b"\n")]
        return [(name, value) for name, _, value in head], found[1]

    def note(self, prepared: Prepared) -> Note:
        """Return what keeps the answer if it is complete."""
        return _Copy(self, _key(prepared))

    def keep(self, key: bytes, headers: RawHeaders, body: bytes) -> None:
        """Keep an answer. It is written soon."""
        head = b"\n".join([b"%b:%b" % header for header in headers if header[0].lower() in SECRET_FREE])
        row = (key, now := time.time(), now, len(head) + len(body), head, body)

        def store(writer: sqlite3.Connection) -> None:
            writer.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)", row)

        if self._reader is not None:
            self._jobs.put(store)

    # --- the thread that writes ---

    def _write(self) -> None:
        writer: sqlite3.Connection | None = None
        while (job := self._jobs.get()) is not None:
            writer = writer or self.notes.take(self._connect)
            if writer is not None:
                self.notes.take(self._perform, writer, job)
        if writer is not None:
            writer.close()

    def _perform(self, writer: sqlite3.Connection, job: _Job) -> None:
        """Perform a job, and make room."""
        with writer:
            writer.execute("BEGIN IMMEDIATE")
            job(writer)
            (size,) = writer.execute("SELECT total(size) FROM answers").fetchone()
            if size > self._max_bytes:
                self._make_room(writer, size - self._max_bytes * LEFT_AFTER_ROOM)

    def _make_room(self, writer: sqlite3.Connection, needed: float) -> None:
        """Remove the answers that were used longest ago."""
        last = 0.0
        for used, size in writer.execute("SELECT used, size FROM answers ORDER BY used"):
            last, needed = used, needed - size
            if needed <= 0:
                break
        writer.execute("DELETE FROM answers WHERE used <= ?", (last,))

    def _connect(self) -> sqlite3.Connection:
        try:
            private_file.create_missing(self.path)
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=8
            )
        except OSError as error:
            raise CacheError(f"cannot open {self.path}: {error.strerror}; name another file or folder") from None
        except sqlite3.Error as error:
            raise CacheError(f"cannot open {self.path}: {error}; name another file or folder") from None
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(SCHEMA)
        except sqlite3.Error as error:
            connection.close()
            raise CacheError(f"{self.path} is no cache of answers: {error}; name another file, or delete it") from None
        return connection


class _Copy:
    """Copies an answer."""

    __slots__ = ("_body", "_cache", "_headers", "_key", "_size")

    def __init__(self, cache: AnswerCache, key: bytes) -> None:
        self._cache = cache
        self._key = key
        self._headers: RawHeaders | None = None
        self._body: list[bytes] = []
        self._size = 0

    def head(self, status: int, headers: RawHeaders) -> None:
        self._headers = headers if status == 200 else None

    def body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= LARGEST_ANSWER:
            self._body.append(data)

    def ended(self, how: str) -> None:
        """Do nothing: only an answer that is accepted is kept."""

    def accepted(self) -> None:
        """Keep the answer."""
        if self._headers is not None and self._size <= LARGEST_ANSWER:
            self._cache.keep(self._key, self._headers, b"".join(self._body))


def _key(prepared: Prepared) -> bytes:
    """Return the key of a request: a hash of its server, path and body. The path names the dialect."""
    body = prepared.body
    try:
        members = exact_loads(body)
        if type(members) is dict:
            kept = {name: members[name] for name in sorted(members) if name not in IRRELEVANT}
            body = dumps(kept)
    except MalformedJSONError:
        pass
    target = prepared.secrets.hide_bytes(prepared.head.target)
    asked = [b"%b:%b" % header for header in prepared.head.headers if header[0].lower() in RELEVANT_HEADERS]
    parts = (str(prepared.origin).encode(), target, *asked, body)
    return hashlib.blake2b(b"\n".join(parts), digest_size=20).digest()
