"""Chaos: gateway, durable answers, batches, budgets and cache at once, with a hostile provider and hostile clients.

`make chaos MINUTES=60` runs it. Processes are killed, rows of the cache are damaged and its file is locked. What must
hold is counted at the server and by the caller: each request is answered or failed once, each line of a batch is charged
and recorded once, no call exceeds its budget, no file of another program changes, nothing is left, and the key is in no
output.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import pytest
import trio

import manystream as ms
from manystream.cache import AnswerCache
from manystream.simulator import Simulator, open_simulator
from tests.soak.hostile import KEY
from tests.support.batches import records, write
from tests.support.peers import open_descriptors

ROOT = Path(__file__).resolve().parent.parent.parent
MINUTES = float(os.environ.get("MANYSTREAM_SOAK_MINUTES") or 5)
SEED = os.environ.get("MANYSTREAM_CHAOS_SEED") or "1"
SECRETS = [form(KEY.encode()) for form in (bytes, base64.b64encode)]
ENVIRONMENT = {
    **os.environ, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "GEMINI_API_KEY": KEY, "GATEWAY_KEY": "any",
}  # fmt: skip
ROUND = 45.0
"""The seconds of a round. The gateway is a new process in each."""

LINES = 30
LONGEST = 300.0
CALLS = 15
"""The calls that the budget of a tenant allows."""

DIALECTS = {
    "chat": ms.OpenAIChat, "responses": ms.OpenAIResponses, "anthropic": ms.Anthropic, "gemini": ms.Gemini,
    "interactions": ms.GeminiInteractions,
}  # fmt: skip
PATHS = {"chat": "/v1", "responses": "/v1"}
FORMS: dict[str, tuple[str, dict[str, object]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "{}"}]}),
    "responses": ("/v1/responses", {"input": "{}"}),
    "anthropic": ("/v1/messages", {"messages": [{"role": "user", "content": "{}"}], "max_tokens": 99}),
}
ENDS = (ms.EventType.DONE, ms.EventType.ERROR)
TERMINALS = (b"data: [DONE]", b'"response.completed"', b'"message_stop"', b"error")


@dataclass
class Books:
    """What happened, by name, and what must not have."""

    counts: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])

    def expect(self, holds: object, what: str) -> None:
        if not holds:
            self.wrong.append(what)
            print("WRONG", what, flush=True)

    def look_for_keys(self, data: bytes, where: str) -> None:
        self.counts["bytes searched"] += len(data)
        self.expect(not any(secret in data for secret in SECRETS), f"the key is in {where}")


def providers(port: int) -> list[ms.Provider]:
    origin = f"http://127.0.0.1:{port}"
    return [made(KEY, origin + PATHS.get(name, ""), name=name) for name, made in DIALECTS.items()]


def digest(folder: Path) -> dict[str, str]:
    """Return what each file of a folder holds, with its mode and time."""
    found = {path: path.lstat() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        path.name: f"{hashlib.sha256(path.read_bytes()).hexdigest()} {stat.st_mode} {stat.st_mtime_ns}"
        for path, stat in found.items()
    }


def children() -> list[int]:
    found = [Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task")]
    return [int(pid) for pid in " ".join(found).split()]


async def eventually(condition: Any, seconds: float = 30.0) -> bool:
    with trio.move_on_after(seconds):
        while not condition():
            await trio.sleep(0.05)
    return bool(condition())


class Chaos:
    """The world of one run. `folder` has all files, `foreign` those of other programs."""

    def __init__(self, folder: Path, simulator: Simulator, port: int, books: Books) -> None:
        self.folder = folder
        self.simulator = simulator
        self.port = port
        self.books = books
        self.chance = random.Random(SEED)
        self.numbers = iter(range(1, 1 << 60))
        self.kept: list[tuple[str, list[ms.Event], str]] = []
        self.running: dict[str, tuple[bool, list[ms.Event], list[ms.Completion]]] = {}
        self.spent: dict[str, tuple[float, float]] = {}
        self.batches: list[str] = []
        self.foreign = folder / "foreign"
        self.foreign.mkdir()
        (self.foreign / "notes.txt").write_text("foreign\n")
        (self.foreign / "trace.jsonl").write_text('{"slot": 1}\n')
        with contextlib.closing(sqlite3.connect(self.foreign / "foreign.sqlite")) as database, database:
            database.execute("CREATE TABLE theirs (a)")
        self.before = digest(self.foreign)
        for name in ("traces", "cache"):
            (folder / name).mkdir(mode=0o700)
        (folder / "traces" / "linked.jsonl").symlink_to(self.foreign / "trace.jsonl")

    # --- calls of this process: the cache, budgets, callers that leave, durable answers ---

    async def truth(self, model: str, text: str, durable: bool) -> str:
        """Return the text that the simulator answers."""
        async with ms.open_engine(providers(self.simulator.port), proxy="") as engine:
            return (await engine.request(ms.Request(model, [ms.Message.user(text)], max_output_tokens=200))).text

    async def call(self, engine: ms.Engine) -> None:
        """Make one call, perhaps cancel it, and check its events and its completion."""
        number, durable = next(self.numbers), self.chance.random() < 0.3
        name = self.chance.choice(["responses", "interactions"] if durable else list(DIALECTS))
        tenant = f"tenant-{number // 24}"
        asked = f"prompt {self.chance.randrange(60)}" if not durable and number % 2 else f"{tenant} asks {number}"
        stream, leaves = self.chance.random() < 0.7, self.chance.random() < 0.15
        model = f"{name}/sim-text@events={self.chance.choice([1, 5, 40])}"
        events, completions = list[ms.Event](), list[ms.Completion]()
        request = ms.Request(
            model, [ms.Message.user(asked)], max_output_tokens=200, durable=durable,
            tenant=tenant if asked.startswith("tenant") else None, timeouts=ms.Timeouts(total=60, idle=6, first_byte=6),
        )  # fmt: skip
        started = (
            engine.start_stream(request, events.append, completions.append)
            if stream
            else engine.start_request(request, completions.append)
        )
        try:
            if leaves:
                await trio.sleep(self.chance.random() * 0.3)
                started.cancel()
            with trio.fail_after(LONGEST):
                await started.wait()
        except trio.Cancelled:  # the round ends
            if durable and started.resume_token is not None and not leaves and stream:
                self.kept.append((started.resume_token, events, f"{model} {asked}"))
            self.running[f"{model} {asked}"] = stream, events, completions
            raise
        except trio.TooSlowError:
            self.books.expect(False, f"no end of {request}")
        self.check(f"{model} {asked}", stream, events, completions)
        if completions and completions[0].success:
            text = await self.truth(model, asked, durable)
            response = completions[0].response
            self.books.expect(response is not None and response.text == text, f"{model} {asked}: {response}")

    def check(self, what: str, stream: bool, events: list[ms.Event], completions: list[ms.Completion]) -> None:
        self.books.expect(len(completions) == 1, f"{what}: {len(completions)} completions")
        for completion in completions:
            outcome = "success" if completion.success else str(completion.error_category)
            self.books.counts[f"calls: {outcome}"] += 1
            self.books.counts["calls resumed"] += bool(completion.resumed)
            self.books.counts["calls cached"] += completion.cached
            self.books.expect("internal error" not in str(completion.error), f"{what}: {completion.error!r}")
            self.books.look_for_keys(f"{completion!r} {completion.error!r}".encode(), what)
            if stream:
                ends = sum(event.type in ENDS for event in events)
                self.books.expect(ends == 1, f"{what}: {ends} terminal events")
                text = "".join(event.text for event in events if isinstance(event, ms.TextDelta))
                response = completion.response
                self.books.expect(text == (response.text if response else ""), f"{what}: {text!r}, {response}")

    async def attach(self, engine: ms.Engine, token: str, before: list[ms.Event], what: str) -> None:
        """Read on in an answer of an engine that has ended."""
        before = [event for event in before if event.type is not ms.EventType.ERROR]
        events, completions = [*before], list[ms.Completion]()
        with trio.fail_after(LONGEST):
            await engine.attach(token, events.append, completions.append, after=len(before)).wait()
        self.books.counts[f"attached: {'success' if completions[0].success else completions[0].error_category}"] += 1
        if completions[0].success and isinstance(events[-1], ms.Done):
            text = "".join(event.text for event in events if isinstance(event, ms.TextDelta))
            self.books.expect(text == await self.truth(*what.split(" ", 1), True), f"{what}: attached, {text!r}")

    async def calls(self, _number: int) -> None:
        """Make calls for a round, in an engine of its own with a cache that is damaged meanwhile."""
        path, stop = self.folder / "cache" / "answers.sqlite", threading.Event()
        budgets = [ms.Budget(calls=lambda tenant: CALLS if tenant else math.inf, per="tenant")]
        kept, self.kept = self.kept, []
        damager = threading.Thread(target=self.damage, args=(path, stop, self.chance.randrange(1 << 30)))
        with AnswerCache(path) as cache:
            damager.start()
            try:
                async with ms.open_engine(
                    providers(self.port), traffic=ms.Traffic(budgets=budgets), cache=cache, proxy="",
                    retry=ms.Retry(max_attempts=4, base=0.05, jitter=0.1, max_hint=2.0),
                ) as engine:  # fmt: skip
                    with trio.move_on_after(ROUND):
                        async with trio.open_nursery() as nursery:
                            for token, events, what in kept:
                                nursery.start_soon(self.attach, engine, token, events, what)
                            for _ in range(8):
                                nursery.start_soon(self.go_on, engine)
                for what, (stream, events, completions) in self.running.items():
                    self.check(what, stream, events, completions)
                self.running.clear()
                for one in engine.statistics().traffic.budgets:
                    what = f"budget of {one.tenant}: {one}"
                    self.books.expect(one.reserved == type(one.reserved)() and not one.waiting, what)
                    if one.tenant is not None:
                        self.spent[one.tenant] = (one.spent.calls, one.limit.calls)
            finally:
                stop.set()
                await trio.to_thread.run_sync(damager.join)

    async def go_on(self, engine: ms.Engine) -> None:
        while True:
            await self.call(engine)
            await trio.sleep(0.1)

    @staticmethod
    def damage(path: Path, stop: threading.Event, seed: int) -> None:
        """Damage rows of the cache, and hold its lock."""
        chance = random.Random(seed)
        changes = (
            "UPDATE answers SET body = x'00'", "UPDATE answers SET head = NULL", "UPDATE answers SET made = 'x'",
            "UPDATE answers SET body = 7, size = 'x'", "UPDATE answers SET made = 9e999", "DELETE FROM answers",
        )  # fmt: skip
        while not stop.wait(chance.uniform(0.2, 2.0)):
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=1)) as database:
                database.execute("BEGIN EXCLUSIVE" if chance.random() < 0.5 else "BEGIN IMMEDIATE")
                database.execute(f"{chance.choice(changes)} WHERE rowid % 3 = {chance.randrange(3)}")
                stop.wait(chance.choice([0, 0, 0.5, 7.0]))
                database.execute("COMMIT")

    # --- the gateway: a process of its own, with clients that leave, never read or send garbage ---

    @asynccontextmanager
    async def process(self, name: str, *arguments: str) -> AsyncIterator[trio.Process]:
        """Run a command of the product; what it prints goes to files, which are searched for the key at the end."""
        with open(self.folder / f"{name}.out", "ab") as out, open(self.folder / f"{name}.err", "ab") as err:
            command = [sys.executable, "-m", "manystream", *arguments]
            process = await trio.lowlevel.open_process(command, cwd=ROOT, env=ENVIRONMENT, stdout=out, stderr=err)
        try:
            yield process
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    async def gateway(self, number: int) -> None:
        """Run a gateway for a round, then end it by SIGTERM or SIGKILL."""
        name, kills = f"serve{number}", self.chance.random() < 0.3
        limits = ["--traffic", "* concurrent=12", "--attempts", "3", "--queue", "10", "--grace", "5"]
        named = [word for name in ("openai", "anthropic") for word in ("--provider", name)]
        async with self.process(
            name, "serve", "--base-url", f"http://127.0.0.1:{self.port}", *named, *limits, "--keep-alive", "3",
            "--trace", str(self.folder / "traces"), "--key", "GATEWAY_KEY",
        ) as process:  # fmt: skip
            output = self.folder / f"{name}.out"
            if not await eventually(lambda: b"base URL" in output.read_bytes() or process.poll() is not None, LONGEST):
                self.books.expect(False, "the gateway did not start")
                return
            port = int(output.read_bytes().split(b"http://127.0.0.1:")[1].split()[0])
            held, answered = len(os.listdir(f"/proc/{process.pid}/fd")), list[str]()
            with trio.move_on_after(ROUND + 60):
                async with trio.open_nursery() as nursery:
                    for place in range(8):
                        nursery.start_soon(self.clients, port, f"{name}-{place}", trio.current_time() + ROUND, answered)
            await self.end_gateway(process, kills, held)
        self.check_traces(name, answered, kills)

    async def end_gateway(self, process: trio.Process, kills: bool, held: int) -> None:
        books = self.books

        def descriptors() -> int:
            return len(os.listdir(f"/proc/{process.pid}/fd"))

        books.expect(process.poll() is None, f"the gateway ended by itself: {process.returncode}")
        if process.poll() is not None:
            return
        await eventually(lambda: descriptors() <= held + 16, 60)  # of idle connections to the provider
        books.expect(
            descriptors() <= held + 16, f"the gateway holds {descriptors()} descriptors, {held} in the beginning"
        )
        status = Path(f"/proc/{process.pid}/status").read_text()
        books.counts["most threads of a gateway"] = max(
            books.counts["most threads of a gateway"], int(status.split("Threads:")[1].split()[0])
        )
        process.send_signal(signal.SIGKILL if kills else signal.SIGTERM)
        with trio.move_on_after(60):
            await process.wait()
        books.expect(process.returncode == (-9 if kills else 0), f"the gateway's exit status is {process.returncode}")

    async def clients(self, port: int, name: str, until: float, answered: list[str]) -> None:
        """Be one client after the other."""
        number = 0
        while trio.current_time() < until:
            number += 1
            try:
                await self.client(port, f"client {name}-{number} asks", answered)
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                self.books.counts["clients: connection lost"] += 1
            await trio.sleep(self.chance.random() * 0.1)

    async def client(self, port: int, mark: str, answered: list[str]) -> None:
        dialect, stream = self.chance.choice(list(FORMS)), self.chance.random() < 0.7
        path, body = FORMS[dialect]
        events = self.chance.choice([1, 20, 3000])
        data = json.dumps({"model": f"sim-text@events={events}", **body, "stream": stream}).replace("{}", mark).encode()
        slot = self.chance.choice(["", "", "/slots/one", "/slots/linked"])
        head = f"POST {slot}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Connection: close\r\nContent-Length: {len(data)}\r\nAuthorization: Bearer any\r\nx-api-key: any\r\n"
        head += "anthropic-version: 2023-06-01\r\n" if dialect == "anthropic" else ""
        kind = self.chance.choices(["whole", "leaves", "never reads", "half", "garbage"], [60, 20, 6, 8, 6])[0]
        self.books.counts[f"clients: {kind}"] += 1
        wire = f"{head}\r\n".encode() + data
        async with await trio.open_tcp_stream("127.0.0.1", port) as connection:
            if kind == "garbage":
                wire = self.chance.choice(
                    [self.chance.randbytes(500), wire[:60] + b"\x00\r\r\n" + wire[60:], wire[20:]]
                )
            elif kind == "half":
                wire = wire[: self.chance.randrange(len(wire))]
            await connection.send_all(wire)
            if kind in ("leaves", "half"):
                with trio.move_on_after(self.chance.random() * 0.5):
                    await connection.receive_some(1 + self.chance.randrange(3000))
                return
            if kind == "never reads":
                await trio.sleep(self.chance.choice([1, 5, 35]))
                return
            received = b""
            with trio.move_on_after(90) as waited:
                received = b"".join([data async for data in connection])
            self.books.look_for_keys(received, f"an answer of the gateway to {mark}")
            self.books.expect(not waited.cancelled_caught, f"{mark}: no answer in 90 s")
            if kind == "whole" and not waited.cancelled_caught:
                self.check_answer(mark, stream, received, answered)

    def check_answer(self, mark: str, stream: bool, received: bytes, answered: list[str]) -> None:
        """Check that a client got one response, whole or cut."""
        client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        client.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
        client.receive_data(received)
        client.receive_data(b"")
        status, body, outcome = 0, b"", "cut"
        with contextlib.suppress(h11.RemoteProtocolError):
            while not isinstance(event := client.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
            outcome = str(status)
            self.books.expect(client.trailing_data[0] == b"", f"{mark}: bytes after the response: {received[-300:]!r}")
        self.books.counts[f"gateway: {outcome}"] += 1
        self.books.expect(status or outcome == "cut", f"{mark}: no response: {received[:300]!r}")
        self.books.expect(b"internal error" not in body, f"{mark}: {body[:500]!r}")
        if outcome == "200":
            answered.append(mark)
            ends = not stream or any(word in body for word in TERMINALS)
            self.books.expect(ends, f"{mark}: a stream without an end: {body[-300:]!r}")

    def check_traces(self, name: str, answered: list[str], killed: bool) -> None:
        """Check that each answered request of a gateway is in one line of one trace."""
        seen: Counter[str] = Counter()
        for path in (self.folder / "traces").iterdir():
            for line in [] if path.is_symlink() else path.read_bytes().splitlines():
                try:
                    asked = json.dumps(json.loads(line)["request"])
                    seen[asked[asked.index("client ") : asked.index(" asks") + 5]] += 1
                except ValueError:
                    self.books.counts["torn lines of traces"] += 1
        self.books.counts["calls in traces"] = sum(seen.values())
        again = [mark for mark, count in seen.items() if count > 1]
        self.books.expect(not again, f"more than once in the traces: {again}")
        linked = [mark for mark in answered if not seen[mark]]
        self.books.counts["answered, not in a trace (linked)"] += len(linked)

    # --- batches, killed at random ---

    async def batch(self, number: int) -> None:
        """Run a batch until each line has its answer, and kill some of its runs."""
        name = f"batch{number}"
        provider = self.chance.choice(["openai", "anthropic", "gemini"])
        via = self.chance.choice(["batch", "batch", "batch", "live"])
        prompts = [{"id": f"l{n}", "prompt": f"{name} line {n} .", "model": "sim-text@events=3"} for n in range(LINES)]
        write(self.folder / f"{name}-prompts.jsonl", [json.dumps(prompt) for prompt in prompts])
        answers = self.folder / f"{name}.jsonl"
        base_url = f"http://127.0.0.1:{self.port}" + ("/v1" if provider == "openai" else "")
        way = ["--via", via] if via == "batch" else ["--cache", str(self.folder / "cache")]
        for turn in range(60):
            async with self.process(
                name, "batch", str(self.folder / f"{name}-prompts.jsonl"), "-o", str(answers), "--provider", provider,
                "--base-url", base_url, *way, "--plain", "--retry-failed",
            ) as process:  # fmt: skip
                kills = turn < 4 and self.chance.random() < 0.6
                with trio.move_on_after(self.chance.uniform(0.5, 8.0) if kills else LONGEST) as waited:
                    await process.wait()
                if waited.cancelled_caught:
                    self.books.expect(kills, f"{name} has no end ({via}, {provider})")
                    process.kill()
            self.books.counts[f"batch runs: exit status {process.returncode}"] += 1
            if process.returncode == 0:
                break
        answered = Counter(record["id"] for record in records(answers) if not record.get("error"))
        wanted = {f"l{n}": 1 for n in range(LINES)}
        self.books.expect(answered == wanted, f"{name} ({via}, {provider}): {answered}")
        self.books.counts[f"batches: {via}"] += 1
        if via == "batch":
            self.batches.append(name)

    def check_batches(self, page: Any) -> None:
        """Check that the server charged each line of the batches once."""
        charged: Counter[str] = Counter()
        for line in [line for batch in page["batches"] for line in batch["lines"]]:
            text = json.dumps(line["body"])
            charged[text[text.index("batch") : text.index(" .")]] += line["charged"]
        for name in self.batches:
            wrong = {n: charged[f"{name} line {n}"] for n in range(LINES) if charged[f"{name} line {n}"] != 1}
            self.books.expect(not wrong, f"{name}: charged {wrong}")
        self.books.counts["lines charged"] = sum(charged.values())

    # --- files of other programs ---

    async def touch_foreign_files(self, number: int) -> None:
        """Name files of other programs where the commands write, and links to them."""
        link = self.folder / f"link{number}"
        target = self.chance.choice(sorted(self.foreign.iterdir()))
        link.symlink_to(target)
        prompts = write(self.folder / "one.jsonl", [json.dumps({"id": 1, "prompt": "hi", "model": "sim-text"})])
        path = str(self.chance.choice([link, target]))
        option = self.chance.choice(
            [["-o", path], ["--errors", path, "-o", f"{link}.jsonl"], ["--cache", path, "-o", f"{link}.jsonl"]]
        )
        async with self.process(
            "foreign", "batch", str(prompts), "--provider", "openai", "--base-url", f"{self.simulator.origin}/v1", *option
        ) as process:  # fmt: skip
            with trio.fail_after(LONGEST):
                await process.wait()
        self.books.counts[f"foreign files: exit status {process.returncode}"] += 1
        self.books.expect(digest(self.foreign) == self.before, f"a file of another program changed: {option}, {target}")

    def search_files(self) -> None:
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                self.books.look_for_keys(path.read_bytes(), str(path.name))
                if path.suffix == ".err":
                    self.books.expect(b"Traceback" not in path.read_bytes(), f"a traceback in {path}")


async def run(chaos: Chaos, seconds: float) -> None:
    until = trio.current_time() + seconds

    async def rounds(make: Any, pause: float = 0.0) -> None:
        number = 0
        while trio.current_time() < until:
            number += 1
            await make(number)
            await trio.sleep(pause)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rounds, chaos.calls)
        nursery.start_soon(rounds, chaos.gateway)
        nursery.start_soon(rounds, chaos.batch)
        nursery.start_soon(rounds, chaos.touch_foreign_files, 20.0)


@contextlib.contextmanager
def hostile_process(port: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Run the hostile provider. Yields its port, and what becomes its records."""
    command = [sys.executable, "-m", "tests.soak.hostile", str(port), SEED]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said: dict[str, Any] = {}
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), said
        said |= json.loads(process.communicate(timeout=LONGEST)[0])
    finally:
        process.kill()
        process.wait()


@pytest.mark.soak
async def test_chaos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    books, began = Books(), time.monotonic()
    with open_simulator("events=20", batch_time="median=1.5") as simulator:
        processes, threads = children(), threading.active_count()
        gc.collect()
        tasks = trio.lowlevel.current_statistics().tasks_living
        with hostile_process(simulator.port) as (port, said):
            descriptors = open_descriptors()
            chaos = Chaos(tmp_path, simulator, port, books)
            with capsys.disabled():
                await run(chaos, MINUTES * 60)
            books.expect(
                await eventually(lambda: open_descriptors() <= descriptors), f"{open_descriptors()} descriptors"
            )
        async with await trio.open_tcp_stream("127.0.0.1", simulator.port) as stream:
            await stream.send_all(b"GET /sim/batches HTTP/1.0\r\n\r\n")
            chaos.check_batches(json.loads(b"".join([data async for data in stream]).partition(b"\r\n\r\n")[2]))
        for tenant, (spent, limit) in chaos.spent.items():
            asked = said["asked"].get(tenant, 0)
            books.expect(asked <= spent <= limit, f"{tenant}: {asked} asked, {spent} spent, {limit} allowed")
        chaos.search_files()
        books.expect(await eventually(lambda: children() == processes), f"children: {children()}")
        books.expect(
            await eventually(lambda: trio.lowlevel.current_statistics().tasks_living == tasks), "tasks are left"
        )
        books.expect(await eventually(lambda: threading.active_count() <= threads), f"threads: {threading.enumerate()}")
    with capsys.disabled():
        print(f"\n{time.monotonic() - began:.0f} s, seed {SEED}; provider: {said['counts']}")
        groups: dict[str, list[str]] = {}
        for name, count in sorted(books.counts.items()):
            groups.setdefault(name.partition(":")[0], []).append(f"{name} {count}")
        print("\n".join("; ".join(group) for group in groups.values()))
        print(f"budgets: {len(chaos.spent)} tenants, {sum(spent for spent, _ in chaos.spent.values()):.0f} calls spent")
        print(f"{len(books.wrong)} entries do not balance")
    assert books.wrong == []
