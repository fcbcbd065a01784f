"""`manystream completion`: what makes a shell complete this command, printed.

Knows the command line's parser, and what some of its values may be. Must not know the shells (`completion_scripts`).
"""

from __future__ import annotations

import argparse

from ..simulator.knobs import READERS
from .completion_scripts import SCRIPTS
from .completion_tree import Words, read_parser
from .run import provider_names

HELP = "print what makes bash, zsh or fish complete this command"
DESCRIPTION = """\
Print a script that makes a shell complete commands, options and their values when Tab is pressed. It is made from the
options of this very version: print it anew after an upgrade.

  bash   source <(manystream completion bash)                                       in ~/.bashrc
  zsh    source <(manystream completion zsh)                                        in ~/.zshrc, after compinit
  fish   manystream completion fish > ~/.config/fish/completions/manystream.fish

Files work as well: ~/.local/share/bash-completion/completions/manystream, and _manystream in a folder of zsh's $fpath.
"""
EPILOG = "Exit status: 0 printed, 2 called wrongly."

WORDS: dict[str, Words] = {
    "PROVIDER": provider_names,
    "KNOB=VALUE": lambda: [name.replace("_", "-") + "=" for name in READERS],
}
"""A value's name in the help → what it may be, where the parser itself does not say."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", choices=list(SCRIPTS), metavar="SHELL", help=f"one of {', '.join(SCRIPTS)}")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Print the script; the exit status."""
    parser: argparse.ArgumentParser = arguments.parser
    print(SCRIPTS[arguments.shell](read_parser(parser, WORDS, parser.prog)), end="")
    return 0
