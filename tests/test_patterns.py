"""Every regular expression of the package takes linear time for any input.

A pattern that backtracks on a server's bytes blocks all streams meanwhile. The tests count the steps of a machine that
backtracks as `re` does, so the result is the same on a busy machine.
"""

import ast
import functools
import importlib
import pkgutil
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import h11._abnf
import h11._headers
import h11._readers
import pytest

import manystream
from manystream.providers.limits.server_load import _pattern as figure_pattern
from manystream.providers.wire.delta_template import VolatileMembers
from manystream.providers.wire.error_bodies import error_from_object
from manystream.transport.response_head import HeadError, HeadReader
from tests.support.backtracking import attacks, growth, steps, worst
from tests.test_architecture import PACKAGES, name_of, sources

LINEAR = 2.0
"""The maximum growth of the work per character at four times the length. Linear work has about 1, quadratic work 4."""

RE_FUNCTIONS = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer", "template"}

MADE_FROM_DATA = {
    "engine/request/redaction.py:hide",
    "engine/request/redaction.py:split",
    "providers/limits/server_load.py:_pattern",
    "providers/wire/delta_template.py:_member_pattern",
}
"""Functions that compile a pattern from a key, or from names of a dialect or of a server's figures.

`tests/engine/request/test_redaction.py`, `test_the_pattern_of_a_servers_figure_is_linear` and
`test_time_is_linear` run them."""


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(manystream.__path__, "manystream."):
        if found.name.endswith("__main__"):
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError as error:
            if (error.name or "").startswith("manystream"):
                raise  # otherwise an extra is not installed


def patterns_in(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict) and depth < 4:
        yield from patterns_in([*value.keys(), *value.values()], depth + 1)
    elif isinstance(value, list | tuple | set | frozenset) and depth < 4:
        for each in value:
            yield from patterns_in(each, depth + 1)
    elif isinstance(value, type) and value.__module__.startswith("manystream") and depth < 4:
        yield from patterns_in(list(vars(value).values()), depth + 1)
    elif isinstance(value, VolatileMembers):
        yield from patterns_in([value.counter, value.padding], depth + 1)


PATTERNS: dict[str, re.Pattern[Any]] = {
    f"{module.__name__.removeprefix('manystream.')}.{name}{f'[{number}]' if number else ''}": pattern
    for module in modules()
    for name, value in vars(module).items()
    for number, pattern in enumerate(patterns_in(value))
}


def trees_with(attributes: Collection[str]) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the files whose text names one of the attributes, with their syntax trees."""
    named = re.compile(rf"\.\s*(?:{'|'.join(attributes)})\b")
    for path in sources(*PACKAGES):
        text = path.read_text("utf-8")
        if named.search(text):
            yield path, ast.parse(text)


SEARCHES = {"search": "search", "sub": "search", "subn": "search", "split": "search", "findall": "search"}
METHODS = {**SEARCHES, "finditer": "search", "match": "match", "fullmatch": "fullmatch"}
"""A pattern's method → the method with the same cost."""


@functools.cache
def uses() -> dict[str, set[str]]:
    """Return name of a pattern → the methods that the package calls on it."""
    found: dict[str, set[str]] = {}
    for _, tree in trees_with(METHODS):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.value, ast.Name):
                found.setdefault(node.value.id, set()).add(METHODS[node.attr])
    return found


USED_AS = {
    "_GOOGLE": {"fullmatch"},  # as the form of a section's entries
    "ENDPOINTS": {"fullmatch"},  # in a loop over the rows
    "_BUCKET_HEADERS": {"fullmatch"},
    "_DURATION_PART": {"match"},  # it searches only text that `_DURATION` has matched: each search ends at once
}
"""Pattern → its methods, if the source does not show them by the pattern's name, or shows more than are used."""


def test_the_patterns_are_found() -> None:
    assert len(PATTERNS) > 50
    assert "transport.chunked._SIZE_LINE" in PATTERNS
    assert "providers.wire.error_bodies.MESSAGE_CATEGORY[6]" in PATTERNS
    assert any(name.startswith("providers.openai.responses.stream.ResponsesStream") for name in PATTERNS)


@pytest.mark.parametrize("name", PATTERNS)
def test_time_is_linear(name: str) -> None:
    variable = name.rpartition(".")[2].partition("[")[0]
    methods = USED_AS.get(variable) or uses().get(variable) or {"search", "fullmatch"}
    found, method, attack = worst(PATTERNS[name], sorted(methods))
    assert found < LINEAR, f"{PATTERNS[name].pattern!r}: {method} on {attack} grows {found:.1f}-fold per character"


QUADRATIC = [
    r"[ \t]*[^\x00\s]?[ \t]*", rb"([0-9A-Fa-f]{1,16})(?:;[^\n]*)?[ \t]*\r\n", r"<title[^>]*>(.*?)</title>",
    r"<(?:script|style).*?</(?:script|style)>|<[^>]{0,500}>", r"\s+$", r"(?:a+)+b", r"(?:a|aa)*b", r"x*y*x*z", r"\\+n",
]  # fmt: skip


@pytest.mark.parametrize("pattern", QUADRATIC)
def test_superlinear_work_is_detected(pattern: str | bytes) -> None:
    assert worst(re.compile(pattern, re.DOTALL))[0] >= LINEAR


def test_the_machine_agrees_with_re() -> None:
    """The machine must find the same matches as `re`; otherwise its steps would be meaningless."""
    from tests.support.backtracking import Machine, parsed

    for pattern in PATTERNS.values():
        ops = parsed(pattern)
        for before, piece, end in attacks(pattern)[:60]:
            text = before + piece + end
            machine = Machine(text, bool(pattern.flags & re.I), bool(pattern.flags & re.S), shorten=False)
            given = text.encode("latin-1") if isinstance(pattern.pattern, bytes) else text
            if pattern.flags & re.ASCII and not text.isascii():
                continue
            ends = set(machine.ends(ops, 0))
            if pattern.fullmatch(given):
                assert len(text) in ends, (pattern, text)


def test_the_pattern_of_a_servers_figure_is_linear() -> None:
    assert worst(figure_pattern("a:b"), ["search"])[0] < LINEAR


def test_no_pattern_hides_inside_a_function() -> None:
    found: set[str] = set()
    for path, tree in trees_with(RE_FUNCTIONS):
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Attribute)
                    and node.attr in RE_FUNCTIONS
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "re"
                ):
                    found.add(f"{name_of(path)}:{getattr(function, 'name', 'lambda')}")
    assert found == MADE_FROM_DATA


# --- h11's patterns, which check the names and values of a response head ---


@pytest.mark.parametrize(
    "pattern",
    [h11._headers._content_length_re, h11._headers._field_name_re, h11._headers._field_value_re],
    ids=["content-length", "field name", "field value"],
)
def test_the_patterns_of_h11_on_a_head_are_linear(pattern: re.Pattern[bytes]) -> None:
    assert max(growth(pattern, attack, "fullmatch") for attack in attacks(pattern)) < LINEAR


# --- attacks of realistic size, through the public functions ---

HOSTILE_WORDS = {
    "titles without an end": "<title>" * 20_000, "title tags without an end": "<title " * 20_000,
    "scripts without an end": "<script>" * 20_000, "brackets": "<" * 150_000, "long tags": ("<" + "a" * 400) * 400,
    "white space": "a " * 75_000,
    "retry hints": "try again in " + ("1" * 50 + "x") * 2_000 + "try again in 1 m" * 5_000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_WORDS)
def test_hostile_text_in_an_error_takes_linear_time(name: str) -> None:
    error = error_from_object({"error": {"message": "<" + HOSTILE_WORDS[name]}}, http_status=200, body=b"")
    assert 0 < len(error.message) <= 1001


def test_a_header_line_of_120_kb_is_refused() -> None:
    line = b"a:" + b" " * 120_000 + b"\x00"
    with pytest.raises(HeadError, match="header line is longer than 98304 bytes"):
        HeadReader().feed(b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\n")


def test_steps_are_counted() -> None:
    assert steps(re.compile("ab"), "ab", "match") == 2
    assert steps(re.compile("a*b"), "aaa", "match") > steps(re.compile("a*"), "aaa", "match")
