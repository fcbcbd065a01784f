"""A cluster whose workers are threads of this process: the driver, the workers and the messages without Ray."""

import queue
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from manystream.ray.cluster import Died, Replied, Unreachable
from manystream.ray.exchange import Offer
from manystream.ray.worker import Worker, WorkerOptions


class ThreadCluster:
    """The workers of one driver.

    options: the options of the workers. Each has a concurrency of its own.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.workers: dict[int, Worker] = {}
        self._all: list[Worker] = []
        self._events: queue.SimpleQueue[Replied | Unreachable | Died] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor()

    def start(self, worker: int, concurrency: int, *, instead_of: int | None) -> None:
        self.workers[worker] = Worker(replace(self.options, concurrency=concurrency))
        self._all.append(self.workers[worker])

    def call(self, worker: int, offer: Offer) -> None:
        self._threads.submit(self._exchange, worker, self.workers[worker], offer)

    def _exchange(self, number: int, worker: Worker, offer: Offer) -> None:
        self._events.put(Replied(number, worker.exchange(offer)))

    def collect(self, seconds: float) -> list[Replied | Unreachable | Died]:
        events: list[Replied | Unreachable | Died] = []
        try:
            events.append(self._events.get(timeout=seconds))
            while True:
                events.append(self._events.get_nowait())
        except queue.Empty:
            return events

    def kill(self, worker: int) -> None:
        self.workers.pop(worker, None)

    def resources(self) -> str:
        return "each needs a thread"

    def close(self) -> None:
        """End all workers and threads."""
        for worker in self._all:
            worker.close()
        self._threads.shutdown()


@contextmanager
def connect(address: str, workers: int | None) -> Generator[int, None, None]:
    """Take the place of `ray_cluster.connect`."""
    yield workers or 2
