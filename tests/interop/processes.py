"""Third-party servers: installed below `build/interop`, started on loopback, stopped by their process id.

If something is missing on this machine (npm, access to the registries, time), `MissingServerError` is raised with the
reason, and the test is skipped.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL_SECONDS = 1200
START_SECONDS = 240
STOP_SECONDS = 10
CONTROL_SECONDS = 10

LLMOCK = "llmock==0.2.2"
AIMOCK = "@copilotkit/aimock@1.43.0"
ROUTER = "@musistudio/claude-code-router@2.0.0"
CLAUDE_CODE = "@anthropic-ai/claude-code@2.1.197"
CODEX = "@openai/codex@0.169.0"
OPENCODE = "opencode-ai@1.18.33"
LITELLM = "litellm[proxy]==1.106.2"
LITELLM_LIBRARY = "litellm==1.106.2"

ROOT = Path(__file__).parents[2]
INSTALLED_MARK = "installed"
"""The empty file in an environment that is complete."""
INSTALLED = ROOT / "build" / "interop"
"""The folder of the installed servers, with one folder per server and version. `make clean` removes it."""


class MissingServerError(Exception):
    """The server cannot be installed or started on this machine. The message gives the reason."""


@dataclass(slots=True, frozen=True)
class Running:
    """A server that listens.

    origin: `http://127.0.0.1:port`.
    key: the API key that it accepts.
    """

    origin: str
    key: str = "key"

    def post(self, path: str, body: object = None) -> Any:
        """Send a POST request. Returns the response's JSON, if it is JSON."""
        return self._call("POST", path, body)

    def get(self, path: str) -> Any:
        """Send a GET request. Returns the response's JSON, if it is JSON."""
        return self._call("GET", path)

    def delete(self, path: str) -> Any:
        """Send a DELETE request. Returns the response's JSON, if it is JSON."""
        return self._call("DELETE", path)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self.origin + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=CONTROL_SECONDS) as answer:
            said = answer.read()
        try:
            return json.loads(said)
        except ValueError:
            return said.decode("utf-8", "replace")


@contextmanager
def llmock() -> Generator[Running, None, None]:
    """Run llmock, from the Python registry, in a virtual environment of its own. Raises `MissingServerError`."""
    program = _python_program(LLMOCK, "llmock")
    port = _free_port()
    command = [str(program), "serve", "--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    with _started(command, port, "/health") as running:
        yield running


@contextmanager
def aimock(fixtures: Sequence[object], scratch: Path, chunk_size: int = 8) -> Generator[Running, None, None]:
    """Run aimock, from the JavaScript registry, with these fixtures. Raises `MissingServerError`.

    chunk_size: the size of each delta, in UTF-16 code units. aimock may cut surrogate pairs.
    """
    command = _node_program(AIMOCK, "dist/cli.js")
    answers = scratch / "fixtures.json"
    answers.write_text(json.dumps({"fixtures": list(fixtures)}), "utf-8")
    port = _free_port()
    options = ["-p", str(port), "-h", "127.0.0.1", "-f", str(answers), "-c", str(chunk_size), "--log-level", "silent"]
    with _started([*command, *options], port, "/health") as running:
        yield running


@contextmanager
def router(upstream: Running, scratch: Path) -> Generator[Running, None, None]:
    """Run claude-code-router in front of `upstream`. Raises `MissingServerError`.

    It accepts Anthropic and sends Chat or Gemini. Its models are `chat,gpt-4o` and `gemini,gemini-2.5-flash`. It reads
    its settings from the home folder.
    """
    command = _node_program(ROUTER, "dist/cli.js")
    port, key = _free_port(), secrets.token_hex(16)
    chat = {"name": "chat", "api_base_url": upstream.origin + "/v1/chat/completions", "models": ["gpt-4o"]}
    gemini = {"name": "gemini", "api_base_url": upstream.origin + "/v1beta/models/", "models": ["gemini-2.5-flash"]}
    settings = {
        "HOST": "127.0.0.1", "PORT": port, "APIKEY": key, "LOG": False, "NON_INTERACTIVE_MODE": True,
        "Providers": [{**chat, "api_key": upstream.key},
                      {**gemini, "api_key": upstream.key, "transformer": {"use": ["gemini"]}}],
        "Router": {"default": "chat,gpt-4o"},
    }  # fmt: skip
    home = scratch / "router"
    folder = home / ".claude-code-router"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    with _started([*command, "start"], port, "/", clean_environment(home), key) as running:
        yield running


@contextmanager
def litellm(upstream: Running, scratch: Path) -> Generator[Running, None, None]:
    """Run the LiteLLM proxy in front of `upstream`. Raises `MissingServerError`.

    It accepts four dialects and sends three. Its models `chat`, `anthropic` and `gemini` are named after the dialect
    that it uses with `upstream`.
    """
    program = _python_program(LITELLM, "litellm")
    behind = {
        "chat": ("openai/gpt-4o", "/v1"),
        "anthropic": ("anthropic/claude-sonnet-4-5", ""),
        "gemini": ("gemini/gemini-2.5-flash", "/v1beta"),
    }
    models = [
        {"model_name": name,
         "litellm_params": {"model": model, "api_base": upstream.origin + path, "api_key": upstream.key}}
        for name, (model, path) in behind.items()
    ]  # fmt: skip
    settings = {
        "model_list": models,
        "litellm_settings": {"telemetry": False, "num_retries": 0},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }
    home = scratch / "litellm"
    home.mkdir()
    (home / "settings.yaml").write_text(json.dumps(settings), "utf-8")  # JSON is YAML
    port, key = _free_port(), "sk-" + secrets.token_hex(16)
    environment = clean_environment(home) | {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [str(program), "--config", str(home / "settings.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    with _started(command, port, "/health/liveliness", environment, key) as running:
        yield running


def clean_environment(home: Path) -> dict[str, str]:
    """Return an environment without proxy and keys and with another home folder: the user's files are not used."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home)}


def python_with(package: str, *others: str) -> Path:
    """Return the interpreter of an environment with these packages and what manystream needs.

    Raises `MissingServerError`.
    """
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = requirements["optional-dependencies"]
    ours = [*others, *requirements["dependencies"], *extras["httpx2"], *extras["httpx"]]
    return _python_program(package, "python", ours)


def _python_program(package: str, name: str, more: Sequence[str] = ()) -> Path:
    """Return the path of a program, in a virtual environment that contains only this package and `more`."""
    project, _, version = package.partition("==")
    place = INSTALLED / f"{re.sub(r'[^a-z0-9]+', '-', project)}-{version}"
    program = place / "bin" / name
    if not (place / INSTALLED_MARK).exists():
        with _fresh(place) as new:
            _run([sys.executable, "-m", "venv", str(new)])
            # Install at the final path: the scripts of an environment contain its path.
            pip = [str(new / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
            _run([*pip, package, *more])
            (new / INSTALLED_MARK).touch()
    return program


def _node_program(package: str, script: str) -> list[str]:
    """Return the command that runs a script of this package."""
    return [shutil.which("node") or "node", str(node_modules(package) / package.rpartition("@")[0] / script)]


def node_modules(package: str) -> Path:
    """Return the folder `node_modules` with a package of the JavaScript registry, whose commands are in `.bin`.

    Raises `MissingServerError`.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise MissingServerError("node and npm are not installed")
    name, _, version = package.rpartition("@")
    place = INSTALLED / f"{name.rpartition('/')[2]}-{version}"
    if not (place / INSTALLED_MARK).exists():
        with _fresh(place) as new:
            _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(new), package])
            (new / INSTALLED_MARK).touch()
    return place / "node_modules"


@contextmanager
def _fresh(place: Path) -> Generator[Path, None, None]:
    """Yield an empty folder for an installation; remove it on failure, so that no partial installation is used."""
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
def _started(
    command: Sequence[str], port: int, health: str, environment: dict[str, str] | None = None, key: str = "key"
) -> Generator[Running, None, None]:
    running = Running(f"http://127.0.0.1:{port}", key)
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=environment)
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
            return  # any response counts, even an error
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise MissingServerError(f"it did not answer within {START_SECONDS} s")
