"""The cost of a response, from the price list of genai-prices (https://github.com/pydantic/genai-prices).

    from manystream.cost import Cost, price_response

    cost = price_response(response, provider)
    print(cost.total if isinstance(cost, Cost) else cost.reason)

Needs the extra `cost`. The list is part of the package genai-prices, so no network is used. If a program updates
genai-prices, this module uses the newer prices.

A price is never guessed. The provider is found by its address, and the model is the one that the response names. If the
list does not contain either, the result is `Unpriced`. Prices are list prices: they include no discount, no tax, and no
fee that the usage does not report (such as storage of a cache, or a tool that runs at the provider).

Knows `Usage` and the names that genai-prices has for its parts. Must not know calls, nor any dialect beyond the members
of raw usage reports that the tables name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .providers.catalog.provider import Provider
from .providers.errors import ManystreamError
from .providers.json.json_values import JSONObject, integer, mapping, objects, string
from .providers.model.response import Response
from .providers.model.usage import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, PriceCalculation, TieredPrices

CURRENCY = "USD"
"""The currency of all prices in the list, as an ISO 4217 code."""

PER_MILLION = Decimal(1_000_000)


@dataclass(slots=True, frozen=True)
class Cost:
    """The cost of one response. `total` is the sum of the other amounts.

    currency: ISO 4217 code of all amounts.
    input: input that was neither read from a cache nor written to one.
    cached: input read from a cache. 0 if the list has no separate price for it; it is then part of `input`.
    cache_write: input written to a cache. 0 if the list has no separate price for it; it is then part of `input`.
    output: visible output and thinking.
    other: items with a price per piece, such as searches.
    total: the whole cost.
    model: the list's id of the model.
    provider: the list's id of the provider.
    """

    currency: str
    input: Decimal
    cached: Decimal
    cache_write: Decimal
    output: Decimal
    other: Decimal
    total: Decimal
    model: str
    provider: str


@dataclass(slots=True, frozen=True)
class Unpriced:
    """The result for a response without a price.

    reason: why there is no price, and what would help: a sentence without a full stop.
    """

    reason: str


class CostExtraError(ManystreamError, RuntimeError):
    """The extra `cost` is not installed."""


def check_installed() -> None:
    """Import the price list, which takes some tenths of a second. Raises `CostExtraError` if it is not installed."""
    try:
        import genai_prices  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise CostExtraError("prices need the extra `cost`: pip install 'manystream[cost]'") from None


def price_response(
    response: Response, provider: Provider | str, *, model: str | None = None, at: datetime | None = None
) -> Cost | Unpriced:
    """Return the cost of a response. Its model and service tier are those that it names.

    response: the response.
    provider: the provider that was asked, or an id of genai-prices (see `price_usage`).
    model: the model of the request, used if the response names no model.
    at: the time of the request (default: now).

    Raises `CostExtraError` if genai-prices is not installed.
    """
    answered = response.model or (model if model is not None else "")
    tier = string(response.provider_data, "service_tier")
    return price_usage(response.usage, answered, provider, service_tier=tier, at=at)


def price(provider: Provider | str, model: str, usage: Usage) -> float | None:
    """Return the US dollars of a number of tokens, or None if the list has no price: for `Traffic(price=…)`.

    provider: the provider that was asked, or an id of genai-prices (see `price_usage`).
    model: the name of the model.
    usage: the tokens.

    Raises `CostExtraError` if genai-prices is not installed.
    """
    found = price_usage(usage, model, provider)
    return float(found.total) if isinstance(found, Cost) else None


def price_usage(
    usage: Usage, model: str, provider: Provider | str, *, service_tier: str | None = None, at: datetime | None = None
) -> Cost | Unpriced:
    """Return the cost of a number of tokens of a model.

    usage: the tokens.
    model: the name of the model that answered.
    provider: the provider that was asked; its `base_url` selects the prices. If that is the address of your own
        gateway, pass the id that genai-prices has for the billing provider, such as `openai`, `anthropic` or `x-ai`.
    service_tier: the service tier that the response names.
    at: the time of the request (default: now). Some prices change, or depend on the hour.

    Raises `CostExtraError` if genai-prices is not installed.
    """
    check_installed()
    from genai_prices import calc_price, types

    if usage.input_tokens is None or usage.output_tokens is None:
        return Unpriced("the answer does not report its tokens")
    if not model:
        return Unpriced("the answer does not name its model")
    context = _price_context(usage.raw or {}, service_tier)
    counts = _counts(usage, usage.input_tokens, usage.output_tokens)
    when = at if at is not None else datetime.now(UTC)
    try:
        ask = partial(calc_price, types.Usage(**counts), model, genai_request_timestamp=when, price_context=context)
        calculation = (
            ask(provider_id=provider) if isinstance(provider, str) else ask(provider_api_url=provider.base_url)
        )
    except LookupError:
        return Unpriced(_unknown(model, provider))
    except ValueError as error:  # counts that contradict one another, or are below zero
        return Unpriced(f"the answer's tokens cannot be priced: {error}")
    if isinstance(provider, str) and calculation.provider.id != provider:
        return Unpriced(_unknown(model, provider))  # genai-prices also accepts ids that only resemble one of its own
    if not _has_prices_for(calculation, context, when):
        conditions = ", ".join(f"{name} {value!r}" for name, value in context.items())
        return Unpriced(f"genai-prices has no price of {model!r} for {conditions}")
    return _cost(calculation, counts)


# --- the names of usage's parts in genai-prices ---

STANDARD_TIERS = frozenset({"auto", "default", "standard", "on_demand"})
"""Service tiers and speeds that have the model's standard price."""

TRAFFIC_TIERS: dict[str, str] = {
    "TRAFFIC_TYPE_UNSPECIFIED": "standard",
    "ON_DEMAND": "standard",
    "ON_DEMAND_FLEX": "flex",
    "ON_DEMAND_PRIORITY": "priority",
}
"""Vertex AI's `trafficType` → service tier. Any other type, such as provisioned throughput, is a tier of its own."""

DETAILS: dict[tuple[str, str], str] = {
    ("cache_creation", "ephemeral_5m_input_tokens"): "cache_write_5m_tokens",
    ("cache_creation", "ephemeral_1h_input_tokens"): "cache_write_1h_tokens",
    ("server_tool_use", "web_search_requests"): "web_searches",
    ("prompt_tokens_details", "audio_tokens"): "input_audio_tokens",
    ("completion_tokens_details", "audio_tokens"): "output_audio_tokens",
}
"""Counts with a separate price that only the raw usage report has: (member, its member) → name in genai-prices.

They are Anthropic's two cache lifetimes and its searches, and OpenAI Chat's audio.
"""

MODALITY_DETAILS = {
    "promptTokensDetails": "input_{}_tokens",
    "cacheTokensDetails": "cache_{}_read_tokens",
    "candidatesTokensDetails": "output_{}_tokens",
}
"""Gemini's lists of `{"modality": …, "tokenCount": …}` → pattern of the name in genai-prices."""

MODALITIES = {"TEXT": "text", "AUDIO": "audio", "IMAGE": "image", "DOCUMENT": "image", "VIDEO": "video"}
"""Gemini's modality → the name of its price in genai-prices."""


def _counts(usage: Usage, input_tokens: int, output_tokens: int) -> dict[str, int]:
    """Return the usage under the names of genai-prices.

    In both, the input includes the tokens that were read from or written to a cache, and these are also counted
    separately. In genai-prices the output includes thinking; in `Usage` it does not.
    """
    raw = usage.raw or {}
    thinking = usage.thinking_tokens or 0
    # Gemini counts the results of its own tools apart from the prompt, and bills them as input.
    tool_results = integer(raw, "toolUsePromptTokenCount") or 0
    counts = {
        "input_tokens": input_tokens + tool_results,
        "cache_read_tokens": usage.cached_tokens or 0,
        "cache_write_tokens": usage.cache_write_tokens or 0,
        "input_tool_tokens": tool_results,
        "output_tokens": output_tokens + thinking,
        "output_reasoning_tokens": thinking,
    }
    for (outer, inner), name in DETAILS.items():
        counts[name] = integer(mapping(raw, outer), inner) or 0
    for member, pattern in MODALITY_DETAILS.items():
        for detail in objects(raw, member):
            modality = MODALITIES.get(string(detail, "modality") or "")
            if modality is not None:
                name = pattern.format(modality)
                counts[name] = counts.get(name, 0) + (integer(detail, "tokenCount") or 0)
    # Drop zeros: an explicit 0 means that the count is known. Only the two totals are always known.
    return {name: count for name, count in counts.items() if count or name in ("input_tokens", "output_tokens")}


def _price_context(raw: JSONObject, service_tier: str | None) -> dict[str, str]:
    """Return the conditions that change the price from the model's standard price: service tier, speed, batch."""
    traffic = string(raw, "trafficType")
    reported = TRAFFIC_TIERS.get(traffic, traffic) if traffic else string(raw, "service_tier")
    tier = service_tier if service_tier is not None else reported
    speed = string(raw, "speed")
    context: dict[str, str] = {}
    if tier == "batch":  # Anthropic's service tier of a response from a Message Batch
        context["processing"] = "batch"
    elif tier and tier not in STANDARD_TIERS:
        context["service_tier"] = tier
    if speed and speed not in STANDARD_TIERS:
        context["speed"] = speed
    return context


def _has_prices_for(calculation: PriceCalculation, context: Mapping[str, str], when: datetime) -> bool:
    """Return whether the list has prices for this context. If not, the calculation used the standard price."""
    model = calculation.model
    if not context:
        return True
    if not any(model is known for known in calculation.provider.models):
        return False  # the price comes from another provider's list, which does not have these tiers
    active = [
        variant.when
        for variant in model.price_variants or ()
        if variant.constraint is None or variant.constraint.active(when)
    ]
    return all(any(prices_when == {name: value} for prices_when in active) for name, value in context.items())


def _unknown(model: str, provider: Provider | str) -> str:
    host = provider if isinstance(provider, str) else urlsplit(provider.base_url).hostname
    return f"genai-prices has no price of model {model!r} at {host!r}; a newer version of it may have one"


# --- the parts of a price ---

CACHE_READ = ("cache_read", "cache_text_read", "cache_audio_read", "cache_image_read", "cache_video_read")
CACHE_WRITE = ("cache_write", "cache_write_5m", "cache_write_1h")
"""Names of prices and counts without their suffix: first the whole, then its parts that may have a separate price."""


def _cost(calculation: PriceCalculation, counts: Mapping[str, int]) -> Cost:
    cached = _part(calculation.model_price, CACHE_READ, counts)
    cache_write = _part(calculation.model_price, CACHE_WRITE, counts)
    return Cost(
        currency=CURRENCY,
        input=calculation.input_price - cached - cache_write,
        cached=cached,
        cache_write=cache_write,
        output=calculation.output_price,
        other=calculation.total_price - calculation.input_price - calculation.output_price,
        total=calculation.total_price,
        model=calculation.model.id,
        provider=calculation.provider.id,
    )


def _part(prices: ModelPrice, names: tuple[str, ...], counts: Mapping[str, int]) -> Decimal:
    """Return the cost of the first name's tokens: the parts at their own prices, the rest at the price of the whole.

    A missing price of the whole counts as 0.
    """
    whole, *parts = names
    total, left = Decimal(0), counts.get(f"{whole}_tokens", 0)
    for name in parts:
        rate = _rate(prices, name, counts["input_tokens"])
        if rate is not None:
            count = counts.get(f"{name}_tokens", 0)
            total, left = total + rate * count, left - count
    return (total + (_rate(prices, whole, counts["input_tokens"]) or Decimal(0)) * left) / PER_MILLION


def _rate(prices: ModelPrice, name: str, input_tokens: int) -> Decimal | None:
    """Return the price of a million tokens, which may depend on the number of input tokens, or None."""
    price: Decimal | TieredPrices | None = getattr(prices, f"{name}_mtok", None)
    if price is None or isinstance(price, Decimal):
        return price
    reached = [tier.price for tier in price.tiers if input_tokens > tier.start]
    return reached[-1] if reached else price.base
