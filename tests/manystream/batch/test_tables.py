"""Tables as the input and the output of `manystream batch`: what comes out is read by pyarrow, csv and gzip."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import os
import re
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manystream.batch.line_ids import LineIds
from manystream.batch.lines import read_prompt
from manystream.batch.tables import ANSWER_COLUMNS
from manystream.cli import main
from manystream.simulator import Simulator, open_simulator_thread


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread(journal=50) as simulator:
        yield simulator


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulator: Simulator) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{simulator.port}/v1")
    return tmp_path


def batch(source: str, output: str, *options: str, model: str = "gpt-5-mini") -> int:
    return main(["batch", source, "-o", output, "--model", model, "--provider", "openai", "--plain", *options])


def read_csv(data: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data, newline="")))


def write_parquet(path: str, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_columns_of_parquet_keep_their_types_and_their_order() -> None:
    noon = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
    rows: list[dict[str, Any]] = [
        {"text": f"simulate: events=3 seed={n}" if n != 1 else None, "n": n, "when": noon, "price": Decimal("1.25"),
        "raw": b"\xff", "tags": ["a", None], "missing": float("nan")} for n in range(1200)
    ]  # fmt: skip
    write_parquet("in.parquet", rows)

    assert batch("in.parquet", "out.parquet", "--prompt-field", "text") == 1

    table = pq.read_table("out.parquet")
    assert table.schema.names == ["input_text", *list(rows[0])[1:], *ANSWER_COLUMNS]
    assert table.schema.field("when").type == pa.timestamp("us", tz="UTC")
    answered = table.to_pylist()
    assert [row["n"] for row in answered] == list(range(1200))
    assert all(row["price"] == Decimal("1.25") and row["raw"] == b"\xff" for row in answered)
    bad = answered.pop(1)
    assert bad["text"] is None
    assert "in.parquet line 2: text: is null" in bad["error"]
    assert all(row["error"] is None and row["finish_reason"] == "stop" and row["text"] for row in answered)
    assert answered[0]["usage"]["output_tokens"] == 3
    assert os.stat("out.parquet").st_mode & 0o777 == 0o600


CHAT = [{"role": "system", "content": "brief"}, {"role": "user", "content": "to the sea"}]


@pytest.mark.parametrize("field", [None, "prompt", "question"])
@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_the_prompt_of_a_row_may_be_a_conversation(ending: str, field: str | None, simulator: Simulator) -> None:
    name, options = field or "prompt", () if field is None else ("--prompt-field", field)
    rows: list[dict[str, Any]] = [{name: CHAT, "answer": "a"}, {name: [*CHAT[1:]], "answer": "b"}]
    if ending == ".jsonl":
        Path("in.jsonl").write_text("".join(json.dumps(row | {"id": n}) + "\n" for n, row in enumerate(rows)))
    elif ending == ".parquet":
        write_parquet("in.parquet", rows)
    else:
        with Path(f"in{ending}").open("w", newline="") as file:
            cells = csv.writer(file, delimiter="\t" if ending == ".tsv" else ",")
            cells.writerows([[name, "answer"], *([json.dumps(row[name]), row["answer"]] for row in rows)])
    assert batch(f"in{ending}", "out.csv", *options) == 0
    answers = read_csv(Path("out.csv").read_text())
    with urlopen(f"http://127.0.0.1:{simulator.port}/sim/requests") as page:
        sent = [request["body"]["messages"] for request in json.load(page)[-2:]]
    assert sorted(sent, key=len, reverse=True) == [CHAT, CHAT[1:]]
    assert [row["answer"] for row in answers] == ["a", "b"]
    assert all("to the sea" in row["text"] for row in answers)


@pytest.mark.parametrize("field", [None, "chat"])
def test_parquets_nulls_of_other_rows_are_not_sent(field: str | None, simulator: Simulator) -> None:
    def row(name: str) -> dict[str, Any]:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {name: [{name: None}, None]}}}
        chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}]
        schema = {"type": "object", "properties": {name: {"type": "string"}}}
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        tools: dict[str, Any] = {} if field else {"tools": [tool]}
        return {field or "messages": [*chat, {"role": "tool", "tool_call_id": "c", "content": "x"}], **tools}

    rows = [row("a"), row("b")]
    write_parquet("in.parquet", rows)
    assert batch("in.parquet", "out.csv", *(("--prompt-field", field) if field else ())) == 0
    with urlopen(f"http://127.0.0.1:{simulator.port}/sim/requests") as page:
        sent = sorted((request["body"] for request in json.load(page)[-2:]), key=str)
    arguments = [body["messages"][1]["tool_calls"][0]["function"]["arguments"] for body in sent]
    assert arguments == ['{"a":[{},null]}', '{"b":[{},null]}']
    assert [body.get("tools") for body in sent] == [each.get("tools") for each in rows]


def test_cells_of_options_are_what_the_option_is(simulator: Simulator) -> None:
    head = "prompt,temperature,max_output_tokens,stop,seed,parallel_tool_calls,metadata,top_p,system\n"
    cells = 'hi,0.50,5.0,7,,TRUE,"{""a"": ""b""}",,3\nho,warm,,"[""a"",""b""]",,,,1e0,\nhu,,,"[""a"",""b""]",,,,1,\n'
    Path("in.csv").write_text(head + cells)
    assert batch("in.csv", "out.csv") == 1
    first, second, third = read_csv(Path("out.csv").read_text())
    assert (first["temperature"], first["max_output_tokens"], first["parallel_tool_calls"]) == ("0.50", "5.0", "TRUE")
    assert "in.csv line 2: temperature: must be a number, not text" in second["error"]
    assert (first["error"], third["error"]) == ("", "")
    with urlopen(f"http://127.0.0.1:{simulator.port}/sim/requests") as page:
        sent = sorted((request["body"] for request in json.load(page)[-2:]), key=len)
    asked = {name: sent[1].get(name) for name in ("temperature", "max_completion_tokens", "stop", "metadata")}
    assert asked == {"temperature": 0.5, "max_completion_tokens": 5, "stop": ["7"], "metadata": {"a": "b"}}
    assert sent[1]["messages"][0]["content"] == "3"
    assert (sent[0]["stop"], sent[0]["top_p"], len(sent[0]["messages"])) == (["a", "b"], 1, 1)


@pytest.mark.parametrize("options", [(), ("--escape-formulas",)])
@pytest.mark.parametrize(("ending", "separator"), [(".csv", ","), (".tsv", "\t"), (".tsv.gz", "\t")])
def test_a_cell_is_one_cell_for_every_reader(ending: str, separator: str, options: tuple[str, ...]) -> None:
    """A lone CR ends a row for many readers, where it is in no quotes."""
    cells = ["a\rb", "=1+1", "-2.5e3", "-2-3", "+49 1", "@a", "\tx", "c,d\te\n", "\uff1dx", "", "=a\rb"]
    columns = [f"c{n}" for n in range(len(cells))]
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL).writerows([["prompt", *columns], ["hi", *cells]])
    data = file.getvalue().encode()
    Path(f"in{ending}").write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    assert batch(f"in{ending}", f"out{ending}", *options, "--system", "simulate: text==x\ry") == 0
    data = Path(f"out{ending}").read_bytes()
    text = (gzip.decompress(data) if ending.endswith("gz") else data).decode()
    assert text.count("\n") == 3
    assert not re.search(r'[^"\r\n]*\r', re.sub(r'"(?:[^"]|"")*"', "", text)), "a CR outside of quotes"
    (row,) = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    formulas = {"=1+1", "-2-3", "+49 1", "@a", "\tx", "\uff1dx", "=a\rb"} if options else set[str]()
    assert [row[name] for name in columns] == [f"'{cell}" if cell in formulas else cell for cell in cells]


def test_values_of_parquet_that_python_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    far, stamps = 2**62, pa.timestamp("us", "UTC")
    table = pa.table({
        "word": ["a", "b", "c"],
        "when": pa.array([0, far, None], stamps),
        "day": pa.array([2**30, 0, None], pa.date32()),
        "exact": pa.array([1, 2, 3], pa.timestamp("ns")),
        "many": pa.array([[1], None, [far]], pa.list_(stamps)),
    })  # fmt: skip
    pq.write_table(table, "in.parquet")
    assert batch("in.parquet", "out.parquet", "--prompt", "{word} {when} {exact}") == 1
    found = pq.read_table("out.parquet")
    kept = [found.column(name).cast(pa.int64()).to_pylist() for name in ("when", "exact")]
    assert kept == [[0, far, None], [1, 2, 3]]
    errors = found.column("error").to_pylist()
    assert errors[:2] == [None, None]
    assert "in.parquet line 3: many: cannot be read" in errors[2]
    assert batch("in.parquet", "out.csv", "--prompt", "{word} {when} {exact}") == 1
    second = read_csv(Path("out.csv").read_text())[1]
    assert (second["when"], second["exact"]) == ("17036-07-06 14:00:27.387904Z", "1970-01-01 00:00:00.000000002")
    assert second["exact"] in second["text"]
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv.gz", ".parquet"])
def test_a_misspelt_column_of_the_prompt_is_seen_first(ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    if ending == ".parquet":
        write_parquet("in.parquet", [{"review": "a", "n": 1}])
    elif ending == ".jsonl":
        Path("in.jsonl").write_text('{"review": "a"}\n{"review": "b", "n": 1}\n')
    else:
        separator = "\t" if "tsv" in ending else ","
        data = separator.join(["review", "n"]) + "\n" + separator.join(["a", "1"]) + "\n"
        Path(f"in{ending}").write_bytes(gzip.compress(data.encode()) if "gz" in ending else data.encode())
    for options, hint in (
        (("--prompt", "Good? {reviw}"), "no column 'reviw', and the prompt is made of it; did you mean 'review'?"),
        (("--prompt-field", "text"), "no column 'text', and the prompt is made of it; they are review, n"),
    ):
        assert batch(f"in{ending}", "out.csv", *options) == 2
        assert hint in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == [f"in{ending}"]
    assert batch(f"in{ending}", "out.csv", "--prompt", "Good? {review} {n}") == (1 if ending == ".jsonl" else 0)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".CSV"])
def test_the_cells_of_a_csv_file_stay_as_they_are(ending: str) -> None:
    text = '\ufefftext,code,note\r\nsimulate: events=2,007,"a ""b"",\nc"\r\n\r\nsecond,008,é\r\n'
    Path(f"in{ending}").write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())

    assert batch(f"in{ending}", f"out{ending}", "--prompt", "{text}") == 0

    data = Path(f"out{ending}").read_bytes()
    first, second = read_csv((gzip.decompress(data) if ending.endswith("gz") else data).decode())
    assert (first["input_text"], first["code"], first["note"]) == ("simulate: events=2", "007", 'a "b",\nc')
    assert (second["code"], second["note"], second["error"]) == ("008", "é", "")
    assert json.loads(first["usage"])["output_tokens"] == 2
    assert list(first) == ["input_text", "code", "note", *ANSWER_COLUMNS]


def test_json_lines_become_a_table_whose_columns_have_one_type() -> None:
    rows: list[dict[str, Any]] = [
        {"text": "a", "half": 1, "mixed": "x", "object": {"b": [1]}, "large": 2**70, "flag": None},
        {"text": "b", "half": 1.5, "mixed": 3, "flag": True, "id": "own"},
    ]
    with gzip.open("in.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n\n" for row in rows)

    assert batch("in.jsonl.gz", "out.parquet", "--prompt", "{text}: {half} {{}}") == 0

    table = pq.read_table("out.parquet")
    first, second = table.to_pylist()
    assert (first["half"], first["mixed"], first["object"], first["large"]) == (1.0, "x", '{"b":[1]}', str(2**70))
    assert (second["half"], second["mixed"], second["flag"], second["id"]) == (1.5, "3", True, "own")
    assert "a: 1 {}" in first["text"]
    assert table.schema.field("flag").type == pa.bool_()


def test_lines_of_every_form_pass_their_other_columns_on() -> None:
    lines = [
        {"id": "1", "prompt": "hi", "topic": "sea"},
        {"custom_id": "2", "body": {"messages": [{"role": "user", "content": "hi"}]}, "topic": "air"},
        {"custom_id": "3", "params": {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}},
    ]
    Path("in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, {"id": "4"}]) + "no JSON\n")

    assert batch("in.jsonl", "out.csv") == 1

    rows = read_csv(Path("out.csv").read_text())
    assert [(row["id"] or row["custom_id"], row["topic"], bool(row["text"])) for row in rows] == [
        ("1", "sea", True), ("2", "air", True), ("3", "", True), ("4", "", False), ("", "", False),
    ]  # fmt: skip
    assert "in.jsonl line 4" in rows[3]["error"]
    assert "in.jsonl line 5" in rows[4]["error"]


def test_a_table_of_our_form_has_options_as_columns() -> None:
    write_parquet("in.parquet", [{"prompt": "a", "max_output_tokens": -4, "topic": "a"}, {"prompt": "b"}])
    assert batch("in.parquet", "out.jsonl.gz") == 1
    first, second = map(json.loads, gzip.decompress(Path("out.jsonl.gz").read_bytes()).splitlines())
    assert (first["topic"], first["prompt"], first["text"]) == ("a", "a", None)
    assert "max_output_tokens" in first["error"]
    assert (second["usage"]["total_tokens"], second["topic"], second["error"]) == (25, None, None)


def test_columns_of_json_lines_have_names_that_no_answer_has() -> None:
    Path("in.csv").write_text("text,seconds,topic,prompt\nhi,5,sea,p\n")
    assert batch("in.csv", "out.jsonl", "--prompt-field", "text") == 0
    row = json.loads(Path("out.jsonl").read_text())
    assert (row["input_text"], row["input_seconds"], row["topic"], row["input_prompt"]) == ("hi", "5", "sea", "p")
    assert row["id"] == 1


def test_a_column_without_an_own_name_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_text("text,input_text\nhi,5\n")
    assert batch("in.csv", "out.csv", "--prompt-field", "text") == 1
    assert "the column 'text' is 'input_text' in the output" in capsys.readouterr().err


def test_a_row_keeps_the_number_of_its_line() -> None:
    """Each shard writes its own rows. An id that is missing is the row's number in the whole input."""
    Path("in.csv").write_text("id,text\n" + "".join(f"{'x' if n == 3 else ''},row {n}\n" for n in range(1, 8)))
    for shard in range(2):
        assert batch("in.csv", "out.csv", "--prompt-field", "text", "--shard", f"{shard}/2") == 0
    even, odd = (read_csv(Path(f"out.{shard}-of-2.csv").read_text()) for shard in range(2))
    assert [row["input_text"] for row in even] == ["row 2", "row 4", "row 6"]
    assert [(row["id"], row["input_text"]) for row in odd][:2] == [("", "row 1"), ("x", "row 3")]
    assert all(row["input_text"] in row["text"] for row in even + odd)


def test_nothing_is_lost_when_a_run_ends_early(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": f"simulate: delay={0 if n < 3 else 30}"} for n in range(6)]
    write_parquet("in.parquet", rows)

    recorded = 0
    original = LineIds.add

    def add(ids: LineIds, id: str | int) -> None:
        nonlocal recorded
        original(ids, id)
        recorded += 1
        if recorded == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(LineIds, "add", add)
        assert batch("in.parquet", "out.csv", "--prompt-field", "text") == 130
    assert "--finish writes out.csv" in capsys.readouterr().err
    assert not Path("out.csv").exists()

    assert batch("in.parquet", "out.csv", "--prompt-field", "text", "--finish") == 0
    answered = read_csv(Path("out.csv").read_text())
    assert [row["error"].partition(":")[0] for row in answered] == [*[""] * 3, *["not answered yet"] * 3]

    write_parquet("in.parquet", [*rows[:3], *[{"text": "later"}] * 3])
    assert batch("in.parquet", "out.csv", "--prompt-field", "text") == 0
    whole = read_csv(Path("out.csv").read_text())
    assert whole[:3] == answered[:3]
    assert all("later" in row["text"] for row in whole[3:])


@pytest.mark.parametrize(
    ("source", "output", "options", "message"),
    [
        ("in.csv", "there.csv", (), "there.csv exists, and no batch has written it"),
        ("in.csv", "o.parquet.gz", (), "o.parquet.gz: a Parquet file is compressed already"),
        ("in.csv", "o.csv", ("--finish",), "there are no answers for o.csv: o.csv.journal.jsonl does not exist"),
        ("in.csv", "o.jsonl", ("--finish",), "--finish writes a table"),
        ("-", "o.csv", (), "-o o.csv: a table has the rows of its input, which must be a file"),
        ("in.csv", "o.csv", ("--prompt", "no column"), "it names no column, such as {text}"),
        ("in.csv", "o.csv", ("--prompt", "{text!r}"), "a column is written as {name}"),
        ("in.csv", "o.csv", ("--prompt", "{"), "Single '{' encountered"),
        ("excel.csv", "o.csv", (), "excel.csv: ';' is between its columns: save it with commas, or with tabs as .tsv"),
        ("comma.tsv", "o.csv", (), "comma.tsv: ',' is between its columns: save it with tabs, or name it .csv"),
        ("in.csv", "o.jsonl", ("--escape-formulas",), "--escape-formulas is for a table in CSV or TSV"),
        ("twice.csv", "o.csv", (), "twice.csv: two columns are named 'text'"),
        ("open.csv", "o.csv", (), "open.csv is no CSV: unexpected end of data"),
        ("latin.csv", "o.csv", (), "latin.csv is not UTF-8 text"),
        ("cut.csv.gz", "o.csv", (), "cannot read cut.csv.gz: its gzip data is cut off or broken"),
        ("no.parquet", "o.csv", (), "no.parquet cannot be read as a Parquet file"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(
    source: str, output: str, options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.csv").write_text("text,b\nhi,1\n")
    Path("there.csv").write_text("mine\n")
    Path("excel.csv").write_text("\ufefftext;b\n1;2\n")
    Path("comma.tsv").write_text("text,b\nhi,1\n")
    Path("twice.csv").write_text("text,text\n1,2\n")
    Path("open.csv").write_text('text\n"x')
    Path("latin.csv").write_bytes(b"text\n\xff\n")
    Path("cut.csv.gz").write_bytes(gzip.compress(b"text\nhi\n")[:-6])
    Path("no.parquet").write_bytes(b"PAR1 no")
    field = () if "--prompt" in options else ("--prompt-field", "text")
    assert batch(source, output, *field, *options) in (1, 2)
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert Path("there.csv").read_text() == "mine\n"
    assert not Path("o.csv").exists()


def test_a_row_with_too_many_cells_fails_alone() -> None:
    Path("in.csv").write_text("text,b\nhi\nhello, world,2\nlast,1,,\n")
    assert batch("in.csv", "o.csv", "--prompt-field", "text") == 1
    rows = read_csv(Path("o.csv").read_text())
    assert [(row["input_text"], row["b"], bool(row["text"])) for row in rows] == [
        ("hi", "", True), ("hello", " world", False), ("last", "1", True),
    ]  # fmt: skip
    assert "line 2: has 3 cells, and the first line names 2 columns: a cell with a comma" in rows[1]["error"]


def test_a_prompt_is_made_of_columns() -> None:
    prompt = read_prompt("{{{a}}} and {b c}")
    assert prompt.render({"a": "x", "b c": [1, None]}) == "{x} and [1,null]"
