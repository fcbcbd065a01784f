"""The error of a module of which the extra is not installed."""

from __future__ import annotations


def not_installed(module: str, extra: str, error: ImportError) -> ImportError:
    """Return the error that names the extra. error: that of the import of the extra's package."""
    text = f"{module} needs the extra `{extra}`: pip install '.[{extra}]' in manystream's checkout"
    return ImportError(text, name=error.name, path=error.path)
