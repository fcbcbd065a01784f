"""One target under atheris, a coverage-guided fuzzer: `python -m tests.fuzz.guided TARGET [libFuzzer options]`.

Needs atheris, which is not a dependency of the project: `python -m tests.fuzz` creates a temporary environment with it.
"""

import sys


def main() -> None:
    import atheris  # type: ignore[import-not-found]  # pyright: ignore

    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["manystream", "h11"]):
        from tests.fuzz.targets import TARGETS

    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
