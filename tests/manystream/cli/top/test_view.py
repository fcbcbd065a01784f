"""The views of `manystream top`: whole pages and lines for given snapshots, on every kind of screen."""

import copy
import time
from collections.abc import Iterator
from typing import Any

import pytest

from manystream.cli.top.view import View, rates_between, summary_line
from manystream.providers.json.json_values import JSON, JSONObject, mapping

QUIETEST: list[JSON] = [
    {"number": 12, "provider": "openai", "model": "m" * 33, "state": "reading", "stream": True, "age": 90.0,
        "quiet": 1.5, "attempts": 1, "request_id": "r" * 25},
    {"number": 3, "provider": "openai", "model": "m" * 32, "state": "backoff", "stream": False, "age": 2.5,
        "quiet": 0.25, "attempts": 2, "request_id": "r" * 24},
    {"number": 4, "provider": "an\x1bth", "model": "\x1b[2J", "state": "\x07x", "stream": True, "request_id": "\x1b"},
    {},
]  # fmt: skip
SNAPSHOT: JSONObject = {
    "manystream": "1.2.3",
    "pid": 4711,
    "uptime": 3725.0,
    "time": 1_700_000_000.0,
    "streams": 1200,
    "oldest": [{"number": 1, "provider": "gemini", "state": "queued", "age": 95.0, "quiet": 0.5, "attempts": 3}],
    "quietest": QUIETEST,
    "statistics": {
        "calls": {"reading": 1500, "backoff": 0, "queued": 20, "new\x1b": 3, "strange": None},
        "started": 12345,
        "completed": 11111,
        "failed": 1010,
        "retried": 2020,
        "events": 3456789,
        "opened": 1001,
        "reused": 20002,
        "loop_lag": 0.0125,
        "loop_culprit": "call \x1b7",
        "connections": {
            "https://api.example": {"active": 1000, "idle": 2, "connecting": 3, "waiting": 4000},
            "http://\x1b": {},
        },
        "providers": {
            "openai": {"running": 1503, "completed": 11000, "failures": {"server": 10, "timeout": 1000, "n\x1b": 0}},
            "\x1b": {},
        },
    },
    "rates": {"events": 12345.6, "completed": 1234.56, "bytes_received": 2_345_678, "bytes_sent": 1234,
        "providers": {"openai": {"events": 12000.4, "completed": 1000.25}}},
}  # fmt: skip
PAGE = """\
manystream 1.2.3, process 4711, up 1:02:05
calls    1,523 running, 1,200 of them streams: queued 20, reading 1,500, backoff 0, new� 3
rates    12,346 events/s, 1,234.6 calls ended/s, 2.35MB/s in, 1.23kB/s out
total    12,345 calls started, 11,111 ended, 1,010 failed, 2,020 retries; 3,456,789 events; connections 1,001 opened,\
 20,002 reused
loop lag 12.5 ms (the slowest iteration of the last second, most of it call �7)

providers
provider  running  events/s  ended/s   ended  failed  by category
openai      1,503    12,000  1,000.2  11,000   1,010  timeout 1,000, server 10, n� 0
�               0         0      0.0       0       0

connections
origin               active  idle  connecting  calls waiting
https://api.example   1,000     2           3          4,000
http://�                  0     0           0              0

calls, silent for longest first
call  provider  model                             phase                    age  silent for  attempt  request id
  12  openai    mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm…  reading              90.00 s      1.50 s        1\
  rrrrrrrrrrrrrrrrrrrrrrr…
   3  openai    mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm  backoff, unstreamed   2.50 s    250.0 ms        2\
  rrrrrrrrrrrrrrrrrrrrrrrr
   4  an�th     �[2J                              �x                      0 µs        0 µs        0  �
   0                                              , unstreamed            0 µs        0 µs        0  –\
"""
OLDEST = """\
calls, oldest first
call  provider  model  phase                   age  silent for  attempt  request id
   1  gemini           queued, unstreamed  95.00 s    500.0 ms        3  –\
"""
TRAFFIC: JSONObject = {
    "limiters": {
        "azure": {},
        "vertex/" + "m" * 26: {"waiting": 1, "running": 2, "sent": 3, "refused": 4, "held": 0.5, "spent": 2.5},
        "vertex\x1b": {
            "waiting": 1200,
            "running": 3400,
            "concurrent": 5600,
            "window": 7800,
            "unconfirmed": 9,
            "sent": 12000,
            "refused": 3400,
            "held": 1.5,
            "spent": 0,
            "reported": {
                "declared requests of \x1b": {"rate": 60, "level": 5.5, "capacity": 3600},
                "tokens": {"rate": 2500, "level": -3, "capacity": 150000},
            },
            "learned": {"requests": {"rate": 42, "level": 0.25, "capacity": 42}},
        },
    },
    "routes": {"fast": {"waiting": 3, "hedged": 1200,
        "targets": [{"target": "o" * 33, "outstanding": 7000, "sessions": 8000, "breaker": "open\x1b", "score": 1.5,
        "seconds": 0.25, "failures": 0.5}, {"score": 0}]}, "x" * 33: {"targets": [{"target": "a/b"}]}},
    "budgets": [{"per": "engine", "every": 60, "limit": {"usd": 5000, "output_tokens\x1b": None},
        "spent": {"usd": 1.25, "output_tokens\x1b": 1200}, "reserved": {"usd": 2500.5}, "waiting": 4000,
        "ends_in": 90}, {"per": "tenant", "tenant": "t" * 26, "limit": {"calls": 7}},
        {"per": "tenant", "limit": {"calls": 8}, "ends_in": 5}],
}  # fmt: skip
TRAFFIC_TABLES = """\

traffic
limiter                           waiting  running  at most      window    sent  refused  held for
azure                                   0        0        –           –       0        0         –
vertex/mmmmmmmmmmmmmmmmmmmmmmmm…        1        2        –           –       3        4    2.50 s
vertex�                             1,200    3,400    5,600  9 of 7,800  12,000    3,400    1.50 s

limits
limiter  limit          from      a second  level  capacity
vertex�  requests of �  declared        60    5.5     3,600
vertex�  tokens         reported     2,500     -3   150,000
vertex�  requests       learned         42   0.25        42

routes
route                             target                            under way  sessions  breaker   score  first event\
  failures  waiting  sent twice
fast                              ooooooooooooooooooooooooooooooo…      7,000     8,000  open�    1.50 s     250.0 ms\
       50%        3       1,200
                                                                            0         0             0 µs            –\
        0%
xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…  a/b                                       0         0                –            –\
        0%        0           0

budgets
budget                            amount          spent  reserved     limit  calls waiting  begins anew in
all calls                         usd              1.25   2,500.5     5,000          4,000            1:30
all calls                         output tokens�  1,200         0  no limit          4,000            1:30
tenant tttttttttttttttttttttttt…  calls               0         0         7              0               –
no tenant                         calls               0         0         8              0               –\
"""
NOTHING = """\
calls    0 running, 0 of them streams
rates    0 events/s, 0.0 calls ended/s, 0B/s in, 0B/s out
total    0 calls started, 0 ended, 0 failed, 0 retries; 0 events; connections 0 opened, 0 reused
loop lag 0 µs (the slowest iteration of the last second)

providers
provider  running  events/s  ended/s  ended  failed  by category

connections
origin  active  idle  connecting  calls waiting\
"""


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def page(snapshot: JSONObject, *, sort: str = "quiet", calls: int = 10) -> str:
    return "\n".join(View(snapshot, sort=sort, calls=calls).lines())


def test_the_whole_page_of_a_busy_engine() -> None:
    assert page(SNAPSHOT) == PAGE


def test_the_calls_are_listed_by_age_or_not_at_all() -> None:
    without_calls, _, _ = PAGE.partition("\n\ncalls,")
    assert page(SNAPSHOT, sort="age") == without_calls + "\n\n" + OLDEST
    assert page(SNAPSHOT, calls=0) == without_calls
    assert page(SNAPSHOT, calls=1).splitlines()[-2:] == [
        "call  provider  model                             phase        age  silent for  attempt  request id",
        "  12  openai    mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm…  reading  90.00 s      1.50 s        1"
        "  rrrrrrrrrrrrrrrrrrrrrrr…",
    ]


def test_the_whole_page_of_an_engine_with_traffic_control() -> None:
    heading, _, tables = page({"statistics": {"traffic": TRAFFIC}}, calls=0).partition("\n")
    assert heading.startswith("manystream ?, process ")
    assert heading.endswith(", up 0:00")
    assert tables == NOTHING + "\n" + TRAFFIC_TABLES


@pytest.mark.parametrize(
    ("member", "titles"), [("limiters", ["traffic", "limits"]), ("routes", ["routes"]), ("budgets", ["budgets"])]
)
def test_a_part_of_traffic_control_has_its_own_tables(member: str, titles: list[str]) -> None:
    view = View({"statistics": {"traffic": {member: TRAFFIC[member]}}}, sort="age", calls=0)
    assert [section.title for section in view.sections] == ["providers", "connections", *titles]


def test_the_line_of_a_busy_engine(utc: None) -> None:
    assert summary_line(SNAPSHOT) == (
        "22:13:20  1,523 calls (1,200 streams)  12,346 events/s  1,234.6 ended/s  1,010 failed  lag 12.5 ms"
        "  longest silence 1.50 s"
    )


def test_the_line_of_an_engine_with_traffic_control(utc: None) -> None:
    assert summary_line({"statistics": {"traffic": TRAFFIC}}) == (
        "00:00:00  0 calls (0 streams)  0 events/s  0.0 ended/s  1,201 waiting, 3,404 refused  0 failed  lag 0 µs"
    )


def test_rates_are_of_every_member_and_provider() -> None:
    before: JSONObject = {
        "uptime": 10.0, "statistics": {"events": 100, "completed": 10, "failed": 1, "bytes_received": 1000,
        "bytes_sent": 500, "providers": {"a": {"events": 60, "completed": 6}, "gone": {"events": 1}}},
    }  # fmt: skip
    after: JSONObject = {
        "uptime": 14.0, "statistics": {"events": 300, "completed": 18, "failed": 3, "bytes_received": 9000,
        "bytes_sent": 700, "providers": {"a": {"events": 100, "completed": 7}, "b": {"events": 8, "completed": 2}}},
    }  # fmt: skip
    assert rates_between(before, after) == {
        "events": 50.0, "completed": 2.0, "failed": 0.5, "bytes_received": 2000.0, "bytes_sent": 50.0,
        "providers": {"a": {"events": 10.0, "completed": 0.25}, "b": {"events": 2.0, "completed": 0.5}},
    }  # fmt: skip


def test_two_snapshots_of_one_moment_have_rates_of_a_microsecond() -> None:
    now: JSONObject = {"uptime": 5.0, "statistics": {"events": 3}}
    assert rates_between({"uptime": 5.0}, now)["events"] == pytest.approx(3e6)


def leaves(value: JSON, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if members is None:
        yield path
        return
    for name, member in members:
        yield (*path, name)
        yield from leaves(member, (*path, name))


QUEUES: JSONObject = {
    "limiters": {
        "vllm/*": {
            "running": 140,
            "concurrent": 141,
            "concurrent_by": "server_queue",
            "server_load": {"running": 128.0, "waiting": 12.0, "slots": None},
        },
        "llama/*": {"concurrent": 8, "concurrent_by": "reported", "server_load": {"running": None, "slots": 8.0}},
        "mine/*": {"concurrent": 9, "concurrent_by": "learned\x1b", "server_load": None},
    }
}
QUEUE_TABLE = """\
limits
limiter  limit                                         from          a second  level  capacity
vllm/*   running calls (the server: 128, and 12 wait)  server_queue         –      1       141
llama/*  running calls (the server has 8 places)       reported             –      8         8
mine/*   running calls                                 learned�             –      9         9
"""


def test_it_is_shown_where_the_limit_of_running_calls_comes_from() -> None:
    assert QUEUE_TABLE in page({"statistics": {"traffic": QUEUES}}, calls=0) + "\n"


STRANGE: list[JSON] = [1e300, -1e300, 10**18, 10**5000, -1, True, None, "x" * 99 + "\x1b", [], {}, [[]], {"a": {}}]


@pytest.mark.parametrize("strange", STRANGE, ids=range(len(STRANGE)))
@pytest.mark.parametrize("traffic", [TRAFFIC, QUEUES], ids=["traffic", "queues"])
def test_any_value_of_a_snapshot_is_shown(traffic: JSONObject, strange: JSON) -> None:
    everything = SNAPSHOT | {"statistics": {**mapping(SNAPSHOT, "statistics"), "traffic": traffic}}
    for path in leaves(everything):
        snapshot = copy.deepcopy(everything)
        place: Any = snapshot
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = strange
        assert "\x1b" not in page(snapshot)
        assert summary_line(snapshot)
        for sides in ((snapshot, everything), (everything, snapshot)):
            assert rates_between(*sides)
