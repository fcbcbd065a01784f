"""Random turns of conversations over WebSockets: the server believes what HTTP would have sent.

The simulator rebuilds the request of each turn from the chain of the socket. Ten thousand turns: `pytest -m soak`.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
import trio

import manystream as ms
from manystream.engine.call import sockets
from manystream.providers.openai.responses.request import encode_request
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.peers import until

TOOLS = [ms.Tool("look", "Look."), ms.Tool("read", "Read.")]
KINDS = ("kind=text", "kind=tools,calls=1", "kind=tools,calls=3", "kind=mixed,calls=2", "kind=thinking", "kind=mixed")
FAULTS = (
    "cut=2",
    "cut=6",
    "reset=5",
    "close=1011",
    "close=1012",
    "error=3",
    "fail=503",
    "finish=length",
    "cut_bytes=9",
)
NO_RETRY = ms.Retry(max_attempts=1)
NOT_SENT_BACK = ("id", "status", "annotations")


def plain(items: Any) -> list[Any]:
    """Items without what a client does not send back, and a message's parts as one text."""
    found: list[Any] = []
    for item in items:
        lost = () if item["type"] == "reasoning" else NOT_SENT_BACK
        kept = {name: value for name, value in item.items() if name not in lost}
        if kept.get("role") == "assistant" and not isinstance(kept["content"], str):
            kept["content"] = "".join(part["text"] for part in kept["content"])
        found.append({**kept, "type": kept.get("type", "message"), "status": None})
    return found


class Agent:
    """One conversation that is continued, edited, forked and broken at random."""

    def __init__(self, engine: ms.Engine, simulator: Simulator, provider: ms.OpenAIResponses, seed: int) -> None:
        self.engine, self.simulator, self.provider = engine, simulator, provider
        self.random = random.Random(seed)
        self.talk = ms.Conversation()
        self.options: dict[str, Any] = {"system": "Be brief.", "tools": TOOLS}
        self.session = f"agent-{seed}" if seed % 2 else None
        self.transports: list[str] = []
        self.continued = 0

    def user(self) -> ms.Message:
        fault = f",{self.random.choice(FAULTS)}" if self.random.random() < 0.12 else ""
        seed = self.random.randrange(10**6)
        return ms.Message.user(f"simulate: {self.random.choice(KINDS)},events=6,seed={seed}{fault}")

    def change(self) -> None:
        """Bring the conversation into a state that can be sent."""
        talk, chance = self.talk, self.random.random()
        if chance < 0.06 and talk.messages:
            message = self.random.choice(talk.messages)
            for block in message.content:
                if isinstance(block, ms.Text) and not block.text.startswith("simulate"):
                    block.text += " and more"
                elif isinstance(block, ms.ToolResult):
                    block.content = "another result"
        elif chance < 0.12:
            users = [n for n, message in enumerate(talk.messages) if message.role is ms.Role.USER]
            if users:
                del talk.messages[self.random.choice(users) :]
        elif chance < 0.16:
            self.talk = talk.clone()
        elif chance < 0.20:
            self.options = {**self.options, "tools": self.random.sample(TOOLS, self.random.choice((1, 2)))}
        elif chance < 0.23:
            self.options = {**self.options, "system": self.random.choice(("Be brief.", "Be long."))}
        if len(self.talk.messages) > 24:
            self.talk.clear()
        last = self.talk.messages[-1] if self.talk.messages else None
        calls = [] if last is None else [block for block in last.content if isinstance(block, ms.ToolCall)]
        if calls and self.random.random() < 0.9:
            self.random.shuffle(calls)
            for call in calls[: self.random.choice((1, 9, 9, 9))]:
                self.talk.add(ms.Message.tool_result(call.id, f"result {self.random.randrange(100)}"))
        if not calls or self.random.random() < 0.2:
            self.talk.add(self.user())

    async def turn(self) -> None:
        self.change()
        request = self.talk.request("p/sim-text", session=self.session, retry=NO_RETRY, **self.options)
        expected = json.loads(encode_request(request, "sim-text", self.provider, stream=True).body)
        call = self.engine.start_stream(request)
        if self.random.random() < 0.06:
            await until(lambda: call.state.value not in ("queued", "connecting"))
            call.cancel()
        completion = await call.wait()
        self.transports.append(completion.transport)
        self.continued += completion.continued
        if completion.success:
            page = json.loads(self.simulator._request("GET", "", "/sim/requests"))  # pyright: ignore[reportPrivateUsage]
            latest = plain(expected["input"][-1:])  # a call that was cancelled may be read late
            body = [entry["body"] for entry in page if entry["body"] and plain(entry["body"]["input"][-1:]) == latest][
                -1
            ]
            assert plain(body.pop("input")) == plain(expected.pop("input")), (
                len(self.transports),
                completion.continued,
            )
            assert body == expected
            self.talk.add_response(completion.response_or_raise())
        else:
            assert completion.error is not None
            assert completion.error.provider_code != "previous_response_not_found"
            assert "No tool output found" not in completion.error.message, completion.error
            assert "No tool call found" not in completion.error.message, completion.error
            del self.talk.messages[:]


@asynccontextmanager
async def gateway_to(url: str, *, websocket: bool) -> AsyncGenerator[str, None]:
    """Yield the base URL of a gateway to a server of Responses."""
    provider = ms.OpenAIResponses("k", url, name="p", websocket=websocket)
    async with ms.open_engine([provider], retry=NO_RETRY) as engine, ms.open_gateway(engine) as gateway:
        yield f"{gateway.base_url}/v1"


async def run(turns: int, seed: int, *, through: bool | None = None) -> None:
    """Run turns. through: whether a gateway before the simulator uses WebSockets; None: there is no gateway."""
    with open_simulator_thread("", journal=9) as simulator:
        url = simulator.base_urls["openai-responses"]
        made = nullcontext(url) if through is None else gateway_to(url, websocket=through)
        async with made as base:
            await talk(turns, seed, simulator, base)


async def talk(turns: int, seed: int, simulator: Simulator, base_url: str) -> None:
    provider = ms.OpenAIResponses("k", base_url, name="p", websocket=True)
    async with ms.open_engine([provider]) as engine:
        agents = [Agent(engine, simulator, provider, seed + number) for number in range(4)]
        for number in range(turns):
            await agents[number % 4].turn()
            await trio.lowlevel.checkpoint()
    transports = [transport for agent in agents for transport in agent.transports]
    assert sum(agent.continued for agent in agents) > turns / 4
    assert transports.count("websocket") > turns / 2


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that seemed to open no WebSocket is asked again at once."""
    monkeypatch.setattr(sockets, "REST", 0.001)
    monkeypatch.setattr(sockets, "LONGEST_REST", 0.001)


async def test_the_server_believes_what_http_would_have_sent() -> None:
    await run(160, 1)


@pytest.mark.parametrize("websocket", [False, True])
async def test_a_gateway_sends_what_http_would_have_sent(websocket: bool) -> None:
    await run(160, 1, through=websocket)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("through", [None, False, True])
async def test_ten_thousand_turns(seed: int, through: bool | None) -> None:
    await run(1000, seed * 10, through=through)
