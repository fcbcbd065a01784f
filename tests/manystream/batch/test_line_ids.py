"""The ids of a batch's lines: in memory, and on disk where there are more."""

from __future__ import annotations

import pytest

from manystream.batch.line_ids import MOST_IN_MEMORY, LineIds


def test_many_ids_are_as_few_ids() -> None:
    """A table of more ids than fit in memory answers as a dict does."""
    ids, known = LineIds(), dict[str | int, int]()
    for n in range(MOST_IN_MEMORY + 500):
        id = n if n % 3 else f"{n}"
        ids[id] = known[id] = n
    for odd in ("", "1", 1, -(2**63) - 1, 2**64, "\0x", True):
        assert ids.setdefault(odd, 7) == known.setdefault(odd, 7)
    assert all(id in ids and ids[id] == number for id, number in list(known.items())[::997])
    assert len(ids) == len(known)
    assert set(ids) == set(known)
    assert "none" not in ids
    del ids["0"]
    assert "0" not in ids
    with pytest.raises(KeyError):
        del ids["0"]
