"""Run httpx's published tests with our transport in the place of the client's own: `make clients`.

The command runs each test with both transports, for clients of httpx and of httpx2, and prints what ran, what differs
and what is left out, with the reasons. Exit status: 0 if every difference has a reason in `plan`, 1 if not.

Must run with the interpreter of an environment that has `requirements.txt`. It downloads the sdist with pip.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from .outcomes import Comparison, Outcome, compare
from .plan import CLIENTS, DESELECTED, DIFFERENCES, FILES, OTHER_FILES, OTHER_SDISTS, SUITE, reason_for

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "clients"
PIP_SECONDS = 300
SUITE_SECONDS = 900


class SuiteError(Exception):
    """The suite cannot be run. The message gives the reason."""


def unpacked() -> Path:
    """Download and unpack the tests of the installed version, unless that was done. Returns their folder."""
    name = f"{SUITE}-{version(SUITE)}"
    folder = BUILD / "sdists"
    archive = folder / f"{name}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder)]
        done = subprocess.run(
            [*command, f"{SUITE}=={version(SUITE)}"], capture_output=True, text=True, timeout=PIP_SECONDS, check=False
        )
        if done.returncode or not archive.exists():
            reason = (done.stderr.strip().splitlines() or ["no sdist was written"])[-1]
            raise SuiteError(f"pip could not download the sdist of {name}: {reason}")
    # The package itself stays in the archive: the installed one is tested.
    wanted = (f"{name}/tests/", f"{name}/pyproject.toml")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, [one for one in tar if one.name.startswith(wanted)], filter="data")
    if not (folder / name / "tests").is_dir():
        raise SuiteError(f"the sdist of {name} has no tests")
    return folder / name


def unknown_files(folder: Path) -> list[str]:
    """Return the test files that no table names, and the named ones that do not exist."""
    present = {str(path.relative_to(folder)) for path in (folder / "tests").rglob("test_*.py")}
    return sorted(
        {name for name in present if name not in FILES and reason_for(name, OTHER_FILES) is None}
        | {name for name in FILES if name not in present}
    )


def outcomes(folder: Path, package: str, transport: str) -> dict[str, Outcome]:
    """Run the suite once. Returns the outcomes by test id."""
    results = BUILD / f"{package}-{transport}.json"
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "transport_plugin"]
    environment = os.environ | {
        "PYTHONPATH": str(HERE), "CLIENT_SUITES_PACKAGE": package, "CLIENT_SUITES_TRANSPORT": transport,
        "CLIENT_SUITES_OUTCOMES": str(results),
    }  # fmt: skip
    done = subprocess.run(
        [*command, "-m", f"not {DESELECTED}", *FILES],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=SUITE_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1) or not results.exists():
        raise SuiteError(f"pytest failed with {package} ({transport}):\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    found = json.loads(results.read_text("utf-8"))
    return {name: Outcome(one["result"], one["requests"], one["reason"]) for name, one in found.items()}


def show(package: str, found: Comparison) -> None:
    """Print one comparison."""
    print(f"\n{package} {version(package)}: {len(found.same)} tests send requests and pass over both transports")
    for name in found.same:
        print(f"  ran        {name}")
    for name in found.only_theirs:
        print(f"  ran        {name}; it fails over the package's own transport")
    for title, tests in (("DIFFERS", found.differing), ("explained", found.explained), ("fails both", found.failing)):
        for name, reason in tests.items():
            print(f"  {title:10} {name}: {reason[:200]}")
    for name, count in Counter(name.partition("::")[0] for name in found.without).items():
        print(f"  no request {name}: {count} tests use a mock, or send nothing")
    for pattern in found.stale:
        print(f"  STALE      {pattern}: no such difference; remove the row")


def main() -> int:
    """Run the suites. Returns the exit status."""
    try:
        folder = unpacked()
        unknown = unknown_files(folder)
        compared = {
            package: compare(outcomes(folder, package, "theirs"), outcomes(folder, package, "ours"), DIFFERENCES)
            for package in CLIENTS
        }
    except (SuiteError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    for package, found in compared.items():
        show(package, found)
    print("\nLeft out")
    for row in (*OTHER_SDISTS, *OTHER_FILES):
        print(f"  {row.pattern}: {row.reason}")
    print(f"  tests with the marker {DESELECTED!r}: they connect to addresses beyond loopback")
    for name in unknown:
        print(f"  UNKNOWN    {name}: name it in tests/client_suites/plan.py")
    return 0 if not unknown and all(found.complete for found in compared.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
