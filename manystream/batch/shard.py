"""A shard: one of n parts of a batch's input, for one process of several that share the work.

The line numbers alone decide which shard sends a line, so the processes need no connection to each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .. import ManystreamError

FORM = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")

ERRORS = ".errors"
"""The end of the stem of a file of failures, such as `answers.errors.jsonl`."""


class ShardError(ManystreamError, ValueError):
    """A text that names no shard. The message states the reason and what to write instead."""


@dataclass(slots=True, frozen=True)
class Shard:
    """The lines whose number modulo `count` is `index`.

    Lines are numbered from 1, and empty lines have a number, too. So each line belongs to exactly one shard.

    index: the shard's number, from 0 to `count` - 1.
    count: the number of shards.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ShardError("there must be at least 1 shard; 0/1 is the whole input")
        if self.index == self.count:
            raise ShardError(
                f"shards are numbered from 0, so the last of {self.count} is {self.count - 1}/{self.count};"
                " subtract 1 if another tool counts from 1"
            )
        if not 0 <= self.index < self.count:
            raise ShardError(f"the number of a shard is between 0 and {self.count - 1} where there are {self.count}")

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def has(self, number: int) -> bool:
        """Return whether the line with this number, from 1, belongs to this shard."""
        return number % self.count == self.index

    def lines_of(self, total: int) -> int:
        """Return how many of the lines 1 to `total` belong to this shard."""
        return (total - self.index) // self.count + (self.index > 0)

    def file(self, path: Path) -> Path:
        """Return this shard's own file, such as `answers.2-of-8.jsonl` for `answers.jsonl`.

        A file of failures keeps its ending: `answers.errors.jsonl` becomes `answers.2-of-8.errors.jsonl`. So a pattern
        such as `answers.*-of-8.jsonl` matches files of answers only.
        """
        stem, errors = path.stem, ""
        if stem.endswith(ERRORS) and stem != ERRORS:
            stem, errors = stem.removesuffix(ERRORS), ERRORS
        return path.with_name(f"{stem}.{self.index}-of-{self.count}{errors}{path.suffix}")


def read_shard(text: str) -> Shard:
    """Parse a shard such as `2/8`. Raises `ShardError`."""
    found = FORM.fullmatch(text)
    if found is None:
        raise ShardError("a shard is written as two whole numbers, I/N, such as 0/4 for the first of four")
    return Shard(int(found[1]), int(found[2]))
