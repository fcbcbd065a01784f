"""Pauses the server of a provider, and lets it go on. Meanwhile its silence is no fault: see `Runtime.paused`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..providers.catalog.provider import Provider
from ..providers.generate.control import control_request
from ..providers.model.provider_error import ProviderError
from .call.plain_request import fetch
from .call.timeouts import Clocks

if TYPE_CHECKING:
    from .calls import CallStarter

CLOCKS = Clocks(connect=10.0, first_byte=600.0, idle=600.0, total=math.inf, queue=math.inf)
"""The timeouts of these requests: a server that ends its answers first needs long to answer."""


async def control_server(starter: CallStarter, provider: Provider, mode: str | None) -> None:
    """Pause a server, or let it go on (`mode` is None). Raises `InvalidRequestError` and `ProviderError`."""
    runtime = starter.runtime
    prepared = starter.preparer.prepare_wire(provider, control_request(provider, mode))
    before, traffic = runtime.paused.get(prepared.origin), starter.traffic
    if mode is not None:
        runtime.paused[prepared.origin] = math.inf
        if traffic is not None:
            traffic.server_paused(prepared.origin)
    try:
        await fetch(prepared, runtime, CLOCKS, needs_body=False)
    except ProviderError:
        if mode is not None and before is None:
            del runtime.paused[prepared.origin]
        elif before is not None:
            runtime.paused[prepared.origin] = before
        raise
    if mode is None:
        runtime.paused[prepared.origin] = runtime.loop.clock()
        if traffic is not None:
            traffic.server_paused(prepared.origin)
