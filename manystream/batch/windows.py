"""The calls of a batch in a window of OpenAI's Responses, where an answer that may take hours costs less.

They are durable calls: as soon as the server has named an answer, its resume token is in the file of submissions. The
next run reads such an answer, and does not pay for another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import trio

from ..engine.call.callbacks import OnCompletion
from ..engine.call.completion import AttemptRecord, Completion
from ..engine.call.handle import Call
from ..engine.frontends.engine import Engine
from ..engine.request.durable import read_token
from ..engine.traffic.admission import OK
from ..providers.model.options import Durable
from ..providers.model.provider_error import ErrorCategory, ProviderError
from ..providers.openai.batches import WINDOWS
from .lines import Item, LineId
from .planner import UnderWay
from .prices import dollars
from .submissions import Submissions

WINDOW = "window"

WINDOW_WAYS = {f"{WINDOW}-{window.name}": window for window in WINDOWS}
"""Way → its window."""

FORGOTTEN = (404, 410)
"""Statuses with which a server says that it has no such answer."""


class WindowCalls:
    """The calls in windows of one run."""

    def __init__(
        self, engine: Engine, submissions: Submissions, changed: Callable[[], None], fail: Callable[[str], None]
    ) -> None:
        """Create it without any call.

        changed: called when `sync` is due, and when a call could not be started.
        fail: ends the batch with a reason.
        """
        self._engine = engine
        self._starter = engine._calls.starter  # pyright: ignore[reportPrivateUsage]
        self._submissions = submissions
        self._changed = changed
        self._fail = fail
        self._since: dict[str, dict[LineId, float]] = {}  # way → line → when its answer was begun, on trio's clock
        self._unsynced = False

    def __bool__(self) -> bool:
        return any(self._since.values())

    def under_way(self) -> list[UnderWay]:
        """Return what the planner has to know: the calls of each way."""
        return [UnderWay(way, way, len(since), min(since.values())) for way, since in self._since.items() if since]

    def start(self, item: Item, way: str, on_completion: OnCompletion) -> Call:
        """Start the call of a line; or read its answer, if an earlier run has created it. Raises as the engine does."""
        item.request = replace(item.request, durable=Durable(WINDOW_WAYS[way].name))
        answer = self._submissions.windows.get(item.id)
        since = self._since.setdefault(way, {})
        since[item.id] = trio.current_time() - (0.0 if answer is None else max(0.0, time.time() - answer.at))
        try:
            if answer is not None:
                calls = self._engine._calls  # pyright: ignore[reportPrivateUsage]
                return calls.attach(answer.token, None, on_completion, None, item.request)
            call = self._engine.start_request(item.request, on_completion)
        except BaseException:
            since.pop(item.id, None)
            self._changed()
            raise
        durable = call._running._prepared.durable  # pyright: ignore[reportPrivateUsage]
        if durable is not None:
            durable.on_named = partial(self._named, item.id, way)
        return call

    def _named(self, id: LineId, way: str, token: str) -> None:
        try:
            self._submissions.note(token, "named", line=id, way=way, at=time.time())
        except OSError as error:
            self._fail(f"cannot write {self._submissions.path}: {error.strerror}")
        self._unsynced = True
        self._changed()

    def sync(self) -> None:
        """Wait until all tokens are on the disk: once for all that came since the last time. Raises `OSError`."""
        if self._unsynced:
            self._unsynced = False
            self._submissions.sync()

    def ended(self, item: Item, completion: Completion, way: str) -> float:
        """Take the end of a call. Returns the seconds since its answer was begun.

        A completion of an answer that an earlier run has created gets what that run would have known of it.
        """
        seconds = trio.current_time() - self._since[way].pop(item.id)
        answer = self._submissions.windows.get(item.id)
        if answer is not None and answer.earlier:
            token = read_token(answer.token)
            if self._starter.traffic is not None:
                target, outcome = f"{token.provider}/{token.model}", OK if completion.success else "error"
                completion.attempt_records = (AttemptRecord(target, 0.0, seconds, outcome),)
            completion.timings.finished = seconds
            provider = self._starter.provider_named(token.provider)
            completion.cost = dollars(self._starter, provider, token.model, completion, WINDOW_WAYS[way].price)
        return seconds

    def is_lost(self, item: Item, error: ProviderError | None) -> bool:
        """Return whether an answer that an earlier run has created failed, or is not at the server any more."""
        answer = self._submissions.windows.get(item.id)
        return answer is not None and answer.earlier and error is not None and has_ended(error)


def has_ended(error: ProviderError | None) -> bool:
    """Return whether the server makes the answer no more. Without an error it is complete."""
    if error is None or error.http_status in FORGOTTEN:
        return True
    cut = error.category in (ErrorCategory.NETWORK, ErrorCategory.TIMEOUT)
    return 200 <= error.http_status < 300 and not cut
