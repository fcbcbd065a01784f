"""The prices of a batch's answers, from the extra `cost`.

Knows the price list. Must not know journals or counters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..cost import Cost, CostExtraError, Unpriced, check_installed, price_response
from ..providers.provider import Provider
from ..providers.request import Request
from ..providers.response import Response

Price: TypeAlias = "Callable[[Request, Response], Cost | Unpriced]"
"""Returns the cost of a response to a request (see `manystream/cost.py`)."""


def price_list(provider: Provider) -> Price | None:
    """Return a function that returns an answer's cost, or None if the extra `cost` is not installed.

    provider: the provider of all requests. Their models have its name as a prefix.
    """
    try:
        check_installed()
    except CostExtraError:
        return None
    chosen = f"{provider.name}/"
    return lambda request, response: price_response(response, provider, model=request.model.removeprefix(chosen))
