"""What the dialects share: the answer under construction, templates of deltas, and rules that several wires have.

| part | what it is |
|---|---|
| `accumulate`, `answer_tokens`, `answer_limits`, `answer_bytes` | the answer so far, its tokens, and its bounds |
| `call_ids`, `tool_names` | ids and names of tool calls that the wire accepts |
| `delta_template`, `cut_pairs` | the next delta by its bytes; a character that was cut between two deltas |
| `error_bodies`, `retry_hints` | what comes in place of an answer |
| `quirks`, `wire_head` | where servers differ; the head of a request |
| `cache_marks`, `omission_warnings` | what a wire can carry in part |

A rule of one wire belongs to the folder of its dialect.
"""
