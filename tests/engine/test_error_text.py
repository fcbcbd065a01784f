"""The one-line text of a failed call, and access to the response of a call that may have failed."""

import traceback

import pytest

import manystream as ms
from tests.support.addresses import closed_port
from tests.support.peers import NO_RETRY, Line, answer, chat_answer, error_body, hello, open_peer

BUSY = answer(error_body("slow\ndown,\r\n  please", code="busy"), status="429 Busy", headers="Retry-After: 2.5\r\n")


async def busy(line: Line) -> None:
    while await line.request():
        await line.send(BUSY)


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
    assert [str(event.error) for event in events if isinstance(event, ms.Error)] == [str(error)] * stream


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
