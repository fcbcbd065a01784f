"""A replica of a server: its options, its outages, its failures and its slowness."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from manystream.simulator import (
    KnobError,
    open_simulator,
    open_simulator_thread,
)
from manystream.simulator.program import Ending, Program
from manystream.simulator.prompt import APIError
from manystream.simulator.replica import Outage, Replica, ReplicaState, read_replica

from .raw_client import ask, statistics

# --- a replica ---


def test_a_replica_has_these_options_by_default() -> None:
    plain = Replica(port=0, speed=1.0, delay=0.0, fail=0.0, status=500, slow=0.0, outages=(), seed=0)
    assert Replica() == read_replica("") == plain
    assert Outage(1, 2) == Outage(1, 2, "503")
    every = Replica(port=1, speed=2, delay=3, fail=1, status=4, slow=1, outages=(Outage(1.5, 2, "close"),), seed=5)
    assert read_replica("port=1, speed=2 delay=3,fail=1\nstatus=4 slow=1 seed=5 outage=1.5-2:close") == every
    assert len(fields(Replica)) == 8


OUTAGE = "outage is START-END:KIND in seconds; KIND is 503, hang, close"


BOUNDS = "replica: speed is a number above 0, delay one from 0, and fail and slow are from 0 to 1"


def calls(replica: Replica, count: int = 20) -> str:
    """Each call: `x` failed, `s` was slow, `.` was neither."""
    state, found = ReplicaState(replica, 0.0), ""
    for _ in range(count):
        try:
            answered = state.interrupt(0.0) is None
        except APIError as failure:
            found += "x" if (failure.status, failure.message) == (replica.status, "") else "?"
        else:
            slow = state.paced(Program([b""], interval=1.0)).interval > 1.0
            found += "?" if not answered else "s" if slow else "."
    return found


WRONG_REPLICAS: list[tuple[str, str]] = [
    ("speed=0", BOUNDS),
    ("speed=nan", BOUNDS),
    ("speed=inf", BOUNDS),
    ("delay=inf", BOUNDS),
    ("delay=-0.1", BOUNDS),
    ("fail=-0.1", BOUNDS),
    ("fail=1.1", BOUNDS),
    ("slow=-0.1", BOUNDS),
    ("slow=1.1", BOUNDS),
    ("port=1.5", "replica: port='1.5': port is a number"),
    ("seed=x", "replica: seed='x': seed is a number"),
    ("status=", "replica: status='': status is a number"),
    ("slow=x", "replica: slow='x': slow is a number"),
    ("outage=1", f"replica: outage='1': {OUTAGE}"),
    ("outage=2-1", "replica: outage='2-1': END must be later than START"),
    ("outage=1-1:hang", "replica: outage='1-1:hang': END must be later than START"),
    ("outage=1-2:else", f"replica: outage='1-2:else': {OUTAGE}"),
    ("outage=1-2:", f"replica: outage='1-2:': {OUTAGE}"),
    ("outage=x1-2", f"replica: outage='x1-2': {OUTAGE}"),
    ("x=1",
        "replica: 'x=1' is not an option; write name=value, with a name of: port, speed, delay, fail, status, slow,"
        " outage, seed"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG_REPLICAS)
def test_a_wrong_replica_is_told_why(text: str, message: str) -> None:
    with pytest.raises(KnobError) as caught:
        read_replica(text)
    assert str(caught.value) == message


def test_an_outage_ends_at_its_end() -> None:
    state = ReplicaState(read_replica("outage=1-2 outage=2-3:hang outage=3-4:close"), 100.0)
    assert state.interrupt(100.999) is None
    for now in (101.0, 101.999):
        with pytest.raises(APIError) as caught:
            state.interrupt(now)
        assert (caught.value.status, caught.value.message) == (503, "")
    hang = Program([b""], ending=Ending.STALL, counted=False)
    closed = Program([b""], ending=Ending.CLOSE, delay=0.0)
    assert [state.interrupt(now) for now in (102.0, 102.999, 103.0, 103.999)] == [hang, hang, closed, closed]
    assert state.interrupt(104.0) is None


def test_the_seed_decides_which_calls_fail_or_are_slow() -> None:
    assert calls(Replica(fail=1.0, status=418), 3) == "xxx"
    assert calls(Replica(slow=1.0), 3) == "sss"
    assert calls(Replica(), 3) == "..."
    assert calls(Replica(fail=0.3, slow=0.3)) == ".s....x.x....s...x.x"
    assert calls(Replica(fail=0.3, slow=0.3, seed=1)) == "x.x..xx.s.x.xx.ssx.x"


def test_a_slow_answer_takes_twenty_times_as_long() -> None:
    program = Program([b""], interval=1.0, delay=2.0)
    paced = ReplicaState(Replica(slow=1.0, speed=0.5, delay=3.0), 0.0).paced(program)
    assert paced == replace(program, interval=40.0, delay=83.0)
    state = ReplicaState(Replica(), 0.0)
    assert state.paced(program) is program
    assert ReplicaState(Replica(speed=2.0), 0.0).paced(program) == replace(program, interval=0.5, delay=1.0)
    assert ReplicaState(Replica(delay=1.0), 0.0).paced(program) == replace(program, delay=3.0)


@pytest.mark.parametrize("process", [False, True])
def test_replicas_have_ports_of_their_own(process: bool) -> None:
    opened = open_simulator if process else open_simulator_thread
    with opened("events=4", replicas=["speed=1", "fail=1", "outage=0-3600:close"]) as simulator:
        good, failing, closed = simulator.replicas
        assert len({replica.port for replica in simulator.replicas}) == 3
        assert (good.port, good.base_urls) == (simulator.port, simulator.base_urls)
        assert [ask(replica).status for replica in (good, failing, closed)] == [200, 500, 0]
        assert statistics(good)["completed"] == 1


def test_replicas_with_one_port_for_all_are_refused() -> None:
    with pytest.raises(KnobError, match="port"), open_simulator_thread(port=8080, replicas=["speed=1"]):
        pass
