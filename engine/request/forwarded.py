"""A request that came in wire form: a gateway sends its body as the client wrote it, and returns the answer's bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from ...providers.catalog.dialect import NOTHING_UNASKED, Turn, WireRequest
from ...providers.catalog.registry import PROMPT_DIALECTS
from ...providers.errors import InvalidRequestError
from ...providers.json.json_types import JSONObject
from ...providers.model.given_body import GivenBody, Sources
from ...providers.model.messages import Message
from ...providers.model.request import Request, RequestOptions, given_of
from ...transport.exchange import Exchange

if TYPE_CHECKING:
    from typing import Unpack

PLACEHOLDER = (Message.user("."),)
"""The conversation from which the dialect writes the head. The body is replaced as a whole."""

PROMPT_PLACEHOLDER = (0,)
"""The ids of a prompt for a dialect without conversations."""


class Forwarder(Protocol):
    """Gets the bytes of a call's answers as they arrive."""

    def tap(self, exchange: Exchange) -> Exchange:
        """Return an exchange in front of an attempt's, to which it forwards everything.

        It also gets the bytes of the body after the answer's end, and `on_end` or `on_failure` then. An attempt that is
        over ignores them. If the body does not end in the pool's `drain_seconds`, neither comes.
        """
        ...


@dataclass(slots=True, frozen=True, kw_only=True)
class ForwardedBody(GivenBody):
    """A body that is sent as its client wrote it, in the client's dialect.

    write: takes the model's name as the provider knows it, and returns the body.
    query: names and values of the client's query, which the provider gets.
    forwarder: gets the answer's bytes.
    place: takes the path of a model call and the model's name; returns the path. None: it is a model call.
    conversation: what stands for the conversation of `turn`.
    turn: how it is sent over the WebSocket of its conversation; None: it is sent over HTTP.
    """

    write: Callable[[str], bytes]
    query: Sequence[tuple[str, str]]
    forwarder: Forwarder
    method: str = "POST"
    place: Callable[[str, str], str] | None = None
    conversation: Hashable = None
    turn: Turn | None = None

    def restore(self, dialect: str, body: JSONObject, request: object, sources: Sources, warnings: list[str]) -> None:
        """Do nothing: `replace` replaces the body as a whole."""

    def check(self, dialect: str, model: str) -> None:
        """Raise `InvalidRequestError` for a provider that speaks another dialect."""
        if dialect != self.dialect:
            text = f"{model!r} is served by {dialect}, and the request came as {self.dialect}: it is not translated"
            raise InvalidRequestError("model", text)

    def replace(self, wire: WireRequest, model: str) -> None:
        """Put the client's body and query in place of those that the dialect has written from the placeholder."""
        wire.body = self.write(model)
        wire.turn = self.turn
        wire.method = self.method
        path, _, query = wire.path.partition("?")
        if self.place is not None:
            path = self.place(path, model)
        given = {name for name, _ in self.query} | {"alt"}  # the form of Gemini's stream is the client's choice
        kept = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in given]
        kept += [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in self.query]
        wire.path = path + ("?" + "&".join(kept) if kept else "")
        wire.warnings, wire.unasked, wire.choices, wire.asked = [], NOTHING_UNASKED, 0, NOTHING_UNASKED


def forwarded_request(model: str, body: ForwardedBody, **options: Unpack[RequestOptions]) -> Request:
    """Return a request that is sent with a client's body. `options`: those that policies of the engine read."""
    if body.dialect not in PROMPT_DIALECTS:
        return Request(model, PLACEHOLDER, _given=body, **options)
    options["prompt_token_ids"] = PROMPT_PLACEHOLDER
    return Request(model, (), _given=body, **options)


def forwarded_of(request: Request) -> ForwardedBody | None:
    """Return the client's body of a request that is forwarded; None for any other request."""
    given = given_of(request)
    return given if isinstance(given, ForwardedBody) else None
