"""The files of a journal: what is kept, repaired, replaced and refused, byte by byte."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from manystream.batch.journal import Journal, JournalError, default_errors_path, line_id
from manystream.batch.line_file import LineFile, LockedError, encoded
from manystream.batch.unrecorded import UnrecordedFile, read_unrecorded, unrecorded_path
from manystream.providers.json.json_values import JSONObject


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
    answers.write_text('{"id":"done","provider":"p"}\n{"id":"also","provider":"q"}\n{"id":null}\n{"id":"x"}\n')
    old = [
        f'{{"id":"done",{ERROR}}}', f'{{"id":"twice","n":1,{ERROR}}}', f'{{"id":"late",{ERROR}}}',
        '{"id":"bad","error":{"category":"invalid_line"}}', '{"id":"stop","error":{"category":"cancelled"}}',
        f'{{"id":null,{ERROR}}}', f'{{"id":"twice","n":2,{ERROR}}}', f'{{"id":"kept",{ERROR}}}',
    ]  # fmt: skip
    errors.write_text("\n".join(old) + "\n")
    with Journal(answers) as journal:
        assert (journal.answered, journal.failed, journal.makers) == (
            {"done", "also", "x"}, {"twice", "late", "kept"}, {"p", "q", ""},
        )  # fmt: skip
        journal.record_answer("late", {"id": "late"})
        journal.record_failure({"id": "new", "error": {"category": "invalid_line"}})
        journal.record_encoded([("e", b'{"id":"e"}')], [b'{"id":"f","error":{"category":"server"}}'])
        journal.record_encoded([], [])
        assert journal.answered == {"done", "also", "x", "late", "e"}
        journal.leave_unpaid("u")
    assert answers.read_text().splitlines()[4:] == ['{"id":"late"}', '{"id":"e"}']
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


def test_the_amount_that_no_record_has_is_beside_the_answers(tmp_path: Path) -> None:
    answers = tmp_path / "my.a.jsonl"
    assert unrecorded_path(answers) == tmp_path / "my.a.budget.json"
    assert read_unrecorded(answers) == 0
    file = UnrecordedFile(answers)
    assert (file.path, file.path.exists()) == (unrecorded_path(answers), False)
    file.write(1.5)
    assert file.path.read_bytes() == b'{"unrecorded_usd": 1.500000000}'.ljust(63) + b"\n"
    assert (mode_of(file.path), read_unrecorded(answers)) == (0o600, 1.5)
    file.path.write_bytes(b"x" * 100)
    file.write(1.5)
    assert file.path.read_bytes() == b"x" * 100, "it has not changed"
    file.write(-3)
    assert file.path.read_bytes() == b'{"unrecorded_usd": 0.000000000}'.ljust(63) + b"\n"
    file.close(0.25)
    assert read_unrecorded(answers) == 0.25
    again = UnrecordedFile(answers)
    again.close(1e-6)
    assert file.path.read_bytes()[:30] == b'{"unrecorded_usd": 0.000001000'
    again.close(0.9e-6)
    assert not file.path.exists()
    again.close(0)


def test_the_last_amount_is_on_the_disk_when_the_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.pread(descriptor, 30, 0)))
    file = UnrecordedFile(tmp_path / "a.jsonl")
    file.write(2)
    assert synced == []
    file.close(3)
    assert synced == [b'{"unrecorded_usd": 3.000000000']
    assert file._descriptor is None
    unopened = UnrecordedFile(tmp_path / "b.jsonl")
    unopened.close(4)
    assert (synced[1:], unopened._descriptor) == ([b'{"unrecorded_usd": 4.000000000'], None)


@pytest.mark.parametrize(
    ("text", "amount"), [(b"", 0.0), (b'{"unrecorded_usd": 2}', 2.0), (b'{"unrecorded_usd": 0}', 0.0)]
)
def test_an_amount_of_an_earlier_run_is_read(tmp_path: Path, text: bytes, amount: float) -> None:
    (tmp_path / "a.budget.json").write_bytes(text)
    assert read_unrecorded(tmp_path / "a.jsonl") == amount


@pytest.mark.parametrize(
    "text",
    [b"x", b"{}", b"[1]", b'{"unrecorded_usd": -1}', b'{"unrecorded_usd": true}', b'{"unrecorded_usd": "1"}',
     b'{"unrecorded_usd": 1e300}'],
)  # fmt: skip
def test_what_is_no_amount_is_refused_in_words(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.budget.json"
    path.write_bytes(text)
    with pytest.raises(JournalError) as caught:
        read_unrecorded(tmp_path / "a.jsonl")
    assert str(caught.value) == (
        f'{path} is not from a batch: it must be {{"unrecorded_usd": DOLLARS}}, what earlier runs spent and no record'
        " has; write that number, or delete the file to count nothing"
    )
    path.unlink()
    path.mkdir()
    with pytest.raises(JournalError) as caught:
        read_unrecorded(tmp_path / "a.jsonl")
    assert str(caught.value) == f"cannot read {path}: Is a directory"
