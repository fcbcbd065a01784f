"""The four doors of the engine: trio, asyncio, threads without a loop, and threads beside trio.

Each has the same methods with the same parameters. A table lists the exceptions with their reasons.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import manystream as ms
from manystream import aio, portal
from manystream.engine import EventStream, core
from manystream.engine.handle import Call

EXCEPTIONS: dict[type, dict[str, str]] = {
    aio.Engine: {"close": "leaving the block does it", "from_thread": "loop.call_soon_threadsafe is asyncio's way"},
    portal.Portal: {"close": "the block of its engine does it", "from_thread": "it is for every thread already"},
}
"""Class → name of a missing method → why it is missing."""

OF_THE_NATIVE_ENGINE = {
    aio.Engine: core.Engine,
    portal.Portal: core.Engine,
    aio.EventStream: EventStream,
    portal.PortalStream: EventStream,
}


CALL = ("cancel", "completion", "pause", "resume", "state", "wait")
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


@pytest.mark.trio
async def test_from_thread_is_a_portal() -> None:
    async with core.open_engine([ms.OpenAIChat("key", "http://127.0.0.1:9/v1")]) as engine:
        assert type(engine.from_thread) is portal.Portal
