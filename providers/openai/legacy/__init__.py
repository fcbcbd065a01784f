"""Requests in OpenAI's older flat form: a conversation as rows of `kind, content, data_json`. No network.

This package serves code that still stores conversations in this form. The OpenAI Chat dialect owns it. `rows.py` makes
the rows. `wire.py` reads them back as messages and passes them to that dialect, so both forms send the same request.
Nothing else in the library imports this package.

| block | row |
|---|---|
| system prompt | kind `system`, all its text |
| text | kind `user` or `assistant`, the text |
| tool call | kind `tool_call`, data_json `{id, type: "function", name, arguments}` |
| tool result | kind `tool_result`, data_json `{tool_call_id, name, output, success}` |

Every block has its own row. A block of any other kind is refused.
"""

from .rows import DEFAULT_TEMPERATURE as DEFAULT_TEMPERATURE
from .rows import THINKING_MODELS as THINKING_MODELS
from .rows import LegacyConversation as LegacyConversation
from .rows import LegacyRequest as LegacyRequest
from .rows import LegacyRow as LegacyRow
from .rows import build_conversation as build_conversation
from .rows import transform_message as transform_message
from .rows import transform_request as transform_request
from .wire import serialize as serialize
