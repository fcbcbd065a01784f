"""Programs that use a door the wrong way: each gets an error at once that shows the right way, and none waits."""

from __future__ import annotations

import asyncio

import pytest
import trio

import manystream as ms
from manystream.engine import aio
from manystream.engine.portal import open_portal
from tests.engine.peers import Line, hello, open_peer

CHAT = ms.OpenAIChat(api_key="key", base_url="http://127.0.0.1:9/v1")


# --- a stream that is read without its block ---


@pytest.mark.trio
async def test_a_stream_that_is_read_without_its_block_shows_the_right_form() -> None:
    async with ms.open_engine([CHAT]) as engine:
        with trio.fail_after(5), pytest.raises(RuntimeError, match=r"async with engine\.stream") as raised:
            async for _ in engine.stream(hello()):
                pass
        assert "async for event in events" in str(raised.value)
        assert engine.statistics().started == 0


def test_an_asyncio_stream_that_is_read_without_its_block_shows_the_right_form() -> None:
    async def main() -> None:
        async with aio.open_engine([CHAT]) as engine, asyncio.timeout(5):
            with pytest.raises(RuntimeError, match=r"async with engine\.stream"):
                async for _ in engine.stream(hello()):
                    pass
            assert engine.statistics().started == 0

    asyncio.run(main())


def test_a_portal_stream_that_is_read_without_its_block_shows_the_right_form() -> None:
    with open_portal([CHAT]) as portal:
        with pytest.raises(RuntimeError, match=r"with portal\.stream") as raised:
            for _ in portal.stream(hello()):
                pass
        assert "async" not in str(raised.value)
        assert portal.statistics().started == 0


@pytest.mark.trio
async def test_the_call_of_a_stream_is_not_there_before_its_block() -> None:
    async with ms.open_engine([CHAT]) as engine:
        with pytest.raises(RuntimeError, match=r"async with engine\.stream"):
            assert engine.stream(hello()).call


@pytest.mark.trio
async def test_a_streams_block_is_entered_once() -> None:
    async with ms.open_engine([CHAT]) as engine:
        stream = engine.stream(hello())
        async with stream:
            with pytest.raises(RuntimeError, match="entered already"):
                async with stream:
                    pass
            assert engine.statistics().started == 1


@pytest.mark.trio
async def test_a_stream_that_is_cancelled_as_it_is_entered_leaves_no_call() -> None:
    async def silent(line: Line) -> None:
        await line.closed_by_peer()

    async with open_peer(silent) as peer, ms.open_engine([peer.chat]) as engine:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with engine.stream(hello()):
                raise AssertionError("entered in spite of the cancellation")
        assert scope.cancelled_caught
        assert engine.statistics().calls == {}
