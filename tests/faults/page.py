"""The table of faults as a page: `python -m tests.faults.page` writes `docs/faults.md`.

What the library does comes from `rows.py`, whose tests prove it; what other clients do comes from `clients.json`,
which `python -m tests.faults.measure` has printed.
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

What can go wrong between a caller and a server, and what the caller then sees. Each row is provoked on loopback by the
tests it names, with real sockets: resets, black holes, certificates, proxies. For every one of them holds besides: the
call completes exactly once; a stream has exactly one `Done` or `Error`, last; what had arrived is in the completion; no
descriptor and no task is left; the next call is answered with its own answer; no error shows a key.

**Outcome**: success, or the error's category. **Reuse**: whether the connection serves another request. **Retry**:
whether another attempt is made, while attempts are left and before anything was told; *safe* means that the server
cannot have begun to work on the request.

Beside it, what other clients make of the same bytes, their own retries off, where one answer can show the fault. An
HTTP client does not know where an answer ends, so *the bytes as they came* is all that can be asked of it; the SDK
reads the same stream that this library does. *next request* tells what the fault left behind for it.
"""


def written() -> str:
    """The page."""
    clients: dict[str, dict[str, str]] = json.loads(CLIENTS.read_text("utf-8"))
    lines = [HEAD]
    for title, rows in GROUPS.items():
        lines += [f"## {title}", "", *table(rows, clients), ""]
    lines += ["## Where each is provoked", "", *(proof(row) for rows in GROUPS.values() for row in rows)]
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
    PAGE.write_text(written(), "utf-8")
