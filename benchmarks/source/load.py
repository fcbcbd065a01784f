"""What the source can be asked for, as the path below which a base URL lies. Standard library only."""

from __future__ import annotations


def load_path(**load: object) -> str:
    """The path of this load: `events`, `rate`, `gate`, `spread` (ms), `mode`, `size`; see source/request.c."""
    return "/load/" + ",".join(f"{key}={value}" for key, value in load.items())
