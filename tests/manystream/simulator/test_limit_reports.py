"""How each server reports its limits, and a refusal's headers."""

from dataclasses import replace

import pytest

from manystream.simulator import Limit
from manystream.simulator.limit_reports import FORMS
from manystream.simulator.limiter import Ticket, Usage
from manystream.simulator.prompt import APIError
from manystream.simulator.refusals import REFUSALS
from manystream.simulator.server_rules import DIALECT_SERVERS, SERVERS
from tests.support.limit_world import World

USAGE = Usage(model="m", input_tokens=100, cached_tokens=0, output_tokens=50, max_tokens=400)


DIALECTS = {"anthropic": "anthropic", "gemini": "gemini", "vertex": "gemini"}


REPORTS: dict[str, dict[str, str]] = {
    "openai": {
        "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-tokens": "90000", "x-ratelimit-remaining-tokens": "66000",
        "x-ratelimit-reset-tokens": "16s", "retry-after": "1", "retry-after-ms": "1000",
    },
    "anthropic": {
        "anthropic-ratelimit-requests-limit": "60", "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2023-11-14T22:31:00Z", "anthropic-ratelimit-tokens-limit": "50000",
        "anthropic-ratelimit-tokens-remaining": "44000", "anthropic-ratelimit-tokens-reset": "2023-11-14T22:30:08Z",
        "anthropic-ratelimit-input-tokens-limit": "50000", "anthropic-ratelimit-input-tokens-remaining": "44000",
        "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:30:08Z",
        "anthropic-ratelimit-output-tokens-limit": "50000", "anthropic-ratelimit-output-tokens-remaining": "47000",
        "anthropic-ratelimit-output-tokens-reset": "2023-11-14T22:30:04Z", "retry-after": "1",
    },
    "gemini": {},
    "vertex": {},
    "azure": {
        "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0", "x-ratelimit-limit-tokens": "90000",
        "x-ratelimit-remaining-tokens": "85000", "x-ratelimit-reset-tokens": "4", "retry-after": "1",
        "retry-after-ms": "1000",
    },
    "groq": {
        "x-ratelimit-limit-tokens": "90000", "x-ratelimit-remaining-tokens": "60000",
        "x-ratelimit-reset-tokens": "20s", "retry-after": "1",
    },
    "cerebras": {
        "x-ratelimit-limit-tokens-minute": "90000", "x-ratelimit-remaining-tokens-minute": "60000",
        "x-ratelimit-reset-tokens-minute": "20", "retry-after": "1",
    },
    "mistral": {
        "x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-req-minute": "0",
        "x-ratelimit-limit-tokens-minute": "90000", "x-ratelimit-remaining-tokens-minute": "60000",
    },
    "deepseek": {},
    "openrouter": {
        "X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1700001060000",
    },
    "together": {
        "x-ratelimit-limit": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60",
        "x-tokenlimit-limit": "1500", "x-tokenlimit-remaining": "1000", "retry-after": "1",
    },
    "fireworks": {
        "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-limit-tokens-prompt": "50000", "x-ratelimit-remaining-tokens-prompt": "42500",
        "x-ratelimit-limit-tokens-generated": "50000", "x-ratelimit-remaining-tokens-generated": "46250",
        "x-ratelimit-over-limit": "yes",
    },
    "vllm": {},
}  # fmt: skip
"""Server → the headers of a refusal after a minute's requests at once, each of 100 tokens in and 50 out."""


@pytest.mark.parametrize("server", REPORTS)
def test_a_refusal_has_the_servers_headers(server: str) -> None:
    world = World(
        Limit(server=server, requests_per_minute=60, tokens_per_minute=90_000, input_tokens_per_minute=50_000,
        output_tokens_per_minute=50_000)
    )  # fmt: skip
    dialect = DIALECTS.get(server, "openai-chat")
    failure: Ticket | APIError = world.ask(dialect=dialect)
    while isinstance(failure, Ticket):
        failure = world.ask(dialect=dialect)
    assert failure.status == (503 if server == "vllm" else 429)
    assert dict(failure.headers) == REPORTS[server]


@pytest.mark.parametrize(
    ("requests_per_day", "reset"),
    [(172_800, "500ms"), (86_400, "1s"), (11_520, "7.5s"), (1_440, "1m0s"), (24, "1h0m0s"), (10, "2h24m0s")],
)
def test_openai_writes_a_reset_as_go_prints_durations(requests_per_day: float, reset: str) -> None:
    ticket = World(Limit(server="openai", requests_per_day=requests_per_day)).ask()
    assert isinstance(ticket, Ticket)
    assert dict(ticket.headers)["x-ratelimit-reset-requests"] == reset


def test_anthropic_rounds_tokens_to_thousands_and_requests_never() -> None:
    world = World(
        Limit(
            server="anthropic", requests_per_minute=4000, input_tokens_per_minute=50_000, output_tokens_per_minute=800
        )
    )
    usage = replace(USAGE, input_tokens=1600, output_tokens=100)
    ticket = world.ask(usage, dialect="anthropic")
    assert isinstance(ticket, Ticket)
    left = {name.split("-", 2)[2]: value for name, value in ticket.headers if name.endswith("-remaining")}
    assert left["requests-remaining"] == "3999"
    assert left["input-tokens-remaining"] == "48000"
    assert 0 < int(left["output-tokens-remaining"]) <= 800, "a limit below a thousand is reported as it is"


def test_litellm_reports_on_unstreamed_responses_only() -> None:
    world = World(Limit(server="litellm", requests_per_minute=60))
    unstreamed, streamed = world.ask(), world.ask(replace(USAGE, streamed=True))
    assert isinstance(unstreamed, Ticket)
    assert isinstance(streamed, Ticket)
    assert streamed.headers == []
    assert dict(unstreamed.headers)["llm_provider-x-ratelimit-remaining-requests"] == "59"


def test_every_row_names_a_form_that_exists() -> None:
    assert {rules.report for rules in SERVERS.values()} <= FORMS.keys()
    assert {rules.error for rules in SERVERS.values()} <= REFUSALS.keys()
    assert set(DIALECT_SERVERS.values()) <= SERVERS.keys()
