"""The order in which a queue serves its calls."""

from __future__ import annotations

import gc
import random

import pytest

from manystream.engine.traffic.queue.fair_queue import (
    MOST_AWAY,
    FairQueue,
    Permit,
    PermitState,
    TenantClass,
)
from manystream.providers.model.options import Priority

INTERACTIVE, NORMAL, BATCH = Priority.INTERACTIVE, Priority.NORMAL, Priority.BATCH


def waiting(queue: FairQueue, tokens: float = 100, priority: Priority = NORMAL, tenant: str | None = None) -> Permit:
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


# --- tickets, lines of tenants and queues: places, service and what is ahead, with literal numbers ---


def added(
    queue: FairQueue | TenantClass,
    tokens: float = 100,
    tenant: str | None = None,
    *,
    priority: Priority = NORMAL,
    at_head: bool = False,
) -> Permit:
    ticket = Permit(tokens, 0, priority=priority, tenant=tenant)
    queue.add(ticket, at_head=at_head)
    return ticket


# --- tickets ---


@pytest.mark.parametrize(
    ("tokens", "output", "size"), [(0, None, 1), (0.5, 0.25, 1), (1, 0, 1), (2, None, 2), (3, 4, 7)]
)
def test_a_call_counts_as_at_least_one_token(tokens: float, output: float | None, size: float) -> None:
    assert Permit(tokens, output).size == size


# --- tenants ---


def passed(queue: TenantClass, tokens: float, tenant: str | None) -> Permit:
    ticket = Permit(tokens, None, tenant=tenant)
    queue.pass_through(ticket)
    return ticket


def test_service_is_given_back_to_a_tenant_that_is_away() -> None:
    queue = TenantClass()
    tickets = [added(queue, 100, tenant) for tenant in ("a", "a", "b", "b")]
    for _ in range(3):
        queue.take()
    for ticket in tickets[:2]:
        queue.correct(ticket, 0)
    added(queue, 1, "a")
    assert (queue.present["a"].service, queue.present["b"].service) == (100, 100), "at least that of the others"


def test_a_call_that_passes_through_is_charged_to_its_tenant() -> None:
    queue = TenantClass()
    for tokens, tenant in ((100, "a"), (30, "b"), (30, "b"), (5, None)):
        passed(queue, tokens, tenant)
    for tenant in (None, "b", "a"):
        added(queue, 1, tenant)
    assert {name: line.service for name, line in queue.present.items()} == {None: 35, "b": 60, "a": 100}
    assert [queue.take().tenant for _ in range(3)] == [None, "b", "a"]


def test_what_ended_calls_used_is_expected_of_the_next_ones() -> None:
    """Before the first call of a tenant has ended, it is that of all tenants. What a call reserves plays no part."""
    queue = FairQueue()
    lines = queue._classes[NORMAL].present
    for tenant in ("a", "a", "b", "c"):
        queue.add(Permit(10, 4000, tenant=tenant))
        queue.add(Permit(10, 4000, tenant=tenant))
    first = [queue.take(0) for _ in range(3)]
    assert [line.service for line in lines.values()] == [10, 10, 10]
    queue.correct(first[0], 30)
    queue.correct(first[1], 50)
    assert [lines[tenant].service for tenant in "abc"] == [30, 50, 10]
    assert [queue.take(0).tenant, queue.take(0).tenant] == ["c", "a"]
    assert (lines["a"].service, "c" in lines) == (60, False)
    assert queue._classes[NORMAL]._away["c"].service == 10 + 10 + 30, "the mean of all"


@pytest.mark.parametrize("used", [1, 5, 400, 100_000])
def test_a_correction_keeps_no_tenant_waiting_for_long(used: int) -> None:
    """A hundred calls use other amounts than expected. Another tenant has arrived when they were under way."""
    queue = FairQueue()
    for _ in range(1000):
        added(queue, 10, "a")
    queue.correct(queue.take(0), 60)
    burst = [queue.take(0) for _ in range(100)]
    for _ in range(1000):
        added(queue, 10, "b")
    for ticket in burst:
        queue.correct(ticket, 10 + used)
    taken = [queue.take(0).tenant for _ in range(10)]
    assert 2 <= taken.count("a") <= 8 or used > 1000  # then one call of a's is many of b's


def test_a_tenant_that_used_nothing_is_forgotten() -> None:
    queue = TenantClass()
    for tenant in ("used", "cancelled", "charged"):
        ticket = passed(queue, 10, tenant)
        if tenant != "charged":
            queue.correct(ticket, 10 if tenant == "used" else 0)
    assert sorted(map(str, queue._away)) == ["charged", "used"]
    for _ in range(9):
        passed(queue, 10, "later")
    assert sorted(map(str, queue._away)) == ["charged", "later", "used"]


def test_tenants_of_equal_service_need_no_order_of_their_names() -> None:
    """Calls with and without a tenant were sent at once, and end with more tokens than estimated."""
    queue = FairQueue()
    tickets = [Permit(10, 0, tenant=tenant) for _ in range(40) for tenant in ("a", None)]
    for ticket in tickets:
        queue.pass_through(ticket)
    for ticket in tickets:
        queue.correct(ticket, 12)
    for tenant in (None, "a"):
        added(queue, 1, tenant)
    services = [line.service for line in queue._classes[NORMAL].present.values()]
    assert services[0] == services[1]


def test_entries_of_waiting_tenants_are_bounded() -> None:
    queue, sizes = TenantClass(), list[int]()
    tickets = [passed(queue, 1, "stays") for _ in range(100)]
    added(queue, 1, "stays")
    for ticket in tickets:
        queue.correct(ticket, 2)
        sizes.append(len(queue._heap))
    assert max(sizes) <= 34


def test_cancelled_calls_of_many_tenants_are_not_kept() -> None:
    queue = TenantClass()
    added(queue, 1, "stays")
    for number in range(200):
        queue.remove(added(queue, 1, f"t{number}"))
        assert len(queue._heap) <= 36
    assert (len(queue._away), list(queue.present), queue.first().tenant) == (0, ["stays"], "stays")


def test_the_place_of_a_call_is_an_estimate_of_calls_and_tokens() -> None:
    queue = TenantClass()
    tickets = [added(queue, 100, "m") for _ in range(4)]
    assert [queue.ahead_of(ticket) for ticket in tickets] == [(0, 0), (1, 100), (2, 200), (3, 300)]
    for _ in range(4):
        added(queue, 300, "o")
    # Others: 1,200 tokens in 4 calls. Of 1,600 tokens in all, 8 calls.
    assert [queue.ahead_of(ticket) for ticket in tickets] == [(0.5, 100), (2, 300), (3.5, 500), (5, 700)]
    queue.remove(tickets[1])
    assert queue.ahead_of(tickets[2]) == (3.4, 500), "a call that left is still counted"
    queue.remove(tickets[0])
    assert queue.ahead_of(tickets[2]) == (600 / 1400, 100)


def test_a_tenant_alone_does_not_wait_for_others() -> None:
    queue = TenantClass()
    tickets = [added(queue, 100, "m") for _ in range(2000)]
    assert [queue.ahead_of(tickets[number]) for number in (0, 650, 1300, 1999)] == [
        (0, 0), (650, 65_000), (1300, 130_000), (1999, 199_900),
    ]  # fmt: skip


def test_a_call_larger_than_its_tenants_others_waits_no_longer() -> None:
    queue = TenantClass()
    added(queue, 1, "m")
    large = added(queue, 1000, "m")
    assert queue.ahead_of(large) == (1, 500.5)
    added(queue, 100, "o")
    assert queue.ahead_of(large) == (1 + 100 * 3 / 1101, 600.5)


def test_a_backlog_beyond_all_powers_of_two_is_counted() -> None:
    queue = TenantClass()
    added(queue, 2.0**80, "a")
    added(queue, 2.0**70, "b")
    assert (queue.backlog, len(queue.present)) == (2.0**80 + 2.0**70, 2)
    queue.remove(queue.first())
    queue.remove(queue.first())
    assert (queue.backlog, queue._octave_lines) == (0, [0] * 64)


# --- queues ---


def test_the_length_of_a_queue() -> None:
    queue = FairQueue()
    assert (len(queue), queue.length, queue.first(0)) == (0, 0, None)
    ticket = added(queue)
    assert (len(queue), queue.length, ticket.state) == (1, 1, PermitState.QUEUED)
    queue.remove(ticket)
    assert (len(queue), queue.length, ticket.state) == (0, 0, PermitState.ENDED)


def test_a_call_that_waited_before_stands_at_the_head() -> None:
    queue = FairQueue()
    one, two = added(queue), added(queue, at_head=True)
    assert [queue.take(0), queue.take(0)] == [two, one]


def test_places_count_all_calls_of_higher_classes() -> None:
    queue = FairQueue()
    added(queue, 10, priority=INTERACTIVE)
    added(queue, 20, priority=NORMAL)
    added(queue, 40, priority=BATCH)
    tickets = [added(queue, 1, priority=priority) for priority in (INTERACTIVE, NORMAL, BATCH)]
    assert [queue.ahead_of(ticket) for ticket in tickets] == [(1, 5.5), (3, 21.5), (5, 52.5)]


def test_a_class_that_became_empty_is_not_passed_over() -> None:
    for leaves in (True, False):
        queue = FairQueue()
        batch = added(queue, priority=BATCH)
        for _ in range(3):
            added(queue, priority=INTERACTIVE)
        queue.take(0)
        if leaves:
            queue.remove(batch)
            added(queue, priority=BATCH)
        assert queue.take(30).priority is (INTERACTIVE if leaves else BATCH)


def test_a_class_with_other_waiting_calls_stays_passed_over() -> None:
    queue = FairQueue()
    one, _ = added(queue, priority=BATCH), added(queue, priority=BATCH)
    for _ in range(2):
        added(queue, priority=INTERACTIVE)
    queue.take(0)
    queue.remove(one)
    assert queue.take(30).priority is BATCH


def test_a_call_that_passes_through_ends_the_wait_of_its_class() -> None:
    queue = FairQueue()
    batch = added(queue, priority=BATCH)
    added(queue, priority=INTERACTIVE)
    queue.take(0)
    queue._classes[BATCH].remove(batch)
    queue.length = 0
    queue.pass_through(Permit(5, 0, priority=BATCH))
    assert queue._passed_since == {}
    assert added(queue, 1, priority=BATCH).line is not None
    assert queue._classes[BATCH].present[None].service == 5


def test_each_fifth_refusal_sends_a_call_behind_its_others() -> None:
    queue = FairQueue()
    stubborn, *others = [added(queue) for _ in range(4)]
    order: list[int] = []
    for _ in range(13):
        ticket = queue.take(0)
        order.append([stubborn, *others].index(ticket))
        if ticket is stubborn:
            queue.put_back(stubborn)
        if order.count(0) == 5 and len(others) == 3:
            others.append(added(queue))
    assert order == [0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0]
    assert (stubborn.refusals, queue.take(0)) == (10, others[3])


@pytest.mark.parametrize("through", [True, False])
def test_tenants_that_never_come_back_are_forgotten(through: bool) -> None:
    """A gateway may use its end users as tenants."""
    tenants = TenantClass()

    def call(name: str, tokens: float) -> None:
        ticket = Permit(tokens, 0, tenant=name)
        if through:
            tenants.pass_through(ticket)
        else:
            tenants.add(ticket)
            tenants.take()
        tenants.correct(ticket, tokens)

    call("greedy", 1_000_000)
    for number in range(2 * MOST_AWAY):
        call(f"user {number}", 100 + number % 7)
    away = tenants._away  # pyright: ignore[reportPrivateUsage]
    assert len(away) <= MOST_AWAY == 10_000
    for name in ("modest", "modest", "greedy", "modest"):
        added(tenants, tenant=name)
    assert [tenants.take().tenant for _ in range(4)] == ["modest", "modest", "modest", "greedy"]
