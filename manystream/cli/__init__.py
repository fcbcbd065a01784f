"""The command `manystream`. See `command_line` for what it takes; each command is a module here."""

from .command_line import main as main
