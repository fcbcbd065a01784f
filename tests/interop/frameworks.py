"""`python -m tests.interop.frameworks NAME`: the CPU of a framework's program on docs/guide/frameworks.md.

The program runs twice, with the framework's own client and with ours, each in a process of its own, against a simulator
in a third. `--python FILE` uses the interpreter of an environment that has the framework.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from manystream.simulator import open_simulator
from tests.docs.check_types import ELSEWHERE
from tests.interop.processes import LITELLM_LIBRARY, ROOT, python_with
from tests.support.blocks import DOCS, Block, read_blocks

PACKAGES = {
    "litellm 1.106.2": (LITELLM_LIBRARY,),
    "verifiers 0.4.0": ("verifiers==0.4.0",),
    "inspect_ai 0.3.285": ("inspect_ai==0.3.285", "openai==3.57.0"),
    "mini-swe-agent 2.4.6": ("mini-swe-agent==2.4.6",),
    "openai 3.57.0": ("openai==3.57.0",),
    "pydantic-ai-slim 2.68.0": ("pydantic-ai-slim[openai]==2.68.0",),
    "langchain-openai 1.7.4": ("langchain-openai==1.7.4",),
}
"""Name and version on the pages → requirements."""
BLOCKS: dict[str, Block] = {
    (block.reason or "").removeprefix(f"{ELSEWHERE}, with "): block
    for page in ("sdk-clients.md", "frameworks.md")
    for block in read_blocks((DOCS / "guide" / page).read_text("utf-8"))
    if (block.reason or "").startswith(ELSEWHERE)
}
MEASURE = """
import asyncio, json, sys, time
names = {"__name__": "__main__"}
exec(compile(open("program.py").read(), "program.py", "exec"), names)
async def measure(calls, ours):
    await names["ask"](10, ours=ours)
    before = time.process_time()
    try:
        answers = await names["ask"](calls, ours=ours)
    except Exception as error:
        answers = type(error).__name__
    return time.process_time() - before, answers
print(json.dumps(asyncio.run(measure(int(sys.argv[1]), sys.argv[2] == "ours"))))
"""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a program of the pages: no keys, no proxy, a home folder of its own."""
    return {
        "PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "PYTHONPATH": str(ROOT),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", "MSWEA_SILENT_STARTUP": "1",
    }  # fmt: skip


def main() -> None:
    """Print both figures, their ratio, and whether the answers are the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[name.split()[0] for name in list(PACKAGES)[1:]])
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--limit", action="append", default=[], help="a rate limit of the simulator")
    parser.add_argument("--python", type=Path, help="an interpreter that has the framework")
    chosen = parser.parse_args()
    (library,) = (name for name in PACKAGES if name.split()[0] == chosen.name)
    python = chosen.python or python_with(*PACKAGES[library])
    cpu: dict[str, float] = {}
    answers: list[str | list[object]] = []
    with (
        open_simulator("delay=0.5,events=50", limits=chosen.limit) as simulator,
        tempfile.TemporaryDirectory() as folder,
    ):
        program = BLOCKS[library].code.replace("http://127.0.0.1:8080", simulator.origin)
        Path(folder, "program.py").write_text(program, "utf-8")
        for client in ("own", "ours"):
            done = subprocess.run(
                [str(python.absolute()), "-c", MEASURE, str(chosen.calls), client], cwd=folder, check=True,
                capture_output=True, text=True, env=environment(Path(folder)),
            )  # fmt: skip
            cpu[client], answered = json.loads(done.stdout.splitlines()[-1])
            answers.append(answered)
    same = "the same answers" if answers[0] == answers[1] else "; ".join(
        f"{client}: {answered if isinstance(answered, str) else f'{len(answered)} answers'}"
        for client, answered in zip(cpu, answers, strict=True)
    )  # fmt: skip
    print(f"{library}, {chosen.calls} calls: own {cpu['own']:.2f} s, ours {cpu['ours']:.2f} s,", end=" ")
    print(f"{cpu['own'] / cpu['ours']:.1f} times; {same}")


if __name__ == "__main__":
    main()
