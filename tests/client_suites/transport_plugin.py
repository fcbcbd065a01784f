"""A plugin for pytest: runs a suite of httpx with another transport, and writes the outcomes to a file.

It runs inside the environment of the suite, where this project's `tests` package is not importable, so it imports only
the installed package.

CLIENT_SUITES_PACKAGE: `httpx` or `httpx2`. The suite imports `httpx`; for `httpx2` that name becomes an alias.
CLIENT_SUITES_TRANSPORT: `theirs` for the package's own transport, `ours` for `Transport`.
CLIENT_SUITES_OUTCOMES: the file to write, JSON: test id → result, requests, reason.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import manystream as ms

PACKAGE = os.environ["CLIENT_SUITES_PACKAGE"]
WITH_OURS = os.environ["CLIENT_SUITES_TRANSPORT"] == "ours"
OUTCOMES = Path(os.environ["CLIENT_SUITES_OUTCOMES"])

if PACKAGE == "httpx2":
    importlib.import_module("httpx2").alias_httpx()
package: Any = importlib.import_module(PACKAGE)
adapter: Any = importlib.import_module(f"manystream.{PACKAGE}")


class Counted:
    """Counts the requests that a transport carries."""

    requests = 0

    async def handle_async_request(self, request: Any) -> Any:
        Counted.requests += 1
        return await super().handle_async_request(request)  # type: ignore[misc]


class Theirs(Counted, package.AsyncHTTPTransport):  # type: ignore[misc]
    """The package's own transport."""


class Ours(Counted, adapter.Transport):  # type: ignore[misc]
    """Our transport, with the options that the client gives its own.

    It accepts `http2=True`, which `Transport` refuses: the servers of the suite speak HTTP/1.1. The client itself
    applies the proxies of the environment.
    """

    def __init__(
        self,
        verify: object = True,
        cert: object = None,
        trust_env: bool = True,
        http1: bool = True,
        http2: bool = False,
        limits: Any = None,
        proxy: Any = None,
    ) -> None:
        if verify is not True or cert is not None or not http1:
            raise ValueError("the suite uses an option that has no counterpart here")
        connections = getattr(limits, "max_connections", None)
        super().__init__(
            limits=ms.PoolLimits() if connections is None else ms.PoolLimits(max_connections=connections),
            proxy=None if proxy is None else str(getattr(proxy, "url", proxy)),
            trust_env=False,
        )


importlib.import_module(f"{PACKAGE}._client").AsyncHTTPTransport = Ours if WITH_OURS else Theirs
outcomes: dict[str, dict[str, object]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    Counted.requests = 0
    outcome = yield
    outcomes.setdefault(item.nodeid, {"result": "skipped", "reason": ""})["requests"] = Counted.requests
    return outcome


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    known = outcomes.get(report.nodeid)
    if known is None or not report.passed:
        lines = report.longreprtext.strip().splitlines()
        errors = [line for line in lines if line.startswith("E ")]
        reason = (errors or lines or [""])[0].removeprefix("E ").strip()
        outcomes[report.nodeid] = {"result": report.outcome, "reason": reason}


def pytest_sessionfinish() -> None:
    OUTCOMES.write_text(json.dumps(outcomes), "utf-8")
