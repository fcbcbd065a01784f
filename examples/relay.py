"""An ASGI application that relays a model's stream to browsers, and stops the model when the browser disconnects.

    uvicorn --app-dir examples relay:app       or    hypercorn examples.relay:app
    python examples/relay.py                   without a server: runs two simulated browsers and prints their data

The simulator answers, unless MANYSTREAM_MODEL names a model and the environment has its key. The application is plain
ASGI. It runs under any server, and inside FastAPI or Starlette, whose lifespan opens the engine:

    relay = Relay()
    api = FastAPI(lifespan=relay.lifespan)
    api.mount("/models", relay)                # GET /models/stream?prompt=…

A server opens one engine per process for the streams of all browsers. A slow browser slows down its own stream only,
up
to the provider's socket. A browser that closes its tab ends the call within one iteration of the loop.
"""

from __future__ import annotations

import asyncio
import json
import os
from argparse import Namespace
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from setting import open_setting

import manystream as ms

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

KNOBS = "kind=thinking,events=60,rate=30"

EVENT_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx buffers the stream
]

PAGE = b"""<!doctype html><meta charset="utf-8"><title>relay</title>
<form><input name="prompt" size="60" placeholder="Ask, and close the tab when you have seen enough"></form><pre></pre>
<script>
const show = document.querySelector("pre")
let source
document.querySelector("form").onsubmit = event => {
  event.preventDefault()
  if (source) source.close()
  show.textContent = ""
  const prompt = new FormData(event.target).get("prompt")
  source = new EventSource("stream?prompt=" + encodeURIComponent(prompt))
  source.addEventListener("text", event => show.textContent += JSON.parse(event.data))
  source.addEventListener("failure", event => { show.textContent += "\\n" + JSON.parse(event.data); source.close() })
  source.addEventListener("done", () => source.close())
}
</script>"""


def frame_of(event: ms.Event) -> bytes:
    """The data of an event for the browser; empty for events that the browser does not receive."""
    if isinstance(event, ms.TextDelta):
        return sse("text", event.text)
    if isinstance(event, ms.ThinkingDelta):
        return sse("thinking", event.text)
    if isinstance(event, ms.Done):
        return sse("done", event.finish_reason.value)
    return b""


def sse(name: str, data: str) -> bytes:
    """One server-sent event. Its data is JSON, which has no line breaks."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


class Relay:
    """The application.

    engine, model: exist while the lifespan runs.
    """

    def __init__(self) -> None:
        self.engine: ms.Engine | None = None
        self.model = ""

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None, None]:
        """Keep the engine open for the lifespan of the server, or of the application that mounts this one."""
        chosen = Namespace(model=os.environ.get("MANYSTREAM_MODEL"), base_url=os.environ.get("MANYSTREAM_BASE_URL"))
        with open_setting(chosen, KNOBS) as setting:
            async with ms.open_engine(setting.providers) as engine:
                self.engine, self.model = engine, setting.model
                try:
                    yield
                finally:
                    self.engine = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.lifespan():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        # A mounting application puts its prefix into `root_path`, and mostly into `path` as well.
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        prompt = parse_qs(scope["query_string"].decode("latin-1")).get("prompt", [""])[0]
        if path in ("", "/"):
            await respond(send, 200, b"text/html; charset=utf-8", PAGE)
        elif path != "/stream":
            await respond(send, 404, b"text/plain", b"there is / and /stream?prompt=...")
        elif not prompt.strip():
            await respond(send, 400, b"text/plain", b"prompt is empty")
        elif self.engine is None:
            await respond(send, 503, b"text/plain", b"the application's lifespan was not run: see lifespan=")
        else:
            await self._stream(self.engine, prompt, receive, send)

    async def _stream(self, engine: ms.Engine, prompt: str, receive: Receive, send: Send) -> None:
        request = ms.Request(self.model, [ms.Message.user(prompt)], max_output_tokens=4_000)
        # Leaving the block cancels the call.
        async with engine.stream(request) as events:
            watcher = asyncio.create_task(cancel_when_gone(receive, events.call))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
                async for event in events:
                    frame = frame_of(event)
                    if frame:
                        await send({"type": "http.response.body", "body": frame, "more_body": True})
            except ms.ProviderError as error:
                if error.category is ms.ErrorCategory.CANCELLED:
                    return  # the browser has disconnected
                # Send the category only. The words of the provider belong into the log.
                frame = sse("failure", error.category.value)
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            except OSError:
                return  # servers report a disconnected browser in `send` so
            finally:
                watcher.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def cancel_when_gone(receive: Receive, call: ms.Call) -> None:
    """Wait until the browser disconnects, and cancel its call."""
    while (await receive())["type"] != "http.disconnect":
        pass
    call.cancel()


async def respond(send: Send, status: int, kind: bytes, body: bytes) -> None:
    """Send a whole answer."""
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


app = Relay()


# --- without a server ---


async def browse(relay: Relay, prompt: str, *, frames: int | None = None) -> list[bytes]:
    """The text that one browser receives.

    frames: the browser disconnects after this many; None: it stays.
    """
    got: list[bytes] = []
    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and message["body"]:
            got.append(message["body"])
            if len(got) == frames:
                gone.set()

    scope: Message = {"type": "http", "path": "/stream", "query_string": f"prompt={prompt}".encode()}
    await relay(scope, receive, send)
    return got


async def play() -> None:
    """Run two browsers: one stays, one disconnects early."""
    relay = Relay()
    async with relay.lifespan():
        assert relay.engine is not None
        stayed, left = await asyncio.gather(browse(relay, "stay"), browse(relay, "leave", frames=10))
        print(f"stayed: {len(stayed)} frames, the last is {stayed[-1].decode().splitlines()[0]!r}")
        figures = relay.engine.statistics()
        running = sum(figures.calls.values())
        print(f"left:   {len(left)} frames; {figures.cancelled} upstream call cancelled, {running} run")


if __name__ == "__main__":
    asyncio.run(play())
