"""The temporary environment of the clients, at the versions of constraints.txt, and the description of this machine.

The measurement needs only the standard library, so `python -m benchmarks` runs with any interpreter. The clients run
with the same version, in an environment below the cache folder.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from .cache import cache_folder, digest

ROOT = Path(__file__).parent.parent
DEPENDENCIES = ("trio", "h11", "orjson", "httpx2")
"""What this library needs in an environment of another program."""

CONSTRAINTS = Path(__file__).parent / "constraints.txt"
PACKAGES = (
    "aiohttp",
    "anthropic",
    "google-genai",
    "h11",
    "httpx2",
    "matplotlib",
    "openai",
    "orjson",
    "pycurl",
    "trio",
    "trustme",
)


def clients_python() -> str:
    """Return the clients' interpreter. Makes its environment if necessary."""
    return made_environment("python", *PACKAGES)


def made_environment(name: str, *packages: str) -> str:
    """Return the interpreter of an environment with these packages. Makes it once per set of versions.

    The variable MANYSTREAM_BENCH_NAME names an interpreter that has them; then nothing is made.

    packages: requirements; those without a version get that of constraints.txt.
    """
    given = os.environ.get(f"MANYSTREAM_BENCH_{name.upper()}")
    if given:
        return given
    versions = dict(line.split("==") for line in CONSTRAINTS.read_text().splitlines() if "==" in line)
    wanted = [each if "==" in each else f"{each}=={versions[each.partition('[')[0]]}" for each in packages]
    version = platform.python_version()
    folder = cache_folder("environments") / f"{name}-{version}-{digest(repr(wanted).encode())}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"installing {', '.join(wanted)} into {folder} (once)", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
        subprocess.run(command, check=True, timeout=1800)
        ready.touch()
    return str(python)


def clients_variables() -> dict[str, str]:
    """Return the clients' environment variables: the repository is importable; there is no proxy and no key."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(cache_folder("bytecode")), "NO_PROXY": "*"}


def versions(python: str) -> dict[str, str]:
    """Package → installed version, in the clients' environment."""
    program = (
        "import importlib.metadata as m, json, pycurl, sys;"
        "names = sys.argv[1:];"
        "print(json.dumps({n: m.version(n) for n in names} | {'libcurl': pycurl.version.split()[0].split('/')[1]}))"
    )
    result = subprocess.run(
        [python, "-c", program, *PACKAGES],
        env=clients_variables(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: dict[str, str] = json.loads(result.stdout)
    return found


def machine() -> dict[str, str]:
    """Return the facts about this machine."""
    model = "unknown processor"
    with open("/proc/cpuinfo") as processors:
        for line in processors:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{model}, {len(os.sched_getaffinity(0))} cores usable",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
