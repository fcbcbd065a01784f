"""The learned limit for running calls, with servers that queue calls, return 503 for a full queue, or have slots."""

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from tests.support.peers import STREAM_HEAD, Line, answer, chat_stream, chunked, error_body, open_peer


class Slots:
    """A server that runs a fixed number of calls at a time, and refuses further ones."""

    def __init__(self, slots: int, status: str) -> None:
        self.slots, self.status = slots, status
        self.running = self.most = self.refused = 0

    async def serve(self, line: Line) -> None:
        while await line.request():
            if self.running >= self.slots:
                self.refused += 1
                await line.send(answer(error_body("busy"), status=self.status))
                continue
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                first, *rest = chat_stream("fine", "ly")
                await trio.sleep(0.2)
                await line.send(STREAM_HEAD + chunked(first, end=False).decode())
                await trio.sleep(1)
                await line.send(chunked(*rest))
            finally:
                self.running -= 1


@pytest.mark.parametrize(("profile", "status"), [("vllm", "503 Service Unavailable"), ("deepseek", "429 Slots")])
async def test_refusals_teach_how_many_may_run(autojump_clock: MockClock, profile: str, status: str) -> None:
    server = Slots(5, status)
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile=profile)
        no_retry = ms.Retry(max_attempts=1)
        async with ms.open_engine([provider], traffic=ms.Traffic(), retry=no_retry) as engine:
            started = trio.current_time()
            calls = [engine.start_stream(ms.Request("here/m", [ms.Message.user("a")])) for _ in range(100)]
            completions = [await call.wait() for call in calls]
            seconds = trio.current_time() - started
            (scope,) = engine.statistics().traffic.limiters.values()
    assert all(completion.success for completion in completions)
    assert server.most == 5
    assert server.refused < 40
    assert seconds < 1.2 * 100 / 5 * 2
    assert scope.concurrent is not None
    assert (scope.running, scope.waiting) == (0, 0)
    assert any(completion.timings.waited.get("slot", 0) > 1 for completion in completions)


async def test_models_of_one_server_share_its_slots(autojump_clock: MockClock) -> None:
    server = Slots(5, "503 Service Unavailable")
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile="vllm")
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            calls = [
                engine.start_stream(ms.Request(f"here/{model}", [ms.Message.user("a")]))
                for _ in range(10)
                for model in ("m", "m-lora")
            ]
            assert all([(await call.wait()).success for call in calls])
            assert list(engine.statistics().traffic.limiters) == ["here/*"]
