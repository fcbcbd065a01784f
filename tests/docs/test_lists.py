"""The lists of the pages are those of the code: extras, commands, options, dialects, names, variables, examples."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import manystream as ms
from manystream.cli.command_line import COMMANDS, command_parser
from manystream.engine.observe.statistics import Statistics
from manystream.providers.catalog.profiles import DEFAULT_PROFILES, PROFILES
from manystream.providers.catalog.registry import DIALECT_MODULES, PROMPT_DIALECTS
from manystream.simulator import Knobs
from manystream.transport.proxy import ENVIRONMENT_VARIABLES
from tests.support.blocks import DOCS, FENCE, ROOT, Block, name_of, pages, read_blocks

TEXTS = {
    name_of(page): page.read_text("utf-8")
    for page in [*pages(), *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
}
PROSE = {page: FENCE.sub("", text) for page, text in TEXTS.items()}
"""The text of each page without its blocks: pyright checks those of Python, and the tests run the commands."""

CODE = re.compile(r"`([^`\n]+)`")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
PRODUCT = ("manystream", "engine", "transport", "providers")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def guide(name: str) -> str:
    return (DOCS / "guide" / f"{name}.md").read_text("utf-8")


def wrong(found: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """The pages of which something was found, with what it is."""
    return {page: sorted(words) for page, words in found.items() if words}


def first_cells(text: str) -> set[str]:
    """The words in code in the first cell of each row of a page's tables."""
    rows = re.findall(r"^\|([^|]+)\|", text, re.MULTILINE)
    return {word for cell in rows for word in CODE.findall(cell)}


def sources() -> Iterator[tuple[str, str]]:
    """The path and the text of each file of the library; its folders are linked below `manystream`."""
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield name_of(path), path.read_text("utf-8")


# --- extras ---


def test_start_has_every_extra() -> None:
    found = re.search(r"^\| extra .*?\n\n", TEXTS["docs/start.md"], re.MULTILINE | re.DOTALL)
    assert found is not None
    assert first_cells(found[0]) - {"extra"} == set(EXTRAS)


def test_contributing_has_every_extra() -> None:
    row = re.search(r"^\| `optional-dependencies` \(extras\) \|([^|]*)\|", TEXTS["CONTRIBUTING.md"], re.MULTILINE)
    assert row is not None
    assert set(CODE.findall(row[1])) == set(EXTRAS)


def test_an_extra_that_a_page_names_exists() -> None:
    def named(text: str) -> set[str]:
        installed = re.findall(r"(?:manystream|whl|\.)\[([a-z0-9,]+)\]", text)
        in_words = re.findall(r"\b[Ee]xtras? `([a-z0-9]+)`", text)
        return {*in_words, *(extra for found in installed for extra in found.split(","))}

    assert not wrong({page: named(text) - set(EXTRAS) for page, text in TEXTS.items()})


# --- commands and their options ---


@cache
def options() -> dict[str, frozenset[str]]:
    """Command → its long options."""
    parsers = next(each for each in command_parser(COMMANDS)._actions if isinstance(each, argparse._SubParsersAction))
    return {
        name: frozenset(option for action in parser._actions for option in action.option_strings if option[:2] == "--")
        for name, parser in parsers.choices.items()
    }


OPTION_PAGES = {
    "batch": ("batch", "batch-tables", "batch-deadlines", "shards", "ray", "cost"),
    "bench": ("bench",),
    "serve": ("serve",),
    "simulate": ("simulator", "recording"),
    "whatif": ("what-if",),
}
"""Command → the guides that have its options. Those of the others are in that of the command line."""


OF_OTHERS = frozenset(
    ["--array", "--enable-metrics", "--enable-scale-out", "--group", "--metrics", "--no-window", "--pdb", "--quick",
    "--router-queue-threshold", "--time"]
)  # fmt: skip
"""Options of other programs that pages name: pip, pytest, sbatch, docker, servers and the examples."""


def test_the_table_of_commands_is_that_of_the_program() -> None:
    table = guide("command-line").partition("| exit status |")[0]
    assert first_cells(table) == set(COMMANDS)


def test_the_changelog_names_the_commands() -> None:
    line = re.search(r"\*\*Programs\*\*:(.*?)\n- ", TEXTS["CHANGELOG.md"], re.DOTALL)
    assert line is not None
    words = {word.split()[-1] for word in CODE.findall(re.sub(r"\([^)]*\)", "", line[1]))}
    assert words == set(COMMANDS)


def test_a_command_that_a_page_names_exists() -> None:
    def named(text: str) -> set[str]:
        in_words = [
            word for code in CODE.findall(FENCE.sub("", text)) for word in re.findall(r"^manystream ([a-z]+)", code)
        ]
        return {*in_words, *re.findall(r"^\$ (?:.*[ |])?manystream ([a-z]+)\b", text, re.MULTILINE)}

    assert not wrong({page: named(text) - set(COMMANDS) for page, text in TEXTS.items()})


def test_an_option_that_a_page_names_exists() -> None:
    def named(text: str) -> set[str]:
        return {option for code in CODE.findall(text) for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)}

    known = frozenset[str]().union(*options().values(), OF_OTHERS, {"--version"})
    assert not wrong({page: named(text) - known for page, text in PROSE.items()})


def test_every_option_is_on_a_page_of_its_command() -> None:
    texts = {name: "".join(map(guide, OPTION_PAGES.get(name, ("command-line",)))) for name in COMMANDS}
    assert not wrong({
        name: {option for option in found - {"--help"} if not re.search(rf"{option}\b", texts[name])}
        for name, found in options().items()
    })  # fmt: skip


# --- dialects ---


def test_a_number_of_dialects_is_right() -> None:
    counts = {len(DIALECT_MODULES), len(PROMPT_DIALECTS), len(DIALECT_MODULES) + len(PROMPT_DIALECTS)}
    right = {NUMBERS[count] for count in counts} | {"two"}  # OpenAI's two
    number = re.compile(rf"\b({'|'.join(NUMBERS[1:])})\s+(?:wire\s+)?(?:dialects|wire formats)\b")
    assert not wrong({page: set(number.findall(text.lower())) - right for page, text in PROSE.items()})


def test_a_number_of_timeouts_or_events_is_right() -> None:
    right = {"timeouts": NUMBERS[len(dataclasses.fields(ms.Timeouts))], "typed events": NUMBERS[len(ms.EventType)]}
    number = re.compile(rf"\b({'|'.join(NUMBERS[1:])})\s+({'|'.join(right)})\b")
    found = {page: number.findall(" ".join(text.lower().split())) for page, text in PROSE.items()}
    assert not wrong({page: {f"{one} {of}" for one, of in pairs if one != right[of]} for page, pairs in found.items()})


def test_extend_lists_the_places_of_a_dialect() -> None:
    dialect = "gemini-interactions"
    own = f"providers/{dialect.replace('-', '_')}/"
    elsewhere = {
        path for path, text in sources() if f'"{dialect}"' in text and not path.startswith((own, "manystream/sim"))
    }
    assert elsewhere <= set(CODE.findall(TEXTS["docs/extend.md"]))


# --- names ---


def parameters(value: object) -> frozenset[str] | None:
    """The names of the parameters that a call of a name may have; None: any."""
    try:
        found = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in found):
        return None
    return frozenset(each.name for each in found)


def test_a_public_name_that_a_page_names_exists() -> None:
    """`ms.Name`, `ms.Name.attribute` and `ms.Name(parameter=…)`; pyright checks the blocks."""
    assert not wrong(
        {page: [word for word in CODE.findall(text) if not is_public(word)] for page, text in PROSE.items()}
    )


def is_public(word: str) -> bool:
    """Whether the names of this library in a piece of code exist."""
    for path, arguments in re.findall(r"(?<![\w.])ms\.(\w+(?:\.\w+)*)(\([^()]*\))?", word):
        value: object = ms
        for name in path.split("."):
            if name in getattr(value, "__dataclass_fields__", {}):
                break
            if not hasattr(value, name):
                return False
            value = getattr(value, name)
        known = parameters(value) if arguments else None
        if known is not None and not set(re.findall(r"(\w+)=", arguments)) <= known:
            return False
    return True


def test_a_page_imports_no_public_name_from_its_module() -> None:
    def from_modules(blocks: list[Block]) -> set[str]:
        trees = [ast.parse(block.code) for block in blocks if block.language == "python"]
        imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        return {
            name.name for node in imports if (node.module or "").startswith("manystream.")
            for name in node.names if name.name in ms.__all__
        }  # fmt: skip

    found = {page: from_modules(read_blocks(text)) for page, text in TEXTS.items()}
    assert not wrong(found)


def test_a_module_that_a_page_names_exists() -> None:
    def named(text: str) -> set[str]:
        return {code for code in CODE.findall(text) if re.fullmatch(r"manystream(?:\.[a-z_0-9]+)+(?:\.\w+)?", code)}

    found = {
        page: {name for name in named(text) if not (resolves(name) or is_word(name))} for page, text in PROSE.items()
    }
    assert not wrong(found)


def resolves(path: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    module, _, name = path.rpartition(".")
    try:
        import_module(path)
    except ImportError:
        try:
            return hasattr(import_module(module), name)
        except ImportError:
            return (ROOT / path.replace(".", "/")).with_suffix(".py").exists()  # needs an extra that is not installed
    return True


def is_word(name: str) -> bool:
    """Whether the name is that of a logger, a metric or an attribute of a span; NAME and REASON stand for a part."""
    name = re.sub(r"[A-Z]+$", "", name)
    return any(f'"{name}' in text for _, text in sources())


FIELDS: dict[str, tuple[type[object], ...]] = {
    "limits": (ms.Timeouts, ms.Retry, ms.PoolLimits, ms.EngineLimits),
    "traffic": (ms.Traffic, ms.RateLimit),
    "routes": (ms.Route, ms.Hedge),
    "budgets": (ms.Budget,),
    "streams": (ms.Completion,),
    "observing": (Statistics,),
    "simulator": (Knobs,),
}
"""Guide → the classes whose fields its tables have."""


def test_tables_have_every_member() -> None:
    members = {
        page: {field.name for of in classes for field in dataclasses.fields(of)}  # type: ignore[arg-type]
        for page, classes in FIELDS.items()
    }
    members["errors"] = {category.name for category in ms.ErrorCategory}
    members["observing"] |= {name for name in vars(ms.Observer) if not name.startswith("_")}
    rows = [*PROFILES, *(row for pair in DEFAULT_PROFILES.values() for row in pair)]
    members["caching"] = {row.name for row in rows if row.quirks.session}
    assert not wrong({page: names - words_of(guide(page)) for page, names in members.items()})


def words_of(text: str) -> set[str]:
    """The words in code of a page: names, and the names of parameters in calls; `-` stands for `_`."""
    words = {word for code in CODE.findall(text) for word in re.findall(r"[\w-]+", code)}
    return words | {word.replace("-", "_") for word in words}


# --- environment variables ---


@cache
def variables() -> frozenset[str]:
    """The variables that the library reads, without those of the rows of providers."""
    read = {
        name
        for path, text in sources()
        if not path.startswith("manystream/simulator")
        for name in re.findall(r"""environ(?:ment)?\.(?:get|setdefault)\(\s*["']([A-Za-z_]+)["']""", text)
        + re.findall(r"""^[A-Z_]+_VARIABLE = "([A-Z_]+)\"""", text, re.MULTILINE)
    }
    proxies = {name for names in ENVIRONMENT_VARIABLES.values() for name in names}
    return frozenset(name.upper() for name in read | proxies)


def of_rows() -> frozenset[str]:
    """The variables of the rows of providers: keys, tokens and addresses."""
    rows = [*PROFILES, *(row for pair in DEFAULT_PROFILES.values() for row in pair)]
    named = (name for row in rows for name in (*row.key_variables, *row.token_variables, *row.url_variables))
    return frozenset(name.partition("/")[0] for name in named)


def test_the_page_of_variables_has_each() -> None:
    page = guide("environment")
    assert variables() <= set(CODE.findall(page))


OTHER_VARIABLES = frozenset({"SSL_CERT_FILE", "SSL_CERT_DIR"})
"""Variables that Python reads for the library."""


def test_a_variable_that_a_page_names_is_read() -> None:
    """A variable is a word in code that ends as such names do."""
    form = re.compile(r"MANYSTREAM_\w+|[A-Z][A-Z0-9_]*_(?:KEY|TOKEN|URL|PROXY|CREDENTIALS|DIR|FILE|ENDPOINT|HOST)")
    known = variables() | of_rows() | OTHER_VARIABLES
    named = {page: set(filter(form.fullmatch, CODE.findall(text))) for page, text in PROSE.items()}
    assert not wrong({page: words - known for page, words in named.items() if page != "docs/guide/companies.md"})


# --- examples ---


def test_the_page_of_examples_has_each() -> None:
    listed = re.findall(r"\]\(\.\./examples/(\w+\.py)\)", TEXTS["docs/examples.md"])
    assert sorted(listed) == sorted(path.name for path in Path(ROOT / "examples").glob("*.py"))


# --- terms ---


def test_the_glossary_has_the_terms_of_the_architecture() -> None:
    table = TEXTS["ARCHITECTURE.md"].partition("### Terms")[2].partition("###")[0]
    terms = {term.strip() for cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for term in cell.split(",")}
    rows = re.findall(r"^\| ([^|]+) \|", guide("glossary"), re.MULTILINE)[1:]
    named = {term.strip() for row in rows for term in row.split(",")}
    assert terms - {"term"} <= named
    assert rows == sorted(rows, key=str.lower)


# --- the front page ---


def test_the_front_page_finds_every_guide() -> None:
    table = TEXTS["docs/index.md"].partition("## Find a page")[2]
    linked = set(re.findall(r"\]\(([\w./-]+\.md)[#)]", table))
    wanted = {path.relative_to(DOCS).as_posix() for path in (DOCS / "guide").glob("*.md")}
    wanted |= {path.relative_to(DOCS).as_posix() for path in DOCS.glob("*.md")} - {"index.md"}
    assert not wanted - linked


# --- files, targets of make, modules that run ---


def test_a_file_that_a_page_names_exists() -> None:
    """A path, or the end of one; the programs of a page's own blocks have titles."""
    files = [
        f"/{path.relative_to(ROOT).as_posix()}" for path in ROOT.rglob("*.py") if not {".venv", "build"} & {*path.parts}
    ]

    def missing(text: str) -> set[str]:
        named = {found for code in CODE.findall(FENCE.sub("", text)) for found in re.findall(r"[\w/*.]+\.py\b", code)}
        titles = set(re.findall(r'title="([^"]+)"', text))
        known = re.compile("|".join(map(re.escape, titles)) or "$.")
        return {
            name
            for name in named
            if "*" not in name
            and not known.fullmatch(name)
            and not (ROOT / name).exists()
            and not any(file.endswith(f"/{name}") for file in files)
        }

    assert not wrong({page: missing(text) for page, text in TEXTS.items()})


def test_a_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    def named(text: str) -> set[str]:
        return {target for code in CODE.findall(text) for target in re.findall(r"^make ([a-z-]+)", code)}

    assert not wrong({page: named(text) - targets for page, text in PROSE.items()})


def test_a_module_that_a_page_runs_exists() -> None:
    def missing(text: str) -> set[str]:
        named = {
            name for code in CODE.findall(text) for name in re.findall(r"python -m ((?:benchmarks|tests)[\w.]*)", code)
        }
        return {
            name
            for name in named
            if not any((ROOT / name.replace(".", "/")).parent.glob(f"{name.rpartition('.')[2]}*"))
        }

    assert not wrong({page: missing(text) for page, text in PROSE.items()})


WORDS = 2_500
"""The most words of a guide: what a specialist needs is a page of its own. The list of promises is longer."""


def test_a_guide_has_a_bounded_length() -> None:
    lengths = {path.stem: len(path.read_text("utf-8").split()) for path in (DOCS / "guide").glob("*.md")}
    assert not {name: words for name, words in lengths.items() if words > WORDS and name != "promises"}
