"""The four ways to open an engine: in trio, in asyncio, in a thread without a loop, and from a thread beside trio.

Each has the same methods with the same parameters. `EXCEPTIONS` lists the differences with their reasons.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

import pytest
import trio

import manystream as ms
from manystream import aio, portal
from manystream.engine import EventStream
from manystream.engine.call.handle import Call
from manystream.engine.frontends import engine as core

EXCEPTIONS: dict[type, dict[str, str]] = {
    aio.Engine: {"close": "leaving the block does it", "from_thread": "loop.call_soon_threadsafe is asyncio's way"},
    portal.Portal: {"close": "the block of its engine does it", "from_thread": "it is for every thread already"},
}
"""Class → name of a missing method → why it is missing."""

OF_THE_NATIVE_ENGINE = {
    aio.Engine: core.Engine, portal.Portal: core.Engine, aio.EventStream: EventStream, portal.PortalStream: EventStream,
}  # fmt: skip


CALL = (
    *("cancel", "completion", "number", "pause", "request", "resume", "state", "tags", "target", "wait"),
    "waiting_for",
)
"""The members of a call that programs use. The native call has more, for the engine."""


def offers(owner: type) -> set[str]:
    """Return the names of the public methods and properties."""
    return {name for name in dir(owner) if not name.startswith("_")}


def parameters(function: Callable[..., object]) -> list[tuple[str, object]]:
    return [(name, parameter.default) for name, parameter in inspect.signature(function).parameters.items()]


@pytest.mark.parametrize("door", OF_THE_NATIVE_ENGINE, ids=lambda door: f"{door.__module__}.{door.__name__}")
def test_every_door_has_the_engines_methods(door: type) -> None:
    native = offers(OF_THE_NATIVE_ENGINE[door])
    missing = native - offers(door)
    assert missing == set(EXCEPTIONS.get(door, {})), "missing without a reason, or listed but not missing"


@pytest.mark.parametrize("door", [aio.Engine, portal.Portal], ids=lambda door: door.__name__)
def test_methods_of_one_name_take_the_same_parameters(door: type) -> None:
    for name in offers(core.Engine) & offers(door):
        native = getattr(core.Engine, name)
        if inspect.isroutine(native):
            assert parameters(getattr(door, name)) == parameters(native), name


@pytest.mark.parametrize("open_door", [aio.open_engine, portal.open_portal], ids=lambda door: door.__name__)
def test_every_door_is_opened_with_the_same_options(open_door: Callable[..., object]) -> None:
    assert parameters(open_door) == parameters(core.open_engine)


@pytest.mark.parametrize("call", [Call, aio.Call, portal.PortalCall], ids=lambda call: f"{call.__module__}")
def test_the_calls_of_every_door_have_the_same_methods(call: type) -> None:
    assert [name for name in CALL if not hasattr(call, name)] == []


async def test_from_thread_is_a_portal() -> None:
    async with core.open_engine([ms.OpenAIChat("key", "http://127.0.0.1:9/v1")]) as engine:
        assert type(engine.from_thread) is portal.Portal


# --- traffic control, through each door ---

ONE_A_DAY = ms.Traffic(rates={"one": ms.RateLimit(requests_per_day=2, requests_per_minute=1)})
ONE = [ms.OpenAIChat("key", "http://127.0.0.1:9/v1", name="one")]
TAGS = {"agent": "planner", "step": 3}
ASKED = ms.Request(
    "one/m", [ms.Message.user("a")], priority="batch", tenant="t", timeouts=ms.Timeouts(queue=600), tags=TAGS
)
WAITED_FOR = "declared requests_per_minute of one, 0 ahead, about "


async def hanging_dial(host: str, port: int) -> trio.SocketStream:
    await trio.sleep_forever()
    raise AssertionError("nobody cancels a sleep with an end")


def check(sent: ms.Call | aio.Call | portal.PortalCall, waiting: ms.Call | aio.Call | portal.PortalCall) -> None:
    """The first call was let go, the second waits."""
    assert (sent.target, sent.waiting_for) == ("one/m", "")
    assert waiting.waiting_for.startswith(WAITED_FOR)
    assert waiting.state is ms.CallState.QUEUED
    assert [(call.number, call.tags) for call in (sent, waiting)] == [(1, TAGS), (2, TAGS)]
    assert sent.request is waiting.request is ASKED


async def test_traffic_control_on_trio() -> None:
    async with core.open_engine(ONE, traffic=ONE_A_DAY, dial=hanging_dial) as engine:
        check(engine.start_stream(ASKED), engine.start_request(ASKED))
        assert engine.statistics().traffic.limiters["one/m"].waiting == 1


def test_traffic_control_on_asyncio() -> None:
    async def main() -> None:
        async with aio.open_engine(ONE, traffic=ONE_A_DAY, dial=hanging_dial) as engine:
            waiting = engine.start_stream(ASKED), engine.start_request(ASKED)
            check(*waiting)
            assert engine.statistics().traffic.limiters["one/m"].waiting == 1
        completion = await waiting[1].wait()
        assert (completion.error_category, completion.tags) == (ms.ErrorCategory.CANCELLED, TAGS)
        assert waiting[1].waiting_for == ""

    asyncio.run(main())


def test_traffic_control_for_threads() -> None:
    with portal.open_portal(ONE, traffic=ONE_A_DAY, dial=hanging_dial) as threads:
        waiting = threads.start_stream(ASKED), threads.start_request(ASKED)
        check(*waiting)
        assert threads.statistics().traffic.limiters["one/m"].waiting == 1
    completion = waiting[1].wait(10)
    assert (completion.error_category, completion.tags) == (ms.ErrorCategory.CANCELLED, TAGS)
    assert waiting[1].waiting_for == ""
