"""Writes RESULTS.md and the plots from the answers."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from .answers import Answer, comparison, number, verdict
from .environment import ROOT, clients_variables, machine, versions

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
PLOTS = FOLDER / "plots"
SERIES = PLOTS / "series.json"

INTRODUCTION = """\
# Results

This page has the measurements of one run on one machine. `python -m benchmarks` writes it; do not edit it. The client
runs on one core, the load source on the other. Absolute figures differ between machines and days. Compare the ratios:
both of their figures come from the same run. A section that was measured again by itself has a date of its own.

| word | meaning |
|---|---|
| latency | from the send of the load source to the callback of the user |
| repeated run | the source was late, or other work had one of the two cores for more than 3 % of the time |
| met, MISSED | whether the target was reached |
"""


def markdown(answers: list[Answer], python: str, quick: bool) -> str:
    """The text of RESULTS.md."""
    parts = [INTRODUCTION]
    if quick:
        parts.append("This was a quick run: fewer events, coarser searches, fewer questions.\n")
    facts = {**machine(), **versions(python)}
    parts.append(
        "| machine and versions | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    )
    parts += map(section, answers)
    return "\n".join(parts)


def section(answer: Answer) -> str:
    """The section of RESULTS.md about one question."""
    lines = ["| what | measured | compared | target | |", "|---|---:|---|---|---|"]
    lines += [
        f"| {row.what} | {number(row.value)} {row.unit} | {comparison(row)} | {row.target} | {verdict(row)} |"
        for row in answer.rows
    ]
    notes = [f"{note[0].upper()}{note[1:]}.\n" for note in answer.notes]
    return "\n".join([f"## {answer.question}\n", "\n".join(lines) + "\n", *notes])


def write(answers: list[Answer], python: str, quick: bool) -> None:
    """Write RESULTS.md, the plots, and the data of the plots, from which they can be drawn again."""
    RESULTS.write_text(markdown(answers, python, quick))
    SERIES.unlink(missing_ok=True)
    draw(answers, python)


def rewrite(answers: list[Answer], python: str) -> None:
    """Replace the sections of these questions in RESULTS.md, and their plots. The others stay as they are.

    A question without a figure keeps its earlier section.
    """
    text = RESULTS.read_text()
    measured = [answer for answer in answers if answer.rows]
    for answer in measured:
        date = f"measured again by itself on {machine()['date']}"
        new = section(replace(answer, notes=[date, *answer.notes]))
        pattern = rf"^## {re.escape(answer.question)}\n.*?(?=^## |\Z)"
        text, found = re.subn(pattern, lambda _, new=new: f"{new}\n", text, flags=re.MULTILINE | re.DOTALL)
        if not found:
            text = f"{text.rstrip()}\n\n{new}"
    RESULTS.write_text(f"{text.rstrip()}\n")
    draw(measured, python)


def draw(answers: list[Answer], python: str) -> None:
    """Draw the plots of these answers, and add their data to that of the other plots."""
    series = [
        {"plot": line.plot, "label": line.label, "points": line.points} for answer in answers for line in answer.series
    ]
    PLOTS.mkdir(exist_ok=True)
    drawn = {line["plot"] for line in series}
    others = json.loads(SERIES.read_text()) if SERIES.exists() else []
    SERIES.write_text(json.dumps([*(line for line in others if line["plot"] not in drawn), *series], indent=1) + "\n")
    subprocess.run(
        [python, "-m", "benchmarks.draw", str(PLOTS)],
        input=json.dumps(series),
        text=True,
        env=clients_variables(),
        cwd=ROOT,
        check=True,
        timeout=120,
    )
