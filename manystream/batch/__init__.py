"""Batches: read requests from a file and write their answers to another. No answer is lost, and no line is sent twice.

async with open_engine([provider]) as engine:
    with Journal(Path("answers.jsonl")) as journal:
        batch = Batch(engine, journal, choose_model=lambda named: named or "gpt-5-mini", concurrency=1000)
        await batch.run(read_lines(Path("prompts.jsonl")))
"""

from .budget import BatchBudget as BatchBudget
from .calls import BatchError as BatchError
from .intake import Counters as Counters
from .intake import WayFigures as WayFigures
from .journal import Journal as Journal
from .journal import Records as Records
from .line_file import JournalError as JournalError
from .line_ids import LineIds as LineIds
from .lines import CommonOptions as CommonOptions
from .lines import Item as Item
from .lines import LineError as LineError
from .lines import Prompt as Prompt
from .lines import read_item as read_item
from .lines import read_prompt as read_prompt
from .prices import Price as Price
from .run import Batch as Batch
from .shard import Shard as Shard
from .shard import ShardError as ShardError
from .shard import read_shard as read_shard
from .source import count_lines as count_lines
from .source import read_lines as read_lines
from .tables import Rows as Rows
from .tables import TableError as TableError
from .tables import open_rows as open_rows
from .tables import read_rows as read_rows
from .tables import write_table as write_table
