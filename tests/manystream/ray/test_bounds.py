"""The times of a batch over a cluster. Each is compared with the others in the texts of their modules."""

from __future__ import annotations

import pytest

from tests.support.tables import table

NUMBERS: dict[str, object] = {
    "exchange.CONFIRMED_SECONDS": 4.0,
    "exchange.ORPHANED_SECONDS": 2.5,
    "leases.LEASE_SECONDS": 4.0,
    "leases.RENEW_SECONDS": 1.0,
    "watch.PAUSE_SECONDS": 1.0,
    "watch.READY_SECONDS": 20.0,
    "watch.SILENT_SECONDS": 5.0,
}
"""Module and name → seconds."""


@pytest.mark.parametrize("place", NUMBERS)
def test_a_time_is_this_number(place: str) -> None:
    assert table(f"ray.{place}") == NUMBERS[place]
