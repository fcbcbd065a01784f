"""The completion scripts, run by the shells themselves."""

import argparse
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from manystream.cli import main
from manystream.cli.command_line import COMMANDS
from manystream.cli.completion import SHELLS, completion_script
from tests.support.waiting import LONGEST

pytest.importorskip("shtab")

MARK = "prompt-is-here>"


def needs(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    return path


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[[str], Path]:
    def write(shell: str) -> Path:
        assert main(["completion", shell]) == 0
        path = tmp_path / f"completion.{shell}"
        path.write_text(capsys.readouterr().out, "utf-8")
        return path

    return write


# Cases for every shell: the typed line, the words that must be offered, and the words that must not.

CASES = [
    ("manystream ", {*COMMANDS}, {"--help"}),
    ("manystream si", {"simulate"}, {"run"}),
    ("manystream --", {"--help", "--version"}, {"--model"}),
    ("manystream run --thin", {"--thinking"}, {"--model"}),
    ("manystream run --thinking ", {"none", "low", "med", "high"}, {"--model"}),
    ("manystream run --model m --thinking h", {"high"}, {"low"}),
    ("manystream run --provider anth", {"anthropic"}, {"openai-chat"}),
    ("manystream bench --dialect openai-", {"openai-chat", "openai-responses"}, {"gemini"}),
    ("manystream top --sort ", {"age", "quiet"}, set[str]()),
    ("manystream batch --ret", {"--retry-failed"}, set[str]()),
    ("manystream completion ", {"bash", "zsh", "fish"}, set[str]()),
    ("manystream simulate kind=text retry", {"retry-after="}, {"kind="}),
]
FILE_CASES = ["manystream batch ", "manystream batch --output ", "manystream simulate --replay ", "manystream top "]


# bash


def bash_offers(script: Path, line: str) -> set[str]:
    """Return what the script's function offers for a line that ends at the cursor, split into words like readline."""
    words = line.replace("=", " = ").split() + ([""] if line.endswith((" ", "=")) else [])
    if line.endswith("="):
        words.pop()  # the cursor is in the word "="
    program = (
        f"source {script}\nCOMP_WORDS=({' '.join(repr(word) for word in words)})\nCOMP_CWORD={len(words) - 1}\n"
        '_manystream\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [needs("bash"), "--norc", "-uc", program], capture_output=True, text=True, timeout=LONGEST, check=True
    )
    assert not done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(("line", "offered", "kept_back"), CASES)
def test_bash_offers_words(script: Callable[[str], Path], line: str, offered: set[str], kept_back: set[str]) -> None:
    found = bash_offers(script("bash"), line)
    assert offered <= found
    assert not kept_back & found


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("manystream run --thinking=", {"none", "low", "med", "high"}),
        ("manystream run --thinking=l", {"low"}),
        ("manystream run --thinking=low --mod", {"--model"}),
        ("manystream run --model ", set[str]()),
        ("manystream run prompt ", set[str]()),
        ("manystream simulate rate=", set[str]()),
        ("manystream completion --help ", {"bash", "zsh", "fish"}),
        ("manystream completion bash ", set[str]()),
    ],
)
def test_bash_offers_exactly(script: Callable[[str], Path], line: str, offered: set[str]) -> None:
    assert bash_offers(script("bash"), line) == offered


class Terminal:
    """A shell on a terminal."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        pty = pytest.importorskip("pty")
        self._ours, theirs = pty.openpty()
        self.shown = b""
        self.process = subprocess.Popen(
            arguments, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True,
            env={"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder), "PS1": MARK, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        os.close(theirs)

    def type(self, text: str, until: str) -> str:
        """Type text and wait until the terminal shows `until`. Return what it has shown since."""
        os.write(self._ours, text.encode())
        begun, deadline = len(self.shown), time.monotonic() + LONGEST
        while until.encode() not in self.shown[begun:]:
            assert time.monotonic() < deadline, self.shown[begun:]
            if select.select([self._ours], [], [], 0.1)[0]:
                self.shown += os.read(self._ours, 65536)
        return self.shown[begun:].decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(LONGEST)
        os.close(self._ours)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[[Sequence[str]], Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(arguments: Sequence[str]) -> Terminal:
        opened.append(Terminal(arguments, tmp_path))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


def test_bash_completes_when_tab_is_pressed(
    script: Callable[[str], Path], terminal: Callable[[Sequence[str]], Terminal], tmp_path: Path
) -> None:
    (tmp_path / "my prompts.jsonl").touch()
    shell = terminal([needs("bash"), "--norc", "--noprofile", "-i"])
    shell.type(f"PS1='{MARK}'; source {script('bash')}; echo so''urced\n", "sourced\r\n" + MARK)
    shell.type("manystream bat\t", "manystream batch ")
    shell.type("--outp\t", "--output ")
    shell.type("my\t", "my\\ prompts.jsonl ")
    shell.type("\x15manystream simulate ra\t", "rate=")
    shell.type("5", "5")
    assert shell.shown.endswith(b"rate=5"), "an unfinished value is completed without a space"


# zsh


def test_zsh_offers_matching_words(script: Callable[[str], Path], tmp_path: Path) -> None:
    lines = [line for line, _, _ in CASES]
    for found, (line, offered, kept_back) in zip(zsh_offers(script("zsh"), tmp_path, lines), CASES, strict=True):
        assert offered <= found, line
        assert not kept_back & found, line


def zsh_offers(script: Path, folder: Path, lines: Sequence[str]) -> list[set[str]]:
    """Return what zsh's completion system offers for each line, recorded by a replaced `compadd`."""
    press = "zpty -w -n shell $'\\x15{}\\t'; zpty -r shell shown '*>>*'; print -r -- $shown"
    ask = "\n".join(press.format(line) for line in lines)
    program = f"""
zmodload zsh/zpty
zpty shell {needs("zsh")} -f -i
zpty -w shell 'PS1=; cd {folder}; autoload -U compinit; compinit -u -D; eval "$(<{script})"'
zpty -w shell 'compadd() {{ local -a found; builtin compadd -O found "$@"; print -l -- "<${{^found[@]}}>"'
zpty -w shell 'builtin compadd "$@" }}'
zpty -w shell 'zle -C ask complete-word ask'
zpty -w shell 'ask() {{ print "<<"; _main_complete; print ">""> "; compstate[insert]=; compstate[list]= }}'
zpty -w shell 'bindkey "^I" ask; print re""ady'
zpty -r shell shown '*ready*'
{ask}
"""
    done = subprocess.run([needs("zsh"), "-fc", program], capture_output=True, text=True, timeout=LONGEST, check=False)
    shown = done.stdout.replace("\r", "").split("<<\n")[1:]
    assert len(shown) == len(lines), done.stdout + done.stderr
    return [
        {word.strip("<>") for word in part.partition(">>")[0].split("\n") if word.startswith("<") and len(word) > 2}
        for part in shown
    ]


# fish


@pytest.mark.parametrize(("line", "offered", "kept_back"), CASES)
def test_fish_offers_matching_words(
    script: Callable[[str], Path], tmp_path: Path, line: str, offered: set[str], kept_back: set[str]
) -> None:
    found = fish_offers(script("fish"), tmp_path, line)
    assert offered <= found
    assert not kept_back & found


def fish_offers(script: Path, folder: Path, line: str) -> set[str]:
    done = subprocess.run(
        [needs("fish"), "--no-config", "-c", f"source {script}; complete -C '{line}'"], capture_output=True, text=True,
        timeout=LONGEST, check=True, cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )  # fmt: skip
    assert not done.stderr
    return {offer.partition("\t")[0] for offer in done.stdout.splitlines()}


@pytest.mark.parametrize("line", FILE_CASES)
def test_fish_offers_files_for_values_that_are_files(script: Callable[[str], Path], tmp_path: Path, line: str) -> None:
    (tmp_path / "prompts.jsonl").touch()
    assert "prompts.jsonl" in fish_offers(script("fish"), tmp_path, line)
    assert "prompts.jsonl" not in fish_offers(script("fish"), tmp_path, "manystream run --model ")


def test_zsh_offers_files_for_values_that_are_files(script: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").touch()
    *files, model = zsh_offers(script("zsh"), tmp_path, [*FILE_CASES, "manystream run --model "])
    assert all("prompts.jsonl" in found for found in files)
    assert "prompts.jsonl" not in model


# Without a shell


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_holds_every_option_of_every_command(
    script: Callable[[str], Path], capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    text = script(shell).read_text("utf-8")
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
        usage = capsys.readouterr().out.partition("\n\n")[0]
        flags = re.findall(r"\[(-[-\w]+)", usage)
        assert flags
        for flag in flags:
            fish = f" {'-l' if flag.startswith('--') else '-s'} {flag.lstrip('-')} "
            assert (fish if shell == "fish" else flag) in text


@pytest.mark.parametrize("shell", SHELLS)
def test_help_texts_are_quoted(shell: str, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser(prog="a-tool", add_help=False)
    ran = tmp_path / "ran"
    evil = f'don\'t $(touch {ran}) `touch {ran}` [x]: \\ "100%% of"'
    parser.add_argument("--all", metavar="A:B", help=evil)
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    commands = parser.add_subparsers()
    commands.add_parser("go", help=evil).add_argument("-n", "--name", action="append", help=evil)
    path = tmp_path / "script"
    path.write_text(completion_script(parser, shell), "utf-8")
    assert "hidden" not in path.read_text("utf-8")
    load = f'autoload -U compinit; compinit -u -D; eval "$(<{path})"' if shell == "zsh" else f"source {path}"
    done = subprocess.run(
        [needs(shell), "-c", load], capture_output=True, text=True, timeout=LONGEST, check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )  # fmt: skip
    assert not done.stderr
    assert not ran.exists()


def test_an_unknown_shell_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "csh"]) == 2
    assert "bash" in capsys.readouterr().err


def test_without_shtab_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    message = "manystream completion: it needs the library shtab: pip install '.[cli]' in manystream's checkout\n"
    assert capsys.readouterr() == ("", message)
