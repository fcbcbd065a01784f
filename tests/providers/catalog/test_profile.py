"""A profile: its dialect and its kind."""

from __future__ import annotations

import copy

import pytest

import manystream as ms
from manystream.providers.catalog.profiles import is_row, profile_by_name
from manystream.providers.catalog.registry import DIALECTS, dialect_of
from tests.providers.catalog.test_provider import MINE


def test_the_dialect_of_a_profile() -> None:
    chat = DIALECTS["openai-chat"]
    assert dialect_of(MINE) is chat
    assert dialect_of(ms.Profile(name="p", dialect=chat, base_url="")) is chat
    assert ms.Profile(name="p", dialect=chat, base_url="").dialect_name == MINE.dialect_name == "openai-chat"
    assert (len(DIALECTS), [*DIALECTS]) == (
        5,
        ["openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions"],
    )
    with pytest.raises(KeyError):
        DIALECTS["none"]


def test_rows_are_told_from_profiles_of_a_program() -> None:
    groq = profile_by_name("groq", "openai-chat")
    assert is_row(groq)
    assert is_row(ms.Gemini(base_url="https://h.example").profile)
    assert not is_row(copy.deepcopy(groq))
    assert not is_row(MINE)
    assert profile_by_name("openai", "openai-chat") is profile_by_name("openai-chat", "openai-chat")
    assert profile_by_name("none", "openai-chat") is None
