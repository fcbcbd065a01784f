"""The driver's ledger: every row is answered once, whatever happens to actors and messages."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.ray.exchange import ActorExchange, Answer, DriverExchange, Offer, Reply, Row
from manystream.ray.ledger import Ledger
from manystream.ray.watch import READY_SECONDS, SILENT_SECONDS, Watch


def rows(first: int, last: int) -> list[Row]:
    return [Row(f"q{number}", number, b"{}") for number in range(first, last + 1)]


def answers(*some: Row) -> list[Answer]:
    return [Answer(row.id, b"{}", failed=False) for row in some]


def test_at_most_one_and_a_half_of_an_actor_s_calls_are_out() -> None:
    ledger = Ledger()
    ledger.add_actor(1, 10)
    ledger.add_actor(2, 1)
    assert ledger.lacking == 16
    ledger.add(rows(1, 100))
    assert (len(ledger.hand_out(1)), len(ledger.hand_out(1)), len(ledger.hand_out(2))) == (15, 0, 1)
    assert (ledger.out, ledger.waiting, ledger.lacking) == (16, 84, 0)


def test_the_last_rows_are_spread_over_all_actors() -> None:
    ledger = Ledger()
    ledger.add_actor(1, 100)
    ledger.add_actor(2, 100)
    ledger.add(rows(1, 11))
    ledger.ended = True
    assert (len(ledger.hand_out(1)), len(ledger.hand_out(2))) == (6, 3)
    assert ledger.lacking == 0


def test_rows_of_a_lost_actor_go_first_and_in_order() -> None:
    ledger = Ledger()
    ledger.add_actor(1, 2)
    ledger.add_actor(2, 4)
    ledger.add(rows(1, 9))
    lost = ledger.hand_out(1)
    assert ledger.give_up(1) == 3
    assert ledger.hand_out(2)[:3] == lost
    assert (ledger.asked_again, ledger.give_up(1), ledger.hand_out(1), ledger.room(1)) == (3, 0, (), 0)


def test_the_first_answer_wins_and_late_ones_are_counted() -> None:
    ledger = Ledger()
    ledger.add_actor(1, 2)
    ledger.add(rows(1, 3))
    ledger.ended = True
    first, second, third = ledger.hand_out(1)
    ledger.give_up(1)
    ledger.add_actor(2, 1)
    assert ledger.accept(answers(first)) == answers(first), "it waits, and its former actor answers it"
    assert ledger.hand_out(2) == (second,)
    assert ledger.accept(answers(second)) == answers(second), "it is out at another actor, which frees its place"
    assert ledger.out_at(2) == 0
    assert ledger.accept(answers(first, second, third)) == answers(third)
    assert (ledger.late, ledger.answered, ledger.done, ledger.waiting) == (2, 3, True, 0)


def test_an_id_is_in_the_ledger_once() -> None:
    ledger = Ledger()
    ledger.add(rows(1, 2))
    with pytest.raises(ValueError, match="row 2: 'q2' is already in the ledger"):
        ledger.add(rows(2, 2))


# --- a whole run, with messages that are lost, repeated and late, and actors that die, freeze and come back ---

TICK = 0.1
LONGEST_DELAY = 0.6
"""The delay of most messages, in seconds. Some take ten times as long."""


@dataclass(slots=True)
class Engine:
    """An actor in the simulation. It answers each row after a random time."""

    exchange: ActorExchange
    ready_at: float
    concurrency: int
    frozen_until: float = 0.0
    dead: bool = False
    waiting: list[Row] = field(default_factory=list)
    running: list[tuple[float, Row]] = field(default_factory=list)
    taken: list[str | int] = field(default_factory=list)


@dataclass(slots=True)
class World:
    """A driver, its actors, and the network between them, in steps of a tenth of a second."""

    random: random.Random
    row_count: int
    actor_count: int
    loss: float
    deaths: float
    slowness: float = 10.0
    now: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    watch: Watch = field(default_factory=lambda: Watch(0.0))
    links: dict[int, DriverExchange] = field(default_factory=dict)
    engines: dict[int, Engine] = field(default_factory=dict)
    given_up_at: dict[int, float] = field(default_factory=dict)
    messages: list[tuple[float, int, Offer | Reply]] = field(default_factory=list)
    recorded: list[str | int] = field(default_factory=list)
    received: int = 0
    started: int = 0
    read: int = 0

    def run(self) -> None:
        for _ in range(self.actor_count):
            self.start_actor()
        while not self.ledger.done:
            assert self.now < 3600, self.ledger
            self.now += TICK
            self.happen()
            for actor, engine in self.engines.items():
                self.work(actor, engine)
            self.deliver()
            self.drive()

    def start_actor(self) -> None:
        actor = len(self.engines)
        self.engines[actor] = Engine(ActorExchange(self.now), self.now + self.random.uniform(0, 3), 4)
        self.links[actor] = DriverExchange()
        self.watch.started(actor, self.now)
        self.ledger.add_actor(actor, 4)
        self.send(actor, self.links[actor].offer(()))

    def send(self, actor: int, message: Offer | Reply) -> None:
        for _ in range(self.random.choice((1, 1, 1, 2))):
            if self.random.random() >= self.loss:
                delay = self.random.uniform(0, LONGEST_DELAY) * self.random.choice((1, 1, 1, 1, 1, 1, 1, self.slowness))
                self.messages.append((self.now + delay, actor, message))

    def happen(self) -> None:
        """Kill or freeze an actor now and then, for less or for more than the time until it is given up."""
        for engine in self.engines.values():
            if self.random.random() < self.deaths:
                engine.dead = self.random.random() < 0.5
                engine.frozen_until = self.now + self.random.uniform(0, 2 * SILENT_SECONDS)

    def works(self, engine: Engine) -> bool:
        return not engine.dead and self.now >= max(engine.frozen_until, engine.ready_at)

    def work(self, actor: int, engine: Engine) -> None:
        if not self.works(engine):
            return
        for entry in [entry for entry in engine.running if entry[0] <= self.now]:
            engine.running.remove(entry)
            engine.exchange.add(Answer(entry[1].id, b"{}", failed=False))
        while engine.waiting and len(engine.running) < engine.concurrency and engine.exchange.may_start(self.now):
            assert self.now < self.given_up_at.get(actor, self.now + 1), "its rows were asked again"
            engine.running.append((self.now + self.random.expovariate(1.0), engine.waiting.pop(0)))
            self.started += 1

    def deliver(self) -> None:
        due = [message for message in self.messages if message[0] <= self.now]
        self.messages = [message for message in self.messages if message[0] > self.now]
        for _, actor, message in due:
            engine = self.engines[actor]
            if isinstance(message, Reply):
                self.replied(actor, message)
            elif self.works(engine):
                self.exchange(actor, engine, message)
            elif not engine.dead:  # the message waits in a buffer until the machine goes on
                self.messages.append((max(engine.frozen_until, engine.ready_at), actor, message))

    def exchange(self, actor: int, engine: Engine, offer: Offer) -> None:
        try:
            taken = engine.exchange.receive(offer, self.now)
        except RuntimeError:  # a late copy
            return
        engine.waiting += taken
        engine.taken += [row.id for row in taken]
        self.send(actor, engine.exchange.reply(offer.seq, self.now))

    def replied(self, actor: int, reply: Reply) -> None:
        if not self.links[actor].accept(reply):
            return
        self.received += len(reply.answers)
        self.recorded += [answer.id for answer in self.ledger.accept(reply.answers)]
        self.watch.replied(actor)

    def drive(self) -> None:
        for actor in self.watch.overdue(self.now):
            self.watch.forget(actor)
            self.ledger.give_up(actor)
            self.given_up_at[actor] = self.now
            self.start_actor()
        more = min(self.ledger.lacking, self.row_count - self.read)
        self.ledger.add(rows(self.read + 1, self.read + more))
        self.read += more
        self.ledger.ended = self.read == self.row_count
        for actor, link in self.links.items():
            if actor in self.given_up_at:
                continue
            if link.open is None:
                self.send(actor, link.offer(self.ledger.hand_out(actor)))
                self.watch.asked(actor, self.now)
                assert self.ledger.out_at(actor) <= 6, "one and a half of four calls"
            elif self.random.random() < 0.2:
                self.send(actor, link.open)


FAULTS = {
    "row_count": st.integers(0, 120), "actor_count": st.integers(1, 5), "loss": st.sampled_from((0.0, 0.05, 0.3)),
    "deaths": st.sampled_from((0.0, 0.001, 0.02)),
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), row_count=FAULTS["row_count"], actor_count=FAULTS["actor_count"],
       loss=FAULTS["loss"], deaths=FAULTS["deaths"])  # fmt: skip
def test_nothing_is_lost_or_twice(seed: int, row_count: int, actor_count: int, loss: float, deaths: float) -> None:
    world = World(random.Random(seed), row_count, actor_count, loss, deaths, 10.0 if loss or deaths else 1.0)
    world.run()
    assert sorted(world.recorded, key=str) == sorted((row.id for row in rows(1, row_count)), key=str)
    assert (world.ledger.out, world.ledger.waiting, world.ledger.answered) == (0, 0, row_count)
    assert world.received == row_count + world.ledger.late
    for engine in world.engines.values():
        assert len(set(engine.taken)) == len(engine.taken), "an actor takes no row twice"
    handed_out = sum(len(engine.taken) for engine in world.engines.values())
    assert handed_out <= row_count + world.ledger.asked_again
    if not loss and not deaths:
        assert (world.ledger.asked_again, world.ledger.late, len(world.engines)) == (0, 0, actor_count)


def test_a_new_actor_that_never_answers_is_replaced() -> None:
    world = World(random.Random(1), 10, 2, 0.0, 0.0)
    world.start_actor()
    world.engines[0].dead = True
    world.run()
    assert len(world.recorded) == 10
    assert world.now < READY_SECONDS + 10
