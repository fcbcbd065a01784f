"""The clients' packages and the event loops on which the client transports are tested, and fixtures of two folders."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from types import ModuleType

import pytest
import trio

from tests.manystream.whatif.day import day_file as day_file
from tests.support.bench_runs import bench as bench
from tests.support.bench_runs import runs as runs
from tests.support.price_list import mill as mill

Main = Callable[[], Awaitable[None]]


@pytest.fixture(params=["httpx2", "httpx"])
def package(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


@pytest.fixture
def adapter(package: ModuleType) -> ModuleType:
    return importlib.import_module(f"manystream.{package.__name__}")


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    """Return a function that runs an async function on an event loop of its own."""

    async def limited(main: Main) -> None:
        await asyncio.wait_for(main(), 60)

    async def limited_on_trio(main: Main) -> None:
        with trio.fail_after(60):
            await main()

    def run(main: Main) -> None:
        if request.param == "trio":
            trio.run(limited_on_trio, main)
            return
        factory = pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(limited(main))

    return run
