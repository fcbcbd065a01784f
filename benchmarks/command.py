"""Run one question alone: `python -m benchmarks.live_streams [--quick]`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .answers import Answer
from .environment import clients_python
from .runs import Run
from .source.process import running_source


def run_alone(question: Callable[[Run], Answer]) -> None:
    """Print the rows as they arrive, then the notes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer events, coarser searches")
    quick: bool = parser.parse_args().quick
    python = clients_python()
    with running_source(python) as source:
        answer = question(Run(source, python, quick))
    for note in answer.notes:
        print(f"  note: {note}")
