"""Each hostile form costs a bounded amount per byte, counted in calls and allocations, whatever its size.

The forms take the path of a response body: they are cut into reads, decoded from chunked coding, and fed to the SSE
parser and the dialect's stream machine; unstreamed bodies are passed whole to the dialect's decoder.
"""

import contextlib
import cProfile
import gc
import tracemalloc
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

import manystream as ms
from manystream.partial_json import LiveCalls
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.chunked import ChunkDecoder, ChunkError
from manystream.transport.sse import SSEOverflowError, SSEParser
from tests.support.crowds import CROWDS, Crowd
from tests.support.peers import chunked

LARGE = 300_000
FEW, MANY = 50_000, 200_000
"""Two sizes of one form. A cost that grows faster than the bytes is larger per byte in the second one."""
READ = 16 * 1024

CALLS_PER_BYTE = 2.5
"""Function calls, in Python and C, per received byte. An ordinary delta needs about a tenth of it."""

BYTES_PER_BYTE = 80
"""Peak of allocated bytes per received byte. An empty JSON object, of two bytes and a comma, alone needs 64 bytes and
the reference to it."""


@dataclass
class Cost:
    """The cost of one response.

    size: the number of bytes that were sent.
    read: the number of bytes that were read before the response was refused, if it was.
    calls: the number of function calls.
    peak: the peak of allocated bytes.
    """

    size: int
    read: int = 0
    calls: int = 0
    peak: int = 0

    def check(self) -> None:
        assert self.calls < CALLS_PER_BYTE * self.read + 20_000, self
        assert self.peak < BYTES_PER_BYTE * self.read + 200_000, self


class Measure:
    """Counts calls and allocations inside its block."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.profile = cProfile.Profile(subcalls=False)  # the calls of each function, not by whom

    def __enter__(self) -> None:
        gc.collect()
        tracemalloc.start()
        self.profile.enable()

    def __exit__(self, *exception: object) -> None:
        self.profile.disable()
        self.cost.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.cost.calls = sum(entry.callcount for entry in self.profile.getstats())


def read_stream(reads: Iterable[bytes], provider: ms.Provider, cost: Cost) -> None:
    """Read a streamed response as an attempt does, up to its error."""
    decoder, parser = ChunkDecoder(), SSEParser()
    machine = DIALECTS[provider.profile.dialect_name].machine(provider, lambda: "id")
    for data in reads:
        cost.read += len(data)
        try:
            for name, payload in parser.feed(decoder.feed(data)):
                if payload:
                    machine.feed(name, payload)
                    if machine.ended:
                        return
        except (ChunkError, SSEOverflowError):
            return
    machine.end()
    machine.response()


def cost_of(crowd: Crowd, size: int) -> Cost:
    provider = crowd.dialect.provider("http://127.0.0.1")
    body = b"".join(crowd.pieces(max(2, size // crowd.size)))
    wire = chunked(body) if crowd.stream else body
    reads = [wire[start : start + READ] for start in range(0, len(wire), READ)]
    cost = Cost(len(wire))
    with Measure(cost):
        if crowd.stream:
            read_stream(reads, provider, cost)
        else:
            cost.read = len(body)
            with contextlib.suppress(ms.ProviderError):
                DIALECTS[provider.profile.dialect_name].decode(body, provider, lambda: "id")
    return cost


@pytest.mark.parametrize("crowd", CROWDS, ids=str)
def test_small_parts_cost_a_bounded_amount_whatever_their_number(crowd: Crowd) -> None:
    few, many = cost_of(crowd, FEW), cost_of(crowd, MANY)
    assert 0.4 * MANY < many.size < 2.5 * MANY
    many.check()
    assert many.calls / many.read < 1.05 * few.calls / few.read, (few, many)
    assert many.peak / many.read < 1.05 * few.peak / few.read, (few, many)


def in_chunks(body: bytes, size: int) -> bytes:
    return chunked(*[body[start : start + size] for start in range(0, len(body), size)])


DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
TEXT = b'data: {"choices":[{"delta":{"content":"'
LINES: dict[str, bytes] = {
    "empty data": chunked(b"data:\n\n" * (LARGE // 7)),
    "data lines of a byte": chunked(b"data:1\n" * (LARGE // 7)),
    "data lines of a byte, with spaces": chunked(b"data: 1\n" * (LARGE // 8)),
    "comments": chunked(b":\n" * (LARGE // 2)),
    "empty lines": chunked(b"\n" * LARGE),
    "carriage returns": chunked(b"\r" * LARGE),
    "event names": chunked(b"".join(b"event: %d\ndata: {}\n\n" % number for number in range(LARGE // 24))),
    "lines that are no field": chunked(b"x\n" * (LARGE // 2)),
    "one line": chunked(b"data: " + b"x" * LARGE),
    "one line in chunks of a byte": in_chunks(b"data: " + b"x" * (LARGE // 6), 1),
    "events in chunks of a byte": in_chunks(DELTA * (LARGE // 6 // len(DELTA)), 1),
    "sizes of chunks that differ": b"".join(
        b"%x\r\n%b\r\n" % (number % 60 + 3, b":" + b"x" * (number % 60) + b"\n\n") for number in range(LARGE // 40)
    ),
    "chunk extensions": (b"1;" + b"x" * 100 + b"\r\n\n\r\n") * (LARGE // 107),
    "deep nesting": chunked(b"data: " + b"[" * LARGE + b"\n\n"),
    "deep objects": chunked(b"data: " + b'{"a":' * (LARGE // 5) + b"\n\n"),
    "JSON that is refused at its end": chunked(b"data: [" + b"1," * (LARGE // 2) + b"\n\n"),
    "escapes": chunked(b'data: {"choices":[{"delta":{"content":"' + b"\\u0041" * (LARGE // 6) + b'"}}]}\n\n'),
    "lone surrogates": chunked(b'data: {"choices":[{"delta":{"content":"' + b"\\ud800" * (LARGE // 6) + b'"}}]}\n\n'),
    "bytes that are no UTF-8": chunked(b'data: {"choices":[{"delta":{"content":"' + b"\xff" * LARGE + b'"}}]}\n\n'),
}


IN_SMALL_READS = ("one line", "data lines of a byte", "events in chunks of a byte", "deep nesting")


@pytest.mark.parametrize(
    ("name", "size"), [*((name, READ) for name in LINES), *((name, 100) for name in IN_SMALL_READS)]
)
def test_a_body_of_small_lines_costs_a_bounded_amount(name: str, size: int) -> None:
    wire = LINES[name]
    reads = [wire[start : start + size] for start in range(0, len(wire), size)]
    cost = Cost(len(wire))
    with Measure(cost):
        read_stream(reads, ms.OpenAIChat("key", "http://127.0.0.1"), cost)
    cost.check()


CALLS_PER_CHARACTER = 25
BYTES_PER_CHARACTER = 400
"""Function calls per character of arguments that a partial view follows: it creates a value for every change."""

ARGUMENT = 30_000
"""Characters of arguments."""

ARGUMENTS: dict[str, str] = {
    "deep": "[" * 900 + "[]," * (ARGUMENT // 3) + "[]",
    "wide": "[" + "1," * (ARGUMENT // 2),
    "escapes": '["' + "\\n" * (ARGUMENT // 2),
    "members": "{" + ",".join(f'"m{number}":1' for number in range(ARGUMENT // 10)),
    "a long number": "1" * ARGUMENT,
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("size", [10, 1000])
def test_following_partial_arguments_costs_a_bounded_amount(name: str, size: int) -> None:
    text = ARGUMENTS[name]
    cost = Cost(len(text), read=len(text))
    calls = LiveCalls()
    calls.on_event(ms.ToolCallStart(0, "a", "f"))
    with Measure(cost):
        for start in range(0, len(text), size):
            calls.on_event(ms.ToolCallDelta(0, text[start : start + size]))
    assert cost.calls < CALLS_PER_CHARACTER * len(text), cost
    assert cost.peak < BYTES_PER_CHARACTER * len(text), cost
