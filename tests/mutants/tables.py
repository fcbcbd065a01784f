"""Find the mutants of the package's tables: one for each entry.

A table is a dict, set, list or tuple that a module binds to a name in capitals, at any depth, or a compiled pattern.
Its entries are constants, members of enumerations and names. Texts for people (strings with a space outside patterns)
are not changed.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.mutants.sites import Mutant, Source, bound_names, changed_constant, sources, typing_argument

_CAPITALS = re.compile(r"_?[A-Z][A-Z0-9_]*")
_TEXTS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
"""The tokens that hold text. Since Python 3.12 an f-string is several tokens."""
_WORD_OF_A_PATTERN = re.compile(r"(?<![\\\w])[A-Za-z]{3,}")


def table_mutants(root: Path, within: Sequence[str] = ("",)) -> list[Mutant]:
    """Return one mutant for each entry, in the order of the files."""
    return [mutant for source in sources(root, within) for mutant in table_mutants_in(source)]


def table_mutants_in(source: Source) -> Iterator[Mutant]:
    """Yield one mutant for each entry of one file's tables."""
    for statement in source.tree.body:
        names = tuple(name for name in bound_names(statement) if _CAPITALS.fullmatch(name))
        value = getattr(statement, "value", None)
        if names and isinstance(value, ast.expr) and _is_table(value):
            alias = isinstance(statement, ast.AnnAssign) and "TypeAlias" in ast.unparse(statement.annotation)
            if not alias:
                yield from _Table(source, names, value).found()


def _is_table(value: ast.expr) -> bool:
    kinds = (ast.Dict, ast.Set, ast.List, ast.Tuple)
    return any(isinstance(node, kinds) for node in ast.walk(value)) or _is_pattern(value)


def _is_pattern(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile"


class _Table:
    """Collects the entries of one table."""

    def __init__(self, source: Source, names: tuple[str, ...], value: ast.expr) -> None:
        self._source = source
        self._names = names
        self._value = value
        self._found: list[Mutant] = []
        members: dict[str, list[str]] = {}
        for node in ast.walk(value):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                members.setdefault(node.value.id, []).append(node.attr)
        self._members = {name: sorted(set(words)) for name, words in members.items()}

    def found(self) -> list[Mutant]:
        self._visit(self._value)
        return self._found

    def _add(self, start: int, end: int, after: str, line: int) -> None:
        before = self._source.text(start, end)
        scope = ",".join(self._names)
        text, column = self._source.line(line), self._source.column(start)
        self._found.append(Mutant(self._source.path, scope, line, column, start, end, before, after, self._names, text))

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Lambda | ast.JoinedStr | ast.comprehension):
            return
        if isinstance(node, ast.expr) and _is_pattern(node):
            self._pattern(node)
            return
        if isinstance(node, ast.Constant):
            for after in changed_constant(node):
                self._add(*self._source.span(node), after, node.lineno)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            others = [word for word in self._members[node.value.id] if word != node.attr]
            if others:
                start, end = self._source.span(node)
                self._add(start, end, f"{node.value.id}.{others[0]}", node.lineno)
            return
        for child in ast.iter_child_nodes(node):
            if (isinstance(node, ast.Call) and child is node.func) or child is typing_argument(node):
                continue
            self._visit(child)

    def _pattern(self, call: ast.AST) -> None:
        """Add a mutant for each word of a pattern, misspelt. Comments between its strings are no part of it."""
        for node in _literals(call):
            start, end = self._source.span(node)
            for place, text, line in _strings(self._source.text(start, end)):
                for word in _WORD_OF_A_PATTERN.finditer(text):
                    at = start + place + len(text[: word.start()].encode())
                    self._add(at, at + len(word[0]), word[0] + "x", node.lineno + line)


def _literals(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the strings below a node. An f-string is one: since Python 3.12 its parts have places of their own."""
    for child in ast.iter_child_nodes(node):
        is_text = isinstance(child, ast.Constant) and isinstance(child.value, str | bytes)
        if isinstance(child, ast.JoinedStr) or is_text:
            yield child
        else:
            yield from _literals(child)


def _strings(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the strings of an expression: offset in bytes, text with its quotes, and number of the line, from 0."""
    lines = f"({text})".splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line.encode()))
    for token in tokenize.generate_tokens(iter(lines).__next__):
        if token.type in _TEXTS:
            row, column = token.start
            yield begins[row - 1] + len(lines[row - 1][:column].encode()) - 1, token.string, row - 1
