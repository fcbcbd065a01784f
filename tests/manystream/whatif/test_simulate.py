"""What would have happened: predictions are compared with runs against the product's simulator, in simulated time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

import manystream as ms
from manystream import whatif
from manystream.cli import main
from manystream.simulator import open_simulator_thread
from tests.manystream.whatif.day import Day, Work, price, works

CALLS = 120


def traffic(**more: Any) -> ms.Traffic:
    return ms.Traffic(price=price, **more)


def limited(requests: float | None = None, **more: Any) -> ms.Traffic:
    return traffic(rates={"openai": ms.RateLimit(requests_per_minute=requests, **more)})


def route(balance: Any, **more: Any) -> ms.Traffic:
    return traffic(routes=[ms.Route("chat", ["openai/gpt-5", "openai-1/gpt-5"], balance=balance)], **more)


def every(count: int, made: list[Work], **change: Any) -> list[Work]:
    """Return the works, with every so many one changed."""
    return [replace(work, **change) if place % count == 0 else work for place, work in enumerate(made)]


RATE = {"openai": ["requests-per-minute=200 bucket=1"]}
PLAIN = works(CALLS, 5.0)
TWO = Day(
    PLAIN, {"openai": ["requests-per-minute=150 bucket=1"], "openai-1": ["requests-per-minute=90 bucket=2"]},
    model="chat", hosts=("openai", "openai-1"),
)  # fmt: skip
SESSIONS = [
    replace(work, session=f"s{place % 20}", gap=0.5 if place >= 20 else 0.0)
    for place, work in enumerate(works(CALLS, 20.0))
]
SCENARIOS: dict[str, tuple[Day, ms.Traffic, ms.Traffic]] = {
    "a limit is declared": (Day(PLAIN, RATE), traffic(), limited(150)),
    "a limit is learned": (Day(PLAIN, RATE), limited(120), traffic()),
    "tokens are limited": (
        Day(PLAIN, {"openai": ["tokens-per-minute=150000 bucket=5"]}), limited(tokens_per_minute=80_000), traffic()
    ),
    "tenants share": (Day(every(3, works(CALLS, 5.0, tenant="a"), tenant="b"), RATE), traffic(), limited(130)),
    "priorities": (
        Day(every(3, works(CALLS, 5.0, priority="batch"), priority="interactive"), RATE), traffic(), limited(130)
    ),
    "a route in order": (TWO, route("weighted"), route("order")),
    "a route to the fastest": (TWO, route("weighted"), route("fastest")),
    "calls at a time": (Day(PLAIN), traffic(), limited(concurrent=8)),
    "a server with places": (Day(PLAIN, {"openai": ["concurrent=10"]}), traffic(), limited(concurrent=6)),
    "a budget": (Day(PLAIN), traffic(), traffic(budgets=[ms.Budget(usd=0.1)])),
    "sessions": (Day(SESSIONS, RATE), traffic(), limited(120)),
    "unstreamed": (Day([replace(work, stream=False) for work in PLAIN], RATE), traffic(), limited(150)),
    "nothing is learned": (Day(PLAIN, RATE), traffic(), traffic(adaptive=False)),
    "two keys": (Day(PLAIN, {"openai": ["requests-per-minute=60 bucket=1"]}, keys=2), limited(45), traffic()),
}  # fmt: skip
"""Scenario → its calls and servers, and the options with which it is recorded and predicted."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_prediction_is_what_happens(name: str, tmp_path: Path) -> None:
    day, before, after = SCENARIOS[name]
    path = tmp_path / "day.jsonl"
    recorded = day.run(before, path)
    happens = day.run(after)
    report = whatif.run(path, traffic=after)
    assert report.valid, report.reasons
    assert report.before.refused == recorded.refused
    for share, found in ((0.5, report.latency.p50), (0.95, report.latency.p95)):
        assert found == pytest.approx(happens.percentile(share), rel=0.03, abs=0.05)
    assert report.cost == pytest.approx(happens.cost, rel=0.01)
    assert report.refused == pytest.approx(happens.refused, rel=0.1, abs=2)
    assert report.failures == dict(happens.failed)


@pytest.fixture(scope="module")
def day_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whatif") / "day.jsonl"
    tenants = every(2, works(60, 5.0, tenant="a"), tenant="b")
    Day(tenants, RATE).run(traffic(), path)
    return path


def test_the_run_as_recorded_gives_the_recording(day_file: Path) -> None:
    report = whatif.run(day_file, traffic=traffic(), as_recorded=True)
    assert report.valid
    assert report.latency == report.before.latency
    assert report.waited == pytest.approx(report.before.waited, rel=0.01)
    checked = whatif.run(day_file)
    assert (checked.valid, checked.cost) == (True, None)
    assert any("the cost is unknown" in note for note in checked.notes)


def test_a_raised_limit_raises_no_wait(day_file: Path) -> None:
    waits = [whatif.run(day_file, traffic=limited(limit)).waited for limit in (60, 90, 120, 180)]
    assert all(later <= earlier * 1.01 for earlier, later in pairwise(waits)), waits


@pytest.mark.parametrize("usd", [0.001, 0.02, 0.05])
def test_a_budget_is_never_overspent(usd: float, day_file: Path) -> None:
    report = whatif.run(day_file, traffic=traffic(budgets=[ms.Budget(usd=usd)]))
    assert (report.cost or 0.0) <= usd
    assert report.failed == report.failures["budget"] > 0


PROGRAM = """
import sys, manystream as ms
from manystream import whatif
from manystream.providers.json.json_values import dumps
def price(provider, model, usage): return usage.output_tokens * 1e-5
routes = [ms.Route("chat", ["openai/gpt-5", "openai-1/gpt-5"], balance="fastest", hedge=ms.Hedge(after=1.5))]
report = whatif.run(sys.argv[1], traffic=ms.Traffic(price=price, routes=routes), seed=3)
sys.stdout.buffer.write(dumps(report.to_json()))
"""


def test_a_report_is_the_same_in_any_process(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    TWO.run(route("weighted"), path)
    pages = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert pages[0] == pages[1]
    assert json.loads(pages[0])["schema"] == "manystream.whatif/1"


def test_groups_add_up(day_file: Path) -> None:
    report = whatif.run(day_file, traffic=limited(100))
    assert report.by_tenant.keys() == {"a", "b"}
    for groups in (report.by_tenant, report.by_target, report.by_hour):
        assert sum(each.calls for each in groups.values()) == report.calls == 60
        assert sum(each.cost or 0.0 for each in groups.values()) == pytest.approx(report.cost)
    assert report.by_target.keys() == {"openai/gpt-5"}


# --- what the recording does not show ---


def test_what_was_not_recorded_is_unknown(day_file: Path) -> None:
    routes = [ms.Route("chat", ["anthropic/claude-x"])]
    report = whatif.run(day_file, traffic=traffic(routes=routes), models={"openai/gpt-5": "chat"})
    assert not report.valid
    assert report.unknown == {"anthropic/claude-x": 60}
    assert report.reasons == ("unknown: 60 requests to anthropic/claude-x",)
    speed = whatif.Server(first_event=1.0, tokens_per_second=10.0, output_tokens=100)
    known = whatif.run(
        day_file, traffic=traffic(routes=routes), models={"openai/gpt-5": "chat"}, servers={"anthropic/*": speed}
    )
    assert known.valid
    assert known.latency.p50 == pytest.approx(11.0)


def test_what_a_program_says_of_a_server_counts(day_file: Path) -> None:
    slow = whatif.run(
        day_file, traffic=traffic(), servers={"openai/*": whatif.Server(requests_per_minute=30, bucket=1)}
    )
    fast = whatif.run(day_file, traffic=traffic(), servers={"*": whatif.Server(requests_per_minute=5_000)})
    keys = whatif.run(day_file, traffic=traffic(), keys={"openai": 4})
    assert slow.waited > whatif.run(day_file, traffic=traffic()).waited > keys.waited >= fast.waited
    with pytest.raises(ms.InvalidRequestError, match="servers: concurrent: must be a number above 0, not 0"):
        whatif.Server(concurrent=0)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def written(path: Path, changed: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in changed), "utf-8")
    return path


def test_a_limit_that_the_recording_breaks_makes_it_invalid(day_file: Path, tmp_path: Path) -> None:
    changed = lines(day_file)
    for line in changed:
        line["response"]["headers"] = [["x-ratelimit-limit-requests", "20"], ["x-ratelimit-remaining-requests", "3"]]
    report = whatif.run(written(tmp_path / "x.jsonl", changed))
    assert not report.valid
    assert report.reasons[0].startswith("refusals: ")
    assert report.to_json()["valid"] is False


@pytest.mark.parametrize("dialect", ["openai-responses", "anthropic", "gemini", "gemini-interactions"])
@pytest.mark.parametrize("stream", [True, False])
def test_every_dialect_has_a_server(stream: bool, dialect: str, day_file: Path, tmp_path: Path) -> None:
    changed = lines(day_file)
    for line in changed:
        line |= {"dialect": dialect, "provider": f"my-{dialect}", "stream": stream, "requested": f"my-{dialect}/gpt-5"}
        line["response"]["headers"] = []
    usual = traffic(rates={f"my-{dialect}": ms.RateLimit(requests_per_minute=100)})
    report = whatif.run(written(tmp_path / "x.jsonl", changed), traffic=usual)
    assert report.valid, report.reasons
    assert report.failures == {}
    assert report.cost == pytest.approx(report.before.cost)
    assert report.waited > report.before.waited


def test_list_prices_are_those_of_the_recorded_address(day_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("genai_prices")
    from manystream.cost import price as list_price

    changed = [{**line, "origin": "https://api.openai.com"} for line in lines(day_file)]
    report = whatif.run(written(tmp_path / "x.jsonl", changed), traffic=ms.Traffic(price=list_price))
    assert report.valid, report.reasons
    assert report.cost == report.before.cost
    assert (report.cost or 0) > 0


def test_failures_come_again_at_their_place(day_file: Path, tmp_path: Path) -> None:
    changed = [line for line in lines(day_file) if line["end"] == "whole" and line["response"]["status"] == 200]
    changed[0] |= {"response": {"at": 0.2, "status": 400, "headers": []}, "usage": None, "ended": 0.2}
    changed[1] |= {"end": "broken", "usage": None}
    changed[2] |= {"end": "left", "usage": None}
    changed[3] |= {"end": "unsent", "request": None, "response": None, "usage": None, "chunks": []}
    changed[4] |= {"end": "broken", "usage": None, "response": None, "chunks": [], "ended": 0.3}
    report = whatif.run(written(tmp_path / "x.jsonl", changed), traffic=traffic(), retry=ms.Retry(max_attempts=1))
    failures = report.before.failures
    assert failures == {"cancelled": 1, "invalid_arg": 1, "network": 2, "unsent": 1}
    assert report.failures == {"cancelled": 1, "invalid_arg": 1, "network": 2}


def test_the_first_form_is_read(day_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "content.jsonl"
    Day(works(60, 5.0), RATE).run(traffic(), path, content=True)
    members = ("started", "origin", "request", "response", "chunks", "end", "ended")
    first = [{"version": 1, **{name: line[name] for name in members}} for line in lines(path)]
    report = whatif.run(written(tmp_path / "first.jsonl", first), traffic=traffic())
    assert report.valid, report.reasons
    assert (report.calls, report.before.cost) == (len(first), None)
    assert "first form" in report.notes[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no call"),
        ("{", "line 1 is no line of a recording"),
        ("[]", "no JSON object of version 1 or 2"),
        ('{"custom_id": "a", "body": {}}', "no JSON object of version 1 or 2"),
        ('{"version": 2, "call": 1}', "provider, dialect or origin is missing"),
        ({"started": None}, "started: must be a number"),
        ({"ended": -1}, "ended: must be a number from 0 to 1e\\+06, not -1"),
        ({"asked": 1e18}, "asked: must be a number"),
        ({"bytes": "many"}, "bytes: must be a number from 0 to 1e\\+09, not 'many'"),
        ({"dialect": "telnet"}, "dialect: 'telnet' has no simulated server"),
        ({"end": "somehow"}, "end: must be one of whole, broken, left, unsent"),
        ({"usage": {"output_tokens": -3}}, "output_tokens: must be a number"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    text: str | dict[str, Any], why: str, day_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text if isinstance(text, str) else json.dumps({**lines(day_file)[0], **text}), "utf-8")
    with pytest.raises(whatif.RecordingError, match=why) as raised:
        whatif.run(path)
    assert str(path) in str(raised.value)


def test_numbers_beyond_all_bounds_are_refused(day_file: Path, tmp_path: Path) -> None:
    line = day_file.read_text("utf-8").splitlines()[0]
    for member in ("started", "ended", "asked", "bytes", "key"):
        broken = json.loads(line)
        broken[member] = "HERE"
        path = tmp_path / f"{member}.jsonl"
        path.write_text(json.dumps(broken).replace('"HERE"', "1e400"), "utf-8")
        with pytest.raises(whatif.RecordingError, match="line 1 is no line of a recording"):
            whatif.run(path)


def test_links_and_folders_are_read_or_named(day_file: Path, tmp_path: Path) -> None:
    link, loop = tmp_path / "link.jsonl", tmp_path / "loop.jsonl"
    link.symlink_to(day_file)
    loop.symlink_to(loop)
    assert whatif.run(link).valid
    for path in (loop, tmp_path, tmp_path / "missing.jsonl"):
        with pytest.raises(whatif.RecordingError, match=path.name):
            whatif.run(path)


# --- the command ---


def test_the_command_shows_before_and_after(day_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = tmp_path / "fleet.py"
    fleet.write_text(
        "import manystream as ms\n\n\ndef price(provider, model, usage):\n    return usage.output_tokens * 1e-5\n\n\n"
        'TRAFFIC = ms.Traffic(price=price, rates={"openai": ms.RateLimit(requests_per_minute=100)})\nOTHER = 3\n'
    )
    assert main(["whatif", str(day_file), "--as-recorded"]) == 0
    assert capsys.readouterr().out.startswith("VALID\n")
    page = tmp_path / "report.html"
    asked = ["whatif", str(day_file), "--traffic", f"{fleet}:TRAFFIC", "--compare", "--html", str(page)]
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("VALID\n")
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("all ")] == [
        ["all", "calls"], ["all", "before"], ["all", "after"]
    ]  # fmt: skip
    text = page.read_text("utf-8")
    assert text.count("<svg") == 1
    page.unlink()
    assert main(asked) == 0
    assert page.read_text("utf-8") == text
    assert main(asked) == 2  # the page exists
    capsys.readouterr()
    assert main(["whatif", str(day_file), "--traffic", f"{fleet}:TRAFFIC", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        ([], 2, "give --traffic"),
        (["--traffic", "fleet.py"], 2, "write FILE.py:NAME"),
        (["--traffic", "missing.py:T"], 2, "cannot run missing.py"),
        (
            ["--as-recorded", "--server", "openai/* speed=3"],
            2,
            "--server takes PROVIDER/MODEL and NAME=VALUE pairs of requests-per-minute",
        ),
        (["--as-recorded", "--server", "openai/* concurrent=x"], 2, "--server takes"),
        (["--as-recorded", "--keys", "openai"], 2, "--keys takes NAME=VALUE"),
        (["--as-recorded", "--keys", "openai=0"], 2, "a number from 1 to 1000, not 'openai=0'"),
    ],
)
def test_a_wrong_command_line_is_named(
    words: list[str], status: int, why: str, day_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(day_file), *words]) == status
    assert why in capsys.readouterr().err


def test_an_invalid_report_has_its_own_status(
    day_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = lines(day_file)
    for line in changed:
        line["response"]["headers"] = [["x-ratelimit-limit-requests", "20"]]
    path = written(tmp_path / "x.jsonl", changed)
    assert main(["whatif", str(path), "--as-recorded"]) == 3
    assert capsys.readouterr().out.startswith("INVALID: refusals: ")
    assert main(["whatif", str(tmp_path / "none.jsonl"), "--as-recorded"]) == 1
    assert "No such file" in capsys.readouterr().err


# --- in real time ---


async def live_day(made: Sequence[Work], options: ms.Traffic, path: Path | None = None) -> list[float]:
    """Make the calls of a day in real time, and return their latencies."""
    latencies: list[float] = []

    async def one(engine: ms.Engine, number: int, work: Work) -> None:
        await trio.sleep(work.at)
        knobs = f"events={work.events},delay={work.delay:.4f},rate={work.rate:.3f}"
        prompt = f"{number} " + "x" * work.characters
        request = ms.Request("openai/gpt-5", prompt, max_output_tokens=200, extra_headers={"x-simulate": knobs})
        completion = await engine.start_stream(request).wait()
        assert completion.success
        latencies.append(completion.timings.finished or 0.0)

    with open_simulator_thread(limits=["requests-per-minute=100 bucket=1"]) as simulator:
        provider = ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="openai")
        async with ms.open_engine([provider], traffic=options) as engine:
            with engine.record(path, content=False) if path else nullcontext():
                async with trio.open_nursery() as nursery:
                    for number, work in enumerate(made):
                        nursery.start_soon(one, engine, number, work)
    return sorted(latencies)


@pytest.mark.soak
@pytest.mark.parametrize(("before", "after"), [(80.0, 50.0), (50.0, 80.0), (60.0, None)])
def test_a_prediction_is_what_happens_in_real_time(before: float, after: float | None, tmp_path: Path) -> None:
    made, path = works(60, 3.0), tmp_path / "day.jsonl"
    change = traffic() if after is None else limited(after)
    trio.run(live_day, made, limited(before), path)
    happens = trio.run(live_day, made, change)
    report = whatif.run(path, traffic=change)
    assert report.valid, report.reasons
    for share, found in ((0.5, report.latency.p50), (0.95, report.latency.p95)):
        assert found == pytest.approx(happens[int(len(happens) * share)], rel=0.03, abs=0.05)
