"""Budgets as amounts: never more than the limit is used, whatever happens to messages, holders and keepers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.ray.amounts import AmountHolder, AmountKeeper, AmountReport, Gift


def fetch(keeper: AmountKeeper, holder: AmountHolder) -> Gift | None:
    """Exchange one report and its gift, and return the gift."""
    gift = keeper.report(holder.report())
    if gift is not None:
        holder.receive(gift)
    return gift


def test_a_holder_uses_what_it_was_given() -> None:
    keeper, holder = AmountKeeper(1000), AmountHolder("a")
    assert not holder.reserve(100)
    assert fetch(keeper, holder) == Gift("a", 500), "half of what is free"
    assert holder.reserve(100)
    holder.settle(100, 30)
    assert (holder.free, keeper.free) == (470, 500)
    assert fetch(keeper, holder) is None, "it needs nothing"


def test_what_a_holder_returns_is_free_for_others() -> None:
    keeper, first, second = AmountKeeper(100), AmountHolder("a"), AmountHolder("b")
    first.reserve(100)
    fetch(keeper, first)
    assert first.reserve(60)
    assert not second.reserve(40)
    assert fetch(keeper, second) is None
    first.return_rest()
    fetch(keeper, first)
    fetch(keeper, second)
    assert second.reserve(40)
    assert (keeper.free, first.free, second.free) == (0, 0, 0)


def test_a_gift_that_was_lost_is_sent_again_and_not_added() -> None:
    keeper, holder = AmountKeeper(1000), AmountHolder("a")
    holder.reserve(100)
    lost = keeper.report(holder.report())
    again = keeper.report(holder.report())
    assert again == lost == Gift("a", 500)
    holder.receive(again)
    holder.receive(again)
    assert (holder.free, keeper.free) == (500, 500)


def test_late_reports_lower_no_total() -> None:
    keeper = AmountKeeper(100)
    keeper.report(AmountReport("a", 0, 0, 0, 100))
    keeper.report(AmountReport("a", 100, 20, 50, 0))
    keeper.report(AmountReport("a", 100, 10, 0, 0))
    assert keeper.free == 50
    keeper.settle("a", 0)
    assert keeper.free == 80


def test_the_amount_of_a_dead_holder_counts_as_spent() -> None:
    keeper = AmountKeeper(100)
    keeper.report(AmountReport("a", 0, 0, 0, 60))
    assert keeper.free == 40
    keeper.settle("a", 25)
    assert keeper.free == 75
    assert keeper.report(AmountReport("a", 60, 25, 0, 60)) is None, "it is no holder any more"
    keeper.settle("a", 25)
    assert keeper.free == 75


def test_a_new_keeper_counts_what_was_written_down_as_given() -> None:
    before = AmountKeeper(100)
    written = [before.report(AmountReport("a", 0, 0, 0, 30)), before.report(AmountReport("b", 0, 0, 0, 20))]
    after = AmountKeeper(100, used=10, gifts=[gift for gift in written if gift is not None])
    assert after.free == 100 - 10 - 50 - 20
    after.report(AmountReport("a", 50, 0, 50, 0))
    assert after.free == 70


def test_a_call_that_costs_more_than_it_reserved_is_counted() -> None:
    keeper, holder = AmountKeeper(100), AmountHolder("a")
    holder.reserve(50)
    fetch(keeper, holder)
    holder.reserve(50)
    holder.settle(50, 70)
    assert holder.free == -20
    holder.return_rest()
    assert holder.report() == AmountReport("a", 50, 70, 0, 0)
    assert not holder.reserve(10)
    assert holder.report().needed == 30
    keeper.settle("a", 70)
    assert keeper.free == 30


@dataclass(slots=True)
class World:
    """A keeper that writes its gifts down, its holders, and messages that are lost, repeated and late."""

    random: random.Random
    limit: int
    keeper: AmountKeeper = field(init=False)
    written: list[Gift] = field(default_factory=list)
    holders: dict[str, AmountHolder] = field(default_factory=dict)
    running: list[tuple[str, int]] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)
    settled: int = 0
    names: int = 0
    messages: list[AmountReport | Gift] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keeper = AmountKeeper(self.limit)

    def step(self) -> None:
        self.random.choice((self.join, self.die, self.restart, *(4 * [self.call, self.end, self.send, self.rest])))()
        while self.messages and self.random.random() < 0.5:
            place = self.random.randrange(len(self.messages))
            message = self.messages[place] if self.random.random() < 0.3 else self.messages.pop(place)
            if self.random.random() < 0.8:
                self.deliver(message)
        assert sum(self.used.values()) + sum(amount for _, amount in self.running) <= self.limit

    def deliver(self, message: AmountReport | Gift) -> None:
        if isinstance(message, Gift):
            if message.holder in self.holders:
                self.holders[message.holder].receive(message)
            return
        gift = self.keeper.report(message)
        if gift is not None:
            self.written.append(gift)
            self.messages.append(gift)

    def holder(self) -> AmountHolder | None:
        return self.random.choice([*self.holders.values(), None]) if self.holders else None

    def join(self) -> None:
        self.names += 1
        name = f"h{self.names}"
        self.holders[name] = AmountHolder(name)
        self.used[name] = 0

    def die(self) -> None:
        """End a holder with its calls, which cost a part of what they reserved. Its answers may become known."""
        holder = self.holder()
        if holder is None:
            return
        del self.holders[holder.name]
        for name, amount in self.running:
            self.used[name] += self.random.randint(0, amount) if name == holder.name else 0
        self.running = [call for call in self.running if call[0] != holder.name]
        if self.random.random() < 0.5:
            self.keeper.settle(holder.name, self.used[holder.name])
            self.settled += self.used[holder.name]
            self.written = [gift for gift in self.written if gift.holder != holder.name]

    def restart(self) -> None:
        self.keeper = AmountKeeper(self.limit, self.settled, self.written)

    def call(self) -> None:
        holder, amount = self.holder(), self.random.randint(1, 200)
        if holder is not None and holder.reserve(amount):
            self.running.append((holder.name, amount))

    def end(self) -> None:
        if self.running:
            name, amount = self.running.pop(self.random.randrange(len(self.running)))
            used = self.random.randint(0, amount)
            self.used[name] += used
            self.holders[name].settle(amount, used)

    def send(self) -> None:
        holder = self.holder()
        if holder is not None:
            self.messages.append(holder.report())

    def rest(self) -> None:
        holder = self.holder()
        if holder is not None:
            holder.return_rest()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), limit=st.sampled_from((0, 1, 500, 5000)))
def test_the_limit_holds_whatever_happens(seed: int, limit: int) -> None:
    world = World(random.Random(seed), limit)
    for _ in range(400):
        world.step()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), holders=st.integers(1, 6))
def test_the_whole_budget_can_be_used(seed: int, holders: int) -> None:
    keeper, order = AmountKeeper(1000), random.Random(seed)
    all_of_them = [AmountHolder(f"h{number}") for number in range(holders)]
    used = 0
    for _ in range(3000):
        holder = order.choice(all_of_them)
        if holder.reserve(7):
            holder.settle(7, 7)
            used += 7
        else:
            fetch(keeper, holder)
            for other in all_of_them:
                if other is not holder and keeper.free < 7:
                    other.return_rest()
                    fetch(keeper, other)
    assert 1000 - used < 7
