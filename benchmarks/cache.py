"""Where builds, throw-away environments and certificates are kept between runs. Nothing in it is precious."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """A folder of the benchmarks' own below the user's cache folder, made if need be."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "manystream-benchmarks" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(*contents: bytes) -> str:
    """A short name for these contents: what is built from other contents gets another name."""
    whole = hashlib.sha256()
    for content in contents:
        whole.update(len(content).to_bytes(8, "big") + content)
    return whole.hexdigest()[:16]
