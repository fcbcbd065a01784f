"""The load source in lockstep: it sends once on every stream when it is told to. Standard library only."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from ..source.load import EVENTS_PER_SEND, FORMS, load_path


class Steps:
    """A load of some streams for a number of steps.

    base_url: the base URL of a chat provider with this load.
    streams: concurrent streams.
    count: the number of steps.
    events: events of one stream in one step.
    """

    def __init__(self, url: str, streams: str, count: str, form: str = "plain") -> None:
        self.streams, self.count = int(streams), int(count)
        self.events = EVENTS_PER_SEND.get(form, 1)
        # More events than steps, so that no stream ends.
        load = load_path(mode="step", events=(self.count + 2) * self.events, **FORMS[form])
        self.base_url = f"{url}{load}/v1"
        address = urlsplit(url)
        self._control = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)

    def step(self) -> None:
        """Let the source send once on every stream. Returns after it has."""
        self._control.request("GET", "/step")
        self._control.getresponse().read()
