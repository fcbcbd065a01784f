"""Known equivalents of `providers/gemini`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "providers/gemini/partial_arguments.py",
        "_Container.enter",
        "self.count += 1",
        "1",
        "2",
        "the count of an object's members is only compared with zero; an array's is set in the branch above",
    ),
    Equivalent(
        "providers/gemini/partial_arguments.py",
        "PartialArguments.close",
        "tree = self._tree() if self._late else {}",
        "self._late",
        "True",
        "without late members nothing is read from the tree, and it gets no member",
    ),
)
