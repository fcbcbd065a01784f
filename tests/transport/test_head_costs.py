"""The bounds on the cost of a response head: its size, its lines and its informational heads."""

import cProfile
import tracemalloc

import pytest

from manystream.transport.response_head import (
    HEAD_TOO_LARGE,
    MAX_HEAD_BYTES,
    MAX_HEAD_LINES,
    TOO_MANY_LINES,
    HeadError,
    HeadReader,
)

STATUS = b"HTTP/1.1 200 OK\r\n"
EARLY = b"HTTP/1.1 103 Early\r\n"
READ = 16 * 1024


def outcome(data: bytes, size: int = READ) -> str:
    """Feed a head in reads of this size; return the error message, or the bytes after the head."""
    reader = HeadReader()
    for start in range(0, len(data), size):
        try:
            head = reader.feed(data[start : start + size])
        except HeadError as error:
            return str(error)
        if head is not None:
            return (reader.rest + data[start + size :]).decode()
    return "more is awaited"


@pytest.mark.parametrize("size", [1, 7, READ])
def test_lines_of_a_body_do_not_count(size: int) -> None:
    body = b"\n" * (2 * MAX_HEAD_LINES)
    assert outcome(STATUS + b"A: b\r\n\r\n" + body, size) == body.decode()


@pytest.mark.parametrize("size", [1, 5, READ])
@pytest.mark.parametrize("over", [0, 1])
def test_the_number_of_lines_of_a_head_is_bounded(over: int, size: int) -> None:
    lines = MAX_HEAD_LINES - 2 + over  # besides the status line and the blank line
    data = STATUS + b"a:\n" * lines + b"\r\nbody\n\n"
    assert outcome(data, size) == (TOO_MANY_LINES if over else "body\n\n")


def test_the_lines_of_informational_heads_count_together() -> None:
    early = EARLY + b"a:\n" * 500 + b"\r\n"
    assert outcome(early * 5 + STATUS + b"\r\nx") == "x"
    assert outcome(early * 10 + STATUS + b"\r\nx") == TOO_MANY_LINES


def test_the_bytes_of_informational_heads_count_together() -> None:
    early = EARLY + b"a: " + b"x" * 90_000 + b"\r\n\r\n"
    assert outcome(early * 5 + STATUS + b"\r\n") == HEAD_TOO_LARGE


HOSTILE = {
    "short lines": STATUS + b"a:\n" * 330_000,
    "short lines, twice": EARLY + b"a:\n" * 2000 + b"\n" + STATUS + b"a:\n" * 330_000,
    "folded lines": STATUS + b"a: b\n" + b" \n" * 500_000,
    "short informational heads": b"HTTP/1.1 103 \n\n" * 66_000,
    "informational heads of short lines": (EARLY + b"a:\n" * 1000 + b"\n") * 330,
    "one long line": STATUS + b"a: " + b"x" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("size", [100, READ])
def test_a_megabyte_of_heads_costs_a_bounded_amount(name: str, size: int) -> None:
    profile = cProfile.Profile()
    tracemalloc.start()
    try:
        profile.enable()
        error = outcome(HOSTILE[name], size)
        profile.disable()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "response head" in error or "informational" in error, error
    assert sum(entry.callcount for entry in profile.getstats()) < 400_000
    assert peak < 10 * MAX_HEAD_BYTES
