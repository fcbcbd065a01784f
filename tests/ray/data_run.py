"""A program that asks the rows of a data set, beside the faults of a test."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROGRAM = Path(__file__).with_name("data_program.py")
ROWS = 5000
FAILING = ROWS // 100
BLOCKS = 60
CONCURRENCY = 450
WAIT = 300.0
GAINED = {"text", "error", "usage", "finish_reason"}


class DataRun:
    """A program that runs, and its files.

    url: the server.
    count: returns the number of requests that the server has answered.
    changes: settings of `data_program.py` that differ.
    """

    def __init__(
        self, folder: Path, address: str, url: str, count: Callable[[], int], *, journal: bool = True, **changes: object
    ) -> None:
        self.answers, self.output = folder / "a.jsonl", folder / "rows.jsonl"
        self._count = count
        self._count_before = count()
        settings: dict[str, object] = {
            "address": address, "base_url": url, "rows": ROWS, "blocks": BLOCKS, "actors": 3,
            "concurrency": CONCURRENCY, "delay": 0.5, "journal": str(self.answers) if journal else None,
            "requests_per_second": None, "output": str(self.output),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(settings | changes)], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, encoding="utf-8",
        )  # fmt: skip

    @property
    def requests(self) -> int:
        """The number of requests that the server has answered. The simulator does not count the rows that fail."""
        return self._count() - self._count_before

    def reach(self, count: int) -> None:
        deadline = time.monotonic() + WAIT
        while self.requests < count and self.process.poll() is None:
            assert time.monotonic() < deadline, f"{self.requests} requests after {WAIT} seconds"
            time.sleep(0.1)
        assert self.process.poll() is None, self.process.communicate()[0]

    def end(self) -> str:
        """Wait until the program has ended with status 0. Return what it printed."""
        output = self.process.communicate(timeout=WAIT)[0]
        assert self.process.returncode == 0, output
        return output

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def check(self) -> None:
        """Check that every row is there once, with its own answer."""
        rows = [json.loads(line) for line in self.output.read_text("utf-8").splitlines()]
        assert sorted(row["number"] for row in rows) == list(range(ROWS))
        for row in rows:
            failed = row["number"] % 100 == 0
            assert row["id"] == f"q{row['number']}"
            assert row.keys() == {"id", "messages", "number", *GAINED}
            assert bool(row["error"]) == failed, row
            assert bool(row["text"]) != failed
            assert failed or (row["finish_reason"] == "stop" and row["usage"]["output_tokens"] >= 0)

    def check_journal(self) -> None:
        """Check that every answer is recorded once."""
        ids = [json.loads(line)["id"] for line in self.answers.read_bytes().splitlines()]
        assert len(ids) == len(set(ids)) == ROWS - FAILING
