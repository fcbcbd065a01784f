"""Runs the blocks of one page: `python run_page.py FOLDER`, in a process of its own, from what FOLDER/page.json says.

Prints nothing where all went as the page says; otherwise what went wrong, and ends with status 1. Must not import
anything of the tests: a reader's program has none of it.

`python run_page.py` reads a folder from each line of standard input, and runs its page in a fork, which need not import
the library again. It prints the fork's process id, then its exit status; FOLDER/said.txt gets what the page prints.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path

ADDRESS = "127.0.0.1:8080"
"""Where the pages have the simulator listen; the port that it really has stands in for it."""
COMMANDS = ("manystream", "python", "bash", "cat", "head", "ls", "seq", "wc")
PROGRAM = re.compile(r"^import manystream", re.MULTILINE)
"""A block that imports the library itself is a program; any other is a fragment."""
STATUS = re.compile(r"\s+# exit status (\d+)$")
READY = "Ctrl-C ends the simulator."
LISTENS = re.compile(r"http://(127\.0\.0\.1:\d+)")
SECONDS = 60.0


class Wrong(Exception):
    """A block does not do what its page says."""


class Page:
    """The blocks of a page, running: what they have named, and what they have started."""

    def __init__(self, name: str, address: str, setting: str) -> None:
        self.name = name
        self.address = address
        self.setting = setting
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.background: subprocess.Popen[str] | None = None

    def run(self, block: dict[str, str | None], line: int) -> None:
        """Run, parse or keep one block. Raises `Wrong`."""
        code = self.moved(block["code"] or "")
        if block["title"]:
            Path(block["title"]).write_text(code, "utf-8")
        language = block["language"]
        if language == "python":
            self.run_python(code, block["output"], line)
        elif language == "console":
            self.run_console(code)
        elif language == "bash":
            self.check_script(code)
        elif language == "toml":
            tomllib.loads(code)
        elif language == "json":
            json.loads(code)
        elif language == "jsonl":
            for text in code.splitlines():
                json.loads(text)

    def moved(self, text: str) -> str:
        """The text, with the simulator where it really is."""
        return text.replace(ADDRESS, self.address)

    # --- Python ---

    def run_python(self, code: str, output: str | None, line: int) -> None:
        code = "\n" * line + code
        printed, complaints = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
            if PROGRAM.search(code):
                exec(compile(code, self.name, "exec", dont_inherit=True), self.names)
            else:
                self.run_fragment(code)
        if complaints.getvalue():
            raise Wrong(f"it writes to standard error:\n{complaints.getvalue()}")
        if output is not None:
            compare(printed.getvalue(), self.moved(output))

    def run_fragment(self, code: str) -> None:
        """Run a fragment where the setting has its dots."""
        compiled = compile(code, self.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)

        async def fragment(engine: object) -> None:
            self.names["engine"] = engine
            result = eval(compiled, self.names)
            if inspect.isawaitable(result):
                await result

        tree = ast.parse(self.moved(self.setting))
        main = next(node for node in tree.body if isinstance(node, ast.AsyncFunctionDef) and node.name == "main")
        block = main.body[0]
        assert isinstance(block, ast.AsyncWith)
        block.body = ast.parse("await _fragment(engine)").body
        self.names["_fragment"] = fragment
        exec(compile(ast.fix_missing_locations(tree), "setting.py", "exec"), self.names)

    # --- commands ---

    def run_console(self, text: str) -> None:
        commands: list[tuple[str, list[str]]] = []
        for line in text.replace("\\\n", "").splitlines():  # a command may go on after a backslash
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif not commands:
                raise Wrong("a console block begins with a command: '$ …'")
            else:
                commands[-1][1].append(line)
        for command, output in commands:
            self.run_command(command, "\n".join(output))

    def run_command(self, command: str, output: str) -> None:
        status = STATUS.search(command)
        command = STATUS.sub("", command)
        words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=.*", word)]
        if words[0] not in COMMANDS:
            raise Wrong(f"{words[0]!r} is no command that is run here: say why it is not run, or use {COMMANDS}")
        if words[-1] == "&":
            self.start(command.removesuffix("&"))
            return
        done = subprocess.run(
            ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, encoding="utf-8", timeout=SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != (int(status[1]) if status else 0):
            raise Wrong(f"{command!r} ended with status {done.returncode}:\n{done.stdout}")
        if output:
            compare(done.stdout, output)

    def check_script(self, code: str) -> None:
        """Parse a script, which a later command may run under its title."""
        done = subprocess.run(
            ["bash", "-n"], input=code, stderr=subprocess.PIPE, text=True, encoding="utf-8", check=False
        )
        if done.returncode:
            raise Wrong(f"bash cannot parse it: {done.stderr.decode()}")

    def start(self, command: str) -> None:
        """Start a simulator that later blocks of the page talk to."""
        self.stop()
        words = shlex.split(command)
        if words[:2] != ["manystream", "simulate"]:
            raise Wrong("only `manystream simulate` can run in the background here")
        words = ["0" if word == ADDRESS.partition(":")[2] else word for word in words]
        self.background = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        assert self.background.stdout is not None
        for line in self.background.stdout:
            found = LISTENS.search(line)
            if found:
                self.address = found[1]
            if READY in line:
                return
        raise Wrong(f"{command!r} has ended at once")

    def stop(self) -> None:
        """End what runs in the background."""
        if self.background is not None:
            self.background.terminate()
            self.background.communicate(timeout=SECONDS)
            self.background = None


def compare(printed: str, expected: str) -> None:
    """Raise `Wrong` if a block printed another output than the page shows."""
    found = "".join(line.rstrip() + "\n" for line in printed.splitlines())
    expected = "".join(line.rstrip() + "\n" for line in expected.splitlines())
    pattern = "".join(
        "(?:.*\n)*?" if line == "…" else ".*?".join(map(re.escape, line.split("…"))) + "\n"
        for line in expected.splitlines()
    )
    if not re.fullmatch(pattern, found):
        raise Wrong(f"it prints\n{found}and the page says\n{expected}")


def main(folder: Path) -> int:
    """Run what the folder's page.json says; the exit status."""
    description = json.loads((folder / "page.json").read_text("utf-8"))
    sys.path[0] = str(folder)  # in place of this file's own folder: a block may import what another one wrote
    os.chdir(folder)
    page = Page(description["name"], description["address"], description["setting"])
    try:
        for block in description["blocks"]:
            try:
                page.run(block, block["line"])
            except BaseException as error:
                what = str(error) if isinstance(error, Wrong) else traceback.format_exc()
                print(f"{description['name']}, line {block['line']}: {what}")
                return 1
    finally:
        page.stop()
    return 0


def run_each() -> int:
    """Run the page of each folder that standard input names, in a fork; the exit status of a page, or 0 at the end."""

    import trio  # noqa: F401

    import manystream

    for name in manystream.__all__:
        getattr(manystream, name)
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        process = os.fork()
        if not process:
            return become(folder)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
    return 0


def become(folder: Path) -> int:
    """Run a page in a fork, as in a process that was started for it; its exit status."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    said = os.open(folder / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for source, target in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(said)
    os.environ["HOME"] = str(folder)
    return main(folder)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) if len(sys.argv) > 1 else run_each())
