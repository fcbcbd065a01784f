"""The modules that opening an engine imports, and those that follow while it waits or with its first call.

Each costs a program's start 0.1 to 1 ms, mostly for its dataclasses.
"""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import resolve_name
from itertools import chain

import pytest
import trio

import manystream as ms
from manystream.engine.loading import STEPS
from manystream.providers.catalog.profile_rules import PROFILE
from manystream.providers.catalog.profiles import DEFAULT_PROFILES, PROFILES, is_row

PROGRAM = """
import resource, sys
import trio, trio.testing
import array, urllib.parse  # trio imports them in some versions of Python; an engine needs them in all
before = set(sys.modules)
import manystream as ms
async def main():
    provider = ms.OpenAIChat(api_key="k", base_url="http://127.0.0.1:1/v1")
    async with ms.open_engine([provider], proxy="") as engine:
        {body}
trio.run(main)
"""

OPENED = "print(*sorted(set(sys.modules) - before))"
"""Prints the modules that opening has imported."""

CALLED = """
        request = ms.Request("m", [ms.Message.user("x")], retry=ms.Retry(max_attempts=1))
        await trio.testing.wait_all_tasks_blocked()
        loaded = set(sys.modules)
        completion = await engine.start_stream(request).wait()
        assert completion.error_category is ms.ErrorCategory.NETWORK, completion
        print(*sorted(set(sys.modules) - loaded))
"""
"""Prints the modules that the first call imports in an engine that has waited."""

EXHAUSTED = """
        request = ms.Request("m", [ms.Message.user("x")], retry=ms.Retry(max_attempts=1))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            engine.start_stream(request)
        except OSError as error:
            print(error.strerror)
        await trio.testing.wait_all_tasks_blocked()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        completion = await engine.start_stream(request).wait()
        print(completion.error_category, engine.statistics().started)
"""
"""Starts the first call without a file descriptor to import with, and then with one."""

MOST_MODULES = 43
"""The modules that one engine with one provider may import, beside those of trio and the doors of folders, which hold
only a docstring. 40 when this was written."""

DOORS = {f"manystream.{folder}" for folder in ("engine.call", "engine.request", "engine.frontends")} | {
    f"manystream.providers.{folder}" for folder in ("catalog", "json", "model", "wire")
}

LATER = {
    "h11": "a call",
    "json": "a call",
    "manystream.engine.calls": "a call",
    "manystream.providers.model.request_rules": "a call",
    "manystream.providers.openai.chat.dialect": "a call",
    "manystream.providers.catalog.profile_rules": "a profile of the program's own",
    "manystream.transport.dial": "a call",
    "manystream.transport.proxy": "a call, or the option `proxy`",
    "orjson": "a call",
    "manystream.engine.traffic.control": "an engine with `traffic`",
    "manystream.engine.frontends.map": "engine.map",
    "manystream.engine.monitor": "an engine with `monitor`",
    "manystream.engine.observe.observer": "an engine with an observer",
    "manystream.engine.frontends.portal": "engine.from_thread",
    "manystream.engine.observe.recording": "engine.record",
    "manystream.engine.observe.statistics": "engine.statistics",
    "manystream.engine.frontends.stream": "engine.stream",
    "manystream.engine.traffic.options": "an engine with `traffic`",
    "manystream.providers.anthropic.dialect": "a provider of another dialect",
    "manystream.providers.convert.sdk_arguments": "Request.from_openai and its like",
    "manystream.store": "a conversation store",
    "manystream.transport.asyncio_backend": "an engine on asyncio",
    "decimal": "budgets",
    "email": "a Retry-After header with a date",
    "statistics": "an engine with `traffic`",
}
"""Module → what imports it."""


def run(body: str) -> list[str]:
    """Return the lines that a program prints which opens an engine and does this in it."""
    program = PROGRAM.replace("{body}", body.strip())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules that opening an engine imports, beside those of trio."""
    return set(run(OPENED)[0].split())


def test_opening_an_engine_imports_what_its_tasks_need(imported: set[str]) -> None:
    assert len(imported - DOORS) <= MOST_MODULES, sorted(imported)


def test_what_some_programs_need_is_imported_when_they_use_it(imported: set[str]) -> None:
    assert "manystream.engine.frontends.engine" in imported
    assert imported.isdisjoint(LATER), sorted(imported & LATER.keys())


def test_an_engine_that_waits_imports_what_its_calls_need() -> None:
    assert run(CALLED) == [""]


def test_the_steps_are_parts_of_the_last_one() -> None:
    import_module("manystream.engine.calls")
    assert all(resolve_name(step, "manystream.engine") in sys.modules for step in STEPS)
    assert STEPS[-1] == ".calls"


def test_a_first_call_without_descriptors_can_be_repeated() -> None:
    assert run(EXHAUSTED) == ["Too many open files", "network 1"]


def test_the_rows_of_profiles_are_right() -> None:
    """An engine does not check them when it opens."""
    for row in (*PROFILES, *chain.from_iterable(DEFAULT_PROFILES.values())):
        PROFILE.check(row)
        assert is_row(row)
    assert not is_row(replace(PROFILES[0]))


def test_an_engine_without_calls_has_figures_after_its_run() -> None:
    """What counts calls is made for them then, outside trio."""
    engines: list[ms.Engine] = []

    async def main() -> None:
        async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:9/v1")]) as engine:
            engines.append(engine)

    trio.run(main)
    figures = engines[0].statistics()
    assert (figures.started, figures.completed, figures.calls) == (0, 0, {})
