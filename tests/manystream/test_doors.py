"""One engine, four doors: trio, asyncio, threads without a loop, and threads beside trio. What one offers, all do,
under the same names with the same parameters; a table holds the exceptions, each with its reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from manystream import aio
from manystream.engine import EventStream, core, portal, threads
from manystream.engine.call import Call

INSIDE = "what runs inside the engine needs it; no program does"

FOR_THE_INSIDE = dict.fromkeys(
    (
        *("call_ended", "callback_raised", "check_open", "check_process", "count_resent", "count_retry", "fail"),
        *("recorder", "running", "soon", "stop_starting", "totals"),
    ),
    INSIDE,
)
EXCEPTIONS: dict[type, dict[str, str]] = {
    aio.Engine: {"close": "leaving the block does it"},
    portal.Portal: {"close": "leaving the block does it"},
    threads.FromThread: {
        "close": "the trio side, which opened the engine, closes it",
        "record": "the trio side can, for all of the engine's calls",
        "stream": "an iterator for a thread, with backpressure, is what the portal has",
    },
}
"""Where something is missing → what → why."""

OF_THE_NATIVE_ENGINE = {
    aio.Engine: core.Engine,
    portal.Portal: core.Engine,
    threads.FromThread: core.Engine,
    aio.EventStream: EventStream,
    portal.PortalStream: EventStream,
}


CALL = ("cancel", "completion", "pause", "resume", "state", "wait")
"""What programs do with a call; the rest of the native one is for the engine."""


def offers(owner: type) -> set[str]:
    """Public methods and properties."""
    return {name for name in dir(owner) if not name.startswith("_")}


def parameters(function: Callable[..., object]) -> list[tuple[str, object]]:
    return [(name, parameter.default) for name, parameter in inspect.signature(function).parameters.items()]


@pytest.mark.parametrize("door", OF_THE_NATIVE_ENGINE, ids=lambda door: f"{door.__module__}.{door.__name__}")
def test_every_door_offers_what_the_engine_offers(door: type) -> None:
    native = offers(OF_THE_NATIVE_ENGINE[door])
    missing = native - offers(door) - set(FOR_THE_INSIDE)
    assert missing == set(EXCEPTIONS.get(door, {})), "missing without a reason, or excepted and not missing"


@pytest.mark.parametrize("door", [aio.Engine, portal.Portal, threads.FromThread], ids=lambda door: door.__name__)
def test_methods_of_one_name_take_the_same_parameters(door: type) -> None:
    for name in offers(core.Engine) & offers(door):
        native = getattr(core.Engine, name)
        if inspect.isroutine(native) and name not in FOR_THE_INSIDE:
            assert parameters(getattr(door, name)) == parameters(native), name


@pytest.mark.parametrize("open_door", [aio.open_engine, portal.open_portal], ids=lambda door: door.__name__)
def test_every_door_is_opened_with_the_same_options(open_door: Callable[..., object]) -> None:
    assert parameters(open_door) == parameters(core.open_engine)


@pytest.mark.parametrize("call", [Call, aio.Call, portal.PortalCall], ids=lambda call: f"{call.__module__}")
def test_every_door_gives_calls_that_can_do_the_same(call: type) -> None:
    assert [name for name in CALL if not hasattr(call, name)] == []


def test_what_is_for_the_inside_is_there() -> None:
    assert set(FOR_THE_INSIDE) <= offers(core.Engine)
