"""Batches with a deadline or a fixed way, against a server with OpenAI's batch interface, in simulated time.

One file because all tests run a batch against the same simulated server and clock.
"""

import json
import math
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import manystream as ms
from manystream.batch import Batch, BatchBudget, BatchError, Journal, JournalError, read_lines
from manystream.batch.journal import submissions_path
from manystream.batch.submissions import Submissions
from manystream.cost import Cost, Unpriced
from manystream.simulator import open_simulator_thread
from tests.support.batches import line, records, write
from tests.support.peers import Line, answer, open_peer

HOUR = 3600.0

Clock = trio.testing.MockClock
Refuse = Callable[[str, str, bytes], tuple[int, bytes] | None]


def chat(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "model": "m-1", "choices": [choice], "usage": usage}


def asked(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


@dataclass
class Server:
    """OpenAI's files, batches and chat, with the faults of a test.

    queue: seconds that a batch takes. progress: whether its lines are answered one by one until then.
    late: seconds until a batch is in the list.
    stop: seconds that a cancellation takes.
    refuse: called with method, path and body before each request; its (status, body) is the answer. Status 0: it is
        done, and the answer is lost. Status 1: the body is all that is sent.
    result: called with a line of a batch; returns the line of the result, or None for one without.
    """

    queue: float = 600.0
    progress: bool = False
    late: float = 0.0
    stop: float = 60.0
    refuse: Refuse = lambda *_: None
    result: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)
    paid: list[str] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    profile: str | None = None

    async def script(self, line: Line) -> None:
        while request := await line.request():
            head, _, body = request.partition(b"\r\n\r\n")
            method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
            path = path.removeprefix("/v1")
            self.requests.append((method, path))
            refused = self.refuse(method, path, body)
            if refused is not None and refused[0] == 0:
                self.respond(method, path, body)  # it is done, and the answer is lost
                line.reset()
                return
            if refused is not None and refused[0] == 1:
                await line.send(refused[1])
                continue
            status, reply = refused or (200, self.respond(method, path, body))
            await line.send(answer(reply, status=f"{status} X"))

    def respond(self, method: str, path: str, body: bytes) -> bytes:
        if path == "/chat/completions":
            text = asked(json.loads(body))
            self.live.append(text)
            self.paid.append(text)
            return json.dumps(chat(text.upper())).encode()
        if (method, path) == ("POST", "/files"):
            name = re.search(rb'filename="([^"]+)"', body)
            content = body.split(b"application/jsonl\r\n\r\n")[1].split(b"\r\n--")[0]
            id = f"file-{len(self.names)}"
            assert name is not None
            self.files[id], self.names[id] = content, name[1].decode()
            return json.dumps({"id": id}).encode()
        if path.startswith("/files?"):
            return json.dumps({"data": [{"id": id, "filename": self.names[id]} for id in self.files]}).encode()
        if path.endswith("/content"):
            return self.files[path.split("/")[2]]
        if method == "DELETE":
            del self.files[path.split("/")[2]]
            return b"{}"
        if (method, path) == ("POST", "/batches"):
            given = json.loads(body)
            id = f"batch-{len(self.batches)}"
            lines = [json.loads(text) for text in self.files[given["input_file_id"]].splitlines() if text.strip()]
            self.batches[id] = {**given, "id": id, "since": trio.current_time(), "lines": lines, "end": math.inf}
            return json.dumps(self.shown(id)).encode()
        if path.startswith("/batches?"):
            after = re.search("after=([^&]+)", path)
            now = trio.current_time()
            ids = [id for id in reversed(self.batches) if now - self.batches[id]["since"] >= self.late]
            ids = ids[ids.index(after[1]) + 1 :] if after else ids
            shown = [self.shown(id) for id in ids[:2]]  # short pages
            return json.dumps(
                {"data": shown, "has_more": len(ids) > 2, "last_id": shown[-1]["id"] if shown else None}
            ).encode()
        id = path.split("/")[2]
        if path.endswith("/cancel"):
            self.batches[id]["cancelled"] = min(self.batches[id].get("cancelled", math.inf), trio.current_time())
        return json.dumps(self.shown(id)).encode()

    def shown(self, id: str) -> dict[str, Any]:
        batch, now = self.batches[id], trio.current_time()
        cancelled = batch.get("cancelled", math.inf)
        until = min(now, cancelled) - batch["since"]
        total = len(batch["lines"])
        done = total if until >= self.queue else int(total * until / self.queue) if self.progress else 0
        status = "completed" if done == total else "in_progress"
        if cancelled < batch["since"] + self.queue:
            status = "cancelled" if now >= cancelled + self.stop else "cancelling"
        if status in ("completed", "cancelled") and "output_file_id" not in batch:
            results = [self.result_of(line) for line in batch["lines"][:done]]
            text = [json.dumps(result) for result in results if result is not None]
            batch["output_file_id"] = None
            if text:
                batch["output_file_id"] = f"file-out-{id}"
                self.files[f"file-out-{id}"] = "\n".join(reversed(text)).encode()
        return {
            "id": id, "status": batch.get("status", status), "metadata": batch["metadata"],
            "created_at": batch.get("created_at"), "errors": batch.get("errors"), "error_file_id": None,
            "output_file_id": batch.get("output_file_id"),
            "request_counts": {"total": total, "completed": done, "failed": 0},
        }  # fmt: skip

    def result_of(self, line: dict[str, Any]) -> dict[str, Any] | None:
        found = self.result(line) if self.result is not None else None
        if found is not None:
            return found or None
        text = asked(line["body"])
        self.paid.append(text)
        response = {"status_code": 200, "request_id": "r", "body": chat(text.upper())}
        return {"custom_id": line["custom_id"], "response": response, "error": None}


@asynccontextmanager
async def engine_of(server: Server) -> AsyncGenerator[ms.Engine, None]:
    async with open_peer(server.script) as peer:
        provider: ms.Provider = ms.OpenAIChat("sk-canary-secret", peer.url, name="sim", profile=server.profile)
        if isinstance(server, Windows):
            provider = ms.OpenAIResponses("sk-canary-secret", peer.url, name="sim", profile="openai")
        async with ms.open_engine([provider], retry=ms.Retry(max_attempts=3)) as engine:
            yield engine


async def run(server: Server, tmp_path: Path, count: int = 5, by: float | None = 6 * HOUR, **options: Any) -> Batch:
    """Run a batch of so many lines with a deadline, in seconds from now."""
    prompts = write(tmp_path / "p.jsonl", [line(f"q{n}", f"text {n}") for n in range(count)])
    async with engine_of(server) as engine:
        with Journal(tmp_path / "a.jsonl") as journal:
            batch = Batch(
                engine,
                journal,
                lambda named: "sim/m",
                provider="sim",
                by=None if by is None else time.time() + by,
                **options,
            )
            await batch.run(read_lines(prompts))
    return batch


def texts(tmp_path: Path) -> dict[object, object]:
    found = records(tmp_path / "a.jsonl")
    assert len({record["id"] for record in found}) == len(found)
    return {record["id"]: record["text"] for record in found}


def expected(count: int = 5) -> dict[str, str]:
    return {f"q{n}": f"TEXT {n}" for n in range(count)}


async def test_lines_in_a_batch_have_the_answers_of_the_live_way(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server()
    batch = await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert not server.live
    assert batch.counters.missed == 0
    assert batch.counters.ways["batch"].lines == 5
    assert batch.counters.ways["batch"].output_tokens == 10
    figures = batch.counters.ways["batch"]
    assert (figures.list_price, figures.paid, figures.saved) == (None, None, None), "no price was given"
    assert not [id for id in server.files if "out" not in id]  # the uploaded file is deleted
    taken = records(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").unlink()
    await run(server, tmp_path, via="live")
    live = {record["id"]: record for record in records(tmp_path / "a.jsonl")}
    for record in taken:
        for name in ("seconds", "request_id"):
            del record[name], live[record["id"]][name]
        assert record == live[record["id"]]


@pytest.mark.parametrize("usd", [2.0, 0.0])
async def test_the_figures_of_a_way_have_the_prices(usd: float, tmp_path: Path, autojump_clock: Clock) -> None:
    """Those of several runs are added, and an answer without a price adds none."""
    costs: list[Cost | Unpriced] = [Unpriced("none")]
    costs += [Cost(currency, *[Decimal(0)] * 5, Decimal(usd), "m", "sim") for currency in ("EUR", "USD")]
    for count in (1, 3):
        batch = await run(Server(), tmp_path, count, via="batch", price=lambda request, response: costs.pop())
    figures = batch.counters.ways["batch"]
    assert (figures.lines, figures.list_price, figures.paid, figures.saved) == (3, usd, usd / 2, usd / 2)


def by_cache(read: float, write: float) -> Callable[[ms.Request, ms.Response], Cost]:
    """A price list of one model's cached input, in dollars a token."""

    def price(request: ms.Request, response: ms.Response) -> Cost:
        assert request.model == "sim/gpt-5.6"
        tokens = response.usage.cached_tokens or 0, response.usage.cache_write_tokens or 0
        usd = Decimal(str(read)) * tokens[0] + Decimal(str(write)) * tokens[1]
        return Cost("USD", *[Decimal(0)] * 5, usd, "m", "sim")

    return price


RULES = "Rule of the house. " * 300


@pytest.mark.parametrize(
    ("case", "sizes"),
    [
        ("time", [2, 4]),
        ("a writer that fails", [2, 4]),
        ("little time", [6]),
        ("no gain", [6]),
        ("no price", [6]),
        ("no marks", [6]),
        ("a slow writer", [2, 4]),
        ("a full queue", [2, 4]),
    ],
)
async def test_one_line_writes_a_beginning_before_the_others(
    case: str, sizes: list[int], tmp_path: Path, autojump_clock: Clock
) -> None:
    """It is a batch of its own, where a beginning is cheaper to read and there is time for two batches."""
    slow = case == "a slow writer"
    server = Server(profile="openai-chat", queue=600.0)
    refusals = [(429, b'{"error": {"message": "full", "code": "token_limit_exceeded"}}')]
    if case == "a full queue":
        server.refuse = lambda method, path, body: (
            refusals.pop() if refusals and (method, path) == ("POST", "/batches") else None
        )
    if slow:
        server.queue = 5 * HOUR
    if case == "a writer that fails":
        server.result = lambda line: {} if line["custom_id"].endswith("-0") and len(server.batches) == 1 else None
    lines = [line(f"q{n}", f"text {n}", system=RULES, cache=None if case == "no marks" else "auto") for n in range(5)]
    lines.append(line("q5", "text 5", system=f"Other {RULES}", cache=None if case == "no marks" else "auto"))
    prices = by_cache(0.0 if case == "no gain" else 0.1, 0.0 if case == "no gain" else 1.25)
    prompts = write(tmp_path / "p.jsonl", lines)
    by = time.time() + (2 if case == "little time" else 11) * HOUR
    async with engine_of(server) as engine:
        with Journal(tmp_path / "a.jsonl") as journal:
            batch = Batch(
                engine, journal, lambda named: "sim/gpt-5.6", by=by, price=None if case == "no price" else prices
            )
            await batch.run(read_lines(prompts))
    assert [len(each["lines"]) for each in server.batches.values()] == sizes
    assert texts(tmp_path) == expected(6)
    assert sorted(server.paid) == sorted(f"text {n}" for n in range(6))
    assert batch.counters.missed == 0


def of_a_tier(line: dict[str, Any]) -> dict[str, Any]:
    """Return a result that names the tier of batches, as Anthropic's do."""
    body = {**chat(asked(line["body"])), "service_tier": "batch"}
    return {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}


@pytest.mark.parametrize(("listed", "paid"), [(None, 1.0), (0.8, 0.8)], ids=["no price of batches", "its own price"])
async def test_an_answer_of_the_batch_tier_is_paid(
    listed: float | None, paid: float, tmp_path: Path, autojump_clock: Clock
) -> None:
    """A list without a price of the tier has the standard price, of which a batch's part is paid."""

    def dollars(tier: object) -> float | None:
        return listed if tier == "batch" else 2.0

    def price(request: ms.Request, response: ms.Response) -> Cost | Unpriced:
        usd = dollars(response.provider_data.get("service_tier"))
        return Unpriced("none") if usd is None else Cost("USD", *[Decimal(0)] * 5, Decimal(str(usd)), "m", "sim")

    prompts = write(tmp_path / "p.jsonl", [line("q0", "text", max_output_tokens=10)])
    async with open_peer(Server(result=of_a_tier).script) as peer:
        provider = ms.OpenAIChat("sk-canary-secret", peer.url, name="sim")
        budget = BatchBudget(
            9, lambda provider, model, usage: dollars((usage.raw or {}).get("service_tier")), [provider]
        )
        with Journal(tmp_path / "a.jsonl", budget=budget) as journal:
            traffic = ms.Traffic(budgets=[budget.for_engine()], price=budget.price)
            async with ms.open_engine([provider], traffic=traffic) as engine:
                batch = Batch(engine, journal, lambda named: "sim/m", price=price, budget=budget, via="batch")
                await batch.run(read_lines(prompts))
    (record,) = records(tmp_path / "a.jsonl")
    assert record["cost"] == {"currency": "USD", "total": paid}
    assert (record["spent_usd"], batch.counters.spent) == (paid, paid)


async def test_what_is_unanswered_goes_live_before_the_deadline(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server(queue=10 * HOUR, progress=True)
    batch = await run(server, tmp_path, 10, by=5 * HOUR)
    assert texts(tmp_path) == expected(10)
    assert 3 <= batch.counters.ways["batch"].lines <= 5  # the partial results are taken
    assert batch.counters.ways["live"].lines == 10 - batch.counters.ways["batch"].lines
    assert sorted(server.paid) == sorted(f"text {n}" for n in range(10))
    assert batch.counters.missed == 0


@pytest.mark.parametrize("by", [5.0, 30.0, 36.0, 60.0, 300.0])
async def test_lines_go_live_where_a_batch_could_not_be_left_in_time(
    by: float, tmp_path: Path, autojump_clock: Clock
) -> None:
    server = Server()
    batch = await run(server, tmp_path, by=by, concurrency=2)
    assert len(server.live) == 5
    assert not server.batches
    assert batch.counters.missed == 0


MILLISECONDS = 1e13
NO_DEADLINES: dict[str, tuple[Any, str]] = {
    "a text": ("06:00", "must be a datetime, or Unix seconds, not '06:00'"),
    "a span": (timedelta(hours=3), "must be a datetime, or Unix seconds, not datetime.timedelta"),
    "a flag": (True, "must be a datetime, or Unix seconds, not True"),
    "no number": (math.nan, "must be a datetime, or Unix seconds, not nan"),
    "without an end": (math.inf, "must be a datetime, or Unix seconds, not inf"),
    "milliseconds": (MILLISECONDS, "must be a datetime, or Unix seconds, not 1"),
    "past": (1.0, "has passed: 1970-01-01"),
    "a local time that is past": (datetime(2026, 1, 2, 3), "has passed: 2026-01-02 03:00:00"),
    "a past time of a zone": (datetime(2026, 1, 2, 3, tzinfo=UTC), "has passed: 202"),
}


@pytest.mark.parametrize("case", NO_DEADLINES)
async def test_a_deadline_that_is_none_is_refused(case: str, tmp_path: Path) -> None:
    by, reason = NO_DEADLINES[case]
    with pytest.raises(ms.InvalidRequestError, match=re.escape(f"by: {reason}")):
        Batch(None, Journal(tmp_path / "a.jsonl"), lambda named: "sim/m", by=by)  # type: ignore[arg-type]


async def test_a_deadline_that_is_missed_is_reported(tmp_path: Path, autojump_clock: Clock) -> None:
    batch = await run(Server(queue=2 * HOUR), tmp_path, by=HOUR, via="batch")
    assert texts(tmp_path) == expected()
    assert HOUR <= batch.counters.missed < HOUR + 120


FAULTS: dict[str, Callable[[], Server]] = {
    "a server without a batch interface": lambda: Server(
        refuse=lambda method, path, body: (404, b"{}") if path in ("/files", "/batches") else None
    ),
    "a key that may not make batches": lambda: Server(
        refuse=lambda method, path, body: (403, b'{"error":{"message":"no"}}') if path == "/batches" else None
    ),
    "a batch that is refused for all its lines": lambda: Server(
        refuse=lambda method, path, body: (400, b'{"error":{"message":"no"}}') if path == "/batches" else None
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_lines_that_no_batch_takes_go_live(fault: str, tmp_path: Path, autojump_clock: Clock) -> None:
    server = FAULTS[fault]()
    batch = await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.live) == 5
    assert batch.counters.notes
    assert "canary" not in str(batch.counters.notes)


def first_times(count: int, status: int, path: str, method: str = "POST") -> Refuse:
    """Refuse the first requests of a path."""
    left = [count]

    def refuse(seen: str, where: str, body: bytes) -> tuple[int, bytes] | None:
        if where.startswith(path) and seen == method and left[0]:
            left[0] -= 1
            return status, b'{"error":{"message":"later"}}'
        return None

    return refuse


@pytest.mark.parametrize(
    ("status", "path", "method"),
    [
        (500, "/files", "POST"),
        (429, "/batches", "POST"),
        (503, "/batches", "POST"),
        (0, "/batches", "POST"),  # it was created, and the answer was lost
        (0, "/files", "POST"),
        (500, "/batches/", "GET"),
        (502, "/files/", "GET"),
        (0, "/files/", "GET"),
        (404, "/files/", "GET"),
        (500, "/files/", "DELETE"),
    ],
)
async def test_a_fault_that_passes_costs_nothing(
    status: int, path: str, method: str, tmp_path: Path, autojump_clock: Clock
) -> None:
    server = Server(refuse=first_times(2, status, path, method))
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.batches) == 1
    assert sorted(server.paid) == sorted(f"text {n}" for n in range(5))


BAD_ANSWERS: dict[str, tuple[int, bytes]] = {
    "no HTTP": (1, b"<html>proxy</html>\r\n\r\n"),
    "a TLS alert": (1, b"\x15\x03\x01\x00\x02\x02\x28"),
    "a broken head": (1, b"HTTP/1.1 200 OK\r\nno header\r\n\r\n{}"),
    "no content": (1, b"HTTP/1.1 204 No Content\r\n\r\n"),
    "a redirect": (1, answer(b"", status="302 Found", headers="Location: http://127.0.0.1:1/login\r\n")),
    "an empty body": (200, b""),
    "a page": (200, b"<html>maintenance</html>"),
    "half of an object": (200, b'{"id": "batch-0", "sta'),
    "an array": (200, b"[]"),
    "an empty object": (200, b"{}"),
    "an error with a status of success": (200, b'{"error":{"message":"oops"}}'),
    "a key that is unknown": (401, b""),
    "a firewall": (403, b"<html>"),
    "a method that is unknown": (405, b""),
    "a conflict": (409, b""),
    "a used-up quota": (429, b'{"error":{"message":"no","code":"insufficient_quota"}}'),
    "a server that cannot do it": (501, b""),
}
"""Answers that no provider gives to the requests of a batch, but a proxy before it, or one of its servers."""

KINDS_OF_REQUESTS = {
    "upload": ("POST", "/files"), "creation": ("POST", "/batches"), "list": ("GET", "/batches?"),
    "state": ("GET", "/batches/"), "results": ("GET", "/files/"), "deletion": ("DELETE", "/files/"),
    "cancellation": ("POST", "/batches/batch-0/cancel"),
}  # fmt: skip
"""Name → the method, and the beginning of the path."""


def first_of(bad: tuple[int, bytes], *kinds: str, times: float = 1) -> Refuse:
    """Give a bad answer to the first requests of each kind."""
    left = dict.fromkeys(kinds, times)

    def refuse(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        for kind, count in left.items():
            wanted, begin = KINDS_OF_REQUESTS[kind]
            length = None if kind in ("upload", "creation") else len(begin)
            if count and (method, path[:length]) == (wanted, begin):
                left[kind] -= 1
                return bad
        return None

    return refuse


@pytest.mark.parametrize("bad", BAD_ANSWERS)
async def test_one_bad_answer_to_each_request_costs_nothing(bad: str, tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server(refuse=first_of(BAD_ANSWERS[bad], "upload", "creation", "list", "state", "results", "deletion"))
    await run(server, tmp_path, by=None, via="batch")
    assert texts(tmp_path) == expected()
    assert len(server.batches) == 1
    assert sorted(server.paid) == [f"text {n}" for n in range(5)]


@pytest.mark.parametrize("bad", ["no HTTP", "a page", "a key that is unknown", "a conflict"])
async def test_one_bad_answer_to_a_cancellation_misses_no_deadline(
    bad: str, tmp_path: Path, autojump_clock: Clock
) -> None:
    server = Server(queue=10 * HOUR, refuse=first_of(BAD_ANSWERS[bad], "cancellation"))
    batch = await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert batch.counters.missed == 0


@pytest.mark.parametrize(("bad", "kind", "error"), [
    ("no HTTP", "state", "the response is not HTTP/1.1"),
    ("a key that is unknown", "state", "HTTP 401"),
    ("an empty object", "state", "'{}' is no batch"),
    ("a redirect", "results", "redirects are not followed"),
    ("a page", "results", "what is sent as its results has none"),
    ("a key that is unknown", "results", "HTTP 401"),
])  # fmt: skip
async def test_a_bad_answer_that_stays_ends_the_run_and_loses_nothing(
    bad: str, kind: str, error: str, tmp_path: Path, autojump_clock: Clock
) -> None:
    server = Server(refuse=first_of(BAD_ANSWERS[bad], kind, times=math.inf))
    with pytest.RaisesGroup(pytest.RaisesExc(BatchError, match=error), flatten_subgroups=True):
        await run(server, tmp_path)
    assert trio.current_time() < 800
    server.refuse = lambda *_: None
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert sorted(server.paid) == [f"text {n}" for n in range(5)]


LISTS: dict[str, tuple[int, bytes, str]] = {
    "a key that may not list": (403, b'{"error":{"message":"no lists"}}', "cannot be listed: no lists"),
    "no list": (200, b'{"object": "list"}', "is no list of batches"),
    "pages in a circle": (200, b'{"data": [], "has_more": true, "last_id": "b"}', "the list of batches does not end"),
}
"""An answer to each request for the list of batches → the end of the run."""


@pytest.mark.parametrize("kind", LISTS)
async def test_a_batch_that_may_exist_is_not_made_again(kind: str, tmp_path: Path, autojump_clock: Clock) -> None:
    """The answer to its creation is lost. Once the list can be read, the next run finds it."""
    status, body, error = LISTS[kind]
    lost, listed = first_of((0, b""), "creation"), first_of((status, body), "list", times=math.inf)
    server = Server(refuse=lambda *request: lost(*request) or listed(*request))
    with pytest.RaisesGroup(pytest.RaisesExc(BatchError, match=error), flatten_subgroups=True):
        await run(server, tmp_path)
    server.refuse = lambda *_: None
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.batches) == 1
    assert not server.live


@pytest.mark.parametrize("late", [0.0, 2.0, 8.0, 30.0, 60.0])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_batch_that_is_listed_late_is_not_made_again(
    is_killed: bool, late: float, tmp_path: Path, autojump_clock: Clock
) -> None:
    """The answer to its creation is lost; or its run was killed before."""
    server = Server(late=late, refuse=first_of((0, b""), "creation"))
    if is_killed:
        await killed(server, tmp_path, lambda: bool(server.batches))
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.batches) == 1
    assert sorted(server.paid) == [f"text {n}" for n in range(5)]
    looks = [path for method, path in server.requests if path.startswith("/batches?")]
    assert 1 <= len(looks) <= 7 + is_killed, "the pauses grow"


async def test_an_upload_whose_answer_is_lost_leaves_no_file(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server(refuse=first_of((0, b""), "upload"))
    await run(server, tmp_path)
    assert len(server.names) == 1
    assert not [id for id in server.files if "out" not in id]


@pytest.mark.parametrize("status", [400, 409])
async def test_a_fixed_way_is_kept_where_a_batch_is_refused(status: int, tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server(refuse=first_of((status, b'{"error":{"message":"no such model"}}'), "creation", times=math.inf))
    await run(server, tmp_path, by=None, via="batch")
    assert not server.live
    assert not texts(tmp_path)
    failed = records(tmp_path / "a.errors.jsonl")
    assert len(failed) == 5
    assert "no such model" in str(failed[0]["error"])


@pytest.mark.parametrize(("bad", "error"), [("a used-up quota", "no"), ("no HTTP", "not HTTP/1.1")])
async def test_a_fixed_way_that_stays_closed_ends_the_run(
    bad: str, error: str, tmp_path: Path, autojump_clock: Clock
) -> None:
    server = Server(refuse=first_of(BAD_ANSWERS[bad], "creation", times=math.inf))
    message = f"takes no batch of 'm'.*{error}"
    with pytest.RaisesGroup(pytest.RaisesExc(BatchError, match=message), flatten_subgroups=True):
        await run(server, tmp_path, by=None, via="batch")
    assert not server.live
    assert 600 < trio.current_time() < HOUR


async def test_answers_that_a_state_does_not_name_yet_are_waited_for(tmp_path: Path, autojump_clock: Clock) -> None:
    """The batch is completed, and its file is there a moment later."""
    server, left = Server(), [2]

    def without_file(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        shown = server.shown("batch-0") if path == "/batches/batch-0" else {"output_file_id": None}
        if not shown["output_file_id"] or not left[0]:
            return None
        left[0] -= 1
        return 200, json.dumps(shown | {"output_file_id": None}).encode()

    server.refuse = without_file
    await run(server, tmp_path)
    assert left == [0]
    assert texts(tmp_path) == expected()
    assert len(server.paid) == 5


async def test_results_without_any_answer_fail_their_lines(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server(refuse=first_of((200, b""), "results", times=math.inf))
    await run(server, tmp_path)
    assert not server.live
    failed = records(tmp_path / "a.errors.jsonl")
    assert "they have none of its 5 answers" in str(failed[0]["error"])


async def test_a_result_whose_generation_broke_is_no_answer(tmp_path: Path, autojump_clock: Clock) -> None:
    def broken(line: dict[str, Any]) -> dict[str, Any] | None:
        if asked(line["body"]) != "text 2":
            return None
        body = chat("half")
        body["choices"][0]["finish_reason"] = "error"
        return {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}

    server = Server(result=broken)
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert server.live == ["text 2"]


async def test_answers_that_break_in_each_batch_are_paid(tmp_path: Path, autojump_clock: Clock) -> None:
    """The last one is the failure of its line, with its reason and its text. A line that is too late is none."""

    def broken(line: dict[str, Any]) -> dict[str, Any]:
        body = chat("half")
        body["choices"][0]["finish_reason"] = "error"
        return {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}

    prompts = write(tmp_path / "p.jsonl", [line("q0", "text", max_output_tokens=10)])
    server = Server(result=broken)
    async with open_peer(server.script) as peer:
        provider = ms.OpenAIChat("sk-canary-secret", peer.url, name="sim")
        budget = BatchBudget(9, lambda provider, model, usage: (usage.output_tokens or 0) / 10, [provider])
        with Journal(tmp_path / "a.jsonl", budget=budget) as journal:
            traffic = ms.Traffic(budgets=[budget.for_engine()], price=budget.price)
            async with ms.open_engine([provider], traffic=traffic) as engine:
                batch = Batch(engine, journal, lambda named: "sim/m", budget=budget, via="batch")
                await batch.run(read_lines(prompts))
                used = engine.statistics().traffic
    failure, rest = records(tmp_path / "a.errors.jsonl")
    assert (failure["text"], failure["spent_usd"], rest["unrecorded_usd"]) == ("half", 0.1, 0.2)
    assert failure["error"]["message"].startswith("the generation of the answer broke")
    assert (len(server.batches), batch.counters.spent) == (3, pytest.approx(0.3))
    assert used is not None
    assert [each.spent.usd for each in used.budgets] == [pytest.approx(0.3)]


async def test_a_result_that_is_checked_in_vain_was_paid(tmp_path: Path, autojump_clock: Clock) -> None:
    """An answer that does not fit its schema is a failure, as in the live way, with its text and its cost."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    prompts = write(tmp_path / "p.jsonl", [line("q0", '{"b": 1}', response_schema=schema, max_output_tokens=10)])
    server = Server()
    async with open_peer(server.script) as peer:
        provider = ms.OpenAIChat("sk-canary-secret", peer.url, name="sim")
        budget = BatchBudget(9, lambda provider, model, usage: (usage.output_tokens or 0) / 10, [provider])
        with Journal(tmp_path / "a.jsonl", budget=budget) as journal:
            traffic = ms.Traffic(budgets=[budget.for_engine()], price=budget.price)
            async with ms.open_engine([provider], traffic=traffic) as engine:
                batch = Batch(engine, journal, lambda named: "sim/m", budget=budget, via="batch")
                await batch.run(read_lines(prompts))
    (failure,) = records(tmp_path / "a.errors.jsonl")
    assert (failure["text"], failure["spent_usd"], batch.counters.spent) == ('{"B": 1}', 0.1, 0.1)
    assert (batch.counters.input_tokens, batch.counters.output_tokens) == (3, 2)
    assert server.paid == ['{"b": 1}']


async def test_results_of_other_lines_and_second_ones_are_passed_over(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server()

    def with_others(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        if not path.endswith("/content"):
            return None
        found = server.files[path.split("/")[2]].splitlines()
        key = json.loads(found[0])["custom_id"].partition("-")[0]
        answer = found[0].replace(b"TEXT", b"SECOND")
        ids = [key, f"{key}-5", f"{key}-00000000000", f"{key}--1", "other-0", "", 7]
        others = [json.dumps(json.loads(answer) | {"custom_id": id}).encode() for id in ids]
        return 200, b"\r\n".join([b"", *others, *found, answer, b"{}", b"null"])

    server.refuse = with_others
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.paid) == 5


async def test_a_result_that_is_cut_once_is_read_again(tmp_path: Path, autojump_clock: Clock) -> None:
    server, left = Server(), [1]

    def cut(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        left[0] -= path.endswith("/content")
        return (200, server.files[path.split("/")[2]][:-100]) if path.endswith("/content") and not left[0] else None

    server.refuse = cut
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.paid) == 5


RESULTS: dict[str, tuple[dict[str, Any], int, int]] = {
    "expired": ({"response": None, "error": {"code": "batch_expired"}}, 1, 0),
    "a server error": ({"response": {"status_code": 500, "body": {"error": {}}}}, 1, 0),
    "an answer without content": ({"response": {"status_code": 200, "body": {}}}, 1, 0),
    "no line": ({}, 1, 0),
    "a bad request": ({"response": {"status_code": 400, "body": {"error": {"message": "bad"}}}}, 0, 1),
}
"""Result of one line → how many lines go live, and how many fail."""


@pytest.mark.parametrize("kind", RESULTS)
async def test_a_line_without_an_answer_goes_live_or_has_its_reason(
    kind: str, tmp_path: Path, autojump_clock: Clock
) -> None:
    result, live, failed = RESULTS[kind]

    def result_of(line: dict[str, Any]) -> dict[str, Any] | None:
        if asked(line["body"]) != "text 1":
            return None
        return {"custom_id": line["custom_id"], **result} if result else {}

    server = Server(result=result_of)
    await run(server, tmp_path)
    assert (len(server.live), len(texts(tmp_path))) == (live, 5 - failed)
    errors = tmp_path / "a.errors.jsonl"
    assert [record["id"] for record in (records(errors) if errors.exists() else [])] == ["q1"] * failed


REFUSED_RESULTS: dict[str, tuple[int, dict[str, str]]] = {
    "a key that is unknown": (401, {"message": "bad key"}),
    "a used-up quota": (429, {"message": "spent", "code": "insufficient_quota"}),
}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("kind", REFUSED_RESULTS)
async def test_a_refusal_in_the_results_is_of_its_line_in_any_order(
    kind: str, is_first: bool, tmp_path: Path, autojump_clock: Clock
) -> None:
    """Other lines of the same batch were answered, so neither the key nor the quota ends the run."""
    status, error = REFUSED_RESULTS[kind]

    def result_of(line: dict[str, Any]) -> dict[str, Any] | None:
        number = int(asked(line["body"]).split()[1])
        if (number < 4) is is_first:  # the file of results has the last line first
            return None
        response = {"status_code": status, "request_id": "r", "body": {"error": error}}
        return {"custom_id": line["custom_id"], "response": response, "error": None}

    answered = 4 if is_first else 12
    batch = await run(Server(result=result_of), tmp_path, 16)
    assert (batch.counters.answered, batch.counters.failed) == (answered, 16 - answered)
    assert len(records(tmp_path / "a.errors.jsonl")) == 16 - answered


@pytest.mark.parametrize("kept", [0.5, 0.9])
async def test_a_result_that_cannot_be_read_is_not_paid_for_twice(
    kept: float, tmp_path: Path, autojump_clock: Clock
) -> None:
    """The line of the result is cut in its middle or before its end. The other lines are read."""
    server = Server()

    def break_one(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        if not path.endswith("/content"):
            return None
        lines = server.files[path.split("/")[2]].split(b"\n")
        assert [b"TEXT 1" in text for text in lines].count(True) == 1
        return 200, b"\n".join(text[: int(len(text) * kept)] if b"TEXT 1" in text else text for text in lines)

    server.refuse = break_one
    await run(server, tmp_path)
    assert sorted(server.paid) == [f"text {n}" for n in range(5)]
    assert texts(tmp_path).keys() == expected().keys() - {"q1"}
    (failed,) = records(tmp_path / "a.errors.jsonl")
    assert failed["id"] == "q1"
    assert "malformed" in str(failed["error"])


async def test_a_batch_that_fails_for_a_line_is_made_again_without_it(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server()

    def fail_first(method: str, path: str, body: bytes) -> None:
        if path == "/batches/batch-0" and "errors" not in server.batches["batch-0"]:
            errors = {"data": [{"code": "invalid", "message": "bad line", "line": 2}]}
            server.batches["batch-0"] |= {"status": "failed", "errors": errors, "output_file_id": None}

    server.refuse = fail_first
    batch = await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert server.live == ["text 1"]
    assert len(server.batches) == 2
    assert len(server.batches["batch-1"]["lines"]) == 4
    assert "bad line" in batch.counters.notes[0]


async def test_more_lines_than_a_batch_takes_become_several(
    tmp_path: Path, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manystream.batch.ways.MOST_BYTES", 600)
    server = Server()
    await run(server, tmp_path, 20)
    assert texts(tmp_path) == expected(20)
    assert len(server.batches) > 3
    assert not server.live


async def test_as_many_batches_are_under_way_as_the_queue_allows(
    tmp_path: Path, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manystream.batch.ways.MOST_BYTES", 600)
    server, most = Server(), [0]

    def refuse(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        waiting = sum(server.shown(id)["status"] == "in_progress" for id in server.batches)
        most[0] = max(most[0], waiting)
        return (
            (429, b'{"error":{"code":"rate_limit_exceeded"}}')
            if (method, path) == ("POST", "/batches") and waiting >= 2
            else None
        )

    server.refuse = refuse
    await run(server, tmp_path, 20)
    assert texts(tmp_path) == expected(20)
    assert not server.live
    assert most == [2]


async def killed(server: Server, tmp_path: Path, when: Callable[[], bool], **options: Any) -> None:
    """Run a batch until a condition holds, then stop it as Ctrl-C does."""
    prompts = write(tmp_path / "p.jsonl", [line(f"q{n}", f"text {n}") for n in range(5)])
    async with engine_of(server) as engine, trio.open_nursery() as nursery:
        with Journal(tmp_path / "a.jsonl") as journal:
            batch = Batch(engine, journal, lambda named: "sim/m", provider="sim", by=time.time() + 6 * HOUR, **options)

            async def stop() -> None:
                while not when():
                    await trio.sleep(0.5)
                batch.stop()

            nursery.start_soon(stop)
            await batch.run(read_lines(prompts))
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("state", ["created", "halfway"])
async def test_the_next_run_takes_the_answers_of_a_batch_that_goes_on(
    state: str, tmp_path: Path, autojump_clock: Clock
) -> None:
    server = Server()
    await killed(server, tmp_path, lambda: bool(server.batches) and (state == "created" or trio.current_time() > 300))
    assert "POST /batches/batch-0/cancel" not in [f"{method} {path}" for method, path in server.requests]
    submissions = Submissions.peek(submissions_path(tmp_path / "a.jsonl"))
    assert [submission.lines for submission in submissions.open.values()] == [5]
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.batches) == 1
    assert not server.live


async def test_a_run_without_a_way_does_not_send_what_is_in_a_batch(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server()
    await killed(server, tmp_path, lambda: bool(server.batches))
    with pytest.RaisesGroup(pytest.RaisesExc(BatchError, match="5 lines are in batches"), flatten_subgroups=True):
        await run(server, tmp_path, by=None)
    assert not server.live


STEPS = {"intended": (0, 0, 0), "uploaded": (1, 0, 0), "sent, not arrived": (1, 1, 0), "sent, arrived": (1, 1, 1)}
"""How far a run came before it was killed → uploaded, noted as sent, created."""


@pytest.mark.parametrize("step", STEPS)
async def test_nothing_is_submitted_twice_wherever_a_run_was_killed(
    step: str, tmp_path: Path, autojump_clock: Clock
) -> None:
    uploaded, sent, created = STEPS[step]
    server = Server()
    await killed(server, tmp_path, lambda: bool(server.batches))
    path = submissions_path(tmp_path / "a.jsonl")
    kept = 1 + uploaded + sent
    path.write_text("".join(f"{text}\n" for text in path.read_text().splitlines()[:kept]))
    if not created:
        server.batches.clear()
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.batches) == 1
    assert sorted(server.paid) == sorted(f"text {n}" for n in range(5))
    assert not [id for id in server.files if "out" not in id]


@pytest.mark.parametrize("hours", [-40, 40])
async def test_a_batch_is_found_although_the_clock_was_wrong(
    hours: float, tmp_path: Path, autojump_clock: Clock
) -> None:
    server = Server()
    await killed(server, tmp_path, lambda: bool(server.batches))
    server.batches["batch-0"]["created_at"] = int(time.time())
    path = submissions_path(tmp_path / "a.jsonl")
    steps = [json.loads(text) for text in path.read_text().splitlines()[:3]]
    write(path, [step | ({"at": step["at"] + hours * HOUR} if "at" in step else {}) for step in steps])
    began = trio.current_time()
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.batches) == 1
    assert trio.current_time() - began < HOUR


async def test_a_batch_that_is_gone_ends_the_run_and_says_what_to_do(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server()
    await killed(server, tmp_path, lambda: bool(server.batches))
    server.refuse = lambda method, path, body: (
        (404, b'{"error":{"message":"No batch."}}') if path == "/batches/batch-0" else None
    )
    await trio.sleep(120)
    for _ in range(2):
        message = r"No batch\. Use the key that made it.*if you delete .*a\.batches\.jsonl"
        with pytest.RaisesGroup(pytest.RaisesExc(BatchError, match=message), flatten_subgroups=True):
            await run(server, tmp_path, by=None, via="batch")
    (tmp_path / "a.batches.jsonl").unlink()
    await run(server, tmp_path)
    assert texts(tmp_path) == expected()
    assert len(server.batches) == 2


async def test_a_file_of_prompts_is_no_file_of_submissions(tmp_path: Path, autojump_clock: Clock) -> None:
    prompts = write(tmp_path / "a.batches.jsonl", [line("mine", "keep me"), line("mine too")])
    before, server = prompts.read_bytes(), Server()
    with pytest.RaisesGroup(pytest.RaisesExc(JournalError, match="line 1 was not written"), flatten_subgroups=True):
        await run(server, tmp_path)
    assert prompts.read_bytes() == before
    assert not server.requests


async def test_a_budget_holds_for_batches_at_their_price(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Server()
    prompts = write(tmp_path / "p.jsonl", [line(f"q{n}", f"text {n}", max_output_tokens=10) for n in range(10)])
    async with open_peer(server.script) as peer:
        provider = ms.OpenAIChat("sk-canary-secret", peer.url, name="sim")
        # A line reserves 1.00 live and 0.50 in a batch, and costs 0.20 and 0.10.
        budget = BatchBudget(1.2, lambda provider, model, usage: (usage.output_tokens or 0) / 10, [provider])
        with Journal(tmp_path / "a.jsonl", budget=budget) as journal:
            traffic = ms.Traffic(budgets=[budget.for_engine()], price=budget.price)
            async with ms.open_engine([provider], traffic=traffic) as engine:
                batch = Batch(engine, journal, lambda named: "sim/m", budget=budget, via="batch")
                await batch.run(read_lines(prompts))
    sizes = [len(each["lines"]) for each in server.batches.values()]
    assert sizes[:2] == [2, 2]
    assert batch.counters.spent == pytest.approx(0.1 * len(server.paid))
    assert batch.counters.spent <= 1.2
    assert len(texts(tmp_path)) + batch.counters.unpaid == 10
    assert len(server.paid) >= 8


ANSWER_HOURS = 0.2


@dataclass
class Windows(Server):
    """OpenAI's Responses with windows.

    hours: of each answer, by its prompt; `ANSWER_HOURS` for the others.
    ended: id of an answer → the status in which it has ended without an output.
    is_deaf: whether cancellations are ignored: the program that sends them was killed before.
    """

    hours: dict[str, float] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    is_deaf: bool = False
    windows: list[str] = field(default_factory=list)
    since: dict[str, tuple[float, str]] = field(default_factory=dict)

    def respond(self, method: str, path: str, body: bytes) -> bytes:
        if path == "/responses":
            given = json.loads(body)
            text = given["input"] if isinstance(given["input"], str) else given["input"][-1]["content"]
            text = text if isinstance(text, str) else text[0]["text"]
            self.windows.append(given.get("background_options", {}).get("completion_window", "none"))
            id = f"resp_{len(self.since)}"
            self.since[id] = trio.current_time(), text
            return json.dumps(self.answer(id, now="none" in self.windows[-1])).encode()
        if path.startswith("/responses/"):
            id = path.split("/")[2].partition("?")[0]
            if path.endswith("/cancel") and not self.is_deaf:
                self.ended[id] = "cancelled"
            return json.dumps(self.answer(id, now=False)).encode()
        return super().respond(method, path, body)

    def answer(self, id: str, *, now: bool) -> dict[str, Any]:
        since, text = self.since[id]
        done = now or trio.current_time() - since >= HOUR * self.hours.get(text, ANSWER_HOURS)
        content = [{"type": "output_text", "text": text.upper(), "annotations": []}]
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
        if id in self.ended:
            return {"id": id, "object": "response", "status": self.ended[id], "model": "m", "output": []}
        return {
            "id": id, "object": "response", "status": "completed" if done else "queued", "model": "m",
            "output": [message] if done else [],
            "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5} if done else None,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("by", "via", "windows"),
    [(20 * HOUR, "window", {"8h"}), (3 * HOUR, "window", {"2h"}), (None, "window", {"8h"}), (6 * HOUR, None, {"2h"})],
)
async def test_lines_go_into_a_window_of_the_responses(
    by: float | None, via: str | None, windows: set[str], tmp_path: Path, autojump_clock: Clock
) -> None:
    server = Windows(queue=math.inf, stop=60.0)
    batch = await run(server, tmp_path, by=by, via=via)
    assert texts(tmp_path) == expected()
    assert set(server.windows) == windows
    assert batch.counters.ways[f"window-{min(windows)}"].lines == 5
    assert batch.counters.missed == 0


@pytest.mark.parametrize(("by", "calls"), [(None, 6), (6 * HOUR, 2), (4.5 * HOUR, 2)])
async def test_so_many_calls_are_in_windows_at_a_time_and_no_more(
    by: float | None, calls: int, tmp_path: Path, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manystream.batch.ways.MOST_IN_WINDOWS", 2)
    server = Windows(queue=math.inf, hours={f"text {n}": 1.0 for n in range(6)})
    batch = await run(server, tmp_path, count=6, by=by, via="window" if by is None else None)
    assert texts(tmp_path) == expected(6)
    created = zip(server.since.values(), server.windows, strict=True)
    began = sorted(since for (since, _), window in created if window != "none")
    assert len(began) == calls
    assert all(later - earlier >= HOUR for earlier, later in zip(began, began[2:], strict=False))
    assert batch.counters.missed == 0


def named(tmp_path: Path) -> int:
    """Return how many answers in windows are known to the file of submissions, and not in the journal."""
    path = submissions_path(tmp_path / "a.jsonl")
    return len(Submissions.peek(path).windows) if path.exists() else 0


def forget_all(server: Windows) -> None:
    def refuse(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        forgotten = method == "GET" and path.split("/")[-1] in [f"resp_{n}" for n in range(5)]
        return (404, b'{"error":{"message":"no such response"}}') if forgotten else None

    server.refuse = refuse


def end_all(status: str) -> Callable[[Windows], None]:
    return lambda server: server.ended.update(dict.fromkeys(server.since, status))


WINDOW_KILLS: dict[str, tuple[int, int, Callable[[Windows], None], int]] = {
    "all named": (0, 5, lambda server: None, 5),
    "all named, and ended before the next run": (0, 5, lambda server: server.hours.update({"text 4": 0}), 5),
    "half answered": (2, 3, lambda server: None, 5),
    "half answered, which was not noted": (2, 5, lambda server: None, 5),
    "two were not named": (0, 3, lambda server: None, 7),
    "forgotten by the server": (0, 5, forget_all, 10),
    "failed": (0, 5, end_all("failed"), 10),
    "cancelled": (0, 5, end_all("cancelled"), 10),
}
"""How far a run came → lines that it has answered, tokens that the next run finds, what happens to the server, and how
many answers are created in both runs."""


@pytest.mark.parametrize("via", ["window", None])
@pytest.mark.parametrize("step", WINDOW_KILLS)
async def test_the_next_run_reads_what_a_killed_run_has_in_windows(
    step: str, via: str | None, tmp_path: Path, autojump_clock: Clock
) -> None:
    answered, tokens, meanwhile, created = WINDOW_KILLS[step]
    server = Windows(queue=math.inf, hours={f"text {n}": 0.1 if n < 2 else 0.15 for n in range(5)})
    answers, submissions = tmp_path / "a.jsonl", submissions_path(tmp_path / "a.jsonl")
    files: dict[Path, bytes] = {}

    def is_time() -> bool:
        if len(server.since) < 5 or named(tmp_path) != 5 - answered:
            return False
        files.update({path: path.read_bytes() for path in (answers, submissions)})
        server.is_deaf = True
        return True

    await killed(server, tmp_path, is_time, via="window")
    assert len(server.since) == 5
    steps = files[submissions].splitlines(keepends=True)
    answers.write_bytes(files[answers])
    submissions.write_bytes(b"".join(steps if answered and tokens == 3 else steps[:tokens]))
    server.is_deaf = False
    meanwhile(server)
    batch = await run(server, tmp_path, via=via)
    assert texts(tmp_path) == expected()
    assert len(server.since) == created
    assert named(tmp_path) == 0
    assert not batch.counters.failed


SOON = {f"text {n}": 0.02 for n in range(5)}


@pytest.mark.parametrize("bad", ["no HTTP", "a redirect", "a key that is unknown", "a firewall", "no such answer"])
async def test_one_bad_answer_in_a_window_costs_nothing(bad: str, tmp_path: Path, autojump_clock: Clock) -> None:
    """All answers are read through a proxy that is wrong at first."""
    left = {f"/responses/resp_{n}" for n in range(5)}

    def refuse(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        is_first = method == "GET" and path in left
        left.discard(path if method == "GET" else "")
        return BAD_ANSWERS.get(bad, (404, b"{}")) if is_first else None

    server = Windows(queue=math.inf, hours=SOON, refuse=refuse)
    batch = await run(server, tmp_path, by=None, via="window")
    assert not left
    assert texts(tmp_path) == expected()
    assert len(server.since) == 5
    assert batch.counters.ways["window-8h"].lines == 5
    assert named(tmp_path) == 0


async def test_a_key_that_is_refused_in_a_window_ends_the_run(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Windows(queue=math.inf, hours=SOON, is_deaf=True)
    server.refuse = lambda method, path, body: (401, b"") if method == "GET" else None
    with pytest.RaisesGroup(pytest.RaisesExc(BatchError, match="the key was refused"), flatten_subgroups=True):
        await run(server, tmp_path, by=None, via="window")
    server.refuse = lambda *_: None
    await run(server, tmp_path, by=None, via="window")
    assert texts(tmp_path) == expected()
    assert len(server.since) == 5


async def test_a_run_without_a_way_does_not_send_what_is_in_a_window(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Windows(is_deaf=True)
    await killed(server, tmp_path, lambda: named(tmp_path) == 5, via="window")
    with pytest.RaisesGroup(pytest.RaisesExc(BatchError, match="5 lines are in windows"), flatten_subgroups=True):
        await run(server, tmp_path, by=None)
    assert len(server.since) == 5


@pytest.mark.parametrize("via", ["live", "batch"])
async def test_another_fixed_way_takes_the_answers_in_windows(via: str, tmp_path: Path, autojump_clock: Clock) -> None:
    server = Windows(is_deaf=True)
    await killed(server, tmp_path, lambda: named(tmp_path) == 5, via="window")
    await run(server, tmp_path, by=20 * HOUR, via=via)
    assert texts(tmp_path) == expected()
    assert (len(server.since), len(server.batches)) == (5, 0)


async def test_a_finished_command_does_nothing_when_it_is_given_again(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Windows()
    for _ in range(2):
        await run(server, tmp_path, by=20 * HOUR, via="window")
    assert len(server.since) == 5


async def test_ctrl_c_cancels_windows_and_the_next_run_sends_again(tmp_path: Path, autojump_clock: Clock) -> None:
    server = Windows()
    await killed(server, tmp_path, lambda: named(tmp_path) == 5, via="window")
    assert list(server.ended.values()) == ["cancelled"] * 5
    await run(server, tmp_path, via="window")
    assert texts(tmp_path) == expected()
    assert set(server.windows) == {"2h"}
    assert named(tmp_path) == 0


async def test_an_answer_of_an_earlier_run_has_the_record_of_any_other(tmp_path: Path, autojump_clock: Clock) -> None:
    """Its schema holds, and its cost counts in the budget of the run, too, which its call reserves nothing of."""
    server = Windows(is_deaf=True)
    schema = {"type": "object", "properties": {"A": {"type": "integer"}}, "required": ["A"]}
    found: list[dict[str, Any]] = []
    spent: list[tuple[float, float]] = []
    for kill in (True, False, False):
        prompts = write(tmp_path / "p.jsonl", [line("q", '{"a": 1}', response_schema=schema, max_output_tokens=9)])
        async with open_peer(server.script) as peer:
            provider = ms.OpenAIResponses("sk-canary-secret", peer.url, name="sim", profile="openai")
            budget = BatchBudget(5.0, lambda provider, model, usage: (usage.output_tokens or 0) / 10, [provider])
            with Journal(tmp_path / "a.jsonl", budget=budget) as journal:
                traffic = ms.Traffic(budgets=[budget.for_engine()], price=budget.price)
                async with ms.open_engine([provider], traffic=traffic) as engine, trio.open_nursery() as nursery:
                    batch = Batch(engine, journal, lambda named: "sim/m", budget=budget, via="window")

                    async def stop() -> None:
                        while named(tmp_path) == 0:
                            await trio.sleep(0.5)
                        batch.stop()  # noqa: B023

                    if kill:
                        nursery.start_soon(stop)
                    await batch.run(read_lines(prompts))
                    [figures] = engine.statistics().traffic.budgets
                    spent.append((figures.spent.usd, figures.reserved.usd))
        if not kill:
            found += records(tmp_path / "a.jsonl")
            (tmp_path / "a.jsonl").unlink()
    assert len(server.since) == 2
    for record in found:
        assert float(record.pop("seconds")) >= ANSWER_HOURS * HOUR
        record.pop("request_id")
    # An answer counts at the window's price, whether this run has made its call or reads it again.
    assert spent[1:] == [(pytest.approx(0.12), 0.0)] * 2
    first, second = found
    assert first.pop("spent_usd") == pytest.approx(0.12)
    second.pop("spent_usd")
    assert first == second


INTERFACES: dict[str, Callable[[str], ms.Provider]] = {
    "openai": lambda origin: ms.OpenAIChat("sk-a", f"{origin}/v1", name="sim", profile="openai"),
    "responses": lambda origin: ms.OpenAIResponses("sk-a", f"{origin}/v1", name="sim", profile="openai"),
    "azure": lambda origin: ms.OpenAIChat("sk-a", f"{origin}/openai/v1", name="sim", profile="azure"),
    "openrouter": lambda origin: ms.OpenAIChat("sk-a", f"{origin}/api/v1", name="sim", profile="openrouter"),
    "anthropic": lambda origin: ms.Anthropic("sk-a", origin, name="sim"),
    "gemini": lambda origin: ms.Gemini("sk-a", origin, name="sim"),
}


@pytest.mark.parametrize("interface", INTERFACES)
async def test_every_interface_answers_as_the_live_way(interface: str, tmp_path: Path) -> None:
    found: dict[str, dict[object, dict[str, object]]] = {}
    with open_simulator_thread("kind=text,events=8", batch_time="0.2") as simulator:
        origin = simulator.base_urls["openai-chat"].removesuffix("/v1")
        for via in ("batch", "live"):
            answers = tmp_path / f"{via}.jsonl"
            prompts = write(tmp_path / "p.jsonl", [line(f"q{n}", f"text {n}") for n in range(7)])
            async with ms.open_engine([INTERFACES[interface](origin)]) as engine:
                with Journal(answers) as journal:
                    batch = Batch(engine, journal, lambda named: "sim/sim-text", provider="sim", via=via)  # type: ignore[arg-type]
                    await batch.run(read_lines(prompts))
            assert batch.counters.ways[via].lines == 7, batch.counters
            found[via] = {record["id"]: record for record in records(answers)}
    for id, record in found["batch"].items():
        for name in ("seconds", "request_id"):
            del record[name], found["live"][id][name]
        assert record == found["live"][id]


@pytest.mark.parametrize("is_cut", [False, True])
async def test_live_lines_do_not_wait_for_the_end_of_the_input(
    tmp_path: Path, autojump_clock: Clock, is_cut: bool
) -> None:
    server, seen = Server(), list[str]()

    async def slow() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        for n in range(3):
            yield [(n + 1, json.dumps(line(f"q{n}", f"text {n}")).encode())]
            with trio.fail_after(60):
                while len(server.live) <= n:
                    await trio.sleep(1)
            seen.append(server.live[-1])
        if is_cut:
            raise OSError("cut")

    async with engine_of(server) as engine:
        with Journal(tmp_path / "a.jsonl") as journal:
            batch = Batch(engine, journal, lambda named: "sim/m", via="live")
            with pytest.raises(OSError, match="cut") if is_cut else nullcontext():
                await batch.run(slow())
    assert seen == ["text 0", "text 1", "text 2"]
    assert texts(tmp_path) == expected(3)
