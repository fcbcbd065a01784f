"""The end of a call where its own steps raise: that is a defect, and the caller still learns how the call ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import manystream as ms
from manystream.engine.ending import Ending, Step


class Broken(Ending):
    """A call whose named steps raise whenever they are taken."""

    def __init__(self, broken: set[str], completed: list[ms.Completion]) -> None:
        engine = SimpleNamespace(loop=SimpleNamespace(clock=lambda: 0.0))
        super().__init__(engine, SimpleNamespace(muted=False), completed.append)  # type: ignore[arg-type]
        self.broken = broken
        self.taken: list[str] = []

    def end(self, completion: ms.Completion) -> Step:
        self._settle(completion, None)
        self._conclude_by_all_means()
        return self._step

    def _take(self, step: str) -> None:
        self.taken.append(step)
        if step in self.broken:
            raise RuntimeError(step)

    def _stop(self) -> None:
        self._take("stop")

    def _deliver_terminal(self) -> None:
        self._take("deliver")

    def _record(self) -> None:
        self._take("record")


@pytest.mark.parametrize(
    "broken",
    [set[str](), {"stop"}, {"deliver"}, {"record"}, {"stop", "deliver", "record"}],
    ids=lambda steps: "+".join(sorted(steps)) or "none",
)
def test_a_step_that_raises_is_passed_over_and_the_others_are_taken_once(broken: set[str]) -> None:
    completed: list[ms.Completion] = []
    call = Broken(broken, completed)
    outcome = ms.Completion(success=True)
    assert call.end(outcome) is Step.ENDED
    assert call.taken == ["stop", "deliver", "record"]
    assert completed == [outcome]
