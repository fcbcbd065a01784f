"""Starts the load source, reads its statistics, stops it. Standard library only."""

from __future__ import annotations

import http.client
import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ..cores import CLIENT_AND_SOURCE, pinned
from ..environment import clients_variables
from ..wire import template_file
from .build import build

IDLE_SECONDS = 3600
"""Seconds without a connection after which the source ends by itself. An emulated client on a loaded machine connects
minutes after it was started."""

LATE_LIMIT_MS = 10.0
"""If one event in a hundred is later than this, the run measured the source and not the client."""


class Statistics(TypedDict):
    """The counters of the source since the last reset, and its delay against its own schedule."""

    events: int
    bytes: int
    started: int
    completed: int
    aborted: int
    refused: int
    late_p50_ms: float
    late_p99_ms: float
    late_max_ms: float
    open: int
    cpu_seconds: float
    seconds: float
    waited: float


@dataclass(frozen=True, slots=True)
class Source:
    """A running load source.

    certificate: the file of the authority that signed its TLS certificate.
    """

    port: int
    tls_port: int
    certificate: Path

    def origin(self, *, tls: bool = False) -> str:
        """Return scheme, host and port."""
        return f"https://localhost:{self.tls_port}" if tls else f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> object:
        """Return the JSON of a GET of one of the source's endpoints."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def reset(self) -> Statistics:
        """Return the statistics, and reset them."""
        return self.get("/reset")  # type: ignore[return-value]

    def starts(self) -> list[int]:
        """Return the nanoseconds from each request's stamp (`started: …` in its message) to its arrival, since the last
        call.
        """
        return self.get("/starts")  # type: ignore[return-value]


def make_certificate(python: str, folder: Path) -> tuple[Path, Path, Path]:
    """Make authority, certificate and key for localhost for this run. They are valid for a few weeks."""
    command = [python, "-m", "benchmarks.source.certificate", str(folder)]
    subprocess.run(command, env=clients_variables(), check=True, timeout=60)
    return folder / "authority.pem", folder / "certificate.pem", folder / "key.pem"


@contextmanager
def running_source(python: str) -> Iterator[Source]:
    """Run a load source on its own core. It stops with the block, and by itself if this process ends first.

    python: the clients' interpreter, which makes the certificate.
    """
    program = build()
    with tempfile.TemporaryDirectory() as folder:
        authority, certificate, key = make_certificate(python, Path(folder))
        templates = Path(folder) / "templates"
        templates.write_bytes(template_file())
        command = [str(program), str(templates), str(IDLE_SECONDS), str(certificate), str(key)]
        with pinned(CLIENT_AND_SOURCE[1]):
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ports: dict[str, int] = json.loads(process.stdout.readline() or "{}")
            if not ports:
                raise RuntimeError("the load source did not start; its message is above")
            yield Source(ports["port"], ports["tls_port"], authority)
        finally:
            process.stdin.close()  # closing its input ends it
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
