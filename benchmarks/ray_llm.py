"""Rows per second of a Ray data set: `manystream.ray.Ask` beside the HTTP processor of `ray.data.llm`.

Both ask the same rows with the same number of actors, in one Ray on this machine. The server answers each row after a
fixed time, so the figures show how many calls are in flight. The cost of a row is the difference between a long run and
a short one, so that starting does not count. The HTTP processor has its default batch of 64 rows.

Shown, too: how many calls of one batch are in flight, what becomes of errors 400 and 500, and of refusals for the rate.

It needs Ray, pydantic and aiohttp:

    build/ray/bin/python -m pip install --constraint constraints.txt pydantic aiohttp
    build/ray/bin/python -m benchmarks.ray_llm
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import manystream as ms
import manystream.ray
from manystream.simulator import open_simulator

KEY = "any"
SECONDS = 0.5
"""The time of each answer."""

BATCH = 20
"""The rows of the batch whose calls in flight are counted."""

CONCURRENCY = 1000
ACTORS = 2
MOST_SHOWN = 90

Build = Callable[[Any], Any]
"""Makes a data set of answers of a data set of rows."""


def ours(url: str, **options: Any) -> Build:
    """Ask with `manystream.ray.Ask`."""
    provider = ms.OpenAIChat(KEY, url, name="sim")
    arguments = manystream.ray.ask_options(
        "sim/sim-text", actors=ACTORS, concurrency=CONCURRENCY, providers=[provider], **options
    )
    return lambda rows: rows.map_batches(manystream.ray.Ask, **arguments)


def theirs(url: str, **options: Any) -> Build:
    """Ask with the HTTP processor of `ray.data.llm`."""
    from ray.data.llm import HttpRequestProcessorConfig, build_processor

    config = HttpRequestProcessorConfig(
        url=f"{url}/chat/completions",
        headers={"Authorization": f"Bearer {KEY}"},
        concurrency=(ACTORS, ACTORS),
        **options,
    )
    message = lambda row: {"role": "user", "content": row["prompt"]}  # noqa: E731
    build: Build = build_processor(
        config,
        preprocess=lambda row: {"payload": {"model": "sim-text", "messages": [message(row)]}, "id": row["id"]},
        postprocess=lambda row: {"id": row["id"], "answer": str(row["http_response"])},
    )
    return build


def rows_of(prompt: str, count: int, blocks: int) -> Any:
    """Return a data set of so many rows in so many blocks."""
    import ray.data

    return ray.data.from_items([{"id": number, "prompt": prompt} for number in range(count)]).repartition(blocks)


def seconds_of(build: Build, prompt: str, count: int, blocks: int) -> float:
    """Return the time in which so many rows are asked."""
    rows = rows_of(prompt, count, blocks).materialize()
    began = time.monotonic()
    found = build(rows).count()
    assert found == count, f"{found} of {count} rows"
    return time.monotonic() - began


def rate(build: Build, prompt: str, count: int) -> float:
    """Return rows per second, without the start."""
    few, many = count // 4, count
    blocks = 2 * ACTORS
    return (many - few) / (seconds_of(build, prompt, many, blocks) - seconds_of(build, prompt, few, blocks))


class InFlight(BaseHTTPRequestHandler):
    """A server that counts the requests that it has not answered yet."""

    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    now = most = 0

    def do_POST(self) -> None:
        """Answer after `SECONDS`."""
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            InFlight.now += 1
            InFlight.most = max(InFlight.most, InFlight.now)
        time.sleep(SECONDS)
        message = {"role": "assistant", "content": "fine"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps({"id": "1", "object": "chat.completion", "model": "sim-text", "choices": [choice]}).encode()
        with self.lock:
            InFlight.now -= 1
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


def in_flight(make: Callable[[str], Build]) -> int:
    """Return the most calls of one batch that are in flight at a time."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), InFlight)
    server.daemon_threads = True
    InFlight.most = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        seconds_of(make(f"http://127.0.0.1:{server.server_port}/v1"), "any", BATCH, 1)
    finally:
        server.shutdown()
        server.server_close()
    return InFlight.most


def outcome(build: Build, prompt: str, column: str) -> str:
    """Return the first row's answer to a prompt in words, or how the data set has ended."""
    try:
        (row,) = build(rows_of(prompt, 1, 1)).take_all()
    except Exception as error:
        lines = [line for line in str(error).splitlines() if "Error: " in line] or [repr(error)]
        return f"the data set ends: {lines[-1].strip()[:MOST_SHOWN]}"
    return f"a row, {column}: {str(row[column])[:MOST_SHOWN]}"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8000, help="rows of our long run")
    parser.add_argument("--their-rows", type=int, default=200, help="rows of their long run, which takes longer")
    options = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    import ray.data

    ray.init("local", num_cpus=2 * ACTORS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    slow = f"simulate: delay={SECONDS}"
    with open_simulator("events=2", journal=0) as simulator:
        url = simulator.base_urls["openai-chat"]
        us, them = rate(ours(url), slow, options.rows), rate(theirs(url), slow, options.their_rows)
        print("| what | `manystream.ray.Ask` | `ray.data.llm` |\n|---|---|---|")
        print(
            f"| rows per second, {ACTORS} actors, answers of {SECONDS} s | {us:,.0f}, {us / them:.0f} × | {them:,.1f} |"
        )
        mine, others = in_flight(ours), in_flight(theirs)
        print(f"| one batch of {BATCH} rows: the most calls in flight | {mine} | {others} |")
        for prompt, what in (
            ("simulate: fail=400", "a request that the server refuses (400)"),
            ("simulate: fail=500", "an error of the server (500)"),
            ("simulate: fail=429", "refused for the rate (429) three times, two retries"),
        ):
            mine = outcome(ours(url, retry=ms.Retry(max_attempts=3)), prompt, "error")
            print(f"| {what} | {mine} | {outcome(theirs(url, max_retries=2), prompt, 'answer')} |")
    ray.shutdown()


if __name__ == "__main__":
    main()
