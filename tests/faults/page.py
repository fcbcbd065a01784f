"""Write the table of faults as a page: `python -m tests.faults.page` writes `docs/faults.md`.

The library's behaviour comes from `rows.py`, whose tests prove it. The behaviour of other clients comes from
`clients.json`, the output of `python -m tests.faults.measure`.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.faults.rows import GROUPS, Row

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "faults.md"
CLIENTS = Path(__file__).with_name("clients.json")

HEAD = """\
# Faults

<!-- Written by `python -m tests.faults.page`; do not edit. -->

This page lists what can go wrong between a caller and a server, and what the caller sees. The tests at the end of the
page provoke each fault on loopback with real sockets: resets, black holes, certificates, proxies. In addition, the
tests check for every fault:

- The call completes exactly once.
- A stream has exactly one `Done` or `Error`, as its last event.
- The completion contains what had arrived.
- No descriptor and no task is leaked.
- The next call receives its own response.
- No error shows a key.

The columns:

- **outcome**: success, or the category of the error. *hidden* means that the caller does not notice the fault.
- **reuse**: whether the connection is reused for another request.
- **retry**: whether the call is retried, if attempts are left and no event was delivered. *safe* means that the server
  cannot have begun to process the request.
- The other columns show what other clients make of the same bytes, with their own retries off, if one response can show
  the fault. An HTTP client does not know where an answer ends, so it can only return *the bytes as they came*. The SDK
  reads the same stream as this library. *next request* is the effect of the fault on the next request.
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
