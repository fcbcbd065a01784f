"""The entry point of `python -m manystream` and of the command `manystream`."""

import sys


def main() -> int:
    """Run the command line and return its exit status. Ctrl-C during the import ends it without a traceback, too."""
    try:
        from .cli import main as run_command_line
    except KeyboardInterrupt:
        return 130
    return run_command_line()


if __name__ == "__main__":
    sys.exit(main())
