"""`python -m tests.faults.page` writes the table of faults as a page, `docs/faults.md`.

`rows.py` has the outcomes of the library, and its tests prove them. `clients.json` has the outcomes of other clients;
`python -m tests.faults.measure` prints them.
"""

import json
from pathlib import Path

from tests.faults.rows import GROUPS, Row

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "faults.md"
CLIENTS = Path(__file__).with_name("clients.json")

HEAD = """\
# Faults

<!-- Written by `python -m tests.faults.page`; do not edit. -->

This page is for people who must know how calls fail. It lists faults between a caller and a server, and what the caller
sees. The tests cause each fault on loopback with real sockets: resets, dropped packets, certificates, proxies.

For every fault, these hold as well:

- The call completes exactly once. A stream has exactly one `Done` or `ErrorEvent`, last.
- The completion has everything that had arrived.
- No descriptor and no task is left. The next call gets its own answer.
- No error shows a key.

| column | meaning |
| --- | --- |
| outcome | success, or the category of the error |
| reuse | whether the connection serves another request |
| retry | whether the engine makes another attempt, while attempts are left and nothing has reached the caller |
| *safe* | the server cannot have started on the request |
| other clients | what they report for these bytes, without retries of their own, where one answer can show it |
| *the bytes as they came* | an HTTP client does not know where an answer ends, so it can report the bytes only |
| *next request* | what the fault does to the next request |
"""


def page_text() -> str:
    """Return the text of the page."""
    clients: dict[str, dict[str, str]] = json.loads(CLIENTS.read_text("utf-8"))
    lines = [HEAD]
    for title, rows in GROUPS.items():
        lines += [f"## {title}", "", *table(rows, clients), ""]
    lines += ["## Tests", "", *(proof(row) for rows in GROUPS.values() for row in rows)]
    return "\n".join(lines) + "\n"


def table(rows: tuple[Row, ...], clients: dict[str, dict[str, str]]) -> list[str]:
    shown = [name for name in clients if any(str(row.number) in clients[name] for row in rows)]
    lines = [line("#", "fault", "outcome", "reuse", "retry", *shown), line(*["---"] * (5 + len(shown)))]
    for row in rows:
        others = [clients[name].get(str(row.number), "") for name in shown]
        lines.append(line(str(row.number), row.fault, row.outcome, row.reuse, row.retry, *others))
    return lines


def line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def proof(row: Row) -> str:
    return f"- {row.number}: " + ", ".join(f"`tests/{test}`" for test in row.tests)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page_text(), "utf-8")
