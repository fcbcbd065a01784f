"""The cost of an answer: its parts, no token counted twice, and no guess without a price.

One file because every test prices reports by the one price list that is written here.

Most expected amounts are computed by hand from prices in the test. The last test compares our reading of a provider's
usage report with the reading of genai-prices; the two must agree, whatever the prices are.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import genai_prices
import pytest

import manystream as ms
from manystream.cost import (
    Cost,
    CostExtraError,
    PriceTable,
    _counts,
    check_installed,
    price,
    price_response,
    price_usage,
)
from manystream.engine.traffic.budgets.budgets import spent_by
from manystream.providers.anthropic.usage import read_usage as anthropic_usage
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.gemini.usage import read_usage as gemini_usage
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.openai.chat.usage import read_usage as chat_usage
from manystream.providers.openai.responses.usage import read_usage as responses_usage
from tests.support.price_list import (
    ANTHROPIC_REPORT,
    COUNTS,
    GEMINI_SOUND,
    PLAIN,
    PROVIDERS,
    REPORTED_PARTS,
    REPORTS,
    chat,
    gemini,
    parts,
    priced,
    reason,
    responses,
)

WHEN = datetime(2026, 11, 20, 12, tzinfo=UTC)


DIALECT_USAGE: dict[str, Callable[[JSONObject], ms.Usage]] = {
    "anthropic": anthropic_usage, "openai-chat": chat_usage, "openai-responses": responses_usage,
    "gemini": gemini_usage,
}  # fmt: skip
"""Dialect → the function that reads its usage report."""


def millionths(**parts: int) -> dict[str, Decimal]:
    return {name: Decimal(value).scaleb(-6) for name, value in parts.items()}


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


@pytest.mark.parametrize(("raw", "counts"), REPORTED_PARTS)
def test_every_part_of_a_usage_report_has_a_name_in_the_list(raw: JSONObject, counts: dict[str, int]) -> None:
    usage = ms.Usage(input_tokens=100, output_tokens=10, raw=raw)
    assert _counts(usage, 100, 10) == {"input_tokens": 100, "output_tokens": 10, **counts}


# --- parts of an answer, and what changes a price ---


def sampled(kind: str, given: int, written: int, **more: JSON) -> JSONObject:
    counts: JSONObject = {"input_tokens": given, "output_tokens": written, "cache_read_input_tokens": 0}
    return {"type": kind, **counts, "cache_creation_input_tokens": 0, **more}


PARTS: dict[str, tuple[JSONObject, int]] = {
    "a compaction": (
        {"input_tokens": 23_000, "output_tokens": 1_000,
         "iterations": [sampled("compaction", 180_000, 3_500), sampled("message", 23_000, 1_000)]},
        203_000 * 10 + 4_500 * 50,
    ),
    "an advisor with a price of its own": (
        {"input_tokens": 20, "output_tokens": 2,
         "iterations": [sampled("message", 20, 2), sampled("advisor_message", 100, 10, model="wheat")]},
        20 * 10 + 2 * 50 + 100 * 40 + 10 * 200,
    ),
    "a declined attempt": (
        {"input_tokens": 20, "output_tokens": 2,
         "iterations": [sampled("message", 500, 0, model="other"), sampled("fallback_message", 20, 2, model="oats")]},
        20 * 10 + 2 * 50,
    ),
    "an attempt that wrote something": (
        {"input_tokens": 20, "output_tokens": 2,
         "iterations": [sampled("message", 10, 1, model="wheat"), sampled("fallback_message", 20, 2)]},
        10 * 40 + 200 + 20 * 10 + 2 * 50,
    ),
    "each part's own length selects its price": (
        {"input_tokens": 1_800, "output_tokens": 0,
         "iterations": [sampled("message", 900, 1, model="spelt"), sampled("message", 900, 1, model="spelt")],
         "output_tokens_details": {"thinking_tokens": 2}},
        1_800 * 10 + 2 * 50,
    ),
    "lifetimes and searches": (
        {"input_tokens": 20, "output_tokens": 2, "cache_creation_input_tokens": 50,
         "server_tool_use": {"web_search_requests": 2},
         "iterations": [{**sampled("compaction", 10, 1), "cache_creation_input_tokens": 30,
                         "cache_creation": {"ephemeral_1h_input_tokens": 30}},
                        {**sampled("message", 20, 2), "cache_creation_input_tokens": 50,
                         "cache_creation": {"ephemeral_5m_input_tokens": 50}}]},
        30 * 10 + 3 * 50 + 30 * 20 + 50 * 12 + 2 * 10 * 1000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_every_part_of_an_answer_has_the_price_of_its_model(mill: ms.Provider, name: str) -> None:
    raw, expected = PARTS[name]
    usage = anthropic_usage(raw)
    assert priced(price_usage(usage, "rye", mill)).total == Decimal(expected).scaleb(-6)
    response = ms.Response(usage=usage, model="rye")
    assert priced(price_response(response, mill)).total == Decimal(expected).scaleb(-6)
    assert price(mill, "rye", usage) == pytest.approx(expected / 1e6)


def test_the_place_of_the_computation_changes_the_price(mill: ms.Provider) -> None:
    plain = priced(price_usage(anthropic_usage(ANTHROPIC_REPORT), "rye", mill))
    for geo in ("global", "not_available", "", None):
        usage = anthropic_usage({**ANTHROPIC_REPORT, "inference_geo": geo})
        assert price_usage(usage, "rye", mill) == plain
    us = priced(price_usage(anthropic_usage({**ANTHROPIC_REPORT, "inference_geo": "us"}), "rye", mill))
    factor = Decimal("1.1")
    assert (us.input, us.cached, us.cache_write, us.output) == (
        plain.input * factor, plain.cached * factor, plain.cache_write * factor, plain.output * factor
    )  # fmt: skip
    assert us.other == plain.other


UNKNOWN_PRICES: dict[str, tuple[JSONObject, str]] = {
    "another place": ({"inference_geo": "eu"}, "inference_geo 'eu'"),
    "sound": ({"prompt_tokens_details": {"audio_tokens": 3}}, "audio input"),
    "spoken output": ({"completion_tokens_details": {"audio_tokens": 3}}, "audio output"),
    "sound of Responses": ({"input_tokens_details": {"audio_tokens": 3}}, "audio input"),
    "sound of Gemini": ({"promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 3}]}, "audio input"),
    "sound of Interactions": ({"input_tokens_by_modality": [{"modality": "audio", "tokens": 3}]}, "audio input"),
    "pictures of Interactions": ({"output_tokens_by_modality": [{"modality": "image", "tokens": 3}]}, "image output"),
    "searches of Interactions": ({"grounding_tool_count": [{"type": "google_search", "count": 3}]}, "searches"),
    "sound, as a number": ({"promptTokensDetails": [{"modality": 4, "tokenCount": 3}]}, "audio input"),
    "pictures": ({"candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 3}]}, "image output"),
    "pictures of a chat": ({"completion_tokens_details": {"image_tokens": 3}}, "image output"),
    "pictures of Responses": ({"output_tokens_details": {"image_tokens": 3}}, "image output"),
    "a new modality": ({"promptTokensDetails": [{"modality": "SMELL", "tokenCount": 3}]}, "modality 'SMELL'"),
    "an hour": ({"cache_creation": {"ephemeral_1h_input_tokens": 3}}, "longer lifetime"),
    "twelve hours": (
        {"input_tokens_details": {"cache_write_tokens_details": {"ttl_12h_tokens": 3}}}, "longer lifetime"),
    "searches": ({"server_tool_use": {"web_search_requests": 1}}, "searches"),
    "a tier": ({"service_tier": "ultrafast"}, "service_tier 'ultrafast'"),
    "Gemini's tier": ({"serviceTier": "priority"}, "service_tier 'priority'"),
    "a type of traffic": ({"trafficType": "PROVISIONED_THROUGHPUT"}, "PROVISIONED_THROUGHPUT"),
    "a type of traffic, as a number": ({"trafficType": 2}, "service_tier '2'"),
    "a speed": ({"speed": "fast"}, "speed 'fast'"),
    "sources": ({"num_sources_used": 2}, "sources"),
    "tools": ({"num_server_side_tools_used": 2}, "tools"),
    "searches of a gateway": ({"server_tool_use_details": {"web_search_requests": 2}}, "searches of the gateway"),
    "a key of one's own": ({"is_byok": True}, "a key of your own"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN_PRICES)
def test_what_has_no_price_is_unpriced(mill: ms.Provider, name: str) -> None:
    raw, why = UNKNOWN_PRICES[name]
    usage = ms.Usage(input_tokens=10, output_tokens=10, cache_write_tokens=5, raw=raw)
    assert why in reason(price_usage(usage, "oats", mill))
    zeroed = ms.Usage(10, 10, cache_write_tokens=5, raw=dict.fromkeys(raw, 0))
    assert priced(price_usage(zeroed, "oats", mill)).total == Decimal("0.0006")


@pytest.mark.parametrize("traffic", ["ON_DEMAND", "TRAFFIC_TYPE_UNSPECIFIED", 1, 0])
def test_ordinary_traffic_has_the_standard_price(mill: ms.Provider, traffic: JSON) -> None:
    usage = ms.Usage(10, 10, raw={"trafficType": traffic, "serviceTier": "standard"})
    assert priced(price_usage(usage, "oats", mill)).total == Decimal("0.0006")


def test_an_interaction_costs_as_the_same_counts_of_gemini() -> None:
    counts = {
        "total_input_tokens": 100, "total_output_tokens": 20, "total_thought_tokens": 5, "total_cached_tokens": 40,
    }  # fmt: skip
    older = {
        "promptTokenCount": 100, "candidatesTokenCount": 20, "thoughtsTokenCount": 5, "cachedContentTokenCount": 40,
    }  # fmt: skip
    usages = [
        ms.Usage(100, 20, thinking_tokens=5, cached_tokens=40, raw=raw)
        for raw in (
            {**counts, "total_tool_use_tokens": 8, "output_tokens_by_modality": [{"modality": "text", "tokens": 20}]},
            {
                **older,
                "toolUsePromptTokenCount": 8,
                "candidatesTokensDetails": [{"modality": "TEXT", "tokenCount": 20}],
            },
        )
    ]
    providers = (ms.GeminiInteractions(), ms.Gemini())
    first, second = (
        priced(price_usage(usage, "gemini-2.5-flash", provider, at=WHEN))
        for usage, provider in zip(usages, providers, strict=True)
    )
    assert first == second


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-2.5-flash"])
def test_googles_list_has_a_price_of_sound_wherever_it_differs(model: str) -> None:
    priced(price_usage(gemini_usage(GEMINI_SOUND), model, ms.Gemini(), at=WHEN))


def test_openais_sound_has_its_price_only_where_it_is_listed() -> None:
    usage = chat_usage({"prompt_tokens": 10, "completion_tokens": 10, "prompt_tokens_details": {"audio_tokens": 4}})
    priced(price_usage(usage, "gpt-audio", ms.OpenAIChat(), at=WHEN))
    assert "audio input" in reason(price_usage(usage, "gpt-4o-audio-preview", ms.OpenAIChat(), at=WHEN))


def test_parts_that_do_not_add_up_are_unpriced(mill: ms.Provider) -> None:
    report: JSONObject = {"input_tokens": 20, "output_tokens": 2, "iterations": [{"type": "message"}]}
    assert "add up" in reason(price_usage(anthropic_usage(report), "rye", mill))


@pytest.mark.parametrize(
    "report",
    [
        {"cache_creation_input_tokens": 5, "fallback_credit": {"status": {"type": "redeemed"}}},
        {"iterations": [{**sampled("fallback_message", 10, 1), "cache_creation_input_tokens": 5}]},
    ],
)
def test_a_fallback_credit_changes_the_price_of_cache_writes(mill: ms.Provider, report: JSONObject) -> None:
    whole: JSONObject = {"input_tokens": 10, "output_tokens": 1, **report}
    assert "fallback credit" in reason(price_usage(anthropic_usage(whole), "rye", mill))
    without: JSONObject = {"input_tokens": 10, "output_tokens": 1, "fallback_credit": {"status": {"type": "redeemed"}}}
    priced(price_usage(anthropic_usage(without), "rye", mill))


SEARCH: JSONObject = {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}}


PICTURE = {"inlineData": {"mimeType": "image/png", "data": ""}}


def claude(*content: JSONObject, **usage: JSON) -> tuple[str, JSONObject]:
    body: JSONObject = {"id": "m", "type": "message", "model": "rye", "stop_reason": "end_turn"}
    return "anthropic", body | {"content": [*content, {"type": "text", "text": "a"}], "usage": {**COUNTS, **usage}}


def tool(name: str, **members: JSON) -> JSONObject:
    return {"type": "server_tool_use", "id": "s", "name": name, "input": {}, **members}


def interaction(*steps: JSONObject, **usage: JSON) -> tuple[str, JSONObject]:
    said: JSONObject = {"type": "model_output", "content": [{"type": "text", "text": "a"}]}
    counts: JSONObject = {"total_input_tokens": 10, "total_output_tokens": 10, "total_tokens": 20, **usage}
    body: JSONObject = {"id": "v", "object": "interaction", "model": "rye", "status": "completed"}
    return "gemini-interactions", body | {"steps": [*steps, said], "usage": counts}


USES: dict[str, tuple[tuple[str, JSONObject], int | str]] = {
    "no tool": (responses(), 0),
    "searches": (responses(SEARCH, SEARCH, SEARCH), 3),
    "a page that a search has found": (responses(SEARCH, {**SEARCH, "action": {"type": "open_page", "url": "u"}}), 1),
    "searches that the answer counts": (responses(SEARCH, tool_usage={"web_search": {"num_requests": 4}}), 4),
    "searches of files": (responses({"type": "file_search_call", "id": "f", "queries": ["q"]}), "searches of files"),
    "code": (responses({"type": "code_interpreter_call", "id": "c", "code": "1"}), "runs of code"),
    "a hosted shell": (
        responses({"type": "shell_call", "id": "s", "action": {}}, {"type": "shell_call_output", "id": "o"}),
        "runs of code",
    ),
    "a picture": (responses({"type": "image_generation_call", "id": "i", "result": ""}), "generated pictures"),
    "a new tool": (responses({"type": "smell_call", "id": "i"}), "smell_call"),
    "tools that are not billed": (
        responses({"type": "mcp_call", "id": "m"}, {"type": "tool_search_call", "id": "t"}), 0,
    ),
    "searches of xAI": (
        responses(SEARCH, SEARCH, usage={**COUNTS, "num_server_side_tools_used": 2, "num_sources_used": 0,
            "server_side_tool_usage_details": {"web_search_calls": 1, "mcp_calls": 1}}), 1,
    ),
    "posts of xAI": (
        responses(usage={**COUNTS, "num_server_side_tools_used": 2,
            "server_side_tool_usage_details": {"x_search_calls": 2}}),
        "searches of posts",
    ),
    "Claude's searches": (claude(tool("web_search"), server_tool_use={"web_search_requests": 2}), 2),
    "searches without a count": (claude(tool("web_search"), tool("web_search")), 2),
    "a search that failed": (claude(tool("web_search"), server_tool_use={"web_search_requests": 0}), 0),
    "fetches": (claude(tool("web_fetch"), server_tool_use={"web_fetch_requests": 1}), 0),
    "Claude's code": (claude(tool("bash_code_execution"), server_tool_use={"web_search_requests": 0}), "runs of code"),
    "code that the usage counts": (claude(server_tool_use={"code_execution_requests": 1}), "runs of code"),
    "a search by code": (
        claude(tool("code_execution"), tool("web_search", caller={"type": "code_execution_20260120", "tool_id": "s"}),
            server_tool_use={"web_search_requests": 1}), 1,
    ),
    "Gemini's queries": (gemini(groundingMetadata={"webSearchQueries": ["a", "b"], "imageSearchQueries": ["c"]}), 3),
    "no query": (gemini(groundingMetadata={"webSearchQueries": [], "groundingChunks": [{"web": {"uri": "u"}}]}), 0),
    "maps": (gemini(groundingMetadata={"groundingChunks": [{"maps": {"uri": "u"}}]}), "map searches"),
    "Gemini's picture without its tokens": (gemini(PICTURE), "pictures"),
    "queries of an interaction": (
        interaction({"type": "google_search_call", "id": "g", "arguments": {"queries": ["a", "b"]}}), 2,
    ),
    "searches that an interaction counts": (
        interaction(grounding_tool_count=[{"type": "google_search", "count": 3}]), 3,
    ),
    "maps of an interaction": (interaction(grounding_tool_count=[{"type": "google_maps", "count": 1}]), "map searches"),
    "code of an interaction": (interaction({"type": "code_execution_call", "id": "c", "arguments": {"code": "1"}}), 0),
    "a picture of a chat": (chat({"images": [{"image_url": {"url": "data:image/png;base64,AA=="}}]}), "pictures"),
    "sources of a chat": (
        chat({"annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}]}),
        "number the answer does not report",
    ),
    "Groq's tools": (chat({"executed_tools": [{"type": "search"}]}), "number the answer does not report"),
    "Perplexity's sources": (chat(citations=["u"]), "number the answer does not report"),
    "Perplexity's queries": (chat(usage={"num_search_queries": 2}, citations=["u"]), 2),
    "DashScope's searches": (chat(usage={"plugins": {"search": {"count": 1, "strategy": "turbo"}}}), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_what_a_provider_bills_by_the_use_is_priced_or_named(mill: ms.Provider, name: str) -> None:
    (dialect, body), expected = USES[name]
    response = DIALECTS[dialect].decode(json.dumps(body).encode(), PROVIDERS[dialect], lambda: "made")
    found = price_response(response, mill)
    by_traffic = spent_by(0, response, None).usage
    assert by_traffic is not None
    if isinstance(expected, str):
        assert expected in reason(found)
        assert price(mill, "rye", by_traffic) is None
        assert "server_tools" not in (response.usage.raw or {})
        return
    plain = {"input": Decimal("0.0001"), "output": Decimal("0.0005")}
    assert parts(priced(found)) == plain | ({"other": Decimal(expected) / 100} if expected else {})
    assert price(mill, "rye", by_traffic) == pytest.approx(0.0006 + expected / 100)


@pytest.mark.parametrize(("model", "searches"), [("gemini-2.5-flash", 35), ("gemini-3-flash-preview", 28)])
def test_older_models_of_google_bill_an_answer_and_not_a_query(model: str, searches: int) -> None:
    dialect, body = gemini(model=model, groundingMetadata={"webSearchQueries": ["a", "b"]})
    response = DIALECTS[dialect].decode(json.dumps(body).encode(), PROVIDERS[dialect], lambda: "made")
    assert priced(price_response(response, ms.Gemini(), at=WHEN)).other == Decimal(searches) / 1000


def test_results_of_googles_own_tools_are_input() -> None:
    counts: JSONObject = {"promptTokenCount": 26, "candidatesTokenCount": 9, "toolUsePromptTokenCount": 12_504}
    usage = gemini_usage(counts)
    assert (usage.input_tokens, usage.total_tokens) == (12_530, 12_539)
    plain = price_usage(ms.Usage(12_530, 9), "gemini-2.5-flash", "google", at=WHEN)
    assert priced(price_usage(usage, "gemini-2.5-flash", "google", at=WHEN)).total == priced(plain).total


@pytest.mark.parametrize("read", [chat_usage, responses_usage])
def test_dashscope_reports_what_it_wrote_to_a_cache(mill: ms.Provider, read: Callable[[JSONObject], ms.Usage]) -> None:
    details: JSONObject = {
        "cached_tokens": 0, "cache_creation_input_tokens": 400, "cache_type": "ephemeral",
        "cache_creation": {"ephemeral_5m_input_tokens": 400},
    }  # fmt: skip
    usage = read({
        "prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010, "prompt_tokens_details": details,
    })  # fmt: skip
    assert usage.cache_write_tokens == 400
    assert parts(priced(price_usage(usage, "rye", mill))) == millionths(
        input=600 * 10, cache_write=400 * 12, output=500
    )


def test_the_reason_names_the_unknown_model(mill: ms.Provider) -> None:
    unpriced = reason(price_usage(PLAIN, "millet", mill))
    assert unpriced == (
        "genai-prices has no price of model 'millet' at 'api.mill.test'; a newer version of it may have one, the"
        " provider's prices_as=… names whose prices a gateway has, and a price table of your own can"
    )


def test_the_address_selects_the_prices_not_the_name() -> None:
    local = ms.OpenAIChat("k", "http://user:secret@127.0.0.1:8000/v1", name="openai")
    unpriced = reason(price_usage(PLAIN, "gpt-5", local))
    assert "'gpt-5' at '127.0.0.1'" in unpriced
    assert "secret" not in unpriced


def test_the_billing_provider_of_a_gateway_can_be_named() -> None:
    assert price_usage(PLAIN, "gpt-5", "openai") == price_usage(PLAIN, "gpt-5", ms.OpenAIChat())
    assert "'our-openai'" in reason(price_usage(PLAIN, "gpt-5", "our-openai"))


def test_a_provider_may_have_the_prices_of_another() -> None:
    gateway = ms.OpenAIChat("k", "http://127.0.0.1:8000/v1", name="gateway", prices_as="openai")
    assert price_usage(PLAIN, "gpt-5", gateway) == price_usage(PLAIN, "gpt-5", "openai")
    assert price(gateway, "gpt-5", PLAIN) == price("openai", "gpt-5", PLAIN)
    table = {"gateway/gpt-5": {"input": 1_000_000, "output": 0}}
    assert price(gateway, "gpt-5", PLAIN, table=table) == PLAIN.input_tokens
    unpriced = reason(price_usage(PLAIN, "gpt-5", ms.OpenAIChat("k", prices_as="our-openai")))
    assert unpriced == (
        "genai-prices has no price of model 'gpt-5' at 'our-openai'; a newer version of it may have one, and a price"
        " table of your own can"
    )


def test_the_reason_of_no_price_can_be_asked() -> None:
    why = price.__dict__["why"]
    assert why("openai", "gpt-5", PLAIN) == ""
    assert why("openai", "gpt-5", ms.Usage()) == "the answer does not report its tokens"
    assert why("openai", "none", PLAIN, table={"none": {"input": 1, "output": 1}}) == ""


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
    with pytest.raises(CostExtraError, match=r"pip install '\.\[cost\]'"):
        check_installed()
    with pytest.raises(CostExtraError):
        price_usage(PLAIN, "gpt-5", "openai")


def test_the_price_list_is_loaded_only_when_it_is_needed() -> None:
    program = "import sys, manystream.cli, manystream.batch, manystream.cost\n"
    program += "sys.exit('genai_prices' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(("provider", "model", "flavour", "report"), REPORTS)
def test_genai_prices_reads_the_same_price(provider: ms.Provider, model: str, flavour: str, report: JSONObject) -> None:
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


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda: price(None, "m", ms.Usage()), "provider"),
        (lambda: price("openai", b"m", ms.Usage()), "model"),
        (lambda: price("openai", "m", None), "usage"),
        (lambda: price_usage({"input_tokens": 3}, "m", "openai"), "usage"),
        (lambda: price_usage(ms.Usage(), None, "openai"), "model"),
        (lambda: price_usage(ms.Usage(), "m", 3), "provider"),
        (lambda: price_usage(ms.Usage(), "m", "openai", service_tier=1), "service_tier"),
        (lambda: price_usage(ms.Usage(), "m", "openai", at="2026-01-01"), "at"),
        (lambda: price_response(None, "openai"), "response"),
        (lambda: price_response(ms.Response(), None), "provider"),
        (lambda: price_response(ms.Response(), "openai", at=1.5), "at"),
        (lambda: PriceTable.read(None), "path"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_name(use: Callable[[], object], name: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=f"^{name}: must be "):
        use()
