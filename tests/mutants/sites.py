"""Find the mutants of the package's code. A mutant is one small change of one file.

Knows Python's syntax tree. Must not know tests. A change replaces a span of the source and keeps all line numbers.
Docstrings, annotations, texts for people (strings with a space) and methods without a body are not changed.
"""

from __future__ import annotations

import ast
import hashlib
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("engine", "transport", "providers", "manystream")

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
TEXTS = frozenset({"help", "metavar", "description", "epilog"})
"""Arguments of argparse that are always texts for people."""

SIMPLE_STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Break, ast.Continue, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """One small change of one file.

    path: path below the root.
    scope: dotted name of the function, class or table.
    line: number of the first changed line.
    column: offset of the change in its line, in bytes, without the indentation.
    start: offset of the replaced span in the file, in bytes.
    end: offset of the span's end.
    before: the replaced text.
    after: the new text.
    names: the names that the changed statement binds at import; empty inside a function.
    text: the whole first line, without its indentation.
    """

    path: str
    scope: str
    line: int
    column: int
    start: int
    end: int
    before: str
    after: str
    names: tuple[str, ...]
    text: str

    @property
    def id(self) -> str:
        """Eight hexadecimal digits that do not change when lines move. Identical lines of one scope share an id."""
        words = "\0".join((self.path, self.scope, self.text, str(self.column), self.before, self.after))
        return hashlib.sha256(words.encode()).hexdigest()[:8]

    @property
    def title(self) -> str:
        return f"{self.path}:{self.line}:{self.column} {self.scope}: {self.before!r} → {self.after!r}"

    def apply(self, source: bytes) -> bytes:
        assert source[self.start : self.end] == self.before.encode(), self.title
        return source[: self.start] + self.after.encode() + source[self.end :]


class Source:
    """A file, its syntax tree, and the byte offset of each node."""

    def __init__(self, root: Path, path: Path) -> None:
        self.path = path.relative_to(root).as_posix()
        self.data = path.read_bytes()
        self.tree = ast.parse(self.data)
        self._line_starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def place(self, line: int, column: int) -> int:
        return self._line_starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.place(node.lineno, node.col_offset), self.place(node.end_lineno, node.end_col_offset)

    def text(self, start: int, end: int) -> str:
        return self.data[start:end].decode()

    def line(self, number: int) -> str:
        """Return a line without its indentation."""
        return self.text(self._line_starts[number - 1], self._line_starts[number]).strip()

    def column(self, start: int) -> int:
        """Return the offset of a place in its line, without the indentation."""
        first = self._line_starts[bisect(self._line_starts, start) - 1]
        before = self.data[first:start]
        return len(before.lstrip())

    def between(self, left: ast.expr, right: ast.expr, word: str) -> tuple[int, int] | None:
        """Return the span of an operator between its operands; None if a comment is in between."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.text(start, end)
        if "#" in gap or gap.count(word) != 1:
            return None
        found = start + len(gap[: gap.index(word)].encode())
        return found, found + len(word)


def sources(root: Path, within: Sequence[str] = ("",)) -> Iterator[Source]:
    """Yield the package's files whose paths begin with one of the given texts."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            linked = any(parent.is_symlink() for parent in path.relative_to(root).parents if str(parent) != ".")
            if not linked and path.relative_to(root).as_posix().startswith(tuple(within)):
                yield Source(root, path)


def bound_names(statement: ast.stmt) -> tuple[str, ...]:
    """Return the names that a statement at module level binds."""
    if isinstance(statement, ast.Assign):
        return tuple(node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name))
    if isinstance(statement, ast.AnnAssign | ast.AugAssign) and isinstance(statement.target, ast.Name):
        return (statement.target.id,)
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (statement.name,)
    return ()


def all_mutants(root: Path, within: Sequence[str] = ("",)) -> list[Mutant]:
    """Return all mutants from which a selection is drawn, in the order of the files."""
    return [mutant for source in sources(root, within) for mutant in mutants_in(source)]


def mutants_in(source: Source) -> list[Mutant]:
    """Return all mutants of one file, in order."""
    return _Walker(source).found()


class _Walker:
    """Collects the mutants of one file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._found: list[Mutant] = []
        self._scope: list[str] = []
        self._names: tuple[str, ...] = ()
        self._in_function = False

    def found(self) -> list[Mutant]:
        self._body(self._source.tree.body)
        return self._found

    def _add(self, span: tuple[int, int] | None, after: str, line: int) -> None:
        if span is None:
            return
        before = self._source.text(*span)
        names = () if self._in_function else self._names
        scope = ".".join(self._scope) or ",".join(self._names) or "module"
        if before != after:
            self._found.append(
                Mutant(
                    self._source.path,
                    scope,
                    line,
                    self._source.column(span[0]),
                    *span,
                    before,
                    after,
                    names,
                    self._source.line(line),
                )
            )

    def _body(self, body: list[ast.stmt]) -> None:
        for number, statement in enumerate(body):
            if not self._scope:
                self._names = bound_names(statement)
            if number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom) or _is_typing_only(statement):
            return
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            self._function(statement)
            return
        if isinstance(statement, ast.ClassDef):
            self._scope.append(statement.name)
            self._body(statement.body)
            self._scope.pop()
            return
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if self._in_function and isinstance(statement, SIMPLE_STATEMENTS) and not is_text:
            self._remove(statement)
        for child in ast.iter_child_nodes(statement):
            if isinstance(statement, ast.AnnAssign) and child is statement.annotation:
                continue
            self._child(child)

    def _function(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if all(_is_text(statement) for statement in function.body):
            return  # a protocol's method: nothing calls it, and so its defaults have no effect
        for default in (*function.args.defaults, *(node for node in function.args.kw_defaults if node)):
            self._expression(default)
        outside, self._in_function = self._in_function, True
        self._scope.append(function.name)
        self._body(function.body)
        self._scope.pop()
        self._in_function = outside

    def _child(self, child: ast.AST) -> None:
        if isinstance(child, ast.stmt):
            if not _is_text(child):
                self._statement(child)
        elif isinstance(child, ast.expr):
            self._expression(child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case | ast.withitem):
            for grandchild in ast.iter_child_nodes(child):
                self._child(grandchild)

    def _remove(self, statement: ast.stmt) -> None:
        start, end = self._source.span(statement)
        text = self._source.text(start, end)
        self._add((start, end), "pass" + " \\\n" * text.count("\n"), statement.lineno)

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Compare):
            self._compare(node)
        elif isinstance(node, ast.BoolOp):
            word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                self._add(self._source.between(left, right, word), other, right.lineno)
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            word, other = OPERATORS[type(node.op)]
            self._add(self._source.between(node.left, node.right, word), other, node.lineno)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start, _ = self._source.span(node)
            self._add((start, start + len("not")), "", node.lineno)
        elif isinstance(node, ast.IfExp):
            self._add(self._source.span(node.test), "True", node.lineno)
        elif isinstance(node, ast.Constant):
            self._constant(node)
        elif isinstance(node, ast.JoinedStr):
            return  # texts for people, nearly all
        for child in ast.iter_child_nodes(node):
            if (isinstance(child, ast.keyword) and child.arg in TEXTS) or child is typing_argument(node):
                continue
            if isinstance(child, ast.expr | ast.comprehension | ast.keyword):
                for expression in [child] if isinstance(child, ast.expr) else ast.iter_child_nodes(child):
                    if isinstance(expression, ast.expr):
                        self._expression(expression)

    def _compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            word, other = COMPARISONS[type(operator)]
            self._add(self._source.between(left, right, word), other, right.lineno)

    def _constant(self, node: ast.Constant) -> None:
        for after in changed_constant(node):
            self._add(self._source.span(node), after, node.lineno)


def typing_argument(node: ast.AST) -> ast.expr | None:
    """Return the type of a `cast`, or the name of a type variable: they have no effect when the program runs."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("cast", "TypeVar"):
        return node.args[0]
    return None


def changed_constant(node: ast.Constant) -> Iterable[str]:
    """Return the replacement of a constant: one text, or none if it must not be changed."""
    value = node.value
    if isinstance(value, bool):
        return [repr(not value)]
    if isinstance(value, int):
        return [repr(value + 1)]
    if isinstance(value, float):
        return [repr(value * 2 + 1.0)]
    if isinstance(value, str) and " " not in value.strip():
        return [repr(value + "x") if value else repr("x")]
    if isinstance(value, bytes):
        return [repr(value + b"x")]
    return []


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_typing_only(statement: ast.stmt) -> bool:
    """Return whether the statement is only for type checkers: a type alias, an overload, or a TYPE_CHECKING block."""
    if isinstance(statement, ast.AnnAssign):
        return "TypeAlias" in ast.unparse(statement.annotation)
    if isinstance(statement, ast.If):
        return "TYPE_CHECKING" in ast.unparse(statement.test)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets)
    decorators = getattr(statement, "decorator_list", [])
    return any(ast.unparse(decorator) in ("overload", "typing.overload") for decorator in decorators)
