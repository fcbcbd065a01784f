"""What an engine may be opened with, once for all doors.

Knows names, types and meanings. Must not know how an option is checked (option_rules.py), nor what it does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict

from ..providers.options import Retry, Timeouts
from ..transport.dial import Connect
from ..transport.tls import TLSConfig
from .limits import Limits
from .observe import Observer
from .traffic.options import Traffic


class EngineOptions(TypedDict, total=False):
    """The options of `open_engine`, `aio.open_engine` and `open_portal`.

    timeouts: the clocks of every call that has none of its own.
    retry: how often every call without its own is attempted. Default: `Retry()`.
    limits: caps on calls, connections and sizes. Default: `Limits()`.
    tls: a custom CA, or a client certificate.
    proxy: the URL of an HTTP CONNECT proxy; an empty string for none. Default: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`
        and `NO_PROXY` from the environment.
    dial: an async function, run on trio, that is given a host and a port and returns a connected stream socket: over a
        Unix socket, through SOCKS. Then there is no DNS and no proxy; TLS follows where the URL is https.
    environment: where keys and proxies are looked up. Default: the process's environment.
    traffic: decides when each call is sent: declared limits, and those that servers report and refusals teach. Default:
        every call is sent at once.
    observer: notified of how calls and connections go.
    monitor: a path at which `manystream top` sees figures, never what is said; True for the place where it looks by
        itself. Default: False.
    """

    timeouts: Timeouts | None
    retry: Retry | None
    limits: Limits | None
    tls: TLSConfig | None
    proxy: str | None
    dial: Connect | None
    environment: Mapping[str, str] | None
    traffic: Traffic | None
    observer: Observer | None
    monitor: str | os.PathLike[str] | bool
