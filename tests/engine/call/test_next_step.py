"""What a call does after a failed attempt: as a table, and with peers: which failures, how often, after which delay."""

from __future__ import annotations

import math
import socket

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.call.next_step import (
    Complete,
    Fail,
    Failure,
    Limits,
    NextStep,
    Outlook,
    Pause,
    ReadOn,
    Send,
    Wait,
    next_step,
    retry_delay,
)
from manystream.engine.request.answers import Progress, Verdict
from manystream.engine.request.durable import IN_PROGRESS
from tests.support.peers import (
    STREAM_HEAD,
    ClosedSocket,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    error_body,
    hello,
    open_peer,
    replies,
    stream_of,
)

BUSY = ms.ProviderError("busy", category=ms.ErrorCategory.SERVER)


CUT = ms.ProviderError("cut", category=ms.ErrorCategory.NETWORK)


WRONG = ms.ProviderError("wrong", category=ms.ErrorCategory.INVALID_ARG)


UNFINISHED = ms.ProviderError("it is made", category=ms.ErrorCategory.SERVER, provider_code=IN_PROGRESS)


HINTED = ms.ProviderError("busy", category=ms.ErrorCategory.SERVER, retry_after_ms=3_000)


TOO_LATE = ms.ProviderError("busy", category=ms.ErrorCategory.SERVER, retry_after_ms=200_000)


AGAIN, REST, READ, WHOLE, LOST = Verdict


NONE, SLOWLY, WAIT = Limits


CASES: dict[str, tuple[Progress, Outlook, dict[str, object], NextStep]] = {
    "a stale connection": (Progress(AGAIN, at_once=True), Outlook(NONE, CUT), {"unread": True}, Send(fresh=True)),
    "a newer key": (Progress(AGAIN, at_once=True), Outlook(NONE, WRONG), {}, Send(fresh=False)),
    "the last attempt was stale": (Progress(AGAIN, at_once=True), Outlook(NONE, CUT), {"attempts": 4}, Fail(CUT)),
    "a limit": (Progress(AGAIN), Outlook(WAIT, BUSY, is_counted=False), {}, Wait()),
    "a failure": (Progress(AGAIN), Outlook(NONE, BUSY), {}, Pause(1.0, is_spent=True)),
    "the third one": (Progress(AGAIN), Outlook(NONE, BUSY), {"attempts": 3}, Pause(4.0, is_spent=True)),
    "the last one": (Progress(AGAIN), Outlook(NONE, BUSY), {"attempts": 4}, Fail(BUSY)),
    "a failure with a hint": (Progress(AGAIN), Outlook(NONE, HINTED), {}, Pause(3.0)),
    "a hint that is too long": (Progress(AGAIN), Outlook(NONE, TOO_LATE), {}, Fail(TOO_LATE)),
    "a failure in an outage": (
        Progress(AGAIN), Outlook(NONE, BUSY), {"reserve": 0.5},
        Fail(BUSY, " (not repeated: all 8 retries of the engine's limits.retry_reserve are used up)"),
    ),
    "a hint in an outage": (Progress(AGAIN), Outlook(NONE, HINTED), {"reserve": 0.5}, Pause(3.0)),
    "a server that may be away": (
        Progress(AGAIN), Outlook(SLOWLY, CUT, longest_pause=1.0), {"attempts": 3, "reserve": 0.0}, Pause(1.0),
    ),
    "a wrong request": (Progress(AGAIN), Outlook(NONE, WRONG), {}, Fail(WRONG)),
    "a part was delivered": (Progress(LOST), Outlook(NONE, BUSY), {}, Fail(BUSY)),
    "the rest, and a limit": (Progress(REST, in_vain=1), Outlook(WAIT, BUSY, is_counted=False), {}, Wait()),
    "the rest, after a part": (Progress(REST, at_once=True), Outlook(NONE, BUSY), {}, Pause(0.0)),
    "the rest, after no part": (Progress(REST, in_vain=2), Outlook(NONE, BUSY), {}, Pause(2.0)),
    "the rest, in vain": (Progress(REST, in_vain=4), Outlook(NONE, BUSY), {}, Fail(BUSY)),
    "the rest, uncounted": (Progress(REST, in_vain=4), Outlook(SLOWLY, CUT, is_counted=False), {}, Pause(4.0)),
    "all ids are there": (Progress(WHOLE), Outlook(NONE, CUT), {}, Complete()),
    "a stale read": (Progress(READ, at_once=True), Outlook(NONE, CUT), {"unread": True}, ReadOn(fresh=True)),
    "a read that was cut": (
        Progress(READ, in_vain=2, reached_at=90.0), Outlook(NONE, CUT), {}, ReadOn(after=2.0, is_cut=True),
    ),
    "a read of what is made": (
        Progress(READ, reached_at=90.0), Outlook(NONE, UNFINISHED), {}, ReadOn(after=1.0, is_asked=True),
    ),
    "a read that may last no longer": (
        Progress(READ, in_vain=3, reached_at=71.0), Outlook(NONE, CUT), {}, ReadOn(after=1.0, is_cut=True),
    ),
    "a read with a hint": (
        Progress(READ, in_vain=3, reached_at=0.0), Outlook(NONE, HINTED), {},
        ReadOn(after=3.0, is_asked=True, is_cut=True),
    ),
    "a server out of reach": (Progress(READ, in_vain=3, reached_at=60.0), Outlook(NONE, BUSY), {}, Fail(BUSY)),
}  # fmt: skip


def failed(progress: Progress, outlook: Outlook, **changed: object) -> NextStep:
    usual = Failure(outlook, progress, False, 1, ms.Retry(jitter=0), 30.0, 8.0, 8.0, 100.0, lambda: 0.5)
    return next_step(usual._replace(**changed))


@pytest.mark.parametrize("case", CASES)
def test_a_failed_attempt_has_one_next_step(case: str) -> None:
    progress, outlook, changed, expected = CASES[case]
    assert failed(progress, outlook, **changed) == expected


def test_a_server_that_is_never_reached_is_a_timeout() -> None:
    step = failed(Progress(READ, in_vain=3, reached_at=60.0), Outlook(NONE, CUT))
    assert isinstance(step, Fail)
    assert (step.error.category, step.error.provider_code) == ("timeout", "idle")


@pytest.mark.parametrize("limits", Limits)
@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("error", [BUSY, CUT, WRONG, UNFINISHED, HINTED, TOO_LATE])
def test_no_next_step_repeats_for_ever(verdict: Verdict, limits: Limits, error: ms.ProviderError) -> None:
    """Whatever happens, a call whose attempts are used up waits for limits or its kept answer, completes or fails."""
    progress = Progress(verdict, in_vain=4, reached_at=-math.inf)
    step = failed(progress, Outlook(limits, error), attempts=4)
    assert isinstance(step, Fail | Complete | ReadOn | (Wait if limits is WAIT else Fail))


STEADY = ms.Retry(jitter=0)


def failing(times: int, status: str = "503 Busy", headers: str = "", body: str | None = None) -> object:
    """Return a script that fails the first requests, over all connections, and then responds correctly."""
    seen = [0]

    async def script(line: Line) -> None:
        while await line.request():
            seen[0] += 1
            if seen[0] <= times:
                await line.send(answer(error_body("busy") if body is None else body, status=status, headers=headers))
            else:
                await line.send(stream_of(*chat_stream("fine")))

    script.seen = seen  # type: ignore[attr-defined]
    return script


async def test_the_back_off_doubles(autojump_clock: MockClock) -> None:
    script = failing(3)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=STEADY) as engine:  # type: ignore[arg-type]
        started = trio.current_time()
        recorder = Recorder()
        completion = await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
    assert completion.success
    assert completion.attempts == 4
    assert trio.current_time() - started == pytest.approx(1 + 2 + 4, abs=0.1)
    assert recorder.types == ["START", "TEXT_DELTA", "DONE"]
    assert len(peer.lines) == 1  # error responses leave their connection usable


async def test_after_the_last_attempt_the_error_is_reported(autojump_clock: MockClock) -> None:
    script = failing(100)
    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:  # type: ignore[arg-type]
        await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
    completion = recorder.completion
    assert (completion.attempts, completion.http_status) == (4, 503)
    assert completion.error_category is ms.ErrorCategory.SERVER
    assert recorder.types == ["ERROR"]


async def test_a_429_with_a_hint_is_retried_after_it(autojump_clock: MockClock) -> None:
    script = failing(1, "429 Too Many Requests", "Retry-After: 7\r\n")
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=STEADY) as engine:  # type: ignore[arg-type]
        started = trio.current_time()
        assert (await engine.start_stream(hello()).wait()).success
        assert trio.current_time() - started == pytest.approx(7, abs=0.1)


async def test_a_429_that_persists_is_reported_with_its_hint(autojump_clock: MockClock) -> None:
    script = failing(100, "429 Too Many Requests", "Retry-After-Ms: 1500\r\n")
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:  # type: ignore[arg-type]
        completion = await engine.start_stream(hello()).wait()
    assert completion.error_category is ms.ErrorCategory.RATE_LIMIT
    assert completion.retry_after_ms == 1500


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "404 None", "422 Bad"])
async def test_a_permanent_failure_is_reported_at_once(status: str) -> None:
    script = failing(1, status)
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:  # type: ignore[arg-type]
        assert (await engine.start_stream(hello()).wait()).attempts == 1


async def test_an_unusable_proxy_variable_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "ftp://proxy.example:21")
    async with ms.open_engine([ms.OpenAIChat("k", "https://models.example/v1")]) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert (completion.attempts, completion.error.retryable) == (1, False)
    assert completion.error.message == "HTTPS_PROXY: scheme 'ftp' is not supported; only http:// proxies are"


async def test_an_overload_in_a_200_is_retried_before_any_event(autojump_clock: MockClock) -> None:
    seen = [0]

    async def script(line: Line) -> None:
        while await line.request():
            seen[0] += 1
            if seen[0] == 1:
                await line.send(stream_of(chat_chunk(), f"data: {error_body('overloaded')}\n\n"))
            else:
                await line.send(stream_of(*chat_stream("fine")))

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion = await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
    assert completion.success
    assert completion.attempts == 2
    assert recorder.types == ["START", "TEXT_DELTA", "DONE"]


async def test_no_call_is_retried_after_an_event() -> None:
    seen = [0]

    async def script(line: Line) -> None:
        await line.request()
        seen[0] += 1
        await line.send(stream_of(chat_chunk("one"), end=False))

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion = await engine.start_stream(hello(), lambda event: None).wait()
    assert seen == [1]
    assert completion.attempts == 1


@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_a_request_of_which_no_byte_was_written_is_sent_at_once(max_attempts: int) -> None:

    async with open_peer(replies(answer(chat_answer("fine")))) as peer:

        async def dial(host: str, port: int) -> socket.socket:
            stream = await trio.open_tcp_stream(host, port)
            return ClosedSocket(fileno=stream.socket.detach())

        retry = ms.Retry(max_attempts=max_attempts, base=1000)
        async with ms.open_engine([peer.chat], retry=retry, dial=dial) as engine:
            await engine.request(hello())
            completion = await engine.start_request(hello()).wait()
            statistics = engine.statistics()
    again = max_attempts - 1
    assert (completion.success, completion.attempts, completion.resent) == (again == 1, 1 + again, 0)
    assert (statistics.resent, statistics.retried, len(peer.lines)) == (0, 0, 1 + again)


ENDS_UNANSWERED: dict[str, tuple[bytes, float, bool]] = {
    "closed at once": (b"", 0, True),
    "closed late": (b"", 2, True),
    "silent": (b"", 1000, True),
    "cut head": (b"HTTP/1.1 2", 0, True),
    "cut body": (STREAM_HEAD.encode(), 0, True),
    "busy": (answer(error_body("busy"), status="503 Service Unavailable"), 0, False),
    "overloaded in a stream": (stream_of(f"data: {error_body('overloaded')}\n\n"), 0, False),
    "a timeout of a gateway": (answer(error_body("slow"), status="504 Gateway Timeout"), 0, False),
}
"""What a server does with a request that it has read → bytes that it sends, seconds until it closes, whether the next
attempt counts as sent again."""


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("max_attempts", [1, 3])
@pytest.mark.parametrize("end", ENDS_UNANSWERED)
async def test_an_attempt_after_one_that_may_be_read_is_counted(
    end: str, max_attempts: int, used: bool, autojump_clock: MockClock
) -> None:
    """On a new connection and on one that has served a request: the server executes the request each time."""
    sent, seconds, counted = ENDS_UNANSWERED[end]
    requests: list[int] = []

    async def script(line: Line) -> None:
        if used and len(peer.lines) == 1:
            await line.request()
            await line.send(answer(chat_answer("first")))
        while await line.request():
            requests.append(1)
            if len(requests) > 2:
                await line.send(answer(chat_answer("again")))
                continue
            await line.send(sent)
            await trio.sleep(seconds)
            return

    retry = ms.Retry(max_attempts=max_attempts)
    timeouts = ms.Timeouts(first_byte=9)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=retry, timeouts=timeouts) as engine:
        if used:
            await engine.request(hello())
        completion = await engine.start_stream(hello()).wait()
        statistics = engine.statistics()
    resent = (max_attempts - 1) * counted
    assert (len(requests), completion.attempts) == (max_attempts, max_attempts)
    assert (completion.success, completion.resent, statistics.resent) == (max_attempts == 3, resent, resent)
    assert statistics.retried == max_attempts - 1


async def test_a_refused_connection_is_retried_and_then_reported(autojump_clock: MockClock) -> None:
    provider = ms.OpenAIChat(api_key="k", base_url="http://127.0.0.1:9/v1")
    async with ms.open_engine([provider]) as engine:
        completion = await engine.start_request(hello()).wait()
    assert completion.error_category is ms.ErrorCategory.NETWORK
    assert completion.http_status == 0
    assert completion.attempts == 4
    assert "refused" in (completion.error_message or "")


def error(category: ms.ErrorCategory, hint: int = -1, retryable: bool | None = None) -> ms.ProviderError:
    return ms.ProviderError("x", category=category, retry_after_ms=hint, retryable=retryable)


@pytest.mark.parametrize("category", list(ms.ErrorCategory))
def test_only_transient_failures_are_retryable(category: ms.ErrorCategory) -> None:
    retried = retry_delay(error(category), 1, ms.Retry(), lambda: 0.5) is not None
    assert retried == (category.name in {"RATE_LIMIT", "SERVER", "TIMEOUT", "NETWORK"})


@pytest.mark.parametrize(
    ("attempts", "options", "hint", "expected"),
    [
        (1, ms.Retry(jitter=0), -1, 1.0),
        (3, ms.Retry(jitter=0), -1, 4.0),
        (30, ms.Retry(max_attempts=99, jitter=0), -1, 30.0),
        (5000, ms.Retry(max_attempts=9999, jitter=0), -1, 30.0),
        (1, ms.Retry(), -1, 1.5),
        (1, ms.Retry(), 2000, 2.1),
        (1, ms.Retry(), 0, 0.105),
        (3, ms.Retry(jitter=0), 0, 0.4),
        (3, ms.Retry(jitter=0), 1_000, 1.0),
        (60, ms.Retry(max_attempts=99, jitter=0), 0, 2.0),
        (5000, ms.Retry(max_attempts=9999, jitter=0), 0, 2.0),
        (60, ms.Retry(max_attempts=99, max_hint=1, jitter=0), 0, 1.0),
        (1, ms.Retry(), 121_000, None),
        (4, ms.Retry(), -1, None),
    ],
)
def test_the_delay_is_hint_or_back_off(attempts: int, options: ms.Retry, hint: int, expected: float | None) -> None:
    delay = retry_delay(error(ms.ErrorCategory.SERVER, hint), attempts, options, lambda: 0.5)
    assert delay == (None if expected is None else pytest.approx(expected))


def test_an_exhausted_quota_is_not_retried() -> None:
    assert retry_delay(error(ms.ErrorCategory.RATE_LIMIT, retryable=False), 1, ms.Retry(), lambda: 0.5) is None


@pytest.mark.parametrize("value", [0, -1, math.nan, "5", True])
def test_a_timeout_must_be_above_zero(value: float) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"timeouts\.idle"):
        ms.Timeouts(idle=value)
