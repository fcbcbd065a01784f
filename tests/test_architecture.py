"""The house rules that a machine can hold, read from the sources: who imports whom, and how long a file may be.

Reads the files, imports nothing of ours: a rule holds for code that no test happens to run, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "transport", "providers")
SOURCES = (*PACKAGES, "manystream")
FOLDERS = (*SOURCES, "tests", "benchmarks")

LINE_LIMIT = 500
FUNCTION_LIMIT = 60

BELOW = {"engine", "transport", "providers"}

MAY_IMPORT = {
    "engine": BELOW,
    "transport": {"transport"},
    "providers": {"providers"},
    "manystream": {"manystream", "manystream/simulator", *BELOW},
    "manystream/simulator": {"manystream/simulator"},
}
"""Package → the packages of ours that it may import. What is in `manystream` is built on the other three, and none of
them imports it. The simulator is the dialects' witness, so it stands alone."""

MUST_NOT_IMPORT = {
    "providers": {"trio", "h11", "asyncio", "socket", "ssl", "select", "selectors", "time", "random", "os", "secrets"}
    | {"uuid", "threading", "subprocess", "http", "urllib.request"},
    "transport": {"json", "orjson"},
    "engine": {"asyncio"},
    "manystream": {"asyncio"},
}
"""Package → modules of others that it must not import: providers does no I/O and has no clock, no chance and no
environment; transport knows no JSON."""

ALLOWED_IMPORTS = {
    ("manystream/aio.py", "asyncio"),
    ("engine/monitor.py", "manystream/__version__"),
    ("providers/gemini/response.py", "secrets"),
}
"""Exceptions, each with its reason: `aio` is the bridge for asyncio programs; a monitor reports the package's version,
which has one home; Gemini's `parse_response`, which is called without an engine, makes the ids of tool calls itself."""


LINKS = tuple(ROOT / "manystream" / package for package in PACKAGES)
"""The package's links to the folders beside it."""


def python_files(folder: str) -> list[Path]:
    """Every Python file below a top-level folder; links are not followed, so nothing is read twice."""
    return sorted(
        path
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts and not any(link in path.parents for link in LINKS)
    )


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def package_of(name: str) -> str:
    """The longest row of `MAY_IMPORT` that a path belongs to; empty where it is none of ours."""
    name = name.removesuffix(".py")
    rows = [package for package in MAY_IMPORT if name == package or name.startswith(package + "/")]
    return max(rows, key=len, default="")


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and target of each import, also of those inside functions and `if TYPE_CHECKING`.

    Relative ones come as paths from the top (`providers/errors`, `manystream/batch/run`), absolute ones as dotted names
    (`urllib.request`)."""
    here = path.relative_to(ROOT).parent.parts
    if here[0] in PACKAGES:
        here = ("manystream", *here)  # where the package sees it
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            if not node.level:
                yield node.lineno, ".".join(module)
            else:
                base = here[: len(here) - node.level + 1]
                for alias in node.names:
                    target = (*base, *module, alias.name)
                    yield node.lineno, "/".join(target[1:] if target[1] in PACKAGES else target)


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in python_files(folder)]


@pytest.mark.parametrize("path", sources(*SOURCES), ids=name_of)
def test_imports_of_ours_go_in_one_direction(path: Path) -> None:
    package = package_of(name_of(path))
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for line, target in imports_of(path)
        if package_of(target)
        and package_of(target) not in MAY_IMPORT[package]
        and (name_of(path), target) not in ALLOWED_IMPORTS
    ]
    assert not wrong


FOR_THE_TYPE = {("providers/profile", "providers/dialect")}
"""Importer and imported that make a circle of types: a profile may hold a dialect, whose functions take a provider,
which has a profile."""


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for type checkers only, and imports inside functions, count as well: a circle means that two files are
    one. A package's `__init__` hands names on, so who imports a name from it is not counted."""
    modules = {name_of(path).removesuffix(".py"): path for path in sources(*SOURCES) if path.stem != "__init__"}
    imports: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for _, target in imports_of(path):
            imports[name] |= {target, target.rpartition("/")[0]} & modules.keys()
    for importer, imported in FOR_THE_TYPE:
        imports[importer].remove(imported)
    while imports:
        free = [name for name, needs in imports.items() if not needs & imports.keys()]
        assert free, f"in a circle, or above one: {sorted(imports)}"
        for name in free:
            del imports[name]


OWNED_ROOMS: dict[str, tuple[str, ...]] = {
    "providers/history": ("providers/*/converter.py", "providers/openai/*/converter.py", "manystream/batch/*.py"),
    "providers/openai/legacy": (),
}
"""Room → the files outside it that may import it."""


@pytest.mark.parametrize("room", OWNED_ROOMS)
def test_a_room_is_imported_by_its_owner_alone(room: str) -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in sources(*SOURCES)
        if room not in name_of(path) and not any(path.match(pattern) for pattern in OWNED_ROOMS[room])
        for line, target in imports_of(path)
        if target == room or target.startswith(room + "/")
    ]
    assert not wrong


@pytest.mark.parametrize("path", sources(*SOURCES), ids=name_of)
def test_a_package_keeps_off_what_is_not_its_business(path: Path) -> None:
    name = name_of(path)
    forbidden = MUST_NOT_IMPORT[name.split("/")[0]]
    wrong = [
        f"{name}:{line} imports {target}"
        for line, target in imports_of(path)
        if (target in forbidden or target.split(".")[0] in forbidden) and (name, target) not in ALLOWED_IMPORTS
    ]
    assert not wrong


@pytest.mark.parametrize("path", sources(*SOURCES), ids=name_of)
def test_packages_import_each_other_relatively(path: Path) -> None:
    """A copy under another name must work, and `engine` must never be found as a top-level module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        wrong = [name for name in names if name.split(".")[0] in ("manystream", *PACKAGES)]
        assert not wrong, f"{name_of(path)}:{node.lineno}"


@pytest.mark.parametrize("path", sources("providers", "transport"), ids=name_of)
def test_any_stops_at_the_json_file(path: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Name)}
    assert "Any" not in names or name_of(path) == "providers/json_values.py"


@pytest.mark.parametrize("path", sources(*SOURCES), ids=name_of)
def test_every_file_says_what_it_knows(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert not tree.body or ast.get_docstring(tree)


@pytest.mark.parametrize("path", sources(*FOLDERS), ids=name_of)
def test_no_file_is_too_long_to_read(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= LINE_LIMIT


@pytest.mark.parametrize("path", sources(*SOURCES), ids=name_of)
def test_no_function_is_too_long_to_read(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for node in functions
        if (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LIMIT
    ]
    assert not long


def test_the_links_lead_to_the_folders_beside_them() -> None:
    for package in PACKAGES:
        link = ROOT / "manystream" / package
        assert link.is_symlink(), f"{link} must be a link, not a copy"
        assert link.readlink() == Path("..") / package


SUPPORT = "support"
BORROWERS = {
    ("fuzz", "engine"): "it looks for seeds in what the tests try: keys and their spellings",
    ("fuzz", "transport"): "the same: framings of chunks and of events",
    ("docs", "conformance"): "the pages on dialects are written from its tables",
    ("providers", "conformance"): "its cases, and its reading of the official types, are what dialects are held to",
}
"""Folder of tests, and the one it borrows from beside `support` → why."""


def folder_of_tests(module: list[str]) -> str:
    """The folder below `tests` that a module is in; empty for one that is in `tests` itself."""
    return module[1] if len(module) > 1 and (ROOT / "tests" / module[1]).is_dir() else ""


@pytest.mark.parametrize("path", sources("tests"), ids=name_of)
def test_tests_share_what_is_in_support_alone(path: Path) -> None:
    folder = folder_of_tests([*path.relative_to(ROOT).parent.parts])
    wrong: list[str] = []
    for line, target in imports_of(path):
        module = re.split(r"[./]", target)
        if "/" in target and module[0] in PACKAGES:
            module.insert(0, "tests")  # a relative one: `imports_of` leaves out what is above a package's name
        lender = folder_of_tests(module) if module[0] == "tests" else ""
        if folder and lender not in ("", folder, SUPPORT) and (folder, lender) not in BORROWERS:
            wrong.append(f"{name_of(path)}:{line} imports {target}")
    assert not wrong


PLACE_OF_CASES = {"pytest.mark.parametrize": 1, "st.sampled_from": 0}
"""What makes cases → which of its arguments holds them."""


def names_of_sets(tree: ast.Module) -> set[str]:
    """The names that a module binds to sets."""
    return {
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Set | ast.SetComp)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def taken_one_by_one(cases: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose members become cases, in the order in which they come."""
    yield cases
    if isinstance(cases, ast.List | ast.Tuple):
        yield from (element.value for element in cases.elts if isinstance(element, ast.Starred))
    elif isinstance(cases, ast.ListComp | ast.GeneratorExp):
        yield from (generator.iter for generator in cases.generators)
    elif isinstance(cases, ast.Call) and ast.unparse(cases.func) in ("list", "tuple"):
        yield from cases.args


@pytest.mark.parametrize("path", sources("tests"), ids=name_of)
def test_the_cases_of_a_test_do_not_depend_on_the_hash_seed(path: Path) -> None:
    """The order of a set of texts differs from run to run, and with it the names and the order of the cases."""
    tree = ast.parse(path.read_text("utf-8"))
    sets = names_of_sets(tree)
    for call in ast.walk(tree):
        place = PLACE_OF_CASES.get(ast.unparse(call.func)) if isinstance(call, ast.Call) else None
        if isinstance(call, ast.Call) and place is not None and len(call.args) > place:
            for cases in taken_one_by_one(call.args[place]):
                is_set = isinstance(cases, ast.Set | ast.SetComp) or (isinstance(cases, ast.Name) and cases.id in sets)
                assert not is_set, f"{name_of(path)}:{call.lineno}: sort the cases"
