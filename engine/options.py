"""The options of an engine, for trio, asyncio and portals."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict

from ..providers.model.options import Retry, Timeouts
from ..transport.dial import Connect
from ..transport.tls import TLSConfig
from .call.runtime import AnswerStore
from .observe.observer import Observer
from .request.limits import EngineLimits
from .traffic.options import Traffic


class EngineOptions(TypedDict, total=False):
    """The options of `open_engine`, `ms.open_engine` and `open_portal`.

    timeouts: the timeouts of every call that has none of its own.
    retry: the retry options of every call that has none of its own. Default: `Retry()`.
    limits: caps on calls, connections and sizes. Default: `EngineLimits()`.
    tls: a custom CA, or a client certificate.
    proxy: the URL of an HTTP CONNECT proxy for all origins; an empty string for no proxy, whatever the environment
        says. Default, and None: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` of `environment`.
    dial: an async function, run on the engine's event loop, that takes a host and a port and returns a connected stream
        socket, such as a Unix socket or one through SOCKS. The event loop of a portal is trio's. DNS and the proxy are
        then not used; TLS is used if the URL is https.
    environment: where keys, proxies and the addresses of providers without a `base_url` are looked up. Default: the
        process's environment.
    traffic: decides when each call is sent, by declared limits, by limits that servers report, and by limits learned
        from refusals. Default: every call is sent at once.
    observer: notified of the progress of calls and connections.
    monitor: the path of a socket at which `manystream top` reads figures, never content; True for the default path.
        Default: False.
    cache: answers that need no request, a `manystream.cache.AnswerCache`. Default: every call is sent.
    """

    timeouts: Timeouts | None
    retry: Retry | None
    limits: EngineLimits | None
    tls: TLSConfig | None
    proxy: str | None
    dial: Connect | None
    environment: Mapping[str, str] | None
    traffic: Traffic | None
    observer: Observer | None
    monitor: str | os.PathLike[str] | bool
    cache: AnswerStore | None
