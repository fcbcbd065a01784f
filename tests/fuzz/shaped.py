"""Fuzz one target with structure-aware inputs: `python -m tests.fuzz.shaped TARGET SECONDS FIRST FOLDER`.

Runs one input after another, each with bounds on CPU time and memory, and writes the first input that fails into the
folder. Needs only the project; `python -m tests.fuzz` starts it for each target.
"""

import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType

from tests.fuzz.seeds import SEEDS
from tests.fuzz.shapes import shaped
from tests.fuzz.targets import TARGETS

MOST_SECONDS = 20.0
"""Seconds of CPU time for one input of at most 256 KiB, which a target reads several times. Linear code takes 2."""

MOST_MEMORY = 2 << 30


class TooSlow(Exception):
    """A target takes more time for an input than linear code would."""


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow(f"more than {MOST_SECONDS:g} s of processor time")


def run(name: str, seconds: float, first: int, folder: Path) -> int:
    """Run inputs until the time is over or an input fails. Returns the exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    signal.signal(signal.SIGVTALRM, _too_slow)
    end, number, slowest = time.monotonic() + seconds, first, 0.0
    while time.monotonic() < end:
        data = shaped(SEEDS[name], random.Random(number))
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
        try:
            TARGETS[name](data)
        except BaseException:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            path = folder / f"{name}-shaped-{number}"
            path.write_bytes(data)
            print(f"=== input {number}, in {path}\n{traceback.format_exc()[-3000:]}")
            return 1
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        slowest = max(slowest, time.process_time() - began)
        number += 1
    print(f"{number - first} inputs, the slowest took {slowest:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
