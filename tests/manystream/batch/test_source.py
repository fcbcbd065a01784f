"""Lines of a batch's input that are too long: only they are refused, in bounded memory."""

import io
import json
import tracemalloc
from pathlib import Path

import pytest

import manystream as ms
from manystream.batch import Batch, Journal, lines, read_lines, source
from manystream.batch.lines import LineError, read_line
from tests.support.batches import line, model, records

MIB = 1024 * 1024
LONG = 100 * MIB


class Generated(io.RawIOBase):
    """A file that is generated while it is read: a valid line, a line of `size` bytes, and another valid line."""

    def __init__(self, size: int, *, end: bytes) -> None:
        self._before = json.dumps(line("before")).encode() + b"\n" + b'{"id": "long", "messages": "'
        self._left = size
        self._after = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._before:
            data, self._before = self._before[: len(buffer)], self._before[len(buffer) :]
        elif self._left:
            data = b"a" * min(len(buffer), self._left)
            self._left -= len(data)
        else:
            data, self._after = self._after[: len(buffer)], self._after[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> int:
    """Set a lower limit for a line, so that the tests need less memory. Return it."""
    for module in (lines, source):
        monkeypatch.setattr(module, "LONGEST_LINE", MIB)
    return MIB


async def test_an_endless_line_is_refused_in_bounded_memory(
    longest: int, provider: ms.Provider, tmp_path: Path
) -> None:
    file = io.BufferedReader(Generated(LONG, end=b"\n" + json.dumps(line("after")).encode()))
    with Journal(tmp_path / "a.jsonl") as journal:
        async with ms.open_engine([provider]) as engine:
            batch = Batch(engine, journal, model)
            tracemalloc.start()
            try:
                await batch.run(read_lines(file))
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert sorted(str(record["id"]) for record in records(tmp_path / "a.jsonl")) == ["after", "before"]
    (failure,) = records(tmp_path / "a.errors.jsonl")
    assert (failure["id"], failure["line"]) == (None, 2)
    assert failure["error"] == {
        "category": "invalid_line",
        "message": "input line 2: is longer than 1,048,576 bytes, the limit of a line",
    }
    assert (batch.counters.lines, batch.counters.answered, batch.counters.invalid) == (3, 2, 1)
    assert peak < 10 * longest


async def test_a_too_long_last_line_is_refused(longest: int) -> None:
    file = io.BufferedReader(Generated(2 * longest, end=b""))
    found = [each async for some in read_lines(file) for each in some]
    assert [number for number, _ in found] == [1, 2]
    assert len(found[1][1]) == longest + 1


@pytest.mark.parametrize(("length", "refused"), [(MIB - 1, False), (MIB, False), (MIB + 1, True)])
async def test_the_longest_allowed_line_is_read(longest: int, length: int, refused: bool) -> None:
    text = json.dumps({"id": "long", "pad": ""}).encode()
    text = text[:-2] + b"x" * (length - len(text) - 1) + text[-2:] + b"\n"
    assert len(text) == length
    found = [each async for some in read_lines(io.BytesIO(text + b'{"id": "next"}\n')) for each in some]
    assert [number for number, _ in found] == [1, 2]
    assert found[1][1] == b'{"id": "next"}\n'
    if refused:
        with pytest.raises(LineError, match=r"is longer than 1,048,576 bytes"):
            read_line(found[0][1], 1)
    else:
        assert read_line(found[0][1], 1).id == "long"
