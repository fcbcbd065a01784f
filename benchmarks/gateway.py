"""What the gateway adds to a stream, and the CPU of a request, beside LiteLLM's proxy.

`python -m benchmarks.gateway [--litellm VENV]`: the simulator, each gateway and the client are processes of their own.
The client is this library's engine. First `STREAMS` paced streams are live at a time, for the time that a gateway adds
to the first content. Then requests follow each other without pauses, for the CPU of the gateway's process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import trio

import manystream as ms
from manystream.simulator import open_simulator

PACED = "events=50,rate=50"
UNPACED = "events=50"
START_SECONDS = 60
KEY = "sk-of-this-benchmark"
"""The key of LiteLLM's proxy, which does not start without one. The others accept any."""


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


async def measure(url: str, process: int, knobs: str, calls: int, at_once: int) -> Figures:
    """Make so many streamed calls, so many at a time."""
    first: list[float] = []
    failed = 0
    provider = ms.OpenAIChat(KEY, url)
    limit = trio.CapacityLimiter(at_once)

    async def one() -> None:
        nonlocal failed
        async with limit:
            call = engine.start_stream(ms.Request("sim", f"simulate: {knobs}", retry=ms.Retry(max_attempts=1)))
            completion = await call.wait()
        if completion.success and completion.timings.first_token is not None:
            first.append(completion.timings.first_token)
        else:
            failed += 1
            if failed == 1:
                print(f"a call failed: {completion.error}")

    before = cpu_of(process)
    async with ms.open_engine([provider]) as engine, trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(one)
    return Figures(first, failed, (cpu_of(process) - before) / calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--litellm", metavar="VENV", help="a virtual environment with litellm[proxy]")
    parser.add_argument("--streams", type=int, default=100, help="live streams at a time")
    parser.add_argument("--calls", type=int, default=300, help="calls of each run")
    arguments = parser.parse_args()
    with open_simulator() as simulator, contextlib.ExitStack() as stack:
        upstream = simulator.base_urls["openai-chat"]
        places = {"direct": (upstream, simulator.pid)}
        port = free_port()
        command = [sys.executable, "-m", "manystream", "serve", "--base-url", upstream, "--port", str(port)]
        places["manystream"] = (f"http://127.0.0.1:{port}/v1", stack.enter_context(running(command, port)))
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
            places["LiteLLM"] = (f"http://127.0.0.1:{port}/v1", process)
        print(f"{'through':<12}{'failed':>8}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms a request':>18}")
        for name, (url, process) in places.items():
            trio.run(measure, url, process, UNPACED, 20, 4)  # warm
            paced = trio.run(measure, url, process, PACED, arguments.calls, arguments.streams)
            dense = trio.run(measure, url, process, UNPACED, arguments.calls, 16)
            if not paced.first:
                print(f"{name:<12}{paced.failed:>8}")
                continue
            middle = statistics.median(paced.first) * 1000
            print(
                f"{name:<12}{paced.failed + dense.failed:>8}{middle:>9.2f}{paced.quantile(0.99):>9.2f}"
                f"{1000 * dense.cpu:>18.2f}"
            )


if __name__ == "__main__":
    main()
