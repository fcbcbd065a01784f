"""How failures become the error that a caller receives, its one-line text, and what is removed from it."""

from __future__ import annotations

import asyncio
import sys
import traceback

import pytest
import trio

import manystream as ms
from manystream import engine
from manystream.engine.call.buffered import Buffered
from manystream.engine.request.errors import callback_failed, ends_engine, internal, transport_error
from manystream.engine.request.redaction import hide_words, redacted
from manystream.transport.errors import Phase, TransportError
from tests.engine.request.test_redaction import redaction
from tests.support.addresses import closed_port
from tests.support.peers import NO_RETRY, Line, answer, chat_answer, error_body, hello, open_peer, replies

KEY = "sk-0123456789abcdefghijXYZ"


# --- broken connections ---


@pytest.mark.parametrize("phase", list(Phase))
def test_a_stream_that_broke_in_its_body_is_truncated(phase: Phase) -> None:
    broken = TransportError("it broke", phase=phase)
    in_stream, elsewhere = transport_error(broken, streaming=True), transport_error(broken, streaming=False)
    assert in_stream.message == ("truncated stream: it broke" if phase.value == "body" else "it broke")
    assert elsewhere.message == "it broke"
    for error in (in_stream, elsewhere):
        assert (error.category, error.provider_code, error.retryable) == (ms.ErrorCategory.NETWORK, phase.value, True)


def test_a_broken_protocol_is_not_a_truncated_stream() -> None:
    error = transport_error(TransportError("no chunk", phase=Phase.BODY, protocol=True), streaming=True)
    assert (error.message, error.retryable) == ("no chunk", False)
    assert not transport_error(TransportError("no host", phase=Phase.DNS, permanent=True), streaming=False).retryable


def test_the_cause_of_a_broken_connection_is_that_of_the_system() -> None:
    def caused_by(cause: BaseException | None) -> BaseException | None:
        broken = TransportError("it broke", phase=Phase.CONNECT)
        broken.__cause__ = cause
        return transport_error(broken, streaming=False).__cause__

    one, two = OSError("one"), OSError("two")
    group = ExceptionGroup("both", [one, two])
    assert caused_by(None) is None
    assert caused_by(one) is one
    assert caused_by(ExceptionGroup("one", [one])) is one
    assert caused_by(group) is group


# --- callbacks and defects ---


def test_the_error_of_a_callback_has_its_exception() -> None:
    fault = ValueError("mine")
    error = callback_failed(fault)
    assert (error.message, error.category, error.retryable) == (
        "on_event raised ValueError: mine", ms.ErrorCategory.CALLBACK, False
    )  # fmt: skip
    assert error.__cause__ is fault


def test_the_error_of_a_defect_names_its_place() -> None:
    def message(fault: Exception) -> str:
        error = internal(fault)
        assert (error.category, error.retryable, error.__cause__) == (ms.ErrorCategory.UNKNOWN, False, fault)
        return error.message

    end = "; this is a defect in manystream, please report it"
    assert message(ValueError("wrong")) == f"internal error: ValueError: wrong{end}"
    assert message(ValueError()) == f"internal error: ValueError{end}"
    assert message(ValueError("x" * 500)) == f"internal error: ValueError: {'x' * 188}{end}"
    with pytest.raises(KeyError) as raised:
        raise KeyError("a")
    place = f" (test_errors.py:{raised.traceback[-1].lineno + 1})"
    assert message(raised.value) == f"internal error: KeyError: 'a'{place}{end}"


ENDS = {
    KeyboardInterrupt: True, SystemExit: True, BaseException: True, Exception: False, ValueError: False,
    GeneratorExit: False, asyncio.CancelledError: False,
}  # fmt: skip


@pytest.mark.parametrize("kind", ENDS)
def test_which_exceptions_of_a_callback_end_the_engine(kind: type[BaseException]) -> None:
    assert ends_engine(kind()) == ENDS[kind]


async def test_a_cancellation_of_trio_does_not_end_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[bool] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            caught.append(ends_engine(cancelled))
            raise
    assert caught == [False]
    monkeypatch.delitem(sys.modules, "asyncio.exceptions")
    assert ends_engine(asyncio.CancelledError())
    monkeypatch.setitem(sys.modules, "asyncio.exceptions", None)  # type: ignore[arg-type]
    assert ends_engine(asyncio.CancelledError())


# --- what is removed ---


def failing(message: str, **members: object) -> ms.ProviderError:
    return ms.ProviderError(message, category=ms.ErrorCategory.SERVER, **members)  # type: ignore[arg-type]


def test_a_key_is_removed_from_each_text_of_an_error() -> None:
    error = failing(f"for {KEY}", body=f"b {KEY}".encode(), provider_code=f"c {KEY}", request_id=f"r {KEY}")
    error.add_note(f"n {KEY}")
    error.__cause__ = OSError(5, f"s {KEY}", f"/f/{KEY}", None, f"/g/{KEY}")
    error.__context__ = ValueError("a context")
    assert redacted(error, redaction(KEY)) is error
    assert (error.message, error.body, error.provider_code, error.request_id) == (
        "for [key]", b"b [key]", "c [key]", "r [key]"
    )  # fmt: skip
    assert (KEY in repr(error.args), error.__notes__) == (False, ["n [key]"])
    cause = error.__cause__
    assert isinstance(cause, OSError)
    assert (cause.strerror, cause.filename, cause.filename2) == ("s [key]", "/f/[key]", "/g/[key]")
    assert error.__context__ is None


def test_an_error_without_a_key_keeps_its_members() -> None:
    error = failing("plain", body=b"\xff\x00 body")
    redacted(error, redaction(KEY))
    assert (error.message, error.body, error.provider_code, error.request_id) == ("plain", b"\xff\x00 body", None, None)


def test_frames_are_removed_from_an_error_and_its_causes() -> None:
    def raised(cause: BaseException | None = None) -> ms.ProviderError:
        try:
            raise failing("no") from cause
        except ms.ProviderError as error:
            return error

    inner = raised()
    member = raised()
    group = ExceptionGroup("several", [member])
    outer = raised(group)
    group.__cause__ = inner
    assert all(each.__traceback__ for each in (inner, member, outer))
    redacted(outer, redaction(KEY))
    assert [each.__traceback__ for each in (inner, member, outer)] == [None] * 3
    assert outer.__cause__ is group


def test_a_circle_of_causes_is_read_once() -> None:
    one, two = ValueError(f"one {KEY}"), ValueError(f"two {KEY}", 7, KEY.encode())
    one.__cause__, two.__cause__ = two, one
    hide_words(one, redaction(KEY))
    assert (one.args, two.args) == (("one [key]",), ("two [key]", 7, b"[key]"))


def test_a_group_with_a_key_in_its_message_is_replaced() -> None:
    inner = ExceptionGroup(f"inner {KEY}", [ValueError("a")])
    outer = ExceptionGroup("outer", [inner, ValueError("b")])
    inner.add_note("a note")
    inner.__cause__ = OSError("why")
    error = failing("no")
    error.__cause__ = outer
    hide_words(error, redaction(KEY))
    shown = error.__cause__
    assert isinstance(shown, ExceptionGroup)
    assert (shown.message, str(shown.exceptions[1])) == ("outer", "b")
    renamed = shown.exceptions[0]
    assert isinstance(renamed, ExceptionGroup)
    assert (renamed.message, renamed.__notes__, str(renamed.__cause__)) == ("inner [key]", ["a note"], "why")
    assert renamed.__suppress_context__
    plain = ExceptionGroup("plain", [ValueError("a")])
    error.__cause__ = plain
    hide_words(error, redaction(KEY))
    assert error.__cause__ is plain


def test_a_long_message_is_cut_at_4096_characters_without_a_key() -> None:
    error = redacted(failing("x" * 5000, provider_code="y" * 5000, request_id="z" * 5000), redaction(KEY))
    assert (error.message, error.provider_code, error.request_id) == ("x" * 4096, "y" * 4096, "z" * 4096)
    cut = redacted(failing("x" * 4080 + KEY + "yyy"), redaction(KEY))
    assert cut.message == "x" * 4080 + "[key]yyy"


def test_the_error_of_the_largest_answer_names_the_limit() -> None:
    assert Buffered(1000).too_much().message == (
        "the answers under way keep more than 1000 bytes, this one the most (limits.max_buffered_bytes)"
    )


# --- the package ---


def test_each_public_name_of_the_engine_is_found() -> None:
    for name in engine.__all__:
        assert engine.__getattr__(name) is getattr(engine, name)
    with pytest.raises(AttributeError) as raised:
        engine.__getattr__("Nothing")
    assert str(raised.value) == "module 'manystream.engine' has no attribute 'Nothing'"


BUSY = answer(error_body("slow\ndown,\r\n  please", code="busy"), status="429 Busy", headers="Retry-After: 2.5\r\n")


busy = replies(BUSY)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_reports_in_one_line_what_failed_and_where(stream: bool) -> None:
    events: list[ms.Event] = []
    async with open_peer(busy) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        call = engine.start_stream(hello(), events.append) if stream else engine.start_request(hello())
        error = (await call.wait()).error
        assert error is not None
        where = f"provider peer, model m, host 127.0.0.1:{peer.port}"
    assert str(error) == f"rate_limit, HTTP 429, {where}: slow down, please (retry after 2.5 s)"
    assert (error.provider, error.model, error.host) == ("peer", "m", f"127.0.0.1:{peer.port}")
    assert [str(event.error) for event in events if isinstance(event, ms.ErrorEvent)] == [str(error)] * stream


def test_an_error_without_a_call_reports_what_is_known() -> None:
    assert str(ms.ProviderError("no", category=ms.ErrorCategory.AUTH)) == "auth: no"
    in_one, in_another = (ms.ProviderError("no", category=ms.ErrorCategory.AUTH) for _ in "12")
    in_one.provider = "peer"
    assert in_one == in_another, "who was asked is no part of the failure"


async def test_every_call_of_a_closed_engine_names_its_own_model() -> None:
    completions: list[ms.Completion] = []
    async with ms.open_engine([ms.OpenAIChat("key", "http://127.0.0.1:9/v1", name="peer")]) as engine:
        for model in ("one", "two"):
            engine.start_request(ms.Request(model, [ms.Message.user("hi")]), completions.append)
    assert [completion.error and completion.error.model for completion in completions] == ["one", "two"]


async def test_a_completion_gives_its_response_or_raises() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(answer(chat_answer("hi")))
        await busy(line)

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        whole = await engine.start_request(hello()).wait()
        failed = await engine.start_request(hello()).wait()
    assert whole.response_or_raise() is whole.response
    lengths = []
    for _ in range(2):
        with pytest.raises(ms.ProviderError, match="slow down") as raised:
            failed.response_or_raise()
        lengths.append(len(traceback.extract_tb(raised.value.__traceback__)))
    assert lengths[0] == lengths[1], "raised again, an error has the frames of that raise alone"


async def test_a_refused_connection_has_the_os_error_as_its_only_cause() -> None:
    provider = ms.OpenAIChat("key", f"http://127.0.0.1:{closed_port()}/v1")
    async with ms.open_engine([provider], retry=NO_RETRY) as engine:
        with pytest.raises(ms.ProviderError) as raised:
            await engine.request(hello())
    assert isinstance(raised.value.__cause__, ConnectionRefusedError)
    frames = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert frames[1:] == ["request", "response_or_raise"], "after the program's own frame"
    assert "".join(traceback.format_exception(raised.value)).count("direct cause") == 1
