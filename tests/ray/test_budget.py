"""`--budget` on three nodes: it is never exceeded while a node and the command are killed, and a larger one goes on.

The simulator counts what it answers. An answer costs 2 cents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manystream.simulator import Simulator
from tests.support.batches import records, unrecorded

from .batch_run import Run
from .nodes import Fault

pytest.importorskip("ray", reason="needs Ray: make ray")
pytest.importorskip("genai_prices", reason="needs the extra cost: make ray")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROWS = 3000
CENTS = 0.02

PRICE_LIST = """\
from decimal import Decimal
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import ClauseEquals, ModelInfo, ModelPrice, Provider
model = ModelInfo("sim-text", ClauseEquals("sim-text"), prices=ModelPrice(requests_kcount=Decimal(20)))
mill = Provider(id="mill", name="The mill", api_pattern=r"http://127\\.0\\.0\\.1", models=[model])
set_custom_snapshot(DataSnapshot([mill], from_auto_update=False))
"""
"""The module `sitecustomize` of the command and of all workers: a price list with the simulator's address."""


@pytest.fixture
def prices(tmp_path: Path) -> Iterator[None]:
    """Give all processes of the test the price list. It must be there before the cluster is started."""
    (tmp_path / "sitecustomize.py").write_text(PRICE_LIST, "utf-8")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, [before])])
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def accepted(simulator: Simulator) -> int:
    """Return the number of requests that the simulator has received."""
    return simulator.limit_counts()[0].accepted


def test_the_budget_holds_while_nodes_die(prices: None, cluster: Any, simulator: Simulator, tmp_path: Path) -> None:
    before, url = accepted(simulator), simulator.base_urls["openai-chat"]
    answers = tmp_path / "a.jsonl"

    def paid() -> float:
        return (accepted(simulator) - before) * CENTS

    def start(dollars: float) -> Run:
        return Run(tmp_path, cluster.address, url, "--budget", str(dollars), rows=ROWS, max_output_tokens=50)

    with start(20) as run:
        run.reach(300)
        with Fault(cluster, "killed"):
            run.end(status=1)
    first = paid()
    lost = unrecorded(answers)
    assert lost is not None
    print(f"node killed: ${first:.2f} of $20.00 at the server, {run.count} answers, ${lost:.2f} lost")
    assert first <= 20 + 1e-9
    assert "The budget is spent" in run.output
    assert run.count * CENTS + lost == pytest.approx(20, abs=CENTS)

    with start(40) as run:
        run.reach(run.count + 300)
        run.process.kill()
        run.process.wait()
    between = run.count
    with start(40) as run:
        run.end(status=1)
    lost = unrecorded(answers)
    assert lost is not None
    print(f"command killed: ${paid():.2f} of $40.00 at the server, {run.count} answers, ${lost:.2f} lost in all")
    assert paid() <= 40 + 1e-9
    assert run.count > between
    assert run.count * CENTS + lost == pytest.approx(40, abs=CENTS)

    with start(1000) as run:
        run.end()
        run.check()
    assert [record["id"] for record in records(tmp_path / "a.errors.jsonl")] == [None], "what was lost stays counted"


def test_almost_the_whole_budget_is_used(prices: None, cluster: Any, simulator: Simulator, tmp_path: Path) -> None:
    before, url = accepted(simulator), simulator.base_urls["openai-chat"]
    with Run(tmp_path, cluster.address, url, "--budget", "20", rows=ROWS, max_output_tokens=50) as run:
        run.end(status=1)
    paid = (accepted(simulator) - before) * CENTS
    print(f"without a fault: ${paid:.2f} of $20.00 at the server, {run.lost} workers lost")
    assert paid <= 20 + 1e-9
    assert paid >= 0.97 * 20 or run.lost
