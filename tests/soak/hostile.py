"""The hostile provider of the chaos program: a proxy in front of the simulator that damages requests and answers.

`python -m tests.soak.hostile PORT SEED` prints its port and serves until its standard input ends; then it prints its
counts. PORT is the simulator's. SEED, the request and how often it came decide which fault it meets.
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
"""Seconds for which a list may lack what was created."""

WEIGHTS = {
    "none": 40, "refuse": 8, "close": 3, "reset": 3, "lost": 6, "head": 2, "cut": 7, "cut by reset": 3, "garbage": 2,
    "page": 2, "headers": 8, "gzip": 2, "endless": 1, "silent": 1, "numbers": 5, "repeat": 3, "bytes": 4,
}  # fmt: skip
"""Fault → its weight. close, reset: the request is not served. lost: it is served, and its answer is lost."""

REFUSALS = (400, 401, 403, 404, 408, 409, 429, 429, 429, 500, 502, 503, 503, 529)
HINTS = (
    "0",
    "0.2",
    "90",
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
LIMITS = ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens", "anthropic-ratelimit-output-tokens-limit", "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-input-tokens-limit", "x-ratelimit-limit-req-second")  # fmt: skip
NUMBERS = (b"-1", b"true", b"1e400", b"999999999999999999999", b"null", b'"7"', b"0.5")
NAMES = (rb"sequence_number", rb"\w*tokens\w*", rb"created\w*")
LIST = re.compile(rb"GET \S*(/batches|/files)(\?\S*)? HTTP")
MAKE = re.compile(rb"POST \S*(/batches|:batchGenerateContent)\S* HTTP")
OF_BATCH = re.compile(rb"(GET|POST|DELETE) \S*(batch|/files|download|upload)")
MARK = re.compile(rb"(tenant-\d+) asks (\d+)")

COUNTS: Counter[str] = Counter()
SEEN: Counter[bytes] = Counter()
ASKED: dict[str, set[int]] = defaultdict(set)
"""Tenant → the numbers of its calls of which a request came."""


def answer_of(status: str, body: str | bytes, kind: str = "application/json", headers: str = "") -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data


def refusal(chance: random.Random) -> bytes:
    """Return an error, often with a nonsense hint, which may repeat the key in its header and body."""
    status, said = chance.choice(REFUSALS), chance.choice(["", f" for {KEY}", f" for Bearer {KEY}"])
    kind = chance.choices(
        ["rate_limit_error", "server_error", "overloaded_error", "x", "insufficient_quota"], [9, 9, 9, 9, 1]
    )[0]
    body = {"error": {"message": f"refused{said}", "type": kind, "code": chance.choice([None, kind, status])}}
    hints = "".join(f"{name}: {chance.choice(HINTS)}\r\n" for name in ("retry-after", "retry-after-ms"))
    return answer_of(f"{status} No", json.dumps(body), headers=f"{hints}x-repeated: {said}\r\n")


def unchunked(answer: bytes) -> tuple[bytes, bytes]:
    """Return the head, without its framing, and the body of an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        rest, body = body, b""
        while (size := int(rest.partition(b"\r\n")[0] or b"0", 16)) > 0:
            rest = rest.partition(b"\r\n")[2]
            body, rest = body + rest[:size], rest[size + 2 :]
    return re.sub(rb"(?i)\r\n(transfer-encoding|content-length):[^\r\n]*", b"", head), body


def damaged(fault: str, answer: bytes, chance: random.Random) -> bytes:
    """Return an answer with a fault that is in its bytes."""
    head = answer.index(b"\r\n\r\n")
    if fault == "head":
        return answer[: chance.randrange(head)]
    if fault.startswith("cut"):
        return answer[: chance.randrange(head, len(answer))]
    if fault == "headers":
        values = (*HINTS, "0.001", "1e308", "", KEY)
        more = "".join(f"{name}: {chance.choice(values)}\r\n" for name in chance.sample(LIMITS, 4))
        return answer.replace(b"\r\n", f"\r\nx-echo: {KEY}\r\n{more}".encode(), 1)
    if fault not in ("gzip", "numbers", "repeat"):
        return answer
    start, body = unchunked(answer)
    if fault == "gzip":
        start, body = start + b"\r\nContent-Encoding: gzip", gzip.compress(body)
    elif fault == "numbers":
        number, name = chance.choice(NUMBERS), chance.choice(NAMES)
        body = re.sub(rb'("%b": ?)-?\d+' % name, lambda found: found[1] + number, body, count=chance.choice([1, 3, 0]))
    elif len(events := re.split(rb"(?<=\n\n)", body)) > 3:
        place = chance.randrange(len(events) - 1)
        if b"sequence_number" in events[place]:  # elsewhere nothing shows that an event is missing or comes twice
            events[place : place + 1] = events[place : place + 1] * chance.choice([0, 2])
        body = b"".join([*events[:place], f": {KEY}\n\n".encode(), *events[place:]])
    return start + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Hostile:
    """The proxy."""

    def __init__(self, port: int, seed: str) -> None:
        self.port = port
        self.seed = seed
        self.made_at = -LATE

    async def fetch(self, request: bytes) -> bytes:
        """Return the simulator's whole answer."""
        head, _, body = request.partition(b"\r\n\r\n")
        head = re.sub(rb"(?i)\r\nconnection:[^\r\n]*", b"", head) + b"\r\nConnection: close"
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            await stream.send_all(head + b"\r\n\r\n" + body)
            answer = b"".join([data async for data in stream])
        return re.sub(rb"(?i)\r\nconnection: close", b"", answer, count=1)

    async def serve(self, client: trio.SocketStream) -> None:
        rest, is_open = b"", True
        async with client:
            try:
                while is_open:
                    request, rest = await read_request(client, rest)
                    is_open = bool(request) and await self.answer(client, request)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError, ValueError):
                COUNTS["clients gone"] += 1

    async def answer(self, client: trio.SocketStream, request: bytes) -> bool:
        """Answer one request. Returns whether the connection stays open."""
        SEEN[request] += 1
        for tenant, number in MARK.findall(request):
            ASKED[tenant.decode()].add(int(number))
        chance = random.Random(f"{self.seed} {SEEN[request]} {request!r}")
        [fault] = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if OF_BATCH.match(request) and fault in ("numbers", "repeat"):
            fault = "none"  # a batch keeps what the provider says
        if MAKE.match(request):
            self.made_at = trio.current_time()
        if LIST.match(request) and trio.current_time() < self.made_at + LATE and chance.random() < 0.5:
            fault = "late list"
        COUNTS[fault] += 1
        if fault == "silent":
            await trio.sleep(LONGEST)
        elif fault == "endless":
            await client.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for _ in range(int(LONGEST * 10)):
                await client.send_all(b": still here\n\n")
                await trio.sleep(0.1)
        elif fault == "garbage":
            await client.send_all(chance.randbytes(chance.randint(1, 3000)))
        if fault in ("close", "garbage", "silent", "endless"):
            return False
        if fault == "reset":
            reset(client)
            return False
        if fault == "refuse":
            sent = refusal(chance)
        elif fault == "page":
            sent = answer_of("200 OK", f"<html>{KEY}</html>", "text/html")
        elif fault == "late list":
            sent = answer_of("200 OK", "{}" if b"/v1beta" in request[:60] else '{"data": [], "has_more": false}')
        else:
            sent = damaged(fault, await self.fetch(request), chance)
        if fault == "lost":
            return False
        size = 1 + chance.randrange(40) if fault == "bytes" else 4096
        for place in range(0, 500 * size, size):
            await client.send_all(sent[place : place + size])
        await client.send_all(sent[500 * size :])
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
    print(json.dumps({"counts": COUNTS, "asked": {tenant: len(found) for tenant, found in ASKED.items()}}), flush=True)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2])
