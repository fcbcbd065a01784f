"""`manystream batch --ray`: connect to a cluster, and divide the calls among its workers.

The command imports this module where the option is given.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from .. import Provider
from ..batch import BatchBudget, Journal, Shard
from ..batch.printed import PrintedRecords
from ..engine.request.credentials import find_key
from ..ray.cluster import ClusterError
from ..ray.driver import ClusterBatch
from ..ray.ray_cluster import LOCAL, RayCluster, connect
from ..ray.worker import WorkerOptions as WorkerOptions
from .batch_targets import TargetOptions
from .output.errors import CommandError


def check_ray(address: str | None, targets: TargetOptions) -> None:
    """Raise `CommandError` for options that do not fit together.

    address: the value of `--ray`.
    targets: where the lines are sent. Only processes of this machine can reach the simulator.
    """
    if address is None:
        raise CommandError("--actors is the number of workers on a Ray cluster: name the cluster with --ray", status=2)
    if targets.simulated and address != LOCAL:
        raise CommandError(
            f"the simulator answers on this machine only, and --ray {address} may use others: name a --model, or"
            " use --ray local",
            status=2,
        )


def with_key(provider: Provider, environment: Mapping[str, str]) -> Provider:
    """Return a provider that holds its key, because the workers' machines have another environment.

    Raises `InvalidRequestError` if the provider needs a key and has none.
    """
    keyed = copy.copy(provider)
    keyed.api_key = find_key(provider, environment) or None
    return keyed


@contextmanager
def open_cluster_batch(
    address: str,
    actors: int | None,
    options: WorkerOptions,
    journal: Journal | PrintedRecords,
    *,
    retry_failed: bool,
    shard: Shard | None,
    budget: BatchBudget | None,
) -> Generator[ClusterBatch, None, None]:
    """Connect to the cluster and yield a batch over it. Raises `CommandError`.

    options: the options of the workers; its concurrency is that of all workers together.
    budget: the budget of all workers together; None for no budget.
    """
    try:
        with connect(address, actors) as free:
            workers = max(1, min(actors or free, options.concurrency))
            yield ClusterBatch(
                RayCluster(options),
                journal,
                concurrency=shares(options.concurrency, workers),
                retry_failed=retry_failed,
                source=options.source,
                shard=shard,
                limit=options.limit,
                budget=budget,
            )
    except ClusterError as error:
        raise CommandError(str(error), status=2) from None


def shares(concurrency: int, workers: int) -> list[int]:
    """Return each worker's part of the calls at a time. The parts differ by 1 at most."""
    return [concurrency // workers + (worker < concurrency % workers) for worker in range(workers)]
