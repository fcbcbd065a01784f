"""The order in which a queue serves its calls."""

from __future__ import annotations

import gc
import random

from manystream.engine.traffic.queue.fair_queue import FairQueue
from manystream.engine.traffic.queue.permit import Permit
from manystream.providers.model.options import Priority

INTERACTIVE, NORMAL, BATCH = Priority.INTERACTIVE, Priority.NORMAL, Priority.BATCH


def waiting(
    queue: FairQueue,
    tokens: float = 100,
    priority: Priority = NORMAL,
    tenant: str | None = None,
) -> Permit:
    ticket = Permit(tokens, 0, priority=priority, tenant=tenant)
    queue.add(ticket)
    return ticket


def test_calls_of_one_tenant_go_in_order() -> None:
    queue = FairQueue()
    tickets = [waiting(queue) for _ in range(5)]
    assert queue.first(0) is tickets[0]
    assert [queue.take(0) for _ in tickets] == tickets
    assert queue.first(0) is None


def test_classes_go_in_strict_order() -> None:
    queue = FairQueue()
    batch, normal, interactive = (waiting(queue, priority=p) for p in (BATCH, NORMAL, INTERACTIVE))
    assert [queue.take(0) for _ in range(3)] == [interactive, normal, batch]


def test_a_class_that_was_passed_over_for_30_s_gets_one_place() -> None:
    queue = FairQueue()
    for _ in range(20):
        waiting(queue, priority=BATCH)
        waiting(queue, priority=INTERACTIVE)
    taken = [queue.take(float(now)).priority for now in (0, 10, 20, 30, 31, 40, 60, 61)]
    # Passed over at 0, so due at 30; passed over again at 31, so due at 61.
    assert taken == [INTERACTIVE, INTERACTIVE, INTERACTIVE, BATCH, INTERACTIVE, INTERACTIVE, INTERACTIVE, BATCH]


def test_an_interactive_call_is_next_but_one_in_a_long_backlog() -> None:
    queue = FairQueue()
    for _ in range(2000):
        waiting(queue, priority=BATCH)
    for second in range(600):
        queue.take(float(second))
    call = waiting(queue, priority=INTERACTIVE)
    assert call in (queue.take(600.0), queue.take(600.0))


def test_the_tenant_with_the_least_service_is_next() -> None:
    queue = FairQueue()
    for tokens, tenant in (
        (400, "large"),
        (400, "large"),
        (100, "small"),
        (100, "small"),
        (100, "small"),
        (100, "small"),
    ):
        waiting(queue, tokens, tenant=tenant)
    assert [queue.take(0).tenant for _ in range(6)] == ["large", "small", "small", "small", "small", "large"]


def test_two_tenants_get_the_same_tokens_whatever_their_load() -> None:
    queue, chance = FairQueue(), random.Random(1)
    for _ in range(10_000):
        waiting(queue, 4000 * chance.uniform(0.5, 2), tenant="much")
    for _ in range(1000):
        waiting(queue, 1000 * chance.uniform(0.5, 2), tenant="little")
    served = {"much": 0.0, "little": 0.0}
    while served["little"] < 900_000:
        ticket = queue.take(0)
        served[str(ticket.tenant)] += ticket.input_tokens
    total, squares = sum(served.values()), sum(value**2 for value in served.values())
    assert total**2 / (2 * squares) > 0.99


def test_a_tenant_that_was_away_has_saved_nothing() -> None:
    queue = FairQueue()
    for _ in range(10):
        waiting(queue, tenant="here")
    for _ in range(5):
        queue.take(0)
    for _ in range(10):
        waiting(queue, tenant="late")
    taken = [queue.take(0).tenant for _ in range(10)]
    assert (taken.count("here"), taken.count("late")) == (5, 5)


def test_leaving_and_coming_back_gains_nothing() -> None:
    queue = FairQueue()
    waiting(queue, 1000, tenant="a")
    waiting(queue, 10, tenant="b")
    waiting(queue, 10, tenant="b")
    assert queue.take(0).tenant == "a"
    waiting(queue, 1000, tenant="a")
    assert [queue.take(0).tenant for _ in range(3)] == ["b", "b", "a"]


def test_usage_corrects_the_service() -> None:
    queue = FairQueue()
    for tenant in ("a", "b", "a", "b"):
        waiting(queue, 100, tenant=tenant)
    first, second = queue.take(0), queue.take(0)
    queue.correct(first, 500)
    queue.correct(second, 120)
    assert queue.take(0).tenant == "b"


def test_a_refused_call_is_next_again_and_its_service_given_back() -> None:
    queue = FairQueue()
    for tokens, tenant in ((100, "a"), (100, "b"), (50, "a"), (100, "b")):
        waiting(queue, tokens, tenant=tenant)
    refused = queue.take(0)
    queue.put_back(refused)
    assert queue.take(0).tenant == "b"
    assert queue.take(0) is refused


def test_a_call_refused_five_times_does_not_block_its_tenant() -> None:
    queue = FairQueue()
    stubborn, other = waiting(queue), waiting(queue)
    for _ in range(5):
        assert queue.take(0) is stubborn
        queue.put_back(stubborn)
    assert [queue.take(0), queue.take(0)] == [other, stubborn]


def test_a_cancelled_call_is_gone() -> None:
    queue = FairQueue()
    tickets = [waiting(queue, tenant=str(number % 3)) for number in range(9)]
    for ticket in tickets[::2]:
        queue.remove(ticket)
    assert len(queue) == 4
    assert {queue.take(0) for _ in range(4)} == set(tickets[1::2])


def test_calls_that_were_sent_or_cancelled_are_not_kept() -> None:
    before = sum(type(found) is Permit for found in gc.get_objects())
    queue = FairQueue()
    waiting(queue)
    for _ in range(1000):
        queue.remove(waiting(queue))
        waiting(queue)
        queue.take(0)
    assert len(queue) == 1
    assert sum(type(found) is Permit for found in gc.get_objects()) - before < 100
