"""Token-exact calls against a real vLLM, where one runs: `MANYSTREAM_VLLM_URL=http://127.0.0.1:8000 make interop`.

The server runs with `--enable-scale-out` and `VLLM_SERVER_DEV_MODE=1`, and serves one model. `MANYSTREAM_VLLM_CALLS` is
the number of calls; 10,000 take some minutes on a CPU.
"""

from __future__ import annotations

import json
import os
import urllib.request

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
