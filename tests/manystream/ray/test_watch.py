"""The driver's watch over its actors: when one is given up."""

from __future__ import annotations

from manystream.ray.watch import READY_SECONDS, SILENT_SECONDS, Watch


def looked_at(watch: Watch, until: float, since: float = 0.0) -> list[int]:
    """Look ten times per second, and return the actors that are overdue at the end."""
    for tenth in range(round(since * 10), round(until * 10)):
        watch.overdue(tenth / 10)
    return watch.overdue(until)


def test_a_silent_actor_is_overdue_after_five_seconds() -> None:
    watch = Watch(0.0)
    watch.asked(1, 0.0)
    watch.asked(2, 0.0)
    assert looked_at(watch, 4.0) == []
    watch.replied(2)
    assert looked_at(watch, SILENT_SECONDS, 4.0) == [1]
    watch.forget(1)
    assert looked_at(watch, 60.0, SILENT_SECONDS) == []


def test_a_new_actor_has_twenty_seconds() -> None:
    watch = Watch(0.0)
    watch.started(1, 0.0)
    watch.started(2, 0.0)
    watch.replied(2)
    assert looked_at(watch, READY_SECONDS - 0.1) == []
    assert looked_at(watch, READY_SECONDS, READY_SECONDS - 0.1) == [1]


def test_a_pause_of_the_driver_is_no_silence_of_the_actors() -> None:
    watch = Watch(0.0)
    watch.asked(1, 0.0)
    assert watch.overdue(3600.0) == []
    assert looked_at(watch, 3600.0 + 3.9, 3600.0) == []
    assert looked_at(watch, 3600.0 + 4.1, 3604.0) == [1], "it was silent for one second of the pause"
