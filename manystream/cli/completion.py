"""The command `manystream completion`: it prints a completion script for a shell, made by the library shtab."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from ..simulator.knobs import READERS
from .output.errors import CommandError
from .run import provider_names

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # pyright: ignore[reportPrivateUsage]

SHELLS = ("bash", "zsh", "fish")

DESCRIPTION = """\
Print a script that lets a shell complete commands, options and their values when Tab is pressed. The script is made
from the options of the installed version: print it again after an upgrade. It needs the library shtab
(pip install '.[cli]' in manystream's checkout).

  bash   source <(manystream completion bash)                                       in ~/.bashrc
  zsh    eval "$(manystream completion zsh)"                                        in ~/.zshrc, after compinit
  fish   manystream completion fish > ~/.config/fish/completions/manystream.fish

The script may also be a file: ~/.local/share/bash-completion/completions/manystream for bash, and _manystream in a
folder of $fpath for zsh.
"""
EPILOG = """\
exit status:
  0    the script was printed
  1    shtab is not installed
  2    the command line is wrong
"""

FILE_METAVARS = frozenset({"FILE", "PATH", "PATH|PID", "PROMPTS"})
"""Metavars of values that are names of files."""

WORDS: dict[str, Callable[[], Sequence[str]]] = {
    "PROVIDER": provider_names,
    "KNOB=VALUE": lambda: [name.replace("_", "-") + "=" for name in READERS],
}
"""Metavar → function that returns the possible values, for values without argparse's `choices`."""

BASH_END = """
# bash splits --option=value into three words, and adds a space after the beginning of a value, such as rate=.
_{name}() {{
    local word words=()
    for word in "${{COMP_WORDS[@]:0:COMP_CWORD+1}}"; do
        [[ $word == = ]] || words+=("$word")
    done
    if [[ ${{COMP_WORDS[COMP_CWORD]}} == = ]]; then
        [[ ${{words[-1]}} == -* ]] || return 0
        words+=("")
    fi
    local COMP_WORDS=("${{words[@]}}") COMP_CWORD=$((${{#words[@]}} - 1))
    _shtab_{name}
    [[ ${{COMPREPLY-}} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}}
complete -o bashdefault -F _{name} {name}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    try:
        print(completion_script(arguments.parser, arguments.shell), end="")
    except ImportError:
        raise CommandError("it needs the library shtab: pip install '.[cli]' in manystream's checkout") from None
    return 0


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a command line for one of `SHELLS`. The parser is changed.

    Raises `ImportError` if shtab is not installed.
    """
    import shtab

    _name_values(parser, shell, shtab.FILE)
    script = shtab.complete(parser, shell).rstrip("\n") + "\n"
    if shell == "zsh":
        return script.replace('"(*)::', '"*:')  # else zsh completes only the first of several arguments
    return script + BASH_END.format(name=parser.prog) if shell == "bash" else script


def _name_values(parser: argparse.ArgumentParser, shell: str, file: object) -> None:
    """Name the possible values of each option and argument, for shtab. argparse lists them in no public attribute.

    file: shtab's mark of a value that is the name of a file.
    """
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            for command in cast("Commands", action).choices.values():
                _name_values(command, shell, file)
        elif action.metavar in FILE_METAVARS:
            vars(action)["complete"] = file
        elif isinstance(action.metavar, str) and action.metavar in WORDS:
            action.choices = WORDS[action.metavar]()
            if shell == "zsh" and all(word.endswith("=") for word in action.choices):
                vars(action)["complete"] = {"zsh": f"compadd -S '' - {' '.join(action.choices)}"}
