"""The rules for an engine's options: one row per option. `request/value_rules.py` has those of their fields."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from ..providers.catalog.profiles import is_row
from ..providers.catalog.provider import PROVIDER, Provider
from ..providers.errors import InvalidRequestError
from ..providers.model.rules import Rule, members, optional, text
from ..transport.errors import URLError
from .request.addresses import Addressed, addressed, check_single_keys

if TYPE_CHECKING:
    from ..transport.proxy import ProxyConfig
    from .options import EngineOptions


@dataclass(slots=True, eq=False, repr=False)
class RuleElsewhere:
    """The rule of an option whose module only some engines need. It is imported when the option is given."""

    module: str  # the module's name, relative to this package
    name: str  # the rule's name in the module

    def check(self, value: object, where: str) -> None:
        """Raise `InvalidRequestError` naming where it is, unless the value is None or the rule accepts it."""
        if value is not None:
            rule: Rule = getattr(import_module(self.module, __package__), self.name)
            rule.check(value, where)


PROFILE = RuleElsewhere("..providers.catalog.profile_rules", "PROFILE")


def _check_providers(providers: Sequence[object], where: str) -> None:
    for position, provider in enumerate(providers):
        label = f"{where}[{position}]"
        PROVIDER.check(provider, label)
        profile = getattr(provider, "profile", None)
        if not is_row(profile):
            PROFILE.check(profile, f"{label}.profile")


def _is_given(monitor: object) -> bool:
    return monitor != ""


def _keeps_answers(cache: object) -> bool:
    return hasattr(cache, "find") and hasattr(cache, "note")


OPTIONS: dict[str, Rule | RuleElsewhere] = {
    "providers": Rule(
        "a list of providers", (Sequence,), inside=_check_providers, forms={Provider: "use [provider]"}, secret=True
    ),
    "timeouts": RuleElsewhere("..providers.model.options", "TIMEOUTS_GIVEN"),
    "retry": RuleElsewhere("..providers.model.options", "RETRY_GIVEN"),
    "limits": RuleElsewhere(".request.value_rules", "LIMITS_GIVEN"),
    "tls": RuleElsewhere(".request.value_rules", "TLS_GIVEN"),
    "proxy": optional(
        text(
            "the URL of a proxy, '' for none, or None for the environment's",
            secret=True,
            forms={bool: "use '' for none", dict: "it is one URL for all origins; `environment` has one per scheme"},
        )
    ),
    "dial": optional(Rule("an async function of a host and a port", (object,), callable)),
    "environment": optional(members(optional(text(secret=True)), "a dict of texts")),
    "traffic": RuleElsewhere(".traffic.options", "TRAFFIC_OPTION"),
    "observer": RuleElsewhere(".observe.observer", "OBSERVER_OPTION"),
    "cache": optional(Rule("an AnswerCache", (object,), _keeps_answers)),
    "monitor": Rule("True, False or a path", (bool, str, os.PathLike), _is_given),
}


def check_options(providers: object, options: Mapping[str, object]) -> None:
    """Raises `InvalidRequestError` naming the option, or the field in it, and `TypeError` for one that there is not."""
    for name in options:
        if name not in OPTIONS:
            raise TypeError(
                f"open_engine has no option {name!r}: there are {', '.join(sorted(OPTIONS.keys() - {'providers'}))}"
            )
    for name, option in {"providers": providers, **options}.items():
        OPTIONS[name].check(option, name)


class Configuration:
    """The checked providers and options of an engine. Raises `InvalidRequestError` for what cannot work."""

    def __init__(self, providers: Sequence[Provider], options: EngineOptions) -> None:
        check_options(providers, options)
        self.options: EngineOptions = options
        variables, proxy = _choose_environment(options.get("environment"), options.get("proxy"))
        self.variables: Mapping[str, str] = variables
        self.proxy: ProxyConfig | None = proxy
        self.addressed: list[Addressed] = addressed(providers, variables)
        self.providers: Sequence[Provider] = providers
        if options.get("traffic") is None:
            check_single_keys(providers)


def _choose_environment(
    environment: Mapping[str, str] | None, proxy: str | None
) -> tuple[Mapping[str, str], ProxyConfig | None]:
    """Return the variables in which keys and proxies are looked up, and the proxy that the program gave.

    Raises `InvalidRequestError` for a proxy URL that cannot be parsed.

    environment: the program's variables; None: `os.environ`.
    proxy: a URL; "": no proxy, whatever the variables say; None: look it up in the variables.
    """
    variables: Mapping[str, str] = os.environ if environment is None else environment
    if proxy == "":
        variables = {name: value for name, value in variables.items() if not name.lower().endswith("_proxy")}
    if not proxy:
        return variables, None
    from ..transport.proxy import parse_proxy_url

    try:
        return variables, parse_proxy_url(proxy)
    except URLError as error:
        raise InvalidRequestError("proxy", str(error)) from None
