"""Whole errors of the options of traffic control, their defaults, and which calls an entry covers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

import manystream as ms
from manystream.engine.traffic.limits.rate_limit import Entry, find_entries
from manystream.engine.traffic.targets import lay_over, with_model
from manystream.providers.errors import InvalidRequestError

MINUTE = ms.RateLimit(requests_per_minute=60)
ONE = ms.Target("one/m")
KEY = "must be 'provider', 'provider/model', 'provider/beginning*' or '*'"
TARGETS = "route 'r': targets"
TWICE = "is there twice with the same options; for a larger share of the calls, use Target(…, weight=…)"


def price(*_: object) -> None:
    return None


WRONG: list[tuple[Callable[[], object], str]] = [
    (ms.RateLimit,
        "rates: must have a limit: give RateLimit one of requests_per_second, requests_per_minute, requests_per_day,"
        " tokens_per_minute, input_tokens_per_minute, output_tokens_per_minute, concurrent, or leave it out"),
    (lambda: ms.RateLimit(tokens_per_minute=0), "rates.tokens_per_minute: must be a number above 0, not 0"),
    (lambda: ms.RateLimit(concurrent=0), "rates.concurrent: must be a whole number of at least 1, not 0"),
    (lambda: ms.Traffic(rates={"": MINUTE}), f"traffic.rates['']: {KEY}"),
    (lambda: ms.Traffic(rates={"a/": MINUTE}), f"traffic.rates['a/']: {KEY}"),
    (lambda: ms.Traffic(rates={"*/m": MINUTE}), f"traffic.rates['*/m']: {KEY}"),
    (lambda: ms.Traffic(rates={"a*": MINUTE}), f"traffic.rates['a*']: {KEY}"),
    (lambda: ms.Traffic(rates={"a/*b": MINUTE}), f"traffic.rates['a/*b']: {KEY}"),
    (lambda: ms.Traffic(price=3), "traffic.price: must be a function or None, not 3"),
    (lambda: ms.Traffic(budgets=[ms.Budget(calls=1), ms.Budget(usd=1)]),
        "traffic.price: is needed for a budget in usd: use manystream.cost.price"),
    (lambda: ms.Traffic(routes=[ms.Route("r", [ONE]), ms.Route("s", [ONE]), ms.Route("r", [ONE])]),
        "traffic.routes[2]: two routes are named 'r'"),
    (lambda: ms.Traffic(warm=1), "traffic.warm: must be True, False or a Warm, not 1"),
    (lambda: ms.Warm(wait=-1), "warm.wait: must be a number of seconds of at least 0, not -1"),
    (lambda: ms.Warm(least_tokens=0.5), "warm.least_tokens: must be a whole number of at least 0, not 0.5"),
    (lambda: ms.Target("m"), "target.model: must be 'provider/model', not 'm'"),
    (lambda: ms.Target(" /m"), "target.model: must be 'provider/model', not ' /m'"),
    (lambda: ms.Target("one/ "), "target.model: must be 'provider/model', not 'one/ '"),
    (lambda: ms.Target("one/m", weight=0), "target.weight: must be a number above 0, not 0"),
    (lambda: ms.Target("one/m", timeouts=ms.Timeouts(total=9)),
        "target.timeouts.total: holds for the whole call, so give it to the request; for one target, use connect,"
        " first_byte, idle and queue"),
    (lambda: ms.Route("a/b", [ONE]), "route.name: must hold no '/', which separates a provider and a model, not 'a/b'"),
    (lambda: ms.Route("r", []), f"{TARGETS}: must hold at least one target"),
    (lambda: ms.Route("r", ["two/m", ONE, "one/m"]), f"{TARGETS}[2]: 'one/m' {TWICE}"),
    (lambda: ms.Route("r", [ms.Target("one/m", fallback=True), ms.Target("two/m", fallback=True)]),
        f"{TARGETS}: must hold at least one that is no fallback"),
    (lambda: ms.Route("r", [ONE], failover_on=["x"]),
        "route 'r': failover_on[0]: must be one of 'content_filter', 'context_overflow', not 'x'"),
    (lambda: ms.Route("r", [ONE], balance="x"),
        "route 'r': balance: must be one of 'order', 'weighted', 'fastest', 'sticky', not 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_option_is_an_error_in_words(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make()
    assert str(caught.value) == words


FORMS: list[tuple[Callable[[], object], str]] = [
    (lambda: ms.Traffic(rates={"a": 60}), "use RateLimit(requests_per_minute=60)"),  # type: ignore[dict-item]
    (lambda: ms.Traffic(rates={"a": {}}), "use RateLimit(…)"),  # type: ignore[dict-item]
    (lambda: ms.Traffic(routes=ms.Route("r", [ONE])), "use [route]"),  # type: ignore[arg-type]
    (lambda: ms.Traffic(budgets=ms.Budget(calls=1)), "use [budget]"),  # type: ignore[arg-type]
    (lambda: ms.Traffic(budgets={}), "use [Budget(…)]"),  # type: ignore[arg-type]
    (lambda: ms.Traffic(warm={}), "use Warm(…)"),  # type: ignore[arg-type]
    (lambda: ms.Route("r", "one/m"), "use ['one/m']"),
    (lambda: ms.Route("r", [ONE], hedge=True), "use Hedge()"),  # type: ignore[arg-type]
    (lambda: ms.Route("r", [ONE], hedge=2.5), "use Hedge(after=2.5)"),  # type: ignore[arg-type]
    (lambda: ms.Route("r", [ONE], hedge=ms.Hedge), "use Hedge()"),  # type: ignore[arg-type]
    (lambda: ms.Route("r", [ONE], failover_on="x"), "use failover_on=['x']"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "words"), FORMS, ids=range(len(FORMS)))
def test_the_error_of_another_form_says_what_to_write(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("retry", "it holds for the whole call, so give it to the request"),
        ("session", "it holds for the whole call, so give it to the request"),
        ("colour", "it may have any option of a request but its model and messages"),
    ],
)
def test_an_option_that_a_target_cannot_have(option: str, why: str) -> None:
    with pytest.raises(TypeError) as caught:
        ms.Target("one/m", **{option: None})  # type: ignore[arg-type]
    assert str(caught.value) == f"a target has no option {option!r}: {why}"


def test_the_defaults_of_traffic_control() -> None:
    traffic = ms.Traffic()
    assert {each.name: getattr(traffic, each.name) for each in fields(traffic)} == {
        "rates": {}, "routes": (), "budgets": (), "price": None, "adaptive": True, "shared": False,
        "outage": 1800.0, "warm": True,
    }  # fmt: skip
    route = ms.Route("r", ["one/m"])
    assert (route.name, route.targets, route.balance, route.failover_on, route.hedge) == (
        "r", (ONE,), "order", frozenset(), None,
    )  # fmt: skip
    assert (ONE.model, ONE.weight, ONE.fallback, dict(ONE.options)) == ("one/m", 1, False, {})
    assert ms.Traffic(budgets=[ms.Budget(usd=1)], price=price).price is price
    assert [getattr(MINUTE, each.name) for each in fields(MINUTE)] == [None, 60, None, None, None, None, None]
    assert ms.Route("r", [ms.Target("one/m", weight=2, fallback=True), "two/m"]).targets[0].weight == 2


def test_the_options_of_a_target_lie_over_those_of_the_request() -> None:
    request = ms.Request(
        "fast", [ms.Message.user("hi")], temperature=1.0, max_output_tokens=5, metadata={"a": "1", "b": "2"},
        extra_body={"x": 1}, extra_headers={"h": "1"}, timeouts=ms.Timeouts(total=9, idle=3),
    )  # fmt: skip
    target = ms.Target(
        "one/m", temperature=0.5, metadata={"b": "3"}, extra_body={"y": 2}, extra_headers={"h": "2"},
        timeouts=ms.Timeouts(idle=1),
    )  # fmt: skip
    laid = lay_over(target, request, "m")
    assert laid == ms.Request(
        "m", [ms.Message.user("hi")], temperature=0.5, max_output_tokens=5, metadata={"a": "1", "b": "3"},
        extra_body={"x": 1, "y": 2}, extra_headers={"h": "2"}, timeouts=ms.Timeouts(total=9, idle=1),
    )  # fmt: skip
    assert (laid.metadata, laid.extra_headers) == ({"a": "1", "b": "3"}, {"h": "2"})
    bare = ms.Request("fast", [ms.Message.user("hi")])
    assert lay_over(target, bare, "m").timeouts == ms.Timeouts(idle=1)
    assert lay_over(target, bare, "m").metadata == {"b": "3"}
    assert lay_over(ONE, request, "m") == with_model(request, "m")
    assert with_model(request, "m").model == "m"


def providers() -> list[ms.Provider]:
    url = "http://127.0.0.1:9/v1"
    return [
        ms.OpenAIChat("k", url, name="chat", profile="openai-chat"),
        ms.OpenAIChat("k", url, name="one", profile="vllm"),
        ms.OpenAIChat("k", url, name="two", profile="vllm"),
        ms.OpenAIChat("k", url, name="vllm", profile="groq"),
    ]


def test_what_the_entries_of_rates_cover() -> None:
    assert find_entries(["*", "one", "vllm/m", "openai-chat/m*"], providers()) == (
        Entry("*", None, ""), Entry("one", frozenset({"one"}), ""), Entry("vllm/m", frozenset({"vllm"}), "m"),
        Entry("openai-chat/m*", frozenset({"chat"}), "m*"),
    )  # fmt: skip
    assert find_entries(["vllm"], providers()[:3]) == (Entry("vllm", frozenset({"one", "two"}), ""),)
    assert find_entries([], []) == ()


@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        (Entry("*", None, ""), ["a/m", "a/mn", "b/m"]),
        (Entry("a", frozenset({"a"}), ""), ["a/m", "a/mn"]),
        (Entry("a/m", frozenset({"a"}), "m"), ["a/m"]),
        (Entry("a/m*", frozenset({"a", "b"}), "m*"), ["a/m", "a/mn", "b/m"]),
        (Entry("a/mn*", frozenset({"a"}), "mn*"), ["a/mn"]),
        (Entry("a/*", frozenset({"a"}), "*"), ["a/m", "a/mn"]),
    ],
)
def test_which_calls_an_entry_covers(entry: Entry, covered: list[str]) -> None:
    assert [call for call in ("a/m", "a/mn", "b/m") if entry.covers(*call.split("/"))] == covered


@pytest.mark.parametrize(("configured", "words"), [(2, "'chat', 'one'"), (0, "none")])
def test_an_entry_that_covers_no_provider(configured: int, words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        find_entries(["chat" if not configured else "x/m"], providers()[:configured])
    key = "x/m" if configured else "chat"
    assert str(caught.value) == (
        f"traffic.rates[{key!r}]: covers no provider; configured are {words}; '*' covers every call"
    )
