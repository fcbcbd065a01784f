"""Ray as far as the package uses it: calls of actors are noted, and end when a test says so."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest


class RayError(Exception):
    """The errors have the names and bases of Ray's."""


class RayActorError(RayError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class ActorDiedError(RayActorError):
    pass


class ObjectLostError(RayError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__("a long traceback")
        self.cause = cause


class Reference:
    """The result of a call. result: a value, or an exception to raise; None while it is not there."""

    def __init__(self, result: object = None) -> None:
        self.result = result


class FakeActor:
    """An actor. Each call is noted, and its result is `answer(method, arguments)`."""

    def __init__(self, of: type, options: dict[str, object], arguments: tuple[object, ...]) -> None:
        self.of = of
        self.options = options
        self.arguments = arguments
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        self.references: list[Reference] = []
        self.answer: Callable[[str, tuple[object, ...]], object] = lambda method, arguments: None

    def __getattr__(self, method: str) -> object:
        def remote(*arguments: object) -> Reference:
            self.calls.append((method, arguments))
            self.references.append(Reference(self.answer(method, arguments)))
            return self.references[-1]

        return SimpleNamespace(remote=remote)


class FakeRay:
    """The module `ray`.

    log: what was called beside the calls of actors, with its arguments.
    actors: the actors that were started.
    """

    exceptions = SimpleNamespace(
        RayError=RayError, RayActorError=RayActorError, ActorUnavailableError=ActorUnavailableError,
        RayTaskError=RayTaskError,
    )  # fmt: skip

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []
        self.actors: list[FakeActor] = []
        self.answer: Callable[[str, tuple[object, ...]], object] = lambda method, arguments: None
        self.alive: dict[str, bool] = {}
        self.free: dict[str, float] = {"CPU": 3.0, "memory": 1e9}
        self.total: dict[str, float] = {"CPU": 8.0, "memory": 2e9}
        self.initialized = False
        self.failure: Exception | None = None
        """what `init` and `kill` raise"""

    def remote(self, **options: object) -> Callable[[type], SimpleNamespace]:
        def start(of: type, arguments: tuple[object, ...]) -> FakeActor:
            actor = FakeActor(of, options, arguments)
            actor.answer = self.answer
            self.actors.append(actor)
            return actor

        return lambda of: SimpleNamespace(remote=lambda *arguments: start(of, arguments))

    def wait(
        self, references: Sequence[Reference], *, num_returns: int, timeout: float
    ) -> tuple[list[Reference], list[Reference]]:
        self.log.append(("wait", len(references), num_returns, timeout))
        ready = [reference for reference in references if reference.result is not None][:num_returns]
        return ready, [reference for reference in references if reference not in ready]

    def get(self, reference: Reference, *, timeout: float | None = None) -> object:
        self.log.append(("get", timeout))
        if isinstance(reference.result, Exception):
            raise reference.result
        return reference.result

    def kill(self, actor: FakeActor) -> None:
        self.log.append(("kill", actor))
        if self.failure is not None:
            raise self.failure

    def init(self, **options: object) -> None:
        self.log.append(("init", options))
        if self.failure is not None:
            raise self.failure
        self.initialized = True

    def shutdown(self) -> None:
        self.log.append(("shutdown",))

    def is_initialized(self) -> bool:
        return self.initialized

    def nodes(self) -> list[dict[str, object]]:
        return [{"NodeID": name, "Alive": alive} for name, alive in self.alive.items()]

    def available_resources(self) -> dict[str, float]:
        return self.free

    def cluster_resources(self) -> dict[str, float]:
        return self.total

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(get_node_id=lambda: "this-node")


def install(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Let `import ray` return a fake. A strategy is the dict of its arguments."""
    ray = FakeRay()

    def node_affinity(node: str, *, soft: bool) -> dict[str, object]:
        return {"node": node, "soft": soft}

    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=node_affinity)
    monkeypatch.setitem(__import__("sys").modules, "ray", ray)
    monkeypatch.setitem(__import__("sys").modules, "ray.util.scheduling_strategies", strategies)
    monkeypatch.setitem(__import__("sys").modules, "ray.data", SimpleNamespace(ActorPoolStrategy=dict))
    return ray
