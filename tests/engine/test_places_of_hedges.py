"""The places that the two attempts of a hedged call take under a limit, and when a waiting call gets them."""

import trio
from trio.testing import MockClock

import manystream as ms
from tests.support.targets import Server, ask, open_targets, path

HEDGED = ms.Route("fast", ["one/m", "two/m"], hedge=ms.Hedge(1.0, at_most=1.0))


def one_at_a_time(name: str) -> dict[str, ms.RateLimit]:
    return {name: ms.RateLimit(concurrent=1)}


async def test_an_attempt_that_is_too_late_gives_its_place_back(autojump_clock: MockClock) -> None:
    """The second attempt takes the only place of `two` from 1 s on. The first one answers after 3 s."""
    one, two = Server("one", seconds=3.0), Server("two", seconds=60.0)
    async with open_targets(one, two, route=HEDGED, rates=one_at_a_time("two/m")) as engine:
        began = trio.current_time()
        hedged = engine.start_stream(ask())
        await trio.sleep(2)
        waiting = engine.start_stream(ask("two/m"))
        assert path(await hedged.wait()) == [("two/m", "cancelled"), ("one/m", "ok")]
        await trio.sleep(0.5)
        assert [round(at - began, 3) for at in two.at] == [1.0, 3.0]
        waiting.cancel()


async def test_a_late_first_attempt_gives_its_place_back(autojump_clock: MockClock) -> None:
    """The first attempt takes the only place of `one`. The second one answers after 1.5 s."""
    one, two = Server("one", seconds=60.0), Server("two", seconds=0.5)
    async with open_targets(one, two, route=HEDGED, rates=one_at_a_time("one/m")) as engine:
        began = trio.current_time()
        hedged = engine.start_stream(ask())
        await trio.sleep(1)
        waiting = engine.start_stream(ask("one/m"))
        assert path(await hedged.wait()) == [("one/m", "cancelled"), ("two/m", "ok")]
        await trio.sleep(0.5)
        assert [round(at - began, 3) for at in one.at] == [0.0, 1.5]
        waiting.cancel()
