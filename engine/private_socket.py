"""Unix sockets of this user alone: where they are, how one is made and served, and who is at the other end.

A folder for temporary files is shared by all users of a machine. Any of them may have made a folder or a socket there
under the name that is expected. So the owner of both is checked, and of the process at the other end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from ..providers.errors import ManystreamError
from ..transport.backend import Backend, Cancellable
from .request.noting import NoteLogger

logger: NoteLogger = NoteLogger("manystream.engine")

PATH_BYTES = 103
"""The maximum length of a socket's path on all systems, in bytes (macOS; Linux allows four more)."""

ACCEPT_AGAIN_SECONDS = 0.1
"""Seconds between two attempts to accept a connection after an error, such as that no file descriptor is left."""

_PEER = struct.Struct("3i")
"""Linux: process, user and group of the process at the other end."""

_MAC_PEER = struct.Struct("=IIh")
"""macOS and BSD: a version, the user and a number of groups (`LOCAL_PEERCRED`)."""


class PrivateSocketError(ManystreamError, OSError):
    """A socket cannot be made. The message names the path, the reason and the remedy."""


def runtime_folder() -> Path:
    """Return the default folder of sockets: `$XDG_RUNTIME_DIR/manystream`, or a private temporary folder."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base:
        return Path(base) / "manystream"
    return Path(tempfile.gettempdir()) / f"manystream-{os.getuid()}"


def make_runtime_folder(option: str) -> Path:
    """Return the default folder, which is made if it is missing. Raises `PrivateSocketError` if it is not private.

    option: the option by which the program can name another place, such as `monitor=`.
    """
    folder = runtime_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PrivateSocketError(f"cannot make {folder}: {error.strerror}; give {option} a path") from None
    if not is_own_folder(folder, 0o077):
        raise PrivateSocketError(
            f"{folder} is not this user's alone: delete it, set XDG_RUNTIME_DIR, or give {option} a path"
        )
    return folder


def is_own_folder(folder: Path, forbidden: int = 0o022) -> bool:
    """Return whether this is a folder of this user, and no link, whose mode has none of the forbidden bits.

    forbidden: the default are those by which others may write.
    """
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & forbidden


def is_safe_folder(folder: Path) -> bool:
    """Return whether no other user can replace this user's files in a folder, or in the one that a link leads to."""
    try:
        found = folder.stat()
    except OSError:
        return False
    others_write = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(found.st_mode) and found.st_uid in {os.getuid(), 0} and not others_write


def is_own_socket(path: Path) -> bool:
    """Return whether this is a socket of this user, and no link."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid()


def is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except BlockingIOError:
            return True  # so many clients that one more has to wait
        except OSError:
            return False
    return True


def has_own_peer(connection: socket.socket) -> bool:
    """Return whether the process at the other end belongs to this user, as far as the system says."""
    with contextlib.suppress(OSError):
        if hasattr(socket, "SO_PEERCRED"):
            found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            return bool(_PEER.unpack(found)[1] == os.getuid())
        found = connection.getsockopt(0, 1, 128)
        return bool(_MAC_PEER.unpack_from(found)[1] == os.getuid())
    return False


def listen(path: Path, backlog: int, option: str) -> socket.socket:
    """Return a listening socket at the path, which only this user can access from its creation on.

    The socket of a dead process is replaced, and nothing else. Raises `PrivateSocketError`.

    option: the option by which the program has named the path, such as `monitor=`.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if len(os.fsencode(path)) > PATH_BYTES:
            raise PrivateSocketError(
                f"{path} is too long for a socket ({PATH_BYTES} bytes): give {option} a shorter path"
            )
        # It is made in a private folder, where its mode is set, and then gets its name.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".m") as folder:
            fresh = Path(folder) / "s"
            listener.bind(os.fspath(fresh))
            fresh.chmod(0o600)
            listener.listen(backlog)
            _give_name(fresh, path, option)
    except PrivateSocketError:
        listener.close()
        raise
    except OSError as error:
        listener.close()
        raise PrivateSocketError(
            f"cannot listen at {path}: {error.strerror or error}; give {option} another path"
        ) from None
    except ValueError:  # a NUL, or half of a surrogate pair
        listener.close()
        raise PrivateSocketError(f"{str(path)!a} cannot be a path: give {option} another one") from None
    listener.setblocking(False)
    return listener


def _give_name(fresh: Path, path: Path, option: str) -> None:
    """Give a socket its name, where there is nothing or a dead socket. Raises `OSError`."""
    while True:
        try:
            os.link(fresh, path)  # unlike a renaming, it replaces nothing
        except FileExistsError:
            _remove_dead(path, option)
        else:
            return


def _remove_dead(path: Path, option: str) -> None:
    """Remove the socket of a dead process. Raises `PrivateSocketError` for anything else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise PrivateSocketError(f"{path} is no socket: give {option} another path, or delete it")
    if is_served(path):
        raise PrivateSocketError(f"another engine's monitor listens at {path}: give {option} another path")
    remove_own(path, found)


def remove_own(path: Path, status: os.stat_result) -> None:
    """Remove a file if it is the one that had this status: another may have taken its name."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.lstat(), status):
            path.unlink()


class LocalStream:
    """A connection over a Unix socket, on the engine's event loop. Only one task uses it at a time.

    socket: the socket. It does not block.
    """

    __slots__ = ("_backend", "socket")

    def __init__(self, backend: Backend, connection: socket.socket) -> None:
        self._backend = backend
        self.socket: socket.socket = connection

    async def receive(self, most: int) -> bytes:
        """Return the next bytes; none at the end of the stream. Raises `ConnectionError`."""
        await self._backend.checkpoint()
        while True:
            try:
                return self.socket.recv(most)
            except BlockingIOError:
                await self._backend.wait_readable(self.socket.fileno())
            except OSError as error:
                raise ConnectionError(f"the connection broke: {error.strerror}") from error

    async def send(self, data: bytes) -> None:
        """Send all bytes. Raises `ConnectionError`."""
        left = memoryview(data)
        while left:
            try:
                left = left[self.socket.send(left) :]
            except BlockingIOError:
                await self._backend.wait_writable(self.socket.fileno())
            except OSError as error:
                raise ConnectionError(f"the connection broke: {error.strerror}") from error

    def close(self) -> None:
        self.socket.close()


async def serve(backend: Backend, listener: socket.socket, answer: Callable[[LocalStream], Awaitable[None]]) -> None:
    """Accept connections until cancelled, which cancels the tasks of all connections, too.

    answer: called with each connection, in a task of its own. The connection is closed when it returns.
    """
    running: dict[LocalStream, Cancellable] = {}

    async def run(stream: LocalStream) -> None:
        try:
            await answer(stream)
        finally:
            stream.close()
            running.pop(stream, None)

    try:
        while True:
            await backend.checkpoint()
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                await backend.wait_readable(listener.fileno())
            except OSError as error:
                logger.error("cannot accept a connection: %s", error.strerror)
                await backend.sleep(ACCEPT_AGAIN_SECONDS)
            else:
                connection.setblocking(False)
                stream = LocalStream(backend, connection)
                running[stream] = backend.start(run, stream)
    finally:
        for task in list(running.values()):
            task.cancel()
