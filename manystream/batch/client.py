"""A provider with a batch interface, and the requests to it, which are no calls."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from ..engine.call.plain_request import fetch
from ..engine.call.timeouts import Clocks
from ..engine.frontends.engine import Engine
from ..providers.catalog.batches import BatchInterface
from ..providers.catalog.dialect import WireRequest
from ..providers.catalog.provider import Provider
from ..providers.json.json_values import JSONObject, MalformedJSONError, loads_object
from ..providers.model.provider_error import ErrorCategory, ProviderError

CLOCKS = Clocks(connect=300.0, first_byte=300.0, idle=300.0, total=math.inf, queue=300.0)
"""The timeouts of each request. A large file needs long to be sent and to be read."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two attempts. The pause doubles with each attempt."""

OnData = Callable[[bytes], None]


class Target:
    """A provider that has a batch interface, over an engine's connections. Its errors name it and show no key.

    most_lines, most_bytes: the most of a batch; refusals may lower the lines.
    closed: whether it has refused a batch for good, so that its lines go live.
    """

    def __init__(self, engine: Engine, provider: Provider, interface: BatchInterface) -> None:
        self._starter = engine._calls.starter  # pyright: ignore[reportPrivateUsage]
        self.provider: Provider = provider
        self.interface: BatchInterface = interface
        self.most_lines: int = interface.terms.lines
        self.most_bytes: int = interface.terms.bytes
        self.closed: bool = False

    async def send(self, wire: WireRequest, on_data: OnData | None = None) -> bytes:
        """Send a request once and return the body of its response. The server gets it once at the most.

        on_data: gets the body's pieces as they come; then nothing is returned.

        Raises `ProviderError` for an error response, and for no or half a response.
        """
        prepared = self._starter.prepare_wire(self.provider, wire)
        return await fetch(prepared, self._starter.runtime, CLOCKS, on_data, idempotent=False)

    async def send_patiently(self, wire: WireRequest, on_data: Callable[[], OnData] | None = None) -> bytes:
        """Send a request that may be repeated, again and again until the server answers.

        on_data: returns what gets the body's pieces, for each attempt.

        Raises `ProviderError` for an error that does not pass.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                return await self.send(wire, None if on_data is None else on_data())
            except ProviderError as error:
                if not error.retryable:
                    raise
                await trio.sleep(max(pause, min(error.retry_after_ms / 1000, LONGEST_PAUSE)))
                pause = min(2 * pause, LONGEST_PAUSE)

    async def ask(self, wire: WireRequest) -> JSONObject:
        """Send a request that may be repeated, until the server answers with an object. Raises `ProviderError`."""
        return self.object(await self.send_patiently(wire))

    def object(self, body: bytes) -> JSONObject:
        """Parse the object that a response must have. Raises `ProviderError`."""
        try:
            return loads_object(body)
        except MalformedJSONError as error:
            message = f"the answer of {self.provider.name!r} is no JSON object: {error}"
            raise ProviderError(message, category=ErrorCategory.UNKNOWN, http_status=200, body=body) from None
