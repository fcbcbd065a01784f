"""How many small unstreamed answers does one core receive, over kept-alive connections?"""

from __future__ import annotations

from .answers import Answer
from .clients import AIOHTTP, CURL, OPENAI, OURS, Client
from .runs import Run, RunError, measure

AT_A_TIME = 50
REQUESTS: dict[Client, int] = {OPENAI: 2000, AIOHTTP: 10_000, CURL: 20_000, OURS: 10_000}
FACTOR = 5.0


def answer(run: Run) -> Answer:
    """Measure requests per second of the client's CPU, 50 at a time."""
    result = Answer("Unstreamed requests, small answers, keep-alive")
    found: dict[Client, float] = {}
    for client, requests in REQUESTS.items():
        count = requests // 10 if run.quick else requests
        measured = measure(run, client, streams=AT_A_TIME, events=count, mode="answer")
        if measured.result["streams_completed"] != count:
            raise RunError(f"{client.label} lost answers: {measured.result['failures']}")
        found[client] = count / measured.result["cpu_seconds"]
    for client, rate in found.items():
        ours = client is OURS
        ratio = rate / found[OPENAI]
        result.add(
            client.label,
            rate,
            "requests/s of CPU",
            ratio=ratio,
            against=OPENAI.label,
            target=f"≥ {FACTOR:g} × openai SDK" if ours else "",
            met=ratio >= FACTOR if ours else None,
        )
    return result
