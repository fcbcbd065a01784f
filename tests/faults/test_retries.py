"""Whether a call is retried, by category, delivered events and Retry-After hint; and the traffic during an outage.

These tests run the engine against servers that fail in each way. The decision itself has a table in the engine's tests.
"""

import time
from email.utils import formatdate

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine import EngineLimits
from manystream.transport.pool import PoolLimits
from tests.faults.exchange import End, Wire
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_chunk,
    chat_stream,
    error_body,
    hello,
    open_peer,
    replies,
    stream_of,
)

GOOD = stream_of(*chat_stream("fine"))
BEGUN_TEXT = chat_chunk("one")
BEGUN = stream_of(BEGUN_TEXT, end=False)
TWO = ms.Retry(max_attempts=2, base=1, jitter=0)


def status(code: int, kind: str = "", headers: str = "") -> Wire:
    return Wire(answer(error_body("no", kind or "error", kind or None), status=f"{code} No", headers=headers))


def in_band(kind: str, *before: str) -> Wire:
    frame = f"data: {error_body('no', kind, kind)}\n\n"
    return Wire(stream_of(*before, frame))


MATRIX: list[tuple[str, Wire, bool]] = [
    ("400", status(400), False),
    ("401", status(401), False),
    ("402", status(402), False),
    ("403", status(403), False),
    ("404", status(404), False),
    ("408", status(408), True),
    ("413", status(413), False),
    ("422", status(422), False),
    ("429", status(429), True),
    ("429, quota spent", status(429, "insufficient_quota"), False),
    ("429, no money left", status(429, "billing_hard_limit_reached"), False),
    ("498", status(498), True),
    ("500", status(500), True),
    ("501", status(501), False),
    ("502", status(502), True),
    ("503", status(503), True),
    ("504", status(504), True),
    ("520", status(520), True),
    ("529", status(529), True),
    ("530", status(530), True),
    ("in-band overload, no event", in_band("server_error"), True),
    ("in-band overload, after a role", in_band("server_error", chat_chunk()), True),
    ("in-band overload, after text", in_band("server_error", chat_chunk("one")), False),
    ("in-band quota, no event", in_band("insufficient_quota"), False),
    ("closed without a byte", Wire(b"", End.FIN), True),
    ("reset without a byte", Wire(b"", End.RESET), True),
    ("cut in the head", Wire(b"HTTP/1.1 200", End.FIN), True),
    ("cut before any event", Wire(STREAM_HEAD.encode(), End.FIN), True),
    ("reset before any event", Wire(STREAM_HEAD.encode(), End.RESET), True),
    ("cut after text", Wire(BEGUN, End.FIN), False),
    ("reset after text", Wire(BEGUN, End.RESET), False),
    ("silent before the head", Wire(b""), True),
    ("silent before any event", Wire(STREAM_HEAD.encode()), True),
    ("silent after text", Wire(BEGUN), False),
    ("no HTTP", Wire(b"SSH-2.0\r\n"), False),
    ("a malformed event", Wire(stream_of("data: {\n\n")), False),
]


@pytest.mark.parametrize(("wire", "retried"), [row[1:] for row in MATRIX], ids=[row[0] for row in MATRIX])
async def test_each_failure_is_retried_or_not(wire: Wire, retried: bool, autojump_clock: MockClock) -> None:
    requests = 0

    async def script(line: Line) -> None:
        nonlocal requests
        while await line.request():
            requests += 1
            await line.send(GOOD if requests > 1 else wire.data)
            if requests == 1 and wire.end is End.RESET:
                line.reset()
                return
            if requests == 1 and wire.end is End.FIN:
                return

    recorder = Recorder()
    clocks = ms.Timeouts(first_byte=5, idle=5)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=TWO, timeouts=clocks) as engine:
        completion = await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
        assert engine.statistics().retried == retried
    assert (completion.success, completion.attempts, requests) == (retried, 1 + retried, 1 + retried)
    assert recorder.types.count("START") <= 1  # START is delivered at most once
    assert recorder.text == ("fine" if retried else recorder.text)


CATEGORIES: dict[str, tuple[Wire, Wire | None, ms.ErrorCategory, bool]] = {
    "rate limit": (status(429), in_band("rate_limit_exceeded", BEGUN_TEXT), ms.ErrorCategory.RATE_LIMIT, True),
    "quota": (
        status(429, "insufficient_quota"), in_band("insufficient_quota", BEGUN_TEXT), ms.ErrorCategory.RATE_LIMIT, False
    ),
    "money": (status(402), None, ms.ErrorCategory.UNKNOWN, False),
    "server": (status(503), in_band("server_error", BEGUN_TEXT), ms.ErrorCategory.SERVER, True),
    "timeout": (status(504), Wire(BEGUN), ms.ErrorCategory.TIMEOUT, True),
    "network": (Wire(STREAM_HEAD.encode(), End.RESET), Wire(BEGUN, End.RESET), ms.ErrorCategory.NETWORK, True),
    "key": (status(401), in_band("authentication_error", BEGUN_TEXT), ms.ErrorCategory.AUTH, False),
    "argument": (status(400), in_band("invalid_request_error", BEGUN_TEXT), ms.ErrorCategory.INVALID_ARG, False),
    "not found": (status(404), None, ms.ErrorCategory.NOT_FOUND, False),
}  # fmt: skip
"""Category → a failure before any event, a failure after some text, and whether the first is retried."""

HINTS: dict[str, tuple[str, float | None]] = {
    "none": ("", 1.0),
    "present": ("Retry-After: 3\r\n", 3.0),
    "in milliseconds": ("Retry-After-Ms: 2500\r\n", 2.5),
    "at once": ("Retry-After: 0\r\n", 0.1),
    "absurd": ("Retry-After: 86400\r\n", None),
    "beyond numbers": (f"Retry-After: {'9' * 400}\r\n", 1.0),
    "a date to come": ("Retry-After: {soon}\r\n", 10.0),
    "a date gone by": ("Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n", 0.1),
    "negative": ("Retry-After: -5\r\n", 1.0),
    "NaN": ("Retry-After: nan\r\n", 1.0),
    "infinite": ("Retry-After: inf\r\n", 1.0),
    "words": ("Retry-After: tomorrow\r\n", 1.0),
    "forbidden": ("X-Should-Retry: false\r\n", None),
}
"""Hint → the header, and the seconds before the second attempt if there is one; None: no second attempt."""


def with_headers(wire: Wire, headers: str) -> Wire:
    """Return the wire with additional header lines, if it has a head."""
    soon = formatdate(time.time() + 10, usegmt=True)
    first, line_end, rest = wire.data.partition(b"\r\n")
    return Wire(first + line_end + headers.format(soon=soon).encode() + rest, wire.end)


PLACES = [
    (category, delivered) for category, row in CATEGORIES.items() for delivered in (False, True)
    if row[delivered] is not None
]  # fmt: skip


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize(("category", "delivered"), PLACES, ids=[f"{name}-{delivered}" for name, delivered in PLACES])
async def test_retries_by_category_hint(category: str, delivered: bool, hint: str, autojump_clock: MockClock) -> None:
    before, after, expected, curable = CATEGORIES[category]
    headers, wait = HINTS[hint]
    wire = with_headers(after if delivered and after is not None else before, headers)
    times: list[float] = []

    async def script(line: Line) -> None:
        while await line.request():
            times.append(trio.current_time())
            await line.send(GOOD if len(times) > 1 else wire.data)
            if len(times) == 1 and wire.end is End.RESET:
                line.reset()
                return

    recorder = Recorder()
    clocks = ms.Timeouts(first_byte=5, idle=5)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=TWO, timeouts=clocks) as engine:
        completion = await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
    if category == "network" and headers:
        wait = 1.0  # the response broke after its head, so the head's hint does not count
    if delivered or not curable or wait is None:
        assert (completion.error_category, completion.attempts, len(times)) == (expected, 1, 1)
        assert recorder.text == ("one" if delivered else "")
        return
    assert (completion.success, completion.attempts, len(times)) == (True, 2, 2)
    assert recorder.text == "fine"
    waited = times[1] - times[0]
    if "date" in hint:
        assert wait - 2 <= waited <= wait + 0.1
    else:
        assert waited == pytest.approx(wait, abs=0.05)


async def test_the_total_timeout_covers_all_attempts(autojump_clock: MockClock) -> None:
    steady = ms.Retry(jitter=0)
    async with (
        open_peer(lambda line: line.closed_by_peer()) as peer,
        ms.open_engine([peer.chat], retry=steady) as engine,
    ):
        started = trio.current_time()
        clocks = ms.Timeouts(first_byte=8, total=20)
        completion = await engine.start_stream(hello(timeouts=clocks)).wait()
    assert trio.current_time() - started == pytest.approx(20, rel=0.01)
    assert (completion.error.provider_code, completion.attempts) == ("total", 3)


@pytest.mark.parametrize("headers", ["", "Retry-After: 0\r\n", "Retry-After-Ms: 1\r\n"])
async def test_an_outage_does_not_multiply_the_traffic(headers: str, autojump_clock: MockClock) -> None:
    """A thousand calls may make four attempts each. The reserve of retries allows a tenth of additional requests, not
    three times as many, even if the failing server's hint is to retry at once.
    """
    script = replies(answer(error_body("down"), status="503 Down", headers=headers))
    limits = EngineLimits(pool=PoolLimits(max_per_origin=50))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=limits) as engine:
        calls = [engine.start_stream(hello()) for _ in range(1000)]
        completions = [await call.wait() for call in calls]
    assert {completion.error_category for completion in completions} == {ms.ErrorCategory.SERVER}
    assert 1000 <= len(peer.requests) <= 1100
    assert sum(completion.attempts for completion in completions) == len(peer.requests)


async def test_after_an_outage_calls_are_retried(autojump_clock: MockClock) -> None:
    down = True
    failed = False

    async def script(line: Line) -> None:
        nonlocal failed
        while await line.request():
            failed = not failed
            await line.send(answer("{}", status="503 Down") if down or failed else GOOD)

    limits = EngineLimits(pool=PoolLimits(max_per_origin=50))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=limits) as engine:
        for call in [engine.start_stream(hello()) for _ in range(500)]:
            await call.wait()
        assert (await engine.start_stream(hello()).wait()).attempts == 1
        down = False
        completions = [await engine.start_stream(hello()).wait() for _ in range(30)]
    assert any(completion.success and completion.attempts == 2 for completion in completions)


async def test_a_reserve_of_retries_grows_by_a_fifth_of_each_call() -> None:
    down = True

    async def script(line: Line) -> None:
        while await line.request():
            await line.send(answer("{}", status="503 Down") if down else GOOD)

    retry = ms.Retry(max_attempts=20, base=0, jitter=0)
    async with (
        open_peer(script) as peer,
        ms.open_engine([peer.chat], retry=retry, limits=EngineLimits(retry_reserve=5)) as engine,
    ):

        async def attempts(calls: int) -> list[int]:
            return [(await engine.start_stream(hello()).wait()).attempts for _ in range(calls)]

        assert await attempts(6) == [6, 1, 1, 1, 1, 2]
        down = False
        assert await attempts(50) == [1] * 50
        down = True
        assert await attempts(2) == [6, 1]
