"""Measure other clients on the same wires: `python -m tests.faults.measure` prints the data of the page.

Runs each installed client with its retries off: the HTTP clients read the body, the SDK reads a stream of chat chunks.
A second request on the same client shows the effect of the first. This is not a test: run it by hand when the version
of a client changes.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from tests.faults.exchange import WHOLE, End, Wire
from tests.faults.wires import CUT, WIRES
from tests.support.peers import chat_stream, stream_of
from tests.support.threaded_server import Serve, serving
from tests.support.threaded_server import Wire as Line

PATIENCE = 1.5
"""Seconds after which a client that still waits is recorded as waiting."""

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
Fetch = Callable[[], Awaitable[str]]
"""A function that makes the request and returns the response's status and text, or raises."""


def first(wire: Wire) -> Serve:
    """Respond to the first request with a wire, and correctly to each later one."""
    served = count()

    def serve(line: Line) -> None:
        while True:
            line.body(line.head())
            if next(served):
                line.send(stream_of(*chat_stream("second")))
                continue
            line.send(wire.data)
            if wire.end is End.RESET:
                line.reset()
            if wire.end is not End.OPEN:
                return

    return serve


@asynccontextmanager
async def httpx_client(url: str) -> AsyncIterator[Fetch]:
    import httpx

    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:

        async def fetch() -> str:
            response = await client.post(f"{url}/chat/completions", json=REQUEST)
            return f"{response.status_code}:{response.text}"

        yield fetch


@asynccontextmanager
async def aiohttp_client(url: str) -> AsyncIterator[Fetch]:
    import aiohttp

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session:

        async def fetch() -> str:
            async with session.post(f"{url}/chat/completions", json=REQUEST) as response:
                body = await response.read()
                return f"{response.status}:{body.decode('utf-8', 'replace')}"

        yield fetch


@asynccontextmanager
async def sdk_client(url: str) -> AsyncIterator[Fetch]:
    import openai

    async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0, timeout=PATIENCE) as client:

        async def fetch() -> str:
            text = ""
            stream = await client.chat.completions.create(**REQUEST)  # type: ignore[call-overload]
            async for chunk in stream:
                text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            return f"200:{text}"

        yield fetch


CLIENTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "httpx": ("httpx", httpx_client),
    "aiohttp": ("aiohttp", aiohttp_client),
    "OpenAI SDK": ("openai", sdk_client),
}
"""Column of the page → distribution and client."""

SOUND_TEXTS = (f"200:{WHOLE}", "200:one")
SECOND_TEXTS = ("200:" + "".join(chat_stream("second")), "200:second")


async def one(fetch: Fetch) -> tuple[str, str]:
    """Return the outcome of one request as a word, and the text if there is one."""
    try:
        text = await asyncio.wait_for(fetch(), PATIENCE * 2)
    except TimeoutError:
        return "waits", ""
    except UnicodeDecodeError as error:
        return type(error).__name__, ""
    except Exception as error:
        name = type(error).__name__
        return ("waits" if "Timeout" in name else name), ""
    if text in SOUND_TEXTS:
        return "success", text
    return ("success" if text.startswith("200:") else f"status {text[:3]}"), text


async def measure(make: Callable[[str], Any], row: int) -> str:
    """Return in a few words how one client reacts to one row's wire."""
    with serving(first(WIRES[row])) as server:
        async with make(f"{server.url}/v1") as fetch:
            word, text = await one(fetch)
            await asyncio.sleep(0.02)
            second, second_text = await one(fetch)
    if word == "success":
        word = success(text, cut=row in CUT)
    if second_text not in SECOND_TEXTS:
        word += f"; next request: {'**a stray answer**' if second == 'success' else second}"
    return word


def success(text: str, *, cut: bool) -> str:
    if text in SECOND_TEXTS:
        return "follows it"
    if text == SOUND_TEXTS[1] and cut:
        return "**success**, the cut unnoticed"
    if text in SOUND_TEXTS:
        return "success"
    return "the bytes as they came" if text != "200:" else "**success**, empty"


def main() -> None:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, dict[str, str]] = {}
    for column, (distribution, make) in CLIENTS.items():
        try:
            title = f"{column} {version(distribution)}"
        except PackageNotFoundError:
            print(f"{column} is not installed: left out", file=sys.stderr)
            continue
        found[title] = {str(row): asyncio.run(measure(make, row)) for row in WIRES}
    print(json.dumps(found, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
