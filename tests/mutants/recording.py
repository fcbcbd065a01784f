"""A pytest plugin that records for each test the lines of the package that it runs, its duration, and its result.

Loaded with `-p tests.mutants.recording` in a copy of the tree; `MANYSTREAM_RECORDING` names the file to append to. One
line of JSON is appended when the last test of a test file has ended, so a run that is interrupted loses one file.
Knows coverage.py, which is not part of the project's own environment. Lines that run at import belong to no test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from tests.mutants.recorded import Row, append, digest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("engine", "transport", "providers", "manystream")


class Recording:
    """The recording of one run."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._seconds: dict[str, float] = {}
        self._unusable: list[str] = []
        self._coverage: coverage.Coverage | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if self._coverage is None:
            include = [f"{ROOT}/{name}/*" for name in PACKAGES]
            self._coverage = coverage.Coverage(data_file=None, config_file=False, messages=False, include=include)
            self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
            self._coverage.start()
        self._coverage.switch_context(item.nodeid)
        result = yield
        if nextitem is None or nextitem.path != item.path:
            self._write(item.path)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.outcome != "passed" and report.nodeid not in self._unusable:
            self._unusable.append(report.nodeid)

    def _write(self, file: Path) -> None:
        """Append the row of one test file, and clear the recording."""
        assert self._coverage is not None
        self._coverage.stop()
        data = self._coverage.get_data()
        number = {name: place for place, name in enumerate(self._seconds)}
        lines = {
            Path(measured).relative_to(ROOT).as_posix(): {
                str(line): sorted(number[name] for name in names if name in number)
                for line, names in data.contexts_by_lineno(measured).items()
            }
            for measured in sorted(data.measured_files())
        }
        name = file.relative_to(ROOT).as_posix()
        append(self._target, Row(name, digest(file), self._seconds, self._unusable, lines))
        self._seconds, self._unusable, self._coverage = {}, [], None


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recording(Path(os.environ["MANYSTREAM_RECORDING"])), "recording")
