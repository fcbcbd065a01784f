"""Tables as pyarrow has them, as far as the package uses them. A type is a text, and an array has its type."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest


class Column:
    def __init__(self, values: list[object]) -> None:
        self.values = values

    def to_pylist(self) -> list[object]:
        return self.values


class Table:
    """A table. columns: name → values; fields: the columns that were appended, with their types."""

    def __init__(self, num_rows: int = 0, **columns: list[object]) -> None:
        self.num_rows = num_rows
        self.columns = columns
        self.fields: dict[str, object] = {}
        self.read: list[str] = []

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def column(self, name: str) -> Column:
        self.read.append(name)
        return Column(self.columns[name])

    def append_column(self, field: tuple[str, object], array: tuple[list[object], object]) -> Table:
        (name, of), (values, also) = field, array
        assert of == also
        table = Table(self.num_rows, **self.columns, **{name: values})
        table.fields = {**self.fields, name: of}
        return table


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `import pyarrow` return a fake."""
    arrow = SimpleNamespace(
        Table=Table, string=lambda: "string", int64=lambda: "int64", bool_=lambda: "bool", struct=dict,
        field=lambda name, of: (name, of), array=lambda values, of: (values, of),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
