"""What the clients with agents share: the load, the tool, and the line of results. Standard library only."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..source.load import load_path
from .common import raise_priority, waited

TURNS = 3
"""The turns of an agent: in each but the last one the model calls a tool."""
TOOL = "get_weather"
DESCRIPTION = "The weather in a city."
PARAMETERS: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TASK = "Plan a day in Bergen. Look up the weather first."


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a client.

    agents: the number of agents that run at the same time.
    events: of one streamed answer.
    rate: events per second.
    """

    url: str
    agents: int
    events: int
    rate: float

    @property
    def base_url(self) -> str:
        """The base URL of answers with text."""
        return f"{self.url}{load_path(events=self.events, rate=self.rate)}/v1"

    @property
    def tool_base_url(self) -> str:
        """The base URL of answers with a tool call."""
        return f"{self.url}{load_path(events=self.events, rate=self.rate, form='tool')}/v1"


def read_load() -> Load:
    """Parse the command line: URL AGENTS EVENTS RATE."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("agents", type=int)
    parser.add_argument("events", type=int)
    parser.add_argument("rate", type=float)
    raise_priority()
    return Load(**vars(parser.parse_args()))


async def get_weather(arguments: str) -> str:
    """Run the tool: parse its arguments and wait a little, as a request would."""
    city = json.loads(arguments)["city"]
    await asyncio.sleep(0.05)
    return json.dumps({"city": city[:20], "temperature": 11, "sky": "clear"})


async def run(load: Load, agent: Callable[[], Awaitable[int]]) -> None:
    """Run all agents at the same time, and print the results. `agent` returns the number of its events.

    One agent runs before the measurement: libraries build their types at first use.
    """
    await agent()
    cpu, wall, without_core = time.process_time(), time.perf_counter(), waited()
    events = await asyncio.gather(*(agent() for _ in range(load.agents)))
    result = {
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "wall": round(time.perf_counter() - wall, 3),
        "waited": round(waited() - without_core, 3),
        "events": sum(events),
    }
    print(json.dumps(result), flush=True)
    os._exit(0)  # to close hundreds of connections is not measured
