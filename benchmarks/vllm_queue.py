"""What does a limit by the server's own queue gain at a real vLLM, beside a fixed one and none?

vLLM runs with a tiny random model, and each step of its scheduler lasts as long as one of a GPU might. All calls start
at once. Measured: tokens per second, and the seconds that a call has waited in vLLM's own queue. MANYSTREAM_BENCH_VLLM
names an interpreter that has vLLM; an environment of several gigabytes is not made here.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path

import trio

import manystream as ms

from .answers import Answer
from .gateway import free_port, running
from .load_clients import VARIABLE
from .runs import Run, RunError, by_turns, run_command

SEATS = 128
"""The sequences that the server runs at a time."""
LOADS = {"1,024 calls of 16 tokens": (1024, 16), "512 calls of 128 tokens": (512, 128)}
ROUNDS = 2
LIMITS: dict[str, ms.Traffic | None] = {
    f"a fixed limit of {SEATS}": ms.Traffic(rates={"s": ms.RateLimit(concurrent=SEATS)}, adaptive=False),
    "adaptive, nothing declared": ms.Traffic(),
    "no traffic control": None,
}
SHARE = 0.95

MODEL = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
made = Tokenizer(models.BPE({**{letter: number for number, letter in enumerate(letters)}, "<|end|>": 256}, []))
made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
template = "{% for m in messages %}{{ m.content }}{% endfor %}"
fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", pad_token="<|end|>", chat_template=template)
fast.save_pretrained(sys.argv[1])
torch.manual_seed(0)
config = LlamaConfig(vocab_size=320, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, head_dim=64, max_position_embeddings=8192, initializer_range=0.6, eos_token_id=256)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""
"""Makes a tiny random Llama with a tokenizer of single bytes."""

STEPS = """
import time
def register():
    from vllm.v1.worker import cpu_worker
    inner = cpu_worker.CPUWorker.execute_model
    def execute_model(self, scheduled, *arguments, **options):
        began, result = time.monotonic(), inner(self, scheduled, *arguments, **options)
        if count := len(scheduled.num_scheduled_tokens):
            prompts = scheduled.total_num_scheduled_tokens - count
            time.sleep(max(0.0, 0.04 + 4e-5 * count + 2e-5 * prompts - (time.monotonic() - began)))
        return result
    cpu_worker.CPUWorker.execute_model = execute_model
"""
"""A plugin of vLLM: a step lasts 40 ms, and longer with each sequence and each token of a prompt."""


def answer(run: Run) -> Answer:
    """Measure the three limits by turns."""
    result = Answer("A real vLLM behind three limits, all calls at once")
    python = os.environ.get(VARIABLE, "")
    if not python:
        raise RunError(f"{VARIABLE} names no interpreter that has vLLM")
    with tempfile.TemporaryDirectory() as folder:
        run_command([python, "-c", MODEL, f"{folder}/tiny"], folder)
        Path(folder, "steps.py").write_text(STEPS)
        Path(folder, "steps-1.dist-info").mkdir()
        Path(folder, "steps-1.dist-info", "METADATA").write_text("Name: steps\nVersion: 1\n")
        Path(folder, "steps-1.dist-info", "entry_points.txt").write_text("[vllm.general_plugins]\nsteps=steps:register")
        environment = {"PYTHONPATH": folder, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", f"{folder}/tiny"]
        command += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--enforce-eager", "--dtype", "bfloat16"]
        command += ["--max-model-len", "4096", "--max-num-seqs", str(SEATS), "--disable-uvicorn-access-log"]
        port = free_port()
        with running(command, port, {**environment, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}):
            trio.run(_calls, port, LIMITS[f"a fixed limit of {SEATS}"], 32, 8)  # warm
            for name, load in LOADS.items():
                _report(result, run, name, port, load)
    return result


def _report(result: Answer, run: Run, name: str, port: int, load: tuple[int, int]) -> None:
    waits: dict[str, float] = {}

    def rate(limit: str) -> float:
        before, began = _queued(port), time.monotonic()
        trio.run(_calls, port, LIMITS[limit], *load)
        waits[limit] = (_queued(port) - before) / load[0]
        return load[0] * load[1] / (time.monotonic() - began)

    found = by_turns(run, {limit: partial(rate, limit) for limit in LIMITS}, ROUNDS)
    fixed = next(iter(LIMITS))
    for limit, tokens in found.items():
        ratio, judged = tokens / found[fixed], limit.startswith("adaptive")
        target, met = (f"≥ {SHARE:g} × {fixed}", ratio >= SHARE) if judged else ("", None)
        result.add(
            f"{name}, {limit}", tokens, "tokens/s", ratio=ratio, against=fixed, target=target, met=met, shown=True
        )
        result.add(f"{name}, {limit}: wait in the server", waits[limit], "s")


async def _calls(port: int, traffic: ms.Traffic | None, count: int, tokens: int) -> None:
    provider = ms.OpenAIChat("key", f"http://127.0.0.1:{port}/v1", name="s", profile="vllm")
    async with ms.open_engine([provider], traffic=traffic) as engine:
        options = {"max_output_tokens": tokens, "extra_body": {"ignore_eos": True}}
        started = [engine.start_stream(ms.Request("s/tiny", f"word {n}", **options)) for n in range(count)]
        for call in started:
            (await call.wait()).response_or_raise()


def _queued(port: int) -> float:
    """Return the seconds that all calls so far have waited in vLLM's queue."""
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    return sum(map(float, re.findall(r"(?m)^vllm:request_queue_time_seconds_sum(?:\{[^\n]*\})? ([\d.e+-]+)", page)))
