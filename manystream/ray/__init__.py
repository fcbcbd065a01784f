"""manystream on a Ray cluster: answers as columns of a data set, engines as actors, and `manystream batch --ray`.

The modules `exchange`, `ledger` and `watch` hold the rules of a batch, `answers`, `rows` and `asker` those of a data
set, `rate_leases` and `shared_budget` those of limits and budgets of all workers together. They need no Ray: their
callers pass the time and carry the messages. Tests run them with messages that are lost, repeated and late.

Each name is imported from its module when it is first used, because a batch needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ask import Ask as Ask
    from .ask import ask_options as ask_options
    from .engine_actor import EngineActor as EngineActor
    from .ray_rates import share_rates as share_rates
    from .rows import AskError as AskError
    from .shared_rates import SharedRates as SharedRates

__all__ = ["Ask", "AskError", "EngineActor", "SharedRates", "ask_options", "share_rates"]

HOMES = {
    "Ask": ".ask",
    "AskError": ".rows",
    "EngineActor": ".engine_actor",
    "SharedRates": ".shared_rates",
    "ask_options": ".ask",
    "share_rates": ".ray_rates",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        home = HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(home, __name__), name)
