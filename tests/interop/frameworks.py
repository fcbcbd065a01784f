"""The programs of frameworks on the pages, and what they need. `benchmarks/programs.py` measures them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.docs.check_types import ELSEWHERE
from tests.interop.processes import LITELLM_LIBRARY, ROOT
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
