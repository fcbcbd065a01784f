"""The words of a store's errors, what its file holds, and how long it waits for another program."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import manystream as ms
from manystream.store import StoredConversation, StoreError

HELLO = ms.Message.user("hello")


def words_of(use: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as caught:
        use()
    return str(caught.value)


def rows_of(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_what_the_file_of_a_store_holds(store: ms.ConversationStore, path: Path) -> None:
    before = time.time()
    id = store.save(ms.Conversation([HELLO, ms.Message.assistant([ms.Text("a"), ms.Text("b")])]), "first")
    store.append(id, ms.Message.user("again"))
    fork = store.fork(id, messages=2, title="branch")
    store.append(fork, HELLO)
    assert rows_of(path, "PRAGMA application_id") == [(0x6D737472,)]
    assert rows_of(path, "PRAGMA user_version") == [(1,)]
    assert rows_of(path, f"SELECT * FROM rows WHERE conversation = '{id}'") == [
        (id, 0, 0, "user", "hello", None),
        (id, 1, 0, "assistant", "a", None),
        (id, 1, 1, "assistant", "b", '{"continues":true}'),
        (id, 2, 0, "user", "again", None),
    ]
    query = "SELECT id, title, created, parent, parent_messages FROM conversations ORDER BY title"
    (first, second) = rows_of(path, query)
    assert (first[:2], first[3:], second[:2], second[3:]) == (
        (fork, "branch"), (id, 2), (id, "first"), (None, 0),
    )  # fmt: skip
    assert before <= float(str(second[2])) <= time.time()
    assert [type(part) for part in (first[2], second[2])] == [float, float]
    assert len(id) == len(fork) == 22
    assert rows_of(path, f"SELECT message, part FROM rows WHERE conversation = '{fork}'") == [(2, 0)]


def test_conversations_of_one_moment_are_listed_by_id(
    store: ms.ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter((5.5, 7.5, 5.5, 6.5))
    monkeypatch.setattr("manystream.store.time.time", lambda: next(now))
    first, second, third, fork = store.create("a"), store.create("b"), store.create("c"), None
    fork = store.fork(second, title="d")
    store.append(first, [HELLO, HELLO])
    early = sorted([(first, "a", 2), (third, "c", 0)])
    assert store.list_conversations() == [
        StoredConversation(second, "b", 7.5, 0, None),
        StoredConversation(fork, "d", 6.5, 0, second),
        *(StoredConversation(id, title, 5.5, count, None) for id, title, count in early),
    ]


def test_the_defaults_of_a_store(store: ms.ConversationStore) -> None:
    ids = [store.create(), store.save(ms.Conversation([HELLO]))]
    ids.append(store.fork(ids[1]))
    assert {(each.id, each.title, each.messages) for each in store.list_conversations()} == {
        (ids[0], "", 0), (ids[1], "", 1), (ids[2], "", 1),
    }  # fmt: skip
    assert store._durable is False


def test_the_words_of_a_stores_errors(store: ms.ConversationStore, path: Path, tmp_path: Path) -> None:
    id = store.save(ms.Conversation([HELLO]))
    assert repr(store) == f"<ConversationStore {str(path)!r}>"
    assert words_of(lambda: store.rows("nobody")) == f"{path} holds no conversation 'nobody'"
    assert words_of(lambda: store.fork(id, messages=2)) == (
        f"conversation {id!r} has 1 messages: it cannot be forked at 2"
    )
    assert words_of(lambda: ms.ConversationStore(":memory:")) == (
        "a store needs a file: ':memory:' would be gone after the first fork"
    )
    assert words_of(lambda: ms.ConversationStore(tmp_path / "no" / "a.db")) == (
        f"{tmp_path / 'no' / 'a.db'}: unable to open database file: No such file or directory"
    )
    assert words_of(lambda: store.append(id, ms.Message("user", [ms.Text("x")], {"a": {1}}))).startswith(  # type: ignore[dict-item]
        "the message cannot be saved: "
    )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE conversations SET created = 'yesterday'")
        connection.commit()
    assert words_of(store.list_conversations) == (
        f"{path} is damaged: a conversation's row holds values of other types; restore the file from a copy"
    )
    store.close()
    assert words_of(store.create) == f"the store {path} is closed"
    assert repr(store) == f"<ConversationStore {str(path)!r}, closed>"


def test_the_words_about_other_programs_and_newer_versions(store: ms.ConversationStore, path: Path) -> None:
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    assert words_of(lambda: ms.ConversationStore(path)) == (
        f"{path} was written by a newer manystream (schema 2; this one knows 1): use that version, or another file"
    )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 7")
    assert words_of(lambda: ms.ConversationStore(path)) == (
        f"{path} is a database of another program; give the store a file of its own"
    )


def test_an_empty_file_with_a_version_is_another_programs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")
    assert "is a database of another program" in words_of(lambda: ms.ConversationStore(path))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (0,)


def test_a_locked_file_is_tried_again_for_thirty_seconds(
    store: ms.ConversationStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, now, pauses = store.create(), [100.0], list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += 0.5

    monkeypatch.setattr("manystream.store.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep, time=time.time))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert words_of(lambda: store.append(id, HELLO)) == f"{path}: database is locked"
        assert (len(pauses), set(pauses)) == (61, {0.01})
        assert store.rows(id) == [], "reading needs no lock"
        other.execute("ROLLBACK")
    store.append(id, HELLO)
    assert (len(pauses), len(store.rows(id))) == (61, 1)


def test_an_error_that_is_no_lock_is_raised_at_once(
    store: ms.ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manystream.store.time.sleep", lambda seconds: pytest.fail("it was tried again"))
    assert store._connection is not None
    store._connection.execute("PRAGMA query_only = ON")
    assert words_of(store.create).endswith("attempt to write a readonly database")


def test_references_between_conversations_are_checked(store: ms.ConversationStore) -> None:
    assert store._connection is not None
    assert store._connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
    with pytest.raises(sqlite3.IntegrityError):
        store._connection.execute("INSERT INTO rows VALUES ('nobody', 0, 0, 'user', 'x', NULL)")


def test_a_new_file_of_a_store_is_its_owners_alone(store: ms.ConversationStore, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
