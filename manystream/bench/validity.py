"""Whether the figures of a run show the server: what this client itself added, and what it had left.

A client that has no time left reads late and sends late, and reports its own delays as the server's. So each run
measures its client, and each rule of `RULES` may make the result invalid. The rules ask what the client did in time. A
busy client may be precise: the kernel stamps what waits, and many events in one read cost less.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from .histogram import Counts, merge, new_counts, percentile, share_above

FULL_CORE = 0.98
"""A client that uses at least this share of the time in which it has the core never waits: it is the bottleneck."""
BUSY_CORE = 0.9
"""A simulator that uses at least this share of a core is late itself."""
SAFE_CORE = 0.75
"""The share of a core up to which a load is expected to be valid."""
LATE_SHARE, LATE = 0.005, 0.002
"""The largest share of the events whose times may be unknown by more than so many seconds: half of what a 99th
percentile leaves out. Times are unknown of events that were merged: one read returned them together, and the kernel
stamps the segments that wait in a socket with the time of the last. A late read of a single event has its right time,
and what came in one segment was sent together."""
TOGETHER_SHARE, FAST = 0.25, (0.0001, 0.002)
"""The largest share of the events that may be read together where the mean gap lies between these bounds, in seconds.
There an error below `LATE` is as long as a gap, so that with more the median is wrong. Shorter gaps are of answers that
were sent at once."""
ADDED_BOUNDS = (0.0005, 0.005)
"""What a client may add to a time at the 50th and the 99th percentile, in seconds. Times of an open loop count from the
due moment, so a late start adds to them."""
DESCRIPTOR_SHARE = 0.95
SHORTEST = 0.5
"""The shortest measured time, in seconds, that can be judged."""


@dataclass(slots=True)
class ClientFigures:
    """What one process of the client used and did in the measured time. Times are in seconds.

    seconds: the length of the measured time.
    cpu: processor time.
    waited: time in which the process was ready to run and had no core; None where the system does not report it.
    loop_lag: the longest iteration of the engine's loop.
    loop_delays: histogram of the time by which the loop was late for a regular alarm, also for those that it missed.
    reads: histogram of the time from the arrival of bytes to their reading; empty where the kernel does not stamp them.
    starts: histogram of the time from the moment at which a call of an open loop could start to its start.
    merged: the share of the gaps, or of the first contents if it is larger, whose times may be unknown by more than
        `LATE`, because events were merged.
    together: the share of the gaps whose times are unknown at all.
    gap: the mean of the gaps; 0 if there are none.
    retransmits: segments that were sent again; None where the system does not report it.
    descriptors: the most open descriptors; None where the system does not list them.
    descriptor_limit: how many this process may open; None where there is no limit.
    """

    seconds: float = 0.0
    cpu: float = 0.0
    waited: float | None = None
    loop_lag: float = 0.0
    loop_delays: Counts = field(default_factory=new_counts)
    reads: Counts = field(default_factory=new_counts)
    starts: Counts = field(default_factory=new_counts)
    merged: float = 0.0
    together: float = 0.0
    gap: float = 0.0
    retransmits: int | None = None
    descriptors: int | None = None
    descriptor_limit: int | None = None

    @property
    def share(self) -> float:
        """The share of a core that the process used."""
        return self.cpu / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        """The share of the time in which it could have a core that the process used."""
        available = self.seconds - (self.waited or 0.0)
        return self.cpu / max(available, self.cpu, 1e-9)


@dataclass(slots=True, frozen=True)
class Calibration:
    """What the client added against the built-in simulator at the same load. Times are in seconds.

    p50, p99: from the moment at which the simulator sent an event to the moment that the client noted for it.
    client_busy: the busy share of the client.
    simulator_share: the simulator's share of a core; None if it is unknown.
    shared_core: whether the simulator had to run on the client's core.
    """

    p50: float
    p99: float
    client_busy: float
    simulator_share: float | None = None
    shared_core: bool = False

    @property
    def is_imprecise(self) -> bool:
        """Whether the client adds too much. If the simulator itself had no core left, it is not known."""
        return (self.simulator_share or 0.0) < BUSY_CORE and _adds(self.p50, self.p99)


@dataclass(slots=True, frozen=True)
class Verdict:
    """Whether the figures of a run show the server.

    valid: None if the run was too short, or too few calls succeeded, to judge it.
    reasons: why it is not valid, or was not judged.
    largest: the largest load that is expected to be valid on this client; None if it is unknown.
    """

    valid: bool | None
    reasons: tuple[str, ...] = ()
    largest: float | None = None


def _adds(p50: float, p99: float) -> bool:
    return p50 > ADDED_BOUNDS[0] or p99 > ADDED_BOUNDS[1]


def _busy(client: ClientFigures) -> str:
    return f"the client used {client.busy:.0%} of its core: it was the bottleneck" if client.busy >= FULL_CORE else ""


def _merged(client: ClientFigures) -> str:
    """An idle client, too, merges the events of a burst, and hardly changes their times. Such reads are late by the
    work of the burst itself. So the loop must have been late."""
    late = min(client.merged, share_above(client.loop_delays, LATE))
    if late > LATE_SHARE:
        return f"the client read late, and {late:.1%} of the events together with others: their times are unknown"
    fast = min(client.together, *(share_above(delays, client.gap / 2) for delays in (client.reads, client.loop_delays)))
    if fast <= TOGETHER_SHARE or not FAST[0] <= client.gap <= FAST[1]:
        return ""
    return (
        f"the client read {fast:.1%} of the events together with others, and {client.gap * 1000:.2f} ms lie between two"
    )


def _loop(client: ClientFigures) -> str:
    """Where the kernel stamps no arrivals, the time of an event is that of its reading."""
    p99 = percentile(client.loop_delays, 0.99) or 0.0
    return f"the client's loop was {p99 * 1000:.1f} ms late (p99)" if not client.reads and p99 > ADDED_BOUNDS[1] else ""


def _starts(client: ClientFigures) -> str:
    p50, p99 = (percentile(client.starts, share) or 0.0 for share in (0.5, 0.99))
    return (
        f"the client started calls {p50 * 1000:.1f} ms (p50) and {p99 * 1000:.1f} ms (p99) late"
        if _adds(p50, p99)
        else ""
    )


def _descriptors(client: ClientFigures) -> str:
    used, limit = client.descriptors, client.descriptor_limit
    if used is None or limit is None or used < DESCRIPTOR_SHARE * limit:
        return ""
    return f"the client had {used:,} of {limit:,} descriptors open"


RULES: tuple[Callable[[ClientFigures], str], ...] = (_busy, _merged, _loop, _starts, _descriptors)
"""Functions of a client that return why the result is invalid, or an empty text."""


def judge(clients: Sequence[ClientFigures], calibration: Calibration | None, *, load: float, ok: int) -> Verdict:
    """Return the verdict on a run.

    calibration: what was measured before the run; None if nothing was.
    load: the load that was reached: calls at a time, or calls per second.
    ok: calls that succeeded, or streams that received content.
    """
    if not ok:
        return Verdict(None, ("no call succeeded",))
    if min(client.seconds for client in clients) < SHORTEST:
        return Verdict(None, (f"the measured time was shorter than {SHORTEST:g} s",))
    found = (next((reason for client in clients if (reason := rule(client))), "") for rule in RULES)
    reasons = [reason for reason in found if reason]
    if calibration is not None and calibration.is_imprecise:
        reasons.append(
            f"against the simulator the client added {calibration.p50 * 1000:.2f} ms (p50) and"
            f" {calibration.p99 * 1000:.2f} ms (p99)"
        )
    busiest = max(client.busy for client in clients)
    waited = max((client.waited or 0.0) / client.seconds for client in clients)
    if reasons and waited > 1 - BUSY_CORE:
        reasons.append(f"other processes kept the client from its core for {waited:.0%} of the time")
    valid: bool | None = not reasons
    largest = None
    if busiest and not (reasons and busiest < SAFE_CORE / 2):  # else the load is not the cause
        largest = load * SAFE_CORE / max(busiest, 1.0) if reasons else load * max(1.0, SAFE_CORE / busiest)
    if valid and calibration is None:
        valid, reasons = None, ["this client was not calibrated"]
    return Verdict(valid, tuple(reasons), largest)


def combined(clients: Sequence[ClientFigures]) -> ClientFigures:
    """Return the figures of several processes as those of one: sums of what was used, the worst of what was late."""
    total = ClientFigures(max(client.seconds for client in clients))
    for client in clients:
        total.cpu += client.cpu
        total.loop_lag = max(total.loop_lag, client.loop_lag)
        total.merged = max(total.merged, client.merged)
        total.together = max(total.together, client.together)
        for name in ("loop_delays", "reads", "starts"):
            merge(getattr(total, name), getattr(client, name))
        for name in ("waited", "retransmits", "descriptors", "descriptor_limit"):
            value, sum_so_far = getattr(client, name), getattr(total, name)
            if value is not None:
                setattr(total, name, value + (sum_so_far or 0))
    return total


# --- what the system reports of a process ---


def process_seconds(process: int) -> float | None:
    """Return the processor time of a process in seconds, or None if it cannot be read from /proc (see proc(5))."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def waited_seconds() -> float | None:
    """Return the time in which this thread was ready to run and had no core, in seconds (Linux); None elsewhere."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def open_descriptors() -> int | None:
    """Return the number of open descriptors of this process; None where the system does not list them."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def descriptor_limit() -> int | None:
    """Return how many descriptors this process may open; None where there is no limit."""
    with suppress(ImportError, OSError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return None if limit == resource.RLIM_INFINITY else limit
    return None


class Meter:
    """Measures this process. `restart` begins the measured time; `figures` returns what was used since.

    simulator: the process id of the simulator, or None.
    """

    def __init__(self, simulator: int | None = None) -> None:
        self._simulator = simulator
        self.restart()

    def restart(self) -> None:
        """Begin the measured time."""
        self.began: float = time.perf_counter()
        self._cpu = time.process_time()
        self._waited = waited_seconds()
        self.loop_lag: float = 0.0
        self.descriptors: int | None = open_descriptors()
        self.starts: Counts = new_counts()
        self.loop_delays: Counts = new_counts()
        self._simulator_before = self._simulator_time()

    def _simulator_time(self) -> float | None:
        return process_seconds(self._simulator) if self._simulator is not None else None

    @property
    def simulator_seconds(self) -> float | None:
        """The CPU seconds of the simulator since `restart`; None if they are not known."""
        before, after = self._simulator_before, self._simulator_time()
        return after - before if after is not None and before is not None else None

    def look(self) -> None:
        """Note the number of open descriptors."""
        found = open_descriptors()
        if found is not None:
            self.descriptors = max(found, self.descriptors or 0)

    def figures(self, reads: Counts, retransmits: int | None) -> ClientFigures:
        """Return what was used since `restart`."""
        waited = waited_seconds()
        return ClientFigures(
            seconds=max(time.perf_counter() - self.began, 1e-6),
            cpu=time.process_time() - self._cpu,
            waited=waited - self._waited if waited is not None and self._waited is not None else None,
            loop_lag=self.loop_lag,
            loop_delays=self.loop_delays,
            reads=reads,
            starts=self.starts,
            retransmits=retransmits if sys.platform == "linux" else None,
            descriptors=self.descriptors,
            descriptor_limit=descriptor_limit(),
        )
