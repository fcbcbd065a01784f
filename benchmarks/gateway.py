"""What the gateway adds to a stream, and the CPU of a request, beside the proxies of LiteLLM and of verifiers.

`python -m benchmarks.gateway [--litellm VENV] [--verifiers VENV]`: the simulator, each gateway and the client are
processes of their own. The client is this library's engine. First `--streams` paced streams are live at a time, whose
starts are spread, for the time that a gateway adds to the first content. Then requests follow each other without
pauses, for the CPU of the gateway's process. Then `--agents` agents at once make a few turns each, and errors are
counted.
verifiers collects a stream before it answers, so its first content comes with the last.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import trio

import manystream as ms
from manystream.simulator import open_simulator

PACED = "events=50,rate=10"
SECONDS = 5.0
"""How long such a stream takes."""
UNPACED = "events=50"
TURNS = 2
START_SECONDS = 180
KEY = "sk-of-this-benchmark"
"""The key of LiteLLM's proxy, which does not start without one. The others accept any."""


VERIFIERS = """\
import asyncio, json, sys
from verifiers.v1.clients.client import ModelContext
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.interception.server import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import Trace

async def main(upstream, sessions):
    async with InterceptionServer() as server:
        keys, config = [], EvalClientConfig(base_url=upstream, api_key_var="KEY")
        optional = {name: field for name, field in Trace.model_fields.items() if not field.is_required()}
        for _ in range(sessions):
            given = {name: field.get_default(call_default_factory=True) for name, field in optional.items()}
            trace = Trace.model_construct(**given, task=None, agent=None)
            session = RolloutSession(ctx=ModelContext(model="sim", client=config), trace=trace)
            keys.append(server.register(session)[0])
        print(json.dumps([server.base_url, keys]), flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""
"""Runs the interception server of verifiers, with one session for each agent, and prints its URL and their keys."""


@dataclass(slots=True)
class Place:
    """A gateway. keys: those of its sessions, one for each agent; one key for all without them."""

    url: str
    process: int
    keys: list[str]


@dataclass(slots=True)
class Figures:
    """What one run showed: the times to the first content in seconds, failures, and CPU seconds a request."""

    first: list[float]
    failed: int
    cpu: float

    def quantile(self, share: float) -> float:
        """Return a quantile of the times, in milliseconds."""
        ordered = sorted(self.first)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_of(process: int) -> float:
    """Return the CPU seconds of a process so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(command: list[str], port: int, **environment: str) -> Generator[int, None, None]:
    """Run a server until it accepts connections, for the length of the block. Yields its process id."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    try:
        for _ in range(START_SECONDS * 10):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        else:
            raise RuntimeError(f"{command[0]} did not start")
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


@contextlib.contextmanager
def verifiers(venv: str, upstream: str, sessions: int) -> Generator[Place, None, None]:
    """Run verifiers' interception server for the length of the block."""
    command = [str(Path(venv) / "bin" / "python"), "-c", VERIFIERS, upstream, str(sessions)]
    environment = {**os.environ, "KEY": KEY}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True)
    try:
        assert process.stdout is not None
        url, keys = json.loads(process.stdout.readline())
        yield Place(f"{url}/v1", process.pid, keys)
    finally:
        process.terminate()
        process.wait()


async def measure(place: Place, knobs: str, calls: int, at_once: int, turns: int = 1, *, ramp: float = 0.0) -> Figures:
    """Let so many agents make their turns, so many agents at a time.

    ramp: seconds over which the first ones start, so that the starts of all are spread. Their times are left out then:
        not all streams were live.
    """
    first: list[float] = []
    failed = 0
    limit = trio.CapacityLimiter(at_once)
    turns_taken = count()

    async def agent(number: int) -> None:
        nonlocal failed
        messages = [ms.Message.user(f"simulate: {knobs}")]
        key = place.keys[number % len(place.keys)]
        options = {"extra_headers": {"authorization": f"Bearer {key}"}, "retry": ms.Retry(max_attempts=1)}
        async with limit:
            turn = next(turns_taken)  # trio starts tasks in no order
            await trio.sleep(ramp * turn / at_once if turn < at_once else 0.0)
            for _ in range(turns):
                call = engine.start_stream(ms.Request("sim", messages, **options))  # type: ignore[arg-type]
                completion = await call.wait()
                if not completion.success or completion.response is None or completion.timings.first_token is None:
                    failed += 1
                    if failed == 1:
                        print(f"a call failed: {completion.error}")
                    continue
                if not ramp or turn >= at_once:
                    first.append(completion.timings.first_token)
                messages = [*messages, completion.response.to_message(), ms.Message.user(f"simulate: {knobs}")]

    before = cpu_of(place.process)
    timeouts = ms.Timeouts(connect=60, first_byte=600, idle=600)
    async with (
        ms.open_engine([ms.OpenAIChat(KEY, place.url)], timeouts=timeouts) as engine,
        trio.open_nursery() as nursery,
    ):
        for number in range(calls):
            nursery.start_soon(agent, number)
    return Figures(first, failed, (cpu_of(place.process) - before) / calls / turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--litellm", metavar="VENV", help="a virtual environment with litellm[proxy]")
    parser.add_argument("--verifiers", metavar="VENV", help="a virtual environment with verifiers")
    parser.add_argument("--streams", type=int, default=500, help="live streams at a time")
    parser.add_argument(
        "--calls",
        type=int,
        default=2000,
        help="calls of the run with live streams; the first --streams are not measured",
    )
    parser.add_argument("--dense", type=int, default=300, help="calls of the run without pauses")
    parser.add_argument("--agents", type=int, default=2048, help="agents at once")
    arguments = parser.parse_args()
    with open_simulator() as simulator, contextlib.ExitStack() as stack:
        upstream = simulator.base_urls["openai-chat"]
        places = {"direct": Place(upstream, simulator.pid, [KEY])}
        port = free_port()
        command = [sys.executable, "-m", "manystream", "serve", "--base-url", upstream, "--port", str(port)]
        process = stack.enter_context(running(command, port))
        places["manystream"] = Place(f"http://127.0.0.1:{port}/v1", process, [KEY])
        if arguments.litellm:
            port = free_port()
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (folder / "config.yaml").write_text(
                "model_list:\n  - model_name: '*'\n    litellm_params:\n      model: 'openai/*'\n"
                f"      api_base: {upstream}\n      api_key: any\n"
            )
            program = str(Path(arguments.litellm) / "bin" / "litellm")
            command = [program, "--config", str(folder / "config.yaml"), "--port", str(port), "--num_workers", "1"]
            process = stack.enter_context(running(command, port, LITELLM_MASTER_KEY=KEY, LITELLM_LOG="ERROR"))
            places["LiteLLM"] = Place(f"http://127.0.0.1:{port}/v1", process, [KEY])
        if arguments.verifiers:
            sessions = max(arguments.agents, arguments.calls)
            places["verifiers"] = stack.enter_context(verifiers(arguments.verifiers, upstream, sessions))
        print(
            f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores; ms to the first content, CPU ms a request"
        )
        print(f"{'through':<12}{'failed':>8}{'p50':>9}{'p99':>9}{'CPU':>8}{'agents: failed':>16}{'CPU':>8}")
        for name, place in places.items():
            trio.run(measure, place, UNPACED, 20, 4)  # warm
            paced = trio.run(partial(measure, place, PACED, arguments.calls, arguments.streams, ramp=SECONDS))
            dense = trio.run(measure, place, UNPACED, arguments.dense, 16)
            agents = trio.run(measure, place, UNPACED, arguments.agents, arguments.agents, TURNS)
            middle, late = (paced.quantile(share) if paced.first else math.nan for share in (0.5, 0.99))
            print(
                f"{name:<12}{paced.failed + dense.failed:>8}{middle:>9.2f}{late:>9.2f}{1000 * dense.cpu:>8.2f}"
                f"{agents.failed:>16}{1000 * agents.cpu:>8.2f}",
                flush=True,
            )
        print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
