"""Messages as database rows `kind, content, data_json`, and back: one row per block, append-only.

Rows are a view of the message model: a new kind of block needs a row here. `row.py` defines the row and the kinds,
`writing.py` writes rows, `reading.py` reads them, older spellings included.

| kind | content | data_json |
|---|---|---|
| `system` | text | None: not read as a message, because the system prompt is a field of the request |
| `system` | text | `"role": "system"`: a system message in the middle of a conversation |
| `user`, `assistant` | text | None, or the text block's other members |
| `tool_call` | None | `tool_call_id, tool_name, tool_args, thinking: {text, signature}?, redacted_thinking: {data}?` |
| `tool_result`, `tool` | None | `tool_call_id, output, success` (absent: a success) |
| `thinking`, `redacted_thinking`, `image`, `file`, `provider_block` | None | the block's members |

Thinking directly before a tool call is stored in the call's row. A message of several blocks gives several rows. All
but the first have `"continues": true`, and `messages_from_rows` joins them to one message. Arguments that are no JSON
object are an error, unless the row has `"malformed": true`, which means that the model wrote them so. A `system` row
without a role that comes after a message is a system message, too.
"""

from .reading import message_from_row as message_from_row
from .reading import messages_from_rows as messages_from_rows
from .row import Row as Row
from .row import RowError as RowError
from .writing import rows_from_message as rows_from_message
