"""The loads of the source, as paths of a base URL. Standard library only."""

from __future__ import annotations


def load_path(**load: object) -> str:
    """Return the path of a load: `events`, `rate`, `gate`, `spread`, `mode`, `size`, `delay`; see source/request.c.

    spread, delay: milliseconds.
    """
    return "/load/" + ",".join(f"{key}={value}" for key, value in load.items())
