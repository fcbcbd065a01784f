"""A request → the bytes of its attempts: provider and key, the wire body, the head, and the limits on its size.

`Preparer` makes all checks before a byte is sent, and caches what requests share: heads, addresses, keys. The result is
a `Prepared`, which all attempts of a call share. What one attempt has of its own is made when it begins: a key that
comes from a function (`fresh_key.py`), a signature (`signing.py`), the request that asks for the rest of a kept answer
(`continued.py`, `durable.py`).

Also what every error and record needs: the redaction of secrets. A `Redaction` has the secrets of one head, and
replaces them in the texts of errors, events and recordings. `Notes` keeps what such a record raises from the call
(`noting.py`).
"""
