"""What traffic control is configured with. Values and their checks only.

Must not know providers: whether an entry of `rates` covers one is found out where an engine is opened (`coverage.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...providers.errors import InvalidRequestError
from ...providers.rules import Checker, described, flag, instance, members
from .rate_limit import RateLimit


@dataclass(slots=True, frozen=True, kw_only=True)
class Traffic:
    """How an engine decides when a call is sent. It is configuration only: two engines that are given one object share
    nothing.

    rates: limits that the program declares. A key says what one limit covers: `"openai"` a provider, `"openai/gpt-5"` a
        model, `"openai/gpt-5*"` every model with this beginning, `"*"` every call. A call must fit every entry that
        covers it. `"*"` is one limit for all calls; any other entry holds for each key of its provider.
    adaptive: learn from what servers report and refuse. False: only declared limits hold, and pauses that a server asks
        for.
    """

    rates: Mapping[str, RateLimit] = field(default_factory=dict[str, RateLimit])
    adaptive: bool = True

    def __post_init__(self) -> None:
        TRAFFIC.check(self, "traffic")
        for key in self.rates:
            provider, slash, model = key.partition("/")
            if not provider or (slash and not model) or "*" in model[:-1] or ("*" in provider and key != "*"):
                raise InvalidRequestError(
                    f"traffic.rates[{described(key)}]",
                    "must be 'provider', 'provider/model', 'provider/beginning*' or '*'",
                )


TRAFFIC = Checker(
    Traffic,
    {
        "rates": members(
            instance(RateLimit, forms={int: "use RateLimit(requests_per_minute={})", dict: "use RateLimit(…)"}),
            "a dict of RateLimit",
        ),
        "adaptive": flag(),
    },
)
