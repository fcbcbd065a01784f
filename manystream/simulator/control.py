"""The simulator's own pages below `/sim/`: requests, statistics, batches, caches, and limits, which they can change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..http_server import HTTPRequest
from .batches import JobStore
from .journal import Journal, Statistics
from .json_text import dumps, loads
from .knobs import KnobError
from .limit import read_limit
from .limiter import Limiter
from .program import Program, complete
from .prompt_caches import PromptCaches

PAGES = ("/sim/requests", "/sim/statistics", "/sim/batches", "/sim/caches", "/sim/limits")


@dataclass(eq=False, repr=False)
class ControlPages:
    """Answers requests for the pages. clock, wall: the time in seconds, monotonic and Unix."""

    _journal: Journal
    _statistics: Statistics
    _limiter: Limiter
    _jobs: JobStore
    _caches: PromptCaches | None
    _clock: Callable[[], float]
    _wall: Callable[[], float]

    def answer(self, request: HTTPRequest) -> Program:
        status, body = self._page(request)
        return complete(status, [("content-type", "application/json")], body, keep=request.keep_alive)

    def _page(self, request: HTTPRequest) -> tuple[int, bytes]:
        if request.path == "/sim/statistics":
            return 200, self._statistics.body()
        if request.path == "/sim/requests":
            body = self._journal.body()
            if request.method == "DELETE":
                self._journal.clear()
            return 200, body
        if request.path == "/sim/batches":
            return 200, self._jobs.page()
        if request.path == "/sim/caches":
            return 200, dumps({} if self._caches is None else self._caches.counts)
        if request.path == "/sim/limits":
            if request.method == "PUT":
                try:
                    self._change_limits(request.body)
                except ValueError as error:
                    return 400, dumps({"error": str(error)})
            return 200, self._limits()
        return 404, dumps({"error": f"no page {request.path}; the pages are {', '.join(PAGES)}"})

    def _change_limits(self, body: bytes) -> None:
        """Replace the limits by those of a JSON array of texts. Raises `ValueError`."""
        texts = loads(body)
        if not isinstance(texts, list):
            raise KnobError("limits: the body must be a JSON array of limits, each as text")
        limits = [read_limit(text if isinstance(text, str) else dumps(text).decode()) for text in texts]
        self._limiter.change(limits, self._clock(), self._wall())

    def _limits(self) -> bytes:
        return dumps(
            [
                {
                    "limit": limit.text,
                    "accepted": counts.accepted,
                    "refused": counts.refused,
                    "refused_by": counts.refused_by,
                    "charged": counts.charged,
                }
                for limit, counts in self._limiter.counts()
            ]
        )
