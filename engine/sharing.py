"""Several engines of one user and one machine share their limits: one process is the keeper, and all are its clients.

The keeper answers at a Unix socket, also the engine of its own process. What each side knows and sends is in
`traffic/shared_limits.py`; here are the connections, the tasks and the files. Next to the socket at `path` there are
two files. `path.state` has what a later keeper must know of budgets, `path.lock` is locked while a keeper is replaced.

When the keeper's process has ended, or has not answered for `ANSWER_SECONDS`, the first engine that gets the lock
replaces it: it gives a socket of its own the name, and then reads what the earlier keeper has written. Before each
answer, a keeper computes it, writes what a later keeper must know, and then looks whether the name is still that of its
own socket. So a keeper that was stopped for a while sends nothing that its successor does not know, except leases that
end before the successor grants any.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import stat
import threading
import time
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..providers.errors import InvalidRequestError
from ..providers.json.json_values import JSON, JSONObject, dumps, loads_object
from ..transport.backend import Backend, Cancellable, Event
from ..transport.fork import watch_forks
from .call.home import Home
from .observe.private_file import open_replacement
from .private_socket import (
    LocalStream,
    PrivateSocketError,
    SocketInUseError,
    has_own_peer,
    is_own_socket,
    is_safe_folder,
    is_served,
    listen,
    make_runtime_folder,
    remove_own,
    serve,
)
from .request.noting import NoteLogger
from .traffic.limits.leases import LEASE_SECONDS, RENEW_SECONDS
from .traffic.options import Traffic
from .traffic.shared_limits import EngineShare, KeeperState, MessageError, difference

logger = NoteLogger("manystream.traffic")

OPTION = "traffic.shared"

ANSWER_SECONDS = 2.0
"""Seconds after which a keeper that has not answered is replaced. A lease lasts for twice as long."""

LATE_SECONDS = 0.5
"""The last part of `ANSWER_SECONDS`. It begins when the engine notices that the first part is over. So an engine that
was itself late, for example in a process that was stopped, does not replace a keeper that has answered meanwhile."""

GAP_SECONDS = 0.02
"""The least time between two requests of one engine, and between two attempts to find the keeper."""

OPEN_SECONDS = 10.0
"""Seconds within which an engine that is opened must find the keeper, or become it."""

LEAVE_SECONDS = 0.5
"""Seconds within which an engine that is closed gives back what it has."""

REMEMBERED_SECONDS = 60.0
"""After so many seconds without a keeper, and without another process that shares its limits, budgets begin anew."""

AGAIN_SECONDS = 1.0
"""Seconds between two attempts after an error."""

LINE_BYTES = 1 << 20
"""The largest message."""

FILE_BYTES = 1 << 20
"""The size from which `path.state` is written anew, without what later records replace."""

BACKLOG = 128


class Sharing:
    """One engine's connection to the keeper of its limits. Its process may become the keeper.

    share: what the engine has of the limits.
    traffic: the engine's options.
    backend: the engine's event loop.
    home: where the engine lives.
    """

    def __init__(self, share: EngineShare, traffic: Traffic, backend: Backend, home: Home) -> None:
        self._share = share
        self._traffic = traffic
        self._backend = backend
        self._home = home
        self._clock = backend.clock
        self._path = Path()
        self._peer: _Peer | None = None
        self._keeper: _Keeper | None = None
        self._is_member = False
        self._asks_now = False
        self._running: Cancellable | None = None
        self._ended: Event | None = None
        self._problem = ""
        watch_forks(self)

    def __repr__(self) -> str:
        return f"<Sharing {self._path}{', the keeper' if self._keeper is not None else ''}>"

    async def join(self) -> None:
        """Find the keeper, or become it, and renew what the engine may use from then on.

        Call `leave` at the end, also if this raises. Raises `InvalidRequestError`.
        """
        if not hasattr(socket, "AF_UNIX"):
            raise InvalidRequestError(OPTION, "needs Unix sockets, which this system does not have: leave it out")
        try:
            self._path = _path_of(self._traffic.shared)
            async with self._backend.scope(self._clock() + OPEN_SECONDS):
                self._peer = await self._find()
        except PrivateSocketError as error:
            raise InvalidRequestError(OPTION, str(error)) from None
        if self._peer is None:
            raise InvalidRequestError(
                OPTION, f"no process answers at {self._path}: end the one that has {self._path}.lock open"
            )
        self._share.on_want = self._want
        self._ended = self._backend.event()
        self._running = self._backend.start(self._run, self._ended)

    async def _run(self, ended: Event) -> None:
        """Renew what the engine may use, until cancelled or `leave` is called."""
        try:
            while self._peer is not None:
                peer = self._peer
                has_stopped = await self._follow(peer)
                peer.close()
                self._peer = await self._find_again(peer if has_stopped else None)
        finally:
            ended.set()

    def on_fork(self) -> None:
        """Let go of the connections, in a forked process: what a task reads there would be lost to the parent."""
        sockets = [] if self._peer is None else [self._peer.stream.socket]
        sockets += [] if self._keeper is None else self._keeper.sockets
        ended, other = socket.socketpair()
        other.close()
        with ended:
            for each in sockets:
                if each.fileno() >= 0:
                    os.dup2(ended.fileno(), each.fileno(), inheritable=False)

    async def leave(self) -> None:
        """Report to the keeper what the calls have used in all, so that the rest is free. No call may run any more.

        In a forked process, only close what it has of the parent's.
        """
        self._share.on_want = None
        if self._running is not None:
            self._running.cancel()
        try:
            if self._home.is_forked:
                return
            async with self._backend.scope(self._clock() + LEAVE_SECONDS):
                if self._ended is not None:
                    await self._ended.wait()
                await self._take_leave()
                if self._keeper is not None:
                    await self._keeper.resign()
        finally:
            if self._peer is not None:
                self._peer.close()
            if self._keeper is not None:
                self._keeper.stop()

    async def _take_leave(self) -> None:
        peer = self._peer
        if peer is None or peer.is_torn:
            return
        with contextlib.suppress(ConnectionError, MessageError):
            for message in self._share.last():
                await peer.send({"leave": True, **message})
                while "left" not in (await peer.next() or {}):
                    pass

    # --- the requests ---

    async def _follow(self, peer: _Peer) -> bool:
        """Ask the keeper for what the engine may use, until it ends. Return whether it has stopped answering."""
        share, waits, is_late = self._share, False, False
        asked_at, until = -math.inf, 0.0
        share.again()
        self._asks_now = True
        try:
            while True:
                if not waits:
                    asks_at = min(share.next_window, asked_at + RENEW_SECONDS)
                    until = asked_at + GAP_SECONDS if self._asks_now else max(asked_at + GAP_SECONDS, asks_at)
                    now = self._clock()
                    if now >= until:
                        self._asks_now, waits, is_late = False, True, False
                        asked_at, until = now, now + ANSWER_SECONDS - LATE_SECONDS
                        await peer.send(share.ask())
                message = await peer.next(until)
                now = self._clock()
                if message is None:
                    if waits and now >= until:
                        if is_late and self._keeps:
                            return False
                        if is_late:
                            logger.warning("the keeper of %s does not answer, and is replaced", self._path)
                            return True
                        is_late, until = True, now + LATE_SECONDS
                elif "prompt" in message:
                    self._asks_now = True
                else:
                    waits = False
                    self._asks_now = share.receive(message) or self._asks_now
        except ConnectionError:
            return False
        except MessageError as error:
            logger.error("the keeper of the limits at %s has sent what it never should: %s", self._path, error)
            await self._backend.sleep(AGAIN_SECONDS)
            return False

    @property
    def _keeps(self) -> bool:
        """Whether this process is the keeper. If it does not answer, a new connection may help, and no other keeper."""
        return self._keeper is not None and not self._keeper.is_stopped

    def _want(self) -> None:
        if not self._asks_now:
            self._asks_now = True
            self._backend.soon(self._wake)

    def _wake(self) -> None:
        if self._peer is not None:
            self._peer.wake()

    # --- the way to the keeper ---

    async def _find_again(self, unanswered: _Peer | None) -> _Peer:
        """Find the keeper after one has gone. Calls wait meanwhile, and nothing is raised."""
        if self._home.is_forked:
            await self._backend.event().wait()  # forever
        while True:
            try:
                peer = await self._find(unanswered)
            except (InvalidRequestError, PrivateSocketError) as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    logger.error("no call can be sent, since the limits cannot be shared: %s", error)
                await self._backend.sleep(AGAIN_SECONDS)
            else:
                if self._problem:
                    self._problem = ""
                    logger.warning("the limits at %s are shared again", self._path)
                return peer

    async def _find(self, unanswered: _Peer | None = None) -> _Peer:
        """Return a connection to the keeper. This process becomes it if there is none, or if it does not answer.

        Raises `InvalidRequestError` if the keeper has other limits, and `PrivateSocketError`.
        """
        while True:
            dialled = None if unanswered is not None else await self._backend.run_in_thread(partial(_dial, self._path))
            if dialled is not None:
                peer = _Peer(self._backend, LocalStream(self._backend, dialled.connection), dialled.status)
                if await self._introduce(peer):
                    self._is_member = True
                    return peer
                unanswered = peer if peer.is_silent else None
            seat = await self._backend.run_in_thread(partial(self._take_seat, unanswered))
            if seat is not None:
                logger.info("this process keeps the limits that are shared at %s", self._path)
                self._keep(seat)
            else:
                await self._backend.sleep(GAP_SECONDS)
            unanswered = None

    async def _introduce(self, peer: _Peer) -> bool:
        """Return whether the keeper has let this engine in. Raises `InvalidRequestError` and `PrivateSocketError`."""
        foreign = PrivateSocketError(f"another program listens at {self._path}: give {OPTION} another path")
        is_in = False
        try:
            await peer.send({"hello": self._share.name, "configuration": self._share.configuration})
            answer = await peer.next(self._clock() + ANSWER_SECONDS)
            if answer is None:
                peer.is_silent = True
                return False
            theirs = answer.get("configuration")
            if not isinstance(theirs, dict):
                raise foreign
            self._compare(theirs)
            is_in = True
            return True
        except MessageError:
            raise foreign from None
        except ConnectionError:
            return False
        finally:
            if not is_in:
                peer.close()

    def _compare(self, theirs: JSONObject) -> None:
        differs = difference(theirs, self._share.configuration)
        if differs:
            raise InvalidRequestError(OPTION, f"all that share {self._path} must have the same limits: {differs}")

    def _take_seat(self, unanswered: _Peer | None) -> _Seat | None:
        """Become the keeper. Return None if another process is or becomes it. This blocks.

        Raises `InvalidRequestError` and `PrivateSocketError`.
        """
        try:
            with _locked(self._path) as is_locked:
                return self._take_seat_alone(unanswered) if is_locked else None
        except OSError as error:
            if isinstance(error, PrivateSocketError):
                raise
            raise PrivateSocketError(f"{self._path} cannot be used: {error.strerror or error}") from None

    def _take_seat_alone(self, unanswered: _Peer | None) -> _Seat | None:
        path = self._path
        before = _read(path)
        if unanswered is not None:
            try:
                if not os.path.samestat(path.lstat(), unanswered.status):
                    return None
            except FileNotFoundError:
                return None
            if before is None or before.socket != [unanswered.status.st_dev, unanswered.status.st_ino]:
                raise PrivateSocketError(f"another program listens at {path}: give {OPTION} another path")
        elif is_served(path):
            return None
        if (
            before is not None
            and not self._is_member
            and before.age < 2 * LEASE_SECONDS
            and difference(before.configuration, self._share.configuration)
        ):
            return None  # one of those that share these limits replaces it, unless there is none
        try:
            listener = listen(path, BACKLOG, OPTION, replace=unanswered is not None)
        except SocketInUseError:
            return None
        try:
            return self._seat(listener)
        except BaseException:
            listener.close()
            raise

    def _seat(self, listener: socket.socket) -> _Seat:
        path, status = self._path, self._path.lstat()
        # From here on the earlier keeper sends nothing, if it runs at all. What it has sent it had written before.
        known = _read(path)
        recovers = self._is_member or (known is not None and known.age < 2 * LEASE_SECONDS)
        records: Sequence[JSONObject] = ()
        if known is not None and (self._is_member or known.age < REMEMBERED_SECONDS):
            records = known.records if not difference(known.configuration, self._share.configuration) else ()
        epoch = max(time.monotonic_ns(), 0 if known is None else known.epoch + 1)
        now = self._clock()
        state = KeeperState(self._traffic, epoch, now, recovers=recovers, records=records)
        header: JSONObject = {
            "socket": [status.st_dev, status.st_ino],
            "epoch": epoch,
            "configuration": state.configuration,
        }
        first = _lines([header])
        rest = _lines(state.all_records(now))
        descriptor = open_replacement(_beside(path, "state"), first + rest)
        return _Seat(path, listener, status, descriptor, first, len(rest), state)

    def _keep(self, seat: _Seat) -> None:
        if self._keeper is not None:
            self._keeper.stop()
        self._keeper = _Keeper(seat, self._backend, self._home)


class _Keeper:
    """The keeper: it answers the engines, and prompts those that should ask.

    is_stopped: `stop` was called, or another process is the keeper.
    """

    def __init__(self, seat: _Seat, backend: Backend, home: Home) -> None:
        """Serve until `stop` is called, or another process is the keeper."""
        self._seat = seat
        self._backend = backend
        self._home = home
        self._state = seat.state
        self._peers: dict[str, _Peer] = {}
        self._writing = backend.lock()
        self._unwritten = b""
        self._is_failing = False
        self.is_stopped: bool = False
        self._task = backend.start(self._run)

    @property
    def sockets(self) -> list[socket.socket]:
        """Those of the connections."""
        return [peer.stream.socket for peer in self._peers.values()]

    async def _run(self) -> None:
        try:
            await serve(self._backend, self._seat.listener, self._serve)
        finally:
            self._seat.close(is_forked=self._home.is_forked)

    def stop(self) -> None:
        """Close all connections."""
        self.is_stopped = True
        self._task.cancel()

    async def resign(self) -> None:
        """Remove the files if no other engine needs them."""
        if not self._peers and not self.is_stopped:
            await self._backend.run_in_thread(self._seat.remove)

    async def _serve(self, stream: LocalStream) -> None:
        peer, name = _Peer(self._backend, stream), ""
        try:
            name = await self._admit(peer)
            while name:
                message = await peer.next()
                if message is None:
                    await peer.send({"prompt": True})
                else:
                    await self._answer(name, peer, message)
        except ConnectionError:
            pass  # it went
        except MessageError as error:
            logger.error("a process at %s has sent what it never should: %s", self._seat.path, error)
        except Exception:  # a defect must cost one connection, not the engine
            logger.exception("a process that shares limits could not be answered: a defect in manystream")
        finally:
            if name and self._peers.get(name) is peer:
                del self._peers[name]
                self._state.lose(name)

    async def _admit(self, peer: _Peer) -> str:
        """Return the name of the engine at the other end; "" if it must not share these limits."""
        if not has_own_peer(peer.stream.socket):
            return ""
        hello = await peer.next(self._backend.clock() + ANSWER_SECONDS)
        if hello is None:
            return ""
        name, theirs = hello.get("hello"), hello.get("configuration")
        if not isinstance(name, str) or not isinstance(theirs, dict):
            raise MessageError("the first message must have a name and a configuration")
        await peer.send({"configuration": self._state.configuration})
        if difference(theirs, self._state.configuration):
            return ""
        self._peers[name] = peer
        return name

    async def _answer(self, name: str, peer: _Peer, message: JSONObject) -> None:
        async with self._writing:
            now = self._backend.clock()
            reply: JSONObject = {"left": True}
            if "leave" in message:
                prompted = self._state.leave(name, message, now)
                if self._peers.get(name) is peer:
                    del self._peers[name]
            else:
                reply, prompted = self._state.ask(name, message, now)
            whole = self._seat.is_large
            records = self._state.all_records(now) if whole else self._state.take_records(now)
            self._unwritten = _lines(records) if whole else self._unwritten + _lines(records)
            if not await self._write(whole=whole):
                reply["amounts"] = []  # what no later keeper would know
        if not self.is_stopped:  # else its successor does not know of the reply
            for each in prompted & self._peers.keys():
                self._peers[each].wake()
            await peer.send(reply)

    async def _write(self, *, whole: bool) -> bool:
        """Write down what a later keeper must know. Return whether that was possible. Stop if another one is there."""
        try:
            write = partial(self._seat.write, self._unwritten, whole=whole)
            is_own = await self._backend.run_in_thread(write, abandon=True)  # a fork copies no threads
        except OSError as error:
            if not self._is_failing:
                logger.error("budgets give no more, since %s.state cannot be written: %s", self._seat.path, error)
            self._is_failing = True
            return False
        self._unwritten, self._is_failing = b"", False
        if not is_own:
            logger.warning("another process keeps the limits at %s now", self._seat.path)
            self.stop()
        return True


class _Peer:
    """The other end of a connection. A message is an object of JSON in a line of its own.

    stream: the connection.
    status: that of the socket file to which it leads; None at the keeper's end.
    is_silent: whether the other end is there and does not answer.
    is_torn: whether a part of a message was sent, so that no other can follow.
    """

    def __init__(self, backend: Backend, stream: LocalStream, status: os.stat_result | None = None) -> None:
        self._backend = backend
        self.stream = stream
        self._status = status
        self.is_silent: bool = False
        self.is_torn: bool = False
        self._received = bytearray()
        self._searched = 0
        self._is_woken = False
        self._waiting: Cancellable | None = None

    @property
    def status(self) -> os.stat_result:
        assert self._status is not None, "the keeper has made the socket itself"
        return self._status

    async def next(self, until: float = math.inf) -> JSONObject | None:
        """Return the next message; None after `wake`, and at the time `until`.

        Raises `MessageError`, and `ConnectionError` if the other end has closed.
        """
        while True:
            end = self._received.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._received[:end])
                del self._received[: end + 1]
                self._searched = 0
                return _object(line)
            self._searched = len(self._received)
            if self._searched > LINE_BYTES:
                raise MessageError("a message is too long")
            if self._is_woken:
                self._is_woken = False
                return None
            data: bytes | None = None
            async with self._backend.scope(until) as waiting:
                self._waiting = waiting
                data = await self.stream.receive(1 << 16)
            self._waiting = None
            if data is None:
                self._is_woken = False
                return None
            if not data:
                raise ConnectionError("the other end has closed")
            self._received += data

    def wake(self) -> None:
        """Let the current or the following `next` return."""
        self._is_woken = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def send(self, message: JSONObject) -> None:
        """Send a message. Raises `ConnectionError` if the other end has closed, or takes nothing any more."""
        async with self._backend.scope(self._backend.clock() + ANSWER_SECONDS):
            await self._backend.checkpoint_if_cancelled()
            self.is_torn = True
            await self.stream.send(_lines([message]))
            self.is_torn = False
        if self.is_torn:
            raise ConnectionError("the other end takes nothing any more")

    def close(self) -> None:
        """Close the connection at once."""
        self.stream.close()


def _path_of(shared: bool | str | os.PathLike[str]) -> Path:
    """Return the path of the socket. Raises `PrivateSocketError`."""
    if isinstance(shared, bool):
        return make_runtime_folder(OPTION) / "shared"
    path = Path(shared).absolute()
    if not is_safe_folder(path.parent):
        raise PrivateSocketError(
            f"{str(path.parent)!a} is no folder in which only this user can replace files: give {OPTION} another path"
        )
    return path


class _Dialled(NamedTuple):
    connection: socket.socket
    status: os.stat_result


def _dial(path: Path) -> _Dialled | None:
    """Connect to the socket at a path. Return None if nobody listens there. Raises `PrivateSocketError`."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise PrivateSocketError(f"{str(path)!a} cannot be used: {error}") from None
    if not is_own_socket(path):
        raise PrivateSocketError(f"{path} is no socket of this user: give {OPTION} another path, or delete it")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(os.fspath(path))
        if not has_own_peer(connection):
            raise PrivateSocketError(f"{path} is served by another user: give {OPTION} another path")
    except PrivateSocketError:
        connection.close()
        raise
    except BlockingIOError:  # a keeper that accepts nothing
        pass
    except OSError as error:
        connection.close()
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):
            return None
        raise PrivateSocketError(f"{path} cannot be used: {error.strerror}") from None
    return _Dialled(connection, status)


# --- the keeper's files ---


class _Seat:
    """The keeper's socket and its file. The methods block.

    path: the socket's path.
    listener: the socket.
    state: what the keeper knows.
    """

    def __init__(
        self,
        path: Path,
        listener: socket.socket,
        status: os.stat_result,
        descriptor: int,
        header: bytes,
        size: int,
        state: KeeperState,
    ) -> None:
        self.path = path
        self.listener = listener
        self.state = state
        self._status = status
        self._file = descriptor
        self._header = header
        self._size = size
        self._most = max(FILE_BYTES, 2 * size)
        self._is_closed = False
        self._using = threading.Lock()

    @property
    def is_large(self) -> bool:
        """Whether the file should be written anew."""
        return self._size > self._most

    def write(self, records: bytes, *, whole: bool) -> bool:
        """Write records. Return whether this is still the keeper. Raises `OSError`.

        whole: whether they are all that a later keeper must know.
        """
        with self._using:
            return not self._is_closed and self._write(records, whole=whole)

    def _write(self, records: bytes, *, whole: bool) -> bool:
        if whole:
            with _locked(self.path) as is_locked:
                if is_locked and self._is_own():
                    descriptor = open_replacement(_beside(self.path, "state"), self._header + records)
                    os.close(self._file)
                    self._file, self._size = descriptor, len(records)
                    self._most = max(FILE_BYTES, 2 * self._size)
                    records = b""
        self._size += len(records)
        while records:
            records = records[os.write(self._file, records) :]
        os.utime(self._file)  # it shows that the keeper lives
        return self._is_own()

    def remove(self) -> None:
        """Remove the files, unless another process is the keeper."""
        with contextlib.suppress(OSError), _locked(self.path) as is_locked:
            if is_locked and self._is_own():
                remove_own(self.path, self._status)
                remove_own(_beside(self.path, "state"), os.fstat(self._file))
                _beside(self.path, "lock").unlink()

    def close(self, *, is_forked: bool) -> None:
        """Close the descriptors.

        is_forked: this process is a fork of the keeper's. No thread of it writes, and nobody would release the lock.
        """
        self.listener.close()
        with contextlib.nullcontext() if is_forked else self._using:
            self._is_closed = True
            os.close(self._file)

    def _is_own(self) -> bool:
        try:
            return os.path.samestat(self.path.lstat(), self._status)
        except OSError:
            return False


class _Written(NamedTuple):
    """What a keeper has written.

    socket: the device and the number of its socket's file.
    epoch: its number.
    configuration: its limits.
    records: what is known of budgets.
    age: the seconds since it last answered.
    """

    socket: JSON
    epoch: int
    configuration: JSONObject
    records: Sequence[JSONObject]
    age: float


def _read(path: Path) -> _Written | None:
    """Return what the last keeper has written; None if there is nothing, or nothing of use. Raises `OSError`."""
    name = _beside(path, "state")
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        status = _own_file(name, descriptor)
        data = file.read()
    try:
        header, *records = map(_object, data.split(b"\n")[:-1])  # the last line may be a part
    except (MessageError, ValueError):
        return None
    epoch, configuration = header.get("epoch"), header.get("configuration")
    if not isinstance(epoch, int) or not isinstance(configuration, dict):
        return None
    age = max(0.0, time.time() - status.st_mtime)
    return _Written(header.get("socket"), epoch, configuration, records, age)


@contextlib.contextmanager
def _locked(path: Path) -> Generator[bool, None, None]:
    """Hold the lock of a path. Yields False if another process has it. Raises `OSError`."""
    import fcntl

    name = _beside(path, "lock")
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        status = _own_file(name, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            is_there = os.path.samestat(os.lstat(name), status)
        except FileNotFoundError:
            is_there = False  # the last process has removed it meanwhile
        try:
            yield is_there
        finally:
            # Closing is not enough: a process that was forked meanwhile has the descriptor, too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _own_file(name: Path, descriptor: int) -> os.stat_result:
    """Return the status of an open file of this user alone. Raises `PrivateSocketError` for any other."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PrivateSocketError(f"{name} is not this user's alone: delete it, or give {OPTION} another path")
    return status


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _lines(messages: Sequence[JSONObject]) -> bytes:
    return b"".join(dumps(message) + b"\n" for message in messages)


def _object(line: bytes) -> JSONObject:
    try:
        return loads_object(line)
    except ValueError as error:
        raise MessageError(f"this is no object of JSON: {error}") from None
