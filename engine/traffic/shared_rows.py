"""The limits that the engines of one machine share, as rows of an SQLite file, which each engine changes itself.

A rate is one number, the time from which its next unit may be used (GCRA). Calls at a time are places that a holder
has, and budgets are what was spent, and what each holder has reserved. A holder is one engine: it says each second that
it lives. What a holder had that has ended is free for the others, except its part of a budget, which counts as spent.

Each function is called inside a transaction, with the time of the monotonic clock, which all processes of a machine
share. `engine/sharing.py` has the file.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

LEASE_SECONDS = 4.0
"""A holder that has not said for so long that it lives has ended. It uses nothing more from then on."""

REMEMBERED_SECONDS = 60.0
"""For so long budgets are remembered after the last holder was killed."""

TURN_SECONDS = 1.0
"""For so long a holder has a place that cannot be divided, while others wait for it."""

SMALL_PART = 64
"""More of a budget than the waiting call needs is given up to the limit divided by this: it is lost with a process."""

SCHEMA = (
    "CREATE TABLE configuration(name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE holder(id INTEGER PRIMARY KEY, process TEXT, seen REAL)",
    "CREATE TABLE rate(name BLOB PRIMARY KEY, due REAL) WITHOUT ROWID",
    "CREATE TABLE places(name BLOB, holder INTEGER, held INTEGER, wanted INTEGER, turn REAL,"
    " PRIMARY KEY(name, holder))",
    "CREATE TABLE account(name BLOB PRIMARY KEY, ends REAL, s0 INTEGER, s1 INTEGER, s2 INTEGER, s3 INTEGER)",
    "CREATE TABLE part(name BLOB, holder INTEGER, u0 INTEGER, u1 INTEGER, u2 INTEGER, u3 INTEGER,"
    " h0 INTEGER, h1 INTEGER, h2 INTEGER, h3 INTEGER, PRIMARY KEY(name, holder))",
)


class RateAsk(NamedTuple):
    """What a holder takes of a rate, in seconds of its flow.

    least: what its next call needs; 0: it only gives back.
    most: what it could use.
    back: what has not been used for so long may still be used.
    ahead: what flows in so soon may be taken now.
    longest: the longest time for which a rate can be used up.
    refund: what earlier calls did not use.
    """

    name: bytes
    least: float
    most: float
    back: float
    ahead: float
    longest: float
    refund: float


class PlacesAsk(NamedTuple):
    """What a holder has and wants of a number of calls at a time.

    limit: for all holders together.
    held: so many calls may run here, at most.
    wanted: so many could.
    """

    name: bytes
    limit: int
    held: int
    wanted: int


class AmountsAsk(NamedTuple):
    """What a holder has and needs of a budget. Each sequence has the four amounts, in units.

    limits: of a window, for all holders together; None for an amount without a limit.
    every: the length of a window in seconds; None: one window without an end.
    used: what its calls have used so far.
    held: what they may use beyond that.
    needed: what the first waiting call needs beyond that.
    ahead: what is going to be used beyond that.
    """

    name: bytes
    limits: Sequence[int | None]
    every: float | None
    used: Sequence[int]
    held: Sequence[int]
    needed: Sequence[int]
    ahead: Sequence[int]


class Ask(NamedTuple):
    """What an engine asks for at one time.

    rates: of each entry that has one to take. All rates of an entry are given, or none.
    forgotten: the budgets of which it needs nothing any more, and holds nothing.
    """

    rates: Sequence[Sequence[RateAsk]] = ()
    places: Sequence[PlacesAsk] = ()
    amounts: Sequence[AmountsAsk] = ()
    forgotten: Sequence[bytes] = ()


class AmountsReply(NamedTuple):
    """What a holder has of a budget.

    given: what was added to what it held.
    spent: what all holders have used in this window.
    """

    given: Sequence[int]
    spent: Sequence[int]
    ends_at: float


class Reply(NamedTuple):
    """The answer to an `Ask`, item by item.

    rates: of each entry: when each rate's part begins and ends; or the time from which it is worth to ask again.
    places: so many calls may run.
    """

    rates: Sequence[Sequence[tuple[float, float]] | float]
    places: Sequence[int]
    amounts: Sequence[AmountsReply]


Sql: TypeAlias = Callable[..., sqlite3.Cursor]
"""Executes a statement with its values."""


def join(
    sql: Sql, configuration: Mapping[str, str | float], now: float, *, again: bool
) -> int | dict[str, str | float]:
    """Return the number of a new holder; or the limits of others that live, if they are not the same.

    again: the engine was a holder before, and was taken to have ended.
    """
    seen = [row[0] for row in sql("SELECT seen FROM holder")]
    sweep(sql, now)
    theirs = dict(sql("SELECT name, value FROM configuration"))
    if sql("SELECT 1 FROM holder").fetchone():
        if theirs != configuration:
            return theirs
    elif theirs != configuration or not (again or 0 <= now - max(seen, default=-math.inf) < REMEMBERED_SECONDS):
        sql("DELETE FROM account")
    if theirs != configuration:
        sql("DELETE FROM rate")
        sql("DELETE FROM configuration")
        for row in configuration.items():
            sql("INSERT INTO configuration VALUES(?, ?)", *row)
    holder = secrets.randbits(62)
    sql("INSERT INTO holder VALUES(?, ?, ?)", holder, f"{_namespace()}:{os.getpid()}", now)
    return holder


def exchange(sql: Sql, holder: int, ask: Ask, now: float) -> Reply | None:
    """Note what a holder has used, and give what it asks for; None if it is taken to have ended."""
    live = sql("UPDATE holder SET seen = ? WHERE id = ? AND seen > ?", now, holder, now - LEASE_SECONDS)
    if not live.rowcount:
        return None
    for name in ask.forgotten:
        sql("DELETE FROM part WHERE name = ? AND holder = ?", name, holder)
        spent = sql("SELECT 1 FROM account WHERE name = ? AND s0 + s1 + s2 + s3 > 0", name).fetchone()
        if not spent and not sql("SELECT 1 FROM part WHERE name = ?", name).fetchone():
            sql("DELETE FROM account WHERE name = ?", name)
    return Reply(
        [_take(sql, asks, now) for asks in ask.rates],
        [_share_places(sql, holder, each, now) for each in ask.places],
        [_share_amounts(sql, holder, each, now) for each in ask.amounts],
    )


def leave(sql: Sql, holder: int, now: float) -> None:
    """Note that a holder makes no more calls, after its last `exchange`."""
    _end(sql, [holder])
    sweep(sql, now)
    if not sql("SELECT 1 FROM holder").fetchone():
        sql("DELETE FROM account")


def sweep(sql: Sql, now: float) -> None:
    """Free what holders had that have ended. A time ahead of `now` is one of before the machine was started."""
    rows = sql("SELECT id, process, seen FROM holder").fetchall()
    _end(sql, [id for id, process, seen in rows if not now - LEASE_SECONDS < seen <= now + 1 or _has_ended(process)])


def _namespace() -> int:
    """Return what tells apart the process ids of two containers; 0 where there is one series of them."""
    with contextlib.suppress(OSError):
        return os.stat("/proc/self/ns/pid").st_ino
    return 0


def _has_ended(process: str) -> bool:
    """Return whether a process is known to have ended. Another one may have its id by now: then it is not known."""
    namespace, _, number = process.partition(":")
    if namespace != str(_namespace()):
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _end(sql: Sql, holders: Iterable[int]) -> None:
    """Remove holders. What they held of budgets counts as spent."""
    for holder in holders:
        for name, *held in sql("SELECT name, h0, h1, h2, h3 FROM part WHERE holder = ?", holder).fetchall():
            sql("UPDATE account SET s0 = s0 + ?, s1 = s1 + ?, s2 = s2 + ?, s3 = s3 + ? WHERE name = ?", *held, name)
        sql("DELETE FROM part WHERE holder = ?", holder)
        sql("DELETE FROM places WHERE holder = ?", holder)
        sql("DELETE FROM holder WHERE id = ?", holder)


def _take(sql: Sql, asks: Sequence[RateAsk], now: float) -> list[tuple[float, float]] | float:
    """Take a part of each rate of an entry, if the next call can have all that it needs. Else return when it is worth
    to ask again."""
    dues: list[float] = []
    for ask in asks:
        row = sql("SELECT due FROM rate WHERE name = ?", ask.name).fetchone()
        # A later one is of before the machine was started.
        due = row[0] - ask.refund if row and row[0] <= now + ask.longest else -math.inf
        dues.append(max(due, now - ask.back))
    again = max(due - ask.ahead if ask.least else now for due, ask in zip(dues, asks, strict=True))
    found: list[tuple[float, float]] = []
    for due, ask in zip(dues, asks, strict=True):
        seconds = 0.0
        if again <= now and ask.least:
            free = now + ask.ahead - due
            # Half of it, also if that is more than asked for, where no other engine takes what flows in.
            part = max(min(ask.most, free), free / 2 if due <= now else 0.0)
            seconds = ask.least * max(1, math.floor(part / ask.least + 1e-6))
        found.append((due, due + seconds))
        if seconds or ask.refund:
            sql("INSERT OR REPLACE INTO rate VALUES(?, ?)", ask.name, due + seconds)
    return again if again > now else found


def _share_places(sql: Sql, holder: int, ask: PlacesAsk, now: float) -> int:
    """Return how many calls of a holder may run. If that is less than it has, the difference is free when it says so.

    Each holder gets what it wants, at most an equal part. Those whose turn it is get the places that remain.
    """
    rows = {row[0]: row[1:] for row in sql("SELECT holder, held, wanted, turn FROM places WHERE name = ?", ask.name)}
    turn = rows[holder][2] if holder in rows else -math.inf
    rows[holder] = (ask.held, ask.wanted, turn)
    free = ask.limit - sum(row[0] for one, row in rows.items() if one != holder)
    share, left, wanting = 0, ask.limit, sorted(rows, key=lambda each: rows[each][1])
    for count, each in zip(range(len(wanting), 0, -1), wanting, strict=True):
        share = left // count
        if rows[each][1] > share:  # those that remain want more than an equal part
            # Those with a turn first, then those that have waited longest since theirs.
            line = sorted(wanting[-count:], key=lambda one: (rows[one][2] <= now, rows[one][2], one))
            if holder in line[: left % count]:
                share += 1
                turn = now + TURN_SECONDS if turn <= now and free >= share else turn
            break
        share = rows[each][1]
        left -= share
        if each == holder:
            break
    allowed: int = max(0, min(share, free))
    held = max(ask.held, allowed)
    if held or ask.wanted:
        sql("INSERT OR REPLACE INTO places VALUES(?, ?, ?, ?, ?)", ask.name, holder, held, ask.wanted, turn)
    else:
        sql("DELETE FROM places WHERE name = ? AND holder = ?", ask.name, holder)
    return allowed


def _share_amounts(sql: Sql, holder: int, ask: AmountsAsk, now: float) -> AmountsReply:
    """Note what a holder has used of a budget, and give what its next call needs: of all amounts, or of none."""
    row = sql("SELECT ends, s0, s1, s2, s3 FROM account WHERE name = ?", ask.name).fetchone()
    ends, *spent = row or (math.inf if ask.every is None else now + ask.every, 0, 0, 0, 0)
    if ask.every is not None:
        ends = min(ends, now + ask.every)  # it is later if it is of before the machine was started
        if now >= ends:
            ends, spent = ends + ask.every * (1 + math.floor((now - ends) / ask.every)), [0, 0, 0, 0]
    mine = sql("SELECT u0, u1, u2, u3 FROM part WHERE name = ? AND holder = ?", ask.name, holder).fetchone()
    spent = [a + b - c for a, b, c in zip(spent, ask.used, mine or (0, 0, 0, 0), strict=True)]
    others = sql(
        "SELECT COUNT(*), SUM(h0), SUM(h1), SUM(h2), SUM(h3) FROM part WHERE name = ? AND holder <> ?", ask.name, holder
    ).fetchone()
    given = [0, 0, 0, 0]
    free = [
        None if limit is None else limit - used - held - (theirs or 0)
        for limit, used, held, theirs in zip(ask.limits, spent, ask.held, others[1:], strict=True)
    ]
    if all(left is None or need <= left or not need for need, left in zip(ask.needed, free, strict=True)):
        for index, (limit, left) in enumerate(zip(ask.limits, free, strict=True)):
            if limit is not None and left is not None and left > 0:
                need = ask.needed[index]
                given[index] = need + min(ask.ahead[index], (left - need) // (2 * others[0] + 2), limit // SMALL_PART)
    held = [a + b for a, b in zip(ask.held, given, strict=True)]
    sql("INSERT OR REPLACE INTO account VALUES(?, ?, ?, ?, ?, ?)", ask.name, ends, *spent)
    sql("INSERT OR REPLACE INTO part VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", ask.name, holder, *ask.used, *held)
    return AmountsReply(given, spent, ends)
