"""The event loop that runs."""

import asyncio

import trio

from manystream.transport.asyncio_backend import AsyncioBackend
from manystream.transport.running import EventLoop, running_event_loop
from manystream.transport.trio_backend import TrioBackend


# --- the event loop that runs ---
def test_the_event_loop_that_runs_is_known() -> None:
    assert running_event_loop() is None
    found: list[EventLoop] = []

    async def look() -> None:
        for _ in range(2):
            one = running_event_loop()
            assert not one.ended
            found.append(one)

    trio.run(look)
    asyncio.run(look())
    assert [one.ended for one in found] == [True] * 4
    assert found[0] == found[1]
    assert hash(found[0]) == hash(found[1])
    assert found[1] != found[2]
    assert found[2] == found[3]
    assert found[0] != "another thing"
    assert isinstance(found[0].backend(lambda error: None), TrioBackend)
    assert isinstance(found[2].backend(lambda error: None), AsyncioBackend)
