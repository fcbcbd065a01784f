"""Conversations on disk: saving and restoring, forks, bad input, and several threads and processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import manystream as ms
from manystream.store import APPLICATION_ID, SCHEMA_VERSION, Row, RowError, StoredConversation, StoreError
from tests.support.waiting import LONGEST

SIGNED = ms.Message.tool_call_with_thinking(
    thinking_text="hm", thinking_signature="sig", redacted_data="xyz", tool_id="t1", tool_name="f", tool_arguments="{}"
)
MESSAGES = [
    ms.Message.user([ms.Text("see"), ms.Image(data=b"\x00\x01", media_type="image/png")]),
    SIGNED,
    ms.Message.tool_result("t1", "boom", is_error=True),
    ms.Message("assistant", [ms.Text("Zürich 東京", state=ms.ProviderState("google", {"x": 1}))], {"note": "n"}),
]


# --- saving and restoring ---


def test_a_saved_conversation_is_restored_equal(store: ms.ConversationStore, path: Path) -> None:
    conversation = ms.Conversation(MESSAGES)
    id = store.save(conversation, "weather")
    assert store.restore(id) == conversation
    with ms.ConversationStore(path) as another:
        assert another.restore(id) == conversation


def test_messages_are_appended_one_or_several(store: ms.ConversationStore) -> None:
    id = store.create()
    store.append(id, MESSAGES[0])
    store.append(id, MESSAGES[1:])
    assert store.restore(id).messages == MESSAGES


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_calls_stored_one_by_one_are_restored_once(store: ms.ConversationStore, order: tuple[int, ...]) -> None:
    calls = [ms.ToolCall(f"c{n}", "look", f'{{"n":{n}}}') for n in range(3)]
    conversation = ms.Conversation([ms.Message.user("Look.")])
    id = store.save(conversation)
    conversation.keep_thinking(ms.Response([ms.Thinking("hm", "sig"), *calls]))
    for number in order:
        pair = conversation.complete_tool(calls[number], f"seen {number}")
        assert list(pair) == conversation.messages[-2:]
        store.append(id, pair)
        assert store.restore(id) == conversation
    assert len(conversation) == 3
    # The next round is not the same one, even if the server counts the ids from 0 again.
    conversation.keep_thinking(ms.Response([*calls[:2]]))
    for call in calls[:2]:
        store.append(id, conversation.complete_tool(call, "seen again"))
    assert store.restore(id) == conversation
    assert len(conversation) == 5


def test_equal_calls_of_two_answers_are_both_restored(store: ms.ConversationStore) -> None:
    pair = [ms.Message.tool_call("c0", "look", "{}"), ms.Message.tool_result("c0", "seen")]
    conversation = ms.Conversation([ms.Message.user("Look."), *pair, *pair])
    assert store.restore(store.save(conversation)) == conversation


def test_a_new_conversation_is_empty(store: ms.ConversationStore) -> None:
    assert store.restore(store.create()) == ms.Conversation()


def test_rows_are_kind_content_and_data_json(store: ms.ConversationStore, path: Path) -> None:
    id = store.save(ms.Conversation(MESSAGES))
    assert store.rows(id) == ms.Conversation(MESSAGES).rows()
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT kind, content, data_json FROM rows ORDER BY message, part").fetchall()
    connection.close()
    assert [Row(*row) for row in found] == store.rows(id)


def test_a_result_without_its_call_is_restored_unchanged(store: ms.ConversationStore) -> None:
    conversation = ms.Conversation([ms.Message.tool_result("gone", "x")])
    assert store.restore(store.save(conversation)) == conversation


def test_conversations_are_listed_newest_first(store: ms.ConversationStore) -> None:
    first = store.save(ms.Conversation(MESSAGES), "one")
    second = store.create("two")
    fork = store.fork(first, messages=2)
    listed = {stored.id: stored for stored in store.list_conversations()}
    assert {id: (stored.title, stored.messages, stored.parent) for id, stored in listed.items()} == {
        first: ("one", 4, None),
        second: ("two", 0, None),
        fork: ("", 2, first),
    }
    created = [stored.created for stored in store.list_conversations()]
    assert created == sorted(created, reverse=True)


# --- forks ---


def test_a_fork_is_independent_of_its_parent(store: ms.ConversationStore) -> None:
    original = store.save(ms.Conversation(MESSAGES))
    fork = store.fork(original)
    store.append(original, ms.Message.user("here"))
    store.append(fork, ms.Message.user("there"))
    assert store.restore(original).messages == [*MESSAGES, ms.Message.user("here")]
    assert store.restore(fork).messages == [*MESSAGES, ms.Message.user("there")]


def test_a_fork_may_begin_anywhere_and_be_forked_again(store: ms.ConversationStore) -> None:
    original = store.save(ms.Conversation(MESSAGES))
    fork = store.fork(original, messages=3)
    store.append(fork, ms.Message.user("x"))
    inside, before = store.fork(fork), store.fork(fork, messages=1)
    store.append(inside, ms.Message.user("y"))
    store.append(before, ms.Message.user("z"))
    assert store.restore(inside).messages == [*MESSAGES[:3], ms.Message.user("x"), ms.Message.user("y")]
    assert store.restore(before).messages == [MESSAGES[0], ms.Message.user("z")]
    assert store.restore(store.fork(before, messages=0)).messages == []


@pytest.mark.parametrize("messages", [-1, 5])
def test_a_fork_beyond_the_conversation_is_refused(store: ms.ConversationStore, messages: int) -> None:
    id = store.save(ms.Conversation(MESSAGES))
    with pytest.raises(StoreError, match=f"has 4 messages: it cannot be forked at {messages}"):
        store.fork(id, messages=messages)


# --- bad input ---


def test_an_unknown_conversation_is_named(store: ms.ConversationStore) -> None:
    for use in (store.restore, store.fork, lambda id: store.append(id, MESSAGES[0])):
        with pytest.raises(StoreError, match="holds no conversation 'nobody'"):
            use("nobody")


def test_a_malformed_row_of_another_program_is_named(store: ms.ConversationStore, path: Path) -> None:
    id = store.save(ms.Conversation(MESSAGES[:1]))
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO rows VALUES (?, 1, 0, 'tool_call', NULL, '{')", (id,))
    connection.close()
    with pytest.raises(RowError, match=r"row 2 \(kind 'tool_call'\), field 'data_json'"):
        store.restore(id)


@pytest.mark.parametrize("statement", ["UPDATE rows SET content = 'x'", "DELETE FROM rows"])
def test_rows_are_append_only(store: ms.ConversationStore, path: Path, statement: str) -> None:
    store.save(ms.Conversation(MESSAGES))
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "how",
    ["plain", "with a log", "with an id", "with an id and no table", "killed while it wrote", "killed with a log"],
)
def test_no_byte_of_another_programs_database_is_changed(path: Path, how: str) -> None:
    """Neither its journal mode, nor its log, nor a transaction that it left half done."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if "a log" in how:
            connection.execute("PRAGMA journal_mode = WAL")
        if how.startswith("with an id"):
            connection.execute("PRAGMA application_id = 7")
        connection.execute("CREATE TABLE other (x)")
        connection.executemany("INSERT INTO other VALUES (?)", [("x" * 1000,)] * 100)
        if how.endswith("no table"):
            connection.execute("DROP TABLE other")
        if how.startswith("killed"):
            copy = path.with_name("copy")
            copy.mkdir()
            connection.execute("PRAGMA cache_size = 1")
            connection.execute("BEGIN")
            connection.execute("UPDATE other SET x = 'y'")
            for file in path.parent.glob(f"{path.name}*"):
                shutil.copy(file, copy / file.name)
            connection.execute("ROLLBACK")
            path = copy / path.name
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    for _ in range(2):
        with pytest.raises(StoreError, match="is a database of another program"):
            ms.ConversationStore(path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} == before


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_a_store_is_a_regular_file(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    with pytest.raises(StoreError, match="unable to open database file"):
        ms.ConversationStore(path)


def test_a_file_that_is_not_a_database_is_a_clear_error(path: Path) -> None:
    path.write_bytes(b"no database at all, but a text" * 100)
    with pytest.raises(StoreError, match=r"conversations\.db: file is not a database"):
        ms.ConversationStore(path)


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda store: ms.ConversationStore(None), "path"),
        (lambda store: ms.ConversationStore(b"file"), "path"),
        (lambda store: ms.ConversationStore(store.path, durable=1), "durable"),
        (lambda store: store.create(None), "title"),
        (lambda store: store.create(10**30), "title"),
        (lambda store: store.append(None, []), "conversation"),
        (lambda store: store.append(ms.Conversation(), []), "conversation"),
        (lambda store: store.append(store.create(), None), "messages"),
        (lambda store: store.append(store.create(), "hello"), "messages"),
        (lambda store: store.save([]), "conversation"),
        (lambda store: store.save(ms.Conversation(), title=None), "title"),
        (lambda store: store.fork(store.create(), messages="1"), "messages"),
        (lambda store: store.fork(store.create(), messages=0.5), "messages"),
        (lambda store: store.fork(3), "conversation"),
        (lambda store: store.restore(b"id"), "conversation"),
        (lambda store: store.rows(None), "conversation"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_name(
    use: Callable[[Any], object], name: str, tmp_path: Path
) -> None:
    with (
        ms.ConversationStore(tmp_path / "s.db") as store,
        pytest.raises(ms.InvalidRequestError, match=f"^{name}: must"),
    ):
        use(store)


# --- the file ---


@pytest.mark.parametrize(("durable", "synchronous"), [(False, 1), (True, 2)])
def test_commits_wait_for_the_disk_only_if_durable(path: Path, durable: bool, synchronous: int) -> None:
    with ms.ConversationStore(path, durable=durable) as store:
        connection = store._connection  # pyright: ignore[reportPrivateUsage]
        assert connection is not None
        found = [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "application_id", "user_version")
        ]
    assert found == ["wal", synchronous, APPLICATION_ID, SCHEMA_VERSION]


def test_one_file_is_left_after_closing(store: ms.ConversationStore, path: Path) -> None:
    store.save(ms.Conversation(MESSAGES))
    store.close()
    assert os.listdir(path.parent) == [path.name]


def test_a_store_serves_threads_one_call_at_a_time(store: ms.ConversationStore) -> None:
    ids = [store.create() for _ in range(4)]

    def write(id: str) -> None:
        for number in range(25):
            store.append(id, ms.Message.user(f"{number}"))

    threads = [threading.Thread(target=write, args=(id,)) for id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
    assert [[message.text for message in store.restore(id)] for id in ids] == [[str(n) for n in range(25)]] * 4


# --- processes ---

BEGIN = "import sys; import manystream as ms; store = ms.ConversationStore(sys.argv[1]); id = sys.argv[2]\n"

WRITER = (
    BEGIN
    + """
from itertools import count
for number in count():
    calls = [ms.ToolCall(f"{number}-{part}", "f", "{}") for part in range(5)]
    store.append(id, ms.Message.assistant([ms.Text(str(number)), *calls]))
    print(number, flush=True)
"""
)
"""A program that appends messages of six rows each without end, and prints the number of each saved message."""

READER = (
    BEGIN
    + """
seen = 0
while seen < int(sys.argv[3]):
    messages = store.restore(id).messages
    assert len(messages) >= seen, "what was there is gone"
    assert [message.text for message in messages] == [str(number) for number in range(len(messages))]
    assert all(len(message.content) == 6 for message in messages), "a message is half there"
    seen = len(messages)
print(seen)
"""
)
"""A program that reads until there are so many messages. All must be whole, and their number must never fall."""


def run(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)


def next_line(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline()
    assert line, "the process ended"
    return line.strip()


@pytest.mark.parametrize("appended", [1, 20])
def test_a_killed_writer_loses_at_most_its_last_message(store: ms.ConversationStore, path: Path, appended: int) -> None:
    id = store.create()
    store.close()
    with run(WRITER, str(path), id) as writer:
        while int(next_line(writer)) < appended:
            pass
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
    last = int(rest[-1]) if rest else appended
    with ms.ConversationStore(path) as again:
        messages = again.restore(id).messages
        assert len(messages) in (last + 1, last + 2), "all messages that were printed are there, and at most one more"
        assert all(len(message.content) == 6 for message in messages)
        again.append(id, ms.Message.user("go on"))
        assert len(again.restore(id)) == len(messages) + 1


def test_two_processes_read_while_one_writes(store: ms.ConversationStore, path: Path) -> None:
    id = store.create()
    enough = "40"
    with (
        run(READER, str(path), id, enough) as first,
        run(READER, str(path), id, enough) as second,
        run(WRITER, str(path), id) as writer,
    ):
        try:
            for reader in (first, second):
                assert int(next_line(reader)) >= int(enough)
                assert reader.wait(LONGEST) == 0
        finally:
            for process in (first, second, writer):
                process.kill()


def test_two_processes_write_to_one_conversation(store: ms.ConversationStore, path: Path) -> None:
    id = store.create()
    program = BEGIN + "for n in range(20): store.append(id, [ms.Message.user(sys.argv[3]), ms.Message.user('x')])"
    writers = [run(program, str(path), id, name) for name in ("a", "b")]
    for writer in writers:
        with writer:
            assert writer.wait(LONGEST) == 0
    texts = [message.text for message in store.restore(id)]
    assert (texts.count("a"), texts.count("b"), texts.count("x")) == (20, 20, 40)


def test_several_processes_may_make_a_file_at_once(path: Path) -> None:
    program = "import sys; import manystream as ms; ms.ConversationStore(sys.argv[1]).create()"
    makers = [run(program, str(path)) for _ in range(3)]
    for maker in makers:
        with maker:
            assert maker.wait(LONGEST) == 0
    with ms.ConversationStore(path) as store:
        assert len(store.list_conversations()) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12 and newer
def test_no_connection_is_used_across_a_fork(store: ms.ConversationStore) -> None:
    id = store.save(ms.Conversation(MESSAGES))
    child = os.fork()
    if not child:
        status = 1
        try:
            assert store._connection is None  # pyright: ignore[reportPrivateUsage]
            store.append(id, ms.Message.user("from the child"))
            status = 0
        finally:
            os._exit(status)
    store.append(id, ms.Message.user("from the parent"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    texts = sorted(message.text for message in store.restore(id).messages[4:])
    assert texts == ["from the child", "from the parent"]


def test_a_writer_waits_for_another(store: ms.ConversationStore, path: Path) -> None:
    id = store.create()
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, lambda: connection.execute("COMMIT"))
    begin = time.monotonic()
    release.start()
    store.append(id, MESSAGES[0])
    assert time.monotonic() - begin > 0.1
    release.join()
    connection.close()
    assert len(store.restore(id)) == 1


# --- the words of a store's errors, what its file holds, and how long it waits for another program ---


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
        (id, 0, 0, "user", "hello", None), (id, 1, 0, "assistant", "a", None),
        (id, 1, 1, "assistant", "b", '{"continues":true}'), (id, 2, 0, "user", "again", None),
    ]  # fmt: skip
    query = "SELECT id, title, created, parent, parent_messages FROM conversations ORDER BY title"
    (first, second) = rows_of(path, query)
    assert (first[:2], first[3:], second[:2], second[3:]) == (
        (fork, "branch"), (id, 2), (id, "first"), (None, 0),
    )  # fmt: skip
    assert before <= float(str(second[2])) <= time.time()
    assert [type(part) for part in (first[2], second[2])] == [float, float]
    assert len(id) == len(fork) == 22
    assert rows_of(path, f"SELECT message, part FROM rows WHERE conversation = '{fork}'") == [(2, 0)]


def test_simultaneous_conversations_go_by_id(store: ms.ConversationStore, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_locked_file_is_tried_again(store: ms.ConversationStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_error_but_no_lock_is_raised_at_once(store: ms.ConversationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manystream.store.time.sleep", lambda seconds: pytest.fail("it was tried again"))
    store._connection.execute("PRAGMA query_only = ON")
    assert words_of(store.create).endswith("attempt to write a readonly database")


def test_references_between_conversations_are_checked(store: ms.ConversationStore) -> None:
    assert store._connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
    with pytest.raises(sqlite3.IntegrityError):
        store._connection.execute("INSERT INTO rows VALUES ('nobody', 0, 0, 'user', 'x', NULL)")


def test_a_new_file_of_a_store_is_its_owners_alone(store: ms.ConversationStore, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
