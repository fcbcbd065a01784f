"""`python -m manystream`, and the command `manystream`: the same."""

import sys


def main() -> int:
    """Run the command line; the exit status. Ctrl-C while it is still being loaded is no traceback either."""
    try:
        from .cli import main as run_command_line
    except KeyboardInterrupt:
        return 130
    return run_command_line()


if __name__ == "__main__":
    sys.exit(main())
