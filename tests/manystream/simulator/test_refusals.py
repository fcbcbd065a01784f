"""What each simulated server says about its limits: the head of an accepted response, and a whole refusal.

Each file in the folder `limits` holds the responses of one server. A line `--- …` names the limit. Four requests a
second are sent until one is refused.
"""

from pathlib import Path

import pytest

from manystream.simulator import Limit
from manystream.simulator.limit import read_limit
from manystream.simulator.service import ServiceSettings

from .in_process import World, head_and_body
from .raw_client import body_of, path_of

FOLDER = Path(__file__).parent / "limits"
SERVERS = (
    "openai", "anthropic", "gemini", "vertex", "azure", "groq", "cerebras", "mistral", "deepseek", "openrouter",
    "together", "fireworks", "litellm", "vllm", "sglang", "llama.cpp", "tgi",
)  # fmt: skip
DIALECTS = {"anthropic": "anthropic", "gemini": "gemini", "vertex": "gemini"}
LIMITS = (
    "requests-per-second=2 bucket=0.5", "requests-per-minute=130 bucket=1.5", "requests-per-day=3",
    "tokens-per-minute=2500 bucket=30", "tokens-per-minute=390", "tokens-per-day=1200", "tokens-per-day=90",
    "input-tokens-per-minute=450", "input-tokens-per-minute=90", "output-tokens-per-minute=1500",
    "output-tokens-per-minute=60", "requests-per-minute=90 input-tokens-per-minute=2600 output-tokens-per-minute=1000",
    "concurrent=2", "requests-per-minute=300 bucket=1 by-second=1 tokens-per-minute=90000 concurrent=9",
    "tokens-per-minute=9000 tokens-per-day=1300 requests-per-second=3 requests-per-day=90000",
)  # fmt: skip
MOST = 40
"""A limit that does not refuse one of so many requests does not hold for the server."""


def shown(server: str, text: str) -> str:
    world = World(ServiceSettings(limits=(read_limit(f"server={server} {text}"),)))
    dialect = DIALECTS.get(server, "openai-chat")
    accepted: list[str] = []
    for number in range(MOST):
        body = body_of(dialect, "four" * 99, stream=bool(number % 2), model="sim-text")
        if dialect == "gemini":
            body["generationConfig"] = {"maxOutputTokens": 400}
        else:
            body["max_tokens"] = 400
        program = world.ask(path_of(dialect, stream=bool(number % 2)), body, directive="events=50,cached=20")
        lines, content = head_and_body(program)
        if program.ticket is None:
            return "\n".join([f"--- {text}", *accepted, "", f"{number} accepted, then:", *lines, "", content, ""])
        names = ("content-", "transfer-", "x-request-id", "request-id", "openai-version", "x-gemini")
        accepted = [line for line in lines if not line.startswith(names)]
        world.now += 0.25
    return "\n".join([f"--- {text}", *accepted, "", "never refused", ""])


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_says_this_about_its_limits(server: str) -> None:
    found = "\n".join(shown(server, text) for text in LIMITS)
    assert found == (FOLDER / f"{server}.http").read_text(encoding="utf-8")


def test_a_limit_has_these_options_by_default() -> None:
    assert Limit() == Limit(
        key="*", model="*", server="", requests_per_second=None, requests_per_minute=None, requests_per_day=None,
        tokens_per_minute=None, tokens_per_day=None, input_tokens_per_minute=None, output_tokens_per_minute=None,
        concurrent=None, bucket=60.0, by_second=False,
    )  # fmt: skip
