"""The words in which an error names a function that does not run when it is called."""

import types
from collections.abc import AsyncGenerator, Callable, Generator

import pytest

from manystream.providers.model.rules import why_deferred


async def fetch() -> str:
    return "key"


async def rows() -> AsyncGenerator[str, None]:
    yield "key"


def parts() -> Generator[str, None, None]:
    yield "key"


@types.coroutine
def older() -> Generator[str, None, None]:
    yield "key"


def plain() -> str:
    return "key"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fetch, "fetch is a coroutine function (async def)"),
        (rows, "rows is an asynchronous generator function (async def with yield)"),
        (parts, "parts is a generator function (yield)"),
        (older, "older is a coroutine function (types.coroutine)"),
        (plain, ""),
    ],
    ids=["async def", "async generator", "generator", "types.coroutine", "plain"],
)
def test_a_function_that_would_not_run_is_named_by_its_kind(function: Callable[[], object], words: str) -> None:
    assert why_deferred(function) == words
