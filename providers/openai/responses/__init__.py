"""OpenAI's Responses dialect, which `dialect.py` assembles.

Requests: `request.py`, `message_writer.py` and `block_writer.py`. Answers: `items.py`, `output.py` and `response.py`.
Streams: `stream.py`.
"""

from .dialect import DIALECT as DIALECT
