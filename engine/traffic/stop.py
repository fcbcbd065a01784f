"""What a call needs to know of one target before it can send its request there. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ...providers.model.request import Request
from ...providers.model.response import Response
from ..call.delivery import Counters
from ..call.timeouts import Clocks
from ..request.prepared import Prepared
from ..request.preparer import Preparer
from .budgets.budgets import Need


@dataclass(slots=True, frozen=True)
class Stop:
    """A request that is ready for one target.

    prepared: the request as it is sent.
    counters: of the provider's calls.
    clocks: the timeouts of the request with the target's options.
    finish_response: completes the response before it is delivered.
    need: what an attempt may use; None in an engine without budgets and prices.
    """

    prepared: Prepared
    counters: Counters
    clocks: Clocks
    finish_response: Callable[[Response], None]
    need: Need | None = None


MakeStop: TypeAlias = Callable[[Request, Preparer], Stop]
"""Prepares a request for a target. Raises `InvalidRequestError`."""
