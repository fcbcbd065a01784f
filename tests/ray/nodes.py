"""Nodes of a Ray cluster on this machine: their processes, and how they are killed and frozen."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any


def processes_below(pid: int) -> list[int]:
    """Return a process and all processes that it has started, directly or not."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def raylet(node: Any) -> int:
    """Return the process of a node's raylet."""
    return int(node.all_processes["raylet"][0].process.pid)


def send(node: Any, number: signal.Signals) -> None:
    for pid in processes_below(raylet(node)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def busy_node(cluster: Any) -> Any:
    """Return a node on which a worker runs."""
    return next(node for node in cluster.worker_nodes if any(map(is_worker, processes_below(raylet(node)))))


def is_worker(pid: int) -> bool:
    """Return whether a process is an actor with a worker of the batch: Ray writes its class into its name."""
    try:
        return b"WorkerActor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


ASKS, KEEPS, RATES = b"MapWorker(MapBatches(Ask))", b"AnswerActor", b"RateActor"
"""What the titles of processes hold that ask rows, of the one that keeps the journal, and of the keeper of rates."""


def titled(pid: int, title: bytes) -> list[int]:
    """Return the processes below this one whose title holds a text."""
    found: list[int] = []
    for process in processes_below(pid):
        try:
            has_title = title in Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if has_title:
            found.append(process)
    return found


FAULTS = {"killed": (signal.SIGKILL, 0.0), "frozen": (signal.SIGSTOP, 0.0), "frozen for 8 s": (signal.SIGSTOP, 8.0)}


class Fault:
    """A node that fails, and comes back after some seconds or at the end of the block, so that it can be ended."""

    def __init__(self, cluster: Any, kind: str) -> None:
        number, seconds = FAULTS[kind]
        self.node = busy_node(cluster)
        send(self.node, number)
        self._back = threading.Timer(seconds, send, (self.node, signal.SIGCONT)) if seconds else None
        if self._back is not None:
            self._back.start()

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        if self._back is not None:
            self._back.cancel()
            self._back.join()
        send(self.node, signal.SIGCONT)
