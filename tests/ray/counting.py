"""A server that notes when each request arrives, and what a limit allows there."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from tests.support.peers import Line, answer, chat_answer, open_peer

LIMIT = 500
LATE = 0.02
"""A server that runs later than this cannot tell when requests have arrived."""

CALM = 0.8
"""The part of the spans in which the server must run all the time, so that the use of the limit is compared. On a busy
machine, workers stop for longer than they may save up their rate, and use less."""


class CountingServer:
    """A server that notes when each request arrives, and the times at which it did not run itself."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.stalls: list[float] = []
        self.url = ""
        self._ready = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        self._thread = threading.Thread(target=lambda: trio.run(self._run))

    @contextmanager
    def running(self) -> Iterator[CountingServer]:
        self._thread.start()
        self._ready.wait()
        try:
            yield self
        finally:
            assert self._token is not None
            self._token.run_sync_soon(self._scope.cancel)
            self._thread.join()

    def count(self) -> int:
        """Return the number of requests so far."""
        return len(self.at)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with open_peer(self._serve) as peer:
                self.url = peer.url
                self._ready.set()
                while True:
                    asked = time.monotonic()
                    await trio.sleep(0.01)
                    if time.monotonic() - asked > 0.01 + LATE:
                        self.stalls.append(time.monotonic())

    async def _serve(self, line: Line) -> None:
        while await line.request():
            self.at.append(time.monotonic())
            await trio.sleep(0.3)
            await line.send(answer(chat_answer("fine")))

    @staticmethod
    def spans(seconds: float, since: float, until: float) -> list[float]:
        """Return the beginnings of all spans of so many seconds."""
        count = int((until - since - seconds) / 0.1) + 1
        return [since + 0.1 * number for number in range(max(0, count))]

    def counts(self, seconds: float, since: float, until: float) -> list[int]:
        """Return the requests in each span of so many seconds in which the server ran all the time."""
        return [
            bisect_left(self.at, begin + seconds) - bisect_left(self.at, begin)
            for begin in self.spans(seconds, since, until)
            if bisect_left(self.stalls, begin - LATE) == bisect_left(self.stalls, begin + seconds + LATE)
        ]

    def check(self, quiet_until: float) -> None:
        """Check that `LIMIT` requests a second were never exceeded, and were used before the first fault.

        quiet_until: the time of the first fault.
        """
        first, last = self.at[0], self.at[-1]
        seconds, tens = self.counts(1.0, first, last), self.counts(10.0, first, last)
        spans, quiet = self.spans(1.0, first + 5, quiet_until), self.counts(1.0, first + 5, quiet_until)
        print(f"most in a second {max(seconds)} of {len(seconds)}, in ten {max(tens, default=0)} of {len(tens)}")
        used = sum(quiet) / max(1, len(quiet)) / LIMIT
        print(f"used without a fault: {used:.1%} in {len(quiet)} calm spans of {len(spans)}")
        assert max(seconds) <= 1.05 * LIMIT
        assert max(tens, default=0) <= 1.01 * 10 * LIMIT
        assert used >= 0.95 or len(quiet) < CALM * len(spans)
