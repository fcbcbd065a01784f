"""Pauses the server of a provider, and lets it go on. Meanwhile its silence is no fault: see `Runtime.paused`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..providers.catalog.provider import Provider
from ..providers.generate.control import control_request
from ..providers.model.provider_error import ProviderError
from ..transport.backend import Event as Flag
from .call.attempt import Attempt
from .call.plain_request import PlainRequest
from .call.timeouts import Clocks
from .request.errors import internal

if TYPE_CHECKING:
    from .calls import CallStarter

CLOCKS = Clocks(connect=10.0, first_byte=600.0, idle=600.0, total=math.inf, queue=math.inf)
"""The timeouts of these requests: a server that ends its answers first needs long to answer."""


class _Sent:
    """The owner of one such request: waits for its end."""

    def __init__(self, flag: Flag, label: str) -> None:
        self.label: str = label
        self.error: Exception | None = None
        self.ended: Flag = flag

    def answered(self) -> None:
        self.ended.set()

    def failed(self, attempt: Attempt, error: ProviderError) -> None:
        if not 200 <= attempt.status < 300:  # what a success says is not read
            self.error = error
        self.ended.set()

    def repeated(self, attempt: Attempt) -> None:
        pass

    def on_defect(self, error: Exception) -> None:
        self.error = internal(error)
        self.ended.set()


async def control_server(starter: CallStarter, provider: Provider, mode: str | None) -> None:
    """Pause a server, or let it go on (`mode` is None). Raises `InvalidRequestError` and `ProviderError`."""
    runtime = starter.runtime
    prepared = starter.prepare_wire(provider, control_request(provider, mode))
    before, traffic = runtime.paused.get(prepared.origin), starter.traffic
    if mode is not None:
        runtime.paused[prepared.origin] = math.inf
        if traffic is not None:
            traffic.server_paused(prepared.origin)
    sent = _Sent(runtime.backend.event(), f"the pause of {provider.name}")
    request = PlainRequest(sent, prepared, runtime, CLOCKS)
    try:
        await sent.ended.wait()
    finally:
        request.attempt.abort()
    if sent.error is None:
        if mode is None:
            runtime.paused[prepared.origin] = runtime.loop.clock()
            if traffic is not None:
                traffic.server_paused(prepared.origin)
        return
    if mode is not None and before is None:
        del runtime.paused[prepared.origin]
    elif before is not None:
        runtime.paused[prepared.origin] = before
    raise sent.error
