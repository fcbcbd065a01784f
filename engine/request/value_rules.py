"""The rules for the values of the options `limits` and `tls`: one row per field."""

from __future__ import annotations

import os

from ...providers.model.rules import Checker, Rule, checked, flag, number, optional, text, whole
from ...transport.pool import PoolLimits
from ...transport.tls import ClientCertificate, TLSConfig
from .limits import EngineLimits

SECONDS = number(0, must="a number of seconds of at least 0", infinite=True)
PATH = Rule("a path", (str, os.PathLike), bool)

POOL_LIMITS = Checker(
    PoolLimits,
    {
        "max_connections": whole(1),
        "max_per_origin": whole(1),
        "max_idle": whole(0),
        "idle_expiry": SECONDS,
        "drain_seconds": SECONDS,
        "max_age": SECONDS,
    },
)
LIMITS = Checker(
    EngineLimits,
    {
        "pool": checked(POOL_LIMITS, forms={int: "use PoolLimits(max_connections={})"}),
        "max_event_bytes": whole(1),
        "max_response_bytes": whole(1),
        "max_error_bytes": whole(0),
        "max_calls": whole(1),
        "max_buffered_bytes": whole(1),
        "retry_reserve": number(0, must="a number of at least 0", infinite=True),
        "max_choices": whole(1),
        "max_blocks": whole(1),
        "max_tool_calls": whole(1),
    },
)
CERTIFICATE = Checker(
    ClientCertificate,
    {"certificate_file": PATH, "key_file": optional(PATH), "password": optional(text(secret=True))},
)
TLS = Checker(
    TLSConfig,
    {
        "ca_file": optional(PATH),
        "ca_data": optional(text("PEM text with a certificate", empty=False, secret=True)),
        "client_certificate": optional(
            checked(CERTIFICATE, forms={str: "use ClientCertificate({})", tuple: "use ClientCertificate(…)"})
        ),
        "lenient": flag(),
    },
)

LIMITS_GIVEN = checked(LIMITS, forms={int: "use EngineLimits(max_calls={})"})
TLS_GIVEN = checked(TLS, forms={str: "use TLSConfig(ca_file={})", bool: "TLS cannot be switched off"})
