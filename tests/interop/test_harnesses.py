"""Claude Code, Codex and opencode, as their registry has them, against the gateway with the simulator behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream.serve import Slot, open_gateway
from manystream.simulator import Simulator, open_simulator

from .asking import DIALECTS
from .processes import CLAUDE_CODE, CODEX, OPENCODE, MissingServerError, clean_environment, node_modules

pytestmark = [pytest.mark.servers, pytest.mark.trio, pytest.mark.timeout(900)]  # the first one installs a harness

HARNESSES = {"claude": CLAUDE_CODE, "codex": CODEX, "opencode": OPENCODE}
"""The name of its command → its package."""

ASKED = "Name a river."
AGENT = "kind=tools,calls=1,steps=2,events=20"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with open_simulator() as running:
        yield running


def command(harness: str, slot: Slot, home: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of one run without a terminal."""
    try:
        program = str(node_modules(HARNESSES[harness]) / ".bin" / harness)
    except MissingServerError as missing:
        pytest.skip(f"{harness}: {missing}")
    work = home / "work"
    work.mkdir()
    environment = clean_environment(home) | {"PWD": str(work), "KEY": slot.key}
    url = f"{slot.base_url}/v1"
    if harness == "claude":
        environment |= {"ANTHROPIC_BASE_URL": slot.base_url, "ANTHROPIC_API_KEY": slot.key}
        return [program, "-p", ASKED, "--output-format", "json"], environment
    if harness == "codex":
        environment["CODEX_HOME"] = str(home)
        provider = f'{{name="gateway",base_url="{url}",wire_api="responses",env_key="KEY"}}'
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
    providers = [DIALECTS[name]("key", url, name=name) for name, url in simulator.base_urls.items()]
    simulated = {"x-simulate": knobs}
    for provider in providers:
        provider.headers = simulated
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
