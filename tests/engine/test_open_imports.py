"""The modules that opening an engine imports. Each costs a program's start 0.1 to 1 ms, mostly for its dataclasses."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import trio
before = set(sys.modules)
import manystream as ms
async def main():
    async with ms.open_engine([ms.OpenAIChat(api_key="k", base_url="http://127.0.0.1:1/v1")]) as engine:
        print(*sorted(set(sys.modules) - before))
trio.run(main)
"""

MOST_MODULES = 151
"""The modules that one engine with one provider may import, beside those of trio. 148 when this was written."""

MOST_OWN_MODULES = 126
"""Those of them that are the library's own. 123 when this was written."""

LATER = {
    "manystream.engine.dispatcher": "an engine with `traffic`",
    "manystream.engine.mapped": "engine.map",
    "manystream.engine.monitor": "an engine with `monitor`",
    "manystream.engine.observe": "an engine with an observer",
    "manystream.engine.portal": "engine.from_thread",
    "manystream.engine.record": "engine.record",
    "manystream.engine.statistics": "engine.statistics",
    "manystream.engine.stream": "engine.stream",
    "manystream.engine.traffic.options": "an engine with `traffic`",
    "manystream.providers.anthropic.dialect": "a provider of another dialect",
    "manystream.providers.sdk_arguments": "Request.from_openai and its like",
    "manystream.store": "a conversation store",
    "manystream.transport.asyncio_backend": "an engine on asyncio",
    "decimal": "budgets",
    "email": "a Retry-After header with a date",
    "statistics": "an engine with `traffic`",
}
"""Module → what imports it."""


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules that opening an engine imports, beside those of trio."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    return set(done.stdout.split())


def test_opening_an_engine_imports_what_every_engine_needs(imported: set[str]) -> None:
    assert len(imported) <= MOST_MODULES, sorted(imported)
    assert sum(name.partition(".")[0] == "manystream" for name in imported) <= MOST_OWN_MODULES, sorted(imported)


def test_what_some_programs_need_is_imported_when_they_use_it(imported: set[str]) -> None:
    assert "manystream.engine.core" in imported
    assert imported.isdisjoint(LATER), sorted(imported & LATER.keys())
