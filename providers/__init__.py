"""Meaning: values to wire requests, and wire answers to values. No I/O; the time and random ids are passed in.

| part | what it is |
|---|---|
| `openai/`, `anthropic/`, `gemini*/`, `generate/` | the dialects: one wire format each |
| `convert/`, `history/` | conversations in other forms: arguments of the SDKs, messages that a program stored |
| `catalog/` | the dialect, the provider and the profile as values; the base classes of the stream machines |
| `limits/` | what servers report of their limits, and how they charge |
| `wire/` | what several dialects share: the answer under construction, templates of deltas, errors |
| `model/` | the values that programs use, and their rules |
| `json/`, `errors` | JSON in and out; the base of all exceptions |

Imports go from top to bottom, and a dialect imports no other, with two exceptions: Gemini's two have its errors and
schemas in common, since one server speaks both, and `generate/` writes conversations as OpenAI Chat does.

A stream goes one way: a server-sent event → `StreamMachine.feed` → the dialect's method for this wire event → a method
of the `Accumulator` (`wire/accumulate.py`), which records one fact and returns the event that reports it. The decoder
of an unstreamed answer calls the same methods. So events and response cannot differ, and a streamed answer equals an
unstreamed one.

The rules between them:

- A machine never raises for anything that a server sends. What cannot be read ends the answer with an `ErrorEvent`; a
  member of the wrong type counts as absent.
- Requests are strict: what is sent is right for the dialect, or an `InvalidRequestError` that names the field.
- What differs between servers of one dialect is data: a `Profile` with its `Quirks`, a row in `limits/charging.py`.
- An event that differs from the one before in its text only is matched by its bytes (`wire/delta_template.py`), and not
  parsed. Both ways give the same events.

Known to be ugly: a machine with a template also has a `target`, so that the engine adds matched deltas to a block
without a call of the machine. Whether a signature is Anthropic's own is decided by the profile's name
(`anthropic/block_writer.py`).
"""
