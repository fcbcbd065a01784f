"""Start the load source, ask it for its statistics, stop it. Standard library only."""

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

IDLE_SECONDS = 120
"""With nothing connected for so long, the source ends by itself."""

LATE_LIMIT_MS = 10.0
"""A run in which the source sent one event in a hundred later than this measured the source, not the client."""


class Statistics(TypedDict):
    """What the source sent since the last reset, and how late it was against its own schedule."""

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
    """A running load source. `certificate` is the file of the authority that signed its TLS certificate."""

    port: int
    tls_port: int
    certificate: Path

    def origin(self, *, tls: bool = False) -> str:
        """Scheme, host and port."""
        return f"https://localhost:{self.tls_port}" if tls else f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> object:
        """The JSON answer to a GET of one of the source's own endpoints."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def reset(self) -> Statistics:
        """The statistics up to now; they begin anew."""
        return self.get("/reset")  # type: ignore[return-value]

    def starts(self) -> list[int]:
        """Nanoseconds from each request's stamp (`started: …` in what it says) to its arrival, since the last time."""
        return self.get("/starts")  # type: ignore[return-value]


def make_certificate(python: str, folder: Path) -> tuple[Path, Path, Path]:
    """Authority, certificate and key for localhost, made anew for this run (they last a few weeks)."""
    command = [python, "-m", "benchmarks.source.certificate", str(folder)]
    subprocess.run(command, env=clients_variables(), check=True, timeout=60)
    return folder / "authority.pem", folder / "certificate.pem", folder / "key.pem"


@contextmanager
def running_source(python: str) -> Iterator[Source]:
    """A load source on its own core. It is stopped at the end, and ends by itself should we be gone first.

    python: the clients' interpreter, which makes the certificate.
    """
    program = build("load_source")
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
            process.stdin.close()  # its sign to end
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
