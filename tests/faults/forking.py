"""A program that forks inside the block of an engine; its children leave the block in each way.

`python -m tests.faults.forking DOOR FOLDER` prints, as JSON, the children's exit codes and what the parent saw. The
parent's calls must go on, and new ones must begin: over a new connection, and after a lookup in a thread.
"""

import asyncio
import json
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import trio

import manystream as ms
import manystream.httpx2
from manystream.portal import open_portal
from tests.support.peers import chat_stream, chunked, hello, stream_of
from tests.support.threaded_server import Server, Wire

WAYS = ("return", "raise", "exit")

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork in a process with threads


class Left(Exception):
    """A child leaves the block by this."""


def serve(wire: Wire) -> None:
    """Send one event, and the rest when the gate is open."""
    frames = chat_stream("a", "b")
    while True:
        head = wire.head()
        wire.body(head)
        wire.send(stream_of(frames[0], end=False))
        if b"x-wait" in head.lower():
            wire.gate.wait(30)
        wire.send(chunked(*frames[1:]))


class Program:
    """The parent, and what it notes."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.process = os.getpid()
        self.codes: dict[str, int] = {}
        self.seen: list[bool] = []
        self.monitored = False
        self.provider = ms.OpenAIChat("key", f"http://localhost:{server.port}/v1", name="peer")
        self.options: ms.EngineOptions = {
            "monitor": folder / "sock",
            "traffic": ms.Traffic(budgets=[ms.Budget(calls=100)], shared=folder / "limits"),
        }

    def note(self, completion: ms.Completion) -> None:
        """`on_completion`: the file has a line for each completion, of whichever process."""
        with (self.folder / "completions").open("a") as file:
            file.write(f"{os.getpid()}\n")
        self.seen.append(completion.success)

    def fork(self, way: str) -> bool:
        """Fork. Returns whether this process is a child that must return; waits for the end of the child."""
        child = os.fork()
        if child:
            self.codes[way] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return False
        signal.alarm(120)  # a child that waits forever must end, too, after the test's own timeout has failed the test
        if way == "raise":
            raise Left
        if way == "exit":
            sys.exit(3)
        return True

    def result(self) -> dict[str, object]:
        return {
            "codes": self.codes, "seen": self.seen,
            "completions": [int(line) == self.process for line in self._lines("completions")],
            "recorded": len(self._lines("recording.jsonl")), "monitored": self.monitored,
        }  # fmt: skip

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    async def with_engine(self, opened: Any, until: Callable[[Callable[[], object]], Awaitable[None]]) -> None:
        waits = hello(extra_headers={"x-wait": "1"})
        async with opened as engine, engine.stream(waits) as stream:
            with engine.record(self.folder / "recording.jsonl"):
                events: list[ms.Event] = []
                call = engine.start_stream(waits, events.append, self.note)
                async with call:
                    await until(lambda: events)
                    for way in WAYS:
                        if self.fork(way):
                            return
                        await engine.start_stream(hello(), None, self.note).wait()
                    self.server.gate.set()
                    await call.wait()
                    self.monitored = all((self.folder / name).exists() for name in ("sock", "limits"))
                    self.seen.append(b"b" in b"".join([repr(event).encode() async for event in stream]))

    async def with_client(self) -> None:
        """The client of an SDK over the library's transport."""
        async with httpx2.AsyncClient(transport=manystream.httpx2.Transport()) as client:  # noqa: SIM117
            async with client.stream("POST", self.provider.base_url, headers={"x-wait": "1"}) as response:
                for way in WAYS:
                    if self.fork(way):
                        return
                    self.seen.append((await client.post(self.provider.base_url)).is_success)
                self.server.gate.set()
                self.seen.append(b"stop" in await response.aread())

    def with_portal(self) -> None:
        waits = hello(extra_headers={"x-wait": "1"})
        with (
            open_portal([self.provider], **self.options) as portal,
            portal.stream(waits) as stream,
            ExitStack() as stack,
        ):
            stack.enter_context(portal.record(self.folder / "recording.jsonl"))
            call = stack.enter_context(portal.start_stream(waits, None, self.note))
            for way in WAYS:
                if self.fork(way):
                    return
                portal.start_stream(hello(), None, self.note).wait()
            self.server.gate.set()
            call.wait()
            self.monitored = all((self.folder / name).exists() for name in ("sock", "limits"))
            self.seen.append("b" in "".join(event.text for event in stream if isinstance(event, ms.TextDelta)))


async def until_on_trio(condition: Callable[[], object]) -> None:
    while not condition():
        await trio.sleep(0.001)


async def until_on_asyncio(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def closed_engine(program: Program) -> ms.Engine:
    shared = ms.Traffic(budgets=[ms.Budget(calls=100)], shared=program.folder / "earlier")
    async with ms.open_engine([program.provider], traffic=shared) as engine:
        await engine.start_stream(hello()).wait()
    return engine


def main(door: str, folder: Path) -> None:
    program = Program(Server(serve), folder)  # it is not closed: a child must leave it alone, too
    earlier = trio.run(closed_engine, program)  # noqa: F841  a fork finds it, as a program keeps what has ended
    if door == "trio":
        trio.run(program.with_engine, ms.open_engine([program.provider], **program.options), until_on_trio)
    elif door == "asyncio":
        asyncio.run(program.with_engine(ms.open_engine([program.provider], **program.options), until_on_asyncio))
    elif door == "client on trio":
        trio.run(program.with_client)
    elif door == "client on asyncio":
        asyncio.run(program.with_client())
    else:
        program.with_portal()
    if os.getpid() == program.process:
        print(json.dumps(program.result()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
