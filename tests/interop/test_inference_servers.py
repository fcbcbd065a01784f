"""Token-exact calls against a real vLLM and a real SGLang, where one runs.

    MANYSTREAM_VLLM_URL=http://127.0.0.1:8000 MANYSTREAM_SGLANG_URL=http://127.0.0.1:30000 make interop

vLLM runs with `--enable-scale-out` and `VLLM_SERVER_DEV_MODE=1`. Each server has one model. `MANYSTREAM_TOKEN_CALLS` is
the number of calls to each; 10,000 take some minutes on a CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

import manystream as ms
from manystream.tokens import chat_template

CALLS = int(os.environ.get("MANYSTREAM_TOKEN_CALLS", "10000"))
AT_ONCE = 1024
PROMPTS = 20
LENGTH = 12
TURNS = 8
END_OF_ANSWER = int(os.environ.get("MANYSTREAM_END_OF_ANSWER", "2"))
"""The id with which the model ends an answer."""

Answer = tuple[list[int], list[float]]
"""The ids of an answer, and their log probabilities."""


def read_vllm(answer: Any) -> Answer:
    (choice,) = answer["choices"]
    return choice["token_ids"], [entry["logprob"] for entry in choice["logprobs"]["content"]]


def read_sglang(answer: Any) -> Answer:
    return answer["output_ids"], [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]


@dataclass(frozen=True)
class Server:
    """A kind of server, and how it is asked without the library.

    variable: names its address in the environment.
    temperatures: those at which it repeats an answer.
    path, body, read: how it is asked for ids.
    """

    variable: str
    provider: Callable[..., ms.Provider]
    temperatures: tuple[float, ...]
    path: str
    body: Callable[[list[int], int, float, int], Mapping[str, object]]
    read: Callable[[Any], Answer]
    running: str

    @property
    def url(self) -> str:
        return os.environ.get(self.variable, "")

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def model(self) -> str:
        with urllib.request.urlopen(f"{self.url}/v1/models", timeout=10) as answer:
            return str(json.load(answer)["data"][0]["id"])

    def requests_running(self) -> float:
        return sum(float(line.split()[-1]) for line in self.metrics() if line.startswith(self.running + "{"))

    def metrics(self) -> list[str]:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return answer.read().decode().splitlines()


SERVERS = {
    "vllm": Server(
        "MANYSTREAM_VLLM_URL", ms.VLLMGenerate, (0.0, 1.0), "/inference/v1/generate",
        lambda ids, limit, temperature, seed: {"token_ids": ids, "sampling_params": {"max_tokens": limit,
            "ignore_eos": True, "logprobs": 0, "temperature": temperature, "seed": seed}},
        read_vllm, "vllm:num_requests_running",
    ),
    "sglang": Server(
        "MANYSTREAM_SGLANG_URL", ms.SGLangGenerate, (0.0,), "/generate",
        lambda ids, limit, temperature, seed: {"input_ids": ids, "return_logprob": True, "sampling_params":
            {"max_new_tokens": limit, "ignore_eos": True, "temperature": temperature}},
        read_sglang, "sglang:num_running_reqs",
    ),
}  # fmt: skip


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    server = SERVERS[request.param]
    if not server.url:
        pytest.skip(f"{server.variable} names no server")
    return server


pytestmark = pytest.mark.servers


@dataclass
class Answers:
    """The server's own unstreamed answers, each asked for once."""

    server: Server
    model: str
    known: dict[tuple[int, ...], Answer] = field(default_factory=dict)
    room: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(32))

    def prompt(self, number: int) -> list[int]:
        return [1, 5, 6 + number % PROMPTS]

    def length(self, number: int) -> int:
        """Return the number of ids. It differs, so that pauses come at any place of an answer."""
        return LENGTH + number % PROMPTS

    def temperature(self, number: int) -> float:
        return self.server.temperatures[number % len(self.server.temperatures)]

    def ask(self, number: int, before: list[int]) -> Answer:
        ids, limit, seed = self.prompt(number) + before, self.length(number) - len(before), number % PROMPTS
        body = self.server.body(ids, limit, self.temperature(number), seed)
        return self.server.read(self.server.post(self.server.path, {"model": self.model, **body}))

    async def after(self, number: int, before: list[int]) -> Answer:
        """Return what the server appends to these ids of an answer."""
        key = (number % PROMPTS, *before)
        if key not in self.known:
            self.known[key] = await trio.to_thread.run_sync(self.ask, number, before, limiter=self.room)
        return self.known[key]

    def request(self, number: int) -> ms.Request:
        return ms.Request(
            f"server/{self.model}", prompt_token_ids=self.prompt(number), logprobs=0,
            max_output_tokens=self.length(number), temperature=self.temperature(number), seed=number % PROMPTS,
            continue_aborted=True, extra_body={"sampling_params": {"ignore_eos": True}},
        )  # fmt: skip


@pytest.mark.timeout(3600)
async def test_ids_survive_cancellations_and_three_updates(server: Server) -> None:
    answers, completions = Answers(server, server.model()), dict[int, ms.Completion]()
    wrong, continued = list[int](), 0
    room = trio.Semaphore(AT_ONCE)

    async def one(number: int, engine: ms.Engine) -> None:
        ids: list[int] = []

        def on_event(event: ms.Event) -> None:
            if isinstance(event, ms.TextDelta) and event.tokens is not None:
                ids.extend(event.tokens.ids or ())
            if number % 10 == 9 and len(ids) > LENGTH // 2:
                call.cancel()

        def on_completion(completion: ms.Completion) -> None:
            assert number not in completions
            completions[number] = completion
            tokens = completion.response and completion.response.tokens
            if tokens is None or ids != [*tokens.ids]:
                wrong.append(number)

        async with room:
            call = engine.start_stream(answers.request(number), on_event, on_completion)
            await call.wait()

    async def check(number: int) -> None:
        nonlocal continued
        completion = completions[number]
        assert completion.response is not None
        tokens = completion.response.tokens
        assert tokens is not None
        # A part that was cancelled has no span.
        ids, starts = [*tokens.ids], sorted({0, *(span.end for span in tokens.weight_versions)} - {len(tokens.ids)})
        continued += len(starts) > 1
        right = completion.success != (number % 10 == 9) and tokens.logprobs is not None
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            expected_ids, expected_logprobs = await answers.after(number, ids[:start])
            right = right and ids[start:end] == expected_ids[: end - start]
            right = right and [*(tokens.logprobs or ())[start:end]] == expected_logprobs[: end - start]
        if not right or (completion.success and len(ids) != answers.length(number)):
            wrong.append(number)

    async with ms.open_engine([server.provider(base_url=server.url, name="server")]) as engine:
        async with trio.open_nursery() as nursery:
            for number in range(CALLS):
                nursery.start_soon(one, number, engine)
            for update in (1, 2, 3):
                while len(completions) < CALLS * update // 4:
                    await trio.sleep(0.02)
                await engine.pause("server", "abort")
                version = {"new_version": f"v{update}", "abort_all_requests": False}
                await trio.to_thread.run_sync(server.post, "/update_weight_version", version)
                await engine.resume("server")
        assert len(completions) == CALLS
        for _ in range(50):  # what was cancelled has ended at the server, too
            if not await trio.to_thread.run_sync(server.requests_running):
                break
            await trio.sleep(0.2)
        else:
            pytest.fail("the server goes on with calls that were cancelled")
    async with trio.open_nursery() as nursery:
        for number in range(CALLS):
            nursery.start_soon(check, number)
    print(f"{CALLS} calls, {continued} continued, {len(answers.known)} answers compared")
    assert wrong == []
    assert continued


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_and_completions_have_the_same_ids(server: Server, stream: bool) -> None:
    if server is SERVERS["sglang"] and stream:
        pytest.skip("SGLang sends no log probabilities with the ids of a stream")
    model = server.model()
    profile = "vllm" if server is SERVERS["vllm"] else "sglang"
    chat = ms.OpenAIChat("any", f"{server.url}/v1", profile=profile, name="chat")
    async with ms.open_engine([chat, ms.OpenAICompletions("any", f"{server.url}/v1", name="text")]) as engine:
        for provider in ("chat", "text"):
            request = ms.Request(
                f"{provider}/{model}", "Hello", return_tokens=True, logprobs=0, temperature=0, max_output_tokens=LENGTH
            )
            call = engine.start_stream(request) if stream else engine.start_request(request)
            response = (await call.wait()).response_or_raise()
            other = await engine.request(request)
            assert response.tokens is not None
            assert response.tokens == other.tokens
            assert response.tokens.prompt_ids
            assert len(response.tokens.ids) == response.usage.output_tokens


@pytest.mark.parametrize("tool", [False, True])
async def test_eight_turns_are_never_tokenised_again(server: Server, tool: bool) -> None:
    """Each prompt is the last one, its answer, and what the template writes; the server reports the prompt it got."""
    model, at_once = server.model(), 32
    template = chat_template(base_url=server.url if server is SERVERS["vllm"] else f"{server.url}/v1")
    async with ms.open_engine([template, server.provider(base_url=server.url, name="server")]) as engine:

        async def converse(number: int) -> None:
            turns, before = ms.Turns(), list[int]()
            for turn in range(TURNS):
                news: ms.Message = ms.Message.user(f"question {number}, {turn}")
                if tool and turn:
                    news = ms.Message.tool_result(f"call{turn}", f"result {turn}")
                await turns.render(engine.request, f"chat-template/{model}", [news])
                assert [*turns.ids[: len(before)]] == before
                assert len(turns) > len(before)
                options: ms.RequestOptions = {"temperature": server.temperatures[-1], "seed": number}
                if tool:  # a call is whole: its answer has ended
                    options["extra_body"] = {"sampling_params": {"logit_bias": {str(END_OF_ANSWER): 100}}}
                request = turns.request(f"server/{model}", max_output_tokens=LENGTH, logprobs=0, **options)
                response = await engine.request(request)
                assert response.tokens is not None
                assert response.tokens.prompt_ids in (None, turns.ids)
                assert response.usage.input_tokens == len(turns)
                turns.add(response)
                assert turns.sampled.count(1) > 0
                before = [*turns.ids]

        async with trio.open_nursery() as nursery:
            for number in range(at_once):
                nursery.start_soon(converse, number)


# The figures of `manystream bench` beside the server's own.

METRICS = {"ttft": "time_to_first_token", "tpot": "request_time_per_output_token", "e2el": "e2e_request_latency"}
"""Our figure → vLLM's histogram of that span. It measures between its engine and its HTTP, so ours are longer."""


def spans() -> dict[str, tuple[float, float]]:
    """Return the sum and the number of the spans of each figure."""
    lines = SERVERS["vllm"].metrics()

    def total(metric: str, kind: str) -> float:
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{metric}_seconds_{kind}{{"))

    return {name: (total(metric, "sum"), total(metric, "count")) for name, metric in METRICS.items()}


def test_bench_reports_the_times_that_the_server_reports(tmp_path: Path) -> None:
    """The answers consist of letters: of random tokens, many would end no character and so send no text."""
    vllm, calls, length = SERVERS["vllm"], 64, 100
    if not vllm.url:
        pytest.skip(f"{vllm.variable} names no server")
    letters = [
        vllm.post("/tokenize", {"prompt": letter, "add_special_tokens": False})["tokens"][0] for letter in "abcdefgh"
    ]
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": length, "ignore_eos": True}
    body["allowed_token_ids"] = letters
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}))
    before = spans()
    words = [
        f"{vllm.url}/v1",
        "--model",
        vllm.model(),
        "--prompts",
        str(prompts),
        "-n",
        str(calls),
        "-c",
        "4",
        "--ramp",
        "0",
    ]
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
