"""The table of profiles, how a request selects its provider, and the query and headers that a profile adds."""

from __future__ import annotations

from dataclasses import fields, replace
from urllib.parse import urlsplit

import pytest

import manystream as ms
from manystream.providers.catalog.profiles import DEFAULT_PROFILES, PROFILES, profile_by_host, profile_by_name
from manystream.providers.catalog.registry import DIALECTS, PROMPT_DIALECTS
from manystream.transport.url import parse_base_url, target
from tests.support.profile_rows import ROWS, Row

CLASSES: dict[str, type[ms.Provider]] = {
    kind.dialect: kind
    for kind in (
        ms.OpenAIChat, ms.OpenAIResponses, ms.Anthropic, ms.Gemini, ms.GeminiInteractions, ms.VLLMGenerate,
        ms.SGLangGenerate, ms.OpenAICompletions,
    )
}  # fmt: skip

HTTPS = [row for row in PROFILES if row.base_url.startswith("https://")]

DIALECTS_OWN_WAY: dict[str, object] = {
    "strict_end": False,
    "auth_header": None,
    "query": "",
    "headers": (),
    "raw_predict": False,
    "session": None,
    "tool_name": "any",
    "max_tokens_member": "max_completion_tokens",
    "stream_usage": True,
    "system_role": "system",
    "thinking": "reasoning_effort",
    "efforts": ("none", "low", "medium", "high"),
    "tool_call_id": "any",
    "required_tool_choice": "required",
    "named_tool_choice": True,
    "reasoning_refuses_sampling": False,
    "seed_member": "seed",
    "parallel_tool_calls": True,
    "metadata": True,
    "tool_strict": True,
    "structured_output": "json_schema",
    "cache_mark": "",
    "file_parts": True,
    "file_urls": False,
    "video_parts": False,
    "token_ids": "return_token_ids",
    "reasoning_return": "none",
    "reasoning_required": False,
    "signed_thinking_only": False,
}
"""The values of a row's attributes unless `ROWS` has others."""


def test_no_two_rows_share_a_name() -> None:
    """A row's name tags the state that is sent back to it, so the state of two dialects must not be mixed."""
    names = [row.name for row in PROFILES]
    assert len(names) == len(set(names))


def test_the_table_has_the_documented_rows() -> None:
    assert [row.name for row in PROFILES] == list(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_as_documented(name: str) -> None:
    row = next(row for row in PROFILES if row.name == name)
    departs = {
        member.name: value
        for member in fields(ms.Quirks)
        if member.name != "load"  # see test_server_load
        and (value := getattr(row.quirks, member.name)) != DIALECTS_OWN_WAY[member.name]
    }
    assert ROWS[name] == Row(
        row.dialect_name, row.base_url, row.key_variables, departs, aliases=row.aliases, prefixes=row.prefixes,
        addresses=row.addresses, needs_key=row.needs_key, generic=row.generic, tokens=row.token_variables,
        urls=row.url_variables,
    )  # fmt: skip


@pytest.mark.parametrize("row", PROFILES, ids=lambda row: row.name)
def test_the_key_of_an_address_goes_to_that_address_only(row: ms.Profile) -> None:
    """Rows of one host with the same key have their address in the same variable."""
    same = [other for other in PROFILES if other.key_variables == row.key_variables and other.base_url and row.base_url]
    variables = {
        tuple(place.partition("/")[0] for place in other.url_variables)
        for other in same
        if urlsplit(other.base_url).hostname == urlsplit(row.base_url).hostname
    }
    assert len(variables) <= 1


@pytest.mark.parametrize("row", PROFILES, ids=lambda row: row.name)
def test_rows_are_usable(row: ms.Profile) -> None:
    assert row.dialect_name in DIALECTS
    assert DIALECTS[row.dialect_name].name == row.dialect_name
    assert row.key_variables
    assert all(name.isupper() and " " not in name for name in row.key_variables)
    assert row.name == row.name.lower()
    assert "/" not in row.name
    if row.base_url:
        parts = urlsplit(row.base_url)
        assert parts.hostname
        assert not row.base_url.endswith("/")
        assert not parts.query
        assert parts.scheme == "https" or not row.needs_key
    else:
        assert row.addresses or row.generic


@pytest.mark.parametrize("row", PROFILES, ids=lambda row: row.name)
def test_rows_are_found_by_name_and_alias(row: ms.Profile) -> None:
    assert profile_by_name(row.name, row.dialect_name) is row
    for alias in row.aliases:
        found = profile_by_name(alias, row.dialect_name)
        assert found is not None
        assert found is row or found.name == alias or (row.generic and not found.generic)
    assert profile_by_name(row.name, "another") is None


@pytest.mark.parametrize("name", ["vllm-0", "vllm_12", "vllm"])
def test_one_of_several_servers_has_the_row_of_its_kind(name: str) -> None:
    provider = ms.OpenAIChat(name=name, api_key="k")
    assert (provider.profile.name, provider.name) == ("vllm", name)
    assert ms.OpenAIChat(name=name, api_key="k", base_url="http://10.0.0.7:9000/v1").profile.name == "vllm"


@pytest.mark.parametrize("name", ["-0", "vllm-", "vllm0", "vllm-0a", "unknown-0"])
def test_other_names_have_no_row(name: str) -> None:
    assert ms.OpenAIChat(name=name, api_key="k", base_url="http://10.0.0.7:9000/v1").profile.generic


@pytest.mark.parametrize("row", HTTPS, ids=lambda row: row.name)
def test_rows_are_found_by_their_own_address(row: ms.Profile) -> None:
    for url in (row.base_url, f"{row.base_url}/", row.base_url.upper().replace("HTTPS", "https")):
        assert profile_by_host(url, row.dialect_name) is row


@pytest.mark.parametrize("row", PROFILES, ids=lambda row: row.name)
def test_every_row_encodes(row: ms.Profile) -> None:
    provider = CLASSES[row.dialect_name]("key", base_url=row.base_url or "https://mine.example/v1", profile=row)
    request = ms.Request("m", [ms.Message.user("hello")], max_output_tokens=5)
    if row.dialect_name == "vllm-generate":
        request = ms.Request("m", prompt_token_ids=[1, 2], extra_body={"hello": 1})
    wire = DIALECTS[row.dialect_name].encode(request, "m", provider, stream=True)
    assert b"hello" in wire.body
    assert b"key" not in wire.body
    assert row.quirks.query in wire.path or row.dialect_name != "openai-chat"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai-chat"),
        ("https://api.openai.com:443/v1", "openai-chat"),
        ("https://user:secret@api.openai.com/v1", "openai-chat"),
        ("https://mine.openai.azure.com/openai/v1", "azure"),
        ("https://mine.openai.azure.com", "azure"),
        ("https://mine.openai.azure.com/openai/deployments/gpt-4o", "azure-deployment"),
        ("https://mine.cognitiveservices.azure.com/openai/v1/", "azure"),
        ("https://mine.services.ai.azure.com/models", "azure-models"),
        ("https://mine.services.ai.azure.com/openai/v1", "azure"),
        ("https://codestral.mistral.ai/v1", "mistral"),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", "alibaba"),
        ("https://open.bigmodel.cn/api/paas/v4", "zai"),
        ("https://adb-1.azuredatabricks.net/serving-endpoints", "databricks"),
        ("https://me.snowflakecomputing.com/api/v2/cortex/v1", "snowflake"),
        ("https://api.cloudflare.com/client/v4/accounts/1/ai/v1", "cloudflare"),
        ("http://localhost:11434/v1", "ollama"),
        ("http://127.0.0.1:11434/v1", "ollama"),
        ("http://[::1]:11434/v1", "ollama"),
        ("http://127.0.0.1:1234/v1", "lmstudio"),
        ("http://localhost:8000/v1", None),
        ("http://localhost:8080/v1", None),
        ("http://localhost:4000/v1", None),
        ("http://localhost:30000/v1", None),
        ("http://localhost:11434", "ollama"),
        ("http://api.openai.com:80/v1", "openai-chat"),
        ("https://api.openai.com:80/v1", None),
        ("http://127.0.0.1:43210/v1", None),
        ("https://api.openai.com.evil.example/v1", None),
        ("https://evil.example/api.openai.com/v1", None),
        ("https://evil.example/x.openai.azure.com/v1", None),
        ("https://mine.openai.azure.com.evil.example/v1", None),
        ("https://eu.api.openai.com/v1", "openai-chat"),
        ("https://example.com", None),
        ("no url", None),
        ("", None),
        ("http://[broken", None),
    ],
)
def test_addresses(url: str, name: str | None) -> None:
    row = profile_by_host(url, "openai-chat")
    assert (row.name if row else None) == name


def test_a_provider_without_a_row_is_generic_and_lenient() -> None:
    provider = ms.OpenAIChat(base_url="http://127.0.0.1:43210/v1")
    assert provider.profile is DEFAULT_PROFILES["openai-chat"][1]
    assert not provider.profile.quirks.strict_end
    assert not provider.profile.needs_key
    assert provider.name == "openai-compatible"


def test_the_rows_of_a_dialect_without_and_with_another_address() -> None:
    rows = {name: [(row.name, row.generic) for row in pair] for name, pair in DEFAULT_PROFILES.items()}
    assert rows == {
        "openai-chat": [("openai-chat", False), ("openai-compatible", True)],
        "openai-responses": [("openai-responses", False), ("responses-compatible", True)],
        "anthropic": [("anthropic", False), ("anthropic-compatible", True)],
        "gemini": [("google", False), ("google", True)],
        "gemini-interactions": [("google-interactions", False), ("google-interactions", True)],
        "vllm-generate": [("vllm-generate", False)] * 2,
        "sglang-generate": [("sglang-generate", False)] * 2,
        "openai-completions": [("openai-completions", False), ("completions-compatible", True)],
    }


def test_first_party_rows_require_the_terminal_marker() -> None:
    for first_party, _ in DEFAULT_PROFILES.values():
        assert first_party.quirks.strict_end


def test_dialects() -> None:
    assert sorted(DIALECTS) == ["anthropic", "gemini", "gemini-interactions", "openai-chat", "openai-responses"]
    assert sorted(CLASSES) == sorted([*DIALECTS, *PROMPT_DIALECTS])


ENDPOINTS = [
    ("openai-chat", "https://h/v1/chat/completions", "/v1/chat/completions"),
    ("openai-chat", "https://h/v1/chat/completions/", "/v1/chat/completions"),
    ("openai-chat", "https://h/v1/responses", "/v1/chat/completions"),
    ("openai-chat", "https://h/chat/completions?key=1", "/chat/completions?key=1"),
    ("openai-chat", "https://h/chat/completions/v1", "/chat/completions/v1/chat/completions"),
    ("openai-chat", "https://h/v1/completions", "/v1/completions/chat/completions"),
    ("openai-chat", "https://a.openai.azure.com/openai/deployments/d/chat/completions?api-version=2025-01-01",
        "/openai/deployments/d/chat/completions?api-version=2025-01-01"),
    ("openai-responses", "https://h/v1/responses", "/v1/responses"),
    ("openai-responses", "https://h/v1/responses//", "/v1/responses"),
    ("openai-responses", "https://h/v1/chat/completions", "/v1/responses"),
    ("openai-responses", "https://h/openai/responses?api-version=1", "/openai/responses?api-version=1"),
    ("anthropic", "https://h/v1/messages", "/v1/messages"),
    ("anthropic", "https://h/anthropic/v1/messages/?beta=true", "/anthropic/v1/messages?beta=true"),
    ("anthropic", "https://h/v1?beta=true", "/v1/messages?beta=true"),
    ("anthropic", "https://h/v1/?beta=true", "/v1/messages?beta=true"),
    ("anthropic", "https://h/messages", "/messages/v1/messages"),
    ("gemini-interactions", "https://h/v1beta/interactions", "/v1beta/interactions"),
    ("gemini-interactions", "https://h/interactions/", "/v1beta/interactions"),
    ("gemini", "https://h/v1beta/models", "/v1beta/models/m:streamGenerateContent?alt=sse"),
    ("gemini", "https://h/models/x", "/models/x/v1beta/models/m:streamGenerateContent?alt=sse"),
    ("gemini", "https://h/v1beta/models/other:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse"),
    ("gemini", "https://h/v1beta/models/other:streamGenerateContent?alt=sse&key=1",
        "/v1beta/models/m:streamGenerateContent?key=1&alt=sse"),
    ("gemini",
        "https://aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google/models/o:generateContent",
        "/v1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent?alt=sse"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "url", "expected"), ENDPOINTS)
def test_a_base_url_may_be_the_whole_url_of_a_request(dialect: str, url: str, expected: str) -> None:
    provider = CLASSES[dialect]("key", url)
    wire = DIALECTS[dialect].encode(ms.Request("m", [ms.Message.user("hello")]), "m", provider, stream=True)
    assert target(parse_base_url(provider.base_url), wire.path) == expected


def test_gemini_asks_for_no_stream_at_the_url_of_one() -> None:
    provider = CLASSES["gemini"]("key", "https://h/v1beta/models/m:streamGenerateContent?alt=sse")
    assert provider.base_url == "https://h/v1beta"
    wire = DIALECTS["gemini"].encode(ms.Request("m", [ms.Message.user("hello")]), "m", provider, stream=False)
    assert wire.path == "/models/m:generateContent"


def test_the_url_of_an_own_dialect_is_kept() -> None:
    own = replace(DIALECTS["openai-chat"])
    provider = ms.Provider(
        "key", profile=ms.Profile(name="mine", dialect=own, base_url="https://h/v1/chat/completions")
    )
    assert provider.base_url == "https://h/v1/chat/completions"
