"""Files that only their owner can read: what exists already, and what is left after a failure."""

import os
import stat
from pathlib import Path

import pytest

from manystream.engine.observe.private_file import create_missing, open_new, open_own, open_replacement


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new"
    os.close(open_new(path))
    assert (mode(path), path.read_bytes()) == (0o600, b"")


@pytest.mark.parametrize("target", ["there", "nowhere"])
def test_a_name_that_exists_is_refused(tmp_path: Path, target: str) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_text("kept")
    link.symlink_to(tmp_path / target)
    with pytest.raises(FileExistsError, match="exists already: choose another name, or pass replace=True") as caught:
        open_new(link)
    assert caught.value.filename == str(link)
    assert there.read_text() == "kept"


def test_a_replacement_leaves_the_file_of_a_link_as_it_was(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_text("kept")
    link.symlink_to(there)
    with os.fdopen(open_replacement(link), "w") as file:
        file.write("new")
    assert (there.read_text(), link.read_text(), link.is_symlink(), mode(link)) == ("kept", "new", False, 0o600)


def test_a_replacement_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "kept").touch()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="directory"):
        open_replacement(folder)
    assert os.listdir("/proc/self/fd") == before
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_a_missing_file_is_created_at_the_end_of_a_link(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    link.symlink_to(there)
    create_missing(link)
    assert (mode(there), there.read_bytes()) == (0o600, b"")
    there.write_text("kept")
    create_missing(link)
    assert there.read_text() == "kept"


@pytest.mark.parametrize("kind", ["link", "pipe", "hard link", "other text", "folder"])
def test_a_file_that_is_not_ours_is_not_appended_to(tmp_path: Path, kind: str) -> None:
    """Also a pipe is not waited for."""
    there, path = tmp_path / "there", tmp_path / "a.jsonl"
    there.write_text('{"slot":"x"}\n')
    there.chmod(0o644)
    if kind == "link":
        path.symlink_to(there)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "hard link":
        path.hardlink_to(there)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("not ours\n")
    with pytest.raises(OSError, match=r"a\.jsonl"):
        open_own(path, b'{"slot":')
    assert (there.read_text(), mode(there)) == ('{"slot":"x"}\n', 0o644)
    assert kind != "other text" or path.read_text() == "not ours\n"


def test_a_file_of_ours_is_appended_to_and_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for number in range(3):
        with open(open_own(path, b'{"slot":'), "ab") as file:
            file.write(b'{"slot":%d}\n' % number)
        assert mode(path) == 0o600
        path.chmod(0o644)
    assert path.read_text() == '{"slot":0}\n{"slot":1}\n{"slot":2}\n'
