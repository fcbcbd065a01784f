"""Each message on the page of troubleshooting is caused here, and has the words of its row."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

import pytest

import manystream as ms
from manystream.simulator import open_simulator, open_simulator_thread
from tests.docs.test_blocks import environment
from tests.docs.test_lists import guide

CODE_CELL = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
ONCE = ms.Retry(max_attempts=1)


def rows() -> list[str]:
    """The messages of the page's tables."""
    return CODE_CELL.findall(guide("troubleshooting"))


def rows_of(text: str) -> list[str]:
    """The rows whose words a text has from its beginning on."""
    return [row for row in rows() if re.match(".*?".join(map(re.escape, row.split("…"))), text, re.DOTALL)]


def check(text: str, caused: set[str]) -> None:
    found = rows_of(text)
    assert found, f"no row of the page fits {text!r}"
    caused.update(found)


@asynccontextmanager
async def opened(provider: ms.Provider | None = None, **options: Unpack[ms.EngineOptions]) -> AsyncIterator[ms.Engine]:
    """An engine at a simulator, or with a provider, that knows no variables."""
    with open_simulator_thread() as simulator:
        own = provider or ms.OpenAIChat("any", simulator.base_urls["openai-chat"], name="openai")
        async with ms.open_engine([own], environment={}, **options) as engine:
            yield engine


def asked(text: str = "Hello", model: str = "gpt-5-mini", **options: Unpack[ms.RequestOptions]) -> ms.Request:
    return ms.Request(model, text, **{"retry": ONCE, **options})


async def start(provider: ms.Provider | None, request: ms.Request, **options: Unpack[ms.EngineOptions]) -> str:
    """The error of a call: its message, or as a program prints it, whichever a row has."""
    async with opened(provider, **options) as engine:
        error = (await engine.start_stream(request).wait()).error
    assert error is not None
    return error.message if rows_of(error.message) else str(error)


async def simulated(options: str, timeouts: ms.Timeouts | None = None, **others: Unpack[ms.EngineOptions]) -> str:
    return await start(None, asked(f"simulate: {options}", timeouts=timeouts), **others)


def at(url: str, name: str = "openai") -> ms.OpenAIChat:
    return ms.OpenAIChat("any", url, name=name)


# --- an engine does not open, or a call does not start ---


async def no_loop() -> None:
    await asyncio.to_thread(ms.open_engine([]).__aenter__().send, None)  # type: ignore[attr-defined]


async def from_another_loop() -> None:
    async with opened() as engine:
        await asyncio.to_thread(lambda: asyncio.run(engine.request(asked())))


async def after_the_block() -> None:
    async with opened() as engine:
        pass
    engine.start_stream(asked())


async def after_drain() -> None:
    async with opened() as engine:
        await engine.drain(1)
        engine.start_stream(asked())


async def unknown_model() -> None:
    async with ms.open_engine([ms.Anthropic("k"), ms.Gemini("k")]) as engine:
        engine.start_stream(asked(model="grok-4"))


async def coroutine_callback() -> None:
    async def on_event(event: ms.Event) -> None: ...

    async with opened() as engine:
        engine.start_stream(asked(), on_event)  # type: ignore[arg-type]


async def without_its_block() -> None:
    async with opened() as engine:
        async for _ in engine.stream(asked()):
            pass


async def too_many() -> None:
    async with opened(limits=ms.EngineLimits(max_calls=1)) as engine:
        engine.start_stream(asked())
        engine.start_stream(asked())


async def url_as_key() -> None:
    ms.OpenAIChat("http://127.0.0.1:8000/v1")


async def no_key() -> None:
    await start(ms.OpenAIChat(), asked())


async def line_break_in_key() -> None:
    await start(ms.OpenAIChat("sk-a\n", "http://127.0.0.1:9/v1"), asked())


async def thinking_budget() -> None:
    await start(None, asked(thinking=ms.ThinkingConfig(budget_tokens=4_096)))


async def durable_chat() -> None:
    await start(None, asked(durable=True))


async def uncovered_rate() -> None:
    await start(None, asked(), traffic=ms.Traffic(rates={"opnai": ms.RateLimit(concurrent=1)}))


async def dollars_without_prices() -> None:
    await start(None, asked(), traffic=ms.Traffic(budgets=[ms.Budget(usd=5)]))


async def several_keys() -> None:
    await start(ms.OpenAIChat(["a", "b"], "http://127.0.0.1:9/v1"), asked())


async def socks() -> None:
    await start(None, asked(), proxy="socks5://127.0.0.1:1")


async def no_extra() -> None:
    code = "import sys; sys.modules['httpx'] = None; import manystream.httpx"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    raise ImportError(done.stderr.strip().splitlines()[-1].removeprefix("ImportError: "))


REFUSED = (
    no_loop, from_another_loop, after_the_block, after_drain, unknown_model, coroutine_callback, without_its_block,
    too_many, url_as_key, no_key, line_break_in_key, thinking_budget, durable_chat, uncovered_rate,
    dollars_without_prices, several_keys, socks, no_extra,
)  # fmt: skip


async def dropped(caused: set[str]) -> None:
    """The block of an engine that nobody holds: a warning, and the error of its calls."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        engine = await ms.open_engine([at("http://127.0.0.1:9/v1")]).__aenter__()
        gc.collect()
        while not engine.closed:
            await asyncio.sleep(0)
        with pytest.raises(ms.EngineClosedError, match="was dropped, which left its block"):
            engine.start_stream(asked())
    check(next(str(each.message) for each in warned if each.category is ResourceWarning), caused)


# --- a call fails ---


async def budget() -> str:
    traffic = ms.Traffic(budgets=[ms.Budget(output_tokens=5)])
    return await start(None, asked(max_output_tokens=100), traffic=traffic)


async def callback() -> str:
    def on_event(event: ms.Event) -> None:
        raise KeyError("what?")

    async with opened() as engine:
        return (await engine.start_stream(asked(), on_event).wait()).error_message or ""


async def in_the_queue() -> str:
    async with opened(traffic=ms.Traffic(rates={"*": ms.RateLimit(concurrent=1)})) as engine:
        engine.start_stream(asked("simulate: delay=9"))
        late = engine.start_stream(asked(timeouts=ms.Timeouts(queue=0.2)))
        return (await late.wait()).error_message or ""


async def never_connects() -> str:
    async def dial(host: str, port: int) -> socket.socket:
        await asyncio.sleep(60)
        raise OSError

    return await start(None, asked(timeouts=ms.Timeouts(connect=0.2)), dial=dial)


async def away() -> str:
    async with opened(at("http://127.0.0.1:9/v1"), traffic=ms.Traffic(outage=0.3)) as engine:
        calls = [engine.start_stream(ms.Request("openai/m", "Hello")) for _ in range(4)]
        return [(await call.wait()).error_message or "" for call in calls][-1]


async def reserve() -> str:
    retry = ms.Retry(base=0, jitter=0)
    return await start(None, asked("simulate: fail=500", retry=retry), limits=ms.EngineLimits(retry_reserve=0))


async def schema() -> str:
    far: ms.JSONObject = {"type": "string", "minLength": 90_000}
    return await start(None, asked(response_schema={"type": "object", "properties": {"a": far}, "required": ["a"]}))


async def tls_on_a_plain_port() -> str:
    with open_simulator_thread() as simulator:
        return await start(at(simulator.base_urls["openai-chat"].replace("http:", "https:")), asked())


async def without_v1() -> str:
    with open_simulator_thread() as simulator:
        return await start(at(simulator.origin), asked())


FAILURES: tuple[Callable[[], object], ...] = (
    lambda: simulated("fail=429"),
    lambda: simulated("fail=401"),
    lambda: start(at("http://127.0.0.1:9/v1"), asked()),
    lambda: start(at("http://models.example/v1"), asked()),  # the lookup fails: see the test
    never_connects,
    tls_on_a_plain_port,
    without_v1,
    lambda: simulated("delay=9", ms.Timeouts(first_byte=0.2)),
    lambda: simulated("stall=2,events=9", ms.Timeouts(idle=0.2)),
    lambda: simulated("delay=9", ms.Timeouts(total=0.2)),
    in_the_queue,
    lambda: simulated("cut=3"),
    lambda: simulated("drop=1"),
    lambda: simulated("malformed=2"),
    schema,
    away,
    budget,
    reserve,
    callback,
)


# --- lines of the log ---


class Broken(ms.Observer):
    def call_started(self, call: ms.Call, start: ms.CallStart) -> None:
        raise KeyError("what?")


async def log_lines() -> None:
    def raises(completion: ms.Completion) -> None:
        raise KeyError("what?")

    async with opened(observer=Broken()) as engine:
        await engine.start_request(asked(), raises).wait()
    await away()
    with open_simulator(limits=["requests-per-minute=60 by-second=1"]) as limited:
        provider = at(limited.base_urls["openai-chat"])
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            for _ in range(10):
                engine.start_stream(ms.Request("openai/gpt-5-mini", "Hi"))
            limiter = engine.statistics().traffic.limiters["openai/gpt-5-mini"]
            while not (limiter.reported and limiter.learned):
                await asyncio.sleep(0.01)
                limiter = engine.statistics().traffic.limiters["openai/gpt-5-mini"]


# --- commands ---


def run(folder: Path, *arguments: str) -> str:
    """The last line of a command that fails."""
    done = subprocess.run(
        [sys.executable, "-m", "manystream", *arguments], cwd=folder, env=environment(folder), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode
    return done.stderr.strip().splitlines()[-1]


def commands(folder: Path, caused: set[str]) -> None:
    (folder / "prompts.jsonl").write_text('{"id": "1", "prompt": "Hi"}\n', "utf-8")
    (folder / "misspelt.jsonl").write_text('{"id": "1", "prompt": "Hi", "max_tokens": 5}\n', "utf-8")
    (folder / "notes.txt").write_text("hello\n", "utf-8")
    with open_simulator_thread() as simulator:
        taken = simulator.origin.rpartition(":")[2]
        check(run(folder, "simulate", "--port", taken), caused)
    check(run(folder, "run", "Hi"), caused)
    check(run(folder, "top"), caused)
    check(run(folder, "batch", "prompts.jsonl", "-o", "notes.txt", "--simulate"), caused)
    check(run(folder, "batch", "prompts.jsonl", "-o", "a.jsonl"), caused)
    run(folder, "batch", "misspelt.jsonl", "-o", "b.jsonl", "--simulate")
    check((folder / "b.errors.jsonl").read_text("utf-8"), caused)


def test_each_message_is_caused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    caused: set[str] = set()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for cause in REFUSED:
        with pytest.raises((ms.ManystreamError, RuntimeError, ImportError)) as raised:
            asyncio.run(cause())
        check(str(raised.value), caused)
    asyncio.run(dropped(caused))
    with caplog.at_level("INFO", "manystream"):
        asyncio.run(log_lines())
    for record in caplog.records:
        caused.update(rows_of(record.getMessage()))
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for failure in FAILURES:
        check(asyncio.run(failure()), caused)  # type: ignore[arg-type]
    monkeypatch.undo()
    commands(tmp_path, caused)
    assert not set(rows()) - caused
