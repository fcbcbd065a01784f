"""Call a provider's key function for each attempt, and write the key into the attempt's head."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...providers.catalog.provider import Provider
from ...providers.errors import ErrorCategory, InvalidRequestError, ProviderError
from ...transport.exchange import WireHead
from .credentials import ask_key
from .redaction import Redaction

WriteHead: TypeAlias = Callable[[str], tuple[WireHead, Redaction]]
"""Encodes a request's head with the key that it is given. Raises `InvalidRequestError`."""


class FreshKey:
    """Calls a provider's key function for each attempt, and writes the key into the request's head.

    The head is cached and used again while the function returns the same key.
    """

    __slots__ = ("_latest", "_provider", "_write_head")

    def __init__(self, provider: Provider, write_head: WriteHead) -> None:
        self._provider = provider
        self._write_head = write_head
        self._latest: tuple[WireHead, Redaction] | None = None

    def ask(self) -> tuple[WireHead, Redaction]:
        """Call the key function and return the head with its key. Raises `ProviderError` (category AUTH)."""
        key = ask_key(self._provider)
        latest = self._latest
        if latest is None or latest[1].key != key:
            try:
                latest = self._latest = self._write_head(key)
            except InvalidRequestError:
                # The headers without the key were checked before the call began, so the key does not fit into them.
                text = f"the key that the api_key function of {self._provider.name!r} returned fits into no header"
                raise ProviderError(text, category=ErrorCategory.AUTH, retryable=False) from None
        return latest
