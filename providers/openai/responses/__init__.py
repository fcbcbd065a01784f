"""OpenAI's Responses: requests (`request.py`, `message_writer.py`, `block_writer.py`), answers (`items.py`,
`output.py`, `response.py`) and streams (`stream.py`), put together in `dialect.py`."""

from .dialect import DIALECT as DIALECT
