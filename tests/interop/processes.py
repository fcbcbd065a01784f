"""Servers that others wrote: installed into a cache of their own, started on loopback, stopped by their process id.

Knows how to install and start each. Must not know what tests ask of them. Whatever is missing on this machine (npm, a
way to the registries, time) is a `MissingServerError` that says so; a test that meets one is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL_SECONDS = 300
START_SECONDS = 30
STOP_SECONDS = 10
CONTROL_SECONDS = 10

LLMOCK = "llmock==0.2.2"
AIMOCK = "@copilotkit/aimock@1.43.0"


class MissingServerError(Exception):
    """The server cannot be had here. The message says why."""


@dataclass(slots=True, frozen=True)
class Running:
    """A server that listens. origin: `http://127.0.0.1:port`."""

    origin: str

    def post(self, path: str, body: object = None) -> Any:
        """Tell it something; returns its answer's JSON, if it is some."""
        return self._call("POST", path, body)

    def get(self, path: str) -> Any:
        """Ask it something."""
        return self._call("GET", path)

    def delete(self, path: str) -> Any:
        """Take something back."""
        return self._call("DELETE", path)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self.origin + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=CONTROL_SECONDS) as answer:
            said = answer.read()
        try:
            return json.loads(said)
        except ValueError:
            return said.decode("utf-8", "replace")


@contextmanager
def llmock() -> Generator[Running, None, None]:
    """llmock, from the Python registry, in a virtual environment of its own. Raises `MissingServerError`."""
    place = _cache("llmock-0.2.2")
    program = place / "bin" / "llmock"
    if not program.exists():
        with _fresh(place) as new:
            _run([sys.executable, "-m", "venv", str(new)])
            # Straight into its place: scripts of an environment know where it lies.
            pip = [str(new / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
            _run([*pip, LLMOCK])
    port = _free_port()
    command = [str(program), "serve", "--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    with _started(command, port, "/health") as running:
        yield running


@contextmanager
def aimock(fixtures: Sequence[object], scratch: Path) -> Generator[Running, None, None]:
    """aimock, from the JavaScript registry, with these fixtures. Raises `MissingServerError`."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise MissingServerError("node and npm are not installed")
    place = _cache("aimock-1.43.0")
    program = place / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    if not program.exists():
        with _fresh(place) as new:
            _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(new), AIMOCK])
    answers = scratch / "fixtures.json"
    answers.write_text(json.dumps({"fixtures": list(fixtures)}), "utf-8")
    port = _free_port()
    options = ["-p", str(port), "-h", "127.0.0.1", "-f", str(answers), "-c", "8", "--log-level", "silent"]
    with _started([node, str(program), *options], port, "/health") as running:
        yield running


def _cache(name: str) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "manystream-interop" / name


@contextmanager
def _fresh(place: Path) -> Generator[Path, None, None]:
    """An empty folder to install into; removed again where that fails, so that a half of it is never taken for all."""
    try:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
    except OSError as error:
        raise MissingServerError(f"nowhere to install it: {error}") from None
    try:
        yield place
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingServerError(f"it could not be installed: {error}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise MissingServerError(f"it could not be installed: {said[-1] if said else done.returncode}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _started(command: Sequence[str], port: int, health: str) -> Generator[Running, None, None]:
    running = Running(f"http://127.0.0.1:{port}")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(running, health, process)
        yield running
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


def _wait_until_it_answers(running: Running, health: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise MissingServerError(f"it ended at once, with status {process.returncode}")
        try:
            running.get(health)
        except urllib.error.HTTPError:
            return  # it answers, if only with a refusal
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise MissingServerError(f"it did not answer within {START_SECONDS} s")
