"""The loads of the source, as paths of a base URL. Standard library only."""

from __future__ import annotations


def load_path(**load: object) -> str:
    """Return the path of a load: `events`, `rate`, `gate`, `spread` (ms), `mode`, `size`; see source/request.c."""
    return "/load/" + ",".join(f"{key}={value}" for key, value in load.items())
