"""The hostile provider of the chaos program: a proxy in front of the simulator that damages requests and answers.

`python -m tests.soak.hostile PORT SEED` prints its port and serves until its standard input ends; then it prints how
often it did what. PORT is the simulator's. Which request meets which fault depends on SEED, on the request and on how
often it came.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections import Counter, defaultdict

import trio

from tests.soak.world import read_request, reset

KEY = "sk-chaos-canary-0123456789abcdef"
"""The key of the provider, which must be in no output."""

LONGEST = 8.0
"""Seconds of a stream without an end, and of an answer that never comes."""

LATE = 4.0
"""Seconds for which a list does not have what was created."""

WEIGHTS = {
    "none": 40, "refuse": 8, "close": 3, "reset": 3, "lost": 6, "head": 2, "cut": 7, "cut by reset": 3, "garbage": 2,
    "page": 2, "headers": 8, "gzip": 2, "endless": 1, "silent": 1, "numbers": 5, "repeat": 3, "bytes": 4,
}  # fmt: skip
"""Fault → its weight.

close, reset: the request is not served. lost: it is served, and its answer is lost. head: the answer is cut in its head.
"""

REFUSALS = (400, 401, 403, 404, 408, 409, 429, 429, 429, 500, 502, 503, 503, 529)
HINTS = (
    "0",
    "0.2",
    "1",
    "-5",
    "nan",
    "inf",
    "1e999",
    "86400",
    "x",
    "9" * 400,
    "5e-324",
    "Fri, 31 Dec 9999 23:59:59 GMT",
)
LIMITS = (
    "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens", "anthropic-ratelimit-output-tokens-limit", "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-input-tokens-limit", "x-ratelimit-limit-req-second",
)  # fmt: skip
NUMBERS = ("-1", "true", "1e400", "999999999999999999999", "null", '"7"', "0.5")
LISTS = re.compile(rb"GET \S*(/batches|/files)(\?\S*)? HTTP")
MADE = re.compile(rb"POST \S*(/batches|:batchGenerateContent)\S* HTTP")
RESULTS = re.compile(rb"(GET|POST|DELETE) \S*(batch|/files|download|upload)")

MARK = re.compile(rb"(tenant-\d+) asks (\d+)")

COUNTS: Counter[str] = Counter()
ASKED: dict[str, set[int]] = defaultdict(set)
"""Tenant → the numbers of its calls of which a request came."""
SEEN: Counter[bytes] = Counter()
MADE_AT = [-1e9]


def refusal(chance: random.Random) -> bytes:
    """Return an error, often with a nonsense hint, which may repeat the key in its header and body."""
    status, said = chance.choice(REFUSALS), chance.choice(["", f" for {KEY}", f" for Bearer {KEY}"])
    kind = chance.choice(["rate_limit_error", "server_error", "overloaded_error", "x"])
    kind = "insufficient_quota" if chance.random() < 0.03 else kind
    body = json.dumps(
        {"error": {"message": f"refused{said}", "type": kind, "code": chance.choice([None, kind, status])}}
    )
    hints = "".join(f"{name}: {chance.choice(HINTS)}\r\n" for name in ("retry-after", "retry-after-ms", "x-key"))
    hints += f"x-repeated: {KEY}\r\n" if said else ""
    return f"HTTP/1.1 {status} No\r\nContent-Type: application/json\r\n{hints}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def nonsense(answer: bytes, chance: random.Random) -> bytes:
    """Return an answer with headers that make no sense."""
    values = (*HINTS, "0.001", "1", "1e308", "", KEY)
    more = "".join(f"{name}: {chance.choice(values)}\r\n" for name in chance.sample(LIMITS, 4)) + f"x-echo: {KEY}\r\n"
    return answer.replace(b"\r\n", f"\r\n{more}".encode(), 1)


def unchunked(answer: bytes) -> tuple[bytes, bytes]:
    """Return the head, without its framing, and the body of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        rest, parts = body, list[bytes]()
        while (size := int(rest.partition(b"\r\n")[0] or b"0", 16)) > 0:
            rest = rest.partition(b"\r\n")[2]
            parts.append(rest[:size])
            rest = rest[size + 2 :]
        body = b"".join(parts)
    return re.sub(rb"(?i)\r\n(transfer-encoding|content-length|connection):[^\r\n]*", b"", head), body


def framed(head: bytes, body: bytes) -> bytes:
    return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def renumbered(body: bytes, chance: random.Random) -> bytes:
    """Return a stream or a body in which some numbers of usage or of events are wrong."""
    number = chance.choice(NUMBERS).encode()
    names = chance.choice([rb"sequence_number", rb"\w*tokens\w*", rb"created\w*"])
    return re.sub(rb'("%b": ?)-?\d+' % names, lambda found: found[1] + number, body, count=chance.choice([1, 3, 0]))


def repeated(body: bytes, chance: random.Random) -> bytes:
    """Return a stream of which an event comes twice, or never; and with the key in a comment. No other body changes."""
    events = re.split(rb"(?<=\n\n)", body)
    if len(events) < 4:
        return body
    place = chance.randrange(len(events) - 1)
    if b"sequence_number" in events[place]:  # elsewhere nothing shows that an event is missing or comes twice
        events[place : place + 1] = events[place : place + 1] * chance.choice([0, 2])
    events.insert(place, f": {KEY}\n\n".encode())
    return b"".join(events)


class Hostile:
    """The proxy."""

    def __init__(self, port: int, seed: str) -> None:
        self.port = port
        self.seed = seed

    async def fetch(self, request: bytes) -> bytes:
        """Return the simulator's whole answer."""
        head, _, body = request.partition(b"\r\n\r\n")
        head = re.sub(rb"(?i)\r\nconnection:[^\r\n]*", b"", head) + b"\r\nConnection: close"
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            await stream.send_all(head + b"\r\n\r\n" + body)
            answer = b"".join([data async for data in stream])
        return re.sub(rb"(?i)\r\nconnection: close", b"", answer, count=1)

    async def serve(self, client: trio.SocketStream) -> None:
        rest = b""
        async with client:
            try:
                while True:
                    request, rest = await read_request(client, rest)
                    if not request or not await self.answer(client, request):
                        return
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError, ValueError):
                COUNTS["clients gone"] += 1

    async def answer(self, client: trio.SocketStream, request: bytes) -> bool:
        """Answer one request. Returns whether the connection stays open."""
        COUNTS["requests"] += 1
        SEEN[request] += 1
        for tenant, number in MARK.findall(request):
            ASKED[tenant.decode()].add(int(number))
        chance = random.Random(f"{self.seed} {SEEN[request]} {request!r}")
        [fault] = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if RESULTS.match(request) and fault in ("numbers", "repeat"):
            fault = "none"  # what a batch keeps is the provider's word
        COUNTS[fault] += 1
        if fault == "close":
            return False
        if fault == "reset":
            reset(client)
            return False
        if fault == "refuse":
            await client.send_all(refusal(chance))
            return True
        if fault == "garbage":
            await client.send_all(chance.randbytes(chance.randint(1, 3000)))
            return False
        if fault == "page":
            await client.send_all(
                framed(b"HTTP/1.1 200 OK\r\nContent-Type: text/html", b"<html>%b</html>" % KEY.encode())
            )
            return True
        if fault == "silent":
            await trio.sleep(LONGEST)
            return False
        if MADE.match(request):
            MADE_AT[0] = trio.current_time()
        if LISTS.match(request) and trio.current_time() < MADE_AT[0] + LATE and chance.random() < 0.5:
            COUNTS["late lists"] += 1
            body = b"{}" if b"/v1beta" in request[:60] else b'{"object": "list", "data": [], "has_more": false}'
            await client.send_all(framed(b"HTTP/1.1 200 OK\r\nContent-Type: application/json", body))
            return True
        return await self.forward(client, await self.fetch(request), fault, chance)

    async def forward(self, client: trio.SocketStream, answer: bytes, fault: str, chance: random.Random) -> bool:
        head = answer.index(b"\r\n\r\n")
        if fault == "lost":
            return False
        if fault == "endless":
            await client.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for _ in range(int(LONGEST * 10)):
                await client.send_all(b": still here\n\n")
                await trio.sleep(0.1)
            return False
        if fault == "headers":
            answer = nonsense(answer, chance)
        elif fault in ("gzip", "numbers", "repeat"):
            start, body = unchunked(answer)
            if fault == "gzip":
                start, body = start + b"\r\nContent-Encoding: gzip", gzip.compress(body)
            answer = framed(
                start,
                (renumbered if fault == "numbers" else repeated if fault == "repeat" else bytes)(
                    *([body] if fault == "gzip" else [body, chance])
                ),
            )
        elif fault == "head":
            answer = answer[: chance.randrange(head)]
        elif fault.startswith("cut"):
            answer = answer[: chance.randrange(head, len(answer))]
        size = 1 + chance.randrange(40) if fault == "bytes" else 4096
        for place in range(0, min(len(answer), 500 * size), size):
            await client.send_all(answer[place : place + size])
        await client.send_all(answer[500 * size :])
        if fault == "cut by reset":
            reset(client)
        return fault not in ("head", "cut", "cut by reset")


async def main(port: int, seed: str) -> None:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1024)
        nursery.start_soon(trio.serve_listeners, Hostile(port, seed).serve, listeners)
        print(listeners[0].socket.getsockname()[1], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()
    print(
        json.dumps({"counts": COUNTS, "asked": {tenant: len(numbers) for tenant, numbers in ASKED.items()}}), flush=True
    )


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2])
