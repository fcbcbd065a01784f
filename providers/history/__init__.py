"""A conversation in one common form for code that keeps each provider's own: system prompt, context, turns.

Owned by the converters: `converter.py` says what one offers and in which order it works, each dialect's `converter.py`
how that dialect's messages are written and read. Nothing else may import this package, but for what reads other
programs' conversations (batch lines). It must not know any wire form, and requests and answers must not know it.

It is a view of the message model (`view.py`), not a second one: every wire form is written and read through messages.

| common | message model |
|---|---|
| `user`, `context` | a user's message; the context stands first |
| `model` | an assistant's message: text and tool calls |
| `tool` | a tool message; a result is the JSON text of its `ToolCallResult` |
| usage, finish reason | nothing: they tell of an answer, and are not sent back |
| any other block (thinking, image, …) | itself, as `OtherPart` |
"""

from .view import FinishReasonPart as FinishReasonPart
from .view import History as History
from .view import HistoryError as HistoryError
from .view import HistoryMessage as HistoryMessage
from .view import HistoryRole as HistoryRole
from .view import OtherPart as OtherPart
from .view import Part as Part
from .view import TextPart as TextPart
from .view import ToolCallPart as ToolCallPart
from .view import ToolCallResult as ToolCallResult
from .view import ToolOutput as ToolOutput
from .view import ToolResultPart as ToolResultPart
from .view import UsagePart as UsagePart
from .view import history_messages_of as history_messages_of
from .view import message_from_response as message_from_response
from .view import messages_of as messages_of
