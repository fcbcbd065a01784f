"""Imports what calls need, while an engine waits for its first call.

Opening an engine imports what checks its options and runs its tasks. The rest takes three times as long to import: it
follows in steps between which other tasks run. A call that starts earlier imports what is still missing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import resolve_name

from ..providers.catalog.provider import Provider
from ..providers.catalog.registry import dialect_of
from ..transport.backend import Backend

STEPS = (
    "..providers.model.request",
    "..providers.model.response",
    "..transport.http1",
    "..transport.dial",
    "..providers.catalog.dialect",
    "..providers.model.request_rules",
    ".call.attempt",
    ".calls",
)
"""Modules, relative to this package. `starter` imports all others; each step before it is a part of that."""


async def load_for_calls(backend: Backend, providers: Sequence[Provider]) -> None:
    """Import the modules of `STEPS`, and the dialects of the providers."""
    try:
        for step in STEPS:
            if resolve_name(step, __package__) not in sys.modules:
                await backend.checkpoint()
                import_module(step, __package__)
        for provider in providers:
            await backend.checkpoint()
            dialect_of(provider.profile)
    except OSError:
        return  # no file descriptor is left: the first call imports the rest, or reports why it cannot
