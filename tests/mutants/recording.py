"""A pytest plugin that records which lines of the package each test runs, how long it takes, and whether it passes.

Loaded with `-p tests.mutants.recording` in a copy of the tree; `MANYSTREAM_RECORDING` names the file to write. Knows
coverage.py, which is not part of the project's own environment. Lines that run at import belong to no test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("engine", "transport", "providers", "manystream")


class Recording:
    """The recording of one run."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.seconds: dict[str, float] = {}
        self.unusable: set[str] = set()
        self.coverage = coverage.Coverage(
            data_file=None, config_file=False, messages=False, include=[f"{ROOT}/{name}/*" for name in PACKAGES]
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.outcome != "passed":
            self.unusable.add(report.nodeid)

    def pytest_sessionstart(self) -> None:
        self.coverage.start()

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        number = {name: place for place, name in enumerate(self.seconds)}
        lines: dict[str, dict[int, list[int]]] = {}
        for file in sorted(data.measured_files()):
            lines[Path(file).relative_to(ROOT).as_posix()] = {
                line: sorted(number[name] for name in names if name in number)
                for line, names in data.contexts_by_lineno(file).items()
            }
        found = {"seconds": self.seconds, "unusable": sorted(self.unusable), "lines": lines}
        self.target.write_text(json.dumps(found), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recording(Path(os.environ["MANYSTREAM_RECORDING"])), "recording")
