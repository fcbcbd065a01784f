"""Files that only their owner can read: what exists already, and what is left after a failure."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import manystream as ms
from manystream.batch import Journal, JournalError
from manystream.engine.observe.private_file import create_missing, open_new, open_own, open_replacement
from manystream.portal import open_portal
from tests.support.batches import records, write
from tests.support.peers import Peer, answer, chat_answer, hello, open_peer, replies


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


FAILURE = {"id": "f", "error": {"category": "server"}}


OLD_FAILURES = [FAILURE, FAILURE, {"id": "a", "error": {"category": "server"}}]
"""Three failures, of which two are outdated once `a` has its answer."""


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """Set the umask to 0, the least private setting."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()}


script = replies(answer(chat_answer("hello")))


async def record(peer: Peer, path: Path, **options: bool) -> None:
    async with ms.open_engine([peer.chat]) as engine:
        with engine.record(path, **options):
            assert (await engine.start_request(hello()).wait()).success


# --- new files ---


def test_a_new_store_and_its_log_are_private(tmp_path: Path) -> None:
    with ms.ConversationStore(tmp_path / "s.db") as store:
        store.save(ms.Conversation([ms.Message.user("secret")]))
        assert modes(tmp_path) == {"s.db": "0o600", "s.db-wal": "0o600", "s.db-shm": "0o600"}
    assert modes(tmp_path) == {"s.db": "0o600"}


def test_a_new_store_behind_a_link_is_private(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("s.db")
    with ms.ConversationStore(tmp_path / "link.db") as store:
        store.create()
        assert set(modes(tmp_path).values()) == {"0o600"}
    assert (tmp_path / "link.db").is_symlink()


def test_a_store_that_exists_keeps_its_mode_and_so_does_its_log(tmp_path: Path) -> None:
    ms.ConversationStore(tmp_path / "s.db").close()
    (tmp_path / "s.db").chmod(0o640)
    with ms.ConversationStore(tmp_path / "s.db") as store:
        store.create()
        assert set(modes(tmp_path).values()) == {"0o640"}


def test_a_batch_s_new_files_are_private(tmp_path: Path) -> None:
    with Journal(tmp_path / "a.jsonl") as journal:
        for _ in range(2):
            journal.record_failure(FAILURE)  # type: ignore[arg-type]
        journal.record_answer("a", {"id": "a"})
        assert modes(tmp_path) == {"a.jsonl": "0o600", "a.errors.jsonl": "0o600"}
    assert len(records(tmp_path / "a.errors.jsonl")) == 1  # rewritten, and still private
    assert modes(tmp_path) == {"a.jsonl": "0o600", "a.errors.jsonl": "0o600"}


@pytest.mark.parametrize("options", [{}, {"replace": True}], ids=["new", "replaced"])
async def test_a_recording_is_private(tmp_path: Path, options: dict[str, bool]) -> None:
    path = tmp_path / "traffic.jsonl"
    if options:
        path.touch(0o666)
    async with open_peer(script) as peer:
        await record(peer, path, **options)
    assert len(records(path)) == 1
    assert modes(tmp_path) == {"traffic.jsonl": "0o600"}


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")
@pytest.mark.parametrize("owner", ["ours", "another user's"])
@pytest.mark.parametrize("there", ["a file", "nothing"])
def test_a_link_of_another_user_is_followed_nowhere(
    tmp_path: Path, there: str, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others may make links, one of them could name any file of ours."""

    def cache(path: Path) -> None:
        ms.AnswerCache(path).close()

    def store(path: Path) -> None:
        with ms.ConversationStore(path) as conversations:
            conversations.create()

    def journal(path: Path) -> None:
        with Journal(path) as lines:
            lines.record_answer("a", {"id": "a"})

    lstat = os.lstat

    def of_another(path: Any, **options: Any) -> os.stat_result:
        found = lstat(path, **options)
        return os.stat_result((*found[:4], found.st_uid + 7, *found[5:])) if stat.S_ISLNK(found.st_mode) else found

    if owner != "ours":
        monkeypatch.setattr(os, "lstat", of_another)
    for number, opens in enumerate((cache, store, journal)):
        link, target = tmp_path / f"link{number}.jsonl", tmp_path / f"target{number}"
        link.symlink_to(target)
        if there == "a file":
            target.write_bytes(b"")
        if owner == "ours":
            with contextlib.suppress(JournalError):  # a journal follows no link that leads nowhere
                opens(link)
            assert target.exists() == (there == "a file" or opens is not journal)
        else:
            with pytest.raises(ms.ManystreamError, match="link of another user"):
                opens(link)
            assert (target.exists(), target.exists() and target.stat().st_size) == (there == "a file", 0)


# --- a recording and an existing file ---


@pytest.mark.parametrize("there", ["a file", "a link to a file", "a link that leads nowhere", "a folder"])
async def test_a_recording_never_overwrites_a_file(tmp_path: Path, there: str) -> None:
    path, other = tmp_path / "traffic.jsonl", tmp_path / "other"
    if there == "a file":
        path.write_text("old")
    elif there == "a folder":
        path.mkdir()
    else:
        path.symlink_to(other)
        if there == "a link to a file":
            other.write_text("old")
    before = sorted(tmp_path.iterdir())
    async with open_peer(script) as peer:
        with pytest.raises(FileExistsError, match=r"exists already: choose another name, or pass replace=True: '.*"):
            await record(peer, path)
    assert sorted(tmp_path.iterdir()) == before
    assert [each.read_text() for each in before if each.is_file()] == ["old"] * sum(each.is_file() for each in before)


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["a symbolic link", "a hard link"])
async def test_a_recording_over_a_link_keeps_its_target(tmp_path: Path, link: Callable[[Path, Path], Any]) -> None:
    path, other = tmp_path / "traffic.jsonl", tmp_path / "other"
    other.write_text("old")
    other.chmod(0o644)
    link(other, path)
    async with open_peer(script) as peer:
        await record(peer, path, replace=True)
    assert (other.read_text(), path.is_symlink(), len(records(path))) == ("old", False, 1)
    assert modes(tmp_path) == {"traffic.jsonl": "0o600", "other": "0o644"}


async def test_a_recording_that_cannot_replace_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.mkdir()
    async with open_peer(script) as peer:
        with pytest.raises(IsADirectoryError):
            await record(peer, path, replace=True)
    assert list(tmp_path.iterdir()) == [path]


def test_a_portal_s_recording_may_replace_too(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_text("old")
    with open_portal([ms.OpenAIChat("key", "http://127.0.0.1:9/v1")]) as portal:
        with pytest.raises(FileExistsError):
            portal.record(path)
        with portal.record(path, replace=True):
            pass
    assert path.read_text() == ""


def test_an_asyncio_engine_s_recording_may_replace_too(tmp_path: Path) -> None:
    import asyncio

    path = tmp_path / "traffic.jsonl"
    path.write_text("old")

    async def main() -> None:
        async with ms.open_engine([ms.OpenAIChat("key", "http://127.0.0.1:9/v1")]) as engine:
            with pytest.raises(FileExistsError):
                engine.record(path)
            with engine.record(path, replace=True):
                pass

    asyncio.run(main())
    assert path.read_text() == ""


# --- a batch's files that exist ---


def run_again(answers: Path, errors: Path | None = None) -> None:
    """Run the batch again: it adds an answer, which makes two failures outdated."""
    with Journal(answers, errors) as journal:
        journal.record_answer("a", {"id": "a", "text": "new"})


def test_a_batch_s_existing_output_keeps_mode_and_links(tmp_path: Path) -> None:
    answers = write(tmp_path / "real.jsonl", [{"id": "old"}])
    errors = write(tmp_path / "real.errors.jsonl", OLD_FAILURES)
    for path in (answers, errors):
        path.chmod(0o640)
    (tmp_path / "again.jsonl").hardlink_to(answers)
    (tmp_path / "a.jsonl").symlink_to("real.jsonl")
    (tmp_path / "a.errors.jsonl").symlink_to("real.errors.jsonl")
    inode = answers.stat().st_ino
    run_again(tmp_path / "a.jsonl")
    assert answers.stat().st_ino == inode
    assert [record["id"] for record in records(tmp_path / "again.jsonl")] == ["old", "a"]
    assert [record["id"] for record in records(errors)] == ["f"]
    assert all((tmp_path / name).is_symlink() for name in ("a.jsonl", "a.errors.jsonl"))
    assert set(modes(tmp_path).values()) == {"0o640"}


def test_a_failures_file_with_several_links_keeps_them(tmp_path: Path) -> None:
    errors = write(tmp_path / "e.jsonl", OLD_FAILURES)
    (tmp_path / "again.jsonl").hardlink_to(errors)
    run_again(tmp_path / "a.jsonl", errors)
    assert errors.samefile(tmp_path / "again.jsonl")
    assert "f" in [record["id"] for record in records(errors)]
    with Journal(tmp_path / "a.jsonl", errors) as journal:
        assert set(journal.failed) == {"f"}


@pytest.mark.parametrize("how", ["of another mode", "at the end of a link", "with several names"])
def test_a_linked_failures_file_is_emptied_in_place(tmp_path: Path, how: str) -> None:
    real = write(tmp_path / "real.jsonl", [{"id": "a", "error": {"category": "server"}}])
    real.chmod(0o640 if how == "of another mode" else 0o600)
    errors = real if how == "of another mode" else tmp_path / "e.jsonl"
    if how == "at the end of a link":
        errors.symlink_to(real)
    elif how == "with several names":
        errors.hardlink_to(real)
    before = real.stat()
    run_again(tmp_path / "a.jsonl", errors)
    assert (real.stat().st_ino, real.stat().st_mode, real.stat().st_size) == (before.st_ino, before.st_mode, 0)
    assert errors.samefile(real)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_a_batch_s_existing_output_keeps_its_owner(tmp_path: Path) -> None:
    answers = write(tmp_path / "a.jsonl", [{"id": "old"}])
    errors = write(tmp_path / "a.errors.jsonl", OLD_FAILURES)
    for path in (answers, errors):
        os.chown(path, 1234, 4321)
    run_again(answers)
    assert [(path.stat().st_uid, path.stat().st_gid) for path in (answers, errors)] == [(1234, 4321)] * 2
    assert [record["id"] for record in records(errors)] == ["f"]


def test_no_file_next_to_the_failures_is_changed(tmp_path: Path) -> None:
    """A temporary file with a predictable name could be a link that another user has created."""
    errors = write(tmp_path / "a.errors.jsonl", OLD_FAILURES)
    trap = tmp_path / "a.errors.jsonl.tmp"
    trap.symlink_to(tmp_path / "prey")
    (tmp_path / "prey").write_text("prompts")
    run_again(tmp_path / "a.jsonl")
    assert [record["id"] for record in records(errors)] == ["f"]
    assert ((tmp_path / "prey").read_text(), trap.is_symlink()) == ("prompts", True)


def test_a_journal_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot write"), Journal(tmp_path / "no" / "a.jsonl"):
        raise AssertionError
