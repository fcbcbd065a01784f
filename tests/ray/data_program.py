"""A program that asks the rows of a data set: `python data_program.py SETTINGS`, a JSON object.

address: the Ray cluster, or "local".
base_url: the server.
rows, blocks, actors, concurrency: numbers.
delay: seconds of each answer.
journal: the file of answers, or null.
requests_per_second: the limit of all actors together, or null.
output: the file that the rows are written to, as JSON lines.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray  # pyright: ignore[reportMissingImports]

import manystream as ms
import manystream.ray

FAILS_EVERY = 100
"""Each row with such a number fails."""


def row(number: int, delay: float) -> dict[str, object]:
    said = "simulate: fail=400" if number % FAILS_EVERY == 0 else f"simulate: delay={delay}"
    return {"id": f"q{number}", "messages": [{"role": "user", "content": said}], "number": number}


def main() -> None:
    settings = json.loads(sys.argv[1])
    local = settings["address"] == "local"
    options = {"num_cpus": 4, "include_dashboard": False} if local else {}
    ray.init(settings["address"], log_to_driver=False, logging_level=logging.ERROR, **options)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rate = settings["requests_per_second"]
    rows = [row(number, settings["delay"]) for number in range(settings["rows"])]
    asked = ray.data.from_items(rows).repartition(settings["blocks"])
    answered = asked.map_batches(
        manystream.ray.Ask,
        **manystream.ray.ask_options(
            "sim/sim-text",
            actors=settings["actors"],
            concurrency=settings["concurrency"],
            providers=[ms.OpenAIChat("5ecret", settings["base_url"], name="sim")],
            traffic=ms.Traffic(rates={"sim": ms.RateLimit(requests_per_second=rate)}) if rate else None,
            journal=settings["journal"],
        ),
    )
    lines = (json.dumps(found) for found in answered.iter_rows())
    Path(settings["output"]).write_text("\n".join(lines), "utf-8")
    print(answered.schema())


main()
