"""Keeps the answers in results.json, and writes RESULTS.md, the plots and the figures of other pages from them."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import asdict
from pathlib import Path

from . import live_streams
from .answers import Answer, Row, comparison, number, verdict
from .environment import ROOT, clients_variables, machine, versions
from .event_costs import FORM_LIMITS

FOLDER = Path(__file__).parent
RAW = FOLDER / "results.json"
RESULTS = FOLDER / "RESULTS.md"
PLOTS = FOLDER / "plots"
SERIES = PLOTS / "series.json"

PAGES = (
    "README.md",
    "docs/speed.md",
    "docs/design/fast-path.md",
    "docs/guide/batch-deadlines.md",
    "docs/guide/caching.md",
    "docs/guide/frameworks.md",
    "docs/guide/many.md",
    "docs/guide/ray.md",
    "docs/guide/shards.md",
    "docs/guide/websocket.md",
)
"""The pages that show figures of the results."""

MOST_ROWS = 5
"""Of a question with more rows, RESULTS.md shows those that missed a target, and so many of the most telling."""

FIGURE = re.compile(r"<!--figure (\w+): ([^|;>]+?)(?: ?[|;] (ratio|inverse))?-->.*?<!---->", re.DOTALL)
"""A figure on a page: `<!--figure QUESTION: ROW-->109<!---->` is a row's value, with `| ratio` its comparison, and with
`| inverse` how often it goes into what it is compared with; in a table with `;` for `|`."""

INTRODUCTION = """\
# Results

`python -m benchmarks` writes this page and the plots from `results.json` in its folder, which has every row, the
machine and the versions of each question. The client runs on one core, the load source on the other. Absolute figures
differ between machines and days. Compare the ratios: both of their figures come from the same run. Latency is the time
from the send of the load source to the callback of the user.
"""


def _part(load: str, part: str) -> str:
    """Return the place of a figure: a part of an event's CPU, of ours by the floor's."""
    return f"<!--figure cpu_per_event: manystream, {load}: {part} ; ratio--><!----> ×"


ALONE, BURSTS = "50 streams, each event alone", "400 streams, bursts of a millisecond"
"""Two loads whose parts explain a missed target."""

REASONS: dict[tuple[str, str], str] = {
    ("decode", "anthropic, manystream"): (
        "its library decodes <!--figure decode: anthropic, anthropic SDK--><!----> events/s, where OpenAI's decodes"
        " <!--figure decode: chat, openai SDK--><!---->"
    ),
    ("agents", "manystream"): (
        "a profile of ours: 52% in the iterations of our loop, 21% in the agents and their iterators, the rest in"
        " asyncio, which wakes a task for each event"
    ),
    ("cpu_per_event", f"manystream, {ALONE}"): (
        f"each event is a wake-up, which costs {_part(ALONE, 'to wait and wake up')} the floor's, and the tick"
        f" {_part(ALONE, 'in its tick')}: trio's event loop is the difference"
    ),
    **dict.fromkeys(
        [("cpu_per_event", "manystream, 400 streams"), *(("wire_forms", form) for form in FORM_LIMITS)],
        f"by its parts, in bursts of a millisecond: the tick costs {_part(BURSTS, 'in its tick')} the floor's, and a"
        f" wake-up {_part(BURSTS, 'to wait and wake up')}",
    ),
    ("scaling", "manystream, 10,000 streams"): (
        "a profile: each stream's deadline of 10 s passes once while its 12 events come, and is set anew; these 10,000"
        " wake-ups of the timers' task take a quarter of the CPU"
    ),
    ("import_time", "import manystream and open an engine, after import trio, CPU"): (
        "a profile: half of it makes 44 dataclasses, mostly the public values, whose methods CPython writes as text and"
        " compiles; 48 modules, 9 enums and 14 patterns take the rest"
    ),
    **dict.fromkeys(
        [
            ("serialise", f"{dialect}: a request of 10 messages and 5 tools")
            for dialect in ("anthropic", "gemini", "gemini-interactions")
        ],
        "a profile: three quarters write the ten messages, block by block, with each call before its result",
    ),
    **{
        ("latency", f"manystream, unstreamed answer beside {streams} streams, p50"): (
            "a profile: the wake-up takes as long as the floor's; the head, the decoding and the completion of a whole"
            " answer take the rest"
        )
        for streams in (10, 50)
    },
}
"""Question and row → why a target is missed, from a profile or from other rows. A page shows their figures."""

NOT_EXPLAINED = "not explained"

Results = dict[str, dict[str, object]]


def rows_of(entry: dict[str, object]) -> list[Row]:
    """Return the rows of a question in results.json."""
    stored = entry["rows"]
    assert isinstance(stored, list)
    return [Row(**row) for row in stored]


def write(answers: dict[str, Answer], python: str, *, quick: bool = False, whole: bool = False) -> None:
    """Keep the answers, and write the pages and plots anew. A question without a figure keeps its earlier answer.

    answers: those by the names of their questions.
    whole: all questions were asked: the earlier answers go.
    """
    kept: Results = {} if whole or not RAW.exists() else json.loads(RAW.read_text())
    facts = {**machine(), **versions(python), **({"run": "quick"} if quick else {})}
    for name, answer in answers.items():
        if answer.rows:
            rows = [asdict(row) for row in answer.rows]
            kept[name] = {"question": answer.question, "facts": facts, "rows": rows, "notes": answer.notes}
    RAW.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    if whole:
        SERIES.unlink(missing_ok=True)
    draw([answer for answer in answers.values() if answer.rows], python)
    write_pages()


def write_pages() -> None:
    """Write RESULTS.md, and the figures of the other pages, from results.json."""
    results: Results = json.loads(RAW.read_text())
    RESULTS.write_text(markdown(results))
    for page in PAGES:
        path = ROOT / page
        path.write_text(with_figures(path.read_text(), results))


def markdown(results: Results) -> str:
    """Return the text of RESULTS.md."""
    newest = max((_facts(entry) for entry in results.values()), key=lambda facts: facts["date"], default={})
    lines = [INTRODUCTION, "The newest run: " + ", ".join(f"{name} {value}" for name, value in newest.items()) + ".\n"]
    lines += ["| question | what | measured | compared | target | |", "|---|---|---:|---|---|---|"]
    for name, entry in results.items():
        question = f"**{entry['question']}** ({_facts(entry)['date'][:10]})"
        for row in _shown(rows_of(entry)):
            value = f"{number(row.value)} {row.unit}"
            cells = (question, row.what, value, comparison(row), row.target, _verdict(name, row, entry))
            lines.append(f"| {' | '.join(cells)} |")
            question = ""
    return with_figures("\n".join(lines) + "\n", results)


def _shown(rows: list[Row]) -> list[Row]:
    """Return the rows of a question that RESULTS.md shows, in their order."""

    def rank(row: Row) -> int:
        compared = row.ratio is not None
        return [row.met is False, row.shown, bool(row.target) and compared, bool(row.target), compared, True].index(
            True
        )

    missed = sum(row.met is False for row in rows)
    chosen = sorted(range(len(rows)), key=lambda place: rank(rows[place]))[: max(MOST_ROWS, missed)]
    return [rows[place] for place in sorted(chosen)]


def _facts(entry: dict[str, object]) -> dict[str, str]:
    facts = entry["facts"]
    assert isinstance(facts, dict)
    return facts


def _verdict(name: str, row: Row, entry: dict[str, object]) -> str:
    if row.met is not False:
        return verdict(row)
    notes = entry["notes"]
    assert isinstance(notes, list)
    found = live_streams.reason(row, rows_of(entry), notes) if name == "live_streams" else ""
    return f"{verdict(row)}: {found or REASONS.get((name, row.what), NOT_EXPLAINED)}"


def with_figures(text: str, results: Results) -> str:
    """Return a page's text with the figures of these results. Raises KeyError for a figure that is none of them."""

    def figure(match: re.Match[str]) -> str:
        name, what, form = match.groups()
        found = {row.what: row for row in rows_of(results[name])}[what]
        ratio = found.ratio or float("nan")
        value = {"ratio": ratio, "inverse": 1.0 / ratio}.get(form, found.value)
        return f"{match[0].partition('-->')[0]}-->{number(value)}<!---->"

    return FIGURE.sub(figure, text)


def draw(answers: list[Answer], python: str) -> None:
    """Draw the plots of these answers, and add their data to that of the other plots."""
    series = [
        {"plot": line.plot, "label": line.label, "points": line.points} for answer in answers for line in answer.series
    ]
    PLOTS.mkdir(exist_ok=True)
    drawn = {line["plot"] for line in series}
    others = json.loads(SERIES.read_text()) if SERIES.exists() else []
    SERIES.write_text(json.dumps([*(line for line in others if line["plot"] not in drawn), *series], indent=1) + "\n")
    subprocess.run(
        [python, "-m", "benchmarks.draw", str(PLOTS)],
        input=json.dumps(series),
        text=True,
        env=clients_variables(),
        cwd=ROOT,
        check=True,
        timeout=120,
    )


if __name__ == "__main__":
    write_pages()
