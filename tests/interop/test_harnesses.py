"""Claude Code, Codex, opencode and the official SDKs with their timeouts, against the gateway with the simulator."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anthropic
import openai
import pytest
import trio
from google import genai

import manystream as ms
from manystream.providers.catalog.provider import Provider
from manystream.serve import Slot, open_gateway
from manystream.simulator import Simulator, open_simulator

from .asking import DIALECTS
from .processes import CLAUDE_CODE, CODEX, OPENCODE, MissingServerError, clean_environment, node_modules

pytestmark = [pytest.mark.servers, pytest.mark.trio, pytest.mark.timeout(900)]  # the first one installs a harness

HARNESSES = {"claude": CLAUDE_CODE, "codex": CODEX, "codex-websocket": CODEX, "opencode": OPENCODE}
"""The name of its command, and after it what it uses → its package."""

ASKED = "Name a river."
AGENT = "kind=tools,calls=1,steps=2,events=20"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with open_simulator() as running:
        yield running


def to_simulator(simulator: Simulator) -> list[Provider]:
    return [DIALECTS[name]("key", url, name=name) for name, url in simulator.base_urls.items()]


def command(harness: str, slot: Slot, home: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of one run without a terminal."""
    try:
        program = str(node_modules(HARNESSES[harness]) / ".bin" / harness.partition("-")[0])
    except MissingServerError as missing:
        pytest.skip(f"{harness}: {missing}")
    work = home / "work"
    work.mkdir()
    environment = clean_environment(home) | {"PWD": str(work), "KEY": slot.key}
    url = f"{slot.base_url}/v1"
    if harness == "claude":
        environment |= {"ANTHROPIC_BASE_URL": slot.base_url, "ANTHROPIC_API_KEY": slot.key}
        return [program, "-p", ASKED, "--output-format", "json"], environment
    if harness.startswith("codex"):
        environment["CODEX_HOME"] = str(home)
        websocket = "true" if harness == "codex-websocket" else "false"
        named = f'name="gateway",base_url="{url}",wire_api="responses",env_key="KEY",supports_websockets={websocket}'
        provider = f"{{{named}}}"
        settings = [f"model_providers.gateway={provider}", 'model_provider="gateway"']
        options = [option for setting in settings for option in ("-c", setting)]
        return [program, "exec", "--skip-git-repo-check", "--json", *options, "-m", "sim", ASKED], environment
    gateway = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": url, "apiKey": slot.key}}
    provider = {"gateway": {**gateway, "models": {"sim": {"name": "sim"}}}}
    (work / "opencode.json").write_text(json.dumps({"provider": provider}))
    return [program, "run", "-m", "gateway/sim", ASKED], environment


@pytest.mark.parametrize(
    "knobs", [AGENT, f"{AGENT},fail=429,retry-after=1,times=2,key=a", f"{AGENT},delay=2"], ids=["", "refused", "slow"]
)
@pytest.mark.parametrize("harness", HARNESSES)
async def test_a_harness_works_as_at_its_provider(
    harness: str, knobs: str, simulator: Simulator, tmp_path: Path
) -> None:
    """It calls a tool twice and gives an answer. It sees no refusal, and keep-alives do not disturb it."""
    providers = to_simulator(simulator)
    for provider in providers:
        provider.headers = {"x-simulate": knobs}
    async with (
        ms.open_engine(providers, traffic=ms.Traffic()) as engine,
        open_gateway(engine, keep_alive=0.5) as gateway,
    ):
        slot = gateway.slot("harness")
        program, environment = command(harness, slot, tmp_path)
        done = await trio.run_process(
            program, cwd=tmp_path / "work", env=environment, stdin=subprocess.DEVNULL, capture_stdout=True,
            capture_stderr=True, check=False,
        )  # fmt: skip
        trace = slot.trace()
    assert done.returncode == 0, done.stderr.decode()
    assert "answered:" in done.stdout.decode()  # the simulator's words about the result of a tool
    assert all(call.completion.success and not call.client_left for call in trace.calls)
    turns = max(trace.conversations(), key=len)
    assert len(turns) == 3, [call.fork for call in trace.calls]
    assert [len(call.response.tool_calls) for call in turns if call.response is not None] == [1, 1, 0]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic", "gemini"])
async def test_the_timeouts_of_sdks_do_not_end_a_waiting_call(dialect: str, stream: bool) -> None:
    """Their own timeout is a part of the time that the call waits in the queue."""
    with open_simulator("events=5,delay=1.5") as slow:
        traffic = ms.Traffic(rates={"*": ms.RateLimit(concurrent=1)})
        async with (
            ms.open_engine(to_simulator(slow), traffic=traffic) as engine,
            open_gateway(engine, keep_alive=0.2) as gateway,
            trio.open_nursery() as nursery,
        ):
            for _ in range(3):
                nursery.start_soon(trio.to_thread.run_sync, wait_shortly, dialect, gateway.base_url, stream)


def wait_shortly(dialect: str, url: str, stream: bool) -> None:
    """Make a call with a timeout of 2 seconds, and no retry."""
    if dialect == "gemini":
        options = {"base_url": url, "timeout": 2000}
        with closing(genai.Client(api_key="any", http_options=options)) as gemini:  # type: ignore[arg-type]
            said = (
                "".join(each.text or "" for each in gemini.models.generate_content_stream(model="sim", contents="hi"))
                if stream
                else gemini.models.generate_content(model="sim", contents="hi").text
            )
    elif dialect == "anthropic":
        with closing(anthropic.Anthropic(api_key="any", base_url=url, timeout=2, max_retries=0)) as claude:
            asked = {"model": "sim", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
            if stream:
                with claude.messages.stream(**asked) as events:  # type: ignore[arg-type]
                    said = events.get_final_text()
            else:
                said = claude.messages.create(**asked).content[0].text  # type: ignore[call-overload]
    else:
        with closing(openai.OpenAI(api_key="any", base_url=f"{url}/v1", timeout=2, max_retries=0)) as chat:
            given = [{"role": "user", "content": "hi"}]
            if dialect == "openai-chat" and stream:
                chunks = chat.chat.completions.create(model="sim", messages=given, stream=True)  # type: ignore[call-overload]
                said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            elif dialect == "openai-chat":
                said = chat.chat.completions.create(model="sim", messages=given).choices[0].message.content  # type: ignore[arg-type]
            elif stream:
                chunks = chat.responses.create(model="sim", input="hi", stream=True)
                said = "".join(event.delta for event in chunks if event.type == "response.output_text.delta")
            else:
                said = chat.responses.create(model="sim", input="hi").output_text
    assert said
