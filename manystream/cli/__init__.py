"""The command `manystream`. `command_line` parses the command line; each command is a module of this package."""

from .command_line import main as main
