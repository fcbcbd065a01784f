"""Hundreds of agents with tools on one core, run by callbacks.

    python examples/orchestrator.py                                  300 agents against the simulator
    python examples/orchestrator.py --agents 20 --model gpt-5-mini   against a real model

An agent is an object and not a task: its callbacks start the next turn. Only tools run as tasks, because they may
wait.
All calls of an answer run at the same time. A terminal shows a live table; other outputs get a line per second.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import trio
from setting import Setting, add_arguments, open_setting

import manystream as ms

KNOBS = "kind=tools,calls=3,steps=3,events=40,rate=40,delay=0.1"
"""Options of each simulated answer: three rounds of three tool calls, then text, 40 events per second."""

TURNS_LIMIT = 10
SHOWN_PER_SECOND = 5


# --- tools ---


async def get_weather(arguments: dict[str, object]) -> str:
    """Return the weather, after a wait as of a slow service."""
    await trio.sleep(0.2)
    return f"{arguments['city']}: rain, 7 °C"


async def find_trains(arguments: dict[str, object]) -> str:
    await trio.sleep(0.4)
    return f"to {arguments['destination']}: 08:15, 09:45, 11:15"


TOOLS = (
    ms.Tool(
        "get_weather",
        "The weather in a city.",
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    ),
    ms.Tool(
        "find_trains",
        "Today's trains to a city.",
        {"type": "object", "properties": {"destination": {"type": "string"}}, "required": ["destination"]},
    ),
)
FUNCTIONS: dict[str, Callable[[dict[str, object]], Awaitable[str]]] = {
    "get_weather": get_weather,
    "find_trains": find_trains,
}


async def run_tool(call: ms.ToolCall) -> ms.ToolResult:
    """Run one call. An error goes back to the model, which may correct the call."""
    try:
        if not call.complete:
            raise ValueError("the call was cut off; make it again, shorter")
        output = await FUNCTIONS[call.name](dict(call.parsed))
    except (KeyError, ValueError) as error:
        return ms.ToolResult(call.id, f"{type(error).__name__}: {error}", is_error=True)
    return ms.ToolResult(call.id, output)


# --- agents ---


class Agent:
    """One conversation. It ends when the model calls no more tools."""

    def __init__(self, fleet: Fleet, name: str, task: str) -> None:
        self.fleet = fleet
        self.name = name
        self.state = "waiting"
        self.turns = self.tools_run = self.events = 0
        self.last = ""
        self._conversation = ms.Conversation([ms.Message.user(task)])

    def start_turn(self) -> None:
        """Ask the model. Returns at once; `_on_completion` continues."""
        self.turns += 1
        self.state = "asking"
        request = self._conversation.request(self.fleet.model, tools=TOOLS, max_output_tokens=2_000)
        self.fleet.engine.start_stream(request, self._on_event, self._on_completion)

    def _on_event(self, event: ms.Event) -> None:
        self.events += 1
        if isinstance(event, ms.TextDelta):
            self.state = "writing"
            self.last = (self.last + event.text)[-60:]
        elif isinstance(event, ms.ThinkingDelta):
            self.state = "thinking"
        elif isinstance(event, ms.ToolCallStart):
            self.state = "calling"
            self.last = event.name

    def _on_completion(self, completion: ms.Completion) -> None:
        response = completion.response
        if completion.error is not None or response is None:
            self._end("failed", completion.error_message or "no answer")
            return
        self._conversation.add_response(response)
        calls = response.tool_calls
        if not calls:
            self._end("done", self.last)
        elif self.turns == TURNS_LIMIT:
            self._end("failed", f"still asking for tools after {TURNS_LIMIT} turns")
        else:
            self.state = "tools"
            self.fleet.nursery.start_soon(self._run_tools, calls)

    async def _run_tools(self, calls: list[ms.ToolCall]) -> None:
        """Run all calls at the same time. Their results go back in the order of the calls."""
        results: dict[str, ms.ToolResult] = {}

        async def run(call: ms.ToolCall) -> None:
            results[call.id] = await run_tool(call)
            self.tools_run += 1

        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(run, call)
        self._conversation.add(ms.Message(ms.Role.TOOL, [results[call.id] for call in calls]))
        self.start_turn()

    def _end(self, state: str, last: str) -> None:
        self.state, self.last = state, last
        self.fleet.agent_ended()


class Fleet:
    """All agents, and what they share.

    finished: is set when the last agent has ended.
    """

    def __init__(self, engine: ms.Engine, nursery: trio.Nursery, model: str, size: int) -> None:
        self.engine = engine
        self.nursery = nursery
        self.model = model
        self.finished = trio.Event()
        self.agents = [Agent(self, f"agent-{n:03}", f"Plan day {n} of a journey through Norway.") for n in range(size)]
        self._running = size

    def start(self) -> None:
        for agent in self.agents:
            agent.start_turn()

    def agent_ended(self) -> None:
        self._running -= 1
        if not self._running:
            self.finished.set()


# --- display ---


class Display:
    """A table of the agents on a terminal; otherwise a line per second."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._live = sys.stdout.isatty()
        self._began = time.monotonic()
        self._height = 0

    async def run(self) -> None:
        while True:
            self.draw()
            await trio.sleep(1 / SHOWN_PER_SECOND if self._live else 1)

    def draw(self) -> None:
        if not self._live:
            print(self._summary(), flush=True)
            return
        size = shutil.get_terminal_size()
        lines = [self._summary(), "", f"{'agent':10} {'state':9} {'turns':>5} {'tools':>5} {'events':>6}  last"]
        # Running agents first, so that the table changes until the end.
        agents = sorted(self._fleet.agents, key=lambda agent: agent.state in ("done", "failed"))
        for agent in agents[: max(1, size.lines - 5)]:
            last = "".join(character if character.isprintable() else " " for character in agent.last)
            figures = f"{agent.turns:5} {agent.tools_run:5} {agent.events:6}"
            lines.append(f"{agent.name:10} {agent.state:9} {figures}  {last}")
        up = f"\x1b[{self._height}A" if self._height else ""
        sys.stdout.write(up + "".join(f"\x1b[2K{line[: size.columns - 1]}\n" for line in lines))
        sys.stdout.flush()
        self._height = len(lines)

    def _summary(self) -> str:
        states = Counter(agent.state for agent in self._fleet.agents)
        events = sum(agent.events for agent in self._fleet.agents)
        tools = sum(agent.tools_run for agent in self._fleet.agents)
        lag = self._fleet.engine.statistics().loop_lag
        counts = " ".join(f"{state} {count}" for state, count in sorted(states.items()))
        elapsed = time.monotonic() - self._began
        return f"{elapsed:5.1f} s  {counts}  | {events} events, {tools} tools run, lag {lag * 1000:.1f} ms"


async def orchestrate(setting: Setting, size: int) -> int:
    """Run all agents. Return the exit status."""
    async with ms.open_engine(setting.providers) as engine, trio.open_nursery() as nursery:
        fleet = Fleet(engine, nursery, setting.model, size)
        display = Display(fleet)
        fleet.start()
        nursery.start_soon(display.run)
        await fleet.finished.wait()
        nursery.cancel_scope.cancel()
        display.draw()
    failed = [agent for agent in fleet.agents if agent.state == "failed"]
    for agent in failed[:10]:
        print(f"{agent.name}: {agent.last}", file=sys.stderr)
    used = time.process_time()
    print(f"{size - len(failed)} of {size} agents done; processor time {used:.1f} s")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Hundreds of agents with tools on one core.")
    parser.add_argument("--agents", type=int, default=300, help="how many (default: 300)")
    add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.agents < 1:
        parser.error("--agents must be at least 1")
    with open_setting(arguments, KNOBS) as setting:
        return trio.run(orchestrate, setting, arguments.agents)


if __name__ == "__main__":
    sys.exit(main())
