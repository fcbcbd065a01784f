"""What hedging is worth: the slowest calls, at a steady rate."""

import random
from contextlib import AsyncExitStack

import trio
from trio.testing import MockClock

import manystream as ms
from tests.support.peers import STREAM_HEAD, Line, chat_stream, chunked, open_peer
from tests.support.targets import Server, ask, provider


async def test_two_percent_of_slow_calls(autojump_clock: MockClock) -> None:
    """2 % of the answers begin twenty times later: hedging with 5 % makes the slowest hundredth five times faster."""

    async def seconds(hedge: ms.Hedge | None) -> tuple[list[float], int]:
        draw = random.Random(7)

        class Rarely(Server):
            async def serve(self, line: Line) -> None:
                while request := await line.request():
                    self.requests.append(request)
                    with trio.move_on_after(2.0 if draw.random() < 0.02 else 0.1 + draw.random() / 50) as scope:
                        await line.closed_by_peer()
                    if not scope.cancelled_caught:
                        return
                    await line.send(STREAM_HEAD)
                    await line.send(chunked(*chat_stream(self.name)))

        servers = [Rarely("one"), Rarely("two")]
        names = ["one/m", "two/m"]
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(open_peer(server.serve)) for server in servers]
            providers = [provider(server, peer) for server, peer in zip(servers, peers, strict=True)]
            traffic = ms.Traffic(routes=[ms.Route("fast", names, balance="weighted", hedge=hedge)])
            engine = await stack.enter_async_context(ms.open_engine(providers, traffic=traffic))
            calls: list[ms.Call] = []
            for _ in range(800):
                calls.append(engine.start_stream(ask()))
                await trio.sleep(0.02)
            completions = [await call.wait() for call in calls]
        assert all(completion.success for completion in completions)
        return sorted(each.timings.finished or 0.0 for each in completions), sum(server.sent for server in servers)

    alone, sent_alone = await seconds(None)
    hedged, sent = await seconds(ms.Hedge("p95", at_most=0.05))
    assert sent_alone == 800
    assert sent <= 800 * 1.05
    assert alone[792] >= 5 * hedged[792]
