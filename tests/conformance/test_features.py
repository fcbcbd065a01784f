"""The page on dialects is current, its example runs, and its common rules hold in the engine for each dialect."""

import importlib.util
import json
from collections.abc import Sequence
from types import ModuleType

import pytest

import manystream as ms
from tests.support.peers import Line, answer, chat_answer, open_peer, reply_once

from .exchange import PROVIDERS
from .features import DOCUMENT, EXAMPLE, document
from .phenomena import PHENOMENA

RATE_LIMITS = "x-ratelimit-remaining-requests: 41\r\nx-request-id: req-1\r\n"
HELLO = [ms.Message.user("Hello")]


def example() -> ModuleType:
    specification = importlib.util.spec_from_file_location("own_server", EXAMPLE)
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_page_agrees_with_the_dialects() -> None:
    assert DOCUMENT.read_text("utf-8") == document(), "run: python -m tests.conformance.features"


async def test_a_custom_server_is_a_row_of_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEPHYR_API_KEY", "zephyr-canary")
    async with open_peer(reply_once(answer(chat_answer("Hi")))) as peer:
        response = await example().ask("Hello", base_url=peer.url)
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    assert b"x-api-key: zephyr-canary" in head
    assert b"authorization" not in head.lower()
    sent = json.loads(body)
    assert (sent["model"], sent["max_tokens"], sent["enable_thinking"]) == ("zephyr-large", 100, True)
    assert "seed" not in sent
    assert response.text == "Hi"
    assert [warning.partition(":")[0] for warning in response.warnings] == ["seed"]


def whole_answer(dialect: str) -> bytes:
    row = next(row for row in PHENOMENA if row.dialect == dialect and row.what == "response id")
    return answer(json.dumps(row.body), headers=RATE_LIMITS)


def stream_answer(dialect: str) -> bytes:
    row = next(row for row in PHENOMENA if row.dialect == dialect and row.what == "response id")
    return answer(row.stream(), headers=RATE_LIMITS, kind="text/event-stream")


@pytest.mark.parametrize("dialect", PROVIDERS)
async def test_rate_limits_request_id_and_warnings_reach_the_caller(dialect: str) -> None:
    answers = [whole_answer(dialect), stream_answer(dialect)]

    async def script(line: Line) -> None:
        while await line.request():
            await line.send(answers.pop(0))

    async with open_peer(script) as peer:
        # A seed, stop sequences, parallel calls without tools: each dialect lacks one of these options.
        request = ms.Request("m", HELLO, seed=1, stop=["x"], parallel_tool_calls=False)
        async with ms.open_engine([PROVIDERS[dialect]("key", peer.origin)], proxy="") as engine:
            completions = [await engine.start_request(request).wait(), await engine.start_stream(request).wait()]
    assert_alike(completions)


def assert_alike(completions: Sequence[ms.Completion]) -> None:
    for completion in completions:
        assert completion.success
        assert completion.headers["x-ratelimit-remaining-requests"] == "41"
        assert completion.request_id == "req-1"
        assert completion.response.warnings
    first, second = (completion.response for completion in completions)
    assert first.warnings == second.warnings
