"""Compiles the load source into the cache folder, once per version of its text."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..cache import cache_folder, digest

FOLDER = Path(__file__).parent
SOURCES = ("load_source.c", "statistics.c", "request.c", "template.c", "pacing.c", "tls.c")
FLAGS = ("-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra")


class BuildError(RuntimeError):
    """The load source cannot be built. The message describes what to do."""


def build() -> Path:
    """Return the path of the load source. Compiles it if its text or compiler changed. Raises `BuildError`."""
    if not sys.platform.startswith("linux"):
        raise BuildError("the load source needs Linux: it is written on epoll")
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise BuildError("no C compiler found: install one (Debian: apt install gcc libc6-dev), or set CC")
    sources = [FOLDER / name for name in SOURCES]
    contents = [path.read_bytes() for path in (*sources, FOLDER / "source.h")]
    target = cache_folder("build") / f"load_source-{digest(compiler.encode(), *contents)}"
    if target.exists():
        return target
    unfinished = target.with_suffix(f".{os.getpid()}")
    command = [compiler, *FLAGS, "-o", str(unfinished), *map(str, sources), "-ldl"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{result.stderr}")
    unfinished.rename(target)  # rename is atomic, for a second run at the same time as well
    return target
