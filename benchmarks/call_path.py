"""Count the files of one refused and repeated call: `python -m benchmarks.call_path`.

A reader who asks what happens when a 429 arrives opens these files. The count is of Python calls into `engine/` while
`engine.request` runs for the second time, against a server that answers 429 and then 200. It does not depend on the
clock or the load.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import FrameType

import trio

import manystream as ms

ANSWER = b'{"id":"1","model":"m","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}'
RESPONSES = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER),
)
ENGINE = "/manystream/engine/"


@dataclass
class Path:
    """What was called.

    files, classes: those whose code ran.
    switches: calls from one file of `engine/` into another.
    """

    files: set[str] = field(default_factory=set[str])
    classes: set[str] = field(default_factory=set[str])
    switches: int = 0
    _latest: str = ""

    def hook(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or ENGINE not in code.co_filename:
            return
        self.files.add(code.co_filename)
        owner, _, _ = code.co_qualname.partition(".")
        if owner[:1].isupper() or (owner.startswith("_") and owner[1:2].isupper()):
            self.classes.add(owner)
        if code.co_filename != self._latest:
            self.switches += 1
            self._latest = code.co_filename


async def _serve(stream: trio.SocketStream) -> None:
    """Answer 429 and 200 in turn."""
    number, received = 0, b""
    while data := await stream.receive_some():
        received += data
        head, end, body = received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]) if end else 1
        if end and len(body) >= length:
            received = b""
            await stream.send_all(RESPONSES[number % 2])
            number += 1


KINDS = ("plain", "traffic", "route with a budget")


async def count(kind: str) -> Path:
    """Return the path of one call. kind: one of `KINDS`."""
    found = Path()
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, _serve, [listener])
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        providers = [ms.OpenAIChat("key", url, name=name) for name in ("a", "b")]
        traffic, model = None, "a/m"
        if kind == "traffic":
            traffic = ms.Traffic()
        elif kind == "route with a budget":
            model = "fast"
            traffic = ms.Traffic(routes=[ms.Route("fast", ["a/m", "b/m"])], budgets=[ms.Budget(input_tokens=1e9)])
        retry = ms.Retry(base=0.01, jitter=0)
        async with ms.open_engine(providers, traffic=traffic, retry=retry, proxy="", environment={}) as engine:
            request = ms.Request(model, [ms.Message.user("hello")], max_output_tokens=10)
            await engine.request(request)
            sys.setprofile(found.hook)
            try:
                await engine.request(request)
            finally:
                sys.setprofile(None)
        nursery.cancel_scope.cancel()
    return found


def main() -> None:
    for kind in KINDS:
        found = trio.run(count, kind)
        print(f"{kind}: {len(found.files)} files, {len(found.classes)} classes, {found.switches} switches")
        print("   ", " ".join(sorted(found.classes)))


if __name__ == "__main__":
    main()
