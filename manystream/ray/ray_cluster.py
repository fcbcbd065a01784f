"""A cluster of Ray. It is the only module that imports Ray.

Ray places the workers and carries the messages. It repeats no call and restarts no worker (`max_restarts=0`,
`max_task_retries=0`): only the driver knows what was answered. A key is an argument of the worker's constructor, never
part of `runtime_env`, which Ray stores in clear text.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, cast

from .cluster import ClusterError, Died, Replied, Unreachable
from .exchange import Offer
from .worker import Worker, WorkerOptions, WorkerReply

LOCAL = "local"
"""The address that starts a Ray on this machine for the time of the run."""

PROBE_SECONDS = 3.0
"""`ray.init` at an address where nobody answers hangs for minutes. So the port is tried first, as long as this."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""What a client of HTTP/2 sends first (RFC 9113, 3.4): the preface, and an empty SETTINGS frame. The head of a cluster
speaks gRPC, which is HTTP/2."""

FRAME_HEAD = 9
SETTINGS = 4
"""A server of HTTP/2 sends a SETTINGS frame first. The type is at the fourth of the nine bytes of a frame's head."""

MOST_REASON = 400
"""The most characters of Ray's report that are shown."""

ACTOR_OPTIONS: dict[str, object] = {
    "num_cpus": 1,
    "max_restarts": 0,
    "max_task_retries": 0,
    "max_concurrency": 2,  # a repetition of an exchange may run beside the first
    "scheduling_strategy": "SPREAD",
    "enable_task_events": False,  # Ray's dashboard needs no event of each exchange
}


class _Reference(Protocol):
    """The result of a call, which may not be there yet."""

    def __hash__(self) -> int: ...


class WorkerActor:
    """The actor: a worker, and the node where it is."""

    def __init__(self, options: WorkerOptions) -> None:
        self._worker = Worker(options)
        self._node = str(import_ray().get_runtime_context().get_node_id())

    def exchange(self, offer: Offer) -> tuple[str, WorkerReply]:
        """Return the node's id, and the worker's reply."""
        return self._node, self._worker.exchange(offer)


class RayCluster:
    """The workers of one driver.

    options: the options of the workers. Each has a concurrency of its own.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._ray = import_ray()
        self._options = options
        self._actors: dict[int, Any] = {}
        self._nodes: dict[int, str] = {}
        self._open: dict[_Reference, int] = {}

    def start(self, worker: int, concurrency: int, *, instead_of: int | None) -> None:
        actor_options = dict(ACTOR_OPTIONS)
        node = self._nodes.get(instead_of) if instead_of is not None else None
        if node is not None and self._has_other_nodes(node):
            actor_options["label_selector"] = {"ray.io/node-id": f"!{node}"}
        self._actors[worker] = self._ray.remote(**actor_options)(WorkerActor).remote(
            replace(self._options, concurrency=concurrency)
        )

    def call(self, worker: int, offer: Offer) -> None:
        reference = cast("_Reference", self._actors[worker].exchange.remote(offer))
        self._open[reference] = worker

    def collect(self, seconds: float) -> list[Replied | Unreachable | Died]:
        ready = self._wait(1, seconds)
        if ready and len(self._open) > 1:
            ready = self._wait(len(self._open), 0)
        return [event for reference in ready if (event := self._event(reference)) is not None]

    def kill(self, worker: int) -> None:
        actor = self._actors.pop(worker, None)
        if actor is not None:
            with contextlib.suppress(Exception):  # it may have died already
                self._ray.kill(actor)

    def resources(self) -> str:
        free, total = (int(found.get("CPU", 0)) for found in (self._ray.available_resources(), self._cluster()))
        return (
            f"each needs 1 CPU, and {free} of the cluster's {total} CPUs are free; wait until others have ended, or ask"
            " for fewer with --actors"
        )

    def _cluster(self) -> dict[str, float]:
        return cast("dict[str, float]", self._ray.cluster_resources())

    def _has_other_nodes(self, node: str) -> bool:
        nodes = cast("list[dict[str, object]]", self._ray.nodes())
        return any(entry["Alive"] and entry["NodeID"] != node for entry in nodes)

    def _wait(self, count: int, seconds: float) -> list[_Reference]:
        ready, _ = self._ray.wait(list(self._open), num_returns=count, timeout=seconds)
        return cast("list[_Reference]", ready)

    def _event(self, reference: _Reference) -> Replied | Unreachable | Died | None:
        worker = self._open.pop(reference)
        errors = self._ray.exceptions
        try:
            self._nodes[worker], reply = cast("tuple[str, WorkerReply]", self._ray.get(reference, timeout=0))
        except errors.ActorUnavailableError:
            return Unreachable(worker)
        except errors.RayActorError as error:
            return Died(worker, _reason(error))
        except errors.RayTaskError:  # a late copy of an exchange, which the actor has refused
            return None
        except errors.RayError as error:  # the reply was lost with its node
            return Died(worker, _reason(error))
        return Replied(worker, reply)


def _reason(error: BaseException) -> str:
    """Return the line of Ray's report that has the reason: the last one if the constructor has raised."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    return lines[-1].strip() if "creation task" in lines[0] else lines[0]


def import_ray() -> Any:
    """Return the module `ray`. Raises `ClusterError` if it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ClusterError(f"Ray is not installed ({error}): pip install '.[ray]' in manystream's checkout") from None


@contextmanager
def connect(address: str, workers: int | None) -> Generator[int, None, None]:
    """Connect to a cluster, or start one on this machine; yield the number of its CPUs. Raises `ClusterError`.

    address: `HOST:PORT` of the cluster's head, `auto` for the cluster of this machine, or `local` for a new one.
    workers: the number of workers; None for as many as there are CPUs.
    """
    ray = import_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, object] = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
    if address == LOCAL:
        options |= {"address": LOCAL, "num_cpus": max(workers or 1, os.cpu_count() or 1)}
    else:
        if address != "auto":
            _probe(address)
        options = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(**options)
    except Exception as error:  # Ray raises many kinds, such as RuntimeError for another version
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ClusterError(f"cannot connect to the Ray cluster at {address}: {reason[:MOST_REASON]}") from None
    try:
        yield int(ray.cluster_resources().get("CPU", 0))
    finally:
        ray.shutdown()


def _probe(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterError(f"--ray {address}: must be HOST:PORT of the cluster's head, auto or local")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS) as connection:
            answers = _has_tls() or _speaks_http2(connection)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(f"no Ray cluster answers at {address}: {reason}; `ray start --head` starts one") from None
    if not answers:
        raise ClusterError(
            f"no Ray cluster answers at {address}: what listens there is no head of a cluster; the port of `ray start"
            " --head` is 6379 unless --port was given"
        )


def _has_tls() -> bool:
    """Return whether Ray is configured to use TLS. Then a server answers nothing to plain text."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def _speaks_http2(connection: socket.socket) -> bool:
    """Return whether the server answers as a server of HTTP/2 does. Raises `OSError`, also for a timeout."""
    connection.sendall(PREFACE)
    head = b""
    while len(head) < FRAME_HEAD:
        data = connection.recv(FRAME_HEAD - len(head))
        if not data:
            return False
        head += data
    return head[3] == SETTINGS
