"""A store under faults: Ctrl-C at any step, a full disk, text that cannot be written, damaged and malicious files."""

import gc
import random
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import manystream as ms
from manystream.store import RowError, StoreError, _in_transaction
from tests.support.disk import room
from tests.support.waiting import LONGEST

MESSAGES = [ms.Message.user("one"), ms.Message.assistant([ms.Text("two"), ms.ToolCall("t", "f", "{}")])]


def change(path: Path, *statements: str) -> None:
    """Change the file as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def may_be_written(path: Path) -> bool:
    """Return whether another connection can begin to write, so that no transaction was left open."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


# --- Ctrl-C ---


def test_a_transaction_that_an_interruption_left_open_is_undone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "file", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (word)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t VALUES ('half')")
        _in_transaction(connection, "BEGIN", lambda connection: connection.execute("INSERT INTO t VALUES ('whole')"))
        assert connection.execute("SELECT word FROM t").fetchall() == [("whole",)]
    assert may_be_written(tmp_path / "file")


class Interrupt:
    """A profile function that raises `KeyboardInterrupt` at the n-th place where the interpreter runs signal handlers.

    These places are the start and end of a Python function, and the end of a C function.
    """

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: object, event: str, argument: object) -> None:
        if event != "c_call":
            self.left -= 1
        if self.left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt


def interrupted(work: Callable[[], object], number: int) -> bool:
    """Run `work` with Ctrl-C at the n-th step. Return whether the work has so many steps.

    Without the garbage collector: the finalizer of an object that another test has left would take the interruption.
    """
    gc.disable()
    sys.setprofile(Interrupt(number))
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
        gc.enable()
    return False


WORK: dict[str, Callable[[ms.ConversationStore, str], object]] = {
    "append": lambda store, id: store.append(id, MESSAGES[1]), "create": lambda store, id: store.create("title"),
    "fork": lambda store, id: store.fork(id, messages=1), "rows": lambda store, id: store.rows(id),
    "list_conversations": lambda store, id: store.list_conversations(),
}  # fmt: skip


@pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())
def test_ctrl_c_at_any_step_leaves_no_lock_and_no_transaction(
    store: ms.ConversationStore, path: Path, work: Callable[[ms.ConversationStore, str], object]
) -> None:
    id = store.save(ms.Conversation(MESSAGES))
    step = 1
    while interrupted(lambda: work(store, id), step):
        assert may_be_written(path), f"a transaction is open after step {step}"
        assert store.rows(id)[:3] == ms.Conversation(MESSAGES).rows(), f"step {step}"
        assert len(store.rows(id)) % 2 == 1, "half a message is there"
        step += 1
    assert step > 20
    store.append(id, MESSAGES[0])


WAITER = """
import sys
import manystream as ms

with ms.ConversationStore(sys.argv[1]) as store:
    try:
        print("waiting", flush=True)
        store.append(sys.argv[2], ms.Message.user("never"))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    sys.stdin.readline()
    store.append(sys.argv[2], ms.Message.user("then"))
    print("appended", flush=True)
"""


def test_ctrl_c_interrupts_the_wait_for_another_writer(store: ms.ConversationStore, path: Path) -> None:
    id = store.create()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        process = subprocess.Popen(
            [sys.executable, "-c", WAITER, str(path), id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                writer.execute("BEGIN IMMEDIATE")
                assert process.stdout.readline() == "waiting\n"
                process.send_signal(signal.SIGINT)
                assert select.select([process.stdout], [], [], LONGEST / 2)[0], "it is still waiting"
                assert process.stdout.readline() == "interrupted\n"
                writer.execute("COMMIT")
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline() == "appended\n"
                assert process.wait(LONGEST) == 0
            finally:
                process.kill()
    assert [message.text for message in store.restore(id)] == ["then"]


# --- a full disk ---


def test_a_full_disk_is_a_store_error_and_loses_no_message(store: ms.ConversationStore, path: Path) -> None:
    id = store.create()
    log = path.with_name(path.name + "-wal")
    many = [ms.Message.user("x" * 10_000)] * 100
    with room(log.stat().st_size + 100_000), pytest.raises(StoreError, match=r"conversations\.db: "):
        store.append(id, many)
    stored = len(store.restore(id))
    assert 0 < stored < len(many)
    store.append(id, MESSAGES[0])
    assert len(store.restore(id)) == stored + 1


# --- text that cannot be written ---

LONE = "lone \ud800 surrogate"
STATE = ms.ProviderState("google", {"x": LONE})
DEEP: dict[str, object] = {}
for _ in range(2000):
    DEEP = {"x": DEEP}

SURROGATES: dict[str, Callable[[ms.ConversationStore, str], object]] = {
    "a title": lambda store, id: store.create(LONE),
    "a saved title": lambda store, id: store.save(ms.Conversation(), LONE),
    "a fork's title": lambda store, id: store.fork(id, title=LONE),
    "an id to append to": lambda store, id: store.append(LONE, MESSAGES[0]),
    "an id to read": lambda store, id: store.rows(LONE),
    "an id to restore": lambda store, id: store.restore(LONE),
    "an id to fork": lambda store, id: store.fork(LONE),
    "a text": lambda store, id: store.append(id, ms.Message.user(LONE)),
    "a result": lambda store, id: store.append(id, ms.Message.tool_result("t", LONE)),
    "a tool's name": lambda store, id: store.append(id, ms.Message.assistant([ms.ToolCall("t", LONE, "{}")])),
    "a tool's arguments": lambda store, id: store.append(id, ms.Message.assistant([ms.ToolCall("t", "f", LONE)])),
    "a provider's state": lambda store, id: store.append(id, ms.Message.user([ms.Text("x", state=STATE)])),
    "metadata": lambda store, id: store.append(id, ms.Message("user", [ms.Text("x")], {"note": LONE})),
}


@pytest.mark.parametrize("use", SURROGATES.values(), ids=SURROGATES.keys())
def test_a_lone_surrogate(store: ms.ConversationStore, use: Callable[[ms.ConversationStore, str], object]) -> None:
    id = store.save(ms.Conversation(MESSAGES))
    with pytest.raises(StoreError, match="surrogate"):
        use(store, id)
    assert store.restore(id).messages == MESSAGES


@pytest.mark.parametrize("value", [DEEP, {1, 2}], ids=["a deep object", "a set"])
def test_a_value_that_json_cannot_hold_is_a_store_error(store: ms.ConversationStore, value: object) -> None:
    id = store.save(ms.Conversation(MESSAGES))
    with pytest.raises(StoreError, match="the message cannot be saved"):
        store.append(id, ms.Message("user", [ms.Text("x")], {"value": value}))  # type: ignore[dict-item]
    assert store.restore(id).messages == MESSAGES


# --- damaged files ---


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_cycle_of_parents_is_a_store_error(store: ms.ConversationStore, path: Path, length: int) -> None:
    ids = [store.save(ms.Conversation(MESSAGES)) for _ in range(length)]
    change(
        path,
        *(f"UPDATE conversations SET parent = '{ids[(place + 1) % length]}', parent_messages = 1 WHERE id = '{id}'"
        for place, id in enumerate(ids)),
    )  # fmt: skip
    for use in (store.rows, store.restore):
        with pytest.raises(StoreError, match=r"conversations\.db is damaged: .* is forked from itself"):
            use(ids[0])
    store.append(store.create(), MESSAGES[0])


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO rows VALUES ('{id}', 9, 0, x'ff', NULL, NULL)",
        "INSERT INTO rows VALUES ('{id}', 9, 0, 'user', x'ff', NULL)",
        "INSERT INTO rows VALUES ('{id}', 9, 0, 'user', NULL, x'ff')",
        "INSERT INTO rows VALUES ('{id}', 9, 0, 'user', CAST(x'ff' AS TEXT), NULL)",
        "INSERT INTO rows VALUES ('{id}', 9223372036854775807, 0, 'user', 'x', NULL)",
        "UPDATE conversations SET parent_messages = 'many', parent = id",
        "UPDATE conversations SET title = x'ff'",
        "UPDATE conversations SET created = 'yesterday'",
    ],
)
def test_a_value_of_another_type_is_a_store_error(store: ms.ConversationStore, path: Path, statement: str) -> None:
    id = store.save(ms.Conversation(MESSAGES))
    change(path, statement.format(id=id))
    failures = 0
    for use in (store.rows, lambda id: store.append(id, MESSAGES[0]), lambda _: store.list_conversations()):
        try:
            use(id)
        except StoreError:
            failures += 1
    assert failures
    store.create()


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TRIGGER t AFTER INSERT ON rows BEGIN SELECT 1; END"],
        ["CREATE TRIGGER t AFTER INSERT ON ROWS BEGIN SELECT 1; END"],
        ["DROP TRIGGER rows_stay"],
        ["ALTER TABLE rows RENAME TO others", "CREATE VIEW rows AS WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL"
         " SELECT n + 1 FROM x) SELECT n AS conversation, n AS message, n AS part, n AS kind, n AS content,"
         " n AS data_json FROM x"],
    ],
    ids=["a trigger", "a trigger in other letters", "a trigger less", "a view without end"],
)  # fmt: skip
def test_a_file_with_other_tables_is_refused(store: ms.ConversationStore, path: Path, statements: list[str]) -> None:
    store.close()
    change(path, *statements)
    with pytest.raises(StoreError, match="its tables and triggers are not the ones that the store creates"):
        ms.ConversationStore(path)


def test_other_tables_and_indexes_in_the_file_are_kept(store: ms.ConversationStore, path: Path) -> None:
    id = store.save(ms.Conversation(MESSAGES))
    store.close()
    change(path, "CREATE TABLE notes (x)", "CREATE INDEX by_kind ON rows (kind)")
    with ms.ConversationStore(path) as again:
        assert again.restore(id).messages == MESSAGES


def damage(data: bytes, chance: random.Random) -> bytes:
    """Return the file cut short, with copied pages, or with changed bytes, most of them in the headers of pages."""
    size = 4096
    pages = len(data) // size
    damaged = bytearray(data)
    kind = chance.choice(["cut", "pages", "heads", "bytes"])
    if kind == "cut":
        return data[: chance.randrange(len(data))]
    if kind == "pages":
        for _ in range(chance.randrange(1, 4)):
            there, here = chance.randrange(pages) * size, chance.randrange(pages) * size
            damaged[there : there + size] = damaged[here : here + size]
    for _ in range(chance.randrange(1, 100) if kind != "pages" else 0):
        place = (
            chance.randrange(pages) * size + chance.randrange(200) if kind == "heads" else chance.randrange(len(data))
        )
        damaged[place] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
    return bytes(damaged)


def test_a_damaged_file_is_a_store_error(store: ms.ConversationStore, path: Path) -> None:
    id = store.save(ms.Conversation([ms.Message.user("x" * size) for size in (1, 50, 5000, 20000)]))
    fork = store.fork(id, messages=2)
    for _ in range(30):
        store.append(fork, MESSAGES)
        store.create("other")
    store.close()
    data = path.read_bytes()
    damaged = path.with_name("damaged.db")
    failures = 0
    for seed in range(150):
        damaged.write_bytes(damage(data, random.Random(seed)))
        failures += uses_that_fail(damaged, id, fork)
        for left in path.parent.glob("damaged.db?*"):
            left.unlink()
    assert failures > 50


def test_damaged_text_is_a_store_error(store: ms.ConversationStore, path: Path) -> None:
    store.close()
    path.write_bytes(path.read_bytes().replace(b"title TEXT NOT NULL,", b"title TEXT NOT NULL\xf3"))
    with pytest.raises(StoreError, match="is damaged"):
        ms.ConversationStore(path)


def uses_that_fail(path: Path, id: str, fork: str) -> int:
    """Return how many of a store's methods raise `StoreError` or `RowError`. Other exceptions fail the test."""
    failures = 0
    try:
        store = ms.ConversationStore(path)
    except StoreError:
        return 1
    with store:
        for use in (
            store.list_conversations,
            lambda: store.rows(id),
            lambda: store.restore(fork),
            lambda: store.append(fork, MESSAGES),
            lambda: store.fork(fork),
            store.create,
        ):
            try:
                use()
            except (StoreError, RowError):
                failures += 1
    return failures
