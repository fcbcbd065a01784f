"""`Ask` as Ray Data calls it, with a fake in pyarrow's place: a block comes back with four more columns."""

import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import manystream as ms
from manystream.ray import Ask, AskError, SharedRates, ask
from manystream.ray.answers import AnswerKeeper
from manystream.ray.asker import Journal
from manystream.ray.rows import AskedRow
from manystream.simulator import Simulator, open_simulator
from tests.manystream.ray import fake_arrow
from tests.manystream.ray.fake_arrow import Table


@pytest.fixture(autouse=True)
def arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_arrow.install(monkeypatch)


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator("events=2") as simulator:
        yield simulator


def provider(simulator: Simulator) -> ms.Provider:
    return ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="sim")


STRUCTS = {
    "text": "string",
    "error": {"category": "string", "message": "string", "http_status": "int64", "provider_code": "string",
        "retryable": "bool"},
    "usage": {"input_tokens": "int64", "output_tokens": "int64", "thinking_tokens": "int64", "cached_tokens": "int64",
        "cache_write_tokens": "int64", "total_tokens": "int64"},
    "finish_reason": "string",
}  # fmt: skip


def test_a_block_gains_four_columns_with_types(simulator: Simulator) -> None:
    block = Table(3, id=[1, 2, 3], prompt=["hello", "simulate: fail=400", None], other=[7, 8, 9])
    one = Ask(model="sim/sim-text", providers=[provider(simulator)], concurrency=2)
    with closing(one):
        found = one(block)
    assert (found.column_names, found.fields) == ([*block.columns, "text", "error", "usage", "finish_reason"], STRUCTS)
    columns = found.columns
    assert {name: columns[name] for name in block.columns} == block.columns
    assert block.read == ["prompt"], "without a journal, ids are not read"
    assert columns["text"][0]
    assert columns["text"][1:] == [None, None]
    assert columns["error"] == [
        None, {"category": "invalid_arg", "message": columns["error"][1]["message"], "http_status": 400,
        "provider_code": columns["error"][1]["provider_code"], "retryable": False},
        {"category": "invalid_arg", "message": "messages: and 'prompt' are both null: a row asks one of them",
        "http_status": None, "provider_code": None, "retryable": False},
    ]  # fmt: skip
    assert columns["finish_reason"] == ["stop", None, None]
    assert columns["usage"][1:] == [None, None]
    assert repr(one) == "<Ask sim/sim-text>"


def test_with_a_journal_a_block_needs_ids(simulator: Simulator, tmp_path: Path) -> None:
    with (
        closing(AnswerKeeper(str(tmp_path / "a.jsonl"))) as journal,
        closing(Ask(model="sim/sim-text", providers=[provider(simulator)], concurrency=1, journal=journal)) as one,
    ):
        with pytest.raises(AskError, match="the rows have no 'id'"):
            one(Table(1, prompt=["hello"]))
        messages: list[object] = [[{"role": "user", "content": "hi"}], None]
        block = Table(2, prompt=[None, "x"], messages=messages, id=["a", "b"])
        assert one(block).columns["error"] == [None, None]
        assert block.read == ["id", "messages", "prompt"]
        assert journal.lookup(["a", "b"]).keys() == {"a", "b"}


def test_a_block_without_rows_gains_columns_too(simulator: Simulator) -> None:
    with closing(Ask(model="m", providers=[provider(simulator)], concurrency=1)) as one:
        found = one(Table(0))
        with pytest.raises(AskError) as caught:
            one([1])
        with pytest.raises(AskError, match="they have 'question'; rename the column to ask"):
            one(Table(1, question=["?"]))
    assert found.columns == {"text": [], "error": [], "usage": [], "finish_reason": []}
    assert str(caught.value) == "a block must be a pyarrow.Table, not list: pass map_batches all of ask_options"


def test_closing_it_ends_its_engine(simulator: Simulator) -> None:
    before = set(threading.enumerate())
    one = Ask(model="sim/sim-text", providers=[provider(simulator)], concurrency=1)
    assert set(threading.enumerate()) - before
    one.close()
    assert not set(threading.enumerate()) - before
    with pytest.raises(AskError, match="the engine of this actor has ended"):
        one(Table(1, prompt=["hello"]))


def test_the_engine_has_the_limits_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[object, ...]] = []

    class Asker:
        def __init__(self, *arguments: object) -> None:
            given.append(arguments)

        def ask(self, rows: list[AskedRow]) -> None:
            given.append(tuple(row.request for row in rows))
            for row in rows:
                row.record = {"text": "yes"}

    monkeypatch.setattr(ask, "Asker", Asker)
    one, traffic = ms.OpenAIChat("key"), ms.Traffic()
    shared: SharedRates = object()  # type: ignore[assignment]
    journal: Journal = object()  # type: ignore[assignment]
    Ask(model="m", providers=[one], concurrency=3, traffic=traffic, shared=shared, journal=journal)
    asking = Ask(model="m", providers=[one], concurrency=4, options={"seed": 7})
    asking(Table(1, prompt=["hello"]))
    assert given == [
        ([one], 3, journal, {"traffic": traffic}, shared),
        ([one], 4, None, {"traffic": None}, None),
        (ms.Request("m", "hello", seed=7),),
    ]


def test_a_missing_pyarrow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(AskError, match=r"^pyarrow is not installed \(.+\): pip install '\.\[ray\]' in"):
        Ask(model="m", providers=[ms.OpenAIChat("key")], concurrency=1)
