"""What each server counts against its limits."""

import pytest

from manystream.providers.catalog.profiles import PROFILES
from manystream.providers.limits.charging import CHARGING, Charging, charging_of

OPENAI_WAY = ("reserved", "larger", "unknown", "quota", True, True)

AZURE_WAY = ("reserved", "sum", "unknown", "quota", False, True)

ANTHROPIC_WAY = ("produced", "sum", "usage", "quota", False, False)

GEMINI_WAY = ("produced", "sum", "usage", "quota", False, True)

PLAIN_WAY = ("reserved", "sum", "usage", "quota", False, True)

SERVER_WAY = ("produced", "sum", "usage", "concurrency", False, True)

SLOTS_WAY = ("produced", "sum", "usage", "slots", False, True)

WAYS = {
    "openai-chat": OPENAI_WAY,
    "openai-responses": OPENAI_WAY,
    "openai-compatible": OPENAI_WAY,
    "responses-compatible": OPENAI_WAY,
    "azure": AZURE_WAY,
    "azure-deployment": AZURE_WAY,
    "azure-models": AZURE_WAY,
    "azure-responses": AZURE_WAY,
    "anthropic": ANTHROPIC_WAY,
    "anthropic-compatible": ANTHROPIC_WAY,
    "anthropic-openai": ANTHROPIC_WAY,
    "google": GEMINI_WAY,
    "google-interactions": GEMINI_WAY,
    "google-openai": GEMINI_WAY,
    "groq": PLAIN_WAY,
    "groq-responses": PLAIN_WAY,
    "cerebras": PLAIN_WAY,
    "mistral": PLAIN_WAY,
    "together": PLAIN_WAY,
    "fireworks": ("produced", "sum", "usage", "quota", False, True),
    "deepseek": SLOTS_WAY,
    "vllm": SERVER_WAY,
    "sglang": SERVER_WAY,
    "llama-cpp": SERVER_WAY,
    "lmdeploy": SERVER_WAY,
    "dynamo": SERVER_WAY,
    "tgi": SLOTS_WAY,
}
"""Row name → output, combined, settlement, limited_by, refused_requests, cached_input."""


def way(row: Charging) -> tuple[object, ...]:
    return (
        row.output, row.combined, row.settlement, row.limited_by, row.refused_requests, row.cached_input,
    )  # fmt: skip


@pytest.mark.parametrize("provider", WAYS)
def test_each_server_is_charged_as_documented(provider: str) -> None:
    assert way(charging_of(provider)) == WAYS[provider]


def test_a_server_without_a_row_is_charged_by_its_dialect() -> None:
    assert set(CHARGING) == set(WAYS)
    assert way(charging_of("mine", "openai-chat")) == AZURE_WAY
    assert way(charging_of("mine", "anthropic")) == ANTHROPIC_WAY
    assert way(charging_of("mine", "gemini")) == GEMINI_WAY
    assert way(charging_of("mine", "gemini-interactions")) == GEMINI_WAY
    assert way(charging_of("mine", "vllm-generate")) == SERVER_WAY
    assert way(charging_of("mine", "sglang-generate")) == SERVER_WAY


def test_every_row_is_a_providers() -> None:
    assert set(CHARGING) <= {profile.name for profile in PROFILES}
