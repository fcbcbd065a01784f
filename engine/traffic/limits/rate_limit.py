"""Rate limits that the user declares, the calls that each covers, and the figures of limits. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ....providers.catalog.provider import Provider
from ....providers.errors import InvalidRequestError
from ....providers.limits.quota_report import DAY, MINUTE, SECOND, ReportedLimit, Unit
from ....providers.limits.rate_headers import LARGEST
from ....providers.limits.server_load import ServerLoad
from ....providers.model.rules import Checker, number, optional, whole

_LIMITS: tuple[tuple[str, Unit, float], ...] = (
    ("requests_per_second", Unit.REQUESTS, SECOND),
    ("requests_per_minute", Unit.REQUESTS, MINUTE),
    ("requests_per_day", Unit.REQUESTS, DAY),
    ("tokens_per_minute", Unit.TOKENS, MINUTE),
    ("input_tokens_per_minute", Unit.INPUT_TOKENS, MINUTE),
    ("output_tokens_per_minute", Unit.OUTPUT_TOKENS, MINUTE),
)
"""Per option: its name, the unit that it limits, and its window in seconds."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RateLimit:
    """The limits of an API key, a model or the whole engine. None: no limit of this kind. At least one is needed.

    Half a request per second is one request in two seconds.

    requests_per_second: requests in a second.
    requests_per_minute: requests in a minute.
    requests_per_day: requests in 24 hours.
    tokens_per_minute: input and output tokens in a minute, counted together.
    input_tokens_per_minute: input tokens in a minute.
    output_tokens_per_minute: output tokens in a minute.
    concurrent: calls that run at a time.
    """

    requests_per_second: float | None = None
    requests_per_minute: float | None = None
    requests_per_day: float | None = None
    tokens_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    concurrent: int | None = None

    def __post_init__(self) -> None:
        RATE_LIMIT.check(self, "rates")
        if all(getattr(self, name) is None for name in RATE_LIMIT.rules):
            raise InvalidRequestError(
                "rates", f"must have a limit: give RateLimit one of {', '.join(RATE_LIMIT.rules)}, or leave it out"
            )


def limits_of(declared: RateLimit, of: str = "") -> tuple[ReportedLimit, ...]:
    """Return the declared limits in the form of limits that a server reports, with nothing used.

    of: the entry of `rates` that declares the limits, for their names.
    """
    suffix = f" of {of}" if of else ""
    found: list[ReportedLimit] = []
    for name, unit, window in _LIMITS:
        value: float | None = getattr(declared, name)
        if value is not None:
            if unit is Unit.REQUESTS and value < 1:
                value, window = 1.0, window / value  # such as one request in two seconds
            found.append(ReportedLimit(f"declared {name}{suffix}", unit, window, limit=value, remaining=value))
    return tuple(found)


_ABOVE_0 = optional(number(0, LARGEST, must="a number above 0", above=True))
RATE_LIMIT = Checker(RateLimit, {**{name: _ABOVE_0 for name, _, _ in _LIMITS}, "concurrent": optional(whole(1))})
"""The rules for the fields of `RateLimit`, which are checked when one is made."""


LimitSource: TypeAlias = Literal["declared", "reported", "server_queue", "learned"]
"""Where a limit of running calls comes from: the program's `rates`; the number of places that the server reports; the
calls that run and wait in the server; the times of answers, and refusals."""


@dataclass(slots=True, frozen=True)
class BucketStatistics:
    """The figures of one limit at one moment, in the unit that it counts (requests or tokens).

    rate: units that may be sent per second.
    capacity: units that may be sent at once after a pause.
    level: units that may be sent now; negative if more were sent than the limit had room for.
    """

    rate: float
    capacity: float
    level: float


@dataclass(slots=True, frozen=True)
class LimiterStatistics:
    """The figures of one limiter at one moment. A limiter is a key of a host, and the models that share a limit there.

    waiting: calls in the queue.
    running: calls that were sent and have not ended.
    sent: requests sent since the engine opened; a call that is sent again counts again.
    refused: requests refused by a limit since the engine opened.
    reported: limits that the server reports or the program declared, by name.
    learned: limits learned from refusals, by the unit that they count.
    window: the largest number of calls that may be sent and not yet be accepted.
    unconfirmed: calls that were sent and are not yet known to be accepted.
    held: seconds until the pause after a refusal ends; 0 if there is none.
    spent: seconds until calls are sent again after the server reported a used-up quota; 0 if none is used up.
    concurrent: the largest number of running calls; None if that is not limited.
    concurrent_by: where it comes from: `declared`; `reported` by the server, such as its slots; `server_queue`, from
        the calls that run and wait in the server; `learned` from times and refusals. Empty if it is not limited.
    server_load: what the server said last of the calls that run and wait in it; None if it does not say.
    away: seconds for which the server has taken no connection or served no call; 0 if it is not away.
    """

    waiting: int = 0
    running: int = 0
    sent: int = 0
    refused: int = 0
    reported: Mapping[str, BucketStatistics] = field(default_factory=lambda: {})
    learned: Mapping[str, BucketStatistics] = field(default_factory=lambda: {})
    window: int = 0
    unconfirmed: int = 0
    held: float = 0.0
    spent: float = 0.0
    concurrent: int | None = None
    away: float = 0.0
    concurrent_by: LimitSource | Literal[""] = ""
    server_load: ServerLoad | None = None


EVERY_CALL = "*"


@dataclass(slots=True, frozen=True)
class Entry:
    """One parsed key of `rates`.

    key: the key as the program wrote it.
    providers: the names of the covered providers; None: all.
    model: a model's name, or the beginning of names and `*`; "": every model.
    """

    key: str
    providers: frozenset[str] | None
    model: str

    def covers(self, provider: str, model: str) -> bool:
        """Return True if the entry covers calls to `model` of `provider`.

        provider: the name of the configured provider.
        model: the name that the provider uses for the model.
        """
        if self.providers is not None and provider not in self.providers:
            return False
        if self.model.endswith("*"):
            return model.startswith(self.model[:-1])
        return not self.model or self.model == model


def find_entries(keys: Iterable[str], providers: Sequence[Provider]) -> tuple[Entry, ...]:
    """Parse the keys into entries. Raises `InvalidRequestError` for a key that covers no provider."""
    entries: list[Entry] = []
    for key in keys:
        if key == EVERY_CALL:
            entries.append(Entry(key, None, ""))
            continue
        word, _, model = key.partition("/")
        names = _named(word, providers)
        if not names:
            configured = ", ".join(repr(provider.name) for provider in providers) or "none"
            raise InvalidRequestError(
                f"traffic.rates[{key!r}]", f"covers no provider; configured are {configured}; '*' covers every call"
            )
        entries.append(Entry(key, names, model))
    return tuple(entries)


def _named(word: str, providers: Sequence[Provider]) -> frozenset[str]:
    """Return the name of the provider called `word`; else the names of all whose profile has this name or alias."""
    exact = frozenset(provider.name for provider in providers if provider.name == word)
    return exact or frozenset(
        provider.name for provider in providers if provider.profile.name == word or word in provider.profile.aliases
    )
