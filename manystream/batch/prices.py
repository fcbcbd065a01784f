"""The prices of a batch's answers, from the extra `cost`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from .. import Completion, Provider, Request, Response, Usage
from ..cost import Cost, CostExtraError, PriceTable, Unpriced, check_installed, price_response
from ..engine.embedding import EmbeddedEngine
from ..providers.limits.server_tools import charged_usage

Price: TypeAlias = Callable[[Request, Response], Cost | Unpriced]
"""Returns the cost of a response to a request (see `manystream/cost.py`). The request's model is the one that answered.
"""

TIER = "service_tier"


def price_list(*providers: Provider, table: PriceTable | None = None) -> Price | None:
    """Return a function that returns an answer's cost, or None if the extra `cost` is not installed.

    providers: the providers of the requests. The model of each request has its provider's name as a prefix.
    table: prices of your own, which precede those of the list.
    """
    try:
        check_installed()
    except CostExtraError:
        return None
    by_name = {provider.name: provider for provider in providers}

    def price(request: Request, response: Response) -> Cost | Unpriced:
        name, _, model = request.model.partition("/")
        return price_response(response, by_name[name], model=model, table=table)

    return price


def priceable(response: Response, part: float) -> list[tuple[Response, float]]:
    """Return in which ways the price of an answer may be asked for, and the part of each price that is paid.

    Anthropic's answers from a batch name a service tier of batches. A price list may have the price of this tier. If it
    has none, it is asked for the standard price.

    part: the price of the answer's way, as a part of the list price.
    """
    usage, data = response.usage, response.provider_data
    raw = usage.raw or {}
    if "batch" not in (raw.get(TIER), data.get(TIER)):
        return [(response, part)]
    usage = replace(usage, raw={name: member for name, member in raw.items() if name != TIER})
    data = {name: member for name, member in data.items() if name != TIER}
    return [(response, 1.0), (replace(response, usage=usage, provider_data=data), part)]


def pays_to_read(price: Price, request: Request, tokens: int) -> bool:
    """Return whether a prompt is cheaper if it is read from a cache than if it is written to one; False where no price
    is known.

    request: one to the model, with its provider's name as a prefix.
    """
    read, write = (
        price(request, Response(usage=Usage(tokens, 0, cached_tokens=cached, cache_write_tokens=tokens - cached)))
        for cached in (tokens, 0)
    )
    return isinstance(read, Cost) and isinstance(write, Cost) and read.total < write.total


def dollars(
    engine: EmbeddedEngine, provider: Provider, model: str, completion: Completion, part: float
) -> float | None:
    """Return the US dollars of an answer for which traffic control knows no call; None without prices.

    part: the price of its way, as a part of the list price.
    """
    for form, paid in priceable(completion.response, part) if completion.response is not None else ():
        found = engine.price(provider, model, charged_usage(form))
        if found is not None:
            return found * paid
    return None
