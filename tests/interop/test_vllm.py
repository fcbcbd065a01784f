"""Token-exact calls against a real vLLM, where one runs: `MANYSTREAM_VLLM_URL=http://127.0.0.1:8000 make interop`.

The server runs with `--enable-scale-out` and `VLLM_SERVER_DEV_MODE=1`, and serves one model. `MANYSTREAM_VLLM_CALLS` is
the number of calls; 10,000 take some minutes on a CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import trio

import manystream as ms

URL = os.environ.get("MANYSTREAM_VLLM_URL", "")
CALLS = int(os.environ.get("MANYSTREAM_VLLM_CALLS", "300"))
AT_ONCE = 1024
PROMPTS = 20
LENGTH = 40

pytestmark = [pytest.mark.servers, pytest.mark.skipif(not URL, reason="MANYSTREAM_VLLM_URL names no server")]


def model() -> str:
    with urllib.request.urlopen(f"{URL}/v1/models", timeout=10) as answer:
        return str(json.load(answer)["data"][0]["id"])


def asked(name: str, number: int, *, continue_aborted: bool = False) -> ms.Request:
    return ms.Request(
        f"vllm-generate/{name}", prompt_token_ids=[1, 5, 6 + number % PROMPTS], max_output_tokens=LENGTH, temperature=0,
        logprobs=0, extra_body={"sampling_params": {"ignore_eos": True}}, continue_aborted=continue_aborted,
    )  # fmt: skip


async def test_ids_survive_cancelled_calls_and_three_pauses() -> None:
    name, wrong, cancelled = model(), list[int](), 0
    async with ms.open_engine([ms.VLLMGenerate(base_url=URL)]) as engine:
        whole = [(await engine.request(asked(name, number))).tokens for number in range(PROMPTS)]
        room = trio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            nonlocal cancelled
            ids: list[int] = []

            def on_event(event: ms.Event) -> None:
                if isinstance(event, ms.TextDelta) and event.tokens is not None:
                    ids.extend(event.tokens.ids)
                if number % 10 == 9 and len(ids) > LENGTH // 2:
                    call.cancel()

            async with room:
                call = engine.start_stream(asked(name, number, continue_aborted=True), on_event)
                completion = await call.wait()
            assert completion.response is not None
            right, tokens = whole[number % PROMPTS], completion.response.tokens
            assert right is not None
            assert tokens is not None
            cancelled += completion.error_category is ms.ErrorCategory.CANCELLED
            if [*tokens.ids] != ids or ids != [*right.ids[: len(ids)]] or len(tokens.logprobs or ()) != len(ids):
                wrong.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(CALLS):
                nursery.start_soon(one, number)
            for _ in range(3):
                await trio.sleep(0.5)
                await engine.pause("vllm-generate", "abort")
                await engine.resume("vllm-generate")
    assert (wrong, cancelled) == ([], CALLS // 10)


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_and_completions_have_the_same_ids(stream: bool) -> None:
    name = model()
    chat = ms.OpenAIChat("any", f"{URL}/v1", profile="vllm", name="chat")
    async with ms.open_engine([chat, ms.Completions("any", f"{URL}/v1", name="text")]) as engine:
        for provider in ("chat", "text"):
            request = ms.Request(
                f"{provider}/{name}", "Hello", return_tokens=True, logprobs=0, temperature=0, max_output_tokens=LENGTH
            )
            call = engine.start_stream(request) if stream else engine.start_request(request)
            response = (await call.wait()).response_or_raise()
            other = await engine.request(request)
            assert response.tokens is not None
            assert response.tokens == other.tokens
            assert response.tokens.prompt_ids
            assert len(response.tokens.ids) == response.usage.output_tokens


# The figures of `manystream bench` beside the server's own.

METRICS = {"ttft": "time_to_first_token", "tpot": "request_time_per_output_token", "e2el": "e2e_request_latency"}
"""Our figure → vLLM's histogram of that span. It measures between its engine and its HTTP, so ours are longer."""


def post(path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"{URL}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def spans() -> dict[str, tuple[float, float]]:
    """Return the sum and the number of the spans of each figure."""
    with urllib.request.urlopen(f"{URL}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()

    def total(metric: str, kind: str) -> float:
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{metric}_seconds_{kind}{{"))

    return {name: (total(metric, "sum"), total(metric, "count")) for name, metric in METRICS.items()}


def test_bench_reports_the_times_that_the_server_reports(tmp_path: Path) -> None:
    """The answers consist of letters: of random tokens, many would end no character and so send no text."""
    calls, length = 64, 100
    letters = [post("/tokenize", {"prompt": letter, "add_special_tokens": False})["tokens"][0] for letter in "abcdefgh"]
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": length, "ignore_eos": True}
    body["allowed_token_ids"] = letters
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}))
    before = spans()
    words = [f"{URL}/v1", "--model", model(), "--prompts", str(prompts), "-n", str(calls), "-c", "4", "--ramp", "0"]
    command = [sys.executable, "-m", "manystream", "bench", *words, "--seconds", "300", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    found, after = json.loads(done.stdout), spans()
    assert (found["calls"]["ok"], found["output_tokens"]) == (calls, calls * length)
    for name in METRICS:
        count = after[name][1] - before[name][1]
        theirs, ours = (after[name][0] - before[name][0]) / count, found[name]["mean"]
        print(f"{name}: bench {ours * 1000:.3f} ms, vLLM {theirs * 1000:.3f} ms; valid: {found['validity']['valid']}")
        assert (count, found[name]["count"]) == (calls, calls)
        assert ours == pytest.approx(theirs, rel=0.05, abs=0.02), name
