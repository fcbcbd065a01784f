"""A canary key must not appear in any output of the library, with everything logged.

The outputs: recordings, spans and metrics, observers, batches, the bridges to asyncio and to threads, the command line.
`test_secrets.py` checks errors and logs for each dialect and each form of echo.
"""

import asyncio
import functools
import gc
import json
import logging
import os
import sys
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream.batch import Batch, BatchError, Journal, read_lines
from manystream.portal import open_portal
from tests.faults.test_secrets import ECHOES, KEY, everything_said, found_in
from tests.support.addresses import closed_port
from tests.support.peers import NO_RETRY, Line, answer, chat_stream, hello, open_peer, stream_of
from tests.support.telemetry import Telemetry

ROOT = Path(__file__).resolve().parent.parent.parent
FINE = stream_of(*chat_stream("fine"))


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("manystream").setLevel(logging.DEBUG)
    return caplog


@asynccontextmanager
async def open_gossip() -> AsyncGenerator[tuple[ms.Provider, int]]:
    """Open a server that echoes the key in each way in turn, then responds correctly, and starts over.

    Yields the provider and the number of ways.
    """
    replies: list[Callable[[bytes], bytes]] = [*ECHOES, lambda request: FINE]
    count = 0

    async def script(line: Line) -> None:
        nonlocal count
        while request := await line.request():
            count += 1
            await line.send(replies[(count - 1) % len(replies)](request))

    async with open_peer(script) as peer:
        yield ms.OpenAIChat(api_key=KEY, base_url=peer.url, name="gossip"), len(replies)


class Nosy(ms.Observer):
    """An observer that prints everything it receives, and all objects that are reachable from it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def call_started(self, call: ms.Call, start: object) -> None:
        self.seen.append(everything_said(call, start, getattr(start, "provider", None)))

    def attempt_started(self, call: ms.Call, number: int) -> None:
        self.seen.append(everything_said(call))

    def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
        self.seen.append(everything_said(call, completion, completion.error, completion.headers))

    def connection_opened(self, origin: str) -> None:
        self.seen.append(origin)

    def connection_closed(self, origin: str, served: int) -> None:
        self.seen.append(origin)


async def test_no_observer_receives_the_key(log: pytest.LogCaptureFixture) -> None:
    nosy = Nosy()
    async with open_gossip() as (provider, ways), ms.open_engine([provider], observer=nosy, retry=NO_RETRY) as engine:
        for _ in range(ways):
            await engine.start_stream(hello()).wait()
            runtime = engine._calls.starter.runtime
            nosy.seen.append(everything_said(engine, engine.statistics(), runtime.pool, runtime.loop))
    assert len(nosy.seen) > 4 * ways
    assert found_in("\n".join(nosy.seen)) == []
    assert found_in(log.text) == []


async def test_no_span_or_metric_contains_the_key(log: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    async with (
        open_gossip() as (provider, ways),
        ms.open_engine([provider], observer=telemetry.observer, retry=NO_RETRY) as engine,
    ):
        for _ in range(ways):
            await engine.start_stream(hello()).wait()
            await engine.start_request(hello()).wait()
    assert len(telemetry.spans) == 2 * ways
    said = "\n".join(span.to_json() for span in telemetry.spans) + repr(telemetry.metrics())
    assert "gossip" in said
    assert found_in(said) == []
    assert found_in(log.text) == []


async def test_no_recording_contains_the_key(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "traffic.jsonl"
    async with open_gossip() as (provider, ways), ms.open_engine([provider], retry=NO_RETRY) as engine:
        with engine.record(path) as recording:
            for _ in range(ways):
                await engine.start_stream(hello()).wait()
            said = repr(recording)
    text = path.read_text("utf-8")
    assert len(text.splitlines()) == ways
    assert found_in(text + said) == []
    assert found_in(log.text) == []


async def test_no_file_of_a_batch_contains_the_key(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    prompts, answers = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    said: list[object] = []
    async with open_gossip() as (provider, ways):
        lines = [{"id": str(n), "messages": [{"role": "user", "content": "hi"}]} for n in range(ways)]
        prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        for _ in range(ways):  # a refused key ends a batch; the next run continues it
            with Journal(answers) as journal:
                async with ms.open_engine([provider], retry=NO_RETRY) as engine:
                    batch = Batch(engine, journal, lambda named: "gossip/m", source="p", provider="gossip")
                    try:
                        await batch.run(read_lines(prompts))
                    except BatchError as error:
                        said.append(error)
                    said += [batch, batch.counters]
    written = "".join(path.read_text("utf-8") for path in tmp_path.iterdir() if path != prompts)
    assert "fine" in written
    assert "redirects are not followed" in written
    assert found_in(everything_said(*said) + written) == []
    assert found_in(log.text) == []


async def test_no_bridge_shows_the_key(log: pytest.LogCaptureFixture) -> None:
    async def in_asyncio(provider: ms.Provider, ways: int) -> list[object]:
        said: list[object] = []
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            for _ in range(ways):
                call = engine.start_stream(hello())
                completion = await call.wait()
                said += [engine, call, completion, completion.error, engine.statistics()]
                try:
                    await engine.request(hello())
                except ms.ProviderError as error:
                    said.append(error)
        return said

    def in_a_thread(provider: ms.Provider, ways: int) -> list[object]:
        said: list[object] = []
        with open_portal([provider], retry=NO_RETRY) as portal:
            for _ in range(ways):
                call = portal.start_stream(hello())
                completion = call.wait()
                said += [portal, call, completion, completion.error]
                try:
                    portal.request(hello())
                except ms.ProviderError as error:
                    said.append(error)
        return said

    async with open_gossip() as (provider, ways):
        run = functools.partial(asyncio.run, in_asyncio(provider, ways))
        said = await trio.to_thread.run_sync(run) + await trio.to_thread.run_sync(in_a_thread, provider, ways)
    assert sum(isinstance(thing, ms.ProviderError) for thing in said) > 3 * (ways - 2)
    assert found_in(everything_said(*said)) == []
    assert found_in(log.text) == []


COMMANDS = {
    "run": ["run", "hello", "--model", "m", "--base-url", "{url}"],
    "run, unstreamed": ["run", "hello", "--model", "m", "--base-url", "{url}", "--no-stream"],
    "run, refused": ["run", "hello", "--model", "m", "--base-url", "http://127.0.0.1:{closed}/v1"],
    "doctor": ["doctor", "--base-url", "{url}", "--timeout", "2"],
    "doctor, refused": ["doctor", "--base-url", "http://127.0.0.1:{closed}/v1", "--timeout", "2"],
    "batch": ["batch", "{prompts}", "-o", "{answers}", "--model", "m", "--base-url", "{url}"],
}
PROGRAM = """
import logging, sys
logging.basicConfig(level=1)
from manystream.cli import main
for _ in range(int(sys.argv[1])):
    main(sys.argv[2:])
"""


@pytest.mark.parametrize("name", COMMANDS)
async def test_no_command_prints_the_key(name: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "1", "messages": [{"role": "user", "content": "hi"}]}\n', "utf-8")
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    environment |= {"OPENAI_API_KEY": KEY, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    times = "2" if "refused" in name else "5"
    async with open_gossip() as (provider, _):
        places = {"url": provider.base_url, "closed": closed_port(), "prompts": prompts}
        arguments = [word.format(**places, answers=tmp_path / "answers.jsonl") for word in COMMANDS[name]]
        finished = await trio.run_process(
            [sys.executable, "-c", PROGRAM, times, *arguments],
            env=environment, cwd=tmp_path, capture_stdout=True, capture_stderr=True, check=False,
        )  # fmt: skip
    assert finished.returncode == 0
    said = (finished.stdout + finished.stderr).decode()
    said += "".join(path.read_text("utf-8") for path in tmp_path.glob("answers*"))
    assert "Traceback" not in said
    assert len(said) > 100
    assert found_in(said) == []


async def test_an_error_keeps_no_frame_with_the_key() -> None:
    """A crash reporter prints the variables of an exception's frames, among which would be the request head."""

    async def script(line: Line) -> None:
        while request := await line.request():
            await line.send(answer(b"<!" + request * 1000, kind="application/json"))

    async with open_peer(script) as peer:
        provider = ms.OpenAIChat(api_key=KEY, base_url=peer.url)
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            errors = [
                (await engine.start_request(hello()).wait()).error,
                (await engine.start_stream(hello()).wait()).error,
            ]
    gc.collect()
    for error in errors:
        assert 3000 < len(error.body) <= 4096
        seen: list[BaseException] = [error]
        while cause := seen[-1].__cause__ or seen[-1].__context__:
            seen.append(cause)
        for one in seen:
            frames = [frame for frame, _ in traceback.walk_tb(one.__traceback__)]
            assert found_in(repr([frame.f_locals for frame in frames])) == []
            assert found_in(repr(vars(one))) == []
            assert sum(len(value) for value in vars(one).values() if isinstance(value, str | bytes)) < 10_000
