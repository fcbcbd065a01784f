"""The keeper of answers: the first record of an id counts, and every record can be read again."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from manystream.batch import Journal, JournalError
from manystream.batch.lines import LineId
from manystream.ray.answers import AnswerKeeper
from manystream.ray.exchange import Answer


def answer(id: LineId, text: str = "yes") -> Answer:
    return Answer(id, json.dumps({"id": id, "text": text, "error": None}).encode(), failed=False)


def failure(id: LineId, category: str = "server") -> Answer:
    return Answer(id, json.dumps({"id": id, "error": {"category": category}}).encode(), failed=True)


@contextmanager
def keeper(folder: Path, *, retry_failed: bool = False) -> Iterator[AnswerKeeper]:
    with closing(AnswerKeeper(str(folder / "a.jsonl"), retry_failed=retry_failed)) as opened:
        yield opened


def test_records_are_returned_by_this_run_and_later_ones(tmp_path: Path) -> None:
    records = [answer("a"), failure("b"), answer(3, "x" * 10_000), answer("ü", "zwölf")]
    expected = {each.id: each.record for each in records}
    with keeper(tmp_path) as first:
        assert first.record(records[:2]) == {}
        assert first.record(records[2:]) == {}
        assert first.lookup(["a", "b", 3, "ü", "unknown", "3"]) == expected
    with keeper(tmp_path) as second:
        assert second.lookup(["a", "b", 3, "ü"]) == expected
        second.record([answer("d"), failure("e")])
        assert second.lookup(["d", "e", "a"]).keys() == {"d", "e", "a"}


def test_the_first_record_of_an_id_counts(tmp_path: Path) -> None:
    with keeper(tmp_path) as one:
        one.record([answer("a", "first"), failure("b")])
        counts = one.record([answer("a", "second"), answer("b"), answer("c", "first"), answer("c", "second")])
        assert {id: json.loads(record).get("text") for id, record in counts.items()} == {
            "a": "first",
            "b": None,
            "c": "first",
        }
        assert one.record([answer("c", "first")]) == {"c": answer("c", "first").record}, "a call that is repeated"
    lines = (tmp_path / "a.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["first", "first"]


def test_a_batch_goes_on_with_the_files_and_the_other_way_round(tmp_path: Path) -> None:
    with keeper(tmp_path) as one:
        one.record([answer("a"), failure("b")])
    with Journal(tmp_path / "a.jsonl") as journal:
        assert (set(journal.answered), set(journal.failed)) == ({"a"}, {"b"})
        journal.record_answer("b", {"id": "b", "text": "now"})
    with keeper(tmp_path) as one:
        assert json.loads(one.lookup(["b"])["b"])["text"] == "now"


def test_earlier_failures_are_asked_again_with_retry_failed(tmp_path: Path) -> None:
    with keeper(tmp_path) as one:
        one.record([answer("a"), failure("b"), failure("c")])
    with keeper(tmp_path, retry_failed=True) as one:
        assert one.lookup(["a", "b", "c"]).keys() == {"a"}
        one.record([answer("b"), failure("c", "timeout")])
        assert one.lookup(["b", "c"]) == {"b": answer("b").record, "c": failure("c", "timeout").record}
    assert (tmp_path / "a.errors.jsonl").read_bytes() == failure("c", "timeout").record + b"\n"


def test_a_keeper_waits_until_the_one_before_has_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "a.jsonl")
    before = AnswerKeeper(path)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            before.close()

    with closing(AnswerKeeper(path, sleep=sleep)):
        assert len(waits) == 3
        with pytest.raises(JournalError, match="another batch is writing"):
            AnswerKeeper(path, sleep=waits.append)
        assert waits == [0.1] * 104, "it has waited for 10 seconds"


def test_lines_that_were_never_sent_have_no_record(tmp_path: Path) -> None:
    """A batch sends them again, unless they are answered."""
    lines = [failure("a", "invalid_line"), failure("b", "cancelled"), failure("c"), failure("c", "timeout")]
    (tmp_path / "a.errors.jsonl").write_bytes(b"".join(line.record + b"\n" for line in lines))
    with keeper(tmp_path) as one:
        assert one.lookup(["a", "b", "c"]) == {"c": failure("c", "timeout").record}, "the last failure counts"
        assert one.record([answer("a")]) == {}


def test_a_foreign_file_and_a_closed_keeper_are_refused(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "messages": []}\n', "utf-8")
    with pytest.raises(JournalError, match="was not written by a batch"):
        AnswerKeeper(str(tmp_path / "prompts.jsonl"))
    with keeper(tmp_path) as one:
        pass
    with pytest.raises(JournalError, match="is not open"):
        one.record([answer("a")])
