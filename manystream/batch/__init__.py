"""Batches: a file of requests, a file of answers, and nothing lost or done twice in between.

    async with open_engine([provider]) as engine:
        with Journal(Path("answers.jsonl")) as journal:
            batch = Batch(engine, journal, choose_model=lambda named: named or "gpt-5-mini", concurrency=1000)
            await batch.run(read_lines(Path("prompts.jsonl")))

Knows files and engines. Must not know terminals nor command lines (`manystream batch` does), nor any dialect.
"""

from .journal import Journal as Journal
from .line_file import JournalError as JournalError
from .lines import Item as Item
from .lines import LineError as LineError
from .lines import read_item as read_item
from .pace import Pace as Pace
from .run import Batch as Batch
from .run import BatchError as BatchError
from .run import Counters as Counters
from .run import Price as Price
from .source import count_lines as count_lines
from .source import read_lines as read_lines
