"""The exchange between a driver and one actor: no row is taken twice, and no answer is lost."""

from __future__ import annotations

import pickle

import pytest

from manystream.ray.exchange import (
    CONFIRMED_SECONDS,
    ORPHANED_SECONDS,
    ActorExchange,
    Answer,
    DriverExchange,
    ExchangeError,
    Reply,
    Row,
)
from manystream.ray.rate_leases import Lease
from manystream.ray.watch import SILENT_SECONDS


def row(number: int) -> Row:
    return Row(f"q{number}", number, b"{}")


def answer(number: int) -> Answer:
    return Answer(f"q{number}", b"{}", failed=False)


def test_a_repeated_exchange_returns_the_same_answers() -> None:
    driver, actor = DriverExchange(), ActorExchange(0.0)
    offer = driver.offer((row(1), row(2)))
    assert actor.receive(offer, 0.0) == (row(1), row(2))
    actor.add(answer(1))
    reply = actor.reply(1, 0.5)
    actor.add(answer(2))
    assert actor.receive(offer, 1.0) == ()
    assert actor.reply(1, 1.5).answers == reply.answers == (answer(1),)
    assert driver.accept(reply)
    actor.receive(driver.offer(()), 2.0)
    assert actor.reply(2, 2.0) == Reply(2, (answer(2),), 2.0)


def test_the_second_of_two_equal_replies_is_not_accepted() -> None:
    driver, actor = DriverExchange(), ActorExchange(0.0)
    actor.receive(driver.offer(()), 0.0)
    assert driver.accept(actor.reply(1, 0.0))
    assert not driver.accept(actor.reply(1, 0.0))
    driver.offer(())
    assert not driver.accept(Reply(1, (), 0.0)), "a late reply to the exchange before"


def test_an_overlapping_repetition_gets_the_same_reply() -> None:
    actor, offer = ActorExchange(0.0), DriverExchange().offer((row(1),))
    actor.receive(offer, 0.0)
    actor.receive(offer, 0.5)
    assert not actor.has_answers
    actor.add(answer(1))
    assert actor.has_answers
    assert actor.reply(1, 1.0) == actor.reply(1, 1.0) == Reply(1, (answer(1),), 1.0)
    assert actor.has_answers


def test_a_late_copy_of_an_older_exchange_is_refused() -> None:
    driver, actor = DriverExchange(), ActorExchange(0.0)
    first = driver.offer((row(1),))
    actor.receive(first, 0.0)
    driver.accept(actor.reply(1, 0.5))
    actor.receive(driver.offer((row(2),)), 1.0)
    with pytest.raises(ExchangeError, match="exchange 1 does not follow exchange 2"):
        actor.receive(first, 5.0)
    with pytest.raises(ExchangeError, match="exchange 1 does not follow exchange 2"):
        actor.reply(1, 5.0)
    assert not actor.may_start(1.0 + ORPHANED_SECONDS + 0.1), "an old message does not show that the driver lives"


def test_a_missing_exchange_is_refused() -> None:
    driver = DriverExchange()
    driver.accept(Reply(driver.offer(()).seq, (), 0.0))
    with pytest.raises(ExchangeError, match="exchange 2 does not follow exchange 0"):
        ActorExchange(0.0).receive(driver.offer(()), 0.0)
    with pytest.raises(ExchangeError, match="exchange 0"):
        ActorExchange(0.0).reply(0, 0.0)


def test_a_driver_opens_one_exchange_at_a_time() -> None:
    driver = DriverExchange()
    offer = driver.offer(())
    with pytest.raises(ExchangeError, match="exchange 1 has no reply yet"):
        driver.offer(())
    assert driver.open is offer


def connected(now: float) -> tuple[DriverExchange, ActorExchange]:
    """Return both sides after one exchange without rows."""
    driver, actor = DriverExchange(), ActorExchange(now)
    actor.receive(driver.offer(()), now)
    driver.accept(actor.reply(1, now))
    return driver, actor


def test_an_engine_that_is_not_called_starts_nothing() -> None:
    driver, actor = connected(10.0)
    offer = driver.offer(())
    assert not actor.may_start(10.0), "the driver has not confirmed a reply yet"
    actor.receive(offer, 10.0)
    assert actor.may_start(10.0 + ORPHANED_SECONDS)
    assert not actor.may_start(10.1 + ORPHANED_SECONDS)
    actor.receive(offer, 12.0)
    assert actor.may_start(13.9), "a repetition is a call, too"
    assert not actor.may_start(10.1 + CONFIRMED_SECONDS), "but it confirms nothing new"


def test_a_frozen_machine_s_buffered_call_starts_nothing() -> None:
    driver, actor = connected(0.0)
    actor.receive(driver.offer(()), 0.0)
    driver.accept(actor.reply(2, 1.0))
    offer = driver.offer((row(1),))  # sent while the machine is frozen; the driver gives the actor up 5 seconds later
    assert actor.receive(offer, 9.0) == (row(1),)
    assert not actor.may_start(9.0)
    driver.accept(actor.reply(3, 9.0))  # if the driver still listens, the engine goes on after the next exchange
    actor.receive(driver.offer(()), 9.1)
    assert actor.may_start(9.1)


def test_an_engine_stops_before_its_rows_are_asked_again() -> None:
    assert max(ORPHANED_SECONDS, CONFIRMED_SECONDS) < SILENT_SECONDS


def test_messages_that_were_pickled_are_equal_to_the_originals() -> None:
    driver, actor = DriverExchange(), ActorExchange(0.0)
    offer = driver.offer((row(1), Row(2, 2, b"")), Lease(0.5, (3.0,)))
    actor.receive(offer, 0.0)
    actor.add(answer(1))
    actor.add(Answer(2, b"{}", failed=True))
    reply = actor.reply(1, 0.5)
    assert pickle.loads(pickle.dumps((offer, reply))) == (offer, reply)
    assert b"Answer" not in pickle.dumps(reply), "each object of a class costs more than its content"
