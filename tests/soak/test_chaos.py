"""Chaos: gateway, durable answers, batches, budgets and cache at once, with a hostile provider and hostile clients.

`make chaos MINUTES=60` runs it. Processes are killed; rows of the cache are damaged, and its file is locked. The server
and the callers count: each request is answered or failed once, each line of a batch is charged and recorded once, no
call exceeds its budget, no file of another program changes, nothing is left, and the key is in no output.
"""

from __future__ import annotations

import base64
import contextlib
import functools
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
from collections.abc import AsyncGenerator, Callable
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
SECRETS = (KEY.encode(), base64.b64encode(KEY.encode()))
KEYS = dict.fromkeys(["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"], KEY) | {"GATEWAY_KEY": "any"}
ROUND = 45.0
"""The seconds of a round. Each has its own engine and gateway."""

LONGEST = 600.0
LINES = 30
CALLS = 15
"""The calls that the budget of a tenant allows."""

DIALECTS: dict[str, tuple[type[ms.Provider], str]] = {
    "chat": (ms.OpenAIChat, "/v1"), "responses": (ms.OpenAIResponses, "/v1"), "anthropic": (ms.Anthropic, ""),
    "gemini": (ms.Gemini, ""), "interactions": (ms.GeminiInteractions, ""),
}  # fmt: skip
FORMS: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "{}"}]},
    "/v1/responses": {"input": "{}"},
    "/v1/messages": {"messages": [{"role": "user", "content": "{}"}], "max_tokens": 99},
}
TERMINALS = (b"data: [DONE]", b'"response.completed"', b'"message_stop"', b"error")
CHANGES = ("UPDATE answers SET body = x'00'", "UPDATE answers SET head = NULL", "UPDATE answers SET made = 'x'",
    "UPDATE answers SET body = 7, size = 'x'", "UPDATE answers SET made = 9e999", "DELETE FROM answers")  # fmt: skip


class Call:
    """One call of an engine. `check` compares what its callbacks got."""

    def __init__(self, what: str, streamed: bool, before: list[ms.Event]) -> None:
        self.what = what
        self.streamed = streamed
        self.events = before
        self.completions: list[ms.Completion] = []


def state(folder: Path) -> dict[str, object]:
    """Return what each file of a folder holds, with its mode and time."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        path.name: (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mode, path.stat().st_mtime_ns)
        for path in files
    }


def children() -> str:
    return "".join(Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task"))


class Chaos:
    """The world of one run: its files, its counts, and what is wrong."""

    def __init__(self, folder: Path, simulator: Simulator, port: int) -> None:
        self.folder, self.foreign = folder, folder / "foreign"
        self.simulator, self.port = simulator, port
        self.chance = random.Random(SEED)
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.number = 0
        self.kept: list[tuple[str, Call]] = []
        self.spent: dict[str, float] = {}
        self.batches: list[str] = []
        self.traced: Counter[str] = Counter()
        self.read_of_traces: dict[str, int] = {}
        for name in ("traces", "cache", "foreign"):
            (folder / name).mkdir(mode=0o700)
        (self.foreign / "notes.txt").write_text("foreign\n")
        (self.foreign / "trace.jsonl").write_text('{"slot": 1}\n')
        with contextlib.closing(sqlite3.connect(self.foreign / "foreign.sqlite")) as database, database:
            database.execute("CREATE TABLE theirs (a)")
        self.before = state(self.foreign)
        (folder / "traces" / "linked.jsonl").symlink_to(self.foreign / "trace.jsonl")

    def expect(self, holds: object, what: str) -> None:
        if not holds:
            self.wrong.append(what)
            print("WRONG", what[:2000], flush=True)

    def search(self, data: bytes, where: str) -> None:
        self.expect(not any(secret in data for secret in SECRETS), f"the key is in {where}")

    async def eventually(self, what: str, condition: Callable[[], object], seconds: float = 60) -> None:
        with trio.move_on_after(seconds):
            while not condition():
                await trio.sleep(0.05)
        self.expect(condition(), f"never: {what}")

    # --- calls of this process: the cache, budgets, callers that leave, durable answers ---

    def providers(self, port: int) -> list[ms.Provider]:
        return [made(KEY, f"http://127.0.0.1:{port}{path}", name=name) for name, (made, path) in DIALECTS.items()]

    async def check(self, call: Call) -> None:
        self.expect(len(call.completions) == 1, f"{call.what}: {len(call.completions)} completions")
        for completion in call.completions:
            response, ordinary = completion.response, not call.what.startswith(("durable", "responses"))
            self.counts[f"calls: {'success' if completion.success else str(completion.error_category)}"] += 1
            self.counts["calls: cached"] += completion.cached
            self.counts["calls: resumed"] += bool(completion.resumed)
            self.expect("internal error" not in str(completion.error), f"{call.what}: {completion.error!r}")
            self.search(f"{completion!r} {completion.error!r}".encode(), call.what)
            text = "".join(event.text for event in call.events if isinstance(event, ms.TextDelta))
            ends = sum(event.type in (ms.EventType.DONE, ms.EventType.ERROR) for event in call.events)
            self.expect(ends == call.streamed, f"{call.what}: {ends} terminal events")
            if call.streamed and ordinary:  # other Responses streams may lack an event, and are right in the end
                self.expect(text == (response.text if response else ""), f"{call.what}: {text!r}, {response}")
            if completion.success:
                _, model, asked = call.what.split(" ", 2)
                async with ms.open_engine(self.providers(self.simulator.port), proxy="") as engine:
                    request = ms.Request(model, [ms.Message.user(asked)], max_output_tokens=200)
                    truth = (await engine.request(request)).text
                found = text if call.streamed and call.what.startswith("durable") else response and response.text
                self.expect(found == truth, f"{call.what}: {found!r}, not {truth!r}")

    async def calls(self, engine: ms.Engine, running: set[Call]) -> None:
        """Make one call after the other, and cancel some."""
        while True:
            self.number += 1
            durable, streamed, leaves = (self.chance.random() < share for share in (0.3, 0.7, 0.15))
            name = self.chance.choice(["responses", "interactions"] if durable else list(DIALECTS))
            tenant = f"tenant-{self.number // 24}" if durable or self.number % 2 else None
            asked = f"{tenant} asks {self.number}" if tenant else f"prompt {self.chance.randrange(60)}"
            model = f"{name}/sim-text@events={self.chance.choice([1, 5, 40])}"
            timeouts = ms.Timeouts(total=60, idle=6, first_byte=6)
            messages = [ms.Message.user(asked)]
            request = ms.Request(
                model, messages, max_output_tokens=200, durable=durable, tenant=tenant, timeouts=timeouts
            )
            call = Call(f"{'durable' if durable else name} {model} {asked}", streamed, [])
            running.add(call)
            if streamed:
                started = engine.start_stream(request, call.events.append, call.completions.append)
            else:
                started = engine.start_request(request, call.completions.append)
            try:
                if leaves:
                    await trio.sleep(self.chance.random() * 0.3)
                    started.cancel()
                with trio.fail_after(LONGEST):
                    await started.wait()
            except trio.Cancelled:  # the engine ends now, and the next one reads on
                if durable and streamed and not leaves and started.resume_token is not None:
                    self.kept.append((started.resume_token, call))
                raise
            running.discard(call)
            await self.check(call)
            await trio.sleep(0.1)

    async def attach(self, engine: ms.Engine, token: str, call: Call) -> None:
        before = [event for event in call.events if event.type is not ms.EventType.ERROR]
        attached = Call(call.what, True, [*before])
        with trio.fail_after(LONGEST):
            await engine.attach(token, attached.events.append, attached.completions.append, after=len(before)).wait()
        await self.check(attached)

    async def engine(self, _number: int) -> None:
        """Make calls for a round, with a cache that is damaged meanwhile."""
        path, stop, running = self.folder / "cache" / "answers.sqlite", threading.Event(), set[Call]()
        budget = ms.Budget(calls=lambda tenant: CALLS if tenant else math.inf, per="tenant")
        retry = ms.Retry(max_attempts=4, base=0.05, jitter=0.1, max_hint=2.0)
        damager = threading.Thread(target=self.damage, args=(path, stop, self.chance.randrange(1 << 30)))
        kept, self.kept = self.kept, []
        with AnswerCache(path) as cache:
            damager.start()
            try:
                traffic, providers = ms.Traffic(budgets=[budget]), self.providers(self.port)
                async with ms.open_engine(providers, traffic=traffic, cache=cache, proxy="", retry=retry) as engine:
                    with trio.move_on_after(ROUND):
                        async with trio.open_nursery() as nursery:
                            for token, call in kept:
                                nursery.start_soon(self.attach, engine, token, call)
                            for _ in range(8):
                                nursery.start_soon(self.calls, engine, running)
                for call in running:
                    await self.check(call)
                for one in engine.statistics().traffic.budgets:
                    self.expect(one.reserved == type(one.reserved)() and not one.waiting, f"a budget: {one}")
                    self.spent[str(one.tenant)] = self.spent.get(str(one.tenant), 0.0) + one.spent.calls
            finally:
                stop.set()
                await trio.to_thread.run_sync(damager.join)

    @staticmethod
    def damage(path: Path, stop: threading.Event, seed: int) -> None:
        """Damage rows of the cache, and hold its lock."""
        chance = random.Random(seed)
        while not stop.wait(chance.uniform(0.2, 2.0)):
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=1)) as database:
                database.execute(chance.choice(["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"]))
                database.execute(f"{chance.choice(CHANGES)} WHERE rowid % 3 = {chance.randrange(3)}")
                stop.wait(chance.choice([0, 0, 0.5, 7.0]))
                database.execute("COMMIT")

    # --- processes of the product ---

    @contextlib.asynccontextmanager
    async def process(self, name: str, *arguments: object) -> AsyncGenerator[trio.Process, None]:
        """Run a command. What it prints goes to files."""
        command = [sys.executable, "-m", "manystream", *map(str, arguments)]
        with open(self.folder / f"{name}.out", "ab") as out, open(self.folder / f"{name}.err", "ab") as err:
            process = await trio.lowlevel.open_process(
                command, cwd=ROOT, env={**os.environ, **KEYS}, stdout=out, stderr=err
            )
        try:
            yield process
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    async def gateway(self, number: int) -> None:
        """Run a gateway for a round, then end it by SIGTERM or SIGKILL."""
        name, kills, answered = f"serve{number}", self.chance.random() < 0.3, list[str]()
        limits = ["--traffic", "* concurrent=12", "--attempts", "3", "--queue", "10", "--grace", "5"]
        limits += ["--keep-alive", "3", "--key", "GATEWAY_KEY"]
        where = "--provider", "openai", "--provider", "anthropic", "--base-url", f"http://127.0.0.1:{self.port}"
        async with self.process(name, "serve", *where, *limits, "--trace", self.folder / "traces") as process:
            output = self.folder / f"{name}.out"
            await self.eventually(f"{name} starts", lambda: b"Ctrl-C" in output.read_bytes(), LONGEST)
            port = int(output.read_bytes().split(b"http://127.0.0.1:")[1].split()[0])
            descriptors = functools.partial(os.listdir, f"/proc/{process.pid}/fd")
            most = len(descriptors()) + 16  # idle connections to the provider
            async with trio.open_nursery() as nursery:
                for place in range(8):
                    nursery.start_soon(self.clients, port, f"{name}-{place}", answered)
            self.expect(process.poll() is None, f"the gateway ended by itself: {process.returncode}")
            await self.eventually("the gateway holds no descriptor", lambda: len(descriptors()) <= most)
            threads = Path(f"/proc/{process.pid}/status").read_text().split("Threads:")[1].split()[0]
            self.expect(int(threads) <= 2, f"the gateway has {threads} threads")
            process.send_signal(signal.SIGKILL if kills else signal.SIGTERM)
            with trio.move_on_after(60):
                await process.wait()
            self.expect(process.returncode == (-9 if kills else 0), f"the gateway's exit status: {process.returncode}")
        self.check_traces(answered, may_miss=8 if kills else 0)

    async def clients(self, port: int, name: str, answered: list[str]) -> None:
        """Be one client after the other."""
        number, until = 0, trio.current_time() + ROUND
        while trio.current_time() < until:
            number += 1
            with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                await self.client(port, f"client {name}-{number} asks", answered)
            await trio.sleep(self.chance.random() * 0.1)

    async def client(self, port: int, mark: str, answered: list[str]) -> None:
        path, form = self.chance.choice(list(FORMS.items()))
        streamed, slot = self.chance.random() < 0.7, self.chance.choice(["", "", "/slots/one", "/slots/linked"])
        body = {"model": f"sim-text@events={self.chance.choice([1, 20, 3000])}", **form, "stream": streamed}
        data = json.dumps(body).replace("{}", mark)
        head = [f"POST {slot}{path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", "x-api-key: any",
            "Connection: close", "Authorization: Bearer any", f"Content-Length: {len(data)}"]  # fmt: skip
        head += ["anthropic-version: 2023-06-01"] if path == "/v1/messages" else []
        wire = "\r\n".join([*head, "", data]).encode()
        [kind] = self.chance.choices(["whole", "leaves", "never reads", "half", "garbage"], [60, 20, 6, 8, 6])
        self.counts[f"clients: {kind}"] += 1
        if kind == "garbage":
            wire = self.chance.choice([self.chance.randbytes(500), wire[:60] + b"\0\r\r\n" + wire[60:], wire[20:]])
        elif kind == "half":
            wire = wire[: self.chance.randrange(len(wire))]
        async with await trio.open_tcp_stream("127.0.0.1", port) as connection:
            await connection.send_all(wire)
            if kind in ("leaves", "half"):
                with trio.move_on_after(self.chance.random() * 0.5):
                    await connection.receive_some(1 + self.chance.randrange(3000))
                return
            if kind == "never reads":
                await trio.sleep(self.chance.choice([1, 5, 35]))
                return
            received = b""
            with trio.move_on_after(90) as bound:
                received = b"".join([data async for data in connection])
            if bound.cancelled_caught:  # its trace says where the time went
                self.expect(False, f"{mark}, {slot}{path}: the answer has no end in 90 s")
                return
        self.search(received, f"an answer of the gateway to {mark}")
        if kind == "whole":
            # a slot whose trace is a link has no trace
            self.check_answer(mark, streamed, received, [] if slot == "/slots/linked" else answered)

    def check_answer(self, mark: str, streamed: bool, received: bytes, answered: list[str]) -> None:
        """Check that a client got one response, whole or cut."""
        client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        client.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
        client.receive_data(received)
        client.receive_data(b"")
        status, body, outcome = 0, b"", "cut"
        with contextlib.suppress(h11.RemoteProtocolError):
            while not isinstance(event := client.next_event(), h11.EndOfMessage):
                status = event.status_code if isinstance(event, h11.Response) else status
                body += event.data if isinstance(event, h11.Data) else b""
            outcome = str(status)
            self.expect(not client.trailing_data[0], f"{mark}: bytes after the response: {received[-300:]!r}")
        self.counts[f"gateway: {outcome}"] += 1
        self.expect(b"internal error" not in body, f"{mark}: {body[:500]!r}")
        if outcome == "200":
            answered.append(mark)
            ends = not streamed or any(word in body for word in TERMINALS)
            self.expect(ends, f"{mark}: a stream without an end: {body[-300:]!r}")

    def check_traces(self, answered: list[str], may_miss: int) -> None:
        """Check that no request of a gateway is in two lines of traces, and each answered one is in one."""
        for path in (self.folder / "traces").iterdir():
            if path.is_symlink():
                continue
            with path.open("rb") as file:  # what the rounds before have read is left out: it becomes long
                file.seek(self.read_of_traces.get(path.name, 0))
                for line in file:
                    with contextlib.suppress(ValueError):  # the end of a line is missing after SIGKILL
                        asked = json.dumps(json.loads(line)["request"])
                        self.traced[asked[asked.index("client ") : asked.index(" asks") + 5]] += 1
                self.read_of_traces[path.name] = file.tell()
        seen = self.traced
        self.counts["traces: calls"] = seen.total()
        self.expect(max(seen.values(), default=1) == 1, f"twice in the traces: {seen.most_common(3)}")
        missing = [mark for mark in answered if not seen[mark]]
        may_miss += max(1, len(answered) // 20)  # a number that JSON cannot hold, which the provider put into the usage
        self.expect(len(missing) <= may_miss, f"of {len(answered)} answered requests, these are in no trace: {missing}")

    async def batch(self, number: int) -> None:
        """Run a batch until each line has its answer, and kill some of its runs."""
        name, provider = f"batch{number}", self.chance.choice(["openai", "anthropic", "gemini"])
        way = ["--via", "batch"] if self.chance.random() < 0.75 else ["--cache", self.folder / "cache"]
        prompts = [{"id": n, "prompt": f"{name} line {n} .", "model": "sim-text@events=3"} for n in range(LINES)]
        lines = write(self.folder / f"{name}-prompts.jsonl", [json.dumps(prompt) for prompt in prompts])
        answers, url = self.folder / f"{name}.jsonl", f"http://127.0.0.1:{self.port}"
        options = (
            "--base-url",
            url + "/v1" * (provider == "openai"),
            "--provider",
            provider,
            "--retry-failed",
            "--plain",
        )
        for turn in range(60):
            async with self.process(name, "batch", lines, "-o", answers, *way, *options) as process:
                kills = turn < 4 and self.chance.random() < 0.6
                with trio.move_on_after(self.chance.uniform(0.5, 8.0) if kills else LONGEST) as waited:
                    await process.wait()
                self.expect(kills or not waited.cancelled_caught, f"{name} has no end ({way}, {provider})")
            self.counts[f"batch runs: status {process.returncode}"] += 1
            if process.returncode == 0:
                break
        answered = Counter(record["id"] for record in records(answers))
        self.expect(answered == dict.fromkeys(range(LINES), 1), f"{name} ({way}, {provider}): {answered}")
        if way[0] == "--via":
            self.batches.append(name)

    async def touch(self, number: int) -> None:
        """Name a file of another program, or a link to one, where the command writes."""
        link, target = self.folder / f"link{number}", self.chance.choice(sorted(self.foreign.iterdir()))
        link.symlink_to(target)
        lines = write(self.folder / "one.jsonl", [json.dumps({"id": 1, "prompt": "hi", "model": "sim-text"})])
        path, own = self.chance.choice([link, target]), f"{link}.jsonl"
        option = self.chance.choice([["-o", path], ["--errors", path, "-o", own], ["--cache", path, "-o", own]])
        url = f"{self.simulator.origin}/v1"
        async with self.process(
            "foreign", "batch", lines, "--provider", "openai", "--base-url", url, *option
        ) as process:
            await process.wait()
        self.expect(state(self.foreign) == self.before, f"a file of another program changed: {option}, {target}")
        await trio.sleep(20)

    # --- the end ---

    async def run(self, seconds: float) -> None:
        until = trio.current_time() + seconds

        async def rounds(make: Any) -> None:
            number = 0
            while trio.current_time() < until:
                await make(number := number + 1)

        async with trio.open_nursery() as nursery:
            for make in (self.engine, self.gateway, self.batch, self.touch):
                nursery.start_soon(rounds, make)

    async def balance(self, asked: dict[str, int]) -> None:
        """Compare with the counts of the server, and search all files."""
        async with await trio.open_tcp_stream("127.0.0.1", self.simulator.port) as stream:
            await stream.send_all(b"GET /sim/batches HTTP/1.0\r\n\r\n")
            page = json.loads(b"".join([data async for data in stream]).partition(b"\r\n\r\n")[2])
        charged: Counter[str] = Counter()
        for line in [line for batch in page["batches"] for line in batch["lines"]]:
            text = json.dumps(line["body"])
            charged[text[text.index("batch") : text.index(" .")]] += line["charged"]
        lines = [f"{name} line {n}" for name in self.batches for n in range(LINES)]
        wrong = {line: charged[line] for line in lines if charged[line] != 1}
        self.expect(not wrong, f"not charged once: {wrong}")
        self.counts["batch runs: lines charged"] = sum(charged[line] for line in lines)
        for tenant, count in asked.items():
            spent = self.spent.get(tenant, 0)
            self.expect(count <= spent, f"{tenant}: {count} calls came, {spent} are spent")
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                self.search(path.read_bytes(), path.name)
                self.expect(path.suffix != ".err" or b"Traceback" not in path.read_bytes(), f"a traceback in {path}")

    def report(self, seconds: float, provider: dict[str, int]) -> None:
        """Print the counts. `provider` has those of the hostile provider."""
        print(f"\n{seconds:.0f} s, seed {SEED}; the provider: {dict(sorted(provider.items()))}")
        for group in sorted({name.partition(":")[0] for name in self.counts}):
            counts = {name.partition(": ")[2]: count for name, count in self.counts.items() if name.startswith(group)}
            print(f"{group}: {dict(sorted(counts.items()))}")
        print(f"budgets: {sum(self.spent.values()):.0f} calls of {len(self.spent)} tenants")
        print(f"{len(self.batches)} batches by their interface; {len(self.wrong)} entries do not balance")


@pytest.mark.soak
async def test_chaos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began, threads = time.monotonic(), threading.active_count()
    with open_simulator("events=20", batch_time="median=1.5") as simulator:
        processes, tasks = children(), trio.lowlevel.current_statistics().tasks_living
        command = [sys.executable, "-m", "tests.soak.hostile", str(simulator.port), SEED]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hostile:
            assert hostile.stdout is not None
            chaos = Chaos(tmp_path, simulator, int(hostile.stdout.readline()))
            descriptors = open_descriptors()
            with capsys.disabled():
                try:
                    await chaos.run(MINUTES * 60)
                finally:
                    said = json.loads(hostile.communicate()[0])
        await chaos.balance(said["asked"])
        await chaos.eventually("descriptors close", lambda: open_descriptors() <= descriptors)
        await chaos.eventually("child processes end", lambda: children() == processes)
        await chaos.eventually("tasks end", lambda: trio.lowlevel.current_statistics().tasks_living == tasks)
        await chaos.eventually("threads end", lambda: threading.active_count() <= threads)
    with capsys.disabled():
        chaos.report(time.monotonic() - began, said["counts"])
    assert chaos.wrong == []
