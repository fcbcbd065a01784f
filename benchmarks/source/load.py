"""The loads of the source, as paths of a base URL. Standard library only."""

from __future__ import annotations

FORMS: dict[str, dict[str, str]] = {
    "plain": {},
    "usage": {"form": "usage"},
    "logprobs": {"form": "logprobs"},
    "tokens": {"form": "tokens"},
    "generate": {"form": "generate"},
    "cut": {"framing": "cut"},
    "pair": {"framing": "pair"},
    "close": {"framing": "close"},
}
"""Wire form of a chat stream → the members of a load that select it.

plain: one event in each HTTP chunk.
usage: with counts that grow in each event.
logprobs: with log probabilities in each event.
tokens: with the id and the log probability of one token in each event, as vLLM sends them in chat.
generate: the same in the form of vLLM's generate endpoint.
cut: each event cut across two chunks, in one send.
pair: two events in each chunk.
close: no chunks; the body ends with the connection. Not over TLS.
"""

TOKEN_FORMS = ("tokens", "generate")
"""Wire forms whose events have tokens. Their clients collect the ids and the log probabilities."""

EVENTS_PER_SEND = {"pair": 2}
"""Wire form → events in one send, if there are several."""


def load_path(**load: object) -> str:
    """Return the path of a load: `events`, `rate`, `gate`, `spread`, `mode`, `size`, `delay`, `framing`, `form`,
    `moment`.

    See source/request.c. `form` selects a template of wire.py by its part of the path.

    spread, delay: milliseconds. moment: microseconds for which the source gathers events; 0: it never sleeps.
    """
    return "/load/" + ",".join(f"{key}={value}" for key, value in load.items())
