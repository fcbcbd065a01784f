"""A `manystream batch --ray` that runs as a command, beside the faults of a test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROWS = 5000
CONCURRENCY = 450
WAIT = 300.0
LOOK = 0.1


class Run:
    """A command that runs, and its files. At the end of the block it is killed if it still runs.

    more: further words of the command line.
    options: further members of each line.
    """

    def __init__(self, folder: Path, address: str, url: str, *more: str, rows: int = ROWS, **options: object) -> None:
        prompts, self.answers = folder / "p.jsonl", folder / "a.jsonl"
        if not prompts.exists():
            message = {"role": "user", "content": "simulate: delay=0.5"}
            lines = (json.dumps({"id": f"q{number}", "messages": [message], **options}) for number in range(rows))
            prompts.write_text("\n".join(lines), "utf-8")
        self.output = ""
        self.rows = rows
        words = ["p.jsonl", "-o", "a.jsonl", "--ray", address, "--actors", "3", "--concurrency", str(CONCURRENCY)]
        words += ["--model", "sim-text", "--base-url", url, "--plain", *more]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "manystream", "batch", *words], cwd=folder,
            env=os.environ | {"OPENAI_API_KEY": "any"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            encoding="utf-8",
        )  # fmt: skip

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process as process:  # closes its output, and waits
            process.kill()

    @property
    def count(self) -> int:
        """The number of answers so far."""
        return self.answers.read_bytes().count(b"\n") if self.answers.exists() else 0

    def reach(self, count: int) -> None:
        deadline = time.monotonic() + WAIT
        while self.count < count and self.process.poll() is None:
            assert time.monotonic() < deadline, f"{self.count} answers after {WAIT} seconds"
            time.sleep(LOOK)
        assert self.process.poll() is None, self.process.communicate()[0]

    def end(self, status: int = 0) -> float:
        """Wait until the command has ended with this status. Return its longest pause without an answer, in seconds.

        A time during which this process did not run either counts as no pause of the command.
        """
        pause, seen = 0.0, self.count
        last = looked = time.monotonic()
        deadline = last + WAIT
        while self.process.poll() is None and looked < deadline:
            time.sleep(LOOK)
            now = time.monotonic()
            last += max(0.0, now - looked - 2 * LOOK)
            looked = now
            if self.count > seen:
                pause, last, seen = max(pause, now - last), now, self.count
        assert self.process.poll() is not None, f"{self.count} answers after {WAIT} seconds"
        self.output = self.process.communicate(timeout=10)[0]
        assert self.process.returncode == status, self.output
        return pause

    @property
    def lost(self) -> int:
        """The number of workers that the command has given up."""
        found = re.search(r"^([0-9]+) workers? (was|were) lost", self.output, re.MULTILINE)
        return int(found[1]) if found is not None else 0

    def check(self) -> None:
        """Check that every row has one answer."""
        ids = [json.loads(line)["id"] for line in self.answers.read_bytes().splitlines()]
        assert len(ids) == len(set(ids)) == self.rows
