"""The provider for a base URL and a dialect."""

from __future__ import annotations

from collections.abc import Mapping

from ..engine.request.credentials import find_key, is_loopback
from ..providers.catalog.provider import Anthropic, Gemini, OpenAIChat, OpenAIResponses, Provider
from ..providers.errors import InvalidRequestError

DIALECT_CLASSES: dict[str, type[Provider]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic": Anthropic,
    "gemini": Gemini,
}
"""Dialect → its provider class. If a provider's name belongs to several dialects, the first of this table is used."""


def provider_at(url: str, dialect: str, environment: Mapping[str, str]) -> Provider:
    """Return the provider for a URL. Raises `InvalidRequestError`.

    url: the base URL.
    dialect: a key of `DIALECT_CLASSES`.
    environment: the environment variables, which may hold a key.

    If no key is found for a server on this machine, the provider gets the key `any`.
    """
    provider = DIALECT_CLASSES[dialect](base_url=url)
    if not is_loopback(url):
        return provider  # the engine raises an error if there is no key
    try:
        found = find_key(provider, environment)
    except InvalidRequestError:
        found = ""
    return provider if found else DIALECT_CLASSES[dialect]("any", url)
