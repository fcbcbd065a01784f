"""Answers that survive the loss of their connection: no event is lost or repeated, and the answer is created once.

One file because one server, which keeps an answer, serves all of it.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
import trustme
from trio.testing import MockClock

import manystream as ms
from manystream.engine.request.durable import ResumeToken
from manystream.portal import open_portal
from manystream.simulator import open_simulator_thread
from tests.support.peers import Line, Peer, Recorder, answer, error_body, open_peer, stream_of
from tests.support.threaded_server import Serve, Wire, serving

KEY = "sk-canary-secret-1"
STEADY = ms.Retry(jitter=0)
TEXTS = ["One, ", "two – ", "two – ", 'three "', "four."]
"""The deltas of the answers' texts; two are equal."""

Frames = list[str]


def responses_frames() -> Frames:
    """Return the events of a Responses stream with reasoning, a text and a call."""

    def item(**members: object) -> dict[str, object]:
        return {"status": "in_progress", **members}

    thought = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    message = {"id": "m1", "type": "message", "role": "assistant"}
    part = {"type": "output_text", "text": "".join(TEXTS), "annotations": []}
    call = {"id": "fc1", "type": "function_call", "call_id": "c1", "name": "f"}
    done = [
        thought, {**message, "status": "completed", "content": [part]},
        {**call, "status": "completed", "arguments": '{"a":1}'},
    ]  # fmt: skip
    events: list[tuple[str, dict[str, object]]] = [
        ("created", {"response": resource("queued")}),
        ("in_progress", {"response": resource("in_progress")}),
        ("output_item.added", {"output_index": 0, "item": item(id="rs_1", type="reasoning", summary=[])}),
        ("reasoning_summary_text.delta", {"output_index": 0, "item_id": "rs_1", "summary_index": 0, "delta": "Hm."}),
        ("output_item.done", {"output_index": 0, "item": thought}),
        ("output_item.added", {"output_index": 1, "item": item(**message, content=[])}),
        *(
            ("output_text.delta", {"output_index": 1, "item_id": "m1", "content_index": 0, "delta": text})
            for text in TEXTS
        ),
        ("output_item.done", {"output_index": 1, "item": done[1]}),
        ("output_item.added", {"output_index": 2, "item": item(**call, arguments="")}),
        ("function_call_arguments.delta", {"output_index": 2, "item_id": "fc1", "delta": '{"a"'}),
        ("function_call_arguments.delta", {"output_index": 2, "item_id": "fc1", "delta": ":1}"}),
        ("output_item.done", {"output_index": 2, "item": done[2]}),
        ("completed", {"response": resource("completed", output=done, usage={"input_tokens": 3, "output_tokens": 4})}),
    ]
    return [frame(f"response.{kind}", {"sequence_number": n, **event}) for n, (kind, event) in enumerate(events)]


def resource(status: str, **members: object) -> dict[str, object]:
    return {"id": "resp/1", "object": "response", "model": "m", "status": status, "output": [], **members}


def frame(kind: str, event: dict[str, object], name: str = "type") -> str:
    return f"event: {kind}\ndata: {json.dumps({name: kind, **event})}\n\n"


def interaction(status: str, **members: object) -> dict[str, object]:
    return {"id": "v1/1", "object": "interaction", "model": "m", "status": status, **members}


def interactions_frames(identified: Callable[[int], bool]) -> Frames:
    """Return the events of an Interactions stream. identified: whether the event at a position has an id."""
    call = {"type": "function_call", "id": "c1", "name": "f"}
    events: list[tuple[str, dict[str, object]]] = [
        ("interaction.created", {"interaction": interaction("in_progress")}),
        ("interaction.status_update", {"interaction_id": "v1/1", "status": "in_progress"}),
        ("step.start", {"index": 0, "step": {"type": "thought"}}),
        ("step.delta", {"index": 0, "delta": {"type": "thought_summary", "content": {"type": "text", "text": "Hm."}}}),
        ("step.delta", {"index": 0, "delta": {"type": "thought_signature", "signature": "c2ln"}}),
        ("step.stop", {"index": 0}),
        ("step.start", {"index": 1, "step": {"type": "model_output"}}),
        *(("step.delta", {"index": 1, "delta": {"type": "text", "text": text}}) for text in TEXTS),
        ("step.stop", {"index": 1}),
        ("step.start", {"index": 2, "step": call}),
        ("step.delta", {"index": 2, "delta": {"type": "arguments_delta", "arguments": '{"a"'}}),
        ("step.delta", {"index": 2, "delta": {"type": "arguments_delta", "arguments": ":1}"}}),
        ("step.stop", {"index": 2}),
        ("interaction.completed", {"interaction": interaction("requires_action", usage={"total_input_tokens": 3})}),
    ]
    frames = [
        frame(kind, {**event, **({"event_id": f"ev {n}"} if identified(n) else {})}, "event_type")
        for n, (kind, event) in enumerate(events)
    ]
    return [*frames, "event: done\ndata: [DONE]\n\n"]


STREAMS: dict[str, Frames] = {
    "responses": responses_frames(),
    "interactions": interactions_frames(lambda n: True),
    "interactions, some ids": interactions_frames(lambda n: n in (0, 4, 8, 15)),
    "interactions, no ids": interactions_frames(lambda n: False),
}


@dataclass
class Keeper:
    """A server that keeps one answer, and sends what is asked for of it.

    frames: the events of the answer.
    plans: what each response sends, in order: the number of bytes of its body, or a whole response. After the last
        plan all is sent.
    heads: the heads of the requests, in order.
    """

    frames: Frames
    plans: list[int | bytes] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        """The first lines of the requests, without the version."""
        return [head.partition(" HTTP")[0] for head in self.heads]

    @property
    def created(self) -> int:
        return sum(line.startswith("POST") and not line.endswith("/cancel") for line in self.asked)

    def body(self, line: str) -> bytes:
        """Return the events that a request asks for: those after the one that it names."""
        found = re.search(r"(?:starting_after|last_event_id)=([^&]+)", line)
        if found is None:
            return "".join(self.frames).encode()
        place = (
            f'": {json.dumps(found[1].replace("%20", " "))}' if "last_event_id" in line else f'_number": {found[1]},'
        )
        position = next(n for n, each in enumerate(self.frames) if place in each)
        return "".join(self.frames[position + 1 :]).encode()

    def plan_of(self, request: str) -> int | bytes | None:
        return self.plans.pop(0) if self.plans else None

    async def script(self, line: Line) -> None:
        while request := (await line.request()).decode():
            self.heads.append(request.partition("\r\n\r\n")[0])
            first = self.asked[-1]
            plan = self.plan_of(request)
            if isinstance(plan, bytes):
                await line.send(plan)
            elif first.endswith("/cancel"):
                await line.send(answer(json.dumps(resource("cancelled"))))
            elif plan is None:
                await line.send(stream_of(self.body(first)))
            else:
                await line.send(stream_of(self.body(first)[:plan], end=False))
                return


def provider_of(name: str, origin: str, key: ms.APIKey | list[ms.APIKey] = KEY) -> ms.Provider:
    if name.startswith("interactions"):
        return ms.GeminiInteractions(key, origin, name="p")
    return ms.OpenAIResponses(key, f"{origin}/v1", name="p")


def durable(text: str = "Hello.", **options: object) -> ms.Request:
    return ms.Request("m", text, **{"durable": True, **options})  # type: ignore[arg-type]


async def read(engine: ms.Engine, request: ms.Request) -> Recorder:
    recorder = Recorder()
    await engine.start_stream(request, recorder.on_event, recorder.on_completion).wait()
    return recorder


@asynccontextmanager
async def keeping(name: str, *plans: int | bytes, **options: object) -> AsyncGenerator[tuple[Keeper, ms.Engine]]:
    """Open a server that keeps an answer, and an engine."""
    keeper = Keeper(STREAMS[name], list(plans))
    async with open_peer(keeper.script) as peer:
        given = {"retry": STEADY, **options}
        async with ms.open_engine([provider_of(name, peer.origin)], **given) as engine:  # type: ignore[arg-type]
            yield keeper, engine


# --- cuts ---


class Cutter(Keeper):
    """Cuts the first response to a prompt, after as many bytes as the prompt says."""

    def plan_of(self, request: str) -> int | None:
        found = re.search(r"cut (\d+)", request)
        if found is None or found[1].encode() in self.plans:
            return None
        self.plans.append(found[1].encode())
        return int(found[1])


@asynccontextmanager
async def open_tls_peer(keeper: Keeper, ca: trustme.CA) -> AsyncGenerator[str]:
    """Open the server behind TLS, which it closes without a word. Yields its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)

    async def serve(stream: trio.SocketStream) -> None:
        with stream.socket:
            secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
            try:
                await keeper.script(Line(secured))  # type: ignore[arg-type]
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield f"https://localhost:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(
    ("secure", "step"),
    [
        pytest.param(False, 23, id="tcp"),
        pytest.param(True, 89, id="tls"),
        pytest.param(False, 1, id="tcp, each byte", marks=pytest.mark.soak),
        pytest.param(True, 1, id="tls, each byte", marks=pytest.mark.soak),
    ],
)
async def test_a_stream_that_is_cut_at_any_byte_is_whole(name: str, secure: bool, step: int) -> None:
    keeper, ca = Cutter(STREAMS[name]), trustme.CA()
    size = len("".join(keeper.frames).encode())
    named = len(keeper.frames[0]) - 2  # the answer has an id from here on
    tls = ms.TLSConfig(ca_data=ca.cert_pem.bytes().decode())
    async with open_tls_peer(keeper, ca) if secure else open_peer(keeper.script) as peer:
        origin = peer.origin if isinstance(peer, Peer) else peer
        retry, limits = ms.Retry(base=0, jitter=0), ms.EngineLimits(retry_reserve=math.inf)
        async with ms.open_engine([provider_of(name, origin)], retry=retry, limits=limits, tls=tls) as engine:
            expected = await read(engine, durable())
            assert expected.completion.success
            assert expected.types.count("TEXT_DELTA") == len(TEXTS)
            for first in range(0, size, 50 * step):
                keeper.heads.clear()
                recorders = {cut: Recorder() for cut in range(first, min(first + 50 * step, size), step)}
                for call in [
                    engine.start_stream(durable(f"cut {cut}"), recorder.on_event, recorder.on_completion)
                    for cut, recorder in recorders.items()
                ]:
                    await call.wait()
                for cut, recorder in recorders.items():
                    assert recorder.events == expected.events, (cut, recorder.completion)
                    assert recorder.completion.response == expected.completion.response
                    assert recorder.completion.resumed <= 1
                # Without an id, only the rules of retries remain.
                assert keeper.created == sum(2 if cut < named else 1 for cut in recorders)


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_that_is_cut_again_and_again_is_whole(name: str) -> None:
    largest = max(len(each.encode()) for each in STREAMS[name])
    async with keeping(name) as (keeper, engine):
        expected = await read(engine, durable())
        keeper.plans = [largest + 100 * n for n in range(1, 40)]  # what has no id comes again
        keeper.heads.clear()
        recorder = await read(engine, durable())
    assert recorder.events == expected.events
    assert recorder.completion.response == expected.completion.response
    assert recorder.completion.resumed == len(keeper.heads) - 1 > 2
    assert keeper.created == recorder.completion.attempts == 1
    assert recorder.completion.resent == 0


@pytest.mark.parametrize("name", STREAMS)
async def test_each_of_joined_events_has_its_place(name: str) -> None:
    frames = STREAMS[name]
    for place in range(1, len(frames) - 2):
        joined = [*frames[:place], frames[place].rstrip("\n") + "\n" + frames[place + 1]]
        async with keeping(name) as (keeper, engine):
            expected = await read(engine, durable())
            keeper.plans = [stream_of("".join(joined).encode())]
            recorder = await read(engine, durable())
        assert recorder.events == expected.events, place
        assert (recorder.completion.response, keeper.created) == (expected.completion.response, 2)


async def test_what_follows_is_asked_for_after_the_last_event() -> None:
    async with keeping("responses", 1700) as (keeper, engine):
        assert (await read(engine, durable())).completion.success
    assert keeper.asked == ["POST /v1/responses", "GET /v1/responses/resp%2F1?stream=true&starting_after=7"]
    assert "content-type" not in keeper.heads[1].lower()
    assert f"Bearer {KEY}" in keeper.heads[1]
    async with keeping("interactions", 1700) as (keeper, engine):
        assert (await read(engine, durable(extra_headers={"API-Revision": "mine"}))).completion.success
    assert keeper.asked == [
        "POST /v1beta/interactions", "GET /v1beta/interactions/v1%2F1?stream=true&last_event_id=ev%2011"
    ]  # fmt: skip
    assert f"x-goog-api-key: {KEY}" in keeper.heads[1]
    assert [head.lower().count("api-revision") for head in keeper.heads] == [1, 1]
    assert all("API-Revision: mine" in head for head in keeper.heads)


ERROR_EVENTS = {
    "responses": frame("error", {"message": "Busy.", "code": "server_error"}),
    "interactions": frame("error", {"error": {"message": "Late.", "code": "gateway_timeout"}}, "event_type"),
}


@pytest.mark.parametrize("name", ERROR_EVENTS)
async def test_an_error_event_ends_the_connection_and_not_the_answer(name: str) -> None:
    frames = STREAMS[name]
    begun = stream_of("".join([*frames[:9], ERROR_EVENTS[name]]))
    async with keeping(name, begun) as (_, engine):
        recorder = await read(engine, durable())
        assert recorder.events == (await read(engine, durable())).events
    assert recorder.completion.resumed == 1


@pytest.mark.parametrize("name", ERROR_EVENTS)
async def test_an_answer_that_failed_is_not_read_again(name: str) -> None:
    failed = {
        "responses": frame(
            "response.failed",
            {
                "sequence_number": 9,
                "response": resource("failed", error={"code": "server_error", "message": "No model."}),
            },
        ),
        "interactions": frame(
            "interaction.completed",
            {"interaction": interaction("failed", error={"message": "No model."})},
            "event_type",
        ),
    }
    begun = stream_of("".join([*STREAMS[name][:9], failed[name]]))
    async with keeping(name, begun) as (keeper, engine):
        recorder = await read(engine, durable())
    assert recorder.types[-1] == "ERROR"
    assert recorder.completion.error_category is ms.ErrorCategory.SERVER
    assert "No model." in str(recorder.completion.error)
    assert len(keeper.heads) == 1


async def test_only_the_creation_follows_the_rules_of_retries(autojump_clock: MockClock) -> None:
    busy = answer(error_body("busy"), status="503 Busy")
    async with keeping("responses", busy, busy, 1700, *[busy] * 6) as (keeper, engine):
        recorder = await read(engine, durable(retry=ms.Retry(max_attempts=3, jitter=0)))
    completion = recorder.completion
    assert completion.success
    assert (completion.attempts, completion.resumed, keeper.created) == (3, 7, 3)


@pytest.mark.parametrize(
    ("status", "category", "why"),
    [
        ("404 Not Found", ms.ErrorCategory.NOT_FOUND, ": the server has forgotten it, or another key made it"),
        ("410 Gone", ms.ErrorCategory.NOT_FOUND, ": the server has forgotten it, or another key made it"),
        ("401 Unauthorized", ms.ErrorCategory.AUTH, ": the server has forgotten it, or another key made it"),
        ("400 Bad Request", ms.ErrorCategory.INVALID_ARG, ""),
    ],
)
async def test_an_answer_that_the_server_has_not_is_named(status: str, category: ms.ErrorCategory, why: str) -> None:
    async with keeping("responses", 1700, *[answer(error_body("no"), status=status)] * 2) as (_, engine):
        recorder = await read(engine, durable())
    error = recorder.completion.error
    assert error.category is category
    assert error.message == f"no (reading the answer 'resp/1' again{why})"
    assert recorder.text == "One, two – "
    assert recorder.completion.response.text == "One, two – "


@pytest.mark.parametrize("name", ["responses", "interactions"])
@pytest.mark.parametrize("read_as", ["resumed", "attached", "polled"])
@pytest.mark.parametrize("sent_as", ["stream", "whole", "pending"])
async def test_an_answer_of_another_id_is_an_error_that_names_both(
    name: str, read_as: str, sent_as: str, autojump_clock: MockClock
) -> None:
    mine = {"responses": "resp/1", "interactions": "v1/1"}[name]
    body = {
        "stream": "".join(STREAMS[name]), "whole": json.dumps(WHOLE[name]), "pending": json.dumps(PENDING[name])
    }[sent_as].replace(mine, "other")  # fmt: skip
    sent = stream_of(body) if sent_as == "stream" else answer(body)
    first: dict[str, list[int | bytes]] = {"resumed": [1700], "polled": [answer(json.dumps(PENDING[name]))]}
    async with keeping(name, *first.get(read_as, []), sent) as (keeper, engine):
        if read_as == "attached":
            keeper.plans.clear()
            call = engine.start_stream(durable())
            await call.wait()
            keeper.plans.append(sent)
            assert call.resume_token is not None
            call = engine.attach(call.resume_token)
        else:
            call = engine.start_request(durable()) if read_as == "polled" else engine.start_stream(durable())
        completion = await call.wait()
        assert completion.error is not None
        assert (
            completion.error.message == f"the server sent another answer, 'other' (reading the answer {mine!r} again)"
        )
        assert call.resume_token is not None
        assert (await engine.attach(call.resume_token).wait()).success


@pytest.mark.parametrize("name", ERROR_EVENTS)
@pytest.mark.parametrize("as_event", [False, True])
async def test_an_error_inside_of_a_read_names_the_answer(name: str, as_event: bool) -> None:
    error = {"error": {"message": "Gone.", "code": 404 if name == "interactions" else "not_found"}}
    sent = stream_of(f"data: {json.dumps(error)}\n\n") if as_event else answer(json.dumps(error))
    async with keeping(name, 1700, sent) as (_, engine):
        completion = (await read(engine, durable())).completion
    assert completion.error_category is ms.ErrorCategory.NOT_FOUND
    assert "1' again" in completion.error_message  # type: ignore[operator]


# --- timeouts ---


async def test_a_server_that_stays_away_is_an_idle_timeout(autojump_clock: MockClock) -> None:
    async with keeping("responses", 1700, timeouts=ms.Timeouts(idle=20)) as (keeper, engine):
        keeper.plans += [0] * 100
        started = trio.current_time()
        recorder = await read(engine, durable())
        assert trio.current_time() - started == pytest.approx(20, abs=0.5)
    error = recorder.completion.error
    assert (error.category, error.provider_code) == (ms.ErrorCategory.TIMEOUT, "idle")
    assert "reading the answer 'resp/1' again" in error.message
    assert recorder.types[-1] == "ERROR"


async def test_the_total_timeout_ends_a_durable_call(autojump_clock: MockClock) -> None:
    async with keeping("responses", 1700, *[0] * 100) as (_, engine):
        recorder = await read(engine, durable(timeouts=ms.Timeouts(total=9)))
    error = recorder.completion.error
    assert (error.category, error.provider_code) == (ms.ErrorCategory.TIMEOUT, "total")


async def test_a_connection_that_brings_nothing_is_replaced(autojump_clock: MockClock) -> None:
    keeper = Keeper(STREAMS["responses"])

    async def script(line: Line) -> None:
        keeper.heads.append((await line.request()).decode())
        sent = (1700, 0, 0, 0, None)[len(keeper.heads) - 1]
        await line.send(stream_of(*[part for part in [keeper.body(keeper.asked[-1])[:sent]] if part], end=False))
        await line.closed_by_peer()

    async with (
        open_peer(script) as peer,
        ms.open_engine([provider_of("responses", peer.origin)], retry=STEADY) as engine,
    ):
        recorder = await read(engine, durable(timeouts=ms.Timeouts(idle=30)))
    assert recorder.completion.success
    assert recorder.completion.resumed == 4
    assert keeper.created == 1


@pytest.mark.parametrize(("hint", "pause"), [(50, 50), (120, 120), (121, 1), (86400, 1)])
@pytest.mark.parametrize("name", ["responses", "interactions"])
async def test_a_hint_is_obeyed_up_to_max_hint(name: str, hint: int, pause: int, autojump_clock: MockClock) -> None:
    full = answer(error_body("full"), status="429 Too Many Requests", headers=f"Retry-After: {hint}\r\n")
    async with keeping(name, 1700, full, timeouts=ms.Timeouts(idle=20)) as (_, engine):
        started = trio.current_time()
        assert (await read(engine, durable())).completion.success
        assert trio.current_time() - started == pytest.approx(pause, abs=0.5)


async def test_a_server_that_only_names_times_is_out_of_reach(autojump_clock: MockClock) -> None:
    full = answer(error_body("full"), status="429 Too Many Requests", headers="Retry-After: 50\r\n")
    async with keeping("responses", 1700, *[full] * 100, timeouts=ms.Timeouts(idle=120)) as (_, engine):
        started = trio.current_time()
        assert (await read(engine, durable())).completion.error_category is ms.ErrorCategory.RATE_LIMIT
        assert trio.current_time() - started < 4 * 50 + 120 + 50


async def test_an_answer_in_progress_is_asked_for_within_max_hint(autojump_clock: MockClock) -> None:
    pending = answer(json.dumps(PENDING["responses"]), headers="Retry-After: 86400\r\n")
    async with keeping("responses", *[pending] * 3, answer(json.dumps(WHOLE["responses"]))) as (_, engine):
        started = trio.current_time()
        assert (await engine.start_request(durable()).wait()).success
        assert trio.current_time() - started < 10


# --- unstreamed ---

WHOLE = {
    "responses": resource("completed", output=[{"type": "message",
        "content": [{"type": "output_text", "text": "Four."}]}]),
    "interactions": interaction("completed",
        steps=[{"type": "user_input", "content": [{"type": "text", "text": "Hello."}]},
        {"type": "model_output", "content": [{"type": "text", "text": "Four."}]}]),
}  # fmt: skip
PENDING = {"responses": resource("queued"), "interactions": interaction("in_progress")}


@pytest.mark.parametrize("name", WHOLE)
async def test_an_unstreamed_answer_is_asked_for_until_it_is_there(name: str, autojump_clock: MockClock) -> None:
    pending, whole = answer(json.dumps(PENDING[name])), answer(json.dumps(WHOLE[name]))
    asked = answer(json.dumps(PENDING[name]), headers="Retry-After: 40\r\n")
    lost = answer(error_body("busy"), status="502 Bad Gateway")
    plans = (pending, pending, asked, lost, whole)
    async with keeping(name, *plans, timeouts=ms.Timeouts(idle=20)) as (keeper, engine):
        started, recorder = trio.current_time(), Recorder()
        call = engine.start_request(durable(), recorder.on_completion)
        assert call.resume_token is None
        completion = await call.wait()
        assert trio.current_time() - started == pytest.approx(1 + 2 + 40 + 4, abs=0.5)  # a failure keeps the pace
        token = call.resume_token
        assert token is not None
        keeper.plans += [pending, whole]
        again = Recorder()
        attached = await engine.attach(token, again.on_event).wait()
    assert completion.response.text == "Four."
    assert (completion.attempts, completion.resumed) == (1, 1)
    assert keeper.created == 1
    assert not any("stream" in line for line in keeper.asked)
    assert attached.response == completion.response
    assert again.types == ["START", "TEXT_DELTA", "DONE"]


NO_ANSWERS: dict[str, bytes | dict[str, object]] = {
    "a page of a gateway": answer("<html><p>Please log in.</p></html>", headers="Content-Type: text/html\r\n"),
    "a page with an error": answer("<html>Bad gateway</html>", status="502 Bad Gateway"),
    "nothing": answer(""),
    "a part of a body": answer('{"id": "resp/1", "obj'),
    "no object": answer("[]"),
    "no status": {"status": None},
}
"""Responses to a read, or the members of an answer that makes the answer none."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("reply", NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_what_is_no_answer_is_not_taken_for_it(
    reply: bytes | dict[str, object], name: str, stream: bool, autojump_clock: MockClock
) -> None:
    reply = reply if isinstance(reply, bytes) else answer(json.dumps({**WHOLE[name], **reply}))
    first = 500 if stream else answer(json.dumps(PENDING[name]))
    async with keeping(name, first, reply, answer(json.dumps(WHOLE[name]))) as (keeper, engine):

        async def completed(**options: object) -> ms.Completion:
            request = durable(**options)
            return await (engine.start_stream(request) if stream else engine.start_request(request)).wait()

        completion = await completed()
        assert completion.success
        assert completion.response.text == "Four."
        assert (len(keeper.heads), keeper.created) == (3, 1)
        keeper.plans += [first, *[reply] * 100]
        completion = await completed(timeouts=ms.Timeouts(idle=20))
    assert "1' again" in completion.error_message


@pytest.mark.parametrize("name", ["responses", "interactions, no ids"])
async def test_the_size_of_an_answer_is_that_of_all_its_connections(name: str) -> None:
    size = len("".join(STREAMS[name]).encode())
    for limit, success in ((size, True), (size // 3, False)):
        limits = ms.EngineLimits(max_response_bytes=limit)
        async with keeping(name, *[size * n // 10 for n in (2, 4, 6)], limits=limits) as (_, engine):
            completion = (await read(engine, durable())).completion
        assert completion.success is success
        assert success or f"larger than {limit} bytes" in completion.error_message


@pytest.mark.parametrize("identified", [True, False])
async def test_what_is_remembered_of_events_is_kept_memory(identified: bool) -> None:
    """An event that brings nothing is remembered, too: it may come again."""
    begin, *_, end, mark = interactions_frames(lambda n: identified)
    empty: dict[str, object] = {"index": 0, "delta": {"type": "text", "text": ""}}
    frames = [
        begin,
        *[
            frame("step.delta", {**empty, **({"event_id": f"e{n}"} if identified else {"n": n})}, "event_type")
            for n in range(6000)
        ],
        end,
        mark,
    ]
    keeper = Keeper(frames)
    for limit, success in ((1_000_000, True), (100_000, False)):
        async with open_peer(keeper.script) as peer:
            provider = provider_of("interactions", peer.origin)
            async with ms.open_engine([provider], limits=ms.EngineLimits(max_buffered_bytes=limit), proxy="") as engine:
                completion = await engine.start_stream(durable()).wait()
        assert completion.success is success


@pytest.mark.parametrize("header", ["Retry-After: 0", "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"])
async def test_a_server_that_names_no_time_is_asked_seldom(header: str, autojump_clock: MockClock) -> None:
    pending = answer(json.dumps(PENDING["responses"]), headers=f"{header}\r\n")
    async with keeping("responses", *[pending] * 10, answer(json.dumps(WHOLE["responses"]))) as (_, engine):
        started = trio.current_time()
        await engine.request(durable())
        assert trio.current_time() - started == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 5 * 2, abs=0.5)


async def test_a_failed_unstreamed_answer_is_not_asked_for_again(autojump_clock: MockClock) -> None:
    failed = resource("failed", error={"code": "server_error", "message": "No model."})
    plans = (answer(json.dumps(PENDING["responses"])), answer(json.dumps(failed)))
    async with keeping("responses", *plans) as (keeper, engine):
        completion = await engine.start_request(durable()).wait()
    assert completion.error.message == "No model."
    assert len(keeper.heads) == 2


async def test_an_answer_in_the_background_without_an_id_is_an_error() -> None:
    nameless = {**PENDING["responses"], "id": None}
    async with keeping("responses", answer(json.dumps(nameless))) as (_, engine):
        completion = await engine.start_request(durable()).wait()
    assert "names no id" in completion.error.message


CONVERSATION: dict[str, list[dict[str, object]]] = {
    "an earlier answer": [{"type": "model_output", "content": [{"type": "text", "text": "Three."}]}],
    "a call and its result": [
        {"type": "thought", "signature": "c2ln"},
        {"type": "function_call", "id": "c0", "name": "f", "arguments": {}},
        {"type": "function_result", "call_id": "c0", "result": "3"},
    ],
}
"""Steps of an input, between which and the answer the server makes no difference."""


@pytest.mark.parametrize("before", CONVERSATION.values(), ids=CONVERSATION)
async def test_the_conversation_before_an_answer_is_no_part_of_it(before: list[dict[str, object]]) -> None:
    hello, reply = WHOLE["interactions"]["steps"]  # type: ignore[misc]
    again = [hello] if before[-1]["type"] == "model_output" else []
    whole = interaction("completed", steps=[hello, *before, *again, reply])
    async with keeping("interactions", answer(json.dumps(whole))) as (_, engine):
        response = await engine.request(durable())
    assert (response.text, response.tool_calls, len(response.content)) == ("Four.", [], 1)


STEPS: list[dict[str, object]] = [
    {"type": "user_input", "content": [{"type": "text", "text": "Hello."}]},
    {"type": "thought", "summary": [{"type": "text", "text": "Hm."}], "signature": "c2ln"},
    {"type": "model_output", "content": [{"type": "text", "text": "".join(TEXTS)}]},
    {"type": "function_call", "id": "c1", "name": "f", "arguments": {"a": 1}},
]


@pytest.mark.parametrize("name", ["responses", "interactions"])
@pytest.mark.parametrize("before", ["", "pending", "refused"])
async def test_the_rest_of_a_stream_may_come_whole(name: str, before: str, autojump_clock: MockClock) -> None:
    frames = STREAMS[name]
    whole = {
        "responses": json.loads(responses_frames()[-1].partition("data: ")[2])["response"],
        "interactions": interaction("requires_action", steps=STEPS, usage={"total_input_tokens": 3}),
    }
    first = {
        "pending": [answer(json.dumps(PENDING[name]))],
        "refused": [answer(error_body("There is no stream of this answer."), status="400 Bad Request")],
    }
    plans = [*first.get(before, []), answer(json.dumps(whole[name]))]
    async with keeping(name) as (keeper, engine):
        expected = await read(engine, durable())
        for received in range(1, len(frames)):
            keeper.plans = [len("".join(frames[:received]).encode()), *plans]
            recorder = await read(engine, durable())
            assert recorder.completion.response == expected.completion.response, received
            assert recorder.text == expected.text
            assert recorder.types.count("TOOL_CALL_DONE") == recorder.types.count("DONE") == 1
    assert keeper.created == len(frames)
    assert any(line[:3] == "GET" and "stream" not in line for line in keeper.asked) is (before == "refused")


@pytest.mark.parametrize("name", ["responses", "interactions"])
async def test_the_state_is_asked_for_if_a_stream_has_no_end(name: str, autojump_clock: MockClock) -> None:
    """As of an answer that was cancelled: its events stop, and none says so."""
    endless = stream_of("".join(STREAMS[name][:-2]))
    state = {"responses": resource, "interactions": interaction}[name]
    waits, ended = answer(json.dumps(state("in_progress"))), answer(json.dumps(state("cancelled")))
    async with keeping(name, endless, endless, waits, endless, ended) as (keeper, engine):
        recorder = await read(engine, durable(timeouts=ms.Timeouts(idle=20)))
        completion = recorder.completion
        assert ["stream" in line for line in keeper.asked[1:]] == [True, False, True, False]
        keeper.plans += [endless, endless, waits]
        assert (await read(engine, durable())).completion.success
    assert completion.response.finish_reason is ms.FinishReason.ABORTED
    assert recorder.text == completion.response.text == "".join(TEXTS)
    assert recorder.types[-1] == "ERROR"


Change = Callable[[int, dict[str, object]], None]


def changed(frames: Frames, change: Change) -> Frames:
    """Return the events with changed members. change: gets the place of an event, and its members."""
    found: Frames = []
    for place, each in enumerate(frames):
        head, data, text = each.partition("data: ")
        if text.startswith("{"):
            event = json.loads(text)
            change(place, event)
            text = json.dumps(event) + "\n\n"
        found.append(head + data + text)
    return found


def numbered(number: Callable[[int], int | None]) -> Change:
    """Return a function that numbers events anew. number: of the event at a place; None for none."""

    def change(place: int, event: dict[str, object]) -> None:
        for member, form in (("sequence_number", int), ("event_id", "ev {}".format)):
            if member in event:
                found = number(place)
                event[member] = None if found is None else form(found)

    return change


def as_another(place: int, event: dict[str, object]) -> None:
    event.update({"item_id": "m2"} if "item_id" in event else {}, delta="Another.")
    if "response" in event:
        event["response"] = resource("completed", id="resp/2")


def padded(place: int, event: dict[str, object]) -> None:
    if "delta" in event:
        event["obfuscation"] = "x" * place


NUMBERINGS: dict[str, tuple[int, Callable[[Frames], Frames]]] = {
    "a jump": (0, lambda all: [*all[:8], *all[10:]]),
    "a late beginning": (8, lambda all: all[10:]),
    "the rest from 0 on": (4, lambda all: changed(all[4:], numbered(lambda n: n))),
    "all, from 100 on": (8, lambda all: changed(all, numbered(lambda n: n + 100))),
    "all again": (8, lambda all: all),
    "no numbers any more": (0, lambda all: [*all[:8], *changed(all[8:], numbered(lambda n: None))]),
    "the rest without numbers": (8, lambda all: changed(all[8:], numbered(lambda n: None))),
    "all without numbers": (8, lambda all: changed(all, numbered(lambda n: None))),
    "one number": (0, lambda all: changed(all, numbered(lambda n: min(n, 8)))),
    "what JSON cannot hold": (0, lambda all: changed(all, lambda n, event: event.update(odd=[math.nan, "\ud800"]))),
    "a padding of its own": (8, lambda all: changed(all, padded)),
}
"""How the numbers of a stream go wrong: the events of the connection before it, and those that it sends of all."""


@pytest.mark.parametrize("name", ["responses", "interactions"])
@pytest.mark.parametrize("case", NUMBERINGS)
async def test_text_is_neither_lost_nor_doubled(name: str, case: str, autojump_clock: MockClock) -> None:
    """A server cannot be seen to leave out events whose positions are ids."""
    if name == "interactions" and case in ("a jump", "a late beginning", "one number", "all, from 100 on"):
        return
    frames = STREAMS[name]
    before, sent = NUMBERINGS[case]
    whole = {
        "responses": json.loads(responses_frames()[-1].partition("data: ")[2])["response"],
        "interactions": interaction("requires_action", steps=STEPS, usage={"total_input_tokens": 3}),
    }[name]

    class Stating(Keeper):
        """Sends the state of the answer, if it is asked for."""

        async def script(self, line: Line) -> None:
            while request := (await line.request()).decode():
                self.heads.append(request.partition("\r\n\r\n")[0])
                if self.asked[-1].startswith("GET") and "stream" not in self.asked[-1]:
                    await line.send(answer(json.dumps(whole)))
                elif self.plans and isinstance(plan := self.plans.pop(0), bytes):
                    await line.send(plan)
                    return
                else:
                    await line.send(stream_of(self.body(self.asked[-1])))

    keeper = Stating(frames)
    if before:
        keeper.plans.append(stream_of("".join(frames[:before]), end=False))
    keeper.plans.append(stream_of("".join(sent(frames))))
    async with open_peer(keeper.script) as peer, ms.open_engine([provider_of(name, peer.origin)]) as engine:
        recorder = await read(engine, durable())
        assert recorder.completion.success, recorder.completion.error
        assert recorder.text == recorder.completion.response.text == "".join(TEXTS)
        assert keeper.created == 1
        again = (await read(engine, durable())).completion.response
        assert (recorder.completion.response.content, recorder.completion.response.usage) == (
            again.content,
            again.usage,
        )


async def test_events_of_another_item_are_not_delivered(autojump_clock: MockClock) -> None:
    frames = STREAMS["responses"]
    other = stream_of("".join(changed(frames[8:], as_another)))
    state = answer(json.dumps(resource("completed", id="resp/2")))
    async with keeping("responses", len("".join(frames[:8]).encode()), other, state) as (_, engine):
        recorder = await read(engine, durable())
    assert recorder.text == "".join(TEXTS[:2])
    assert "the server sent another answer, 'resp/2'" in recorder.completion.error_message


@pytest.mark.parametrize("name", ["responses", "interactions"])
@pytest.mark.parametrize(("times", "success"), [(1, True), (5, True), (100, False)])
async def test_a_new_answer_may_not_be_found_for_a_minute(
    name: str, times: int, success: bool, autojump_clock: MockClock
) -> None:
    """Not all servers of a provider know it yet. Once it was read, or an event delivered, it is gone."""
    pending, whole = answer(json.dumps(PENDING[name])), answer(json.dumps(WHOLE[name]))
    missing = answer(error_body("no"), status="404 Not Found")
    async with keeping(name, pending, *[missing] * times, whole) as (keeper, engine):
        started = trio.current_time()
        completion = await engine.start_request(durable()).wait()
        assert completion.success is success
        assert success or completion.error_category is ms.ErrorCategory.NOT_FOUND
        assert trio.current_time() - started < 65
        assert keeper.created == 1
        keeper.plans = [pending, pending, missing, whole]
        assert (await engine.start_request(durable()).wait()).error_category is ms.ErrorCategory.NOT_FOUND


# --- attach ---


@pytest.mark.parametrize("name", STREAMS)
async def test_an_attached_call_reads_the_answer_from_any_event_on(name: str) -> None:
    async with keeping(name, 900) as (keeper, engine):
        recorder = Recorder()
        call = engine.start_stream(durable(), recorder.on_event, recorder.on_completion)
        assert call.resume_token is None
        await call.wait()
        token = call.resume_token
    assert token is not None
    assert KEY not in token
    for after in (None, 0, 1, 5, len(recorder.events), 1000):
        async with keeping(name, 1100) as (keeper, engine):
            again = Recorder()
            attached = engine.attach(token, again.on_event, again.on_completion, after=after)
            assert attached.resume_token == token
            completion = await attached.wait()
            assert completion.response == recorder.completion.response
            assert completion.resumed == 1
            assert again.events == recorder.events[after or 0 :]
            assert keeper.created == 0
            async with engine.stream(token, after=after) as events:
                assert [event async for event in events] == recorder.events[after or 0 :]


async def test_an_answer_of_another_key_is_an_error_that_names_it() -> None:
    token = await token_of("responses")
    missing = answer(error_body("Response not found."), status="404 Not Found")
    async with keeping("responses", missing) as (_, engine):
        recorder = Recorder()
        completion = await engine.attach(token, recorder.on_event, after=3).wait()
    assert completion.error.category is ms.ErrorCategory.NOT_FOUND
    assert "the answer 'resp/1' again: the server has forgotten it, or another key made it" in completion.error.message
    assert recorder.types == ["ERROR"]


async def token_of(name: str) -> str:
    async with keeping(name) as (_, engine):
        call = engine.start_stream(durable())
        await call.wait()
    assert call.resume_token is not None
    return call.resume_token


async def test_a_token_that_does_not_fit_is_refused() -> None:
    token = await token_of("responses")
    other = ms.OpenAIResponses(KEY, "http://127.0.0.1:1/v1", name="other")
    same_name = ms.GeminiInteractions(KEY, "http://127.0.0.1:1", name="p")
    chat = ms.OpenAIChat(KEY, "http://127.0.0.1:1/v1", name="p")
    for provider, given, after, message in (
        (other, token, None, "token: its answer was made by the provider 'p', which this engine does not have"),
        (same_name, token, None, "token: 'p' has the dialect gemini-interactions, not openai-responses"),
        (chat, token, None, "token: 'p' has the dialect openai-chat, not openai-responses"),
        (other, "", None, "token: is no resume token"),
        (other, "resp_1", None, "token: is no resume token"),
        (other, token[:-3], None, "token: is no resume token"),
        (other, token[:-1] + chr(ord(token[-1]) ^ 4), None, "token: is no resume token"),
        *((other, token[:n] + chr(ord(token[n]) ^ 1) + token[n + 1 :], None, "token: is no") for n in range(4, 60)),
        (other, "ms1.ä", None, "token: is no resume token"),
        (other, "ms1.W10", None, "token: is no resume token"),
        (
            other,
            str(ResumeToken("other", "openai-responses", "m", "..", True, None)),
            None,
            "token: is no resume token",
        ),
        (other, 7, None, "token: must be"),
        (other, token, -1, "after: must be a whole number"),
        (other, token, True, "after: must be a whole number"),
    ):
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(ms.InvalidRequestError) as caught:
                engine.attach(given, after=after)  # type: ignore[arg-type]
            assert str(caught.value).startswith(message)
    async with ms.open_engine([other]) as engine:
        with pytest.raises(ms.InvalidRequestError, match="after: is for a resume token"):
            engine.stream(durable(), after=3)


# --- cancelling ---


async def test_cancelling_cancels_the_answer_at_the_server() -> None:
    keeper = Keeper(STREAMS["responses"])

    async def script(line: Line) -> None:
        while request := (await line.request()).decode():
            keeper.heads.append(request)
            if keeper.asked[-1].endswith("/cancel"):
                await line.send(answer(json.dumps(resource("cancelled"))))
            else:
                await line.send(stream_of("".join(keeper.frames[:8]), end=False))

    async with open_peer(script) as peer, ms.open_engine([provider_of("responses", peer.origin)]) as engine:
        recorder = Recorder()
        call = engine.start_stream(durable(), recorder.on_event, recorder.on_completion)
        while "TEXT_DELTA" not in recorder.types:
            await trio.sleep(0)
        call.cancel()
        call.cancel()
        assert not recorder.completions
        completion = await call.wait()
    assert keeper.asked == ["POST /v1/responses", "POST /v1/responses/resp%2F1/cancel"]
    assert completion.error.category is ms.ErrorCategory.CANCELLED
    assert completion.error.message == "the call was cancelled"
    assert completion.response.text == "One, two – "
    assert recorder.types[-1] == "ERROR"


@pytest.mark.parametrize(
    ("reply", "seconds", "why"),
    [
        (b"", 0.0, ": server disconnected without sending a response"),
        (b"wait", 2.0, ": total timeout: the call did not end within 2 s"),
        (answer(error_body("No such answer."), status="404 Not Found"), 0.0, ": No such answer."),
        (answer(error_body("Cannot cancel.")), 0.0, ": Cannot cancel."),
        (answer("<html>Please log in.</html>"), 0.0, ": the answer cannot be read"),
        (answer(json.dumps(resource("cancelled", id="resp/2"))), 0.0, ": the server sent another answer, 'resp/2'"),
    ],
)
async def test_an_unconfirmed_cancellation(reply: bytes, seconds: float, why: str, autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        if b"/cancel" not in await line.request():
            await line.send(stream_of("".join(STREAMS["responses"][:8]), end=False))
            await line.closed_by_peer()
        elif reply == b"wait":
            await line.closed_by_peer()
        else:
            await line.send(reply)

    async with open_peer(script) as peer, ms.open_engine([provider_of("responses", peer.origin)]) as engine:
        recorder = Recorder()
        call = engine.start_stream(durable(), recorder.on_event, recorder.on_completion)
        while "TEXT_DELTA" not in recorder.types:
            await trio.sleep(0)
        started = trio.current_time()
        call.cancel()
        completion = await call.wait()
        assert trio.current_time() - started == pytest.approx(seconds, abs=0.1)
    assert completion.error.category is ms.ErrorCategory.CANCELLED
    assert completion.error.message.startswith(
        f"the call was cancelled; the server has not confirmed that, and may go on with the answer 'resp/1'{why}"
    )


async def test_a_call_is_cancelled_while_it_waits_for_its_answer(autojump_clock: MockClock) -> None:
    async with keeping("responses", answer(json.dumps(PENDING["responses"]))) as (keeper, engine):
        call = engine.start_request(durable())
        while call.resume_token is None:
            await trio.sleep(0)
        call.cancel()
        completion = await call.wait()
    assert completion.error_message == "the call was cancelled"
    assert keeper.asked[-1] == "POST /v1/responses/resp%2F1/cancel"


async def test_an_answer_without_an_id_cannot_be_cancelled() -> None:
    async with (
        open_peer(Line.closed_by_peer) as peer,
        ms.open_engine([provider_of("responses", peer.origin)]) as engine,
    ):
        call = engine.start_stream(durable())
        while call.state is not ms.CallState.WAITING:
            await trio.sleep(0)
        call.cancel()
        completion = await call.wait()
    assert completion.error_message == (
        "the call was cancelled; the server had not named the answer, and may go on with it"
    )


async def test_an_answer_may_go_on_whose_name_was_lost(autojump_clock: MockClock) -> None:
    async with keeping("responses", 0) as (keeper, engine):
        call = engine.start_stream(durable())
        while call.state is not ms.CallState.BACKOFF:
            await trio.sleep(0)
        call.cancel()
        completion = await call.wait()
    assert completion.error_message == (
        "the call was cancelled; the server had not named the answer, and may go on with it"
    )
    assert keeper.asked == ["POST /v1/responses"]


async def test_leaving_the_engine_waits_for_a_cancellation() -> None:
    async with keeping("responses", answer(json.dumps(PENDING["responses"]))) as (keeper, engine):
        call = engine.start_request(durable())
        while call.resume_token is None:
            await trio.sleep(0)
        call.cancel()
    assert keeper.asked[-1] == "POST /v1/responses/resp%2F1/cancel"
    assert call.completion.error_message == "the call was cancelled"


async def test_leaving_the_engine_does_not_cancel_the_answer() -> None:
    async with keeping("responses", answer(json.dumps(PENDING["responses"]))) as (keeper, engine):
        call = engine.start_request(durable())
        while call.resume_token is None:
            await trio.sleep(0)
    assert call.completion.error_category is ms.ErrorCategory.CANCELLED
    assert keeper.asked == ["POST /v1/responses"]


# --- requests ---


@pytest.mark.parametrize(
    "provider", [ms.OpenAIChat(KEY), ms.Anthropic(KEY), ms.Gemini(KEY)], ids=lambda provider: provider.dialect
)
async def test_other_dialects_refuse_and_name_those_that_can(provider: ms.Provider) -> None:
    async with ms.open_engine([provider]) as engine:
        for request in (durable(), durable(durable=ms.Durable(window="2h"))):
            with pytest.raises(ms.InvalidRequestError) as caught:
                engine.start_stream(request)
            assert caught.value.field == "durable"
            assert "OpenAI Responses (ms.OpenAIResponses) and Gemini Interactions" in str(caught.value)


@pytest.mark.parametrize("given", [1, "2h", None])
async def test_the_option_is_a_flag_or_a_durable(given: object) -> None:
    async with ms.open_engine([provider_of("responses", "http://127.0.0.1:1")]) as engine:
        with pytest.raises(ms.InvalidRequestError, match="durable: must be True, False or a Durable"):
            engine.start_stream(durable(durable=given))
    with pytest.raises(ms.InvalidRequestError, match="window"):
        ms.Durable(window=2)  # type: ignore[arg-type]


# --- keys and traffic ---


async def test_a_key_function_is_asked_for_each_connection() -> None:
    keys = iter(["canary-first-key", "canary-second-key"])
    keeper = Keeper(STREAMS["responses"], [1700])
    async with open_peer(keeper.script) as peer:
        provider = ms.OpenAIResponses(lambda: next(keys), peer.url, name="p", idempotency_header="Idempotency-Key")
        async with ms.open_engine([provider]) as engine:
            assert (await read(engine, durable())).completion.success
    assert ["first" in head for head in keeper.heads] == [True, False]
    assert ["second" in head for head in keeper.heads] == [False, True]
    assert ["Idempotency-Key" in head for head in keeper.heads] == [True, False]
    assert keeper.heads[1].count("Authorization") + keeper.heads[1].count("authorization") == 1


async def test_an_answer_stays_with_the_key_that_made_it() -> None:
    keys = ["canary-key-zero-0", "canary-key-one-1"]
    keeper = Keeper(STREAMS["responses"])
    async with open_peer(keeper.script) as peer:
        provider = provider_of("responses", peer.origin, list(keys))
        tokens: list[str] = []
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            for session in "abcd":
                keeper.plans = [1700]
                call = engine.start_stream(durable(session=session))
                assert (await call.wait()).success
                assert call.resume_token is not None
                tokens.append(call.resume_token)
        used = [head.partition("Bearer ")[2][:17].strip() for head in keeper.heads]
        assert used[::2] == used[1::2]
        keeper.heads.clear()
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            for token in tokens:
                assert (await engine.attach(token).wait()).success
        assert [head.partition("Bearer ")[2][:17].strip() for head in keeper.heads] == used[::2]
        only = provider_of("responses", peer.origin, keys[:1])
        async with ms.open_engine([only], traffic=ms.Traffic()) as engine:
            assert (await engine.attach(tokens[0]).wait()).success
    assert not any(key in token for key in keys for token in tokens)


async def test_a_route_takes_a_target_that_keeps_answers() -> None:
    keeper = Keeper(STREAMS["responses"], [1700])
    async with open_peer(keeper.script) as peer:
        providers = [ms.OpenAIChat(KEY, peer.url, name="chat"), provider_of("responses", peer.origin)]
        hedge = ms.Hedge(after=0.001)
        route = ms.Route("fast", targets=["chat/m", "p/m"], hedge=hedge)
        async with ms.open_engine(providers, traffic=ms.Traffic(routes=[route])) as engine:
            call = engine.start_stream(ms.Request("fast", "Hello.", durable=True))
            assert (await call.wait()).success
            assert call.target == "p/m"
    assert keeper.created == 1


async def test_an_attached_call_has_no_cost_of_its_own() -> None:
    token = await token_of("responses")
    traffic = ms.Traffic(price=lambda model, usage: 1.0)
    async with keeping("responses", traffic=traffic) as (_, engine):
        completion = await engine.attach(token).wait()
    assert completion.cost is None
    assert completion.cost_unknown == "another call has created the answer"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("window", "cost"), [("2h", 0.7), ("8h", 0.6), (None, 1.0), ("3h", None)])
async def test_an_answer_in_a_window_costs_its_part(
    stream: bool, window: str | None, cost: float | None, autojump_clock: MockClock
) -> None:
    traffic = ms.Traffic(price=lambda provider, model, usage: 1.0, budgets=[ms.Budget(usd=10)])
    whole = json.loads(responses_frames()[-1].partition("data: ")[2])["response"]
    plans: list[int | bytes] = (
        [1700] if stream else [answer(json.dumps(PENDING["responses"])), answer(json.dumps(whole))]
    )
    async with keeping("responses", *plans, traffic=traffic) as (_, engine):
        request = durable(durable=ms.Durable(window), max_output_tokens=50)
        completion = await (engine.start_stream(request) if stream else engine.start_request(request)).wait()
        assert completion.success
        assert completion.cost == (cost and pytest.approx(cost))
        assert ("no price is known for the window" in completion.cost_unknown) is (cost is None)
        assert engine.statistics().traffic.budgets[0].spent.usd == pytest.approx(1.0 if cost is None else cost)


async def test_a_slot_is_held_while_the_answer_is_read_on(autojump_clock: MockClock) -> None:
    rates = {"p": ms.RateLimit(concurrent=1)}
    async with keeping("responses", 1700, 0, 0, traffic=ms.Traffic(rates=rates)) as (keeper, engine):
        first = engine.start_stream(durable())
        second = engine.start_stream(durable("Second."))
        assert (await first.wait()).success
        assert (await second.wait()).success
        assert len(first.completion.attempt_records) == 1  # type: ignore[union-attr]
        assert engine.statistics().traffic.limiters["p/m"].running == 0
    assert [line[:4] for line in keeper.asked] == ["POST", "GET ", "GET ", "GET ", "POST"]


# --- doors ---


async def test_a_recording_has_every_connection(tmp_path: Path) -> None:
    async with keeping("responses", 1700) as (_, engine):
        with engine.record(tmp_path / "r.jsonl") as recording:
            assert (await read(engine, durable(tags={"a": "b"}))).completion.tags == {"a": "b"}
        assert recording.exchanges == 2
    assert KEY not in (tmp_path / "r.jsonl").read_text()


def threaded(keeper: Keeper) -> Serve:
    """Return the server for a thread."""

    def serve(wire: Wire) -> None:
        while True:
            head = wire.head()
            wire.body(head)
            keeper.heads.append(head.decode())
            body = keeper.body(keeper.asked[-1])
            plan = keeper.plans.pop(0) if keeper.plans else None
            if plan is not None:
                assert isinstance(plan, int)
                wire.send(stream_of(body[:plan], end=False))
                return
            wire.send(stream_of(body))

    return serve


def test_threads_read_durable_answers() -> None:
    keeper, recorder = Keeper(STREAMS["responses"], [1700]), Recorder()
    with serving(threaded(keeper)) as server, open_portal([provider_of("responses", server.url)]) as portal:
        call = portal.start_stream(durable(), recorder.on_event, recorder.on_completion)
        assert call.wait().resumed == 1
        token, again = call.resume_token, Recorder()
        assert token is not None
        attached = portal.attach(token, again.on_event, again.on_completion, after=4)
        assert attached.wait().response == recorder.completion.response
        assert attached.resume_token == token
        assert again.events == recorder.events[4:]
        with portal.stream(token, after=2) as events:
            assert list(events) == recorder.events[2:]
    assert keeper.created == 1


def test_asyncio_programs_read_durable_answers() -> None:
    keeper, recorder = Keeper(STREAMS["interactions"], [1700, 1700]), Recorder()

    async def main(origin: str) -> None:
        async with ms.open_engine([provider_of("interactions", origin)]) as engine:
            call = engine.start_stream(durable(), recorder.on_event, recorder.on_completion)
            assert (await call.wait()).resumed == 1
            token, again = call.resume_token, Recorder()
            assert token is not None
            attached = engine.attach(token, again.on_event, again.on_completion, after=4)
            assert (await attached.wait()).response == recorder.completion.response
            assert again.events == recorder.events[4:]
            async with engine.stream(token, after=2) as events:
                assert [event async for event in events] == recorder.events[2:]

    with serving(threaded(keeper)) as server:
        asyncio.run(main(server.url))
    assert keeper.created == 1


KILLED = """
import os, random, signal, sys, trio
import manystream as ms

name, url, folder, count = *sys.argv[1:4], int(sys.argv[4])
kind = {"openai-responses": ms.OpenAIResponses, "gemini-interactions": ms.GeminiInteractions}[name]
moments = random.Random(7)


async def main(path, left):
    file = os.open(path, os.O_WRONLY | os.O_CREAT)

    def on_event(event):
        nonlocal left
        if event.type is ms.EventType.START:
            os.write(file, (call.resume_token + "\\n").encode())
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(file, (repr(event) + "\\n").encode())

    async with ms.open_engine([kind("key", url, name="p")]) as engine:
        call = engine.start_stream(ms.Request("m", f"Hello, {path}.", durable=True), on_event)
        await call.wait()


trio.run(main, os.devnull, 1000)  # imports what calls need
for number in range(count):
    left = moments.randrange(12)
    child = os.fork()
    if child == 0:
        trio.run(main, f"{folder}/{number}", left)
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Starts durable calls, each in a process that is killed at an event. Each writes its token, and the events it has."""


@pytest.mark.parametrize("kind", [ms.OpenAIResponses, ms.GeminiInteractions])
@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.soak)])
def test_the_rest_is_read_after_a_kill(
    tmp_path: Path, count: int, kind: type[ms.OpenAIResponses | ms.GeminiInteractions]
) -> None:
    with open_simulator_thread("events=10") as simulator:
        name = kind("key").dialect
        url = simulator.base_urls[name]
        subprocess.run([sys.executable, "-c", KILLED, name, url, str(tmp_path), str(count)], check=True, timeout=100)
        with open_portal([kind("key", url, name="p")]) as portal:
            for number in range(count):
                token, *kept = (tmp_path / str(number)).read_text().splitlines()
                whole, after = Recorder(), Recorder()
                assert portal.attach(token, whole.on_event).wait().success
                assert portal.attach(token, after.on_event, after=len(kept)).wait().success
                assert [*kept, *map(repr, after.events)] == list(map(repr, whole.events))
                assert whole.types[-1] == "DONE"


@pytest.mark.parametrize("kind", ["text", "thinking", "tools"])
@pytest.mark.parametrize("name", ["openai-responses", "gemini-interactions"])
async def test_the_simulator_s_answers_are_whole_after_cuts(name: str, kind: str) -> None:
    recorders: list[Recorder] = []
    for setting in (f"events=30 kind={kind}", f"events=30 kind={kind} cut=7"):
        with open_simulator_thread(setting) as simulator:
            url = simulator.base_urls[name]
            provider = ms.GeminiInteractions("k", url) if "gemini" in name else ms.OpenAIResponses("k", url)
            async with ms.open_engine([provider], retry=STEADY) as engine:
                recorders.append(await read(engine, durable("Name a river.")))
    whole, cut = recorders
    assert cut.completion.resumed > whole.completion.resumed == 0
    assert cut.completion.attempts == 1
    assert (cut.types, cut.text) == (whole.types, whole.text)
