"""One lane: a process that runs selected tests in its copy of the tree, for each request on standard input.

Started as `python -m tests.mutants.lane` with the copy as its working folder. It imports slow third-party modules and
pytest's plugins once and forks a child for each run, so that no run has to start an interpreter. A child writes the
bytecode of the modules that it compiles into the copy, and the next child reads it.

A request is one line of JSON on standard input, `{"tests": [node ids], "seconds": limit}`. The result is one line on
standard output, `{"failed": first failing test or "", "status": word}`. The word is `passed`, `failed`, `died` (the
process ended before its tests did), `hung`, or `empty` (none of the tests exists).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import resource
import select
import signal
import sys
import traceback
from pathlib import Path

import pytest

PRELOADED = (
    "trio",
    "h11",
    "orjson",
    "trustme",
    "openai",
    "openai.types.responses",
    "anthropic",
    "anthropic.lib",
    "google.genai",
    "google.genai.types",
    "pydantic",
    "rich.console",
    "rich.live",
    "hypothesis",
    "hypothesis.strategies",
    "genai_prices",
)
MEMORY = 6 << 30
"""The maximum address space of a run, in bytes: a mutant may build an endless list."""

LOG = "lane.log"
"""The file in the working folder with the output of the last run."""

TEST_SECONDS = 30
"""The timeout of a single test, in seconds."""


class Chosen:
    """A pytest plugin that runs only the given tests, in the given order, and keeps the first one that fails."""

    def __init__(self, tests: list[str]) -> None:
        self._place = {name: place for place, name in enumerate(tests)}
        self.failed = ""

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutants", settings.default, database=None, phases=(Phase.explicit, Phase.generate), derandomize=True
        )
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._place), key=lambda item: self._place[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def run(tests: list[str], answer: int) -> None:
    """Run the tests and write the result. This is the program of the child process."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    chosen = Chosen(tests)
    files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
    options = ["-x", "-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0", f"--timeout={TEST_SECONDS}"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported already
    status = int(pytest.main([*options, *files], plugins=[chosen]))
    word = "failed" if chosen.failed else {0: "passed", 5: "empty"}.get(status, "died")
    os.write(answer, json.dumps({"failed": chosen.failed, "status": word}).encode())


def fork_and_wait(tests: list[str], seconds: float) -> dict[str, str]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            run(tests, writing)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], seconds)
    result = os.read(reading, 1 << 20) if ready else b""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    # A child that ended without a result was ended by the mutant.
    return json.loads(result) if result else {"failed": "", "status": "died" if ready else "hung"}


def preload() -> None:
    """Import what every run needs, except the package, and exempt all of it from the children's garbage collections."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        with contextlib.suppress(ImportError):
            plugin.load()
    # Hypothesis would parse all modules of the package in every run, to draw their constants as examples.
    providers = importlib.import_module("hypothesis.internal.conjecture.providers")
    constants = providers._get_local_constants()
    providers._get_local_constants = lambda: constants
    gc.collect()
    gc.freeze()


def main() -> None:
    assert Path.cwd() == Path(__file__).resolve().parent.parent.parent
    preload()
    assert not any(name.partition(".")[0] == "manystream" for name in sys.modules)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(fork_and_wait(job["tests"], job["seconds"])), flush=True)


if __name__ == "__main__":
    main()
