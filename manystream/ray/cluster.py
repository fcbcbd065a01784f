"""Workers on other processes and machines, as a driver sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .. import ManystreamError
from .exchange import Offer
from .worker import WorkerReply


class ClusterError(ManystreamError, RuntimeError):
    """The cluster cannot be used. The message states the reason and what to do next."""


@dataclass(slots=True, frozen=True)
class Replied:
    """A worker has replied to an exchange."""

    worker: int
    reply: WorkerReply


@dataclass(slots=True, frozen=True)
class Unreachable:
    """An exchange has failed, and the worker may still live: repeat the exchange."""

    worker: int


@dataclass(slots=True, frozen=True)
class Died:
    """A worker has ended, for this reason."""

    worker: int
    reason: str


class Cluster(Protocol):
    """The operations of a cluster. None of them waits, except `collect`."""

    def start(self, worker: int, concurrency: int, *, instead_of: int | None) -> None:
        """Start a worker. It is not ready yet, but may be called.

        instead_of: a worker that was given up, whose machine should be avoided; None for any machine.
        """
        ...

    def call(self, worker: int, offer: Offer) -> None:
        """Send an exchange to a worker."""
        ...

    def collect(self, seconds: float) -> list[Replied | Unreachable | Died]:
        """Return what has happened. Wait at most so many seconds for something. This is called in another thread."""
        ...

    def kill(self, worker: int) -> None:
        """End a worker without waiting for it."""
        ...

    def resources(self) -> str:
        """Return in words what a worker needs and what is free, for an error message."""
        ...
