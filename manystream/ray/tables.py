"""Tables of Arrow: their rows as requests, and the columns that answers add. Only this module uses pyarrow."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, cast

from ..batch.lines import USAGE_MEMBERS
from .rows import (
    ERROR,
    FINISH_REASON,
    GAINED,
    ID,
    MESSAGES,
    PROMPT,
    TEXT,
    USAGE,
    AskedRow,
    AskError,
    MakeRequest,
    check_columns,
    gained_of,
    read_rows,
)


def import_pyarrow() -> Any:
    """Return the module `pyarrow`. Raises `AskError` if it is not installed."""
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise AskError(f"pyarrow is not installed ({error}): pip install '.[ray]' in manystream's checkout") from None


class Tables:
    """Reads rows from tables and adds columns to them. Raises `AskError` if pyarrow is not installed."""

    def __init__(self) -> None:
        self._pyarrow = import_pyarrow()
        self._types: dict[str, Any] = _column_types(self._pyarrow)

    def read(self, table: Any, make_request: MakeRequest, *, needs_id: bool) -> list[AskedRow]:
        """Return a table's rows. Raises `AskError` for a table whose columns cannot be asked."""
        if not isinstance(table, self._pyarrow.Table):
            raise AskError(
                f"a block must be a pyarrow.Table, not {type(table).__name__}: pass map_batches all of ask_options"
            )
        names = cast("list[str]", table.column_names)
        if not table.num_rows:  # such as a block without rows and columns
            return []
        check_columns(names, needs_id=needs_id)
        wanted = (ID, MESSAGES, PROMPT) if needs_id else (MESSAGES, PROMPT)
        columns = {name: cast("list[object]", table.column(name).to_pylist()) for name in wanted if name in names}
        return read_rows(columns, int(table.num_rows), make_request, needs_id=needs_id)

    def add_columns(self, table: Any, rows: Sequence[AskedRow]) -> Any:
        """Return the table with the columns that the answers add. Each row must have a record."""
        gained = [gained_of(row.record) for row in rows if row.record is not None]
        for name in GAINED:
            values = [getattr(one, name) for one in gained]
            field = self._pyarrow.field(name, self._types[name])
            table = table.append_column(field, self._pyarrow.array(values, self._types[name]))
        return table


def _column_types(pyarrow: Any) -> dict[str, Any]:
    """Return the types of the columns that answers add. They are the same for every block."""
    text, whole = pyarrow.string(), pyarrow.int64()
    error = [("category", text), ("message", text), ("http_status", whole), ("provider_code", text)]
    return {
        TEXT: text,
        ERROR: pyarrow.struct([*error, ("retryable", pyarrow.bool_())]),
        USAGE: pyarrow.struct([(name, whole) for name in USAGE_MEMBERS]),
        FINISH_REASON: text,
    }
