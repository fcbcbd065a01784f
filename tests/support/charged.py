"""A loopback server that counts the tokens that it answered, and their price."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

import manystream as ms
from manystream.statistics import BudgetStatistics
from tests.support.peers import CHAT_DONE, STREAM_HEAD, Line, Peer, answer, chat_chunk, chunked, open_peer

PRICES = {"m": (1e-6, 1e-5), "cheap": (1e-7, 1e-6)}
"""Model → US dollars of an input token and of an output token."""


def price(provider: ms.Provider, model: str, usage: ms.Usage) -> float | None:
    if model not in PRICES:
        return None
    of_input, of_output = PRICES[model]
    return (usage.input_tokens or 0) * of_input + (usage.output_tokens or 0) * of_output


@dataclass
class Charged:
    """A server that counts what it answered. output: tokens of each answer. seconds: what an answer takes. input: the
    tokens of each prompt; 0 if they are counted."""

    output: int = 50
    seconds: float = 0.05
    input: int = 0
    reports: bool = True
    fault: bytes | None = None
    usages: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    sent: int = 0
    running: int = 0
    gone: int = 0

    async def serve(self, line: Line) -> None:
        while request := await line.request():
            self.sent += 1
            self.running += 1
            if self.fault is not None:
                self.running -= 1
                await line.send(self.fault)
                continue
            with trio.move_on_after(self.seconds) as scope:
                await line.closed_by_peer()
            self.running -= 1
            if not scope.cancelled_caught:
                self.gone += 1
                return
            body = json.loads(request.partition(b"\r\n\r\n")[2])
            count = self.input or len(json.dumps(body["messages"])) // 4
            self.usages.append((count, self.output))
            usage = {"prompt_tokens": count, "completion_tokens": self.output, "total_tokens": count + self.output}
            members: dict[str, Any] = {"usage": usage} if self.reports else {}
            text = "word " * self.output
            if body.get("stream"):
                await line.send(STREAM_HEAD)
                await line.send(chunked(chat_chunk(text), chat_chunk(finish="stop", **members), CHAT_DONE))
            else:
                choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
                await line.send(answer(json.dumps({"id": "c", "model": "m-2026", "choices": [choice], **members})))

    def dollars(self, model: str = "m") -> float:
        return sum(count * PRICES[model][0] + output * PRICES[model][1] for count, output in self.usages)


def provider(peer: Peer, name: str = "openai", **options: object) -> ms.OpenAIChat:
    return ms.OpenAIChat("sk-canary-secret", peer.url, **{"name": name, **options})  # type: ignore[arg-type]


@asynccontextmanager
async def open_charged(server: Charged, *budgets: ms.Budget, **options: object) -> AsyncGenerator[ms.Engine, None]:
    engine_options = {
        name: options.pop(name) for name in ("timeouts", "retry", "observer", "monitor") if name in options
    }
    traffic = ms.Traffic(**{"budgets": budgets, "price": price, **options})  # type: ignore[arg-type]
    async with (
        open_peer(server.serve) as peer,
        ms.open_engine([provider(peer)], traffic=traffic, **engine_options) as engine,  # type: ignore[arg-type]
    ):
        yield engine


def ask(model: str = "openai/m", most: int | None = 100, **options: object) -> ms.Request:
    return ms.Request(model, [ms.Message.user("hello")], max_output_tokens=most, **options)  # type: ignore[arg-type]


def of(engine: ms.Engine, place: int = 0) -> BudgetStatistics:
    return engine.statistics().traffic.budgets[place]
