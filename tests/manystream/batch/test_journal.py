"""The files of a journal: what is kept and refused of answers and of failures."""

import os
import stat
from pathlib import Path

import pytest

from manystream.batch import BatchBudget
from manystream.batch.journal import Journal, JournalError, default_errors_path, line_id
from tests.support.batches import records, unrecorded, write


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- the two files ---


@pytest.mark.parametrize(
    ("answers", "errors"),
    [("a.jsonl", "a.errors.jsonl"), ("a.b.txt", "a.b.errors.txt"), ("a", "a.errors.jsonl"), ("d/a.x", "d/a.errors.x")],
)
def test_the_file_of_failures_is_beside_the_answers(answers: str, errors: str) -> None:
    assert default_errors_path(Path(answers)) == Path(errors)
    assert Journal(Path(answers)).errors_path == Path(errors)
    assert Journal(Path(answers), Path("e")).errors_path == Path("e")


def test_the_id_of_a_record() -> None:
    assert [line_id(record) for record in ({"id": "a"}, {"id": ""}, {"id": 0}, {"id": True}, {"id": 1.0}, {})] == [
        "a", "", 0, None, None, None,
    ]  # fmt: skip


ERROR = '"error":{"category":"server"}'


def test_only_failures_that_still_count_are_kept(tmp_path: Path) -> None:
    answers, errors = tmp_path / "a.jsonl", tmp_path / "a.errors.jsonl"
    answers.write_text('{"id":"done","provider":"p"}\n{"id":"also","provider":"q"}\n{"id":"x"}\n')
    old = [
        f'{{"id":"done",{ERROR}}}', f'{{"id":"twice","n":1,{ERROR}}}', f'{{"id":"late",{ERROR}}}',
        '{"id":"bad","error":{"category":"invalid_line"}}', '{"id":"stop","error":{"category":"cancelled"}}',
        f'{{"id":null,{ERROR}}}', f'{{"id":"twice","n":2,{ERROR}}}', f'{{"id":"kept",{ERROR}}}',
    ]  # fmt: skip
    errors.write_text("\n".join(old) + "\n")
    with Journal(answers) as journal:
        assert (set(journal.answered), set(journal.failed), journal.makers) == (
            {"done", "also", "x"}, {"twice", "late", "kept"}, {"p", "q", ""},
        )  # fmt: skip
        journal.record_answer("late", {"id": "late"})
        journal.record_failure({"id": "new", "error": {"category": "invalid_line"}})
        journal.record_encoded([("e", b'{"id":"e"}')], [b'{"id":"f","error":{"category":"server"}}'])
        journal.record_encoded([], [])
        assert set(journal.answered) == {"done", "also", "x", "late", "e"}
        journal.leave_unpaid("u")
    assert answers.read_text().splitlines()[3:] == ['{"id":"late"}', '{"id":"e"}']
    assert errors.read_text().splitlines() == [
        old[6], old[7], '{"id":"new","error":{"category":"invalid_line"}}', '{"id":"f","error":{"category":"server"}}',
    ]  # fmt: skip


def test_a_file_of_failures_without_any_is_not_rewritten(tmp_path: Path) -> None:
    errors = tmp_path / "a.errors.jsonl"
    errors.write_text(f'{{"id":"kept",{ERROR}}}\n')
    number = errors.stat().st_ino
    with Journal(tmp_path / "a.jsonl"):
        pass
    assert errors.stat().st_ino == number
    errors.write_text("")
    errors.chmod(0o600)
    with Journal(tmp_path / "a.jsonl"):
        pass
    assert not errors.exists()


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.jsonl", '{"id":1,"messages":[]}', "it has 'messages', so it is a prompt"),
        ("a.jsonl", '{"id":1,"body":{}}', "it has 'body', so it is a prompt"),
        ("a.errors.jsonl", '{"id":1,"params":{}}', "it has 'params', so it is a prompt"),
        ("a.errors.jsonl", '{"id":1,"error":"no"}', "it has no error"),
    ],
)
def test_a_file_of_prompts_is_no_journal(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(f"{text}\n")
    with (
        pytest.raises(JournalError, match=f"line 1 was not written by a batch: {reason}"),
        Journal(tmp_path / "a.jsonl"),
    ):
        raise AssertionError
    (tmp_path / name).unlink()
    with Journal(tmp_path / "a.jsonl"):
        pass


def test_a_journal_that_was_left_or_never_entered_is_not_open(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    words = f"{tmp_path / 'a.jsonl'} is not open: the journal's block was left, or never entered"
    for record in (lambda: journal.record_answer("a", {}), lambda: journal.record_failure({})):
        with pytest.raises(JournalError) as caught:
            record()
        assert str(caught.value) == words
    with journal:
        pass
    with pytest.raises(JournalError):
        journal.record_encoded([], [b"{}"])
    assert os.listdir(tmp_path) == ["a.jsonl"]


# --- what no record has ---


def no_price(*_: object) -> float:
    raise AssertionError("no record needs a price")


def spent_before(answers: Path) -> float:
    """Return what the next run counts as spent."""
    budget = BatchBudget(9.0, no_price, ())
    with Journal(answers, budget=budget):
        return budget.spent_before


def test_the_amount_that_no_record_has_is_in_the_failures(tmp_path: Path) -> None:
    answers = tmp_path / "my.a.jsonl"
    failures = tmp_path / "my.a.errors.jsonl"
    with Journal(answers) as journal:
        for dollars in (1.5, 1.5, 2.25, 0.25):
            journal.note_unrecorded(dollars)
        line = b'{"id":null,"error":{"category":"unrecorded"},"unrecorded_usd":%s}\n'
        assert failures.read_bytes() == line % b"1.5" + line % b"2.25" + line % b"0.25"
        assert mode_of(failures) == 0o600
        journal.record_failure({"id": "a", "error": {"category": "server"}})
    assert failures.read_bytes() == line % b"0.25" + b'{"id":"a","error":{"category":"server"}}\n'
    assert spent_before(answers) == 0.25
    with Journal(answers) as journal:
        assert set(journal.failed) == {"a"}
        journal.note_unrecorded(0.9e-6)
        assert unrecorded(answers) == 0.0
        journal.record_answer("a", {"id": "a"})
    assert (unrecorded(answers), failures.exists(), spent_before(answers)) == (None, False, 0.0)


def test_a_run_adds_what_it_has_cancelled(tmp_path: Path) -> None:
    answers = tmp_path / "a.jsonl"
    for total in (0.5, 1.0):
        budget = BatchBudget(9.0, no_price, ())
        with Journal(answers, budget=budget):
            budget.unrecorded += 0.5
        assert (unrecorded(answers), spent_before(answers)) == (total, total)


@pytest.mark.parametrize("amount", [b"-1", b"true", b'"1"', b"1e300", b"null"])
def test_what_is_no_amount_is_refused_in_words(tmp_path: Path, amount: bytes) -> None:
    path = tmp_path / "a.errors.jsonl"
    data = b'{"id":null,"error":{"category":"unrecorded"},"unrecorded_usd":%s}\n' % amount
    path.write_bytes(data)
    with pytest.raises(JournalError) as caught, Journal(tmp_path / "a.jsonl"):
        pass
    assert str(caught.value) == (
        f"{path} line 1 was not written by a batch: 'unrecorded_usd' must be a number of US dollars; correct the line,"
        " or choose another file"
    )
    assert path.read_bytes() == data


# --- files of others ---


@pytest.mark.parametrize("kind", ["file", "empty", "link", "link to an empty file", "dangling", "pipe", "folder"])
def test_no_file_beside_the_answers_is_touched(tmp_path: Path, kind: str) -> None:
    """A name that can be guessed belongs to others, whatever is there: nothing is written, and nothing waits."""
    other, target = tmp_path / "a.budget.json", tmp_path / "target"
    if kind.startswith("link"):
        target.write_text("" if kind == "link to an empty file" else "notes")
    if kind in ("file", "empty"):
        other.write_text("notes" if kind == "file" else "")
    elif kind == "pipe":
        os.mkfifo(other)
    elif kind == "folder":
        other.mkdir()
    else:
        other.symlink_to(target)
    before = (other.lstat().st_ino, other.lstat().st_size)
    budget = BatchBudget(9.0, no_price, ())
    with Journal(tmp_path / "a.jsonl", budget=budget) as journal:
        journal.note_unrecorded(1.0)
        budget.unrecorded += 2.0
    assert (other.lstat().st_ino, other.lstat().st_size) == before
    assert target.exists() == kind.startswith("link")
    assert not target.exists() or target.read_text() == ("" if kind == "link to an empty file" else "notes")


def loss(journal: Journal) -> str:
    """Close a journal that has lost the name of a file, and return what it says."""
    with pytest.raises(JournalError) as caught:
        journal.__exit__(None, None, None)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "nothing", "own content"])
def test_a_failures_file_that_was_replaced_is_another_s(tmp_path: Path, kind: str) -> None:
    errors, other = tmp_path / "a.errors.jsonl", tmp_path / "other"
    write(errors, [{"id": "old", "error": {"category": "server"}}])
    text = "notes" if kind != "own content" else '{"id":"x","error":{"category":"server"}}\n' * 2
    journal = Journal(tmp_path / "a.jsonl")
    journal.__enter__()
    errors.unlink()
    if kind == "link":
        other.write_text(text)
    if kind in ("link", "dangling"):
        errors.symlink_to(other)
    elif kind != "nothing":
        errors.write_text(text)
    journal.record_failure({"id": "new", "error": {"category": "server"}})
    journal.record_answer("a", {"id": "a"})
    words = loss(journal)
    (rescued,) = tmp_path.glob("a.errors.rescued-*.jsonl")
    assert words == f"{errors} was removed or replaced during this run: its records are in {rescued}"
    assert [record["id"] for record in records(rescued)] == ["old", "new"]
    assert mode_of(rescued) == 0o600
    assert (errors.is_symlink(), other.exists()) == (kind in ("link", "dangling"), kind == "link")
    assert not errors.exists() or errors.read_text() == text
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["a"]


def test_answers_that_lose_their_name_are_rescued(tmp_path: Path) -> None:
    answers, moved = tmp_path / "a.jsonl", tmp_path / "moved"
    for lose in (answers.unlink, lambda: answers.rename(moved)):
        journal = Journal(answers)
        journal.__enter__()
        journal.record_answer("a", {"id": "a"})
        lose()
        journal.record_answer("b", {"id": "b"})
        words = loss(journal)
        place = "the records of the run are in the file that had this name before"
        if not moved.exists():
            (rescued,) = tmp_path.glob("a.rescued-*.jsonl")
            place = f"its records are in {rescued}"
        assert words == f"{answers} was removed or replaced during this run: {place}"
        kept = moved if moved.exists() else rescued
        assert [record["id"] for record in records(kept)] == ["a", "b"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.errors.jsonl"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("prey")
    with pytest.raises(JournalError, match=f"{name} is a link that leads nowhere"), Journal(tmp_path / "a.jsonl"):
        pass
    assert not (tmp_path / "prey").exists()
