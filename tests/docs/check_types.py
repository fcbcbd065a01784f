"""`python -m tests.docs.check_types`: pyright strict over the Python of README.md, docs/ and examples/, in one run.

Each block of a page becomes a module. A block may use a name that an earlier block of its page binds, so its module
imports that name from the module of the earlier block. A fragment also has the names of docs/start.md's setting, and
`engine`. Fragments use `await` at module level. pyright reports that, and this check ignores exactly these reports.
"""

import ast
import builtins
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.blocks import DOCS, ROOT, Block, name_of, pages, read_blocks, setting

SETTING = "page_setting"
"""The module of the names that every fragment has."""
AT_TOP_LEVEL = re.compile(
    r'"await" allowed only within async function|Use of "async" not allowed outside of async function'
    r"|Asynchronous comprehension outside of an asynchronous function"
)
IMPORT = "from {} import {}  # pyright: ignore[reportUnusedImport]"
"""A name may be a parameter or the variable of a comprehension in the block, and then the import is not used."""
PROGRAM = re.compile(r"^import manystream", re.MULTILINE)
ELSEWHERE = "`make interop` runs it"
RAY = "`make ray` runs it"
CLOUD = "`tests/manystream/test_companies.py` runs it"
"""The reasons of blocks that need packages which are not installed here."""
NAMES = {"__file__", "__name__"} | set(dir(builtins))


@dataclass(slots=True, frozen=True)
class Module:
    """A block as a module.

    name: the module's name.
    code: the lines that import names, and the block.
    page: the page that the block is from.
    shift: what is added to a line of the module to get the line of the page.
    """

    name: str
    code: str
    page: str
    shift: int


def loaded(node: ast.AST) -> set[str]:
    """The names that a statement reads, those that its functions read included."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def bound(node: ast.AST) -> Iterator[str]:
    """The names that a statement at module level binds; not the ones that a function in it binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from bound(child)


def missing(tree: ast.Module) -> set[str]:
    """The names that a block reads before it binds them, or never binds."""
    found: set[str] = set()
    already: set[str] = set()
    later = {name for statement in tree.body for name in bound(statement)}
    for statement in tree.body:
        deferred = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        found |= loaded(statement) - (later if deferred else already)
        already |= set(bound(statement))
    return found - NAMES


def modules(page: str, blocks: list[Block], given: dict[str, str]) -> list[Module]:
    """The Python blocks of one page. given: name → module that has it."""
    made: list[Module] = []
    homes: dict[str, str] = {}
    stem = "page_" + re.sub(r"\W", "_", page.removesuffix(".md"))
    programs = [block for block in blocks if block.language == "python" and block.code != setting()]
    programs = [block for block in programs if not (block.reason or "").startswith((ELSEWHERE, RAY, CLOUD))]
    for number, block in enumerate(programs):
        tree = ast.parse(block.code)
        program = PROGRAM.search(block.code) is not None
        origin = homes if program else given | homes
        name = f"{stem}_{number}"
        imports = [IMPORT.format(origin[used], used) for used in sorted(missing(tree)) if used in origin]
        head = "".join(line + "\n" for line in imports)
        made.append(Module(name, head + block.code, page, block.line - len(imports)))
        homes |= {each: name for statement in tree.body for each in bound(statement)}
        if block.title and block.title.endswith(".py"):
            made.append(Module(block.title.removesuffix(".py"), block.code, page, block.line))
    return made


def every_module() -> list[Module]:
    """The modules of all pages, and the setting."""
    code = f"{setting()}\n\nengine: ms.Engine\n"
    tree = ast.parse(code)
    given = {name: SETTING for statement in tree.body for name in bound(statement)} | {"engine": SETTING}
    unused = "# pyright: reportUnusedVariable=false\n"  # its `engine` is for the fragments
    made = [Module(SETTING, unused + code, "docs/start.md", 0)]
    for page in pages():
        made += modules(name_of(page), read_blocks(page.read_text("utf-8")), given)
    return list({module.name: module for module in made}.values())


def check(folder: Path) -> list[str]:
    """Write the modules into a folder, run pyright, and return what it reports."""
    made = {folder / f"{module.name}.py": module for module in every_module()}
    for path, module in made.items():
        path.write_text(module.code, "utf-8")
    settings = {
        "typeCheckingMode": "strict", "pythonVersion": "3.11",
        "include": [str(folder), str(ROOT / "examples"), str(DOCS / "examples")], "extraPaths": [str(ROOT)],
        "reportMissingModuleSource": False, "reportPrivateUsage": False,
    }  # fmt: skip
    configuration = folder / "pyrightconfig.json"
    configuration.write_text(json.dumps(settings), "utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--project", str(configuration)], capture_output=True, text=True, timeout=300, check=False
    )
    reports = json.loads(done.stdout)["generalDiagnostics"]
    return sorted(
        place(report, made) + ": " + report["message"]
        for report in reports
        if not AT_TOP_LEVEL.search(report["message"])
    )


def place(report: dict[str, object], made: dict[Path, Module]) -> str:
    """The page or file, and the line, that a report is about."""
    path = Path(str(report["file"]))
    line: int = report["range"]["start"]["line"] + 1  # type: ignore[index]
    module = made.get(path)
    if module is not None:
        return f"{module.page}:{line + module.shift}"
    return f"{path.relative_to(ROOT)}:{line}"


def main() -> int:
    """Print what pyright reports; the exit status is 1 if there is anything."""
    with tempfile.TemporaryDirectory() as folder:
        reports = check(Path(folder).resolve())
    print("\n".join(reports), end="\n" if reports else "")
    return 1 if reports else 0


if __name__ == "__main__":
    sys.exit(main())
