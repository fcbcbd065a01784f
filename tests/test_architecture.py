"""Check the sources against the rules on imports, long files and names.

The tests read the files and do not import the package, so the rules also apply to code that no test runs.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "transport", "providers")
SOURCES = (*PACKAGES, "manystream")
FOLDERS = (*SOURCES, "tests", "benchmarks")

LONG_FILE = 800
FUNCTION_LIMIT = 60

BELOW = {"engine", "transport", "providers"}

MAY_IMPORT = {
    "engine": {"transport/websocket", *BELOW},
    "transport": {"transport", "transport/websocket"},
    "providers": {"providers"},
    "transport/websocket": {"transport"},
    "manystream": {"manystream", "manystream/simulator", "manystream/http_server", "transport/websocket", *BELOW},
    "manystream/simulator": {"manystream/simulator", "manystream/http_server"},
    "manystream/http_server": {"transport/websocket"},
}
"""Package → the packages of the project that it may import. `manystream` is built on the other three, and none of them
imports it. The simulator checks the dialects, so it imports none of them. Of the project, it uses the HTTP server
alone, which uses the frames of a WebSocket."""

MUST_NOT_IMPORT = {
    "providers": {"trio", "h11", "asyncio", "socket", "ssl", "select", "selectors", "time", "random", "os", "secrets"}
    | {"uuid", "threading", "subprocess", "http", "urllib.request"},
    "transport": {"json", "orjson"},
    "engine": {"asyncio"},
    "manystream": {"asyncio"},
}
"""Package → external modules that it must not import. `providers` does no I/O and uses no clock, no randomness and no
environment variables; `transport` does not use JSON."""

ALLOWED_IMPORTS = {
    ("engine/asyncio_tasks.py", "asyncio"),
    ("engine/monitor.py", "manystream/__version__"),
    ("providers/gemini/response.py", "secrets"),
}
"""Exceptions to these rules. `asyncio_tasks` holds the tasks of an engine on asyncio. A
monitor reports the package's version, which is defined in one place. Gemini's `parse_response` is called without an
engine, so it generates ids of tool calls."""


LINKS = tuple(ROOT / "manystream" / package for package in PACKAGES)
"""The package's symbolic links to the folders next to it."""


def python_files(folder: str) -> list[Path]:
    """Return all Python files below a top-level folder. Links are not followed, so no file is returned twice."""
    return sorted(
        path
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts and not any(link in path.parents for link in LINKS)
    )


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def package_of(name: str) -> str:
    """Return the longest key of `MAY_IMPORT` that contains a path; empty if none does."""
    name = name.removesuffix(".py")
    rows = [package for package in MAY_IMPORT if name == package or name.startswith(package + "/")]
    return max(rows, key=len, default="")


@dataclass(slots=True)
class Source:
    """What the rules need to know about a file. The tree itself is not kept: the trees of all files are too large.

    lines: the number of its lines.
    description: its docstring; None if it has statements and no docstring.
    uses_any: whether the name `Any` occurs.
    imports: line and target of each import, also of those inside functions and `if TYPE_CHECKING`. Relative imports are
        paths from the top (`providers/errors`, `manystream/batch/run`), absolute ones are dotted names
        (`urllib.request`).
    absolute_imports: line and dotted name of the absolute ones alone.
    type_lines: the lines of the imports in `if TYPE_CHECKING`.
    functions: line, name and last line of each function.
    unsorted_cases: the lines of the calls that create test cases from a set.
    computed_imports: the lines of the calls that import a module of the package, or one whose name is computed.
    """

    lines: int
    description: str | None
    uses_any: bool = False
    imports: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    absolute_imports: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    type_lines: set[int] = field(default_factory=set[int])
    functions: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
    unsorted_cases: list[int] = field(default_factory=list[int])
    computed_imports: list[int] = field(default_factory=list[int])


@functools.cache
def read(path: Path) -> Source:
    """Parse a file and walk its tree, once in a process: a dozen rules look at the same files."""
    text = path.read_text("utf-8")
    tree = ast.parse(text, str(path))
    source = Source(len(text.splitlines()), (ast.get_docstring(tree) or None) if tree.body else "")
    here = path.relative_to(ROOT).parent.parts
    if here[0] in PACKAGES:
        here = ("manystream", *here)  # its place in the package
    sets = names_of_sets(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            source.uses_any |= node.id == "Any"
        elif isinstance(node, ast.Import):
            source.absolute_imports += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            source.absolute_imports.append((node.lineno, node.module or ""))
        elif isinstance(node, ast.ImportFrom):
            source.imports += relative_imports(node, here)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            source.type_lines |= {
                part.lineno for part in ast.walk(node) if isinstance(part, ast.Import | ast.ImportFrom)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            source.functions.append((node.lineno, node.name, node.end_lineno or node.lineno))
        elif isinstance(node, ast.Call):
            source.unsorted_cases += [node.lineno] * creates_cases_from_a_set(node, sets)
            source.computed_imports += [node.lineno] * hides_an_import(node)
    source.imports += source.absolute_imports
    return source


def relative_imports(node: ast.ImportFrom, here: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield line and target of each name that a relative import in the folder `here` imports."""
    module = tuple(node.module.split(".")) if node.module else ()
    for alias in node.names:
        target = (*here[: len(here) - node.level + 1], *module, alias.name)
        yield node.lineno, "/".join(target[1:] if target[1] in PACKAGES else target)


PLACE_OF_CASES = {"parametrize": ("pytest.mark.parametrize", 1), "sampled_from": ("st.sampled_from", 0)}
"""Last part of the name of a function that creates test cases → its name, and the position of its argument with the
cases."""


def names_of_sets(tree: ast.Module) -> set[str]:
    """Return the names that a module binds to sets."""
    return {
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Set | ast.SetComp)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def creates_cases_from_a_set(call: ast.Call, sets: set[str]) -> bool:
    """Return whether a call creates test cases whose order is that of a set; `sets` has the names bound to sets."""
    name, place = PLACE_OF_CASES.get(call.func.attr, ("", 0)) if isinstance(call.func, ast.Attribute) else ("", 0)
    if not name or ast.unparse(call.func) != name or len(call.args) <= place:
        return False
    return any(
        isinstance(cases, ast.Set | ast.SetComp) or (isinstance(cases, ast.Name) and cases.id in sets)
        for cases in taken_one_by_one(call.args[place])
    )


def hides_an_import(call: ast.Call) -> bool:
    """Return whether a call imports a module by a name that is not that of another package."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in ("import_module", "__import__"):
        return False
    module = call.args[0] if call.args else None
    return not isinstance(module, ast.Constant) or str(module.value).startswith((".", "manystream"))


def taken_one_by_one(cases: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions whose members become test cases, in order."""
    yield cases
    if isinstance(cases, ast.List | ast.Tuple):
        yield from (element.value for element in cases.elts if isinstance(element, ast.Starred))
    elif isinstance(cases, ast.ListComp | ast.GeneratorExp):
        yield from (generator.iter for generator in cases.generators)
    elif isinstance(cases, ast.Call) and ast.unparse(cases.func) in ("list", "tuple"):
        yield from cases.args


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in python_files(folder)]


def test_imports_go_in_one_direction() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in sources(*SOURCES)
        for line, target in read(path).imports
        if package_of(target)
        and package_of(target) not in MAY_IMPORT[package_of(name_of(path))]
        and (name_of(path), target) not in ALLOWED_IMPORTS
    ]
    assert not wrong


def test_modules_of_a_folder_import_each_other_in_no_cycle() -> None:
    """Imports inside functions count, those for type checkers alone do not: types may refer to each other.

    A package's `__init__` only re-exports names, so imports from it are not counted.
    """
    modules = {name_of(path).removesuffix(".py"): path for path in sources(*SOURCES) if path.stem != "__init__"}
    imports: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for line, target in read(path).imports:
            if line not in read(path).type_lines:
                imports[name] |= {target, target.rpartition("/")[0]} & modules.keys()
    assert_no_cycle(imports)


def test_folders_import_each_other_in_no_cycle() -> None:
    """Every import counts here, also those for type checkers, but for those of a door (`__init__`), which re-exports
    names of the folders below it."""
    modules = {name_of(path).removesuffix(".py").removesuffix("/__init__"): path for path in sources(*SOURCES)}
    folders = {name: name_of(path).rpartition("/")[0] for name, path in modules.items()}
    imports: dict[str, set[str]] = {folder: set() for folder in folders.values() if folder != "manystream"}
    for name, path in modules.items():
        for _, target in read(path).imports if path.stem != "__init__" else ():
            folder, other = folders[name], folders.get(target) or folders.get(target.rpartition("/")[0], folders[name])
            if folder != other and {folder, other} <= imports.keys():
                imports[folder].add(other)
    assert_no_cycle(imports)


IMPORTS_BY_NAME = {
    "engine/__init__.py": "the door loads a public name at its first use",
    "manystream/__init__.py": "the same",
    "manystream/ray/__init__.py": "the same",
    "engine/loading.py": "it loads what calls need in steps, while an engine waits",
    "engine/option_rules.py": "an option's rule is loaded when the option is given",
    "providers/catalog/registry.py": "a dialect is loaded when a provider speaks it",
    "providers/catalog/batches.py": "the same for its batch interface",
    "providers/limits/limit_reports.py": "the same for its reader of limits",
    "providers/model/request.py": "a dialect reads another form of a request, and is built on the request",
    "manystream/batch/tables.py": "it loads the reader of a table's format, of another package",
    "manystream/serve/bodies.py": "it loads zstd, which Python 3.14 has, and an extra before",
    "manystream/cli/command_line.py": "a command is loaded when it is given",
    "manystream/cli/batch_options.py": "it loads a function of the user's own",
}
"""File that imports modules by name → the reason. Any other import is a statement, so that the rules above see it."""


def test_no_import_is_hidden() -> None:
    assert {name_of(path) for path in sources(*SOURCES) if read(path).computed_imports} == IMPORTS_BY_NAME.keys()


def assert_no_cycle(imports: dict[str, set[str]]) -> None:
    while imports:
        free = [name for name, needs in imports.items() if not needs & imports.keys()]
        assert free, (
            f"in a cycle, or above one: { {name: sorted(needs & imports.keys()) for name, needs in imports.items()} }"
        )
        for name in free:
            del imports[name]


OWNED_ROOMS: dict[str, tuple[str, ...]] = {
    "providers/history": ("providers/*/converter.py", "providers/openai/*/converter.py",
        "providers/convert/sdk_arguments.py", "manystream/batch/*.py"),
    "providers/openai/legacy": (),
}  # fmt: skip
"""Folder → the files outside it that may import it."""


@pytest.mark.parametrize("room", OWNED_ROOMS)
def test_a_private_folder_is_imported_only_by_its_owner(room: str) -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in sources(*SOURCES)
        if room not in name_of(path) and not any(path.match(pattern) for pattern in OWNED_ROOMS[room])
        for line, target in read(path).imports
        if target == room or target.startswith(room + "/")
    ]
    assert not wrong


EMBEDDING = "engine/embedding"
LIGHT = {
    "engine/observe/private_file": "a file that only its owner reads",
    "engine/request/value_rules": "the rules for options",
    "engine/request/credentials": "where a key is found",
    "engine/request/addresses": "where a provider's address is found",
    "engine/monitor": "the socket that `manystream top` reads",
}
"""The modules of the engine that a program may import beside `engine/embedding`, since they load no engine."""
PROGRAMS = ("batch", "bench", "cli", "ray", "sdk_clients", "serve", "whatif")


def test_programs_use_the_engine_by_its_public_names_and_one_module() -> None:
    """A change inside the engine then breaks no program, and what a program needs of it is read in one place."""
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in sources("manystream")
        if path.relative_to(ROOT / "manystream").parts[0] in PROGRAMS
        for line, target in read(path).imports
        if target.startswith("engine/") and not {target, target.rpartition("/")[0]} & {EMBEDDING, *LIGHT}
    ]
    assert not wrong
    private = [name_of(path) for path in sources("manystream") if "engine._calls" in path.read_text("utf-8")]
    assert not private


def test_a_package_does_not_import_forbidden_modules() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in sources(*SOURCES)
        for line, target in read(path).imports
        if {target, target.split(".")[0]} & MUST_NOT_IMPORT[name_of(path).split("/")[0]]
        and (name_of(path), target) not in ALLOWED_IMPORTS
    ]
    assert not wrong


def test_packages_import_each_other_relatively() -> None:
    """A copy of the package under another name must work, and `engine` must never be imported as a top-level module."""
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in sources(*SOURCES)
        for line, name in read(path).absolute_imports
        if name.split(".")[0] in ("manystream", *PACKAGES)
    ]
    assert not wrong


def test_any_stops_at_the_json_files() -> None:
    users = {name_of(path) for path in sources("providers", "transport") if read(path).uses_any}
    assert users == {"providers/json/json_types.py", "providers/json/json_values.py"}


def test_every_file_says_what_it_is() -> None:
    assert not [name_of(path) for path in sources(*SOURCES) if read(path).description is None]


def test_a_long_file_gives_the_reason() -> None:
    """A concept is one file, whatever its length. The head of a long one says why it is one concept."""
    assert not [
        name_of(path)
        for path in sources(*FOLDERS)
        if read(path).lines > LONG_FILE and "One file because " not in (read(path).description or "")
    ]


def test_no_function_is_too_long() -> None:
    long = [
        f"{name_of(path)}:{line} {name}"
        for path in sources(*SOURCES)
        for line, name, last in read(path).functions
        if last - line >= FUNCTION_LIMIT
    ]
    assert not long


def test_no_field_is_made_by_calling_a_type_with_parameters() -> None:
    """`list[str]()` takes five times as long as a list, and a call makes dozens of them."""
    assert not [path for path in sources(*PACKAGES) if re.search(r"default_factory=\w+\[", path.read_text("utf-8"))]


def test_the_links_lead_to_the_folders_next_to_them() -> None:
    for package in PACKAGES:
        link = ROOT / "manystream" / package
        assert link.is_symlink(), f"{link} must be a link, not a copy"
        assert link.readlink() == Path("..") / package


SUPPORT = "support"
BORROWERS = {
    ("fuzz", "engine"): "it looks for seeds in what the tests try: keys and their spellings",
    ("fuzz", "transport"): "the same: framings of chunks and of events",
    ("docs", "conformance"): "the pages on dialects are written from its tables",
    ("ray", "docs"): "it runs programs of the pages with Ray, which only it installs",
    ("interop", "docs"): "it runs programs of the pages against libraries that only it installs",
    ("providers", "conformance"): "its cases, and its reading of the official types, are what dialects are held to",
}
"""Folder of tests, and another folder besides `support` from which it imports → the reason."""


def folder_of_tests(module: list[str]) -> str:
    """Return the folder below `tests` that contains a module; empty for a module in `tests` itself."""
    return module[1] if len(module) > 1 and (ROOT / "tests" / module[1]).is_dir() else ""


def test_tests_share_only_the_folder_support() -> None:
    wrong: list[str] = []
    for path in sources("tests"):
        folder = folder_of_tests([*path.relative_to(ROOT).parent.parts])
        for line, target in read(path).imports:
            module = re.split(r"[./]", target)
            if "/" in target and module[0] in PACKAGES:
                module.insert(0, "tests")  # a relative import: `relative_imports` omits the part above a package's name
            lender = folder_of_tests(module) if module[0] == "tests" else ""
            if folder and lender not in ("", folder, SUPPORT) and (folder, lender) not in BORROWERS:
                wrong.append(f"{name_of(path)}:{line} imports {target}")
    assert not wrong


def test_the_cases_of_a_test_do_not_depend_on_the_hash_seed() -> None:
    """The order of a set of strings differs from run to run, and so would the names and the order of the test cases."""
    unsorted = [f"{name_of(path)}:{line}" for path in sources("tests") for line in read(path).unsorted_cases]
    assert not unsorted, "sort the cases"
