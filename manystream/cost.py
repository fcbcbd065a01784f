"""The cost of a response, from the price list of genai-prices (https://github.com/pydantic/genai-prices), and from a
price table of your own.

    from manystream.cost import Cost, price_response

    cost = price_response(response, provider)
    print(cost.total if isinstance(cost, Cost) else cost.reason)

Needs the extra `cost`. The list is part of the package genai-prices, so no network is used. If a program updates
genai-prices, this module uses the newer prices.

A price is never guessed. The provider is found by its address, and the model is the one that the response names. If
there is no price for one of them, or for something that the usage reports, the result is `Unpriced`. Prices are list
prices: they include no discount, no tax, and no fee that the usage does not report (such as storage of a cache, or a
tool that runs at the provider).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from . import ManystreamError, Provider, Response, Usage
from .price_table import PriceTable as PriceTable
from .price_table import PriceTableError as PriceTableError
from .price_table import Table
from .providers.anthropic.usage import charged_iterations, read_usage
from .providers.json.json_values import JSON, JSONObject, first_integer, integer, mapping, objects, string
from .providers.limits.server_tools import CODE, FILES, PICTURES, POSTS, SOURCES, TOOLS, WEB, charged_usage
from .providers.model.rules import Rule, check_arguments, instance, optional, text

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, PriceCalculation, TieredPrices

CURRENCY = "USD"
"""The currency of all prices, as an ISO 4217 code."""

PER_MILLION = Decimal(1_000_000)


@dataclass(slots=True, frozen=True)
class Cost:
    """The cost of one response. `total` is the sum of the other amounts.

    currency: ISO 4217 code of all amounts.
    input: input that was neither read from a cache nor written to one.
    cached: input read from a cache. 0 if there is no separate price for it; it is then part of `input`.
    cache_write: input written to a cache. 0 if there is no separate price for it; it is then part of `input`.
    output: visible output and thinking.
    other: items with a price per piece, such as searches.
    total: the whole cost.
    model: the list's id of the model that answered, or its name in the price table.
    provider: the list's id of the provider, or the provider's name if the price is from the price table.
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


ARGUMENTS: dict[str, Rule] = {
    "response": instance(Response),
    "usage": instance(Usage),
    "model": text("the name of a model"),
    "provider": instance(Provider, str, must="a Provider, or the id of a billing provider"),
    "service_tier": optional(text()),
    "at": optional(instance(datetime)),
}


def check_installed() -> None:
    """Import the price list, which takes some tenths of a second. Raises `CostExtraError` if it is not installed."""
    try:
        import genai_prices  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise CostExtraError("prices need the extra `cost`: pip install '.[cost]' in manystream's checkout") from None


def price_response(
    response: Response,
    provider: Provider | str,
    *,
    model: str | None = None,
    at: datetime | None = None,
    table: Table | None = None,
) -> Cost | Unpriced:
    """Return the cost of a response. Its model and service tier are those that it names.

    response: the response.
    provider: the provider that was asked, or an id of genai-prices (see `price_usage`).
    model: the model of the request, used if the response names no model, or one that the table does not have.
    at: the time of the request (default: now).
    table: prices of your own, which precede those of the list.

    Raises `CostExtraError` if genai-prices is not installed, `PriceTableError` for a table that cannot be read, and
    `InvalidRequestError` for an argument of another type.
    """
    check_arguments(ARGUMENTS, response=response, provider=provider)
    table = _table(table)
    answered = response.model or (model if model is not None else "")
    if model and table is not None and table.find(_name(provider), answered) is None:
        answered = model if table.find(_name(provider), model) is not None else answered
    return price_usage(charged_usage(response), answered, provider, at=at, table=table)


def price(provider: Provider | str, model: str, usage: Usage, *, table: Table | None = None) -> float | None:
    """Return the US dollars of a number of tokens, or None if they have no price: for `Traffic(price=…)`.

    provider: the provider that was asked, or an id of genai-prices (see `price_usage`).
    model: the name of the model.
    usage: the tokens.
    table: prices of your own, which precede those of the list: `Traffic(price=partial(price, table=table))`.

    Raises `CostExtraError` if genai-prices is not installed, `PriceTableError` for a table that cannot be read, and
    `InvalidRequestError` for an argument of another type.
    """
    found = price_usage(usage, model, provider, table=table)
    return float(found.total) if isinstance(found, Cost) else None


def _why(provider: Provider | str, model: str, usage: Usage, *, table: Table | None = None) -> str:
    found = price_usage(usage, model, provider, table=table)
    return found.reason if isinstance(found, Unpriced) else ""


price.__dict__["why"] = _why  # `Completion.cost_unknown` has its text


def price_usage(
    usage: Usage,
    model: str,
    provider: Provider | str,
    *,
    service_tier: str | None = None,
    at: datetime | None = None,
    table: Table | None = None,
) -> Cost | Unpriced:
    """Return the cost of a number of tokens of a model.

    usage: the tokens. What `usage.raw` reports beside them may change the price: cache lifetimes, sound, searches, the
        tier and the place of the computation, and the parts of an answer that other models worked on.
    model: the name of the model that answered.
    provider: the provider that was asked; its `prices_as`, else its `base_url`, selects the prices. Or the id that
        genai-prices has for the billing provider, such as `openai`, `anthropic` or `x-ai`.
    service_tier: the service tier that the response names.
    at: the time of the request (default: now). Some prices change, or depend on the hour.
    table: prices of your own, which precede those of the list.

    Raises `CostExtraError` if genai-prices is not installed, `PriceTableError` for a table that cannot be read, and
    `InvalidRequestError` for an argument of another type.
    """
    check_arguments(ARGUMENTS, usage=usage, model=model, provider=provider, service_tier=service_tier, at=at)
    check_installed()
    table = _table(table)
    reason = _why_unpriced(usage, model)
    if reason is not None:
        return Unpriced(reason)
    raw = usage.raw or {}
    context = _price_context(raw, service_tier)
    when = at if at is not None else datetime.now(UTC)
    costs: list[Cost] = []
    for name, counts in _parts(usage, model):
        found = _price(counts, name, provider, context, when, table, mapping(raw, TOOLS))
        if isinstance(found, Unpriced):
            return found
        costs.append(found)
    return _sum(costs, RESIDENCY_FACTORS[_residency(raw)])


def _table(table: Table | None) -> PriceTable | None:
    return table if table is None or isinstance(table, PriceTable) else PriceTable(table)


def _name(provider: Provider | str) -> str:
    return provider if isinstance(provider, str) else provider.name


# --- what the usage reports ---

STANDARD_TIERS = frozenset({"auto", "default", "standard", "standard_only", "on_demand", "unspecified"})
"""Service tiers and speeds that have the model's standard price."""

TRAFFIC_TIERS: dict[JSON, str] = {
    "TRAFFIC_TYPE_UNSPECIFIED": "standard",
    "ON_DEMAND": "standard",
    "ON_DEMAND_FLEX": "flex",
    "ON_DEMAND_PRIORITY": "priority",
    1: "standard",
}
"""Vertex AI's `trafficType`, as its word or number → service tier. Any other type, such as provisioned throughput, is a
tier of its own."""

RESIDENCY_FACTORS: dict[str, Decimal] = {
    "global": Decimal(1),
    "not_available": Decimal(1),
    "us": Decimal("1.1"),
}
"""Anthropic's `inference_geo`, where the model ran → the factor of all prices of tokens (Anthropic's pricing page).
There is no price for any other place."""

DETAILS: dict[tuple[str, ...], str] = {
    ("cache_creation", "ephemeral_5m_input_tokens"): "cache_write_5m_tokens",
    ("cache_creation", "ephemeral_1h_input_tokens"): "cache_write_1h_tokens",
    ("input_tokens_details", "cache_write_tokens_details", "ttl_12h_tokens"): "cache_write_1h_tokens",
    ("prompt_tokens_details", "cache_write_tokens_details", "ttl_12h_tokens"): "cache_write_1h_tokens",
    ("prompt_tokens_details", "cache_creation", "ephemeral_5m_input_tokens"): "cache_write_5m_tokens",
    ("server_tool_use", "web_search_requests"): WEB,
    ("server_tool_use", "code_execution_requests"): CODE,
    ("server_side_tool_usage_details", "web_search_calls"): WEB,
    ("server_side_tool_usage_details", "x_search_calls"): POSTS,
    ("server_side_tool_usage_details", "code_interpreter_calls"): CODE,
    ("server_side_tool_usage_details", "file_search_calls"): FILES,
    ("server_side_tool_usage_details", "document_search_calls"): FILES,
    ("num_search_queries",): WEB,
    ("plugins", "search", "count"): WEB,
    **{(TOOLS, use): use for use in (WEB, FILES, POSTS, CODE)},
    ("prompt_tokens_details", "audio_tokens"): "input_audio_tokens",
    ("completion_tokens_details", "audio_tokens"): "output_audio_tokens",
    ("input_tokens_details", "audio_tokens"): "input_audio_tokens",
    ("output_tokens_details", "audio_tokens"): "output_audio_tokens",
    ("completion_tokens_details", "image_tokens"): "output_image_tokens",
    ("output_tokens_details", "image_tokens"): "output_image_tokens",
}
"""Counts with a separate price that only the raw usage report has: the path to a member → its name in genai-prices.

They are cache lifetimes, uses of the provider's own tools (as Anthropic, xAI, Perplexity and DashScope report them, and
as `charged_usage` counts them in an answer), and OpenAI's audio and images. Both longer lifetimes have one name,
because genai-prices has one.
"""

MODALITY_DETAILS = {
    "promptTokensDetails": "input_{}_tokens",
    "cacheTokensDetails": "cache_{}_read_tokens",
    "candidatesTokensDetails": "output_{}_tokens",
    "input_tokens_by_modality": "input_{}_tokens",
    "cached_tokens_by_modality": "cache_{}_read_tokens",
    "output_tokens_by_modality": "output_{}_tokens",
}
"""Gemini's lists of `{"modality": …, "tokenCount": …}`, with `tokens` as the count in its newer API → pattern of
the name in genai-prices.
"""

MODALITY_COUNTS = ("tokenCount", "tokens")
"""Names of the count in such a list."""

MODALITIES: dict[JSON, str] = {
    "TEXT": "text", "AUDIO": "audio", "IMAGE": "image", "DOCUMENT": "image", "VIDEO": "video",
    "text": "text", "audio": "audio", "image": "image", "document": "image", "video": "video",
    1: "text", 2: "image", 3: "video", 4: "audio", 5: "image",
}  # fmt: skip
"""Gemini's modality, as its word or number → the name of its price in genai-prices."""

UNSPECIFIED: tuple[JSON, ...] = ("MODALITY_UNSPECIFIED", 0, None)
"""A modality that Gemini does not name: the tokens have the price of text. There is no price for any other word."""

SEPARATE_PRICES: dict[str, str] = {
    "input_audio": "audio input",
    "output_audio": "audio output",
    "output_image": "image output",
    "output_video": "video output",
    "cache_write_1h": "cache writes with the longer lifetime",
    WEB: "searches",
    FILES: "searches of files",
    POSTS: "searches of posts",
    CODE: "runs of code",
}
"""Counts that must have a price of their own → what they are. The price of text would be a guess."""

ONE_INPUT_PRICE = frozenset({"google"})
"""Price lists that have a price for audio wherever it differs from that of text (Google's pricing page)."""

FEES: dict[tuple[str, ...], str] = {
    ("num_sources_used",): "sources of a live search",
    ("num_server_side_tools_used",): "tools that ran at the provider",
    ("server_side_tool_usage_details", "image_generation_calls"): "generated pictures",
    ("server_tool_use_details", "web_search_requests"): "searches of the gateway",
    ("citation_tokens",): "citations",
}
"""Counts of items that are charged, and whose price is not known: the path to a member → what they are."""


def _why_unpriced(usage: Usage, model: str) -> str | None:
    """Return why a usage has no price, whatever the prices are; None if it may have one."""
    raw = usage.raw or {}
    if usage.input_tokens is None or usage.output_tokens is None:
        return "the answer does not report its tokens"
    if not model:
        return "the answer does not name its model"
    if _residency(raw) not in RESIDENCY_FACTORS:
        return f"no price is known for inference_geo {_residency(raw)!r}"
    if raw.get("is_byok") is True:
        return "the gateway used a key of your own, so the provider of that key sends the bill"
    fees = {path: what for path, what in FEES.items() if _count(raw, path) > 0}
    if "server_side_tool_usage_details" in raw:
        fees.pop(("num_server_side_tools_used",), None)  # which they are
    known = (*SEPARATE_PRICES, PICTURES, SOURCES)
    fee = next(iter([*fees.values(), *(use for use in mapping(raw, TOOLS) if use not in known)]), None)
    if fee is not None:
        return f"the answer reports {fee}, whose price is not known"
    if TOOLS not in raw and any(integer(tool, "count") for tool in objects(raw, "grounding_tool_count")):
        return "the answer reports searches, whose price is not known"
    for member in MODALITY_DETAILS:
        for detail in objects(raw, member):
            modality = detail.get("modality")
            unknown = _word(MODALITIES, modality) is None and modality not in UNSPECIFIED
            if unknown and first_integer(detail, MODALITY_COUNTS):
                return f"no price is known for tokens of modality {modality!r}"
    entries = charged_iterations(raw)
    parts = [read_usage(entry) for entry in entries]
    given = sum(part.input_tokens or 0 for part in parts)
    written = sum(part.output_tokens or 0 for part in parts)
    if entries and (given, written) != (usage.input_tokens, usage.output_tokens + (usage.thinking_tokens or 0)):
        return "the parts of the answer that its usage reports do not add up to its tokens"
    credited = string(mapping(mapping(raw, "fallback_credit"), "status"), "type") == "redeemed"
    if usage.cache_write_tokens and (credited or any(entry.get("type") == "fallback_message" for entry in entries)):
        return "a fallback credit changes the price of cache writes, and the answer does not report by how much"
    return None


def _parts(usage: Usage, model: str) -> Iterator[tuple[str, dict[str, int]]]:
    """Return the parts of an answer that have prices of their own: the model of each, and what it used.

    There is more than one where a model was sampled several times for one answer. Each time has its own length, which
    selects a price, and may have a model of its own.
    """
    raw = usage.raw or {}
    entries = charged_iterations(raw)
    if not entries:
        yield model, _counts(usage, usage.input_tokens or 0, usage.output_tokens or 0)
    for place, entry in enumerate(entries, 1):
        if place == len(entries):
            entry = {**entry, "server_tool_use": raw.get("server_tool_use"), TOOLS: raw.get(TOOLS)}
        part = read_usage(entry)
        yield string(entry, "model") or model, _counts(part, part.input_tokens or 0, part.output_tokens or 0)


def _counts(usage: Usage, input_tokens: int, output_tokens: int) -> dict[str, int]:
    """Return the usage under the names of genai-prices.

    In both, the input includes the tokens that were read from or written to a cache, and these are also counted
    separately. In genai-prices the output includes thinking; in `Usage` it does not.
    """
    raw = usage.raw or {}
    thinking = usage.thinking_tokens or 0
    tool_results = first_integer(raw, ("toolUsePromptTokenCount", "total_tool_use_tokens")) or 0
    counts = {
        "input_tokens": input_tokens,
        "cache_read_tokens": usage.cached_tokens or 0,
        "cache_write_tokens": usage.cache_write_tokens or 0,
        "input_tool_tokens": tool_results,
        "output_tokens": output_tokens + thinking,
        "output_reasoning_tokens": thinking,
    }
    for path, name in DETAILS.items():
        counts[name] = counts.get(name, 0) or _count(raw, path)
    for member, pattern in MODALITY_DETAILS.items():
        for detail in objects(raw, member):
            modality = _word(MODALITIES, detail.get("modality"))
            if modality is not None:
                name = pattern.format(modality)
                counts[name] = counts.get(name, 0) + (first_integer(detail, MODALITY_COUNTS) or 0)
    # Drop zeros: an explicit 0 means that the count is known. Only the two totals are always known.
    return {name: count for name, count in counts.items() if count or name in ("input_tokens", "output_tokens")}


def _count(raw: JSONObject, path: Sequence[str]) -> int:
    """Return the number at the end of a path through objects; 0 if there is none."""
    for member in path[:-1]:
        raw = mapping(raw, member)
    return integer(raw, path[-1]) or 0


def _word(table: Mapping[JSON, str], value: JSON) -> str | None:
    """Return the row of a word or a number; None for any other value."""
    return table.get(value) if type(value) is str or type(value) is int else None


def _residency(raw: JSONObject) -> str:
    return string(raw, "inference_geo") or "global"


def _price_context(raw: JSONObject, service_tier: str | None) -> dict[str, str]:
    """Return the conditions that change the price from the model's standard price: service tier, speed, batch."""
    traffic = raw.get("trafficType")
    tier = service_tier or string(raw, "service_tier") or string(raw, "serviceTier")
    if traffic:
        tier = _word(TRAFFIC_TIERS, traffic) or str(traffic)
    speed = string(raw, "speed")
    context: dict[str, str] = {}
    if tier == "batch":  # Anthropic's service tier of a response from a Message Batch
        context["processing"] = "batch"
    elif tier and tier.lower() not in STANDARD_TIERS:
        context["service_tier"] = tier
    if speed and speed not in STANDARD_TIERS:
        context["speed"] = speed
    return context


# --- prices ---


def _price(
    counts: dict[str, int],
    model: str,
    provider: Provider | str,
    context: Mapping[str, str],
    when: datetime,
    table: PriceTable | None,
    tools: JSONObject,
) -> Cost | Unpriced:
    """Return the cost of the tokens of one model. tools: what the answer used besides."""
    from genai_prices import calc_price, types

    billing = provider if isinstance(provider, str) else provider.prices_as
    key = None if table is None else table.find(_name(provider), model)
    where = "genai-prices" if table is None or key is None else table.source
    try:
        usage = types.Usage(**counts)
        if table is not None and key is not None:
            info, owner = table.info(key), _name(provider)
            prices = types.Provider(id=owner, name=owner, api_pattern="", models=[info])
            calculation = info.calc_price(usage, prices, genai_request_timestamp=when, price_context=context)
        else:
            ask = partial(calc_price, usage, model, genai_request_timestamp=when, price_context=context)
            calculation = (
                ask(provider_api_url=provider.base_url)
                if billing is None and isinstance(provider, Provider)
                else ask(provider_id=billing)
            )
    except LookupError:
        return Unpriced(_unknown(model, provider))
    except ValueError as error:  # counts that contradict one another, or are below zero
        return Unpriced(f"the answer's tokens cannot be priced: {error}")
    if key is None and billing is not None and calculation.provider.id != billing:
        return Unpriced(_unknown(model, provider))  # genai-prices also accepts ids that only resemble one of its own
    if not _has_prices_for(calculation, context, when):
        conditions = ", ".join(f"{name} {value!r}" for name, value in context.items())
        return Unpriced(f"{where} has no price of {model!r} for {conditions}")
    lacking = _without_own_price(calculation, counts, tools)
    if lacking is not None:
        return Unpriced(f"{where} has no price of {model!r} for {lacking}")
    return _cost(calculation, counts)


def _has_prices_for(calculation: PriceCalculation, context: Mapping[str, str], when: datetime) -> bool:
    """Return whether there are prices for this context. If not, the calculation used the standard price."""
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


def _without_own_price(calculation: PriceCalculation, counts: Mapping[str, int], tools: JSONObject) -> str | None:
    """Return what was used that needs a price of its own and has none; None if there is nothing."""
    for name, what in SEPARATE_PRICES.items():
        one_price = name.endswith("_audio") and calculation.provider.id in ONE_INPUT_PRICE
        is_use = name in (WEB, FILES, POSTS, CODE)
        unit, price = (name, f"{name}_kcount") if is_use else (f"{name}_tokens", f"{name}_mtok")
        if counts.get(unit) and not one_price and getattr(calculation.model_price, price, None) is None:
            return what
    if tools.get(PICTURES) and not counts.get("output_image_tokens"):
        return "pictures whose tokens the answer does not report"
    if tools.get(SOURCES) and not counts.get(WEB) and calculation.model_price.requests_kcount is None:
        return "searches whose number the answer does not report"
    return None


GATEWAY_HINT = "the provider's prices_as=… names whose prices a gateway has, "


def _unknown(model: str, provider: Provider | str) -> str:
    billing = provider if isinstance(provider, str) else provider.prices_as
    where = billing or (urlsplit(provider.base_url).hostname if isinstance(provider, Provider) else "")
    gateway = GATEWAY_HINT if billing is None else ""
    return (
        f"genai-prices has no price of model {model!r} at {where!r}; a newer version of it may have one,"
        f" {gateway}and a price table of your own can"
    )


# --- the parts of a price ---

CACHE_READ = ("cache_read", "cache_text_read", "cache_audio_read", "cache_image_read", "cache_video_read")
CACHE_WRITE = ("cache_write", "cache_write_5m", "cache_write_1h")
"""Names of prices and counts without their suffix: first the whole, then its parts that may have a separate price."""


FACTORED = ("input", "cached", "cache_write", "output")
"""The amounts of a cost that are prices of tokens, to which a factor applies."""


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


def _sum(costs: Sequence[Cost], factor: Decimal) -> Cost:
    """Return the sum of the costs of an answer's parts. factor: that of the prices of tokens."""
    if len(costs) == 1 and factor == 1:
        return costs[0]
    parts = {name: sum((getattr(cost, name) for cost in costs), Decimal(0)) for name in FACTORED}
    parts = {name: factor * part for name, part in parts.items()}
    parts["other"] = sum((cost.other for cost in costs), Decimal(0))
    return replace(costs[-1], **parts, total=sum(parts.values(), Decimal(0)))  # type: ignore[arg-type]


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
