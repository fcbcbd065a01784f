"""The recorded requests and the statistics of the simulator: what they count, and that they have no keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream.simulator import Simulator
from manystream.simulator.service import ServiceSettings
from tests.manystream.simulator.test_request_checks import send
from tests.manystream.simulator.test_service import page

from .in_process import World
from .raw_client import DIALECTS, HEADERS, body_of, connected, get, path_of, request_bytes, statistics


def test_the_journal_has_the_last_requests_without_keys(simulator: Simulator) -> None:
    for dialect in DIALECTS:
        send(simulator, request_bytes(path_of(dialect), body_of(dialect, "Remember me."), directive="events=1"))
    shown = get(simulator, "/sim/requests", method="DELETE")
    assert isinstance(shown, list)
    assert [entry["path"] for entry in shown] == [path_of(dialect) for dialect in DIALECTS]
    for dialect, entry in zip(DIALECTS, shown, strict=True):
        assert entry["method"] == "POST"
        assert entry["body"] == body_of(dialect, "Remember me.")
        assert entry["headers"]["x-simulate"] == "events=1"
        assert entry["headers"]["authorization"] == entry["headers"]["x-api-key"] == "[redacted]"
    assert HEADERS["x-api-key"] not in json.dumps(shown)
    assert get(simulator, "/sim/requests") == []


def test_statistics_count_answers_refusals_and_events(simulator: Simulator) -> None:
    send(simulator, request_bytes(path_of("openai-chat"), body_of("openai-chat", stream=True)))
    send(simulator, request_bytes(path_of("openai-chat"), body_of("openai-chat")))
    send(simulator, request_bytes(path_of("openai-chat"), {}))
    counts = statistics(simulator)
    assert (counts["started"], counts["completed"], counts["aborted"], counts["refused"]) == (2, 2, 0, 1)
    assert (counts["events"], counts["live"]) == (11, 0)


@pytest.mark.parametrize("events", [8, 100_000], ids=["at once", "in several parts"])
def test_statistics_count_the_bytes_that_were_sent(simulator: Simulator, events: int) -> None:
    before = statistics(simulator)["bytes_sent"]
    with connected(simulator) as line:
        headers = HEADERS | {"connection": "close"}
        request = request_bytes(
            path_of("anthropic"), body_of("anthropic"), headers=headers, directive=f"events={events}"
        )
        line.send(request)
        while line.more():
            pass
    after = statistics(simulator)["bytes_sent"]
    page = len(send(simulator, request_bytes("/sim/statistics", method="GET")).body)
    sent = after - before
    assert len(line.received) < sent < len(line.received) + page + 200, "the answer, and one page of statistics"


def test_the_journal_shows_requests_without_their_keys() -> None:
    world = World(ServiceSettings(journal=3))
    headers = {
        "Authorization": "Bearer s", "authorization": "Bearer s", "proxy-authorization": "s", "x-api-key": "s",
        "api-key": "s", "x-goog-api-key": "s", "cookie": "s", "x-other": "seen",
    }  # fmt: skip
    world.ask("/first", {"a": 1}, headers=headers)
    world.ask("/second?key=secret&b=1&key=secret", b"\xffnot JSON", headers={})
    world.ask("/third?monkey=1&x=2", method="GET", headers={})
    hidden = "[redacted]"
    expected: list[Any] = [
        {
            "method": "POST",
            "path": "/first",
            "headers": {
                "Authorization": "Bearer s", "authorization": hidden, "proxy-authorization": hidden,
                "x-api-key": hidden, "api-key": hidden, "x-goog-api-key": hidden, "cookie": hidden, "x-other": "seen",
            },
            "body": {"a": 1},
        },
        {
            "method": "POST",
            "path": "/second?key=[redacted]&b=1&key=[redacted]",
            "headers": {},
            "body": "\ufffdnot JSON",
        },
        {"method": "GET", "path": "/third?monkey=1&x=2", "headers": {}, "body": None},
    ]  # fmt: skip
    assert page(world, "/sim/requests") == expected
    world.ask("/fourth", headers={})
    assert page(world, "/sim/requests", method="DELETE") == [
        *expected[1:],
        {"method": "POST", "path": "/fourth", "headers": {}, "body": None},
    ]
    assert page(world, "/sim/requests") == []
