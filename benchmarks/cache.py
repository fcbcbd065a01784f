"""The folder of builds, temporary environments and certificates between runs. It may be deleted at any time."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return a folder below the user's cache folder. Creates it if necessary."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "manystream-benchmarks" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(*contents: bytes) -> str:
    """Return a short name for these contents. Other contents get another name."""
    whole = hashlib.sha256()
    for content in contents:
        whole.update(len(content).to_bytes(8, "big") + content)
    return whole.hexdigest()[:16]
