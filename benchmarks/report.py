"""RESULTS.md and the data for the plots, out of the answers. Knows no question."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .answers import Answer, comparison, number, verdict
from .environment import ROOT, clients_variables, machine, versions

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
PLOTS = FOLDER / "plots"

INTRODUCTION = """\
# Results

Written by `python -m benchmarks`; not edited by hand. All figures are of one run on one machine, client on one core,
load source on the other. Absolute figures drift from machine to machine and from day to day: compare the ratios,
which were measured in the same run.

Latency is from the load source's send to the user's callback. A run in which the source could not keep its own
schedule, or in which other work had one of the two cores for more than 3 % of the time, was repeated.
"""


def markdown(answers: list[Answer], python: str, quick: bool) -> str:
    """The whole file."""
    parts = [INTRODUCTION]
    if quick:
        parts.append("This was a quick run: fewer events, coarser searches, fewer questions.\n")
    facts = {**machine(), **versions(python)}
    parts.append("| on | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in facts.items()))
    for answer in answers:
        parts.append(f"## {answer.question}\n")
        lines = ["| what | measured | compared | asked for | |", "|---|---:|---|---|---|"]
        lines += [
            f"| {row.what} | {number(row.value)} {row.unit} | {comparison(row)} | {row.target} | {verdict(row)} |"
            for row in answer.rows
        ]
        parts.append("\n".join(lines) + "\n")
        parts += [f"{note[0].upper()}{note[1:]}.\n" for note in answer.notes]
    return "\n".join(parts)


def write(answers: list[Answer], python: str, quick: bool) -> None:
    """RESULTS.md and the plots."""
    RESULTS.write_text(markdown(answers, python, quick))
    series = [
        {"plot": line.plot, "label": line.label, "points": line.points} for answer in answers for line in answer.series
    ]
    PLOTS.mkdir(exist_ok=True)
    subprocess.run(
        [python, "-m", "benchmarks.draw", str(PLOTS)],
        input=json.dumps(series),
        text=True,
        env=clients_variables(),
        cwd=ROOT,
        check=True,
        timeout=120,
    )
