"""Many calls at once against a server with rate limits, over sockets: how much of what it allows is used?

    python -m benchmarks.traffic [--quick] [--calls N] [--client NAME]… [FORM…]

The simulator limits as OpenAI, Anthropic and Gemini do. Every client starts all its calls at once. The table shows, for
each client:

used: accepted requests, as a part of those that the server would have accepted from a client that knows its limits and
    needs as long as this one, and at least as long as the calls need.
refused: refused requests, as a part of all requests.
failed: calls that ended without an answer.
seconds: from the first request to the last answer.

manystream runs without traffic control, with it, and with declared limits. The SDKs of OpenAI and Anthropic run with
ten retries. LiteLLM's Router and inspect_ai with adaptive connections run where they are installed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import openai
import trio

import manystream as ms
from manystream.http_server import allow_many_sockets
from manystream.simulator import Simulator, open_simulator

from .limit_forms import ANSWER, BUCKET, CALLS_PER_SECOND, DURATION, FORMS, MAX_OUTPUT, MODEL, QUESTION, Form

LIMIT_SECONDS = 300.0
"""A client that is not done by then is stopped."""

RETRIES = 10


@dataclass(slots=True)
class Outcome:
    """What one client reached."""

    used: float
    refused: float
    failed: int
    seconds: float

    def row(self, form: str, client: str) -> str:
        return f"{form:20} {client:22} {self.used:7.1%} {self.refused:8.1%} {self.failed:7d} {self.seconds:8.1f}"


HEADING = f"{'form':20} {'client':22} {'used':>7} {'refused':>8} {'failed':>7} {'seconds':>8}"

Client = Callable[[Simulator, Form, int], int]
"""Make so many calls at once. Returns how many ended without an answer."""

_PROVIDERS: dict[str, Callable[[str], ms.Provider]] = {
    "openai-chat": lambda url: ms.OpenAIChat("key", url),
    "anthropic": lambda url: ms.Anthropic("key", url),
    "gemini": lambda url: ms.Gemini("key", url),
    "gemini-interactions": lambda url: ms.GeminiInteractions("key", url),
}


def manystream_client(**options: Any) -> Client:
    """manystream with options of `open_engine`."""

    def run(simulator: Simulator, form: Form, calls: int) -> int:
        async def main() -> int:
            provider = _PROVIDERS[form.dialect](simulator.base_urls[form.dialect])
            request = ms.Request(MODEL, [ms.Message.user(QUESTION)], max_output_tokens=MAX_OUTPUT)
            ended: list[bool] = []
            async with ms.open_engine([provider], **options) as engine:
                with trio.move_on_after(LIMIT_SECONDS):
                    started = [
                        engine.start_stream(request, None, lambda completion: ended.append(completion.success))
                        for _ in range(calls)
                    ]
                    for call in started:
                        await call.wait()
                for call in started:
                    call.cancel()
            return calls - sum(ended[:calls])

        return trio.run(main)

    return run


def declared(simulator: Simulator, form: Form, calls: int) -> int:
    """manystream with traffic control and declared limits."""
    limit = ms.RateLimit(**form.declared)  # type: ignore[arg-type]  # none of them is `concurrent`
    return manystream_client(traffic=ms.Traffic(rates={"*": limit}))(simulator, form, calls)


def together(calls: int, ask: Callable[[], Awaitable[object]]) -> int:
    """Make so many calls at once in asyncio. Returns how many failed."""

    async def one() -> bool:
        try:
            await ask()
        except Exception:  # each client has errors of its own; all that counts is that there is no answer
            return False
        return True

    async def main() -> int:
        tasks = [asyncio.ensure_future(one()) for _ in range(calls)]
        done, late = await asyncio.wait(tasks, timeout=LIMIT_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return calls - sum(task.result() for task in done)

    coroutine: Coroutine[Any, Any, int] = main()
    return asyncio.run(coroutine)


def openai_sdk(simulator: Simulator, form: Form, calls: int) -> int:
    """OpenAI's SDK, with ten retries. It has no form but OpenAI's."""
    client = openai.AsyncOpenAI(
        api_key="key", base_url=simulator.base_urls["openai-chat"], max_retries=RETRIES, timeout=LIMIT_SECONDS
    )

    async def ask() -> None:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": QUESTION}], max_completion_tokens=MAX_OUTPUT, stream=True
        )
        async for _ in stream:
            pass

    return together(calls, ask)


def anthropic_sdk(simulator: Simulator, form: Form, calls: int) -> int:
    """Anthropic's SDK, with ten retries."""
    import anthropic

    client = anthropic.AsyncAnthropic(
        api_key="key", base_url=simulator.base_urls["anthropic"], max_retries=RETRIES, timeout=LIMIT_SECONDS
    )

    async def ask() -> None:
        stream = await client.messages.create(
            model=MODEL, messages=[{"role": "user", "content": QUESTION}], max_tokens=MAX_OUTPUT, stream=True
        )
        async for _ in stream:
            pass

    return together(calls, ask)


_LITELLM_MODELS = {"openai-chat": "openai/", "anthropic": "anthropic/", "gemini": "gemini/"}


def litellm_router(simulator: Simulator, form: Form, calls: int) -> int:
    """LiteLLM's Router, with ten retries."""
    import litellm  # type: ignore[import-not-found]

    parameters = {
        "model": _LITELLM_MODELS[form.dialect] + MODEL,
        "api_base": simulator.base_urls[form.dialect],
        "api_key": "key",
    }
    router = litellm.Router(
        model_list=[{"model_name": MODEL, "litellm_params": parameters}], num_retries=RETRIES, timeout=LIMIT_SECONDS
    )

    async def ask() -> None:
        messages = [{"role": "user", "content": QUESTION}]
        await router.acompletion(model=MODEL, messages=messages, max_tokens=MAX_OUTPUT)

    return together(calls, ask)


_INSPECT_MODELS = {"openai-chat": "openai/", "anthropic": "anthropic/", "gemini": "google/"}


def inspect_adaptive(simulator: Simulator, form: Form, calls: int) -> int:
    """inspect_ai with adaptive connections."""
    from inspect_ai.model import GenerateConfig, get_model  # type: ignore[import-not-found]

    config = GenerateConfig(max_tokens=MAX_OUTPUT, adaptive_connections=True)
    model = get_model(
        _INSPECT_MODELS[form.dialect] + MODEL,
        base_url=simulator.base_urls[form.dialect],
        api_key="key",
        config=config,
        memoize=False,
    )
    return together(calls, lambda: model.generate(QUESTION))


CLIENTS: dict[str, Client] = {"manystream": manystream_client()}
if hasattr(ms, "Traffic"):
    CLIENTS["manystream traffic"] = manystream_client(traffic=ms.Traffic())
    CLIENTS["manystream declared"] = declared
CLIENTS |= {
    "openai SDK": openai_sdk,
    "anthropic SDK": anthropic_sdk,
    "LiteLLM Router": litellm_router,
    "inspect_ai adaptive": inspect_adaptive,
}
ONLY = {"openai SDK": "openai-chat", "anthropic SDK": "anthropic"}
"""Client → the only dialect that it has."""

NEEDS = {"LiteLLM Router": "litellm", "inspect_ai adaptive": "inspect_ai"}
"""Client → the package that must be installed."""


def measure(form: Form, client: Client, calls: int) -> Outcome:
    """Run one client against a new simulator."""
    with open_simulator(ANSWER, journal=0, limits=[form.limit()]) as simulator:
        begin = time.monotonic()
        failed = client(simulator, form, calls)
        seconds = time.monotonic() - begin
        [counts] = simulator.limit_counts()
    requests = counts.accepted + counts.refused
    used = form.used(form.works(counts.accepted), seconds - DURATION)
    return Outcome(used, counts.refused / max(1, requests), failed, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.traffic", description="Use what a server allows.")
    parser.add_argument("--quick", action="store_true", help="1200 calls, without LiteLLM and inspect_ai")
    parser.add_argument("--calls", type=int, default=0, help="calls at once (default: 2000)")
    parser.add_argument("--client", action="append", choices=tuple(CLIENTS), help="only this one; may be repeated")
    parser.add_argument("forms", nargs="*", choices=[[], *FORMS], help="only these")
    arguments = parser.parse_args()
    calls: int = arguments.calls or (1200 if arguments.quick else 2000)
    chosen: list[str] = arguments.client or [name for name in CLIENTS if not (arguments.quick and name in NEEDS)]
    allow_many_sockets()
    print(f"{calls} calls at once; the server allows {CALLS_PER_SECOND:g} a second and holds {BUCKET:g} s of them\n")
    print(HEADING)
    for name in arguments.forms or FORMS:
        form = FORMS[name]
        for client in chosen:
            if ONLY.get(client, form.dialect) != form.dialect:
                continue
            if client in NEEDS and importlib.util.find_spec(NEEDS[client]) is None:
                print(f"{name:20} {client:22} not installed")
                continue
            print(measure(form, CLIENTS[client], calls).row(name, client), flush=True)


if __name__ == "__main__":
    main()
