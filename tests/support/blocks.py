"""The code blocks of a Markdown page: what each is, and what is to be done with it.

What a block may be, by its language:

- `python`: run. A `text` block right after it is what it prints. One that does not `import manystream` is a fragment:
  it runs inside the setting that docs/start.md shows, with an `engine` open, and may `await`. The blocks of a page run
  in order and share their names.
- `console`: lines that begin with `$ ` are run, the lines below each are what it prints; `# exit status N` at its end
  says how it ends, where that is not 0. One that ends in `&` runs until the page ends or the next one such.
- `bash`: a script; parsed. With a title, a command of a `console` block may run it.
- `json`, `jsonl`, `toml`: parsed.
- `text`: anything else.

`title="name"` also writes the block to a file of that name, which later blocks of the page find. `…` in an output
stands for anything, on a line of its own for any lines. A block with the line `<!-- not run: reason -->` above it is
not run; readers see the block only.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LANGUAGES = frozenset({"python", "console", "bash", "json", "jsonl", "csv", "toml", "text"})

FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[^\s`]*)(?P<rest>[^\n`]*)\n(?P<code>.*?)^(?P=indent)(?P=ticks) *$",
    re.MULTILINE | re.DOTALL,
)
TITLE = re.compile(r'title="([^"]+)"')
REASON = re.compile(r"<!-- not run: (?P<reason>[^\n]+) -->\s*\Z")


@dataclass(slots=True, frozen=True)
class Block:
    """One code block of a page.

    line: the number of its first line, counted from 1.
    output: the output that the page shows for it; None: the page shows none.
    reason: why the block is not run; None: it is run.
    """

    line: int
    language: str
    code: str
    title: str | None = None
    output: str | None = None
    reason: str | None = None


def read_blocks(text: str) -> list[Block]:
    """The blocks of a page, in order; an output belongs to its program and is none of its own."""
    blocks: list[Block] = []
    fences = list(FENCE.finditer(text))
    for number, fence in enumerate(fences):
        before = fences[number - 1] if number else None
        if before is not None and before["language"] == "python" and is_output(text, before, fence):
            continue
        after = fences[number + 1] if number + 1 < len(fences) else None
        has_output = fence["language"] == "python" and after is not None and is_output(text, fence, after)
        title = TITLE.search(fence["rest"])
        reason = REASON.search(text, 0, fence.start())
        blocks.append(
            Block(line=text.count("\n", 0, fence.start()) + 1, language=fence["language"],
            code=textwrap.dedent(fence["code"]), title=title[1] if title else None,
            output=textwrap.dedent(after["code"]) if has_output and after is not None else None,
            reason=reason["reason"] if reason else None)
        )  # fmt: skip
    return blocks


def is_output(text: str, program: re.Match[str], block: re.Match[str]) -> bool:
    """Whether a block is what the one before it prints: it is text, and follows with nothing between."""
    return block["language"] == "text" and not text[program.end() : block.start()].strip()


def pages() -> list[Path]:
    """Every page whose blocks are run: README.md, and the pages of the site."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def setting() -> str:
    """The program around a fragment, as docs/start.md shows it."""
    return next(
        block.code for block in read_blocks((DOCS / "start.md").read_text("utf-8")) if block.title == "setting.py"
    )
