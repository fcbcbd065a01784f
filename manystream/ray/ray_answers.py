"""The journal of a data set as an actor of Ray, and Ray Data's strategy for the actors that ask.

The journal's actor is on the driver's node. Ray starts it again if its process dies, and repeats its calls, which do no
harm when they are repeated. It ends with the program.
"""

from __future__ import annotations

import atexit
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..batch.line_file import JournalError
from ..batch.lines import LineId
from .answers import LOCK_SECONDS, AnswerKeeper
from .cluster import ClusterError
from .exchange import Answer
from .ray_cluster import import_ray
from .rows import AskError

START_SECONDS = 60.0
"""The time in which the journal's actor must have opened its files."""

KEEPER_OPTIONS: dict[str, object] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}


class AnswerActor:
    """The actor: a keeper of answers."""

    def __init__(self, path: str, retry_failed: bool) -> None:
        self._keeper: AnswerKeeper | None = None
        self._failure = ""
        try:
            self._keeper = AnswerKeeper(path, retry_failed=retry_failed)
            atexit.register(self._keeper.close)
        except JournalError as error:
            self._failure = str(error)

    def failure(self) -> str:
        """Return why the files cannot be used; empty if they can."""
        return self._failure

    def lookup(self, ids: Sequence[LineId]) -> dict[LineId, bytes]:
        return self._opened().lookup(ids)

    def record(self, answers: Sequence[Answer]) -> dict[LineId, bytes]:
        return self._opened().record(answers)

    def _opened(self) -> AnswerKeeper:
        if self._keeper is None:
            raise JournalError(self._failure)
        return self._keeper


@dataclass(slots=True, eq=False, repr=False)
class RayJournal:
    """The journal for the actors that ask. It is sent to them. Each call waits for the reply of its actor."""

    path: str  # the file of answers, for messages
    _actor: Any

    def lookup(self, ids: Sequence[LineId]) -> dict[LineId, bytes]:
        return self._get(self._actor.lookup.remote(list(ids)))

    def record(self, answers: Sequence[Answer]) -> dict[LineId, bytes]:
        return self._get(self._actor.record.remote(list(answers)))

    def _get(self, reference: object) -> dict[LineId, bytes]:
        ray = import_ray()
        try:
            return cast("dict[LineId, bytes]", ray.get(reference))
        except ray.exceptions.RayTaskError as error:
            cause: BaseException = error.cause
            reason = cause.strerror if isinstance(cause, OSError) else cause
            raise AskError(f"cannot write {self.path}: {reason}") from None
        except ray.exceptions.RayError as error:
            raise AskError(f"the journal {self.path} cannot be reached: {first_line(error)}") from None


def start_journal(path: str, *, retry_failed: bool) -> RayJournal:
    """Start the actor of a journal on this node. Raises `AskError` if its files cannot be used."""
    actor = start_here(AnswerActor, KEEPER_OPTIONS, path, retry_failed)
    ray = import_ray()
    try:
        failure = str(ray.get(actor.failure.remote(), timeout=START_SECONDS + LOCK_SECONDS))
    except ray.exceptions.RayError as error:
        raise AskError(f"the journal {path} cannot be opened: {first_line(error)}") from None
    if failure:
        raise AskError(failure)
    return RayJournal(path, actor)


def start_here(of: type, options: Mapping[str, object], *arguments: object) -> Any:
    """Start an actor of a class on this node. Connect to Ray if the program has not. Raises `AskError`."""
    ray = _ray()
    if not ray.is_initialized():
        ray.init()
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    here = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(**options, scheduling_strategy=here)(of).remote(*arguments)


def compute_strategy(actors: int, calls: int) -> Any:
    """Return Ray Data's strategy for so many actors with so many calls at a time each. Raises `AskError`."""
    _ray()
    try:
        data: Any = importlib.import_module("ray.data")
    except ImportError as error:
        raise AskError(f"Ray Data is not installed ({error}): pip install '.[ray]' in manystream's checkout") from None
    return data.ActorPoolStrategy(
        size=actors,
        max_concurrent_calls_per_actor=calls,
        max_tasks_in_flight_per_actor=calls,
        enable_true_multi_threading=True,
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip() or type(error).__name__).partition("\n")[0]


def _ray() -> Any:
    try:
        return import_ray()
    except ClusterError as error:
        raise AskError(str(error)) from None
