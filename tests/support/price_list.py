"""Shared by the tests of this folder."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal

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
from manystream.cost import (
    Cost,
    Unpriced,
)
from manystream.providers.json.json_values import JSON, JSONObject

PROVIDERS: dict[str, ms.Provider] = {
    "anthropic": ms.Anthropic("k"), "openai-chat": ms.OpenAIChat("k"), "openai-responses": ms.OpenAIResponses("k"),
    "gemini": ms.Gemini("k"), "gemini-interactions": ms.GeminiInteractions("k"),
}  # fmt: skip


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
        listed("wheat", ModelPrice(input_mtok=Decimal(40), output_mtok=Decimal(200))),
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


def parts(cost: Cost) -> dict[str, Decimal]:
    found = {"input": cost.input, "cached": cost.cached, "cache_write": cost.cache_write, "output": cost.output}
    return {name: value for name, value in (found | {"other": cost.other}).items() if value}


ANTHROPIC_REPORT: JSONObject = {
    "input_tokens": 40, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 300,
    "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200}, "output_tokens": 30,
    "server_tool_use": {"web_search_requests": 2}, "service_tier": "standard",
}  # fmt: skip


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


# --- the provider's own tools, and pictures ---

COUNTS = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}


CHAT_COUNTS = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


GEMINI_COUNTS = {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}


SAID: JSONObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}


def responses(*output: JSONObject, **members: JSON) -> tuple[str, JSONObject]:
    body: JSONObject = {
        "id": "r",
        "status": "completed",
        "model": "rye",
        "output": [*output, SAID],
        "usage": {**COUNTS},
    }
    return "openai-responses", body | members


def gemini(*parts: JSONObject, model: str = "rye", **members: JSON) -> tuple[str, JSONObject]:
    content: JSONObject = {"role": "model", "parts": [{"text": "a"}, *parts]}
    candidate: JSONObject = {"content": content, "finishReason": "STOP", **members}
    return "gemini", {"modelVersion": model, "candidates": [candidate], "usageMetadata": {**GEMINI_COUNTS}}


def chat(message: JSONObject | None = None, usage: JSONObject | None = None, **members: JSON) -> tuple[str, JSONObject]:
    choice: JSONObject = {"index": 0, "message": {"content": "a", **(message or {})}, "finish_reason": "stop"}
    body: JSONObject = {"id": "c", "model": "rye", "choices": [choice], "usage": {**CHAT_COUNTS, **(usage or {})}}
    return "openai-chat", body | members


# --- no guess ---

PLAIN = ms.Usage(input_tokens=10, output_tokens=10)


# --- the same amounts as genai-prices computes from the provider's own report ---

CHAT_REPORT: JSONObject = {
    "prompt_tokens": 1200, "completion_tokens": 340, "total_tokens": 1540,
    "prompt_tokens_details": {"cached_tokens": 1024}, "completion_tokens_details": {"reasoning_tokens": 192},
}  # fmt: skip


BESIDE_REPORT: JSONObject = {
    "prompt_tokens": 1200, "completion_tokens": 148, "total_tokens": 1540,
    "prompt_tokens_details": {"cached_tokens": 1024}, "completion_tokens_details": {"reasoning_tokens": 192},
}  # fmt: skip


RESPONSES_REPORT: JSONObject = {
    "input_tokens": 1200, "input_tokens_details": {"cached_tokens": 1024}, "output_tokens": 340,
    "output_tokens_details": {"reasoning_tokens": 192}, "total_tokens": 1540,
}  # fmt: skip


GEMINI_REPORT: JSONObject = {
    "promptTokenCount": 1200, "cachedContentTokenCount": 1024, "candidatesTokenCount": 148, "thoughtsTokenCount": 192,
    "toolUsePromptTokenCount": 30, "totalTokenCount": 1570,
}  # fmt: skip


GEMINI_SOUND: JSONObject = {
    "promptTokenCount": 1200, "cachedContentTokenCount": 900, "candidatesTokenCount": 148, "totalTokenCount": 1348,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 200}, {"modality": "AUDIO", "tokenCount": 1000}],
    "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 100}, {"modality": "AUDIO", "tokenCount": 800}],
}  # fmt: skip


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
