"""The entry point of `python -m manystream` and of the command `manystream`."""

import sys


def main() -> int:
    """Run the command line and return its exit status.

    Ctrl-C while the program is still being imported gives the status 130, without a traceback.
    """
    try:
        from .cli import main as run_command_line
    except KeyboardInterrupt:
        return 130
    return run_command_line()


if __name__ == "__main__":
    sys.exit(main())
