"""What does the gateway cost, beside LiteLLM's proxy?

The simulator, each gateway and the client are processes of their own, and the gateways are measured from outside. First
streams are live whose starts are spread, for the time that a gateway adds to the first content. Then requests follow
each other without pauses, for the CPU of the gateway's process and its memory. The gateways take turns.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

import manystream as ms
from manystream.simulator import open_simulator

from .answers import Answer
from .environment import ROOT, made_environment
from .peers.common import memory, raise_priority
from .runs import Run

EVENTS = 50
SECONDS = 5.0
STREAMS = 50
PACED_CALLS = 200
"""Calls of which `STREAMS` are live at a time; the first ones are left out, because not all streams are live then."""
DENSE_CALLS, AT_ONCE = 300, 16
ROUNDS = 3
START_SECONDS = 180
KEY = "sk-of-this-benchmark"
"""The key of LiteLLM's proxy, which does not start without one. The other accepts any."""
DIRECT, OURS, LITELLM = "without a gateway", "manystream", "LiteLLM's proxy"


@dataclass(slots=True)
class Place:
    """A gateway. first: seconds to the first content; cpu: seconds of a request; a list entry per round."""

    url: str
    process: int
    first: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])


def cpu_of(process: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(command: list[str], port: int, environment: dict[str, str]) -> Generator[int, None, None]:
    """Run a server until it accepts connections, for the length of the block. Yields its process id."""
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        for _ in range(START_SECONDS * 10):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if process.poll() is not None:
                raise OSError(f"{command[0]} has ended")
            time.sleep(0.1)
        else:
            raise OSError(f"{command[0]} did not start")
        raise_priority(process.pid)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def calls_through(place: Place, knobs: str, calls: int, at_once: int, ramp: float = 0.0) -> list[float]:
    """Make calls, so many at a time, and return the seconds to their first content. Raises `OSError` for a failure.

    ramp: seconds over which the first ones start.
    """
    first: list[float] = []
    limit = trio.CapacityLimiter(at_once)

    async def one(number: int) -> None:
        async with limit:
            if number < at_once:
                await trio.sleep(ramp * number / at_once)
            request = ms.Request("sim", f"simulate: {knobs}", retry=ms.Retry(max_attempts=1))
            completion = await engine.start_stream(request).wait()
            if not completion.success or completion.timings.first_token is None:
                raise OSError(f"a call failed: {completion.error}")
            if number >= at_once:
                first.append(completion.timings.first_token)

    timeouts = ms.Timeouts(connect=60, first_byte=600, idle=600)
    async with (
        ms.open_engine([ms.OpenAIChat(KEY, place.url)], timeouts=timeouts) as engine,
        trio.open_nursery() as nursery,
    ):
        for number in range(calls):
            nursery.start_soon(one, number)
    return first


def answer(run: Run) -> Answer:
    """Measure both gateways by turns."""
    result = Answer("A request through a gateway, streamed, 50 events")
    with contextlib.ExitStack() as stack:
        simulator = stack.enter_context(open_simulator())
        raise_priority(simulator.pid)
        upstream = simulator.base_urls["openai-chat"]
        places = {DIRECT: Place(upstream, simulator.pid)}
        port = free_port()
        command = [sys.executable, "-m", "manystream", "serve", "--base-url", upstream]
        process = stack.enter_context(running(command, port, {}))
        places[OURS] = Place(f"http://127.0.0.1:{port}/v1", process)
        try:
            port, folder = free_port(), stack.enter_context(tempfile.TemporaryDirectory())
            Path(folder, "config.yaml").write_text(
                "model_list:\n  - model_name: '*'\n    litellm_params:\n      model: 'openai/*'\n"
                f"      api_base: {upstream}\n      api_key: any\n"
            )
            program = str(Path(made_environment("litellm", "litellm[proxy]")).with_name("litellm"))
            command = [program, "--config", f"{folder}/config.yaml", "--num_workers", "1"]
            environment = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            process = stack.enter_context(running(command, port, environment))
            places[LITELLM] = Place(f"http://127.0.0.1:{port}/v1", process)
        except (OSError, subprocess.SubprocessError) as error:
            result.notes.append(f"{LITELLM}: not measured: {error}")
        _measure(places, 1 if run.quick else ROUNDS)
        _report(result, places)
    return result


def _measure(places: dict[str, Place], rounds: int) -> None:
    paced, dense = f"events={EVENTS},rate={EVENTS / SECONDS:g}", f"events={EVENTS}"
    for place in places.values():
        trio.run(calls_through, place, dense, 20, 4)  # warm
    for _ in range(rounds):
        for place in places.values():
            place.first += trio.run(partial(calls_through, place, paced, PACED_CALLS, STREAMS, ramp=SECONDS))
            before = cpu_of(place.process)
            trio.run(calls_through, place, dense, DENSE_CALLS, AT_ONCE)
            place.cpu.append((cpu_of(place.process) - before) / DENSE_CALLS)


def _report(result: Answer, places: dict[str, Place]) -> None:
    for name, place in places.items():
        if name == DIRECT:
            continue
        peer = places.get(LITELLM) if name == OURS else None
        figures = {
            "CPU": ("ms", lambda one: 1000 * statistics.median(one.cpu)),
            "memory": ("MB", lambda one: memory("VmRSS", one.process) / 1e6),
            "more until the first content, p50": ("ms", lambda one: 1000 * _later(one, places[DIRECT], 0.5)),
            "more until the first content, p99": ("ms", lambda one: 1000 * _later(one, places[DIRECT], 0.99)),
        }
        for what, (unit, figure) in figures.items():
            compared = peer is not None and not what.startswith("more")
            beside = (LITELLM, figure(peer)) if peer is not None and compared else None
            result.add(f"{name}, {what}", figure(place), unit, beside=beside, shown=True)


def _later(place: Place, direct: Place, share: float) -> float:
    mine, others = sorted(place.first), sorted(direct.first)
    return mine[int(share * len(mine))] - others[int(share * len(others))]
