"""What an answer cost, by the price list of genai-prices (https://github.com/pydantic/genai-prices).

    from manystream.cost import Cost, price_response

    cost = price_response(response, provider)
    print(cost.total if isinstance(cost, Cost) else cost.reason)

Needs the extra `cost`. The list comes with that package and no network is used; a program that keeps genai-prices up to
date by its own means has the newer prices here too. A price is never guessed: whose prices count is told by the address
that was asked, the model is the one that answered, and where either is not on the list, the result says so. Prices are
those of the list: a discount, a tax, and fees that usage does not tell (storage of a cache, a tool that runs at the
provider) are not in them.

Knows usage, in the meaning of `providers/usage.py`, and the names that genai-prices has for its parts. Must not know
calls, nor any dialect beyond the raw reports named in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .providers.errors import ManystreamError
from .providers.json_values import JSONObject, integer, mapping, objects, string
from .providers.provider import Provider
from .providers.response import Response
from .providers.usage import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, PriceCalculation, TieredPrices

CURRENCY = "USD"
"""The whole list is in it."""

PER_MILLION = Decimal(1_000_000)


@dataclass(slots=True, frozen=True)
class Cost:
    """What one answer cost. The parts add up to the total.

    currency: its ISO 4217 code. input: input that no cache had part in. cached: input read from a cache; 0 where the
    list has no price of its own for that, since it then costs what other input costs and is part of `input`.
    cache_write: input written to a cache, likewise. output: visible output and thinking. other: what is paid by the
    piece, such as searches. model, provider: the list's names for whose prices these are.
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
    """There is no price for this answer. reason: why, and what would help, in a sentence without its full stop."""

    reason: str


class CostExtraError(ManystreamError, RuntimeError):
    """The extra `cost` is not installed."""


def check_installed() -> None:
    """Raises `CostExtraError` where there is no price list. Loads it otherwise, which takes some tenths of a second."""
    try:
        import genai_prices  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise CostExtraError("prices need the extra `cost`: pip install 'manystream[cost]'") from None


def price_response(
    response: Response, provider: Provider | str, *, model: str | None = None, at: datetime | None = None
) -> Cost | Unpriced:
    """What an answer cost: `price_usage` of the model that answered, in the service tier that it names.

    model: what was asked for; it counts where the answer names no model. Raises `CostExtraError`.
    """
    answered = response.model or (model if model is not None else "")
    tier = string(response.provider_data, "service_tier")
    return price_usage(response.usage, answered, provider, service_tier=tier, at=at)


def price_usage(
    usage: Usage, model: str, provider: Provider | str, *, service_tier: str | None = None, at: datetime | None = None
) -> Cost | Unpriced:
    """What so many tokens of a model cost.

    provider: who was asked; its `base_url` tells whose prices count. Where that is a gateway of your own, the id that
    genai-prices has for whoever sends the bill (`openai`, `anthropic`, `google`, `x-ai`, …). service_tier: as the
    answer names it. at: when it was asked, for prices that have changed or depend on the hour (default: now).
    Raises `CostExtraError`.
    """
    check_installed()
    from genai_prices import calc_price, types

    if usage.input_tokens is None or usage.output_tokens is None:
        return Unpriced("the answer does not tell its tokens")
    if not model:
        return Unpriced("the answer does not name its model")
    context = _price_context(usage.raw or {}, service_tier)
    counts = _counts(usage, usage.input_tokens, usage.output_tokens)
    when = at if at is not None else datetime.now(UTC)
    ask = partial(calc_price, types.Usage(**counts), model, genai_request_timestamp=when, price_context=context)
    try:
        calculation = (
            ask(provider_id=provider) if isinstance(provider, str) else ask(provider_api_url=provider.base_url)
        )
    except LookupError:
        return Unpriced(_unknown(model, provider))
    except ValueError as error:  # counts that contradict one another
        return Unpriced(f"the answer's tokens cannot be priced: {error}")
    if isinstance(provider, str) and calculation.provider.id != provider:
        return Unpriced(_unknown(model, provider))  # it also takes ids that only resemble one of its own
    if not _has_prices_for(calculation, context, when):
        told = ", ".join(f"{name} {value!r}" for name, value in context.items())
        return Unpriced(f"genai-prices has no price of {model!r} for {told}")
    return _cost(calculation, counts)


# --- how the parts of a usage are called there ---

STANDARD_TIERS = frozenset({"auto", "default", "standard", "on_demand"})
"""Service tiers and speeds whose price is the plain one."""

DETAILS: dict[tuple[str, str], str] = {
    ("cache_creation", "ephemeral_5m_input_tokens"): "cache_write_5m_tokens",
    ("cache_creation", "ephemeral_1h_input_tokens"): "cache_write_1h_tokens",
    ("server_tool_use", "web_search_requests"): "web_searches",
    ("prompt_tokens_details", "audio_tokens"): "input_audio_tokens",
    ("completion_tokens_details", "audio_tokens"): "output_audio_tokens",
}
"""What has a price of its own and is told only in the provider's own report: member and its member → name there.
Anthropic's two cache lifetimes and its searches; OpenAI Chat's sound."""

MODALITY_DETAILS = {
    "promptTokensDetails": "input_{}_tokens",
    "cacheTokensDetails": "cache_{}_read_tokens",
    "candidatesTokensDetails": "output_{}_tokens",
}
"""Gemini's lists of `{"modality": …, "tokenCount": …}` → name there."""

MODALITIES = {"TEXT": "text", "AUDIO": "audio", "IMAGE": "image", "DOCUMENT": "image", "VIDEO": "video"}


def _counts(usage: Usage, input_tokens: int, output_tokens: int) -> dict[str, int]:
    """The usage under the names of genai-prices. There, as in `Usage`, all input counts as input, and what was read
    from or written to a cache is named once more; but thinking is part of the output."""
    raw = usage.raw or {}
    thinking = usage.thinking_tokens or 0
    # Gemini counts what its own tools fed to the model beside the prompt, and bills it as input.
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
    # An explicit 0 would say that there was none of it, where nothing was said; only the totals are always known.
    return {name: count for name, count in counts.items() if count or name in ("input_tokens", "output_tokens")}


def _price_context(raw: JSONObject, service_tier: str | None) -> dict[str, str]:
    """What makes this answer's price another one than the model's plain price."""
    tier = service_tier if service_tier is not None else string(raw, "service_tier")
    speed = string(raw, "speed")
    context: dict[str, str] = {}
    if tier == "batch":  # Anthropic's word for an answer out of its own batches
        context["processing"] = "batch"
    elif tier and tier not in STANDARD_TIERS:
        context["service_tier"] = tier
    if speed and speed not in STANDARD_TIERS:
        context["speed"] = speed
    return context


def _has_prices_for(calculation: PriceCalculation, context: Mapping[str, str], when: datetime) -> bool:
    """Whether the list knows this context. Where it does not, its answer is the plain price."""
    model = calculation.model
    if not context:
        return True
    if not any(model is known for known in calculation.provider.models):
        return False  # the price is borrowed from another provider's list, without its tiers
    active = [
        variant.when
        for variant in model.price_variants or ()
        if variant.constraint is None or variant.constraint.active(when)
    ]
    return all(any(prices_when == {name: value} for prices_when in active) for name, value in context.items())


def _unknown(model: str, provider: Provider | str) -> str:
    host = provider if isinstance(provider, str) else urlsplit(provider.base_url).hostname
    return f"genai-prices knows no price of model {model!r} at {host!r}; a newer version of it may"


# --- the parts of a price ---

CACHE_READ = ("cache_read", "cache_text_read", "cache_audio_read", "cache_image_read", "cache_video_read")
CACHE_WRITE = ("cache_write", "cache_write_5m", "cache_write_1h")
"""Names of prices and counts without their ends: the whole first, then what of it may have a price of its own."""


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
    """What the first of the names costs: its parts at their own prices, the rest at its own; 0 where it has none."""
    whole, *parts = names
    total, left = Decimal(0), counts.get(f"{whole}_tokens", 0)
    for name in parts:
        rate = _rate(prices, name, counts["input_tokens"])
        if rate is not None:
            count = counts.get(f"{name}_tokens", 0)
            total, left = total + rate * count, left - count
    return (total + (_rate(prices, whole, counts["input_tokens"]) or Decimal(0)) * left) / PER_MILLION


def _rate(prices: ModelPrice, name: str, input_tokens: int) -> Decimal | None:
    """The price of a million, which may depend on how long the whole input is."""
    price: Decimal | TieredPrices | None = getattr(prices, f"{name}_mtok", None)
    if price is None or isinstance(price, Decimal):
        return price
    reached = [tier.price for tier in price.tiers if input_tokens > tier.start]
    return reached[-1] if reached else price.base
