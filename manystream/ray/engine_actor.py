"""An engine as an actor of Ray, for programs.

Actor = ray.remote(manystream.ray.EngineActor).options(max_concurrency=100)
actor = Actor.remote([ms.OpenAIChat()])
response = ray.get(actor.request.remote(ms.Request("gpt-5-mini", "Hello")))
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack
from typing import TypeVar, Unpack, overload

from .. import Completion, EngineOptions, Event, Portal, Provider, Request, Response
from ..engine.embedding import CONCURRENCY
from .shared_rates import SharedRates, open_sharing_thread

Key = TypeVar("Key")


class EngineActor:
    """The class for `ray.remote`. Its methods may be called from any thread, so its calls run at the same time if Ray
    allows several: `.options(max_concurrency=100)`.

    providers: the providers that requests may name. Give them their keys: the actor has the environment of its own
        machine.
    shared: limits that several actors share, from `share_rates`; None for none. They apply in addition to those of
        `traffic`.
    options: those of `manystream.open_engine`.

    Raises `InvalidRequestError`.
    """

    def __init__(
        self, providers: Sequence[Provider], *, shared: SharedRates | None = None, **options: Unpack[EngineOptions]
    ) -> None:
        self._open = ExitStack()
        engine, _ = self._open.enter_context(open_sharing_thread(providers, shared, **options))
        self._portal: Portal = engine.from_thread

    def __repr__(self) -> str:
        return f"<EngineActor {self._portal!r}>"

    def request(self, request: Request) -> Response:
        """Make an unstreamed call, and return its response. Raises `ProviderError` if the call fails."""
        return self._portal.request(request)

    def stream(self, request: Request) -> Generator[Event, None, None]:
        """Make a streamed call, and yield its events. Raises `ProviderError` if the stream fails.

        Ray yields a reference for each event: `for reference in actor.stream.remote(request): ray.get(reference)`.
        """
        with self._portal.stream(request) as events:
            for event in events:  # noqa: UP028 - Ray calls `send`, which the iterator does not have
                yield event

    @overload
    def map(
        self, requests: Iterable[Request], *, concurrency: int = CONCURRENCY, ordered: bool = False
    ) -> Generator[tuple[Request, Completion], None, None]: ...

    @overload
    def map(
        self, requests: Iterable[tuple[Key, Request]], *, concurrency: int = CONCURRENCY, ordered: bool = False
    ) -> Generator[tuple[Key, Completion], None, None]: ...

    def map(
        self,
        requests: Iterable[Request] | Iterable[tuple[Key, Request]],
        *,
        concurrency: int = CONCURRENCY,
        ordered: bool = False,
    ) -> Generator[tuple[Request | Key, Completion], None, None]:
        """Make an unstreamed call for each request, and yield (request, completion) as the calls end.

        The arguments and errors are those of `Engine.map`. Give keys where you need to know which request ended: a
        request that was sent between processes is equal to the original and not the same object.
        """
        with self._portal.map(requests, concurrency=concurrency, ordered=ordered) as results:
            for result in results:  # noqa: UP028 - as above
                yield result

    def close(self) -> None:
        """Cancel the calls that run, and close the engine."""
        self._open.close()
