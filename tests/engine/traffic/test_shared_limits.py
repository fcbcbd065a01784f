"""Budgets that several engines share: their messages, whatever is lost, late or killed. Rates are in `test_leases.py`;
the processes, the sockets and the files are in `tests/engine/test_sharing.py`."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.engine.traffic.budgets.amounts import Amounts
from manystream.engine.traffic.budgets.budgets import Account, BudgetRefusal, BudgetsState, Claim, Reservation
from manystream.engine.traffic.shared_limits import (
    EngineShare,
    KeeperState,
    MessageError,
    account_name,
    configuration,
    difference,
)
from manystream.providers.json.json_values import JSON, JSONObject, dumps, loads_object

TICK = 0.25


def free(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
    return 0.0


def dollars(limit: float) -> ms.Traffic:
    return ms.Traffic(budgets=[ms.Budget(usd=limit)], price=free)


def sent(message: JSONObject) -> JSONObject:
    """Return what the other end reads."""
    return loads_object(dumps(message))


class Spender:
    """An engine whose calls wait for a shared budget, run and end.

    running: what each running call has reserved.
    refused: the number of calls that can never be paid for.
    used: what ended calls have used.
    """

    def __init__(self, traffic: ms.Traffic, name: str, clock: Callable[[], float]) -> None:
        self.share = EngineShare(traffic, clock, name)
        self.running: list[Reservation] = []
        self.claims: list[Claim] = []
        self.refused = 0
        self.used = 0.0
        self._clock = clock
        self._budgets = BudgetsState(tuple(traffic.budgets), self.share.amounts, self._go_on)

    @property
    def reserved(self) -> float:
        return sum(holding.amounts.usd for holding in self.running)

    def call(self, dollars: float, tenant: str | None = None) -> None:
        claim = Claim(Amounts(usd=dollars, calls=1), tenant=tenant)
        found = self._budgets.reserve(tenant, claim.amounts, self._clock())
        if isinstance(found, Account):
            self._budgets.wait(claim, found)
            self.claims.append(claim)
        self._note(found)
        self._go_on()

    def end(self, place: int, part: float) -> None:
        holding = self.running.pop(place)
        dollars = holding.amounts.usd * part
        self.used += dollars
        self._budgets.settle(holding, Amounts(usd=dollars, calls=1), self._clock())
        self._go_on()

    def cancel(self) -> None:
        """Cancel all waiting calls."""
        while self.claims:
            self._budgets.leave(self.claims.pop())

    def _go_on(self) -> None:
        while (found := self._budgets.next(self._clock())) is not None:
            self.claims.remove(found[0])
            self._note(found[1])

    def _note(self, found: object) -> None:
        if isinstance(found, Reservation):
            self.running.append(found)
        elif isinstance(found, BudgetRefusal):
            self.refused += 1


@dataclass
class World:
    """Engines and their keeper, on a simulated clock. What the keeper writes down outlives it.

    loss: the part of the messages that is lost, which ends a connection.
    deaths: the part of the ticks in which a process is killed.
    cancels: the part of the ticks in which an engine cancels its waiting calls.
    """

    random: random.Random
    traffic: ms.Traffic
    count: int
    loss: float = 0.0
    deaths: float = 0.0
    cancels: float = 0.0
    now: float = 0.0
    names: int = 0
    records: list[JSONObject] = field(default_factory=list)
    gone: float = 0.0

    def __post_init__(self) -> None:
        self.keeper = KeeperState(self.traffic, 1, self.now)
        self.epoch = 1
        self.engines = [self.engine() for _ in range(self.count)]

    def clock(self) -> float:
        return self.now

    def engine(self) -> Spender:
        self.names += 1
        return Spender(self.traffic, f"engine {self.names}", self.clock)

    @property
    def taken(self) -> float:
        """What calls have used, or may have used when they were killed, or have reserved."""
        return self.gone + sum(engine.used + engine.reserved for engine in self.engines)

    def exchange(self, engine: Spender) -> None:
        message = sent(engine.share.ask())
        if self.random.random() < self.loss:
            self.keeper.lose(engine.share.name)
            engine.share.again()
            return
        reply, _ = self.keeper.ask(engine.share.name, message, self.now)
        self.records += map(sent, self.keeper.take_records(self.now))
        if self.random.random() < self.loss:
            self.keeper.lose(engine.share.name)
            engine.share.again()
            return
        engine.share.receive(sent(reply))

    def kill_an_engine(self) -> None:
        engine = self.engines.pop(self.random.randrange(len(self.engines)))
        self.gone += engine.used + engine.reserved
        self.keeper.lose(engine.share.name)
        self.engines.append(self.engine())

    def kill_the_keeper(self) -> None:
        self.epoch += 1
        self.keeper = KeeperState(self.traffic, self.epoch, self.now, recovers=True, records=self.records)
        self.records = [sent(record) for record in self.keeper.all_records(self.now)]
        for engine in self.engines:
            engine.share.again()

    def tick(self, cost: float, part: float) -> None:
        self.now += TICK
        for engine in self.engines:
            while engine.running and self.random.random() < 0.5:
                engine.end(self.random.randrange(len(engine.running)), part)
            if self.random.random() < self.cancels:
                engine.cancel()
            while len(engine.claims) < 3 and not engine.refused:
                engine.call(cost)
            self.exchange(engine)
        if self.random.random() < self.deaths:
            self.kill_an_engine()
        if self.random.random() < self.deaths:
            self.kill_the_keeper()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    limit=st.sampled_from((1.0, 10.0, 300.0)),
    count=st.integers(1, 6),
    loss=st.sampled_from((0.0, 0.1, 0.5)),
    deaths=st.sampled_from((0.0, 0.02, 0.2)),
    part=st.sampled_from((0.0, 0.3, 1.0)),
)
def test_no_budget_is_overspent(seed: int, limit: float, count: int, loss: float, deaths: float, part: float) -> None:
    world = World(random.Random(seed), dollars(limit), count, loss, deaths)
    for _ in range(100):
        world.tick(0.4, part)
        assert world.taken <= limit + 1e-6


@pytest.mark.parametrize("part", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_without_a_fault_the_whole_budget_is_used(count: int, part: float) -> None:
    for seed in range(3):
        world = World(random.Random(seed), dollars(3.0), count)
        for _ in range(1000):
            world.tick(0.1, part)
            world.cancels = 0.1 if world.now < 60.0 else 0.0
            if all(engine.refused for engine in world.engines):
                break
        assert all(engine.refused for engine in world.engines)
        assert 2.9 < world.taken <= 3.0 + 1e-6


def test_a_call_that_is_cancelled_lets_the_others_go_on() -> None:
    world = World(random.Random(1), dollars(1.0), 3)
    one, two, three = world.engines
    one.call(0.6)
    world.exchange(one)
    for engine in (two, three):
        engine.call(0.8)
        world.exchange(engine)
    one.end(0, 0.0)
    two.cancel()
    for _ in range(4):
        world.now += 1.0
        for engine in world.engines:
            world.exchange(engine)
    assert len(three.running) == 1


def test_a_killed_engine_costs_a_small_part_beside_its_calls() -> None:
    world = World(random.Random(1), dollars(640.0), 4)
    for _ in range(40):
        world.tick(0.4, 1.0)
    world.kill_an_engine()
    world.engines.pop()
    for _ in range(4000):
        world.tick(0.4, 1.0)
        if all(engine.refused for engine in world.engines):
            break
    assert 640.0 * (1 - 2 / 64) <= world.taken <= 640.0 + 1e-6


def test_each_tenant_has_a_budget_and_each_window_begins_anew() -> None:
    world = World(random.Random(1), ms.Traffic(budgets=[ms.Budget(calls=3, per="tenant", every=60.0)]), 2)
    for window in (1, 2, 3):
        for _ in range(4):
            for tenant in ("a", "b"):
                world.engines[0].call(0.0, tenant)
                world.engines[1].call(0.0, tenant)
        for _ in range(20):
            world.now += TICK
            for engine in world.engines:
                while engine.running:
                    engine.end(0, 1.0)
                world.exchange(engine)
        assert sum(engine.refused for engine in world.engines) == window * (16 - 6)
        world.now = 60.0 * window + 1.0
        for _ in range(4):
            for engine in world.engines:
                world.exchange(engine)


def test_configurations_differ_in_words() -> None:
    here = configuration(ms.Traffic(rates={"*": ms.RateLimit(requests_per_second=5)}, budgets=[ms.Budget(calls=1)]))
    there = configuration(ms.Traffic(rates={"*": ms.RateLimit(requests_per_second=6)}, budgets=[ms.Budget(calls=1)]))
    assert difference(there, here) == "traffic.rates['*'].requests_per_second is 6 there and 5 here"
    assert difference(here, here) == ""
    assert "not given here" in difference(here, configuration(ms.Traffic()))


def test_an_amount_that_is_a_function_cannot_be_shared() -> None:
    with pytest.raises(ms.InvalidRequestError, match="must be a number, not a function"):
        configuration(ms.Traffic(budgets=[ms.Budget(calls=lambda tenant: 1.0)]))


def test_the_name_of_a_key_does_not_have_the_key() -> None:
    account = ("http://one", "sk-secret")
    assert account_name(account) == account_name(("http://one", "sk-secret"))
    assert (
        len({account_name(each) for each in ("", account, ("http://one", "sk-other"), ("http://two", "sk-secret"))})
        == 4
    )
    assert "secret" not in account_name(account)


TRAFFIC = ms.Traffic(
    rates={"*": ms.RateLimit(requests_per_second=5, concurrent=2)}, budgets=[ms.Budget(usd=5, per="tenant")], price=free
)

VALUES: tuple[JSON, ...] = (
    None, True, -1, 10**400, 1.5, -1e308, "", "*", [], [1], {}, {"0": [1, 2, 3, 4, 5]}, {"9": [0, 0, 0, 0, 0]},
)  # fmt: skip


def places(value: JSON, path: tuple[int | str, ...] = ()) -> list[tuple[int | str, ...]]:
    """Return the paths of all values inside a value."""
    found = [path] if path else []
    if isinstance(value, dict):
        found += [each for key in value for each in places(value[key], (*path, key))]
    elif isinstance(value, list):
        found += [each for key in range(len(value)) for each in places(value[key], (*path, key))]
    return found


def changed(message: JSONObject, path: tuple[int | str, ...], value: JSON) -> JSONObject:
    message = copy.deepcopy(message)
    inner: object = message
    for key in path[:-1]:
        inner = inner[key]  # type: ignore[index]
    inner[path[-1]] = value  # type: ignore[index]
    return message


def test_a_forged_message_is_refused_or_harmless() -> None:
    """Each value of each message is replaced by each other value."""
    clock = [0.0]
    spender = Spender(TRAFFIC, "one", lambda: clock[0])
    spender.share.rate("*", "")
    spender.call(1.0, "tenant")
    request = sent(spender.share.ask())
    reply, _ = KeeperState(TRAFFIC, 1, 0.0).ask("one", request, 0.0)
    assert len(places(request)) > 20
    assert len(places(reply)) > 20
    for path in places(request):
        for value in VALUES:
            keeper = KeeperState(TRAFFIC, 1, 0.0)
            message = changed(request, path, value)
            with contextlib.suppress(MessageError):
                keeper.ask("one", message, 1.0)
            with contextlib.suppress(MessageError):
                keeper.leave("one", message, 1.0)
            dumps(keeper.ask("two", sent(Spender(TRAFFIC, "two", lambda: 0.0).share.ask()), 2.0)[0])
    for path in places(reply):
        for value in VALUES:
            other = Spender(TRAFFIC, "one", lambda: clock[0])
            other.share.rate("*", "")
            other.call(1.0, "tenant")
            other.share.ask()
            try:
                other.share.receive(changed(reply, path, value))
            except MessageError:
                continue
            other.share.ask()
