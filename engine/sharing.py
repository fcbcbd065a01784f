"""The file of the limits that the engines of one user and one machine share, and the task that uses it for one engine.

The file is an SQLite database, which `traffic/shared_rows.py` reads and writes in short transactions, each in a thread.
There is no other process, and no message: what an engine has is in the file, and in `traffic/shared_limits.py`.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from ..providers.errors import InvalidRequestError, ManystreamError
from ..transport.backend import Backend, Cancellable
from .call.home import Home
from .observe import private_file
from .private_socket import PrivateSocketError, is_safe_folder, make_runtime_folder
from .request.noting import NoteLogger
from .traffic.options import Traffic
from .traffic.shared_limits import EngineShare, difference
from .traffic.shared_rows import SCHEMA, Ask, Reply, Sql, exchange, join, leave, sweep

logger: NoteLogger = NoteLogger("manystream.traffic")

OPTION = "traffic.shared"

AGAIN_SECONDS = 0.5
"""Seconds between two attempts after an error."""

APPLICATION_ID = 0x4D534C4D
VERSION = 1

SWEEP_SECONDS = 0.1
"""The least time between two searches for holders that have ended."""

OPEN_SECONDS = 5.0
"""The longest wait for other processes that open the file."""

BUSY_SECONDS = 1.0
"""The longest wait for the transaction of another process."""


class SharedFileError(ManystreamError, OSError):
    """The file of shared limits cannot be used. The message names it."""


class Sharing:
    """One engine's way to the file of its limits.

    traffic: the engine's options.
    backend: the engine's event loop.
    home: where the engine lives.

    Raises `InvalidRequestError`. The engine has nothing then.
    """

    def __init__(self, share: EngineShare, traffic: Traffic, backend: Backend, home: Home) -> None:
        self._share = share
        self._backend = backend
        self._home = home
        self._problem = ""
        try:
            self._file = SharedFile(_path_of(traffic.shared), share.configuration)
            joined = self._file.join()
        except (PrivateSocketError, SharedFileError) as error:
            raise InvalidRequestError(OPTION, str(error)) from None
        if isinstance(joined, dict):
            self._file.close()
            differs = difference(joined, share.configuration)
            raise InvalidRequestError(OPTION, f"all that share {self._file.path} must have the same limits: {differs}")
        self._holder: int = joined
        self._wanted = backend.event()
        share.on_want = self._want
        self._running: Cancellable = backend.start(self._run)

    def leave(self, *, has_ended: bool = False) -> None:
        """Note in the file what the calls have used in all, so that the rest is free. No call may run any more.

        In a forked process this does nothing. May be called again.

        has_ended: the event loop has ended.
        """
        if self._home.is_forked or self._share.on_want is None:
            return
        self._share.on_want = None
        if not has_ended:
            self._running.cancel()
        try:
            for ask, is_last in self._share.last():
                self._file.exchange(self._holder, ask, leaves=is_last)
        except SharedFileError as error:
            logger.error("what this engine had of shared limits is free after some seconds: %s", error)
        self._file.close()

    def _want(self) -> None:
        self._wanted.set()

    async def _run(self) -> None:
        """Take what the calls need, until cancelled."""
        backend, share = self._backend, self._share
        while True:
            async with backend.scope(share.next_at()):
                await self._wanted.wait()
            await backend.sleep(share.gap())
            if self._home.is_forked:
                await backend.event().wait()  # forever
            self._wanted = backend.event()
            try:
                await self._exchange()
            except SharedFileError as error:
                share.ask_again()
                if str(error) != self._problem:
                    self._problem = str(error)
                    logger.error("calls wait, since the limits cannot be shared: %s", error)
                await backend.sleep(AGAIN_SECONDS)

    async def _exchange(self) -> None:
        ask = partial(self._file.exchange, self._holder, self._share.ask())
        reply = await self._backend.run_in_thread(ask, abandon=True)  # a fork copies no threads
        if self._problem:
            self._problem = ""
            logger.warning("the limits in %s are shared again", self._file.path)
        if reply is not None:
            self._share.receive(reply)
            return
        joined = await self._backend.run_in_thread(partial(self._file.join, again=True), abandon=True)
        if isinstance(joined, dict):
            differs = difference(joined, self._share.configuration)
            raise SharedFileError(f"{self._file.path} has other limits now: {differs}")
        self._holder = joined
        self._share.lose()


def _path_of(shared: bool | str | os.PathLike[str]) -> Path:
    """Return the path of the file. Raises `PrivateSocketError`."""
    if not hasattr(os, "getuid"):
        raise PrivateSocketError("this system has no users as POSIX has them: leave it out")
    if isinstance(shared, bool):
        return make_runtime_folder(OPTION) / "limits"
    path = Path(shared).absolute()
    if not is_safe_folder(path.parent):
        raise PrivateSocketError(
            f"{str(path.parent)!a} is no folder in which only this user can replace files: give {OPTION} another path"
        )
    return path


class SharedFile:
    """A file of shared limits.

    configuration: what must be the same in all processes.
    clock: returns the time. It is asked inside each transaction, so that a process that was stopped knows it.
    """

    def __init__(
        self, path: Path, configuration: Mapping[str, str | float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self._configuration = dict(configuration)
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._status: os.stat_result | None = None
        self._swept_at = -math.inf
        _files.add(self)

    def join(self, *, again: bool = False) -> int | dict[str, str | float]:
        """As `join` of `shared_rows`. Raises `SharedFileError`."""
        with self._transaction() as (sql, now):
            return join(sql, self._configuration, now, again=again)

    def exchange(self, holder: int, ask: Ask, *, leaves: bool = False) -> Reply | None:
        """Note what a holder has used, and give what it asks for; None if it is taken to have ended.

        leaves: it makes no more calls. Raises `SharedFileError`.
        """
        with self._transaction() as (sql, now):
            reply = exchange(sql, holder, ask, now)
            if leaves:
                leave(sql, holder, now)
            elif reply is not None and now >= self._swept_at + SWEEP_SECONDS:
                self._swept_at = now
                sweep(sql, now)
            return reply

    def close(self) -> None:
        with _using:
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection. The caller has the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Generator[tuple[Sql, float], None, None]:
        """Read and write alone, at the time that this yields. Nothing is written if it raises. Raises
        `SharedFileError`."""
        with _using:
            try:
                connection = self._open()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield partial(_execute, connection), self._clock()
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:  # False where SQLite has rolled back itself, as on a full disk
                        connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError, ValueError) as error:
                with contextlib.suppress(sqlite3.Error):
                    self.disconnect()
                if isinstance(error, SharedFileError):
                    raise
                reason = error.strerror if isinstance(error, OSError) and error.strerror else error
                raise SharedFileError(f"{str(self.path)!a} cannot be used: {reason}") from None

    def _open(self) -> sqlite3.Connection:
        """Return the connection to the file that has the name now."""
        if self._connection is not None and self._status is not None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(self.path.lstat(), self._status):
                    return self._connection
            self.disconnect()
        self._connection = self._connect()
        self._status = self.path.lstat()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        for ending in ("", "-wal", "-shm", "-journal"):
            _check_own(self.path.with_name(self.path.name + ending))
        private_file.create_missing(self.path)
        if private_file.look_at_database(self.path, _is_foreign):
            raise self._foreign()
        connection = sqlite3.connect(self.path, timeout=OPEN_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            if not _number(connection, "application_id"):
                connection.execute("BEGIN EXCLUSIVE")
                # Before there is a log: so the file itself shows from the beginning what it is.
                if not _number(connection, "application_id"):
                    for statement in (
                        *SCHEMA,
                        f"PRAGMA application_id = {APPLICATION_ID}",
                        f"PRAGMA user_version = {VERSION}",
                    ):
                        connection.execute(statement)
                connection.execute("COMMIT")
            if (_number(connection, "application_id"), _number(connection, "user_version")) != (
                APPLICATION_ID,
                VERSION,
            ):
                raise self._foreign()
            _use_log(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _foreign(self) -> SharedFileError:
        return SharedFileError(
            f"{str(self.path)!a} is a file of another program, or of another version of this one: give another path"
        )


def _execute(connection: sqlite3.Connection, statement: str, *values: object) -> sqlite3.Cursor:
    return connection.execute(statement, values)


def _use_log(connection: sqlite3.Connection) -> None:
    """Let the file have a log. Only one process can do that, and SQLite does not wait for the others here."""
    until = time.monotonic() + OPEN_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def _is_foreign(connection: sqlite3.Connection, has_log: bool) -> bool:
    marks = _number(connection, "application_id"), _number(connection, "user_version")
    has_tables = connection.execute("SELECT 1 FROM sqlite_master").fetchone() or has_log
    return marks != (APPLICATION_ID, VERSION) if has_tables else marks != (0, 0)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return cast("int", connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _check_own(path: Path) -> None:
    """Raise `SharedFileError` for what is there and no file of this user alone."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022 or found.st_nlink > 1:
        raise SharedFileError(f"{str(path)!a} is no regular file of this user alone: delete it, or give another path")


# --- forks ---

_files: weakref.WeakSet[SharedFile] = weakref.WeakSet()
_using = threading.Lock()
"""Held while a file is used, and during a fork: no connection may be in two processes."""


def _before_fork() -> None:
    _using.acquire()
    for file in list(_files):
        file.disconnect()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_using.release, after_in_child=_using.release)
