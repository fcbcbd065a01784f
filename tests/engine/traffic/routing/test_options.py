"""Routes, targets and keys with wrong options: each is an error that names the field and the remedy."""

import copy
import math
import pickle
from collections.abc import Callable

import pytest

import manystream as ms


def route(**options: object) -> Callable[[], object]:
    given = {"name": "fast", "targets": ["one/m"], **options}
    return lambda: ms.Route(given.pop("name"), given.pop("targets"), **given)  # type: ignore[arg-type]


def target(model: object = "one/m", **options: object) -> Callable[[], object]:
    return lambda: ms.Target(model, **options)  # type: ignore[arg-type]


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a name with a slash": (route(name="a/b"), "route.name: must hold no '/'"),
    "an empty name": (route(name=""), "route.name: must be a name that is not empty"),
    "a blank name": (route(name=" "), "route.name: must be a name that is not empty"),
    "a name that is no text": (route(name=3), "route.name: must be a name that is not empty, not 3"),
    "no targets": (route(targets=[]), "route 'fast': targets: must hold at least one target"),
    "targets as text": (route(targets="one/m"), r"targets: must be a list .*; use \['one/m'\]"),
    "targets that are no list": (route(targets=None), "targets: must be a list"),
    "a target that is no text": (route(targets=[3]), r"targets\[0\]: must be 'provider/model' or a Target"),
    "a target without a provider": (route(targets=["m"]), "target.model: must be 'provider/model', not 'm'"),
    "a target without a model": (route(targets=["one/"]), "target.model: must be 'provider/model'"),
    "one target twice": (route(targets=["one/m", "one/m"]), r"targets\[1\]: 'one/m' is there twice .* weight="),
    "one target twice, weighted": (route(targets=["one/m", ms.Target("one/m", weight=2)]),
        r"targets\[1\]: 'one/m' is there twice"),
    "only fallbacks": (route(targets=[ms.Target("one/m", fallback=True)]), "at least one that is no fallback"),
    "an unknown balance": (route(balance="round"), "balance: must be one of 'order', 'weighted', 'fastest', 'sticky'"),
    "an unknown error": (route(failover_on=["x"]), r"failover_on\[0\]: must be one of 'content_filter'"),
    "errors as text": (route(failover_on="content_filter"), r"use failover_on=\['content_filter'\]"),
    "a target that is None": (target(None), "target.model: must be 'provider/model', not None"),
    "a fallback that is a number": (target(fallback=1), "target.fallback: must be True or False"),
    "a wrong option": (target(temperature="hot"), "target.temperature: must be a number of at least 0"),
    "timeouts as a number": (target(timeouts=5), r"target.timeouts: .* use Timeouts\(total=5\)"),
    "two routes of one name": (lambda: ms.Traffic(routes=[ms.Route("a", ["one/m"]), ms.Route("a", ["two/m"])]),
        r"traffic.routes\[1\]: two routes are named 'a'"),
    "a route without a list": (lambda: ms.Traffic(routes=ms.Route("a", ["one/m"])), r"use \[route\]"),
    "a route that is text": (lambda: ms.Traffic(routes=["a"]), r"traffic.routes\[0\]: must be a Route"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_an_error(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=message):
        make()


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, True, "2", None], ids=str)
def test_a_weight_is_a_number_above_zero(weight: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"target\.weight: must be a number above 0"):
        ms.Target("one/m", weight=weight)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["colour", "messages", "retry", "session"])
def test_an_option_that_a_target_cannot_have(option: str) -> None:
    with pytest.raises(TypeError, match=f"a target has no option '{option}': it "):
        ms.Target("one/m", **{option: None})  # type: ignore[arg-type]


def test_a_targets_timeouts_are_those_of_an_attempt() -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"target\.timeouts\.total: holds for the whole call"):
        ms.Target("one/m", timeouts=ms.Timeouts(total=10, first_byte=5))
    ms.Target("one/m", timeouts=ms.Timeouts(connect=1, first_byte=5, idle=5, queue=1))


def test_one_model_may_be_there_twice_with_different_options() -> None:
    assert len(ms.Route("fast", ["one/m", ms.Target("one/m", temperature=0)]).targets) == 2


def test_a_route_can_be_copied_and_sent_to_another_process() -> None:
    given = ms.Route("fast", [ms.Target("one/m", weight=2, max_output_tokens=9, extra_headers={"a": "b"}), "two/m"])
    for copied in (copy.deepcopy(given), pickle.loads(pickle.dumps(given))):
        assert copied == given
        assert copied.targets[0].options == {"max_output_tokens": 9, "extra_headers": {"a": "b"}}
