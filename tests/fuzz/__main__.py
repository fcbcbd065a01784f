"""Fuzz every target for some minutes: `python -m tests.fuzz --minutes 5 [TARGET …]`; `make fuzz MINUTES=5` runs this.

Half of the time, each target gets inputs that keep the shape of valid ones (`shapes.py`); the other half, inputs of
atheris, which searches for new paths. If atheris cannot be installed, only the first half runs. `--first` continues the
numbers of the shaped inputs where an earlier run ended.

Atheris is installed into an environment of its own below `build/fuzz`, so that the project's environment does not
change; if that fails, the program prints the reason. Findings are in `build/fuzz/found`; the corpus in
`build/fuzz/corpus` grows from run to run. Add each finding to `found.py`.
"""

from __future__ import annotations

import argparse
import os
import site
import subprocess
import sys
import venv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from tests.fuzz.seeds import CUT, SEEDS, WORDS

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "fuzz"
PYTHON = FOLDER / "environment" / "bin" / "python"
FOUND = FOLDER / "found"
Fuzz: TypeAlias = Callable[[str], tuple[str, int, str]]
OPTIONS = ("-max_len=4096", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1")


def prepared() -> str:
    """Create the environment if it does not exist. Returns the reason if that fails, else an empty string."""
    if not PYTHON.exists():
        venv.create(FOLDER / "environment", with_pip=True)
        for packages in FOLDER.glob("environment/lib/python*/site-packages"):
            (packages / "project.pth").write_text("\n".join(site.getsitepackages()) + "\n", "utf-8")
    if subprocess.run([PYTHON, "-c", "import atheris"], capture_output=True, check=False).returncode == 0:
        return ""
    install = [PYTHON, "-m", "pip", "-q", "--disable-pip-version-check", "install", "atheris"]
    finished = subprocess.run(install, capture_output=True, text=True, check=False)
    return "" if finished.returncode == 0 else (finished.stderr.strip().splitlines() or ["pip failed"])[-1]


def write_corpus(name: str) -> Path:
    """Write the seeds as files, next to the inputs that earlier runs added. Returns the folder."""
    folder = FOLDER / "corpus" / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (folder / f"seed{number}").write_bytes(CUT + seed)
    return folder


def write_dictionary() -> Path:
    path = FOLDER / "words.dict"
    escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in WORDS)
    path.write_text("".join(f'"{word}"\n' for word in escaped), "ascii")
    return path


def fuzz(name: str, seconds: int) -> tuple[str, int, str]:
    """Fuzz one target with atheris. Returns its name, the exit status and the last output."""
    options = [f"-max_total_time={seconds}", f"-dict={FOLDER / 'words.dict'}", f"-artifact_prefix={FOUND}/{name}-"]
    command = [PYTHON, "-m", "tests.fuzz.guided", name, str(write_corpus(name)), *OPTIONS, *options]
    finished = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    return name, finished.returncode, finished.stdout


def fuzz_shaped(name: str, seconds: int, first: int) -> tuple[str, int, str]:
    """Fuzz one target with structure-aware inputs. Returns its name, the exit status and the last output."""
    command = [sys.executable, "-m", "tests.fuzz.shaped", name, str(seconds), str(first), str(FOUND)]
    finished = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    return name, finished.returncode, finished.stdout


def statistics(words: str) -> str:
    wanted = ("number_of_executed_units", "average_exec_per_sec")
    lines = (line.split(":") for line in words.splitlines() if line.startswith("stat::"))
    found = {parts[2].strip(): parts[3].strip() for parts in lines if len(parts) == 4}
    coverage = [line for line in words.splitlines() if " cov: " in line]
    edges = coverage[-1].partition(" cov: ")[2].split()[0] if coverage else "?"
    return f"{found.get(wanted[0], '?')} inputs, {found.get(wanted[1], '?')} a second, {edges} edges"


def run(fuzz_one: Fuzz, names: list[str], lanes: int, summary: Callable[[str], str]) -> set[str]:
    """Fuzz all targets, a few at a time. Returns the names of those that failed."""
    failed: set[str] = set()
    with ThreadPoolExecutor(lanes) as pool:
        for name, status, words in pool.map(fuzz_one, names):
            print(f"{name:18} {'FAILED' if status else summary(words)}", flush=True)
            if status:
                failed.add(name)
                print(words[max(0, words.find("=== ")) :][:4000], file=sys.stderr)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets together")
    parser.add_argument("--first", type=int, default=0, help="number of the first structure-aware input")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(SEEDS)}; default: all")
    options = parser.parse_args()
    names: list[str] = options.targets or list(SEEDS)
    if unknown := [name for name in names if name not in SEEDS]:
        parser.error(f"no target is named {', '.join(unknown)}; there are {', '.join(SEEDS)}")
    FOUND.mkdir(parents=True, exist_ok=True)
    lanes = max(1, (os.cpu_count() or 2) // 2)
    seconds = max(5, round(options.minutes * 60 * lanes / len(names) / 2))
    failed = run(
        lambda name: fuzz_shaped(name, seconds, options.first), names, lanes, lambda words: words.strip()[-80:]
    )
    problem = prepared()
    if problem:
        print(f"atheris cannot be installed here ({problem}): only structure-aware inputs were tried")
    else:
        write_dictionary()
        failed |= run(lambda name: fuzz(name, seconds), names, lanes, statistics)
    print(f"{len(failed)} of {len(names)} targets failed" + (f"; inputs in {FOUND}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
