"""A conversation in one common form, for code that stores each provider's own: system prompt, context, turns.

The converters own this package. `converter.py` has their base class. Each dialect's `converter.py` converts that
dialect's messages. Only code that reads other programs' conversations (batch lines) may also import this package.

The common form is a view of the message model (`view.py`): every wire form is read to messages and written from them.

| common | message model |
|---|---|
| `user`, `context` | a user's message; the context comes first |
| `model` | an assistant's message: text and tool calls |
| `tool` | a tool message; a result is the JSON text of its `ToolCallResult` |
| usage, finish reason | nothing: they describe an answer, and are not sent back |
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
