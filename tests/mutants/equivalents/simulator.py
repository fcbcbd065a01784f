"""Known equivalents of `manystream/simulator`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "manystream/simulator/schema_example.py",
        "TYPES",
        '"string": _text,',
        '"string"',
        "'stringx'",
        "a type that is not in the table gives a text, too",
    ),
    Equivalent(
        "manystream/simulator/example_values.py",
        "TEXTS",
        '"units": "celsius",',
        '"units"',
        "'unitsx'",
        "a word that is not in the table is looked up without its s, and `unit` has the same text",
    ),
)
