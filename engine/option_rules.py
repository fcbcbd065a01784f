"""The rules for an engine's options: one row per option, and per field of its values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module

import trio

from ..providers.field_rules import PROFILE, RETRY_GIVEN, TIMEOUTS_GIVEN
from ..providers.provider import PROVIDER, Provider
from ..providers.rules import Checker, Rule, checked, instance, number, optional, text, whole
from ..transport.pool import PoolLimits
from ..transport.tls import ClientCertificate, TLSConfig
from .limits import Limits

SECONDS = number(0, must="a number of seconds of at least 0", infinite=True)
PATH = instance(str, os.PathLike, must="a path")

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
    Limits,
    {
        "pool": checked(POOL_LIMITS, forms={int: "use PoolLimits(max_connections={})"}),
        "max_event_bytes": whole(1),
        "max_response_bytes": whole(1),
        "max_error_bytes": whole(0),
        "max_calls": whole(1),
        "max_buffered_bytes": whole(1),
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
        "ca_data": optional(text("PEM text", secret=True)),
        "client_certificate": optional(
            checked(CERTIFICATE, forms={str: "use ClientCertificate({})", tuple: "use ClientCertificate(…)"})
        ),
    },
)


def _check_providers(providers: Sequence[object], where: str) -> None:
    for position, provider in enumerate(providers):
        place = f"{where}[{position}]"
        PROVIDER.check(provider, place)
        PROFILE.check(getattr(provider, "profile", None), f"{place}.profile")


class RuleElsewhere:
    """The rule of an option whose module only some engines need. It is imported when the option is given.

    module: the module's name, relative to this package.
    name: the rule's name in the module.
    """

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module: str = module
        self.name: str = name

    def check(self, value: object, where: str) -> None:
        """Raise `InvalidRequestError` naming the place, unless the value is None or the rule accepts it."""
        if value is not None:
            rule: Rule = getattr(import_module(self.module, __package__), self.name)
            rule.check(value, where)


OPTIONS: dict[str, Rule | RuleElsewhere] = {
    "providers": Rule(
        "a list of providers", (Sequence,), inside=_check_providers, forms={Provider: "use [provider]"}, secret=True
    ),
    "timeouts": TIMEOUTS_GIVEN,
    "retry": RETRY_GIVEN,
    "limits": optional(checked(LIMITS, forms={int: "use Limits(max_calls={})"})),
    "tls": optional(checked(TLS, forms={str: "use TLSConfig(ca_file={})", bool: "TLS cannot be switched off"})),
    "proxy": optional(text("a URL", secret=True)),
    "dial": optional(Rule("an async function of a host and a port", (object,), callable)),
    "environment": optional(instance(Mapping, must="a dict of texts")),
    "traffic": RuleElsewhere(".traffic.options", "TRAFFIC_OPTION"),
    "observer": RuleElsewhere(".observe", "OBSERVER_OPTION"),
    "monitor": Rule("True, False or a path", (bool, str, os.PathLike)),
}
"""Option of `open_engine` → its rule."""


def check_options(providers: object, options: Mapping[str, object]) -> None:
    """Raises `InvalidRequestError` naming the option, or the field in it; `TypeError` for an option that there is not;
    and `RuntimeError` outside a trio task, where trio's own errors would not say what to do."""
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            "manystream.open_engine runs on trio, and this is no trio task: in an asyncio program use"
            " manystream.aio.open_engine; else start one with trio.run(main)"
        )
    for name in options:
        if name not in OPTIONS:
            raise TypeError(
                f"open_engine has no option {name!r}: there are {', '.join(sorted(OPTIONS.keys() - {'providers'}))}"
            )
    for name, option in {"providers": providers, **options}.items():
        OPTIONS[name].check(option, name)
