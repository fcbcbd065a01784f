"""Ctrl-C while a thread waits for the engine's thread to start its call."""

from collections.abc import Callable

import pytest
import trio

import manystream as ms
from manystream.engine.frontends.engine_thread import EngineThread
from tests.support.peers import Line, open_peer


@pytest.mark.parametrize("first", ["the start", "the interruption"])
async def test_an_interrupted_start_leaves_no_call(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """The interruption may come before the engine's thread has started the call, or after."""
    run, interrupted = EngineThread.run, False

    def interrupted_run(thread: EngineThread, function: Callable[[], object]) -> object:
        nonlocal interrupted
        if interrupted:
            return run(thread, function)
        interrupted = True
        if first == "the start":
            run(thread, function)
        else:
            thread.soon(lambda: run(thread, function) and None)
        raise KeyboardInterrupt

    async def silent(line: Line) -> None:
        await line.request()
        await trio.sleep_forever()

    completions: list[ms.Completion] = []

    def program(portal: ms.Portal, provider: ms.Provider) -> None:
        monkeypatch.setattr(EngineThread, "run", interrupted_run)
        request = ms.Request(f"{provider.name}/m", [ms.Message.user("hello")])
        with pytest.raises(KeyboardInterrupt):
            portal.start_request(request, completions.append)

    async with open_peer(silent) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="peer")
        async with ms.open_engine([provider]) as engine:
            await trio.to_thread.run_sync(program, engine.from_thread, provider)
            with trio.fail_after(10):
                while not completions:
                    await trio.lowlevel.checkpoint()
            assert [completion.error_category for completion in completions] == ["cancelled"]
            assert engine.statistics().cancelled == 1
            assert not sum(engine.statistics().calls.values())
