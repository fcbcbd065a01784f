"""When calls are due: rates, random times by a seed, and the three forms of a trace."""

import json
import os
import statistics
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manystream.bench import arrivals
from manystream.bench.arrivals import Arrival, Arrivals, TraceError, read_rate

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "trace"
        path.write_text(text, "utf-8")
        return path

    return write


def read_trace(path: Path, seconds: float = 1e9) -> tuple[tuple[Arrival, ...], list[str]]:
    """Return all calls of a trace, and the notes on it."""
    trace, notes = arrivals.read_trace(path, seconds)
    assert len(trace) == len(tuple(Arrivals(trace=trace).calls(seconds, 0)))
    return tuple(trace), notes


def due(arrivals: Arrivals, seconds: float, seed: int = 0) -> list[float]:
    return [arrival.due for arrival in arrivals.calls(seconds, seed)]


def test_a_constant_rate_has_equal_times_between_calls() -> None:
    assert due(Arrivals(4.0, 4.0), 1.5) == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0, 1.25])


@given(st.floats(0, 500), st.floats(0, 500), st.floats(0.1, 20), st.sampled_from(["constant", "poisson", "gamma"]))
def test_calls_are_due_in_order_and_in_time(first: float, last: float, seconds: float, kind: str) -> None:
    times = due(Arrivals(first, last, kind, burstiness=0.5), seconds)
    assert times == sorted(times)
    assert all(0 <= time <= seconds * 1.000001 for time in times)
    if kind == "constant":
        assert abs(len(times) - (first + last) / 2 * seconds) <= 1.001


@pytest.mark.parametrize(("first", "last"), [(0.0, 100.0), (100.0, 0.0), (20.0, 80.0)])
def test_a_ramp_has_its_rate_at_each_moment(first: float, last: float) -> None:
    times = due(Arrivals(first, last), 10.0)
    for second in range(10):
        expected = first + (last - first) * (second + 0.5) / 10
        assert sum(second <= time < second + 1 for time in times) == pytest.approx(expected, abs=1.01)


@pytest.mark.parametrize(
    ("kind", "burstiness", "variation"), [("poisson", 1.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5)]
)
def test_random_times_have_the_rate_and_the_variation(kind: str, burstiness: float, variation: float) -> None:
    """The coefficient of variation of a gamma distribution is 1 / sqrt(shape)."""
    times = due(Arrivals(100.0, 100.0, kind, burstiness), 200.0, seed=5)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.01, rel=0.05)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(variation, rel=0.06)


def test_a_seed_gives_the_same_times() -> None:
    arrivals = Arrivals(10.0, 20.0, "poisson")
    assert due(arrivals, 5.0, 1) == due(arrivals, 5.0, 1) != due(arrivals, 5.0, 2)


def test_rates_are_numbers_or_a_ramp() -> None:
    assert [read_rate(text) for text in ("50", "0.5", "1..200", "200..0")] == [
        (50.0, 50.0), (0.5, 0.5), (1.0, 200.0), (200.0, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1..", "..5", "nan", "inf", "0..0", "1,2"])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|float"):
        read_rate(text)


# Traces.

MOONCAKE = (
    '{"timestamp": 1000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 1500, "input_length": 7319, "output_length": 490, "hash_ids": [0, 3]}\n\n'
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.9799600,374,44\n"
    "2023-11-16 18:17:04.0319500,396,109\n"
    "2023-11-16 18:17:05+00:00,5,0\n"
)


def recorded(started: float, body: str, *chunks: object) -> str:
    line = {"version": 1, "started": started, "request": {"body": body}, "chunks": [[0.1, chunk] for chunk in chunks]}
    return json.dumps(line) + "\n"


def test_a_trace_of_mooncake(write: Write) -> None:
    assert read_trace(write(MOONCAKE)) == (
        (Arrival(0.0, 6758, 500, (0, 1, 2)), Arrival(0.5, 7319, 490, (0, 3))), [],
    )  # fmt: skip


def test_a_trace_of_azure(write: Write) -> None:
    calls, notes = read_trace(write("\ufeff" + AZURE))
    assert [call.due for call in calls] == [0.0, pytest.approx(0.05199, abs=1e-6), pytest.approx(1.02004, abs=1e-6)]
    assert [(call.input, call.output) for call in calls] == [(374, 44), (396, 109), (5, 0)]
    assert not notes


def test_a_trace_of_our_own_recordings(write: Write) -> None:
    text = recorded(2.0, "x" * 40, "data: a\n\ndata: b\n\n", {"base64": "AA=="}) + recorded(1.5, "x", "{}")
    notes = ["calls not in the order of the times: 1 of 2", "calls without a length of the answer: 1 of 2"]
    assert read_trace(write(text)) == ((Arrival(0.0, 1, None), Arrival(0.5, 10, 2)), notes)


def test_only_a_line_feed_ends_a_line(write: Write) -> None:
    """JSON allows other line ends within a string, and a recording of a request has them as they are."""
    line = json.dumps({"started": 1.0, "request": {"body": "a\u2028b\x85c"}}, ensure_ascii=False)
    assert len(read_trace(write(f"{line}\r\n{line}\r\n"))[0]) == 2
    assert len(read_trace(write(AZURE.replace("\n", "\r\n")))[0]) == 3


def test_what_a_trace_lacks_is_noted(write: Write) -> None:
    assert read_trace(write("TIMESTAMP,ContextTokens\n1,5\n2\n"))[1] == [
        "calls without a length of the prompt: 1 of 2",
        "calls without a length of the answer: 2 of 2",
    ]


def test_lines_out_of_order_are_sorted_and_counted(write: Write) -> None:
    lines = [f'{{"timestamp": {time}, "input_length": {time}, "output": 1}}' for time in (3000, 1000, 2000, 2000)]
    calls, notes = read_trace(write("\n".join(lines)))
    assert [(call.due, call.input) for call in calls] == [(0.0, 1000), (1.0, 2000), (1.0, 2000), (2.0, 3000)]
    assert notes == ["calls not in the order of the times: 1 of 4"]


def test_lines_may_be_out_of_order_by_so_many(write: Write) -> None:
    ahead = arrivals.READ_AHEAD
    times = [*range(1, ahead), 0, *range(ahead, 3 * ahead)]
    assert [call.due for call in read_trace(write("TIMESTAMP\n" + "\n".join(map(str, times))))[0]] == sorted(times)
    times = [*range(1, ahead + 1), 0]
    path = write("TIMESTAMP\n" + "\n".join(map(str, times)))
    complaint = (
        rf":{ahead + 2}: its time is before that of a line 4,096 or more above it: sort the lines by their times$"
    )
    with pytest.raises(TraceError, match=complaint):
        read_trace(path)


def test_what_a_run_does_not_need_is_not_read(write: Write) -> None:
    lines = [f'{{"timestamp": {number * 1000}, "input": 5}}' for number in range(3 * arrivals.READ_AHEAD)]
    path = write("\n".join([*lines, "broken"]))
    trace, notes = arrivals.read_trace(path, 10.0)
    assert (len(trace), notes) == (10, ["calls without a length of the answer: 10 of 10"])
    assert len(arrivals.read_trace(path, 1e9, 7)[0]) == 7
    with pytest.raises(TraceError, match=rf":{3 * arrivals.READ_AHEAD + 1}: "):
        arrivals.read_trace(path, 1e9)


def test_the_columns_of_burstgpt(write: Write) -> None:
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
    )
    assert read_trace(write(text + "50,GPT-4,1087,0,1087,API log\n")) == (
        (Arrival(0, 472, 18), Arrival(45, 1087, 0)),
        [],
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no named pipe")
def test_a_pipe_cannot_be_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="is no regular file, and a trace is read more than once"):
        read_trace(tmp_path / "pipe")


def test_the_busiest_part_of_a_trace() -> None:
    trace = tuple(Arrival(due, input=number) for number, due in enumerate((0.0, 5.0, 9.0, 9.5, 10.9, 11.0, 30.0)))
    found = Arrivals(trace=trace).busiest(2.0, 100.0).trace
    assert found is not None
    assert [(arrival.due, arrival.input) for arrival in found] == [(0.0, 2), (0.5, 3), (pytest.approx(1.9), 4)]
    assert Arrivals(trace=trace).busiest(2.0, 9.6).trace == (Arrival(0.0, 2), Arrival(0.5, 3)), "of the run's part"
    assert Arrivals(1.0, 2.0).busiest(2.0, 100.0) == Arrivals(1.0, 2.0)


def test_a_trace_may_be_longer_than_the_run() -> None:
    arrivals = Arrivals(trace=(Arrival(0.0), Arrival(1.0), Arrival(2.0)))
    assert due(arrivals, 2.0) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ": is empty"),
        ("\n \n", ": is empty"),
        ("a,b\n1,2\n", ":1: has neither JSON lines nor a heading with TIMESTAMP"),
        ("TIMESTAMP,ContextTokens\n", ": has no call"),
        ("TIMESTAMP,ContextTokens\nnever,5\n", ":2: timestamp: must be a date and a time, or a number, not 'never'"),
        ("TIMESTAMP,ContextTokens\n1,many\n", ":2: ContextTokens: must be a number of tokens, not 'many'"),
        ('{"timestamp": 1}\n{"timestamp": "soon"}\n', ":2: "),
        ('{"timestamp": 1}\n{"input_length": 5}\n', ":2: timestamp: is missing; the line has input_length"),
        ('{"timestamp": 1e999}\n', ":1: timestamp: must be a number of milliseconds, not "),
        ("TIMESTAMP,ContextTokens\nnan,5\n", ":2: timestamp: must be a date and a time, or a number, not "),
        ('{"timestamp": true}\n', ":1: timestamp: must be a number of milliseconds, not True"),
        ('{"timestamp": 1, "input_length": -5}\n', ":1: input_length: must be a number of tokens, not -5"),
        ('{"timestamp": 1, "output_length": 1.5}\n', ":1: output_length: must be a number of tokens, not 1.5"),
        ('{"timestamp": 1}\n{"timestamp"\n', ":2: "),
        ('{"started": "x", "request": {}}\n', ":1: is no line of a recording"),
        ('{"started": 1e999, "request": {"body": "x"}}\n', ":1: is no line of a recording"),
        ('{"timestamp": 1}\n\udcff', ":2: is not UTF-8 text"),
        ('{"timestamp": 1' + "0" * 400 + "}", ":1: "),
        (
            '{"timestamp": 1, "input": 10000001}',
            ":1: input: must be a number of tokens, not 10000001, and at most 10,000,000",
        ),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n1,2,3,4\n", ":3: has 4 cells, and the heading has 3"),
        ('TIMESTAMP,ContextTokens\n1,"2\n', ":2: unexpected end of data"),
        ("TIMESTAMP,ContextTokens,Generated\n1,2,3\n", ":1: unknown columns Generated, and none of output_len"),
        ("TIMESTAMP,Context\n1,2\n", ":1: unknown columns Context, and none of input_length, ContextTokens, "),
        (
            '{"timestamp": 1}\n{"timestamp": 1, "prompt_tokens": 5}\n',
            ":2: unknown members prompt_tokens, and none of input_",
        ),
    ],
)
def test_each_wrong_trace_names_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(raised.value).startswith(f"{path}{complaint}")


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "missing")
