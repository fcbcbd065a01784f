"""Messages as database rows `kind, content, data_json`, and back: one row per block, append-only.

Owned by the message model, of which rows are a view: a new kind of block gets its row here. `row.py` has the row
itself and the kinds, `writing.py` makes rows, `reading.py` reads them, the older spellings included. Must not know any
database (`manystream/store.py` does), nor any dialect.

| kind | content | data_json |
|---|---|---|
| `system` | text | read as no message: the system prompt is a field of the request |
| `user`, `assistant` | text | None, or what the text carries beside it |
| `tool_call` | None | `tool_call_id, tool_name, tool_args, thinking: {text, signature}?, redacted_thinking: {data}?` |
| `tool_result`, `tool` | None | `tool_call_id, output, success` (absent: a success) |
| `thinking`, `redacted_thinking`, `image`, `file`, `provider_block` | None | the block's members |

Thinking that stands directly before a tool call rides in the call's row. A message of several blocks gives several
rows; all but the first say `"continues": true`, and `messages_from_rows` puts them together again. Arguments that are
no JSON object are an error, except where the row says `"malformed": true`: that the model wrote them so.
"""

from .reading import message_from_row as message_from_row
from .reading import messages_from_rows as messages_from_rows
from .row import Row as Row
from .row import RowError as RowError
from .writing import rows_from_message as rows_from_message
