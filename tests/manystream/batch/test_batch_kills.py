"""`kill -9` of `manystream batch --via batch` at random moments, with the server's own count of what it was given."""

import itertools
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manystream.simulator import Simulator, open_simulator
from tests.support.batches import records, write

LINES = 40
BATCH_SECONDS = 1.5
LONGEST = 300.0
RUNS = 50
"""A batch has ended after so many runs at the latest."""

PROVIDERS = {"openai-compatible": "/v1", "anthropic": "", "gemini": ""}
"""Provider → what follows the origin in its base URL."""


def pages(simulator: Simulator, name: str, method: str = "GET") -> Any:
    request = urllib.request.Request(f"{simulator.origin}/sim/{name}", method=method)
    with urllib.request.urlopen(request, timeout=LONGEST) as response:
        return json.load(response)


def texts(body: Any) -> list[str]:
    """All texts below a value."""
    if isinstance(body, str):
        return [body]
    values: list[Any] = []
    if isinstance(body, dict | list):
        values += body.values() if isinstance(body, dict) else body
    return [text for value in values for text in texts(value)]


class Batches:
    """Runs of the command against a simulator."""

    def __init__(self, simulator: Simulator, folder: Path, seed: int) -> None:
        self.simulator = simulator
        self.folder = folder
        self.random = random.Random(seed)
        self.seen: list[dict[str, Any]] = []

    def take_requests(self) -> bool:
        """Take what the simulator received. Returns whether it received anything."""
        requests = pages(self.simulator, "requests", "DELETE")
        self.seen += requests
        return bool(requests)

    def run(self, name: str, provider: str, kill: bool) -> int | None:
        """Run the command, and perhaps kill it some time after its first request. Returns its exit status."""
        base_url = self.simulator.origin + PROVIDERS[provider]
        prompts, answers = str(self.folder / f"{name}-prompts.jsonl"), str(self.folder / f"{name}.jsonl")
        process = subprocess.Popen(
            [sys.executable, "-m", "manystream", "batch", prompts, "-o", answers,
             "--provider", provider, "--base-url", base_url, "--via", "batch", "--plain"],
            env={**os.environ, "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k"},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            self.wait(process, self.take_requests)
            if kill:
                moment = time.monotonic() + self.random.uniform(0, BATCH_SECONDS * 1.2)
                self.wait(process, lambda: time.monotonic() >= moment)
                process.kill()
            _, errors = process.communicate(timeout=LONGEST)
        finally:
            process.kill()
        assert process.returncode in (0, -9), errors.decode()
        return process.returncode

    def wait(self, process: "subprocess.Popen[bytes]", until: Callable[[], bool]) -> None:
        """Wait for a condition, or for the end of the process."""
        last = time.monotonic() + LONGEST
        while process.poll() is None and not until():
            assert time.monotonic() < last
            time.sleep(0.02)


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, marks=pytest.mark.timeout(600)),
        pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(0)]),
    ],
)
def test_nothing_is_submitted_or_paid_twice_and_no_line_is_lost(kills: int, tmp_path: Path) -> None:
    killed = 0
    with open_simulator("events=3", batch_time=f"{BATCH_SECONDS}", journal=100_000) as simulator:
        batches = Batches(simulator, tmp_path, seed=kills)
        names: list[str] = []
        for provider in itertools.cycle(PROVIDERS):
            names.append(name := f"run{len(names)}")
            prompts = [
                {"id": f"l{n}", "prompt": f"{name} asks {n}", "model": f"sim-text@seed={n % 3}"} for n in range(LINES)
            ]
            write(tmp_path / f"{name}-prompts.jsonl", [json.dumps(prompt) for prompt in prompts])
            for _ in range(RUNS):
                status = batches.run(name, provider, kill=killed < kills)
                if status == 0:
                    break
                killed += 1
                print(killed, "killed,", provider, flush=True)
            answered = Counter(record["id"] for record in records(tmp_path / f"{name}.jsonl") if not record["error"])
            assert answered == {f"l{n}": 1 for n in range(LINES)}
            if killed >= kills:
                break
        batches.take_requests()
        page = pages(simulator, "batches")
    asked = {f"{name} asks {n}" for name in names for n in range(LINES)}
    submitted: Counter[str] = Counter()
    charged: Counter[str] = Counter()
    for line in itertools.chain.from_iterable(batch["lines"] for batch in page["batches"]):
        [text] = asked.intersection(texts(line["body"]))
        submitted[text] += 1
        charged[text] += line["charged"]
    live = [text for request in batches.seen for text in texts(request["body"]) if not is_batch(request)]
    charged.update(asked.intersection(live))
    assert submitted == dict.fromkeys(asked, 1)
    assert charged == dict.fromkeys(asked, 1)


def is_batch(request: dict[str, Any]) -> bool:
    """Whether a request is one of a batch interface."""
    return any(word in request["path"] for word in ("/files", "/batches", ":batchGenerateContent"))
