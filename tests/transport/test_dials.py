"""Dials of the pool: when they begin, and what drops them."""

from typing import Any

import pytest

from manystream.transport.dials import Dials
from manystream.transport.http1 import State
from manystream.transport.trio_backend import TrioBackend
from tests.transport.test_pool import B, open_rig
from tests.transport.test_pool_limits import EXHAUSTED, idle, state


async def test_eight_dials_without_descriptors_are_enough() -> None:
    async with open_rig() as rig:
        askers = await idle(rig, 70)
        rig.fail, dials = EXHAUSTED, rig.dials
        rig.ask(B)
        await rig.settle()
        assert rig.dials - dials == 8
        assert [state(asker) for asker in askers] == [State.CLOSED] * 64 + [State.IDLE] * 6


async def test_sixteen_dials_begin_before_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    seen: list[int] = []
    start, checkpoint = TrioBackend.start, TrioBackend.checkpoint

    def count(backend: TrioBackend, function: Any, *arguments: Any) -> Any:
        begun.extend([1] * len(arguments))
        return start(backend, function, *arguments)

    async def others_run(backend: TrioBackend) -> None:
        seen.append(len(begun))
        await checkpoint(backend)

    async with open_rig() as rig:
        monkeypatch.setattr(TrioBackend, "start", count)
        monkeypatch.setattr(TrioBackend, "checkpoint", others_run)
        for _ in range(40):
            rig.ask()
        await rig.settle()
        assert (seen, rig.dials) == ([16, 32, 40], 40)


async def test_a_dial_that_has_not_begun_is_dropped_with_its_pool() -> None:
    async with open_rig() as rig:
        rig.ask()
        rig.pool.drop()
        await rig.settle()
        assert rig.dials == 0


async def test_a_dial_s_defect_is_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    defect = ValueError("a defect")

    async def fail(*_: object) -> None:
        raise defect

    async with open_rig() as rig:
        monkeypatch.setattr(Dials, "_run", fail)
        asker = rig.ask()
        await rig.settle()
        assert (asker.defect, asker.error) == (defect, None)
        rig.pool.abandon(asker)
    assert [record.getMessage() for record in caplog.records] == [
        "a dial to http://a.test:80 raised: a defect in manystream"
    ]


async def test_a_dial_may_begin_with_another(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    start = TrioBackend.start

    def fail(backend: TrioBackend, function: Any, *arguments: Any) -> Any:
        if arguments:
            raise MemoryError
        return start(backend, function, *arguments)

    async with open_rig() as rig:
        with monkeypatch.context() as patch:
            patch.setattr(TrioBackend, "start", fail)
            first = rig.ask()
            await rig.settle()
        assert (first.connection, first.defect) == (None, None)
        second = rig.ask()
        await rig.settle()
        assert (state(first), state(second)) == (State.HEAD, State.HEAD)
    assert [record.getMessage() for record in caplog.records] == ["beginning a dial raised: a defect in manystream"]
