"""The query and the headers of a profile."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.catalog.profile_rules import PROFILE
from manystream.providers.catalog.registry import DIALECTS

OWN_KEY_HEADERS: dict[str, tuple[str, str]] = {
    "openai-chat": ("authorization", "Bearer k"),
    "openai-responses": ("authorization", "Bearer k"),
    "anthropic": ("x-api-key", "k"),
    "gemini": ("x-goog-api-key", "k"),
    "gemini-interactions": ("x-goog-api-key", "k"),
}

PATHS: dict[str, dict[bool, str]] = {
    "gemini-interactions": dict.fromkeys((False, True), "/interactions?team=a&v=2"),
    "openai-chat": dict.fromkeys((False, True), "/chat/completions?team=a&v=2"),
    "openai-responses": dict.fromkeys((False, True), "/responses?team=a&v=2"),
    "anthropic": dict.fromkeys((False, True), "/messages?team=a&v=2"),
    "gemini": {
        False: "/models/m:generateContent?team=a&v=2",
        True: "/models/m:streamGenerateContent?alt=sse&team=a&v=2",
    },
}

HELLO = ms.Request("m", [ms.Message.user("Hello")], extra_headers={"X-Trace": "7", "x-team": "of the request"})


def provider_of(dialect: str, quirks: ms.Quirks) -> ms.Provider:
    base_url = "https://gateway.example/v1beta" if dialect == "gemini" else "https://gateway.example/v1"
    profile = ms.Profile(name="gateway", dialect=dialect, base_url=base_url, quirks=quirks)
    return ms.Provider("k", profile=profile)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", PATHS)
def test_the_query_and_the_headers_are_sent(dialect: str, stream: bool) -> None:
    quirks = ms.Quirks(query="team=a&v=2", headers=(("X-Team", "of the profile"), ("x-tier", "gold")))
    wire = DIALECTS[dialect].encode(HELLO, "m", provider_of(dialect, quirks), stream=stream)
    assert wire.path == PATHS[dialect][stream]
    headers = dict(wire.headers)
    assert len(headers) == len(wire.headers)
    assert (headers["x-tier"], headers["x-team"], headers["x-trace"]) == ("gold", "of the request", "7")
    assert headers["accept"] == ("text/event-stream" if stream else "application/json")


@pytest.mark.parametrize("dialect", PATHS)
def test_a_profile_can_name_the_header_of_the_key(dialect: str) -> None:
    def sent(auth_header: str | None, key: str = "k") -> list[tuple[str, str]]:
        return DIALECTS[dialect].auth_headers(provider_of(dialect, ms.Quirks(auth_header=auth_header)), key)

    assert sent(None) == [OWN_KEY_HEADERS[dialect]]
    assert sent("api-key") == [("api-key", "k")]
    assert sent("authorization") == [("authorization", "Bearer k")]  # access tokens: Vertex AI, gateways
    assert sent("Authorization") == [("Authorization", "Bearer k")]
    assert sent("api-key", "") == []


@pytest.mark.parametrize("wrong", ["", 3])
def test_a_header_without_a_name_is_refused(wrong: object) -> None:
    provider = provider_of("gemini", ms.Quirks(auth_header=wrong))  # type: ignore[arg-type]
    with pytest.raises(ms.InvalidRequestError, match=r"profile\.quirks\.auth_header"):
        PROFILE.check(provider.profile, "profile")
