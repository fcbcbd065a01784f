"""`python -m manystream`: the same as the command `manystream`."""

import sys

from .engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
