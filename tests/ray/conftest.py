"""What several tests of the folder use: a cluster of three nodes, and a server that counts requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from manystream.simulator import Simulator, open_simulator


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator("events=2", limits=["requests-per-minute=1000000000"]) as simulator:
        yield simulator


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Start a head without CPUs, where the driver is, and three nodes of two CPUs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(3):
            cluster.add_node(num_cpus=2)
        yield cluster
    finally:
        cluster.shutdown()
