"""What load generators report of a server whose times are known: `python -m benchmarks.load_clients [--quick]`.

The load source sends the first event of a stream at once, and then one every 20 ms. It reports how late it was itself,
so what a load generator reports above that is its own. Each makes 1,000 streams at a time, on the client's core alone.
The generators are installed into environments of their own, in the newest versions that pip finds, and their versions
are in the result. `MANYSTREAM_BENCH_AIPERF`, `MANYSTREAM_BENCH_GUIDELLM` and `MANYSTREAM_BENCH_VLLM` name the
interpreters of environments that exist. vLLM's, of several gigabytes, is not made here: without its name it is omitted.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .answers import Answer
from .environment import ROOT, made_environment
from .runs import Run, run_command
from .source.process import Statistics

STREAMS, QUICK_STREAMS = 1000, 100
EVENTS, RATE = 200, 50
SECONDS = 10
LOAD = f"load/events={EVENTS}&rate={RATE}&phase=0"
"""The load in the source's path. One generator splits its URLs at commas."""
LONGEST = 300.0
VARIABLE = "MANYSTREAM_BENCH_VLLM"
"""Names an interpreter that has vLLM."""

TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
made = Tokenizer(models.BPE({**{letter: number for number, letter in enumerate(letters)}, "<|end|>": 256}, []))
made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", pad_token="<|end|>").save_pretrained(sys.argv[1])
"""
"""Makes a tokenizer of single bytes, for generators that would download one."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What a load generator reports: times in milliseconds, and calls per second.

    itl_p99: the 99th percentile of single gaps; None if it reports only their mean for each call.
    stamp: whether it vouches for its figures, and why not; empty if it does not judge itself.
    """

    ttft_p50: float
    ttft_p99: float
    itl_p99: float | None
    calls: float
    stamp: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Generator:
    """A load generator.

    package: what pip installs; empty for ours.
    heavy: whether its environment must exist already.
    command: the words of its command, from its program, the URL, the streams, and a folder for its files.
    read: returns what it reported, from its output and the folder.
    """

    name: str
    package: str
    command: Callable[[str, str, int, str], list[str]]
    read: Callable[[str, Path], Reported]
    heavy: bool = False


def _ours(program: str, url: str, streams: int, _: str) -> list[str]:
    words = [program, "-m", "manystream", "bench", f"{url}/v1", "--model", "m", "--json"]
    return [*words, "--concurrency", str(streams), "--seconds", str(SECONDS)]


def read_ours(page: Mapping[str, Any]) -> Reported:
    """Return what a result of `manystream bench --json` has."""
    ttft, itl = page["ttft"], page["itl"]
    judged = page["validity"]
    stamp = ({True: "VALID", False: "INVALID", None: "NOT JUDGED"}[judged["valid"]], *judged["reasons"])
    return Reported(ttft["p50"] * 1000, ttft["p99"] * 1000, itl["p99"] * 1000, page["calls_per_second"], stamp)


def _aiperf(program: str, url: str, streams: int, folder: str) -> list[str]:
    calls = streams * SECONDS * RATE // EVENTS
    words = [str(Path(program).with_name("aiperf")), "profile", "--model", "m", "--url", url, "--endpoint-type", "chat"]
    words += ["--streaming", "--concurrency", str(streams), "--request-count", str(calls), "--ui-type", "none"]
    words += ["--tokenizer", f"{folder}/tokenizer", "--use-server-token-count", "--synthetic-input-tokens-mean", "16"]
    return [*words, "--output-artifact-dir", folder]


def _read_aiperf(_: str, folder: Path) -> Reported:
    page = json.loads((folder / "profile_export_aiperf.json").read_bytes())
    ttft, gaps = page["time_to_first_token"], page["inter_chunk_latency"]
    return Reported(ttft["p50"], ttft["p99"], gaps["p99"], page["request_throughput"]["avg"])


def _guidellm(program: str, url: str, streams: int, folder: str) -> list[str]:
    backend = {"kind": "openai_http", "target": url, "model": "m", "http2": False, "validate_backend": False}
    words = [str(Path(program).with_name("guidellm")), "run", "--backend", json.dumps(backend), "--disable-console"]
    words += ["--profile", f"kind=concurrent,streams={streams}", "--constraint", f"kind=max_duration,seconds={SECONDS}"]
    words += ["--tokenizer", f"kind=huggingface_auto,model={folder}/tokenizer"]
    words += ["--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={EVENTS}"]
    return [*words, "--output", f"kind=json,path={folder}/result.json"]


def _read_guidellm(_: str, folder: Path) -> Reported:
    metrics = json.loads((folder / "result.json").read_bytes())["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]["percentiles"]
    return Reported(ttft["p50"], ttft["p99"], None, metrics["requests_per_second"]["successful"]["mean"])


VLLM_BENCH_SERVE = """
from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
serve.add_cli_args(parser)
serve.main(parser.parse_args())
"""
"""The command `vllm bench serve`, which the builds for a CPU do not start under its name."""


def _vllm(program: str, url: str, streams: int, folder: str) -> list[str]:
    calls = streams * SECONDS * RATE // EVENTS
    words = [program, "-c", VLLM_BENCH_SERVE, "--backend", "openai-chat", "--base-url", url, "--model", "m"]
    words += ["--endpoint", "/v1/chat/completions", "--tokenizer", f"{folder}/tokenizer", "--dataset-name", "random"]
    words += ["--random-input-len", "16", "--random-output-len", str(EVENTS), "--num-prompts", str(calls)]
    words += ["--max-concurrency", str(streams), "--percentile-metrics", "ttft,itl", "--metric-percentiles", "50,99"]
    return [*words, "--disable-tqdm", "--save-result", "--result-dir", folder, "--result-filename", "result.json"]


def _read_vllm(_: str, folder: Path) -> Reported:
    page = json.loads((folder / "result.json").read_bytes())
    return Reported(page["p50_ttft_ms"], page["p99_ttft_ms"], page["p99_itl_ms"], page["request_throughput"])


GENERATORS = (
    Generator("manystream bench", "", _ours, lambda output, _: read_ours(json.loads(output))),
    Generator("aiperf", "aiperf", _aiperf, _read_aiperf),
    Generator("guidellm", "guidellm", _guidellm, _read_guidellm),
    Generator("vLLM's client", "vllm", _vllm, _read_vllm, heavy=True),
)


def answer(run: Run) -> Answer:
    """Measure each generator."""
    streams = QUICK_STREAMS if run.quick else STREAMS
    result = Answer(f"What load generators report of {streams:,} streams with an event every {1000 / RATE:g} ms")
    for generator in GENERATORS:
        try:
            program = _interpreter(generator) or run.python
            run.source.reset()
            found = _measure(run, generator, program, streams)
        except (OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
            result.notes.append(f"{generator.name}: not measured: {error}")
            continue
        truth = run.source.reset()
        _add(result, generator, found, truth, streams, ours=not generator.package)
        late = f"the source was late by {truth['late_p50_ms']} ms (p50) and {truth['late_p99_ms']} ms (p99)"
        version = _version(program, generator.package)
        result.notes.append(f"{generator.name}: version {version}; {'; '.join([*found.stamp, late])}")
    return result


def _add(result: Answer, generator: Generator, found: Reported, truth: Statistics, streams: int, *, ours: bool) -> None:
    """Add the rows of a generator."""
    calls = streams * RATE / EVENTS
    for name, (value, bound, target) in bounds(found, truth).items():
        if value is None:
            continue
        met = value <= bound if ours else None
        result.add(f"{generator.name}: {name}", value, "ms", target=target if ours else "", met=met)
    met = abs(found.calls / calls - 1) <= 0.02 if ours else None
    target = f"{calls:g} within 2%" if ours else ""
    result.add(f"{generator.name}: calls", found.calls, "calls/s", target=target, met=met, shown=True)


def bounds(found: Reported, truth: Statistics) -> Mapping[str, tuple[float | None, float, str]]:
    """Return each figure, its bound in milliseconds, and what the bound is.

    The truth is 0 ms to the first event, and 20 ms between two, both as late as the source was.
    """
    late50, late99 = truth["late_p50_ms"], truth["late_p99_ms"]
    return {
        "TTFT p50": (found.ttft_p50, 0.5 + late50, "truth + 0.5 ms"),
        "TTFT p99": (found.ttft_p99, 5.0 + late99, "truth + 5 ms"),
        "ITL p99": (found.itl_p99, 1000 / RATE + 2.0 + late99, "truth + 2 ms"),
    }


def _measure(run: Run, generator: Generator, program: str, streams: int) -> Reported:
    with tempfile.TemporaryDirectory() as folder:
        if generator.package:
            made = [program, "-c", TOKENIZER, f"{folder}/tokenizer"]
            subprocess.run(made, check=True, timeout=LONGEST, capture_output=True)
        url = f"{run.source.origin()}/{LOAD}"
        command = generator.command(program, url, streams, folder)
        return generator.read(run_command(command, folder if generator.package else str(ROOT)), Path(folder))


def _interpreter(generator: Generator) -> str:
    """Return the interpreter of an environment that has a generator; empty for ours. Raises `OSError`."""
    if not generator.heavy:
        return made_environment(generator.package, generator.package) if generator.package else ""
    if not os.environ.get(VARIABLE):
        raise OSError(f"{VARIABLE} names no interpreter that has it")
    return os.environ[VARIABLE]


def _version(program: str, package: str) -> str:
    names = (package, f"{package}-cpu") if package else ("manystream",)
    query = f"import importlib.metadata as m; print(*[d.version for d in m.distributions() if d.name in {names}][:1])"
    done = subprocess.run([program, "-c", query], capture_output=True, text=True, timeout=60)
    return done.stdout.strip() or "of this checkout"
