"""The files of a journal: what is kept, repaired, replaced and refused, byte by byte."""

import os
import stat
from pathlib import Path

import pytest

from manystream.batch import BatchBudget
from manystream.batch.journal import Journal, JournalError, default_errors_path, line_id
from manystream.batch.line_file import LineFile, LockedError, encoded
from manystream.providers.json.json_values import JSONObject
from tests.support.batches import records, unrecorded, write


def accept(position: int, record: JSONObject) -> None:
    return None


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- a file of lines ---


def test_lines_are_appended_and_found_at_their_positions(tmp_path: Path) -> None:
    path, seen = tmp_path / "a.jsonl", list[object]()
    path.write_bytes(b'{"id":1}\n{"id": 2 }\n')
    file = LineFile(path, lambda position, record: seen.append((position, record)))
    assert (seen, file.start, file.size, file.path) == ([(0, {"id": 1}), (9, {"id": 2})], 20, 20, path)
    file.append({"id": "long", "text": "x" * 5000})
    file.append_encoded([b'{"id":4}', b'{"id":5}'])
    assert (file.start, file.size) == (20, 20 + 5024 + 18)
    assert file.line_at(0) == b'{"id":1}'
    assert file.line_at(9) == b'{"id": 2 }'
    assert (len(file.line_at(20)), file.line_at(20)[:12], file.line_at(20)[-3:]) == (5023, b'{"id":"long"', b'x"}')
    assert file.line_at(20 + 5024 + 9) == b'{"id":5}'
    assert [(position, record["id"]) for position, record in file.records()] == [
        (0, 1), (9, 2), (20, "long"), (5044, 4), (5053, 5),
    ]  # fmt: skip
    file.sync()
    file.close()
    file.close()
    with pytest.raises(JournalError, match=r"a\.jsonl is closed: the journal's block was left before the batch"):
        file.append({"id": 6})


@pytest.mark.parametrize("length", [4094, 4095, 4096, 4097, 8192, 10_000])
def test_a_line_is_read_again_whatever_its_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.jsonl"
    text = b'{"id":"' + b"x" * (length - 9) + b'"}'
    path.write_bytes(text + b"\n" + b'{"id":2}\n')
    file = LineFile(path, accept)
    assert (len(text), file.line_at(0) == text, file.line_at(length + 1)) == (length, True, b'{"id":2}')
    file.close()


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "a.jsonl", accept)
    assert (mode_of(tmp_path / "a.jsonl"), file.start) == (0o600, 0)
    file.close()


@pytest.mark.parametrize("length", [1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 200_000])
def test_an_incomplete_line_of_any_length_is_removed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.jsonl"
    for before in (b"", b'{"id":1}\n'):
        path.write_bytes(before + (b'{"id":"' + b"x" * length)[:length])
        LineFile(path, accept).close()
        assert path.read_bytes() == before
        path.write_bytes(before + b'{"id":"' + b"x" * length + b'"}')
        LineFile(path, accept).close()
        assert path.read_bytes() == before + b'{"id":"' + b"x" * length + b'"}\n'


def test_only_named_lines_are_kept_in_a_file_of_the_same_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":1}\n{"id":22}\n{"id":3}\n')
    path.chmod(0o640)
    file = LineFile(path, accept)
    file.keep_only({0, 19})
    file.close()
    assert (path.read_bytes(), mode_of(path), os.listdir(tmp_path)) == (b'{"id":1}\n{"id":3}\n', 0o640, ["a.jsonl"])


@pytest.mark.parametrize("how", ["plain", "mode", "link", "symlink"])
def test_a_file_without_lines_is_removed_or_emptied(tmp_path: Path, how: str) -> None:
    path = real = tmp_path / "a.jsonl"
    if how == "symlink":
        real = tmp_path / "real.jsonl"
        path.symlink_to(real)
    real.write_bytes(b'{"id":1}\n')
    real.chmod(0o644 if how == "mode" else 0o600)
    if how == "link":
        os.link(path, tmp_path / "other.jsonl")
    file = LineFile(path, accept)
    file.keep_only(set())
    file.close()
    assert (path.exists(), real.exists() and real.read_bytes()) == ((False, False) if how == "plain" else (True, b""))


def test_a_file_with_two_names_keeps_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":1}\n{"id":2}\n')
    os.link(path, tmp_path / "other.jsonl")
    file = LineFile(path, accept)
    file.keep_only({0})
    file.close()
    assert path.read_bytes() == b'{"id":1}\n{"id":2}\n'


def test_a_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real, path = tmp_path / "folder" / "real.jsonl", tmp_path / "a.jsonl"
    real.write_bytes(b'{"id":1}\n{"id":2}\n')
    path.symlink_to(real)
    file = LineFile(path, accept)
    file.keep_only({9})
    file.close()
    assert (path.is_symlink(), real.read_bytes(), os.listdir(real.parent)) == (True, b'{"id":2}\n', ["real.jsonl"])


REFUSED = {
    b'{"id":1}\n[2]\n{"id":3}\n': "line 2 was not written by a batch: expected a JSON object",
    b'{"id":1}\n{oh\n': "line 2 was not written by a batch: malformed JSON",
    b'{"id":1}\nhello': 'line 2 was not written by a batch: it does not begin with {"id":;',
    b'{"name": 1': 'line 1 was not written by a batch: it does not begin with {"id":;',
    b'{"id":"x","bad":1}': "line 1 was not written by a batch: it is bad; correct the line, or choose another file",
}


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_a_line_of_another_program_is_refused_in_words(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(text)
    with pytest.raises(JournalError) as caught:
        LineFile(path, lambda position, record: "it is bad" if "bad" in record else None)
    assert str(caught.value).startswith(f"{path} {REFUSED[text]}")
    assert path.read_bytes() == text
    path.write_bytes(b"")
    LineFile(path, accept).close()  # it was not left locked


def test_a_locked_file_is_an_error_of_its_own(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "a.jsonl", accept)
    with pytest.raises(LockedError) as caught:
        LineFile(tmp_path / "a.jsonl", accept)
    assert str(caught.value) == (
        f"{tmp_path / 'a.jsonl'}: another batch is writing this file; wait until that batch has ended, or choose"
        " another file"
    )
    file.close()


def nested(levels: int) -> JSONObject:
    value: JSONObject = {"end": 1}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_a_record_that_json_cannot_hold_is_mended_and_says_so() -> None:
    assert encoded({"id": "é", "warnings": ["w"]}) == '{"id":"é","warnings":["w"]}'.encode()
    mended = "parts of this record could not be written as JSON and were replaced"
    assert encoded({"id": "\ud800", "\udc00": ["a\ud800b", 1, None]}) == (
        f'{{"id":"\ufffd","\ufffd":["a\ufffdb",1,null],"warnings":["{mended}"]}}'.encode()
    )
    assert encoded({"id": "\ud800", "warnings": ["w"]}) == f'{{"id":"\ufffd","warnings":["w","{mended}"]}}'.encode()
    deep = encoded(nested(2000)).decode()
    assert deep.startswith('{"a":{"a":')
    assert (deep.count('"a"'), '"a":null' in deep, mended in deep) == (100, True, True)
    listed: list[object] = []
    for _ in range(2000):
        listed = [listed]
    assert encoded({"id": listed}).decode().count("[") == 1 + 99  # type: ignore[dict-item]


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
