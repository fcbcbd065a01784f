"""The US dollars of a batch that no record has, in a file beside the answers.

Workers on a cluster are given parts of a budget. What a worker was given and what the records of its lines show differ:
by the calls that run, and later by the calls that ran when the worker or the driver died. The driver writes the
difference down before it gives, so that a later run counts it as spent. Without such a difference there is no file.

A run without a cluster adds the calls that it has cancelled, when it ends.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..engine.observe import private_file
from ..providers.json.json_values import JSONObject, MalformedJSONError, loads_object
from .line_file import JournalError

MEMBER = "unrecorded_usd"

LENGTH = 64
"""The length of the file in bytes. It is always overwritten with as many, in one piece, so it is never incomplete."""

NEGLIGIBLE = 1e-6
"""A smaller difference is the result of rounding."""


def unrecorded_path(answers: Path) -> Path:
    """Return the path of the file, such as `answers.budget.json` for `answers.jsonl`."""
    return answers.with_name(f"{answers.stem}.budget.json")


def read_unrecorded(answers: Path) -> float:
    """Return the US dollars that no record has; 0 without a file. Raises `JournalError`.

    answers: the file of answers.
    """
    path = unrecorded_path(answers)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0.0
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from None
    value = _object(data).get(MEMBER) if data else 0.0  # an empty file: the run was killed before it gave anything
    if (type(value) is float or type(value) is int) and 0 <= value < 1e300:
        return float(value)
    raise JournalError(
        f'{path} is not from a batch: it must be {{"{MEMBER}": DOLLARS}}, what earlier runs spent and no record has;'
        " write that number, or delete the file to count nothing"
    )


def _object(data: bytes) -> JSONObject:
    try:
        return loads_object(data)
    except MalformedJSONError:
        return {}


class UnrecordedFile:
    """The file of one run, for writing. The journal of the run must be open: its lock holds for this file, too.

    answers: the file of answers.
    """

    def __init__(self, answers: Path) -> None:
        self.path: Path = unrecorded_path(answers)
        self._descriptor: int | None = None
        self._written = b""

    def write(self, dollars: float) -> None:
        """Write the amount, if it has changed. It is in the file when this returns. Raises `OSError`."""
        data = f'{{"{MEMBER}": {max(0.0, dollars):.9f}}}'.encode().ljust(LENGTH - 1) + b"\n"
        if data == self._written:
            return
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, private_file.MODE)
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, LENGTH)  # somebody may have written a longer text
        self._written = data

    def close(self, dollars: float) -> None:
        """Write the last amount. Remove the file if there is none. Raises `OSError`."""
        descriptor = self._descriptor
        try:
            if dollars >= NEGLIGIBLE:
                self.write(dollars)
                descriptor = self._descriptor
                if descriptor is not None:
                    os.fsync(descriptor)
            else:
                with contextlib.suppress(FileNotFoundError):
                    self.path.unlink()
        finally:
            self._descriptor = None
            if descriptor is not None:
                os.close(descriptor)
