"""`python -m benchmarks [--quick] [--write] [QUESTION…]` runs the set, and writes results.json and what comes of it.

`python -m benchmarks.report` makes it again: RESULTS.md, and the figures of other pages.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from . import (
    agents,
    batch_deadlines,
    bench_stamp,
    cold_tls,
    decode,
    event_costs,
    extremes,
    gateway,
    hold,
    import_time,
    instructions,
    latency,
    live_streams,
    load_clients,
    memory,
    prefixes,
    programs,
    ray_batch,
    report,
    scaling,
    sdk_transports,
    serialise,
    start_latency,
    tool_loop,
    unstreamed,
    vllm_queue,
)
from .answers import Answer
from .environment import clients_python
from .runs import Run, RunError
from .source.build import BuildError
from .source.process import running_source

QUESTIONS: dict[str, Callable[[Run], Answer]] = {
    "live_streams": live_streams.answer,
    "cpu_per_event": event_costs.cpu_per_event,
    "wire_forms": event_costs.wire_forms,
    "tokens": event_costs.tokens,
    "latency": latency.answer,
    "decode": decode.answer,
    "serialise": serialise.answer,
    "memory": memory.answer,
    "scaling": scaling.answer,
    "start_latency": start_latency.answer,
    "cold_tls": cold_tls.answer,
    "unstreamed": unstreamed.answer,
    "sdk_transports": sdk_transports.calls,
    "sdk_streams": sdk_transports.streams,
    "gateway": gateway.answer,
    "programs": programs.answer,
    "tool_loop": tool_loop.answer,
    "prefixes": prefixes.answer,
    "batch_deadlines": batch_deadlines.answer,
    "ray_batch": ray_batch.answer,
    "vllm_queue": vllm_queue.answer,
    "bridges": event_costs.bridges,
    "agents": agents.answer,
    "load_clients": load_clients.answer,
    "bench_stamp": bench_stamp.answer,
    "extremes": extremes.answer,
    "import_time": import_time.answer,
    "hold": hold.answer,
    "instructions": instructions.answer,
}
NOT_QUICK = (
    "agents",
    "bench_stamp",
    "gateway",
    "hold",
    "instructions",
    "load_clients",
    "programs",
    "ray_batch",
    "sdk_transports",
    "sdk_streams",
    "vllm_queue",
    "wire_forms",
)
"""Questions that `--quick` omits: a whole application, streams held for five minutes, the emulated processor, calls
that take seconds, other load generators, many forms."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure manystream and its peers.")
    parser.add_argument("--quick", action="store_true", help="under three minutes: fewer events, coarser searches")
    parser.add_argument(
        "--write",
        action="store_true",
        help="with questions: replace their answers in results.json and on the pages, and their plots",
    )
    parser.add_argument(
        "questions", nargs="*", choices=[[], *QUESTIONS], help="only these; without --write, nothing is written then"
    )
    arguments = parser.parse_args()
    quick: bool = arguments.quick
    chosen: list[str] = arguments.questions or [name for name in QUESTIONS if not (quick and name in NOT_QUICK)]
    begin = time.perf_counter()
    try:
        python = clients_python()
        with running_source(python) as source:
            answers = {name: ask(name, Run(source, python, quick)) for name in chosen}
    except BuildError as error:
        raise SystemExit(f"benchmarks: {error}") from None
    if arguments.write or not arguments.questions:
        report.write(answers, python, quick=quick, whole=not arguments.questions)
    missed = [row for answer in answers.values() for row in answer.rows if row.met is False]
    silent = sum(not answer.rows for answer in answers.values())
    print(f"\n{len(missed)} targets missed, {silent} questions not answered; {time.perf_counter() - begin:.0f} seconds")


def ask(name: str, run: Run) -> Answer:
    """Answer one question. If a run fails, the failure is the answer."""
    print(f"\n{name.replace('_', ' ')}", flush=True)
    try:
        answer = QUESTIONS[name](run)
    except RunError as error:
        answer = Answer(name.replace("_", " "), notes=[f"not measured: {error}"])
    for note in answer.notes:
        print(f"  note: {note}")
    return answer


if __name__ == "__main__":
    main()
