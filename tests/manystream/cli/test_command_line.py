"""The command line itself: its whole help, versions, and the exit status of each ending of a command."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import manystream
from manystream.__main__ import main as enter
from manystream.cli import doctor, main
from manystream.cli.output.errors import CommandError
from manystream.engine.monitor import MonitorError

HELP = """\
usage: manystream [-h] [--version] COMMAND ...

Thousands of live language-model streams on one core.

  manystream demo                                  run a thousand streams over five dialects, and check every byte
  manystream run "Why is the sky blue?"            send a prompt to a provider, and stream the answer
"""
COMMANDS = """\
commands:
  COMMAND
    demo      run a thousand live streams over five dialects from the built-in simulator, and check them all
    run       send one prompt to a provider or a base URL, and stream the answer
    batch     send every line of a file of prompts, and write a file of answers; resumable
    doctor    check key, proxy, DNS, TLS and server of each configured provider
    top       show a running engine, live, from another terminal
    bench     measure an endpoint, a proxy, or this machine, and whether the figures can be trusted
    whatif    show what would have happened to recorded calls under other limits, routes, keys and prices
    serve     serve your providers on this machine, with quotas, routes, budgets and traces
    simulate  run the simulator of the five dialects in the foreground
    completion
"""


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | int], Any]:
    """Return a function that lets `manystream doctor` end so, and returns the exit status."""

    def end(result: BaseException | int) -> Any:
        def run(_: argparse.Namespace) -> int:
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(doctor, "run", run)
        return main(["doctor"])

    return end


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_help_lists_the_commands(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith(HELP)
    assert COMMANDS in out
    assert "print a completion script for bash, zsh or fish\n" in out
    assert "ANTHROPIC_API_KEY" in out
    assert out.endswith("\n  130  interrupted by Ctrl-C; the results so far are shown\n")
    assert not err


def test_the_arguments_of_the_process_are_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/anything", "--version"])
    assert (main(), enter()) == (0, 0)
    assert capsys.readouterr().out == f"manystream {manystream.__version__}\n" * 2


@pytest.mark.parametrize(
    ("commands", "not_imported"),
    [
        ("main(['--version']), main(['--help']), main([])", "trio manystream.engine manystream.providers"),
        (
            "main(['batch', sys.argv[1], '-o', '-', '--base-url', 'http://127.0.0.1:1', '--outage', '0'])",
            "ray manystream.ray manystream.simulator manystream.providers.anthropic.arguments"
            " manystream.providers.openai.chat.arguments manystream.providers.openai.responses.arguments",
        ),
    ],
)
def test_a_command_imports_what_it_needs(commands: str, not_imported: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"model": "m", "prompt": "x"}\n')
    code = (
        f"import sys\nfrom manystream.cli import main\n{commands}\n"
        f"print('imported:', *{set(not_imported.split())} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, prompts], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["imported:"], done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "usage", "words"),
    [
        (["fly"], "manystream [-h]", "manystream: error: argument COMMAND: invalid choice: 'fly'"),
        (["--vers"], "manystream [-h]", "unrecognized arguments: --vers"),
        (["doctor", "--time", "5"], "manystream", "unrecognized arguments: --time 5"),
        (["run"], "manystream run", "error: the following arguments are required: "),
        (
            ["run", "--max-tokens", "many", "x"],
            "manystream run",
            "argument --max-tokens: invalid int value: 'many'",
        ),
        (["top", "--sort", "x"], "manystream top", "error: argument --sort: invalid choice: 'x'"),
    ],
)
def test_a_wrong_word_is_status_2(
    arguments: list[str], usage: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"usage: {usage}")
    assert words in err


@pytest.mark.parametrize(
    ("command", "option", "member"),
    [("simulate", ["--limit", "concurrent=2"], "knobs"), ("bench", ["--rate", "5"], "url")],
)
def test_words_may_stand_before_and_after_an_option(
    command: str, option: list[str], member: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[argparse.Namespace] = []
    monkeypatch.setattr(f"manystream.cli.{command}.run", lambda arguments: given.append(arguments) or 0)
    assert main([command, "a=1", *option, "b=2"]) == 0
    assert getattr(given[0], member) == ["a=1", "b=2"]
    assert main([command, "a=1", *option, "--nothing", "b=2"]) == 2
    assert "unrecognized arguments: --nothing b=2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("result", "status", "shown"),
    [
        (0, 0, ""),
        (1, 1, ""),
        (130, 130, ""),
        (CommandError("no way"), 1, "manystream doctor: no way\n"),
        (CommandError("no way", status=2), 2, "manystream doctor: no way\n"),
        (MonitorError("no socket"), 1, "manystream doctor: no socket\n"),
        (KeyboardInterrupt(), 130, ""),
        (BaseExceptionGroup("", [KeyboardInterrupt(), BaseExceptionGroup("", [KeyboardInterrupt()])]), 130, ""),
    ],
)
def test_the_exit_status_of_each_ending(
    ending: Callable[[BaseException | int], Any],
    result: BaseException | int,
    status: int,
    shown: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ending(result) == status
    assert capsys.readouterr() == ("", shown)


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), BaseExceptionGroup("", [BrokenPipeError(), KeyboardInterrupt()])], ids=["one", "group"]
)
def test_a_closed_pipe_is_status_141_and_writes_no_more(
    ending: Callable[[BaseException | int], Any], error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        assert ending(error) == 141
        print("more", file=output, flush=True)
        output.close()
        assert read.read() == b""


@pytest.mark.parametrize(
    "error",
    [ValueError("a defect"), BaseExceptionGroup("", [KeyboardInterrupt(), ValueError("a defect")])],
    ids=["one", "group"],
)
def test_a_defect_is_raised(ending: Callable[[BaseException | int], Any], error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        ending(error)
    assert caught.value is error


@pytest.mark.parametrize(("code", "status"), [(0, 0), (2, 2), (None, 2), ("words", 2)])
def test_an_ending_of_the_parser_is_a_status(code: object, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse)
    assert main(["doctor"]) == status
