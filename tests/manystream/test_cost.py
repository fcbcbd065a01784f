"""The cost of an answer: its parts, no token counted twice, and no guess without a price.

Most expected amounts are computed by hand from prices in the test. The last test compares our reading of a provider's
usage report with the reading of genai-prices; the two must agree, whatever the prices are.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import (
    ClauseEquals,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    StartDateConstraint,
    Tier,
    TieredPrices,
)
from genai_prices.types import Provider as ListedProvider

import manystream as ms
from manystream.cost import Cost, CostExtraError, Unpriced, _counts, check_installed, price, price_response, price_usage
from manystream.providers.anthropic.usage import read_usage as anthropic_usage
from manystream.providers.gemini.usage import read_usage as gemini_usage
from manystream.providers.json.json_values import JSONObject
from manystream.providers.openai.chat.usage import read_usage as chat_usage
from manystream.providers.openai.responses.usage import read_usage as responses_usage

WHEN = datetime(2026, 11, 20, 12, tzinfo=UTC)

DIALECT_USAGE: dict[str, Callable[[JSONObject], ms.Usage]] = {
    "anthropic": anthropic_usage,
    "openai-chat": chat_usage,
    "openai-responses": responses_usage,
    "gemini": gemini_usage,
}
"""Dialect → the function that reads its usage report."""


def priced(result: Cost | Unpriced) -> Cost:
    assert isinstance(result, Cost), result
    parts = result.input + result.cached + result.cache_write + result.output + result.other
    assert parts == result.total
    return result


def reason(result: Cost | Unpriced) -> str:
    assert isinstance(result, Unpriced), result
    return result.reason


# --- amounts computed by hand, from a price list of the tests ---


def listed(id: str, prices: ModelPrice, *variants: PriceVariant) -> ModelInfo:
    return ModelInfo(id=id, match=ClauseEquals(id), prices=prices, price_variants=list(variants))


LIST = ListedProvider(
    id="mill",
    name="The mill",
    api_pattern=r"https://api\.mill\.test",
    models=[
        listed(
            "rye",
            ModelPrice(
                input_mtok=Decimal(10),
                cache_read_mtok=Decimal(1),
                cache_write_mtok=Decimal(12),
                cache_write_1h_mtok=Decimal(20),
                output_mtok=Decimal(50),
                web_searches_kcount=Decimal(10),
            ),
            PriceVariant({"service_tier": "flex"}, ModelPrice(input_mtok=Decimal(5), output_mtok=Decimal(25))),
            PriceVariant({"processing": "batch"}, ModelPrice(output_mtok=Decimal(20))),
            PriceVariant({"speed": "fast"}, ModelPrice(output_mtok=Decimal(300))),
            PriceVariant({"speed": "slow"}, ModelPrice(output_mtok=Decimal(1)), StartDateConstraint(date(2020, 1, 1))),
        ),
        listed("oats", ModelPrice(input_mtok=Decimal(10), output_mtok=Decimal(50))),
        listed(
            "spelt",
            ModelPrice(
                input_mtok=TieredPrices(Decimal(10), [Tier(1000, Decimal(20))]),
                cache_read_mtok=TieredPrices(Decimal(1), [Tier(1000, Decimal(2))]),
                output_mtok=Decimal(50),
            ),
        ),
    ],
)
BORROWER = ListedProvider(
    id="shop", name="A shop", api_pattern=r"https://shop\.test", fallback_model_providers=["mill"], models=[]
)
MILL = ms.OpenAIChat("k", "https://api.mill.test/v1")


@pytest.fixture
def mill() -> Iterator[ms.Provider]:
    set_custom_snapshot(DataSnapshot([LIST, BORROWER], from_auto_update=False))
    yield MILL
    set_custom_snapshot(None)


def millionths(**parts: int) -> dict[str, Decimal]:
    return {name: Decimal(value).scaleb(-6) for name, value in parts.items()}


def parts(cost: Cost) -> dict[str, Decimal]:
    found = {"input": cost.input, "cached": cost.cached, "cache_write": cost.cache_write, "output": cost.output}
    return {name: value for name, value in (found | {"other": cost.other}).items() if value}


def test_cached_input_is_counted_once(mill: ms.Provider) -> None:
    usage = ms.Usage(input_tokens=1000, cached_tokens=600, cache_write_tokens=100, output_tokens=10)
    cost = priced(price_usage(usage, "rye", mill))
    assert parts(cost) == millionths(input=300 * 10, cached=600 * 1, cache_write=100 * 12, output=10 * 50)
    assert cost.total == Decimal("0.0053")
    assert (cost.currency, cost.model, cost.provider) == ("USD", "rye", "mill")


def test_thinking_costs_as_much_as_visible_output(mill: ms.Provider) -> None:
    usage = ms.Usage(input_tokens=0, output_tokens=10, thinking_tokens=90)
    assert parts(priced(price_usage(usage, "rye", mill))) == millionths(output=100 * 50)


def test_without_a_cache_price_cached_input_is_input(mill: ms.Provider) -> None:
    usage = ms.Usage(input_tokens=1000, cached_tokens=600, cache_write_tokens=100, output_tokens=0)
    assert parts(priced(price_usage(usage, "oats", mill))) == millionths(input=1000 * 10)


def test_the_input_length_selects_the_tier_of_every_part(mill: ms.Provider) -> None:
    short = ms.Usage(input_tokens=1000, cached_tokens=900, output_tokens=0)
    long = ms.Usage(input_tokens=1001, cached_tokens=900, output_tokens=0)
    assert parts(priced(price_usage(short, "spelt", mill))) == millionths(input=100 * 10, cached=900 * 1)
    assert parts(priced(price_usage(long, "spelt", mill))) == millionths(input=101 * 20, cached=900 * 2)


ANTHROPIC_REPORT: JSONObject = {
    "input_tokens": 40,
    "cache_read_input_tokens": 500,
    "cache_creation_input_tokens": 300,
    "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
    "output_tokens": 30,
    "server_tool_use": {"web_search_requests": 2},
    "service_tier": "standard",
}


def test_anthropics_cache_lifetimes_and_searches_have_prices(mill: ms.Provider) -> None:
    cost = priced(price_usage(anthropic_usage(ANTHROPIC_REPORT), "rye", mill))
    written = 100 * 12 + 200 * 20
    assert parts(cost) == millionths(
        input=40 * 10, cached=500 * 1, cache_write=written, output=30 * 50, other=2 * 10 * 1000
    )


def test_cached_input_of_openai_and_anthropic_costs_the_same(mill: ms.Provider) -> None:
    beside = anthropic_usage({"input_tokens": 400, "cache_read_input_tokens": 600, "output_tokens": 50})
    chat = chat_usage({"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 600}, "completion_tokens": 50})
    responses = responses_usage(
        {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 600}, "output_tokens": 50}
    )
    gemini = gemini_usage({"promptTokenCount": 1000, "cachedContentTokenCount": 600, "candidatesTokenCount": 50})
    costs = [priced(price_usage(usage, "rye", mill)) for usage in (beside, chat, responses, gemini)]
    assert parts(costs[0]) == millionths(input=400 * 10, cached=600 * 1, output=50 * 50)
    assert costs == [costs[0]] * 4


def test_without_a_time_a_price_is_that_of_now(mill: ms.Provider) -> None:
    usage = ms.Usage(input_tokens=0, output_tokens=10, raw={"speed": "slow"})
    assert parts(priced(price_usage(usage, "rye", mill))) == millionths(output=10)
    before = datetime(2019, 12, 31, tzinfo=UTC)
    assert "for speed 'slow'" in reason(price_usage(usage, "rye", mill, at=before))


@pytest.mark.parametrize(
    ("tier", "output"),
    [(None, 50), ("auto", 50), ("default", 50), ("standard", 50), ("on_demand", 50), ("flex", 25), ("batch", 20)],
)
def test_the_service_tier_of_the_answer_has_its_price(mill: ms.Provider, tier: str | None, output: int) -> None:
    usage = ms.Usage(input_tokens=0, output_tokens=100)
    cost = priced(price_usage(usage, "rye", mill, service_tier=tier))
    assert parts(cost) == millionths(output=100 * output)


@pytest.mark.parametrize(("traffic", "output"), [("ON_DEMAND", 50), ("ON_DEMAND_FLEX", 25)])
def test_vertex_ais_traffic_type_is_a_service_tier(mill: ms.Provider, traffic: str, output: int) -> None:
    usage = gemini_usage({"promptTokenCount": 0, "candidatesTokenCount": 100, "trafficType": traffic})
    assert parts(priced(price_usage(usage, "rye", mill))) == millionths(output=100 * output)


@pytest.mark.parametrize("traffic", ["PROVISIONED_THROUGHPUT", "ON_DEMAND_OFFPEAK"])
def test_traffic_without_a_price_is_unpriced(mill: ms.Provider, traffic: str) -> None:
    usage = gemini_usage({"promptTokenCount": 1, "candidatesTokenCount": 1, "trafficType": traffic})
    assert traffic in reason(price_usage(usage, "rye", mill))


def test_the_speed_of_the_answer_has_its_price(mill: ms.Provider) -> None:
    usage = anthropic_usage({"input_tokens": 0, "output_tokens": 100, "speed": "fast"})
    assert parts(priced(price_usage(usage, "rye", mill))) == millionths(output=100 * 300)


@pytest.mark.parametrize(("model", "tier"), [("rye", "priority"), ("oats", "flex")])
def test_a_service_tier_without_a_price_is_unpriced(mill: ms.Provider, model: str, tier: str) -> None:
    usage = ms.Usage(input_tokens=1, output_tokens=1)
    assert tier in reason(price_usage(usage, model, mill, service_tier=tier))


def test_a_price_of_another_providers_list_has_no_tiers(mill: ms.Provider) -> None:
    usage = ms.Usage(input_tokens=1000, output_tokens=0)
    shop = ms.OpenAIChat("k", "https://shop.test/v1")
    assert priced(price_usage(usage, "rye", shop)).total == Decimal("0.01")
    assert "flex" in reason(price_usage(usage, "rye", shop, service_tier="flex"))


# A provider's usage report, and the names that genai-prices has for its parts.
REPORTED_PARTS: list[tuple[JSONObject, dict[str, int]]] = [
    ({"cache_creation": {"ephemeral_5m_input_tokens": 7}}, {"cache_write_5m_tokens": 7}),
    ({"cache_creation": {"ephemeral_1h_input_tokens": 7}}, {"cache_write_1h_tokens": 7}),
    ({"server_tool_use": {"web_search_requests": 7}}, {"web_searches": 7}),
    ({"prompt_tokens_details": {"audio_tokens": 7}}, {"input_audio_tokens": 7}),
    ({"completion_tokens_details": {"audio_tokens": 7}}, {"output_audio_tokens": 7}),
    *(
        ({member: [{"modality": modality, "tokenCount": 7}]}, {name.format(kind): 7})
        for modality, kind in (
            ("TEXT", "text"), ("AUDIO", "audio"), ("IMAGE", "image"), ("DOCUMENT", "image"), ("VIDEO", "video"))
        for member, name in (
            ("promptTokensDetails", "input_{}_tokens"),
            ("cacheTokensDetails", "cache_{}_read_tokens"),
            ("candidatesTokensDetails", "output_{}_tokens"),
        )
    ),
    ({"promptTokensDetails": [{"modality": "MODALITY_UNSPECIFIED", "tokenCount": 7}]}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "counts"), REPORTED_PARTS)
def test_every_part_of_a_usage_report_has_a_name_in_the_list(raw: JSONObject, counts: dict[str, int]) -> None:
    usage = ms.Usage(input_tokens=100, output_tokens=10, raw=raw)
    assert _counts(usage, 100, 10) == {"input_tokens": 100, "output_tokens": 10, **counts}


# --- no guess ---

PLAIN = ms.Usage(input_tokens=10, output_tokens=10)


def test_the_reason_names_the_unknown_model(mill: ms.Provider) -> None:
    unpriced = reason(price_usage(PLAIN, "wheat", mill))
    assert (
        unpriced == "genai-prices has no price of model 'wheat' at 'api.mill.test'; a newer version of it may have one"
    )


def test_the_address_selects_the_prices_not_the_name() -> None:
    local = ms.OpenAIChat("k", "http://user:secret@127.0.0.1:8000/v1", name="openai")
    unpriced = reason(price_usage(PLAIN, "gpt-5", local))
    assert "'gpt-5' at '127.0.0.1'" in unpriced
    assert "secret" not in unpriced


def test_the_billing_provider_of_a_gateway_can_be_named() -> None:
    assert price_usage(PLAIN, "gpt-5", "openai") == price_usage(PLAIN, "gpt-5", ms.OpenAIChat())
    assert "'our-openai'" in reason(price_usage(PLAIN, "gpt-5", "our-openai"))


@pytest.mark.parametrize("usage", [ms.Usage(), ms.Usage(input_tokens=5), ms.Usage(output_tokens=5)])
def test_missing_token_counts_are_unpriced(usage: ms.Usage) -> None:
    assert reason(price_usage(usage, "gpt-5", "openai")) == "the answer does not report its tokens"


def test_more_cached_input_than_input_is_unpriced() -> None:
    usage = ms.Usage(input_tokens=5, cached_tokens=6, output_tokens=1)
    assert "cannot be priced" in reason(price_usage(usage, "gpt-5", "openai"))


def test_the_answers_model_counts_before_the_requested_one() -> None:
    answered = ms.Response(usage=PLAIN, model="gpt-5-mini-2025-08-07")
    silent = ms.Response(usage=PLAIN)
    assert priced(price_response(answered, "openai", model="gpt-5")).model == "gpt-5-mini"
    assert priced(price_response(silent, "openai", model="gpt-5")).model == "gpt-5"
    assert reason(price_response(silent, "openai")) == "the answer does not name its model"


def test_the_tier_of_a_response_is_read_from_its_data() -> None:
    plain = ms.Response(usage=PLAIN, model="gpt-5", provider_data={"service_tier": "default"})
    flex = ms.Response(usage=PLAIN, model="gpt-5", provider_data={"service_tier": "flex"})
    scale = ms.Response(usage=PLAIN, model="gpt-5", provider_data={"service_tier": "scale"})
    total = priced(price_response(plain, "openai", at=WHEN)).total
    assert priced(price_response(flex, "openai", at=WHEN)).total * 2 == total
    assert "'scale'" in reason(price_response(scale, "openai", at=WHEN))


def test_no_network_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    priced(price_usage(PLAIN, "gpt-5", ms.OpenAIChat()))


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(CostExtraError, match=r"pip install 'manystream\[cost\]'"):
        check_installed()
    with pytest.raises(CostExtraError):
        price_usage(PLAIN, "gpt-5", "openai")


def test_the_price_list_is_loaded_only_when_it_is_needed() -> None:
    program = "import sys, manystream.cli, manystream.batch, manystream.cost\n"
    program += "sys.exit('genai_prices' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# --- the same amounts as genai-prices computes from the provider's own report ---

CHAT_REPORT: JSONObject = {
    "prompt_tokens": 1200,
    "completion_tokens": 340,
    "total_tokens": 1540,
    "prompt_tokens_details": {"cached_tokens": 1024},
    "completion_tokens_details": {"reasoning_tokens": 192},
}
BESIDE_REPORT: JSONObject = {
    "prompt_tokens": 1200,
    "completion_tokens": 148,
    "total_tokens": 1540,
    "prompt_tokens_details": {"cached_tokens": 1024},
    "completion_tokens_details": {"reasoning_tokens": 192},
}
RESPONSES_REPORT: JSONObject = {
    "input_tokens": 1200,
    "input_tokens_details": {"cached_tokens": 1024},
    "output_tokens": 340,
    "output_tokens_details": {"reasoning_tokens": 192},
    "total_tokens": 1540,
}
GEMINI_REPORT: JSONObject = {
    "promptTokenCount": 1200,
    "cachedContentTokenCount": 1024,
    "candidatesTokenCount": 148,
    "thoughtsTokenCount": 192,
    "toolUsePromptTokenCount": 30,
    "totalTokenCount": 1570,
}
GEMINI_SOUND: JSONObject = {
    "promptTokenCount": 1200,
    "cachedContentTokenCount": 900,
    "candidatesTokenCount": 148,
    "totalTokenCount": 1348,
    "promptTokensDetails": [
        {"modality": "TEXT", "tokenCount": 200},
        {"modality": "AUDIO", "tokenCount": 1000},
    ],
    "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 100}, {"modality": "AUDIO", "tokenCount": 800}],
}
REPORTS: list[tuple[ms.Provider, str, str, JSONObject]] = [
    *((ms.Anthropic(), model, "default", ANTHROPIC_REPORT) for model in (
        "claude-opus-4-1", "claude-sonnet-4-5-20250929", "claude-haiku-4-5")),
    *((ms.OpenAIChat(), model, "chat", CHAT_REPORT) for model in ("gpt-5", "gpt-5-mini", "gpt-4o", "o3")),
    *((ms.OpenAIResponses(), model, "responses", RESPONSES_REPORT) for model in ("gpt-5", "gpt-5-mini-2025-08-07")),
    *((ms.Gemini(), model, "default", GEMINI_REPORT) for model in ("gemini-2.5-pro", "gemini-2.5-flash")),
    (ms.Gemini(), "gemini-2.5-flash", "default", GEMINI_SOUND),
    (ms.OpenAIChat(name="deepseek"), "deepseek-chat", "chat", CHAT_REPORT),
    (ms.OpenAIChat(name="groq"), "openai/gpt-oss-120b", "default", CHAT_REPORT),
    (ms.OpenAIChat(name="mistral"), "mistral-large-latest", "default", CHAT_REPORT),
    (ms.OpenAIChat(name="xai"), "grok-4", "chat", BESIDE_REPORT),
    (ms.OpenAIChat(name="openrouter"), "openai/gpt-5", "chat", CHAT_REPORT),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "model", "flavour", "report"), REPORTS)
def test_genai_prices_reads_the_same_price_from_the_report(
    provider: ms.Provider, model: str, flavour: str, report: JSONObject
) -> None:
    gemini = provider.dialect == "gemini"
    answer = {"modelVersion" if gemini else "model": model, "usageMetadata" if gemini else "usage": report}
    theirs = genai_prices.extract_usage(answer, provider_api_url=provider.base_url, api_flavor=flavour).calc_price(
        genai_request_timestamp=WHEN
    )
    ours = priced(price_usage(DIALECT_USAGE[provider.dialect](report), model, provider, at=WHEN))
    assert (ours.model, ours.provider) == (theirs.model.id, theirs.provider.id)
    assert ours.total == theirs.total_price
    assert ours.output == theirs.output_price
    assert ours.input + ours.cached + ours.cache_write == theirs.input_price


def test_a_price_is_a_number_for_traffic_control(mill: ms.Provider) -> None:
    usage = ms.Usage(1_000, 100)
    found = price_usage(usage, "rye", mill)
    assert isinstance(found, Cost)
    assert price(mill, "rye", usage) == float(found.total)
    assert price(mill, "no such model", usage) is None
    assert price(mill, "rye", ms.Usage()) is None


@pytest.mark.parametrize(
    "usage",
    [
        ms.Usage(input_tokens=-3, output_tokens=7),
        ms.Usage(input_tokens=3, output_tokens=-7),
        ms.Usage(input_tokens=3, output_tokens=7, cached_tokens=-1),
        ms.Usage(input_tokens=3, output_tokens=7, raw={"server_tool_use": {"web_search_requests": -1}}),
    ],
)
def test_a_count_below_zero_is_unpriced(usage: ms.Usage) -> None:
    assert "cannot be priced" in reason(price_usage(usage, "claude-sonnet-4-5", "anthropic"))
