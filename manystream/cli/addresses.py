"""Who listens at an address: which dialect, with which key.

Knows providers' classes and where keys come from. Must not know any command.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..engine.credentials import find_key, is_loopback
from ..providers.errors import InvalidRequestError
from ..providers.provider import Anthropic, Gemini, OpenAIChat, OpenAIResponses, Provider

DIALECT_CLASSES: dict[str, type[Provider]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic": Anthropic,
    "gemini": Gemini,
}
"""Dialect → the class that speaks it; where a name fits several, the first is meant."""


def provider_at(url: str, dialect: str, environment: Mapping[str, str]) -> Provider:
    """Who listens at a URL. On this machine any key will do where none is found. Raises `InvalidRequestError`."""
    provider = DIALECT_CLASSES[dialect](base_url=url)
    if not is_loopback(url):
        return provider  # the engine says what is missing
    try:
        found = find_key(provider, environment)
    except InvalidRequestError:
        found = ""
    return provider if found else DIALECT_CLASSES[dialect]("any", url)
