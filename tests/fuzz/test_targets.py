"""Run each fuzz target on a bounded number of inputs: valid ones, damaged ones, random bytes, and all findings."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.found import FOUND
from tests.fuzz.seeds import CUT, SEEDS, WORDS
from tests.fuzz.shapes import shaped
from tests.fuzz.targets import TARGETS

UNHURRIED = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """Draw a valid input of which parts are removed, moved, doubled or replaced."""
    wire = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(wire)))
        end = draw(st.integers(start, min(len(wire), start + 80)))
        taken = wire[start:end]
        inserted = draw(st.sampled_from([b"", taken + taken, *WORDS]) | st.binary(max_size=4))
        wire = wire[:start] + inserted + wire[end:]
    return draw(st.binary(min_size=1, max_size=1)) + wire


def test_every_target_has_its_seeds() -> None:
    assert list(TARGETS) == list(SEEDS)


@pytest.mark.parametrize("name", TARGETS)
def test_valid_input_at_any_cut(name: str) -> None:
    for seed in SEEDS[name]:
        for step in (b"\x00", b"\x06", CUT):
            TARGETS[name](step + seed)
        for length in range(0, len(seed), max(1, len(seed) // 40)):
            TARGETS[name](CUT + seed[:length])


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input(name: str) -> None:
    @UNHURRIED
    @given(damaged(SEEDS[name]))
    def check(data: bytes) -> None:
        TARGETS[name](data)

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_shaped_input(name: str) -> None:
    """Inputs with hostile numbers, paths, counts, spaces, repeats and echoes; a small part of what `make fuzz` runs."""
    for number in range(25):
        TARGETS[name](shaped(SEEDS[name], random.Random(number), largest=16 * 1024))


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name: str) -> None:
    @UNHURRIED
    @given(st.binary(max_size=60))
    def check(data: bytes) -> None:
        TARGETS[name](data)

    check()


@pytest.mark.parametrize(("name", "data"), [row[:2] for row in FOUND], ids=[row[2] for row in FOUND])
def test_every_finding_is_fixed(name: str, data: bytes) -> None:
    TARGETS[name](data)
