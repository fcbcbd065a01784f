"""Shows code that needs an event loop in two tabs, for asyncio and for trio, from one source.

The pages are written for trio. The form for asyncio is made of it by the table below, where a block consists of words
that the table has; any other block is shown as it is. The tests run both forms.
"""

from __future__ import annotations

import re
from typing import Any

FORMS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), form)
    for pattern, form in (
        (r"\bms\.open_engine\(", "aio.open_engine("),
        (r"\bms\.Engine\b", "aio.Engine"),
        (r"\btrio\.run\((\w+)\)", r"asyncio.run(\1())"),
        (r"\btrio\.(sleep|Event|Semaphore)\b", r"asyncio.\1"),
        (r"\btrio\.open_nursery\(\)", "asyncio.TaskGroup()"),
        (r"\bnursery\.start_soon\((\w+)(?:, ([^()]*))?\)", r"nursery.create_task(\1(\2))"),
        (r"\bnursery\b", "group"),
    )
)
"""What a block says for trio → what it says for asyncio."""
ALIKE = re.compile(r"\btrio\b|\bms\.open_engine\b|\bms\.Engine\b")
"""A block without any of these is the same in both forms."""
IMPORTS = re.compile(r"^(?:import|from) .*\n", re.MULTILINE)
BLOCK = re.compile(r"^```python(?P<rest>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def to_asyncio(code: str) -> str | None:
    """Return the form for asyncio; None if there is none, or if it is the same.

    A block that imports something gets the imports of asyncio and `manystream.aio` in the place of trio's.
    """
    if not ALIKE.search(code) or re.search(r"\baio\.", code):
        return None
    body = re.sub(r"^import trio\n", "", code, flags=re.MULTILINE)
    for pattern, form in FORMS:
        body = pattern.sub(form, body)
    if re.search(r"\btrio\b|from_thread|cancel_scope", body):
        return None
    first = IMPORTS.search(code)
    if first is None:
        return body
    if re.search(r"\basyncio\.", body):
        body = _with_import(body, "import asyncio\n")
    if re.search(r"\baio\.", body):
        body = body.replace("import manystream as ms\n", "import manystream as ms\nfrom manystream import aio\n", 1)
    return body


def _with_import(code: str, line: str) -> str:
    """Put an import of the standard library before those of other packages, or before other ones of its own."""
    start = IMPORTS.search(code)
    assert start is not None
    ours = re.match(r"(?:import|from) (?:manystream|trio|pytest)\b", code[start.start() :])
    return code[: start.start()] + line + ("\n" if ours else "") + code[start.start() :]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put each block that has two forms into tabs."""

    def tabs(match: re.Match[str]) -> str:
        form = to_asyncio(match["code"])
        if form is None:
            return match[0]
        return "\n\n".join(
            f'=== "{name}"\n\n' + _indented(f"```python{match['rest']}\n{code}```")
            for name, code in (("asyncio", form), ("trio", match["code"]))
        )

    return BLOCK.sub(tabs, markdown)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))
