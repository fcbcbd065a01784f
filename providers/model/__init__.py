"""The values that programs use, their rules, and views of them: messages, requests, events, responses, rows. No I/O.

Values are slotted classes. The rules of a request and its messages are tables (`request_rules.py`, `message_rules.py`),
which the engine applies when a call starts: an error then names the place in the request. A value that many requests
share (options, tools, pictures) checks itself when it is made.

A block that a provider wants back unchanged (a signature, encrypted thinking) carries a `ProviderState`. Another
provider's state is not sent. `rows.py`, `structured.py`, `conversation.py` and `turns.py` are views: rows of a
database, typed answers, an agent's conversation, ids for training.
"""
