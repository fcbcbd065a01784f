"""A key given as a function: it is called once per attempt; and the errors if it returns no key."""

import asyncio
import logging
import math
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pytest
import sniffio
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.portal import open_portal
from tests.support.peers import (
    NO_RETRY,
    Peer,
    Script,
    answer,
    chat_answer,
    chat_chunk,
    error_body,
    open_peer,
    replies,
    stream_of,
)

SOON = ms.Retry(base=0.001, cap=0.001, jitter=0.0)
FIRST, SECOND = "canary-token-1-abcdef", "canary-token-2-ghijkl"

PROVIDERS: dict[str, Callable[[str, ms.APIKey], ms.Provider]] = {
    "openai-chat": lambda origin, key: ms.OpenAIChat(key, f"{origin}/v1", name="peer"),
    "openai-responses": lambda origin, key: ms.OpenAIResponses(key, f"{origin}/v1", name="peer"),
    "anthropic": lambda origin, key: ms.Anthropic(key, origin, name="peer"),
    "gemini": lambda origin, key: ms.Gemini(key, origin, name="peer"),
    "gemini-interactions": lambda origin, key: ms.GeminiInteractions(key, origin, name="peer"),
}


class Tokens:
    """A key function that counts its calls. `values` are its results; the last one is repeated."""

    def __init__(self, *values: object) -> None:
        self.values = list(values)
        self.calls = 0

    def __call__(self) -> str:
        value = self.values[min(self.calls, len(self.values) - 1)]
        self.calls += 1
        if isinstance(value, BaseException):
            raise value
        return value  # type: ignore[return-value]


def hello(**options: object) -> ms.Request:
    return ms.Request("peer/m", [ms.Message.user("hello")], max_output_tokens=9, **options)  # type: ignore[arg-type]


def chat(origin: str, key: ms.APIKey) -> ms.Provider:
    return PROVIDERS["openai-chat"](origin, key)


BUSY = answer(error_body("busy"), status="503 Busy")
GOOD = answer(chat_answer("hi"))


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_token_that_expires_between_attempts_is_replaced(dialect: str, stream: bool) -> None:
    tokens = Tokens(FIRST, SECOND)
    async with open_peer(replies(BUSY, answer(error_body(f"refused {FIRST} and {SECOND}"), status="400 No"))) as peer:
        provider = PROVIDERS[dialect](peer.origin, tokens)
        async with ms.open_engine([provider], retry=SOON) as engine:
            call = (engine.start_stream if stream else engine.start_request)(hello())
            completion = await call.wait()
    assert tokens.calls == completion.attempts == 2
    sent = [[key for key in (FIRST, SECOND) if key.encode() in request] for request in peer.requests]
    assert sent == [[FIRST], [SECOND]]
    assert completion.error.category is ms.ErrorCategory.INVALID_ARG
    assert "canary" not in f"{completion!r} {completion.error!r} {completion.error.body!r}"


async def test_each_call_uses_the_key_of_its_start() -> None:
    tokens = Tokens(FIRST, FIRST, SECOND)
    async with open_peer(replies(GOOD)) as peer, ms.open_engine([chat(peer.origin, tokens)]) as engine:
        for _ in range(3):
            await engine.request(hello())
        assert len(peer.lines) == 1
    assert bearers(peer) == [FIRST, FIRST, SECOND]


async def test_the_idempotency_key_stays_if_the_api_key_changes() -> None:
    tokens = Tokens(FIRST, SECOND)
    async with open_peer(replies(BUSY, GOOD)) as peer:
        provider = ms.OpenAIChat(tokens, peer.url, name="peer", idempotency_header="Idempotency-Key")
        async with ms.open_engine([provider], retry=SOON) as engine:
            await engine.request(hello())
    first, second = (request.partition(b"Idempotency-Key: ")[2][:22] for request in peer.requests)
    assert first == second != b""


async def test_a_refused_key_is_not_retried() -> None:
    tokens = Tokens(FIRST, SECOND)
    refused = replies(answer(error_body("no"), status="401 No"))
    async with open_peer(refused) as peer, ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine:
        completion = await engine.start_request(hello()).wait()
    assert (completion.error_category, completion.attempts, tokens.calls) == (ms.ErrorCategory.AUTH, 1, 1)


async def test_no_connection_is_opened_without_a_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cause = RuntimeError("the token server is down")
    tokens = Tokens(cause)
    async with open_peer(replies()) as peer, ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine:
        events: list[ms.Event] = []
        completions: list[ms.Completion] = []
        call = engine.start_stream(hello(), events.append, completions.append)
        assert not completions, "no callback runs before the caller has the call"
        completion = await call.wait()
        assert peer.lines == []
    error = completion.error
    assert (error.category, error.retryable, tokens.calls) == (ms.ErrorCategory.AUTH, False, 1)
    assert error.message == "the api_key function of 'peer' raised RuntimeError"
    assert error.__cause__ is cause
    assert cause.__traceback__ is not None, "the program's own frames show where it failed"
    assert [event.type for event in events] == [ms.EventType.ERROR]
    assert completions == [completion]


RETURNED: dict[str, tuple[object, str]] = {
    "nothing": (None, "returned NoneType, not text"), "bytes": (FIRST.encode(), "returned bytes, not text"),
    "empty": ("", "returned an empty text"), "line break": (f"{FIRST}\r\nX-Evil: 1", "(code 13 at position 21)"),
    "letters beyond ASCII": ("canary-ключ", "(code 1082 at position 7)"),
}  # fmt: skip


@pytest.mark.parametrize(("returned", "words"), RETURNED.values(), ids=list(RETURNED))
async def test_an_invalid_key_is_not_sent_or_shown(
    returned: object, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_peer(replies()) as peer, ms.open_engine([chat(peer.origin, Tokens(returned))]) as engine:
        completion = await engine.start_request(hello()).wait()
        assert peer.lines == []
    error = completion.error
    assert error.category is ms.ErrorCategory.AUTH
    assert "'peer'" in error.message
    assert words in error.message
    assert "canary" not in f"{error!r} {caplog.text} {''.join(traceback.format_exception(error))}"


class Unreadable:
    """An object that raises when its type is looked at."""

    @property
    def __class__(self) -> Any:
        raise ValueError("canary")


class OddText(str):
    """A text whose methods raise."""

    def encode(self, *_: object) -> bytes:
        raise ValueError("canary")

    __iter__ = __eq__ = encode  # type: ignore[assignment]
    __hash__ = str.__hash__


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["text", "token", "object"])
async def test_a_key_of_a_type_of_its_own_ends_no_engine(
    kind: str, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    token = ms.AccessToken(OddText(FIRST))
    returned: dict[str, object] = {"text": OddText(FIRST), "token": token, "object": Unreadable()}

    async def later() -> object:
        return returned[kind]

    function = cast("ms.APIKey", later if is_async else lambda: returned[kind])
    async with open_peer(replies(GOOD)) as peer, ms.open_engine([chat(peer.origin, function)]) as engine:
        completions = [await engine.start_request(hello()).wait() for _ in range(2)]
    for completion in completions:
        assert completion.success is (kind != "object")
        if completion.error is not None:
            assert completion.error_category is ms.ErrorCategory.AUTH
            assert "canary" not in "".join(traceback.format_exception(completion.error)) + caplog.text


def _generates() -> Iterator[str]:
    yield FIRST


async def _generates_later() -> AsyncIterator[str]:
    yield FIRST


@pytest.mark.parametrize("function", [_generates, partial(_generates), _generates_later])
def test_a_function_that_cannot_return_a_key_is_refused_at_once(function: Callable[[], str]) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"api_key: .*generator function .*, which returns no key"):
        ms.Anthropic(function)


async def test_an_earlier_key_is_redacted_in_the_function_s_error() -> None:
    tokens = Tokens(FIRST, ValueError(f"{FIRST} has expired"))
    async with (
        open_peer(replies(BUSY)) as peer,
        ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine,
    ):
        completion = await engine.start_request(hello()).wait()
    error = completion.error
    assert (error.category, completion.attempts) == (ms.ErrorCategory.AUTH, 2)
    assert "canary" not in "".join(traceback.format_exception_only(error))
    assert str(error.__cause__) == "[key] has expired"


async def test_an_earlier_key_is_redacted_in_a_group_of_errors() -> None:
    """A key function that tries several sources raises what all of them said."""
    inner = ExceptionGroup(f"stores that refused {FIRST}", [ValueError(f"{FIRST} has expired")])
    missing = FileNotFoundError(2, f"no file for {FIRST}", f"/keys/{FIRST}")
    group = ExceptionGroup(f"no source has a key after {FIRST}", [inner, missing, OSError(5, "Input/output error")])
    group.add_note(f"tried {FIRST} first")
    tokens = Tokens(FIRST, group)
    async with (
        open_peer(replies(BUSY)) as peer,
        ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine,
    ):
        completion = await engine.start_request(hello()).wait()
    error = completion.error
    assert error is not None
    shown = "".join(traceback.format_exception(error))
    assert "no source has a key after [key] (3 sub-exceptions)" in shown
    assert "tried [key] first" in shown
    assert "stores that refused [key] (1 sub-exception)" in shown
    assert "[key] has expired" in shown
    assert "[Errno 2] no file for [key]: '/keys/[key]'" in shown
    assert "[Errno 5] Input/output error\n" in shown
    assert "canary" not in shown


async def test_keys_of_earlier_attempts_are_redacted_in_streams() -> None:
    body = stream_of(chat_chunk("x"), f"data: {error_body(f'keys {FIRST} {SECOND}')}\n\n")
    script = replies(BUSY, body)
    tokens = Tokens(FIRST, SECOND)
    async with open_peer(script) as peer, ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert completion.error_message == "keys [key] [key]"


async def test_ctrl_c_in_a_key_function_is_raised_from_start() -> None:
    completions: list[ms.Completion] = []
    async with ms.open_engine([chat("http://127.0.0.1:9", Tokens(KeyboardInterrupt()))], retry=NO_RETRY) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.start_request(hello(), completions.append)
        assert engine.statistics().calls == {}
    assert completions == []


async def test_ctrl_c_in_a_key_function_of_a_retry_ends_the_engine() -> None:
    completions: list[ms.Completion] = []

    async def run_until_interrupted(provider: ms.Provider) -> None:
        async with ms.open_engine([provider], retry=SOON) as engine:
            engine.start_request(hello(), completions.append)
            await trio.sleep_forever()

    async with open_peer(replies(BUSY)) as peer:
        with pytest.raises(KeyboardInterrupt):
            await run_until_interrupted(chat(peer.origin, Tokens(FIRST, KeyboardInterrupt())))
    assert [completion.error_category for completion in completions] == [ms.ErrorCategory.CANCELLED]


async def test_a_cancellation_raised_by_a_key_function_ends_the_call() -> None:
    async with ms.open_engine([chat("http://127.0.0.1:9", Tokens(asyncio.CancelledError()))]) as engine:
        completion = await engine.start_request(hello()).wait()
        assert completion.error_category is ms.ErrorCategory.AUTH


async def test_a_function_that_raises_cancelled_ends_its_call_alone() -> None:
    later = Later(asyncio.CancelledError(), FIRST)
    async with open_peer(accepts({FIRST})) as peer, ms.open_engine([chat(peer.origin, later)]) as engine:
        completion = await engine.start_request(hello()).wait()
        assert completion.error_category is ms.ErrorCategory.AUTH
        assert (await engine.start_request(hello()).wait()).success


async def test_a_key_function_can_cancel_its_own_call() -> None:
    calls: list[ms.Call] = []

    def key() -> str:
        if calls:
            calls[0].cancel()
        return FIRST

    async with open_peer(replies(BUSY)) as peer, ms.open_engine([chat(peer.origin, key)], retry=SOON) as engine:
        calls.append(engine.start_request(hello()))
        completion = await calls[0].wait()
        assert len(peer.lines) == 1
    assert completion.error_category is ms.ErrorCategory.CANCELLED


def test_asyncio_and_portal_engines_call_the_key_function() -> None:
    async def main() -> None:
        async with open_peer(replies(GOOD)) as peer:
            tokens = Tokens(FIRST)
            with_thread = partial(_ask_from_a_thread, peer.origin, tokens)
            assert await trio.to_thread.run_sync(with_thread) == "hi"
            with_asyncio = partial(asyncio.run, _ask_from_asyncio(peer.origin, tokens))
            assert await trio.to_thread.run_sync(with_asyncio) == "hi"
            assert tokens.calls == 2

    trio.run(main)


def _ask_from_a_thread(origin: str, key: ms.APIKey) -> str:
    with open_portal([chat(origin, key)]) as portal:
        return portal.request(hello()).text


async def _ask_from_asyncio(origin: str, key: ms.APIKey) -> str:
    async with ms.open_engine([chat(origin, key)]) as engine:
        return (await engine.request(hello())).text


# --- functions that wait ---


class Later(Tokens):
    """A coroutine function that waits until `ready` is set, and returns or raises the next value."""

    def __init__(self, *values: object) -> None:
        super().__init__(*values)
        self.ready = trio.Event()
        self.ready.set()

    async def __call__(self) -> str | ms.AccessToken:  # type: ignore[override]
        call = self.calls
        self.calls += 1
        await self.ready.wait()
        value = self.values[min(call, len(self.values) - 1)]
        if isinstance(value, BaseException):
            raise value
        return value  # type: ignore[return-value]


def bearers(peer: Peer) -> list[str]:
    """Return the bearer tokens that were sent."""
    return [request.partition(b"Bearer ")[2].partition(b"\r\n")[0].decode() for request in peer.requests]


def accepts(accepted: set[str]) -> Script:
    """Accept only these keys, and reply to any other with 401."""

    def reply(request: bytes) -> bytes:
        known = any(key.encode() in request for key in accepted)
        return GOOD if known else answer(error_body("bad key"), status="401 Unauthorized")

    return replies(reply)


FUNCTIONS: dict[str, Callable[[Later], ms.APIKey]] = {
    "coroutine function": lambda later: later,
    "partial": partial,
    "plain function": lambda later: lambda: later(),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("value", [FIRST, ms.AccessToken(FIRST)], ids=["text", "token"])
async def test_one_call_of_an_async_function_serves_all_calls(kind: str, value: object) -> None:
    later = Later(value)
    later.ready = trio.Event()
    async with (
        open_peer(accepts({FIRST})) as peer,
        ms.open_engine([chat(peer.origin, FUNCTIONS[kind](later))]) as engine,
    ):
        calls = [engine.start_request(hello()) for _ in range(150)]
        await trio.testing.wait_all_tasks_blocked()
        assert (later.calls, len(peer.lines), calls[0].state) == (1, 0, ms.CallState.QUEUED)
        later.ready.set()
        assert all([(await call.wait()).success for call in calls])
        assert (await engine.start_request(hello()).wait()).success
    assert later.calls == 1
    assert set(bearers(peer)) == {FIRST}


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_token_is_a_bearer_in_every_dialect(dialect: str, is_async: bool) -> None:
    token = ms.AccessToken(FIRST)
    async with open_peer(replies(answer(error_body("no"), status="400 No"))) as peer:
        provider = PROVIDERS[dialect](peer.origin, Later(token) if is_async else lambda: token)
        async with ms.open_engine([provider]) as engine:
            assert (await engine.start_request(hello()).wait()).http_status == 400
    head = peer.requests[0].partition(b"\r\n\r\n")[0]
    assert f"authorization: Bearer {FIRST}".encode() in head
    assert head.count(FIRST.encode()) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_token_is_kept_and_renewed_before_it_expires(is_async: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    tokens = ms.AccessToken(FIRST, now[0] + 3600), ms.AccessToken(SECOND, now[0] + 7200)
    function = Later(*tokens) if is_async else Tokens(*tokens)
    async with open_peer(accepts({FIRST, SECOND})) as peer, ms.open_engine([chat(peer.origin, function)]) as engine:  # type: ignore[arg-type]
        for moment in (0, 3299, 3301, 3599, 3601):
            now[0] = 1_000_000.0 + moment
            await engine.request(hello())
            await trio.testing.wait_all_tasks_blocked()
    # The call that begins the renewal is sent with the token at hand, if it need not wait for the next one.
    assert bearers(peer) == [FIRST, FIRST, FIRST if is_async else SECOND, SECOND, SECOND]
    assert function.calls == 2


async def test_a_token_is_not_used_after_it_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    later = Later(ms.AccessToken(FIRST, now[0] + 60), ms.AccessToken(SECOND, now[0] + 7200))
    async with open_peer(accepts({FIRST, SECOND})) as peer, ms.open_engine([chat(peer.origin, later)]) as engine:
        await engine.request(hello())
        now[0] += 60
        await engine.request(hello())
    assert (bearers(peer), later.calls) == ([FIRST, SECOND], 2)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_token_is_used_until_it_expires(
    is_async: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    first, second = ms.AccessToken(FIRST, now[0] + 3600), ms.AccessToken(SECOND, now[0] + 9000)
    values = first, OSError(f"no {FIRST}"), OSError("no"), second
    function = Later(*values) if is_async else Tokens(*values)
    async with open_peer(accepts({FIRST, SECOND})) as peer, ms.open_engine([chat(peer.origin, function)]) as engine:  # type: ignore[arg-type]
        for moment in (0, 3400, 3405, 3450, 3500, 3501):
            now[0] = 1_000_000.0 + moment
            await engine.request(hello())
            await trio.testing.wait_all_tasks_blocked()
    assert bearers(peer) == [FIRST, FIRST, FIRST, FIRST, FIRST if is_async else SECOND, SECOND]
    assert function.calls == 4, "a failed renewal is not tried again for ten seconds"
    warning = "the api_key function of 'peer' raised OSError; the token that it returned before is used"
    assert [warning in record.getMessage() for record in caplog.records] == [True, True]
    assert FIRST not in caplog.text


@pytest.mark.parametrize("kind", ["async text", "async token", "plain token"])
async def test_a_refused_key_is_asked_for_again_once(kind: str) -> None:
    values = (FIRST, SECOND) if kind == "async text" else (ms.AccessToken(FIRST), ms.AccessToken(SECOND))
    function = Tokens(*values) if kind == "plain token" else Later(*values)
    accepted = {FIRST}
    async with open_peer(accepts(accepted)) as peer, ms.open_engine([chat(peer.origin, function)]) as engine:  # type: ignore[arg-type]
        await engine.request(hello())
        accepted.clear()
        accepted.add(SECOND)
        calls = [engine.start_request(hello()) for _ in range(5)]
        completions = [await call.wait() for call in calls]
        assert [(each.success, each.attempts) for each in completions] == [(True, 2)] * 5
        assert function.calls == 2, "one new key for all calls"
        accepted.clear()
        completion = await engine.start_request(hello()).wait()
    assert (completion.error_category, completion.attempts, function.calls) == (ms.ErrorCategory.AUTH, 2, 3)
    assert "canary" not in repr(completion)


async def test_a_refused_key_is_asked_for_within_the_attempts() -> None:
    later = Later(FIRST)
    async with open_peer(accepts(set())) as peer, ms.open_engine([chat(peer.origin, later)], retry=NO_RETRY) as engine:
        completion = await engine.start_request(hello()).wait()
    assert (completion.error_category, completion.attempts, later.calls) == (ms.ErrorCategory.AUTH, 1, 1)


async def test_what_an_async_function_raises_is_an_error_of_each_call() -> None:
    raised = ValueError(f"{FIRST} has expired")
    later = Later(FIRST, raised)
    async with open_peer(accepts(set())) as peer, ms.open_engine([chat(peer.origin, later)]) as engine:
        calls = [engine.start_stream(hello()) for _ in range(3)]
        errors = [(await call.wait()).error for call in calls]
        assert len({id(error) for error in errors}) == 3
        for error in errors:
            assert (error.category, error.retryable, error.__cause__) == (ms.ErrorCategory.AUTH, False, raised)
            assert error.message == "the api_key function of 'peer' raised ValueError"
            assert "canary" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("returned", [*RETURNED, "token"])
async def test_an_invalid_result_of_an_async_function_is_an_error(returned: str) -> None:
    value, words = RETURNED.get(returned, (ms.AccessToken(f"{FIRST}\n"), "returned a text that contains"))
    async with ms.open_engine([chat("http://127.0.0.1:9", Later(value))]) as engine:
        completion = await engine.start_request(hello()).wait()
    assert completion.error_category is ms.ErrorCategory.AUTH
    assert words in (completion.error_message or "")
    assert "canary" not in repr(completion)


async def test_a_cancelled_call_leaves_the_key_to_the_others() -> None:
    later = Later(FIRST)
    later.ready = trio.Event()
    async with open_peer(accepts({FIRST})) as peer, ms.open_engine([chat(peer.origin, later)]) as engine:
        first, second = engine.start_request(hello()), engine.start_request(hello())
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        assert (await first.wait()).error_category is ms.ErrorCategory.CANCELLED
        later.ready.set()
        assert (await second.wait()).success
    assert (later.calls, len(peer.requests)) == (1, 1)


@pytest.mark.parametrize("clock", ["queue", "total"])
async def test_the_timeouts_of_a_call_count_while_it_waits_for_a_key(clock: str, autojump_clock: MockClock) -> None:
    later = Later(FIRST)
    later.ready = trio.Event()
    async with ms.open_engine([chat("http://127.0.0.1:9", later)], retry=NO_RETRY) as engine:
        call = engine.start_request(hello(timeouts=ms.Timeouts(**{clock: 3.0})))
        error = (await call.wait()).error
        assert trio.current_time() == pytest.approx(3.0, abs=0.1)
    assert (error.category, error.provider_code) == (ms.ErrorCategory.TIMEOUT, clock)
    assert "waiting for the key for http://127.0.0.1:9" in error.message


@pytest.mark.parametrize("traffic", [None, ms.Traffic()])
async def test_an_endless_function_is_cancelled(traffic: ms.Traffic | None, autojump_clock: MockClock) -> None:
    hangs = Later(FIRST)
    hangs.ready = trio.Event()
    async with open_peer(replies(GOOD)) as peer:
        providers = [chat(peer.origin, hangs), ms.OpenAIChat("the-key-2", peer.url, name="other")]
        async with ms.open_engine(providers, traffic=traffic) as engine:
            calls = [engine.start_request(hello()) for _ in range(9)]
            completions = [await call.wait() for call in calls]
            assert trio.current_time() == pytest.approx(120.0, abs=0.1)
            assert {completion.error_message for completion in completions} == {
                "the api_key function of 'peer' returned nothing within 120 s"
            }
            hangs.ready.set()
            other = ms.Request("other/m", [ms.Message.user("hello")])
            assert (await engine.start_request(other).wait()).success, "the address has no fault"
    assert hangs.calls == 1


async def test_an_engine_that_closes_does_not_wait_for_a_key() -> None:
    later = Later(FIRST)
    later.ready = trio.Event()
    async with ms.open_engine([chat("http://127.0.0.1:9", later)]) as engine:
        call = engine.start_request(hello())
        await trio.testing.wait_all_tasks_blocked()
    assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED


async def test_ctrl_c_in_an_async_function_ends_the_engine() -> None:
    completions: list[ms.Completion] = []

    async def run_until_interrupted(provider: ms.Provider) -> None:
        async with ms.open_engine([provider]) as engine:
            engine.start_request(hello(), completions.append)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        await run_until_interrupted(chat("http://127.0.0.1:9", Later(KeyboardInterrupt())))
    assert [completion.error_category for completion in completions] == [ms.ErrorCategory.CANCELLED]


async def test_each_of_several_keys_may_be_an_async_function() -> None:
    bad, good = Later(FIRST), Later(SECOND)
    async with open_peer(accepts({SECOND})) as peer:
        provider = ms.OpenAIChat([bad, good], peer.url, name="peer")
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            completions = [await engine.start_request(hello()).wait() for _ in range(3)]
    assert [completion.success for completion in completions] == [True] * 3
    assert good.calls == 1
    assert bad.calls in (0, 2), "asked again once, then put aside"


def test_asyncio_and_portals_await_the_key_in_their_loop() -> None:
    libraries: list[str] = []

    async def key() -> ms.AccessToken:
        libraries.append(sniffio.current_async_library())
        return ms.AccessToken(FIRST)

    async def raising() -> str:
        raise asyncio.CancelledError

    async def main() -> None:
        async with open_peer(replies(GOOD)) as peer:
            assert await trio.to_thread.run_sync(_ask_from_a_thread, peer.origin, key) == "hi"
            assert await trio.to_thread.run_sync(asyncio.run, _ask_from_asyncio(peer.origin, key)) == "hi"
            failing = partial(asyncio.run, _ask_from_asyncio(peer.origin, raising))
            with pytest.raises(ms.ProviderError, match="api_key function of 'peer' raised CancelledError"):
                await trio.to_thread.run_sync(failing)

    trio.run(main)
    assert libraries == ["trio", "asyncio"]


@pytest.mark.parametrize("expires_at", ["soon", math.nan, datetime(2030, 1, 1, tzinfo=UTC)])
def test_a_token_expires_in_unix_seconds(expires_at: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"Token\.expires_at: must be Unix seconds, not "):
        ms.AccessToken(FIRST, expires_at)  # type: ignore[arg-type]
    assert FIRST not in repr(ms.AccessToken(FIRST, 1.0))
