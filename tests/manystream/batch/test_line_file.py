"""A file of JSON lines: what is appended, repaired, replaced and refused, byte by byte."""

import os
from pathlib import Path

import pytest

from manystream.batch.journal import JournalError
from manystream.batch.line_file import LineFile, LockedError, encoded
from manystream.providers.json.json_values import JSONObject
from tests.manystream.batch.test_journal import mode_of


def accept(position: int, record: JSONObject) -> None:
    return None


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
