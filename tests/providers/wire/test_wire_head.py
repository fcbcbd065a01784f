"""The head of a request on the wire."""

import manystream as ms
from manystream.providers.catalog.dialect import (
    WireRequest,
    bearer_token,
)


# --- dialects and their requests ---
def test_a_request_on_the_wire_has_these_defaults() -> None:
    assert WireRequest("/p", [], b"") == WireRequest("/p", [], b"", "POST", [], None, frozenset())


def test_the_key_is_a_bearer_token_without_a_profile_s_header() -> None:
    assert bearer_token(ms.OpenAIChat(), "k") == [("authorization", "Bearer k")]
    assert bearer_token(ms.OpenAIChat(), "") == []
    row = ms.Profile(name="p", dialect="openai-chat", base_url="", quirks=ms.Quirks(auth_header="api-key"))
    assert bearer_token(ms.OpenAIChat(profile=row), "k") == [("api-key", "k")]
    row = ms.Profile(name="p", dialect="openai-chat", base_url="", quirks=ms.Quirks(auth_header="Authorization"))
    assert bearer_token(ms.OpenAIChat(profile=row), "k") == [("Authorization", "Bearer k")]
