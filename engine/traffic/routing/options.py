"""Routes and their targets as a program declares them. Values and their checks only."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias, Unpack

from ....providers.errors import InvalidRequestError
from ....providers.model.options import Timeouts
from ....providers.model.request import Request, RequestOptions
from ....providers.model.request_rules import REQUEST, is_filled
from ....providers.model.rules import (
    LARGEST,
    Checker,
    Rule,
    described,
    flag,
    instance,
    number,
    optional,
    sequence,
    word,
)

BalanceName: TypeAlias = Literal["order", "weighted", "fastest", "sticky"]
FailoverName: TypeAlias = Literal["content_filter", "context_overflow"]

OF_THE_CALL = ("retry", "session", "tags")
"""Options of a request that hold for the whole call, so that a target cannot have them."""


class Balance(enum.StrEnum):
    """The rule by which a route chooses among its healthy targets."""

    ORDER = "order"
    """The first target in the route's order."""
    WEIGHTED = "weighted"
    """A random target, in proportion to the weights."""
    FASTEST = "fastest"
    """The target with the best score."""
    STICKY = "sticky"
    """The target of the call's session; the one with the best score for a new session."""


@dataclasses.dataclass(slots=True, frozen=True, init=False)
class Target:
    """One model of a route, and the options that its requests are sent with.

    model: `"provider/model"`.
    weight: its share of the calls, for `balance="weighted"`.
    fallback: used only when no other target is left, in the order of the targets.
    options: options of a `Request`, such as `temperature=0` or `timeouts=ms.Timeouts(first_byte=5)`. They replace the
        request's own. Members of `metadata`, `extra_body`, `extra_headers` and `timeouts` are added to the request's.
        `retry`, `session` and `timeouts.total` hold for the whole call, so a target cannot have them.

    Raises `InvalidRequestError` for a wrong value, and `TypeError` for an unknown option.
    """

    model: str
    weight: float
    fallback: bool
    options: Mapping[str, object] = dataclasses.field(repr=False)

    def __init__(
        self, model: str, *, weight: float = 1.0, fallback: bool = False, **options: Unpack[RequestOptions]
    ) -> None:
        put = object.__setattr__
        put(self, "model", model)
        put(self, "weight", weight)
        put(self, "fallback", fallback)
        put(self, "options", MappingProxyType(dict(options)))
        TARGET.check(self, "target")
        provider, _, name = model.partition("/")
        if not provider.strip() or not name.strip():
            raise InvalidRequestError("target.model", f"must be 'provider/model', not {described(model)}")
        for option in options:
            if option in OF_THE_CALL or option not in RequestOptions.__annotations__:
                raise TypeError(f"a target has no option {option!r}: {_why_not(option)}")
        timeouts = options.get("timeouts")
        if isinstance(timeouts, Timeouts) and timeouts.total is not None:
            raise InvalidRequestError(
                "target.timeouts.total",
                "holds for the whole call, so give it to the request; for one target, use connect, first_byte, idle"
                " and queue",
            )
        sample = Request(model, "", **options)
        for option in options:
            REQUEST.rules[option].check(getattr(sample, option), f"target.{option}")

    def __reduce__(self) -> tuple[object, ...]:
        """Copy a target, and send it to another process: a read-only view of a dict cannot be pickled itself."""
        return _copy_of, (self.model, self.weight, self.fallback, dict(self.options))


def _copy_of(model: str, weight: float, fallback: bool, options: dict[str, object]) -> Target:
    return Target(model, weight=weight, fallback=fallback, **options)  # type: ignore[arg-type]


def _why_not(option: str) -> str:
    if option in OF_THE_CALL:
        return "it holds for the whole call, so give it to the request"
    return "it may have any option of a request but its model and messages"


@dataclass(slots=True, frozen=True)
class Hedge:
    """The options for a second attempt of a call whose first event is late.

    after: seconds without an event; or "p95": the 95th percentile of the time to the first event in the last 200 calls.
    at_most: the largest part of the last minute's calls that may be sent twice, above 0 and up to 1.
    """

    after: float | Literal["p95"] = "p95"
    at_most: float = 0.05

    def __post_init__(self) -> None:
        if self.after != "p95" and not _is_between(self.after, LARGEST):
            raise InvalidRequestError(
                "hedge.after", f'must be "p95" or a number of seconds above 0, not {described(self.after)}'
            )
        if not _is_between(self.at_most, 1 + 1e-9):
            raise InvalidRequestError(
                "hedge.at_most", f"must be a part above 0 and up to 1, not {described(self.at_most)}"
            )


def _is_between(value: object, end: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < end


@dataclasses.dataclass(slots=True, frozen=True, init=False)
class Route:
    """A model name of the program's own, and the models that its calls are sent to.

    name: what requests have as `model`. It is looked up before the providers' models. It contains no `/`.
    targets: models as `"provider/model"`, or `Target` values.
    balance: how a target is chosen. `order`: the first that is healthy. `weighted`: by weight. `fastest`: the one that
        is expected to answer first. `sticky`: as `fastest`, and a session keeps its target.
    failover_on: errors after which a call also goes to another target: `content_filter`, `context_overflow`.
    hedge: when a call without an event is sent a second time; None: never.

    Raises `InvalidRequestError` for a wrong value.
    """

    name: str
    targets: tuple[Target, ...]
    balance: Balance
    failover_on: frozenset[str]
    hedge: Hedge | None

    def __init__(
        self,
        name: str,
        targets: Sequence[str | Target],
        *,
        balance: BalanceName = "order",
        failover_on: Sequence[FailoverName] = (),
        hedge: Hedge | None = None,
    ) -> None:
        NAME.check(name, "route.name")
        if "/" in name:
            raise InvalidRequestError(
                "route.name", f"must hold no '/', which separates a provider and a model, not {described(name)}"
            )
        for field, rule, value in (
            ("targets", TARGETS, targets),
            ("balance", BALANCE, balance),
            ("failover_on", FAILOVER_ON, failover_on),
            ("hedge", HEDGE, hedge),
        ):
            rule.check(value, f"route {name!r}: {field}")
        put = object.__setattr__
        put(self, "name", name)
        put(self, "targets", tuple(Target(each) if isinstance(each, str) else each for each in targets))
        put(self, "balance", Balance(balance))
        put(self, "failover_on", frozenset(failover_on))
        put(self, "hedge", hedge)
        if not targets:
            raise InvalidRequestError(f"route {name!r}: targets", "must hold at least one target")
        for position, target in enumerate(self.targets):
            if any(
                target.model == other.model and target.options == other.options for other in self.targets[:position]
            ):
                raise InvalidRequestError(
                    f"route {name!r}: targets[{position}]",
                    f"{described(target.model)} is there twice with the same options; for a larger share of the calls,"
                    " use Target(…, weight=…)",
                )
        if all(target.fallback for target in self.targets):
            raise InvalidRequestError(f"route {name!r}: targets", "must hold at least one that is no fallback")


@dataclass(slots=True, frozen=True)
class TargetStatistics:
    """One target of a route at one moment.

    target: `provider/model`.
    outstanding: calls under way.
    sessions: sessions that are bound to it, for `balance="sticky"`.
    breaker: `closed`, `open` (the target gets no call) or `probing` (it gets one call). Always `closed` for `fastest`
        and `sticky`, which use the score alone.
    score: seconds that a call is expected to take, failures included; None before the first answer.
    seconds: smoothed time to the first event; None before the first answer.
    failures: smoothed share of calls that failed.
    """

    target: str
    outstanding: int = 0
    sessions: int = 0
    breaker: str = "closed"
    score: float | None = None
    seconds: float | None = None
    failures: float = 0.0


@dataclass(slots=True, frozen=True)
class RouteStatistics:
    """One route at one moment.

    targets: in the order in which the route has them.
    waiting: calls that wait until a target is used again. Calls that wait for a limit are counted by their limiters.
    hedged: calls that were sent a second time because their first event was late, since the engine opened.
    """

    targets: tuple[TargetStatistics, ...] = ()
    waiting: int = 0
    hedged: int = 0


TARGET = Checker(
    Target,
    {
        "model": Rule("'provider/model'", (str,), bool),
        "weight": number(0, must="a number above 0", above=True),
        "fallback": flag(),
    },
)

NAME = Rule("a name that is not empty", (str,), is_filled)
TARGETS = sequence(
    Rule("'provider/model' or a Target", (str, Target)), "a list of 'provider/model' or Target", forms={str: "use [{}]"}
)
BALANCE = word(*(balance.value for balance in Balance))
HEDGE = optional(instance(Hedge, forms={type: "use Hedge()", bool: "use Hedge()", float: "use Hedge(after={})"}))
FAILOVER_ON = sequence(
    word("content_filter", "context_overflow"), "a list of errors' names", forms={str: "use failover_on=[{}]"}
)
