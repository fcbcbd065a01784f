"""Import one module and print the time in milliseconds. The module must not be loaded before."""

from __future__ import annotations

import importlib
import sys
import time


def main() -> None:
    begin = time.perf_counter()
    importlib.import_module(sys.argv[1])
    print((time.perf_counter() - begin) * 1000)


if __name__ == "__main__":
    main()
