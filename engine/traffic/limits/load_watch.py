"""Asks an inference server how many calls run and wait there, while calls wait for its limiter."""

from __future__ import annotations

import math
from collections.abc import Callable

from ....providers.errors import InvalidRequestError
from ....providers.limits.server_load import ServerLoad, read_load
from ....providers.model.provider_error import ErrorCategory, ProviderError
from ....providers.wire.quirks import LoadReport
from ...call.plain_request import Fetch
from ...call.runtime import Runtime
from ...call.timeouts import Clocks
from ...request.noting import NoteLogger
from ...request.prepared import Prepared
from .host import is_lost

logger: NoteLogger = NoteLogger("manystream.traffic")

EVERY = 0.25
"""The least seconds between two questions."""

PART_OF_ANSWER = 1 / 20
"""Where answers are long, the time between two questions is this part of their length."""

LONGEST = 5.0
"""The longest time between two questions in seconds."""

AGAIN_AFTER = 60.0
"""Seconds after which a server that did not say how many calls wait is asked again."""

LOST_AFTER = 1.0
"""Seconds after which a server is asked again that took no connection, or failed to answer for the first time."""

LARGEST = 1 << 20
"""The most bytes of an answer: vLLM's has 50 KB."""

TOO_LONG = f"its answer has more than {LARGEST} bytes"
CLOCKS = Clocks(connect=2.0, first_byte=5.0, idle=2.0, total=5.0, queue=2.0)


class LoadWatch:
    """The questions to one server.

    name: the limiter's, for the log.
    ways: how the server reports its queue; the first one that it answers is used.
    prepare: returns the request for one of them. Raises `InvalidRequestError`.
    on_load: called with the answer, or None if there was none in any way, and with the seconds that it took.
    """

    def __init__(
        self,
        name: str,
        ways: tuple[LoadReport, ...],
        runtime: Runtime,
        prepare: Callable[[LoadReport], Prepared],
        on_load: Callable[[ServerLoad | None, float], None],
    ) -> None:
        self._name = name
        self._ways = ways
        self._runtime = runtime
        self._prepare = prepare
        self._on_load = on_load
        self._way = 0
        self._asked: Fetch | None = None  # the request under way
        self._asked_at = -math.inf
        self._pause = EVERY
        self._body = bytearray()
        self._next_at = -math.inf
        self._is_known = False  # it answered the last time

    def ask(self, answer_seconds: float, now: float) -> float:
        """Ask if it is time. Return when to ask again; `math.inf` while the server is being asked.

        answer_seconds: how long its answers to calls take; 0 if that is not known.
        """
        if self._asked is None and now >= self._next_at:
            self._pause = min(LONGEST, max(EVERY, PART_OF_ANSWER * answer_seconds))
            self._body.clear()
            self._asked_at = now
            try:
                prepared = self._prepare(self._ways[self._way])
            except InvalidRequestError:
                self._next_at = now + AGAIN_AFTER  # its calls have the same error
            else:
                self._asked = Fetch(prepared, self._runtime, CLOCKS, self._answered, self._take)
        return self._next_at if self._asked is None else math.inf

    def _take(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > LARGEST and self._asked is not None:
            self._asked.error = ProviderError(TOO_LONG, category=ErrorCategory.SERVER)
            self._answered()

    def _answered(self) -> None:
        fetched, self._asked = self._asked, None
        if fetched is None:
            return
        fetched.request.attempt.abort()  # which ends its timeouts
        error, now = fetched.error, self._runtime.loop.clock()
        load = None if error is not None else read_load(self._ways[self._way], bytes(self._body))
        self._next_at = now + self._pause
        if load is None:
            if self._is_known or (error is not None and is_lost(error)):
                self._next_at, self._is_known = now + LOST_AFTER, False
                return
            self._way = (self._way + 1) % len(self._ways)
            if self._way == 0:
                self._next_at = now + AGAIN_AFTER
                why = "its answer has no such figures" if error is None else error.message
                logger.info("%s: the server does not say how many calls wait there: %s", self._name, why)
            else:
                self._next_at = now
        self._is_known = load is not None
        self._on_load(load, now - self._asked_at)
