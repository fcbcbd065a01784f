"""Tables as the input and the output of a batch: Parquet, CSV, TSV and JSON lines, by the ending of the file's name.

A row of an input is a line of a batch. The output has every row of the input, in its order, with the columns of its
answer behind its own. It is made at the end, of the journal: a batch that is killed has lost nothing.

Parquet needs the extra `tables`. Only this module and the one for datasets of Ray use pyarrow.
"""

from __future__ import annotations

import base64
import csv
import gzip
import importlib
import io
import json
import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager, suppress
from itertools import islice, zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, BinaryIO, TypeAlias, cast

import orjson
import trio

from .. import InvalidRequestError, ManystreamError
from ..providers.json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    dumps,
    exact_loads,
    loads_object,
    mapping,
    string,
)
from .journal import default_errors_path, line_id
from .line_file import LineFile
from .line_ids import LineIds
from .lines import ID_NAMES, OUR_MEMBERS, USAGE_MEMBERS, Prompt, Refused, is_conversation, passed_through
from .shard import Shard
from .source import checked_gzip, count_lines, some_lines

Numbered: TypeAlias = AsyncGenerator[list[tuple[int, bytes]], None]
"""What `source.read_lines` yields."""

Write: TypeAlias = Callable[[list[JSONObject], list[JSONObject], Any], None]
"""Writes rows of the output: the input's columns by their names in the output, the answers' columns, and the rows as a
`RecordBatch` of a Parquet input, or None.
"""

CHUNK_ROWS = 500
"""Rows that are read at a time."""

GROUP_ROWS = 20_000
GROUP_BYTES = 32 << 20
"""A row group of a Parquet file is written when it has so many rows, or so many bytes."""

LONGEST_CELL = 1 << 27
"""The longest cell of a CSV file, in characters."""

ANSWER_COLUMNS = ("text", "thinking", "parsed", "tool_calls", "usage", "cost", "model", "finish_reason", "error")
"""The columns that a table of answers has after those of its input."""

SEPARATORS = {"csv": ",", "tsv": "\t"}
"""Form of a table of cells → what is between them."""

TEXTS = frozenset({*ID_NAMES, "model", "system", "tool_choice", "priority", "tenant", "session"})
"""Options that are texts. A cell with another option is JSON, such as `0.2` or `["a", "b"]`."""

FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""The beginning of a cell that a spreadsheet takes for a formula, unless it is a number."""
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)

UNSENT = "not answered yet: give the command again without --finish"


class TableError(ManystreamError, ValueError):
    """A file cannot be read or written as a table. The message names the file and what to do."""


def form_of(path: Path) -> str:
    """Return `parquet`, `csv`, `tsv` or `jsonl`, by the ending of the name before a `.gz`. Raises `TableError`."""
    name = path.name.lower()
    plain = name.removesuffix(".gz")
    form = plain.rpartition(".")[2]
    if form == "parquet" and plain != name:
        raise TableError(f"{path}: a Parquet file is compressed already: name it without .gz")
    return form if form == "parquet" or form in SEPARATORS else "jsonl"


def is_table(path: Path) -> bool:
    """Return whether a file is more than plain JSON lines, so that it cannot be appended to. Raises `TableError`."""
    return form_of(path) != "jsonl" or path.name.lower().endswith(".gz")


def journal_path(table: Path) -> Path:
    """Return the journal of a table: `answers.csv.journal.jsonl` for `answers.csv`."""
    return table.with_name(f"{table.name}.journal.jsonl")


# --- input ---


class Rows:
    """The rows of an input, some at a time.

    count: the number of rows; None if it is not known before the end.
    names: the names of the columns; None if each row has names of its own.
    schema: the types of a Parquet file's columns; None for another input.
    refused: number of a row of the last chunk → why it is no line of a batch.
    """

    refused: Mapping[int, str] = {}
    count: int | None = None
    names: Sequence[str] | None = None
    schema: Any = None

    @abstractmethod
    def chunks(self) -> Iterator[tuple[int, list[JSONObject], Any]]:
        """Yield the number of the first row, from 1, the rows, and the `RecordBatch` that they are, or None.

        Raises `OSError` and `TableError`.
        """

    def line(self, row: JSONObject) -> JSONObject:
        """Return what a batch is to read of a row."""
        return row


class _CSVRows(Rows):
    def __init__(self, path: Path, opened: ExitStack, prompt: Prompt | None) -> None:
        csv.field_size_limit(LONGEST_CELL)
        text = io.TextIOWrapper(opened.enter_context(open_plain(path)), "utf-8-sig", newline="")
        self._path = path
        self._prompt = prompt
        separator = SEPARATORS[form_of(path)]
        self._separator = "tab" if separator == "\t" else "comma"
        self._reader = csv.reader(opened.enter_context(closing(text)), strict=True, delimiter=separator)
        self.names = self._read(self._reader) or []
        twice = next((name for place, name in enumerate(self.names) if name in self.names[:place]), None)
        if twice is not None:
            raise TableError(f"{path}: two columns are named {twice!r}: the first line has the names of the columns")
        other = next((mark for mark in ",;\t" if len(self.names) == 1 and mark in self.names[0]), None)
        if other is not None and other != separator:
            name = "tabs, or name it .csv" if separator == "\t" else "commas, or with tabs as .tsv"
            raise TableError(f"{path}: {other!r} is between its columns: save it with {name}")

    def chunks(self) -> Iterator[tuple[int, list[JSONObject], Any]]:
        names, rows, first = self.names or [], list[JSONObject](), 1
        self.refused = refused = dict[int, str]()
        while (cells := self._read(self._reader)) is not None:
            if not cells:
                continue  # an empty line
            if any(cells[len(names) :]):
                has = f"has {len(cells)} cells, and the first line names {len(names)} columns"
                refused[first + len(rows)] = f"{has}: a cell with a {self._separator} stands in quotes"
            rows.append(dict(zip_longest(names, cells[: len(names)], fillvalue="")))
            if len(rows) == CHUNK_ROWS:
                yield first, rows, None
                first, rows = first + len(rows), []
                refused.clear()
        if rows:
            yield first, rows, None

    def line(self, row: JSONObject) -> JSONObject:
        """Return a row as it would be in JSON: with options that are no texts, and without those whose cell is empty.

        A column that alone is the prompt may hold a list of messages, as JSON.
        """
        if self._prompt is not None:
            name = self._prompt.column
            value = _parsed(row.get(name)) if name is not None else None
            return row | {name: value} if name is not None and is_conversation(value) else row
        return {name: value for name, cell in row.items() if (value := _option(name, cell)) is not None}

    def _read(self, reader: Iterator[list[str]]) -> list[str] | None:
        try:
            with checked_gzip():
                return next(reader, None)
        except UnicodeDecodeError as error:
            raise TableError(f"{self._path} is not UTF-8 text: {error.reason}; save the file as UTF-8") from None
        except csv.Error as error:
            raise TableError(f"{self._path} is no CSV: {error}") from None


def _option(name: str, cell: JSON) -> JSON:
    """Return the value of a cell: of an option that is no text, its JSON; None for an option whose cell is empty."""
    if name not in OUR_MEMBERS or name in TEXTS:
        return cell if cell or name not in OUR_MEMBERS else None
    value = _parsed(cell)
    if name in ("prompt", "messages"):
        return value if is_conversation(value) else cell or None
    return cell or None if type(value) is str or (name == "stop" and type(value) is not list) else value


def _parsed(cell: JSON) -> JSON:
    """Return the value of a cell that is JSON, or TRUE or FALSE as spreadsheets write it; else the cell."""
    if type(cell) is not str:
        return cell
    try:
        return exact_loads(cell.lower() if cell in ("TRUE", "True", "FALSE", "False") else cell)
    except MalformedJSONError:
        return cell


class _ParquetRows(Rows):
    def __init__(self, path: Path, opened: ExitStack, prompt: Prompt | None) -> None:
        parquet = import_pyarrow("pyarrow.parquet")
        self._path = path
        self._options = OUR_MEMBERS if prompt is None else (prompt.column,)
        try:
            self._file: Any = opened.enter_context(parquet.ParquetFile(str(path), pre_buffer=False))
        except (ValueError, OSError) as error:
            raise _unreadable(path, error) from None
        self.schema = self._file.schema_arrow
        self.count = self._file.metadata.num_rows
        self.names = list(self.schema.names)

    def chunks(self) -> Iterator[tuple[int, list[JSONObject], Any]]:
        first = 1
        try:
            for batch in self._file.iter_batches(batch_size=CHUNK_ROWS):
                self.refused = refused = dict[int, str]()
                try:
                    rows = batch.to_pylist()
                except (ValueError, ArithmeticError):  # one of its values is none of Python's
                    rows = [self._row(batch, place, first, refused) for place in range(batch.num_rows)]
                yield first, rows, batch
                first += batch.num_rows
        except (ValueError, OSError) as error:
            raise _unreadable(self._path, error) from None

    def line(self, row: JSONObject) -> JSONObject:
        """Return a row whose messages, tools and other options lack the members that Arrow has for other rows only."""
        return {
            name: cast("JSON", without_nulls(value)) if name in self._options else value for name, value in row.items()
        }

    def _row(self, batch: Any, place: int, first: int, refused: dict[int, str]) -> JSONObject:
        """Return a row whose values are read one by one. One that Python does not have is a text, such as a date after
        the year 9999; one that is no text either is null, and the row is refused.
        """
        row: JSONObject = dict.fromkeys(batch.schema.names)
        for name, column in zip(row, batch.columns, strict=True):
            try:
                row[name] = column[place].as_py()
            except (ValueError, ArithmeticError) as error:
                try:
                    row[name] = column[place].cast("string").as_py()
                except (ValueError, NotImplementedError):
                    refused[first + place] = f"{name}: cannot be read: {error}"
        return row


def without_nulls(value: object) -> object:
    """Return a value as lists and dicts, without members that are null.

    All structs of a column have the same members, so a member that one row has is null in the others.
    """
    if not isinstance(value, (str, list, dict)):
        to_list: Callable[[], object] | None = getattr(value, "tolist", None)
        value = to_list() if to_list is not None else value  # pandas makes an array of a list
    if isinstance(value, (list, tuple)):
        return [without_nulls(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: without_nulls(member) for name, member in members.items() if member is not None}
    return value


class _LineRows(Rows):
    """Rows of JSON lines, as they pass through. Numbers are those of lines, so that a row may be missing."""

    def __init__(self, path: Path, opened: ExitStack, prompt: Prompt | None) -> None:
        self._file = opened.enter_context(open_plain(path))
        self._prompt = prompt

    def chunks(self) -> Iterator[tuple[int, list[JSONObject], Any]]:
        number = 0
        while lines := some_lines(self._file):
            for line in lines:
                number += 1
                if line.strip():
                    yield number, [self._row(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)], None

    def _row(self, line: bytes) -> JSONObject:
        """Return the id of a line and the columns that pass through; none for a line that no batch sends."""
        try:
            members = loads_object(line)
            if self._prompt is None:
                taken = ("params",) if "params" in members else ("body", "method", "url")
                form = taken if taken[0] in members else OUR_MEMBERS
                members = {name: value for name, value in members.items() if name not in form or name in ID_NAMES}
            ids = {name: members.pop(name) for name in ID_NAMES if name in members}
            return ids | passed_through(members)
        except (MalformedJSONError, InvalidRequestError):
            return {}


def open_rows(path: Path, opened: ExitStack, prompt: Prompt | None = None) -> Rows:
    """Open an input. `opened` closes it. Raises `OSError` and `TableError`."""
    form = form_of(path)
    if form == "parquet":
        return _ParquetRows(path, opened, prompt)
    return _CSVRows(path, opened, prompt) if form in SEPARATORS else _LineRows(path, opened, prompt)


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading its bytes, decompressed if its name ends in `.gz`. Raises `OSError`."""
    return cast("BinaryIO", gzip.open(path)) if path.name.lower().endswith(".gz") else path.open("rb")


async def read_rows(rows: Rows) -> Numbered:
    """Yield the rows of a Parquet or CSV file as lines of a batch, as `source.read_lines` does.

    A row without an `id` has its number as its id. Raises `OSError` and `TableError`.
    """
    chunks = _line_chunks(rows)
    while lines := await trio.to_thread.run_sync(next, chunks, None):
        yield lines


def some_rows(rows: Rows) -> list[bytes]:
    """Return the first rows of a Parquet or CSV file as lines. Raises `OSError` and `TableError`."""
    return [line for some in islice(_line_chunks(rows), 1) for _, line in some]


def _line_chunks(rows: Rows) -> Iterator[list[tuple[int, bytes]]]:
    for first, found, _ in rows.chunks():
        yield [
            (number, _line(number, rows.line(row), rows.refused.get(number))) for number, row in enumerate(found, first)
        ]


def count_rows(path: Path) -> int | None:
    """Return the number of an input's rows, for a progress bar; None where only reading it all would show it.

    Raises `OSError` and `TableError`.
    """
    if not is_table(path):
        return count_lines(path)
    if form_of(path) != "parquet":
        return None
    with ExitStack() as opened:
        return open_rows(path, opened).count


async def numbered(lines: Numbered) -> Numbered:
    """Yield JSON lines, with its number as the id of each that has none. Others stay as they are."""
    async with aclosing(lines):
        async for some in lines:
            yield [(number, _with_id(number, line)) for number, line in some]


def _with_id(number: int, line: bytes) -> bytes:
    try:
        members = loads_object(line)
    except MalformedJSONError:
        return line
    return line if any(members.get(name) is not None for name in ID_NAMES) else dumps(members | {"id": number})


def _line(number: int, row: JSONObject, refusal: str | None) -> bytes:
    """Return a row as one line of JSON, or why it is none."""
    if refusal is not None:
        return Refused(refusal.encode())
    if all(row.get(name) in (None, "") for name in ID_NAMES):
        row = {name: value for name, value in row.items() if name not in ID_NAMES} | {"id": number}
    return _text(row).encode()


# --- output ---


class _Records:
    """The records of a journal, found by the id of a line or, where it was no request, by its number."""

    def __init__(self, journal: Path, opened: ExitStack) -> None:
        self._ids, self._invalid = LineIds(), LineIds()  # → the record's position; ~position for one of the failures
        self._errors = LineFile(default_errors_path(journal), self._note_failure)
        opened.callback(self._errors.close)
        self._answers = LineFile(journal, self._note_answer)
        opened.callback(self._answers.close)

    def _note_failure(self, position: int, record: JSONObject) -> None:
        id, line = line_id(record), record.get("line")
        if id is not None:
            self._ids[id] = ~position
        elif type(line) is int:
            self._invalid[line] = ~position

    def _note_answer(self, position: int, record: JSONObject) -> None:
        id = line_id(record)
        if id is not None:
            self._ids[id] = position

    def record(self, number: int, row: JSONObject) -> JSONObject | None:
        """Return the record of a row, or None if it has none."""
        id = next((value for name in ID_NAMES if (value := row.get(name)) not in (None, "")), number)
        position = self._ids.get(id) if type(id) is int or type(id) is str else None
        if position is None:
            position = self._invalid.get(number)
        if position is None:
            return None
        file, position = (self._answers, position) if position >= 0 else (self._errors, ~position)
        return loads_object(file.line_at(position))


def write_table(
    table: Path,
    source: Path,
    prompt: Prompt | None = None,
    shard: Shard | None = None,
    *,
    escape_formulas: bool = False,
) -> int:
    """Write a table of every row of the input and its answer, of the journal beside the table.

    table: the file to write. It takes its name when it is complete.
    source: the input: a Parquet, CSV or JSONL file.
    prompt: the prompt of all rows, as the batch had it.
    shard: the part of the input that the batch has sent; None for all of it.
    escape_formulas: whether a text of a CSV file that a spreadsheet would take for a formula gets an apostrophe.

    Returns the number of rows. Raises `OSError`, `JournalError` and `TableError`.
    """
    with ExitStack() as opened:
        records = _Records(journal_path(table), opened)
        rows = open_rows(source, opened, prompt)
        columns, kinds = _columns(rows, source, prompt)
        descriptor, name = tempfile.mkstemp(prefix=f".{table.name}.", dir=table.parent)
        try:
            count = 0
            with ExitStack() as writing:
                file: IO[bytes] = writing.enter_context(os.fdopen(descriptor, "wb"))
                if table.name.lower().endswith(".gz"):
                    file = cast("IO[bytes]", writing.enter_context(gzip.GzipFile(table.stem, "wb", fileobj=file)))
                names, form = list(columns.values()), form_of(table)
                if form == "parquet":
                    write = writing.enter_context(_parquet_writer(file, names, kinds, rows.schema))
                elif form in SEPARATORS:
                    write = writing.enter_context(_csv_writer(file, names, SEPARATORS[form], escape=escape_formulas))
                else:
                    write = writing.enter_context(_line_writer(file))
                for first, some, batch in rows.chunks():
                    chosen = [place for place in range(len(some)) if shard is None or shard.has(first + place)]
                    kept = [{own: some[place].get(name) for name, own in columns.items()} for place in chosen]
                    found = [_answer(records.record(first + place, some[place])) for place in chosen]
                    count += len(kept)
                    if kept:
                        write(kept, found, batch.take(chosen) if batch is not None else None)
            os.replace(name, table)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(name)
            raise
    return count


def _answer(record: JSONObject | None) -> JSONObject:
    """Return the columns of an answer, from the record of a line."""
    if record is None:
        record = {"error": UNSENT}
    answer: JSONObject = {name: record.get(name) for name in ANSWER_COLUMNS}
    cost, error = mapping(record, "cost"), mapping(record, "error")
    answer["cost"] = cost.get("total")
    if error:
        answer["error"] = f"{string(error, 'category') or 'unknown'}: {string(error, 'message') or ''}"
    return answer


def _columns(rows: Rows, source: Path, prompt: Prompt | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return each column of the input with its name in the output, and the kinds of columns of JSON lines.

    One that an answer has, too, gets `input_` before its name.
    """
    if rows.names is None:
        kinds = _kinds(source, prompt)
        return {name: name for name in kinds}, kinds
    columns = {name: f"input_{name}" if name in ANSWER_COLUMNS else name for name in rows.names}
    if len(set(columns.values())) < len(columns):
        twice = next(name for name, own in columns.items() if own != name and own in columns)
        raise TableError(f"{source}: the column {twice!r} is {columns[twice]!r} in the output: rename one of them")
    return columns, {}


def _kinds(source: Path, prompt: Prompt | None) -> dict[str, str]:
    """Return the kind of each column of JSON lines: its one type, or JSON."""
    found: dict[str, set[str]] = {}
    with ExitStack() as opened:
        for _, some, _ in open_rows(source, opened, prompt).chunks():
            for row in some:
                for name, value in row.items():
                    large = type(value) is int and not -(2**63) <= value < 2**63
                    found.setdefault(name, set()).add("json" if large else _KINDS.get(type(value), "json"))
    kinds: dict[str, str] = {}
    for name, several in found.items():
        one = several - {"null"} if several != {"null"} else several
        kinds[name] = one.pop() if len(one) == 1 else "float" if one == {"int", "float"} else "json"
    return kinds


_KINDS: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "text", type(None): "null"}
"""Type of a JSON value → the kind of its column; others, and columns of several kinds, are JSON."""


@contextmanager
def _csv_writer(file: IO[bytes], names: list[str], separator: str, *, escape: bool) -> Generator[Write, None, None]:
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)

    def write_row(row: str) -> None:
        text.write(f"{row[:-2]}\n")

    # A cell with a character of the line end is quoted. So the writer's has CR, too, and the file's is LF.
    cells = csv.writer(cast("Any", SimpleNamespace(write=write_row)), delimiter=separator, lineterminator="\r\n")
    shown = _without_formula if escape else _cell
    cells.writerow([shown(name) for name in (*names, *ANSWER_COLUMNS)])

    def write(rows: list[JSONObject], answers: list[JSONObject], batch: Any) -> None:
        for row, answer in zip(rows, answers, strict=True):
            cells.writerow([shown(value) for value in (*row.values(), *answer.values())])

    yield write
    text.flush()
    text.detach()


def _cell(value: object) -> str:
    """Return a value as the text of a cell: empty for null, and JSON for what is no text."""
    if type(value) is str:
        return value
    if value is None or value != value:  # NaN
        return ""
    text = _text(value)
    return str(json.loads(text)) if text.startswith('"') else text


def _without_formula(value: object) -> str:
    cell = _cell(value)
    return f"'{cell}" if FORMULA.match(cell) and not NUMBER.fullmatch(cell) else cell


def _text(value: object) -> str:
    """Return a value as JSON. Times are texts (RFC 3339), bytes are base64, and NaN is null."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # a whole number of more than 64 bits
        return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


@contextmanager
def _line_writer(file: IO[bytes]) -> Generator[Write, None, None]:
    def write(rows: list[JSONObject], answers: list[JSONObject], batch: Any) -> None:
        for row, answer in zip(rows, answers, strict=True):
            file.write(_text(row | answer).encode() + b"\n")

    yield write


@contextmanager
def _parquet_writer(
    file: IO[bytes], names: list[str], kinds: dict[str, str], schema: Any
) -> Generator[Write, None, None]:
    """Write a Parquet file. The columns of a Parquet input keep their types.

    kinds: the kinds of the columns of another input.
    schema: the schema of a Parquet input, or None.
    """
    pa = import_pyarrow("pyarrow")
    types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    usage = pa.struct([(name, pa.int64()) for name in USAGE_MEMBERS])
    if schema is None:
        own = [pa.field(name, types.get(kinds.get(name, ""), pa.string())) for name in names]
    else:
        own = [field.with_name(name) for field, name in zip(schema, names, strict=True)]
    gained = [pa.field(name, {"usage": usage, "cost": pa.float64()}.get(name, pa.string())) for name in ANSWER_COLUMNS]
    whole = pa.schema([*own, *gained], metadata=schema.metadata if schema is not None else None)
    group: list[Any] = []

    def array(field: Any, rows: list[JSONObject]) -> Any:
        values: list[object] = [row.get(field.name) for row in rows]
        if field.type == pa.string():
            values = [_cell(value) if value is not None else None for value in values]
        return pa.array(values, field.type)

    with import_pyarrow("pyarrow.parquet").ParquetWriter(file, whole) as writer:

        def write(rows: list[JSONObject], answers: list[JSONObject], batch: Any) -> None:
            arrays = list(batch.columns) if batch is not None else [array(field, rows) for field in own]
            arrays += [array(field, answers) for field in gained]
            group.append(pa.RecordBatch.from_arrays(arrays, schema=whole))
            if sum(len(some) for some in group) >= GROUP_ROWS or sum(some.nbytes for some in group) >= GROUP_BYTES:
                flush()

        def flush() -> None:
            if group:
                writer.write_table(pa.Table.from_batches(group))
                group.clear()

        yield write
        flush()


def import_pyarrow(name: str) -> Any:
    """Return a module of pyarrow. Raises `TableError` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        text = "Parquet files need the extra `tables`: pip install '.[tables]' in manystream's checkout"
        raise TableError(text) from None


def _unreadable(path: Path, error: ValueError | OSError) -> Exception:
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return TableError(f"{path} cannot be read as a Parquet file: {str(error).splitlines()[0]}")
