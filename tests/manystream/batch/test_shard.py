"""Shards of a batch: which lines, files and limits belong to each, and that they are together the whole."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manystream as ms
from manystream.batch import Counters, Shard, ShardError, read_shard
from manystream.simulator import open_simulator
from tests.support.batches import line, records, run, write

SHARDS = st.integers(1, 50).flatmap(lambda count: st.builds(Shard, st.integers(0, count - 1), st.just(count)))


@given(count=st.integers(1, 50), number=st.integers(1, 10**12))
def test_each_line_belongs_to_one_shard(count: int, number: int) -> None:
    assert [shard for shard in range(count) if Shard(shard, count).has(number)] == [number % count]


@given(shard=SHARDS, total=st.integers(0, 500))
def test_a_shard_knows_how_many_lines_it_has(shard: Shard, total: int) -> None:
    assert shard.lines_of(total) == sum(shard.has(number) for number in range(1, total + 1))


@given(shard=SHARDS)
def test_a_shard_is_read_as_it_is_written(shard: Shard) -> None:
    assert read_shard(str(shard)) == shard


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("4/4", "shards are numbered from 0, so the last of 4 is 3/4; subtract 1 if another tool counts from 1"),
        ("1/1", "shards are numbered from 0, so the last of 1 is 0/1"),
        ("5/4", "the number of a shard is between 0 and 3"),
        ("1/0", "there must be at least 1 shard"),
        ("0/0", "there must be at least 1 shard"),
        ("-1/2", "two whole numbers, I/N, such as 0/4"),
        ("1/-2", "two whole numbers"),
        ("+1/2", "two whole numbers"),
        ("1", "two whole numbers"),
        ("/", "two whole numbers"),
        ("", "two whole numbers"),
        ("1/2/3", "two whole numbers"),
        ("1.0/2", "two whole numbers"),
        (" 1/2", "two whole numbers"),
        ("1/2\n", "two whole numbers"),
        ("1_0/20", "two whole numbers"),
        ("\u0661/\u0662", "two whole numbers"),
        ("one/two", "two whole numbers"),
        (f"1/{'9' * 5000}", "two whole numbers"),
    ],
)
def test_what_is_no_shard_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ShardError) as refused:
        read_shard(text)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("answers.jsonl", "answers.2-of-8.jsonl"),
        ("answers.errors.jsonl", "answers.2-of-8.errors.jsonl"),
        ("folder.d/my.answers.jsonl", "folder.d/my.answers.2-of-8.jsonl"),
        ("answers", "answers.2-of-8"),
        (".errors", ".errors.2-of-8"),
        ("bad.txt", "bad.2-of-8.txt"),
    ],
)
def test_a_shard_has_files_of_its_own(path: str, own: str) -> None:
    assert Shard(2, 8).file(Path(path)) == Path(own)


MIXED = [
    line("a"), "", line("b", temprature=1), line("a", "the same id again, in another shard"), "no JSON", "   ",
    line(7), line("c", "simulate: fail=400"), '{"messages": []}', line("b"), line("d"), line("d"),
]  # fmt: skip
"""Lines of every kind: good, empty, refused, failing, and with an id that an earlier line has."""


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
async def test_all_shards_together_are_the_whole_batch(tmp_path: Path, count: int) -> None:
    prompts = write(tmp_path / "p.jsonl", MIXED)
    with open_simulator("events=2") as simulator:
        provider = ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="sim")
        whole = await run(provider, prompts, tmp_path / "whole.jsonl")
        parts = [
            (shard, await run(provider, prompts, shard.file(tmp_path / "a.jsonl"), shard=shard))
            for shard in (Shard(index, count) for index in range(count))
        ]
    assert _sums([part.counters for _, part in parts]) == _sums([whole.counters])
    for answers, names in (("whole.jsonl", "a.*.jsonl"), ("whole.errors.jsonl", "a.*.errors.jsonl")):
        apart = [_without_time(record) for path in tmp_path.glob(names) for record in _of_kind(path, answers)]
        assert sorted(apart, key=repr) == sorted(map(_without_time, records(tmp_path / answers)), key=repr)


def _sums(counters: list[Counters]) -> list[int]:
    names = ("lines", "answered", "failed", "invalid", "ended")
    return [sum(getattr(each, name) for each in counters) for name in names]


def _of_kind(path: Path, answers: str) -> list[dict[str, object]]:
    return records(path) if path.name.endswith(".errors.jsonl") == answers.endswith(".errors.jsonl") else []


def _without_time(record: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in record.items() if name not in ("seconds", "request_id", "text")}


async def test_a_resumed_shard_answers_nothing_twice(tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(str(number)) for number in range(1, 11)])
    shard = Shard(1, 3)
    answers = shard.file(tmp_path / "a.jsonl")
    with open_simulator("events=2") as simulator:
        provider = ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="sim")
        await run(provider, prompts, answers, shard=shard)
        again = await run(provider, prompts, answers, shard=shard)
    assert sorted(str(record["id"]) for record in records(answers)) == ["1", "10", "4", "7"]
    assert (again.counters.answered, again.counters.answered_before, again.counters.lines) == (0, 4, 4)
