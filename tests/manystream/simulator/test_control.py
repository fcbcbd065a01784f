"""The simulator's own pages: its limits, which they change, and what they refuse."""

from __future__ import annotations

import json

import pytest

from manystream.simulator import Limit
from manystream.simulator.program import Ending
from manystream.simulator.service import ServiceSettings
from tests.manystream.simulator.test_service import chat, page, status

from .in_process import World, head_and_body
from .raw_client import body_of, path_of

CHAT = "/v1/chat/completions"


def test_an_unknown_page_names_the_pages() -> None:
    program = World().ask("/sim/other", method="GET")
    lines, body = head_and_body(program)
    assert lines == ["HTTP/1.1 404 Not Found", "content-type: application/json", "content-length: 116"]
    pages = ", ".join(f"/sim/{name}" for name in ("requests", "statistics", "batches", "caches", "limits"))
    assert body == f'{{"error":"no page /sim/other; the pages are {pages}"}}'


def test_a_page_of_a_client_that_closes_closes() -> None:
    assert World().ask("/sim/limits", method="GET", keep=False).ending is Ending.CLOSE


NOTHING_CHARGED = {"requests": 0.0, "input_tokens": 0.0, "output_tokens": 0.0, "tokens": 0.0}


def test_the_page_of_limits_shows_and_changes_them() -> None:
    world = World(ServiceSettings(limits=(Limit(requests_per_minute=2), Limit(key="none", concurrent=1))))
    for _ in range(3):
        world.ask(CHAT, {**chat(), "max_tokens": 7}, directive="events=5")
    first = {
        "limit": "requests-per-minute=2", "accepted": 2, "refused": 1, "refused_by": {"requests": 1},
        "charged": {"requests": 2.0, "input_tokens": 4.0, "output_tokens": 14.0, "tokens": 14.0},
    }  # fmt: skip
    second = {
        "limit": "key=none concurrent=1", "accepted": 0, "refused": 0, "refused_by": {}, "charged": NOTHING_CHARGED
    }  # fmt: skip
    assert page(world, "/sim/limits") == [first, second]
    changed = page(world, "/sim/limits", ["requests-per-minute=4"], method="PUT")
    assert changed == [{**first, "limit": "requests-per-minute=4.0"}]
    assert page(world, "/sim/limits", [], method="PUT") == []


def test_a_daily_limit_that_is_added_ends_at_midnight_too() -> None:
    world = World(ServiceSettings(limits=(Limit(server="gemini", requests_per_minute=9),)))
    path, body = path_of("gemini"), body_of("gemini")
    assert status(world.ask(path, body)) == 200
    page(world, "/sim/limits", ["server=gemini requests-per-day=2"], method="PUT")
    assert [status(world.ask(path, body)) for _ in range(3)] == [200, 200, 429]
    midnight = 35_200.0  # the clock starts at 14:13:20 Pacific time
    world.now = midnight - 1
    assert status(world.ask(path, body)) == 429
    world.now = midnight
    assert status(world.ask(path, body)) == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"a": 1}, "limits: the body must be a JSON array of limits, each as text"),
        (["requests-per-minute=x"], "limit: requests_per_minute='x': requests_per_minute is a number"),
        ([1], "limit: '1' is not a limit; write name=value, with a name of: key, model, server, requests_per_second,"
              " requests_per_minute, requests_per_day, tokens_per_minute, tokens_per_day, input_tokens_per_minute,"
              " output_tokens_per_minute, concurrent, bucket, by_second"),
    ],
)  # fmt: skip
def test_limits_that_cannot_be_read_change_nothing(body: object, message: str) -> None:
    world = World(ServiceSettings(limits=(Limit(requests_per_minute=2),)))
    lines, text = head_and_body(world.ask("/sim/limits", body, method="PUT"))
    assert lines[0] == "HTTP/1.1 400 Bad Request"
    assert json.loads(text) == {"error": message}
    assert world.service.limiter.limits == [Limit(requests_per_minute=2)]
