"""Report on a running engine to other processes: a Unix socket that responds to each line with one line of JSON.

    async with ms.open_engine(providers=[…], monitor=True) as engine: …

    $ manystream top
    $ echo | nc -U "$XDG_RUNTIME_DIR/manystream/4711.sock"

A client receives a report only on request, so a client that reads slowly, or never, blocks only its own task. The
report uses the engine's normal counters, so a monitor without clients costs one descriptor. A report is built in
slices, so that no stream waits for all of it. It contains no content: no prompt, answer, header or key. It contains the
names of providers, models, routes and tenants, and the servers' origins.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import socket
import time
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from ..providers.errors import ManystreamError
from ..providers.json.json_values import dumps_printable
from .call.completion import CallFigures
from .private_socket import (
    LocalStream,
    PrivateSocketError,
    has_own_peer,
    is_own_folder,
    is_own_socket,
    is_served,
    listen,
    make_runtime_folder,
    remove_own,
    runtime_folder,
    serve,
)
from .request.noting import NoteLogger
from .traffic.budgets.amounts import MEMBERS, BudgetStatistics

if TYPE_CHECKING:
    from .call.call import RunningCall
    from .call.timeouts import CallState
    from .gate import Calls
    from .observe.statistics import Statistics

logger: NoteLogger = NoteLogger("manystream.monitor")

FORMAT = 1
"""The version of the format, in each report. It changes if a member is removed or changes its meaning, not if one is
added."""

SLICE = 250
"""The number of calls that one slice reads before the streams are served: about a quarter of a millisecond."""
LISTED = 50
"""The number of calls that a report lists individually: of the oldest and of the quietest calls each. A report lists as
many budgets, those of which the least is left."""

LEAST_SECONDS = 0.1
"""The minimum of seconds between two reports, over all clients. An earlier request gets the last report again."""
CLIENTS = 8
PATIENCE = 10.0
"""Seconds that a client may take to read a report."""
ASK_WITHIN = 120.0
"""Seconds after which an idle client is disconnected."""


class MonitorError(ManystreamError, RuntimeError):
    """The monitor's socket cannot be created. The message names the path and the remedy."""


class Monitor:
    """The socket of one engine, from now on. path: where; default: below `runtime_folder()`, named by the process.

    Raises `MonitorError`. `run` must be called, and removes the socket at its end.
    """

    def __init__(self, calls: Calls, path: str | os.PathLike[str] | None = None) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise MonitorError("monitor= needs Unix sockets, which this system does not have: leave it out")
        self._calls = calls
        self._backend = calls.backend
        try:
            self.path: Path = Path(path) if path is not None else _free_path()
            self._listener = listen(self.path, CLIENTS, "monitor=")
        except PrivateSocketError as error:
            raise MonitorError(str(error)) from None
        self._opened = self._backend.clock()
        self._status = self.path.lstat()
        self._clients = 0
        self._looking = self._backend.lock()
        self._answer = b""
        self._answered = -LEAST_SECONDS

    def __repr__(self) -> str:
        return f"<Monitor {self.path}, {self._clients} clients>"

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await serve(self._backend, self._listener, self._serve)
        finally:
            self._listener.close()
            if not self._calls.home.is_forked:  # else the parent is served at this path
                with contextlib.suppress(OSError):
                    remove_own(self.path, self._status)

    async def _serve(self, stream: LocalStream) -> None:
        if self._clients >= CLIENTS:
            return
        self._clients += 1
        try:
            await self._answer_lines(stream)
        except ConnectionError:
            pass  # it went
        except Exception:  # a defect must cost one look, not the engine
            logger.exception("a look at the engine raised: a defect in manystream")
        finally:
            self._clients -= 1

    async def _answer_lines(self, stream: LocalStream) -> None:
        clock = self._backend.clock
        while True:
            asked = b""
            async with self._backend.scope(clock() + ASK_WITHIN):
                asked = await stream.receive(4096)
            if not asked:
                return
            if b"\n" not in asked:  # what a line says means nothing yet
                continue
            answer = await self.look()
            is_read = False
            async with self._backend.scope(clock() + PATIENCE):
                await stream.send(answer)
                is_read = True
            if not is_read:
                return

    async def look(self) -> bytes:
        """Return a report that is at most a tenth of a second old: one line of JSON."""
        async with self._looking:
            wait = self._answered + LEAST_SECONDS - self._backend.clock()
            if wait > 0 and self._answer:
                await self._backend.sleep(wait)  # a client that asks continuously gets ten reports a second
            self._answer = dumps_printable(await self._describe()) + b"\n"
            self._answered = self._backend.clock()
            return self._answer

    async def _describe(self) -> dict[str, object]:
        now = self._backend.clock()
        calls = self._calls.running()
        oldest = [figures_of(call, now) for call in calls[:LISTED]]
        streams = 0
        states: Counter[CallState] = Counter()
        quietest: list[tuple[float, int, RunningCall]] = []
        for start in range(0, len(calls), SLICE):
            running = [call for call in calls[start : start + SLICE] if call.completion is None]
            streams += sum(call.prepared.stream for call in running)
            states.update(call.state for call in running)
            keyed = [(quiet(call, now), -call.number, call) for call in running]
            quietest = heapq.nlargest(LISTED, [*quietest, *keyed])
            await self._backend.checkpoint()
        return {
            "manystream": _version(),
            "format": FORMAT,
            "pid": os.getpid(),
            "time": time.time(),
            "uptime": now - self._opened,
            "streams": streams,
            "statistics": _as_members(self._calls.totals({state.value: count for state, count in states.items()})),
            "oldest": oldest,
            "quietest": [figures_of(call, now) for _, _, call in quietest if call.completion is None],
        }


# --- figures ---


def quiet(call: RunningCall, now: float) -> float:
    """Return the seconds since a byte was last sent or received; the call's age while it has no connection."""
    connection = None if call.attempt is None else call.attempt.connection
    return now - (call.started if connection is None else connection.last_activity)


def figures_of(call: RunningCall, now: float) -> CallFigures:
    """Return the figures of a running call, without any content. `now`: the time on the loop's clock."""
    prepared, attempt = call.prepared, call.attempt
    return CallFigures(
        number=call.number,
        provider=prepared.provider.name,
        model=prepared.model,
        stream=prepared.stream,
        state=call.state.value,
        age=now - call.started,
        quiet=quiet(call, now),
        attempts=call.attempts,
        request_id=None if attempt is None else attempt.request_id,
    )


# --- figures as JSON ---


def _as_members(statistics: Statistics) -> dict[str, object]:
    """Return statistics as values that JSON has."""
    members = {each.name: getattr(statistics, each.name) for each in fields(statistics)}
    traffic = statistics.traffic
    fullest = heapq.nlargest(LISTED, traffic.budgets, key=_share)
    budgets = [_budget_members(each) for each in fullest]
    members["traffic"] = {"limiters": traffic.limiters, "routes": traffic.routes, "budgets": budgets}
    return members


def _budget_members(statistics: BudgetStatistics) -> dict[str, object]:
    """Return a budget with the amounts that it limits. A budget itself may hold functions, which JSON has not."""
    budget, tenant = statistics.budget, statistics.tenant
    if tenant is not None:
        tenant = tenant.encode("utf-8", "replace").decode()  # JSON has no half of a surrogate pair
    limited = [member for member in MEMBERS if budget.limits(member)]
    members: dict[str, object] = {
        name: {member: getattr(given, member) for member in limited}
        for name, given in (
            ("limit", statistics.limit),
            ("spent", statistics.spent),
            ("reserved", statistics.reserved),
        )
    }
    members |= {"per": budget.per, "every": budget.every, "tenant": tenant}
    return members | {"waiting": statistics.waiting, "ends_in": statistics.ends_in}


def _share(statistics: BudgetStatistics) -> float:
    """Return the used part of the amount of which the least is left."""
    taken = statistics.spent.plus(statistics.reserved)
    return max(used / limit if limit else math.inf for used, limit in zip(taken, statistics.limit, strict=True))


# --- where sockets are ---


def sockets(folder: Path | None = None) -> list[Path]:
    """Return the sockets of running monitors in a folder (default: `runtime_folder()`), sorted by name.

    A folder or a socket of another user counts as none: anybody can make them in a folder for temporary files.
    """
    folder = folder or runtime_folder()
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix == ".sock") if is_own_folder(folder) else []
    except OSError:
        return []
    return [path for path in found if is_own_socket(path) and is_served(path)]


def _free_path() -> Path:
    folder = make_runtime_folder("monitor=")
    path, number = folder / f"{os.getpid()}.sock", 1
    while is_served(path):  # by another engine of this process
        number += 1
        path = folder / f"{os.getpid()}-{number}.sock"
    return path


def _version() -> str:
    from .. import __version__

    return __version__


__all__ = ["FORMAT", "Monitor", "MonitorError", "has_own_peer", "is_own_folder", "runtime_folder", "sockets"]
