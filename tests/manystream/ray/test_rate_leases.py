"""Leases of one rate limit: never more than the limit is granted at one time, whatever happens to messages, holders
and keepers."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass, field
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.ray.rate_leases import (
    BURST,
    LEASE_SECONDS,
    RENEW_SECONDS,
    Holder,
    Keeper,
    Lease,
    LeasedBucket,
    LeaseNumber,
    LeaseRequest,
)

ALL = math.inf


def holder_of(name: str, now: float) -> Holder:
    return Holder(name, LeasedBucket(1.0, now))


def bucket_of(holder: Holder) -> LeasedBucket:
    assert isinstance(holder.gauge, LeasedBucket)
    return holder.gauge


def renew(keeper: Keeper, holder: Holder, now: float, wanted: float = ALL) -> float:
    """Renew a lease without any delay, and return the rate that the holder may use."""
    holder.receive(keeper.grant(holder.ask(wanted, now), now), now)
    return holder.rate(now)


def test_the_first_holder_gets_all_and_an_empty_bucket() -> None:
    keeper, holder = Keeper(100, 0.0), holder_of("a", 0.0)
    assert bucket_of(holder).ready_at(1, 0.0) == math.inf
    assert renew(keeper, holder, 0.0) == 100
    assert bucket_of(holder).ready_at(1, 0.0) == pytest.approx(0.01)


def test_a_second_holder_gets_its_share_after_the_first() -> None:
    keeper, first, second = Keeper(100, 0.0), holder_of("a", 0.0), holder_of("b", 0.0)
    renew(keeper, first, 0.0)
    assert renew(keeper, second, 0.5) == 0
    assert renew(keeper, first, 1.0) == 50
    assert renew(keeper, second, 1.5) == 0, "the first has not reported yet that it received the lower rate"
    renew(keeper, first, 2.0)
    assert renew(keeper, second, 2.5) == 50


def test_a_reduction_frees_nothing_before_it_is_confirmed() -> None:
    keeper, first, second = Keeper(100, 0.0), holder_of("a", 0.0), holder_of("b", 0.0)
    renew(keeper, first, 0.0)
    renew(keeper, second, 0.5)
    keeper.grant(first.ask(ALL, 1.0), 1.0)  # the reply is lost
    assert renew(keeper, second, LEASE_SECONDS - 0.1) == 0
    assert first.rate(LEASE_SECONDS - 0.1) == 100
    assert renew(keeper, second, LEASE_SECONDS) == 50
    assert first.rate(LEASE_SECONDS) == 0


def test_the_share_of_a_dead_holder_is_free_when_its_lease_ends() -> None:
    keeper, first, second = Keeper(100, 0.0), holder_of("a", 0.0), holder_of("b", 0.0)
    for step in range(4):
        renew(keeper, first, step)
        renew(keeper, second, step)
    assert second.rate(3.0) == 50
    for step in range(4, 7):
        assert renew(keeper, second, step) == 50
    assert renew(keeper, second, 3.0 + LEASE_SECONDS) == 100
    assert len(keeper.holders) == 1


def test_a_holder_counts_from_asking_a_keeper_from_granting() -> None:
    keeper, first, second = Keeper(100, 0.0), holder_of("a", 0.0), holder_of("b", 0.0)
    request = first.ask(ALL, 0.0)
    lease = keeper.grant(request, 2.0)  # the request took two seconds
    first.receive(lease, 3.0)
    assert (first.rate(3.9), first.rate(4.0)) == (100, 0)
    assert renew(keeper, second, 5.9) == 0
    assert renew(keeper, second, 6.0) == 100


def test_a_lease_too_late_or_out_of_order_is_ignored() -> None:
    keeper, holder = Keeper(100, 0.0), holder_of("a", 0.0)
    old, new = (keeper.grant(holder.ask(wanted, 0.0), 0.0) for wanted in (ALL, ALL))
    renew(keeper, holder_of("b", 0.0), 0.5)
    reduced = keeper.grant(holder.ask(ALL, 1.0), 1.0)
    holder.receive(reduced, 1.0)
    holder.receive(old, 1.1)
    holder.receive(new, 1.2)
    assert holder.rate(1.2) == 50
    late = keeper.grant(holder.ask(ALL, 2.0), 2.0)
    holder.receive(late, 2.0 + LEASE_SECONDS)
    assert holder.rate(2.0 + LEASE_SECONDS) == 0


def test_a_holder_that_has_ended_frees_its_share_at_once() -> None:
    keeper, first, second = Keeper(100, 0.0), holder_of("a", 0.0), holder_of("b", 0.0)
    renew(keeper, first, 0.0)
    keeper.release("a")
    keeper.release("a")
    assert renew(keeper, second, 0.1) == 100


def test_holders_get_what_they_want_and_equal_parts_of_the_rest() -> None:
    keeper = Keeper(100, 0.0)
    holders = [(holder_of("a", 0.0), 10.0), (holder_of("b", 0.0), 50.0), (holder_of("c", 0.0), 0.0)]
    for step in range(8):
        rates = [renew(keeper, holder, step, wanted) for holder, wanted in holders]
    assert rates == pytest.approx([10 + 40 / 3, 50 + 40 / 3, 40 / 3])
    assert keeper.granted <= 100


def test_a_new_keeper_grants_nothing_new_for_one_lease() -> None:
    first, second = holder_of("a", 0.0), holder_of("b", 0.0)
    before = Keeper(100, 0.0)
    for step in range(4):
        renew(before, first, step)
    after = Keeper(100, 3.5, epoch=2, recovers=True)
    assert renew(after, second, 3.6) == 0
    assert renew(after, first, 4.0) == 100
    assert renew(after, first, 5.0) == 100
    assert renew(after, second, 3.4 + LEASE_SECONDS) == 0
    for step in range(8, 12):
        renew(after, first, step)
        renew(after, second, step)
    assert (first.rate(11), second.rate(11)) == (50, 50)


def test_a_renewal_of_a_lease_that_was_replaced_is_ignored() -> None:
    """The request was on its way while the former keeper lowered the rate and gave the difference to another holder."""
    holder = holder_of("a", 0.0)
    holder.receive(Lease(LeaseNumber(1, 1), 0.0, 100.0), 0.0)
    request = holder.ask(ALL, 1.0)
    holder.receive(Lease(LeaseNumber(1, 2), 1.5, 40.0), 1.5)
    renewal = Keeper(100, 2.0, epoch=2, recovers=True).grant(request, 2.0)
    holder.receive(renewal, 2.1)
    assert holder.rate(2.1) == 40


def test_the_number_of_an_older_keeper_s_lease_confirms_nothing() -> None:
    keeper, first, second = Keeper(100, 0.0, epoch=2), holder_of("a", 0.0), holder_of("b", 0.0)
    first.receive(Lease(LeaseNumber(1, 500), 0.0, 0.0), 0.0)
    late = keeper.grant(first.ask(ALL, 0.0), 0.0)
    renew(keeper, second, 0.1)
    keeper.grant(first.ask(ALL, 1.0), 1.0)
    assert renew(keeper, second, 1.1) == 0
    first.receive(late, 1.2)
    assert first.rate(1.2) == 100


def test_the_end_of_a_lease_leaves_a_later_one_counted() -> None:
    keeper, first, second = Keeper(100, 0.0), holder_of("a", 0.0), holder_of("b", 0.0)
    renew(keeper, first, 0.0)
    renew(keeper, second, 0.1, 40.0)
    renew(keeper, first, 0.5, 60.0)
    assert renew(keeper, second, LEASE_SECONDS + 0.4) == 40, "of a share of 62"
    assert first.rate(LEASE_SECONDS + 0.4) == 60
    assert renew(keeper, second, LEASE_SECONDS + 0.5) == 100


def request(holder: str, now: float, held: int = 0, wanted: float = ALL) -> LeaseRequest:
    return LeaseRequest(holder, now - 0.5, LeaseNumber(1, held), 0.0, wanted)


def test_a_holder_that_wants_little_gets_a_part_of_the_rest() -> None:
    keeper = Keeper(100, 0.0)
    requests = [("a", 0.0, 0, 0.0), ("b", 0.5, 0, 10.0), ("a", 1.0, 1, 0.0), ("b", 1.5, 0, 10.0), ("a", 2.0, 3, 0.0)]
    found = [keeper.grant(request(*each), each[1]) for each in [*requests, ("b", 2.5, 0, 10.0)]]
    assert found == [
        Lease(LeaseNumber(1, count), at, rate)
        for count, (at, rate) in enumerate([(-0.5, 100), (0.0, 0), (0.5, 45), (1.0, 0), (1.5, 45), (2.0, 55)], 1)
    ]
    assert keeper.granted == 100


def test_holders_that_want_too_much_divide_the_limit() -> None:
    keeper = Keeper(100, 0.0)
    for now in range(4):
        rates = [
            keeper.grant(request("a", now, 2 * now - 1, 50.0), now).rate,
            keeper.grant(request("b", now, 2 * now, 300.0), now).rate,
        ]
    assert rates == [33.333333, 66.666666]


def test_nothing_is_given_while_others_use_more_than_the_whole_limit() -> None:
    keeper = Keeper(30, 0.0, epoch=2, recovers=True)
    for holder in "ab":
        assert keeper.grant(LeaseRequest(holder, 0.5, LeaseNumber(1, 1), 40.0, ALL), 0.5).rate == 40
    assert keeper.grant(request("c", LEASE_SECONDS), LEASE_SECONDS).rate == 0


def test_a_holder_that_has_ended_wants_nothing() -> None:
    keeper = Keeper(100, 0.0)
    for holder in "ab":
        keeper.grant(request(holder, 0.0, wanted=100.0), 0.0)
    keeper.release("a")
    assert keeper.granted == 0
    assert keeper.grant(request("c", 0.5, wanted=10.0), 0.5).rate == 100 * 10 // 110 + 0.090909
    assert keeper.grant(request("c", 6.0, 3, 10.0), 6.0).rate == 100, "the leases of both have ended"


def test_a_holder_reports_the_lease_that_it_has() -> None:
    holder = holder_of("a", 0.0)
    assert holder.ask(7.0, 1.0) == LeaseRequest("a", 1.0, LeaseNumber(0, 0), 0.0, 7.0)
    holder.receive(Lease(LeaseNumber(2, 3), 1.0, 5.0), 1.5)
    assert holder.ask(7.0, 4.9) == LeaseRequest("a", 4.9, LeaseNumber(2, 3), 5.0, 7.0)
    assert holder.ask(7.0, 5.0) == LeaseRequest("a", 5.0, LeaseNumber(2, 3), 0.0, 7.0)
    assert (holder.rate(4.9), holder.rate(5.0)) == (5.0, 0.0)


def lines_of_a_grant(count: int) -> int:
    """Return how many lines of the keeper run for one renewal among so many holders."""
    keeper, holders = Keeper(500, 0.0), [holder_of(str(number), 0.0) for number in range(count)]
    for step in range(8):
        for number, holder in enumerate(holders):
            renew(keeper, holder, step + number / count / 2)
    lines = 0

    def count_line(frame: FrameType, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count_line

    request, before = holders[0].ask(ALL, 8.0), sys.gettrace()
    sys.settrace(count_line)  # type: ignore[arg-type]
    try:
        keeper.grant(request, 8.0)
    finally:
        sys.settrace(before)
    return lines


def test_a_renewal_costs_the_same_for_six_holders_and_for_1600() -> None:
    assert lines_of_a_grant(1600) <= lines_of_a_grant(6) + 10


# --- a whole cluster: messages are lost, repeated and late, holders die, and keepers are replaced ---

TICK = 0.1


@dataclass(slots=True)
class World:
    """A keeper, its holders, and the network between them, in steps of a tenth of a second."""

    random: random.Random
    limit: float
    holder_count: int
    loss: float
    slowness: float
    deaths: float
    cost: float = 1.0
    now: float = 0.0
    window: float = 1.0
    keeper: Keeper = field(init=False)
    epoch: int = 1
    holders: list[Holder] = field(default_factory=list)
    wanted: dict[str, float] = field(default_factory=dict)
    asked_at: dict[str, float] = field(default_factory=dict)
    to_keeper: list[tuple[float, LeaseRequest]] = field(default_factory=list)
    to_holder: list[tuple[float, str, Lease]] = field(default_factory=list)
    names: int = 0
    taken: float = 0.0
    excess: float = 0.0
    faults: int = 0

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.limit, 0.0)
        for _ in range(self.holder_count):
            self.add_holder()

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.use(self.now + TICK)
            self.now += TICK
            self.happen()
            self.ask()
            self.deliver()
            assert sum(holder.rate(self.now) for holder in self.holders) <= self.limit * (1 + 1e-9)

    def add_holder(self) -> None:
        self.names += 1
        bucket = LeasedBucket(self.window, self.now)
        holder = Holder(f"h{self.names}", bucket)
        self.holders.append(holder)
        self.wanted[holder.name] = ALL if self.random.random() < 0.7 else self.random.uniform(0, self.limit)
        self.asked_at[holder.name] = self.now - self.random.uniform(0, RENEW_SECONDS)

    def happen(self) -> None:
        if self.random.random() < self.deaths and len(self.holders) > 1:
            self.holders.pop(self.random.randrange(len(self.holders)))
            self.faults += 1
        if self.random.random() < self.deaths:
            self.add_holder()
        if self.random.random() < self.deaths / 2:
            self.epoch += 1
            self.keeper = Keeper(self.limit, self.now, epoch=self.epoch, recovers=True)
            self.faults += 1

    def delays(self) -> list[float]:
        """Return the delay of each copy of a message that arrives."""
        copies = self.random.choice((1, 1, 1, 2)) if self.loss else 1
        return [self.random.uniform(0, self.slowness) for _ in range(copies) if self.random.random() >= self.loss]

    def ask(self) -> None:
        for holder in self.holders:
            if self.now - self.asked_at[holder.name] >= RENEW_SECONDS:
                self.asked_at[holder.name] = self.now
                request = holder.ask(self.wanted[holder.name], self.now)
                self.to_keeper += [(self.now + delay, request) for delay in self.delays()]

    def deliver(self) -> None:
        due = [request for at, request in self.to_keeper if at <= self.now]
        self.to_keeper = [entry for entry in self.to_keeper if entry[0] > self.now]
        for request in due:
            lease = self.keeper.grant(request, self.now)
            self.to_holder += [(self.now + delay, request.holder, lease) for delay in self.delays()]
        holders = {holder.name: holder for holder in self.holders}
        for at, name, lease in self.to_holder:
            if at <= self.now and name in holders:
                holders[name].receive(lease, self.now)
        self.to_holder = [entry for entry in self.to_holder if entry[0] > self.now]

    def use(self, until: float) -> None:
        """Use all that may be used until then, each unit as soon as it may be."""
        self.excess = max(0.0, self.excess - self.limit * TICK)
        for holder in self.holders:
            at = self.now
            while (at := bucket_of(holder).ready_at(self.cost, at)) <= until:
                bucket_of(holder).take(self.cost, at)
                self.taken += self.cost
                self.excess += self.cost
        most = self.limit * BURST * self.window + self.names * self.cost + self.limit * TICK
        assert self.excess <= most * (1 + 1e-9), "in some span of time, more than the limit and the saved-up part"


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    limit=st.sampled_from((0.7, 5.0, 100.0)),
    holders=st.integers(1, 8),
    loss=st.sampled_from((0.0, 0.1, 0.5)),
    slowness=st.sampled_from((0.0, 0.5, 3.0, 8.0)),
    deaths=st.sampled_from((0.0, 0.01, 0.05)),
)
def test_the_limit_holds_always(
    seed: int, limit: float, holders: int, loss: float, slowness: float, deaths: float
) -> None:
    World(random.Random(seed), limit, holders, loss, slowness, deaths).run(30)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), holders=st.integers(1, 8), slowness=st.sampled_from((0.0, 0.3)))
def test_without_faults_the_whole_limit_is_used(seed: int, holders: int, slowness: float) -> None:
    world = World(random.Random(seed), 200.0, holders, 0.0, slowness, 0.0)
    world.wanted = dict.fromkeys(world.wanted, ALL)
    world.run(8)
    before = world.taken
    world.run(10)
    assert world.taken - before >= 0.95 * 200 * 10


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_whole_limit_is_used_after_two_deaths(seed: int) -> None:
    world = World(random.Random(seed), 200.0, 4, 0.0, 0.1, 0.0)
    world.wanted = dict.fromkeys(world.wanted, ALL)
    world.run(8)
    world.holders.pop()
    world.keeper = Keeper(200.0, world.now, epoch=2, recovers=True)
    before = world.taken
    world.run(LEASE_SECONDS)
    assert world.taken - before >= 0.7 * 200 * LEASE_SECONDS, "the other three go on"
    world.run(3 * RENEW_SECONDS)
    before = world.taken
    world.run(10)
    assert world.taken - before >= 0.95 * 200 * 10
