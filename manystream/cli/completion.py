"""The command `manystream completion`: it prints a completion script for a shell."""

from __future__ import annotations

import argparse

from ..simulator.knobs import READERS
from .completion_scripts import SCRIPTS
from .completion_tree import Words, read_parser
from .run import provider_names

HELP = "print a completion script for bash, zsh or fish"
DESCRIPTION = """\
Print a script that lets a shell complete commands, options and their values when Tab is pressed. The script is made
from the options of the installed version: print it again after an upgrade.

  bash   source <(manystream completion bash)                                       in ~/.bashrc
  zsh    source <(manystream completion zsh)                                        in ~/.zshrc, after compinit
  fish   manystream completion fish > ~/.config/fish/completions/manystream.fish

The script may also be a file: ~/.local/share/bash-completion/completions/manystream for bash, and _manystream in a
folder of $fpath for zsh.
"""
EPILOG = """\
exit status:
  0    the script was printed
  2    the command line is wrong
"""

WORDS: dict[str, Words] = {
    "PROVIDER": provider_names,
    "KNOB=VALUE": lambda: [name.replace("_", "-") + "=" for name in READERS],
}
"""Metavar → function that returns the possible values, for values without argparse's `choices`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `manystream completion` to the parser."""
    parser.add_argument("shell", choices=list(SCRIPTS), metavar="SHELL", help=f"one of {', '.join(SCRIPTS)}")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Print the script and return the exit status."""
    parser: argparse.ArgumentParser = arguments.parser
    print(SCRIPTS[arguments.shell](read_parser(parser, WORDS, parser.prog)), end="")
    return 0
