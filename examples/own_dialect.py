"""A wire format of your own: the engine uses a server that speaks none of the five dialects.

    python examples/own_dialect.py                                          starts a small server
    python examples/own_dialect.py --base-url http://127.0.0.1:9000         uses a server that runs already

The server is invented. It takes `POST /v1/talk`:

    {"model": "parrot-1", "turns": [{"by": "me", "words": "Hello"}], "rules": "Be brief.", "live": true}

Whole answer:  {"talk": "t-1", "model": "parrot-1", "words": "Hello!", "why": "finished", "heard": 3, "spoken": 2}
Live answer:   server-sent events: `begin` (talk, model), `words` (words), `end` (why, heard, spoken), `trouble`.
Error:         {"trouble": "I am hoarse", "again_in": 2}, with an HTTP status; inside a live answer as `trouble`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import trio
from own_dialect_server import open_server

import manystream as ms
from manystream.providers.catalog.dialect import Dialect, Headers, MakeId, StreamMachine, WireRequest
from manystream.providers.model.provider_error import category_of_status, malformed, truncated
from manystream.providers.model.request_rules import validate_request
from manystream.providers.wire.accumulate import Accumulator, TextInProgress
from manystream.providers.wire.answer_limits import ANSWER_LIMITS, AnswerLimits

BY = {ms.Role.USER: "me", ms.Role.ASSISTANT: "you"}
REASONS = {"finished": ms.FinishReason.STOP, "too long": ms.FinishReason.LENGTH}


# --- requests ---


def encode(request: ms.Request, model: str, provider: ms.Provider, *, stream: bool) -> WireRequest:
    """Encode a request. An option that the server lacks is an error here, or a warning on the response."""
    validate_request(request)
    if request.tools:
        raise ms.InvalidRequestError("tools", "this server has none")
    turns: list[dict[str, str]] = []
    for place, message in enumerate(request.messages):
        if message.role not in BY or not all(isinstance(block, ms.Text) for block in message.content):
            raise ms.InvalidRequestError(f"messages[{place}]", "this server takes text of users and assistants alone")
        turns.append({"by": BY[message.role], "words": message.text})
    body: dict[str, object] = {"model": model, "turns": turns, "live": stream}
    if request.system is not None:
        body["rules"] = "\n\n".join(block.text for block in request.system_blocks)
    warnings = ["seed: not sent; the server has no such setting"] if request.seed is not None else []
    headers = [("content-type", "application/json")]
    return WireRequest("/v1/talk", headers, json.dumps(body).encode(), warnings=warnings)


# --- answers: both forms record facts in the accumulator, so their responses are equal ---


def members_of(data: bytes) -> dict[str, object]:
    """Return the members of a JSON object. Raises `ProviderError` for anything else."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise malformed("the server sent something that is not a JSON object", data)
    return value  # pyright: ignore[reportUnknownVariableType]


def text_of(members: dict[str, object], name: str) -> str:
    """Return a text member; empty if it is missing or has another type."""
    value = members.get(name)
    return value if isinstance(value, str) else ""


def number_of(members: dict[str, object], name: str) -> int | None:
    """Return an integer member; None if it is missing or has another type."""
    value = members.get(name)
    return value if type(value) is int else None


def begin(answer: Accumulator, members: dict[str, object]) -> ms.Start:
    """Record the beginning of an answer."""
    return answer.start(text_of(members, "model") or None, text_of(members, "talk") or None)


def end(answer: Accumulator, members: dict[str, object]) -> list[ms.Event]:
    """Record the end of an answer: finish reason and usage."""
    answer.usage = ms.Usage(number_of(members, "heard"), number_of(members, "spoken"))
    why = text_of(members, "why")
    return answer.done(REASONS.get(why, ms.FinishReason.UNKNOWN), why)


def decode(body: bytes, provider: ms.Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> ms.Response:
    """Decode a whole answer."""
    members = members_of(body)
    answer = Accumulator(limits)
    begin(answer, members)
    words = text_of(members, "words")
    if words:
        answer.text().delta(words)
    end(answer, members)
    return answer.response()


class ParrotStream(StreamMachine):
    """A live answer, with one method per event. A `ProviderError` from a method ends the stream with that error."""

    __slots__ = ("_text",)

    def __init__(self, provider: ms.Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self._text: TextInProgress | None = None

    def take_event(self, event: str, data: bytes) -> Sequence[ms.Event]:
        """Take one server-sent event. Events with an unknown name are ignored, because servers add events."""
        take = TAKE.get(event)
        return take(self, members_of(data), data) if take is not None else ()

    def take_end(self) -> Sequence[ms.Event]:
        """Report a body that ended without `end`."""
        return self.fail(truncated())

    def take_begin(self, members: dict[str, object], data: bytes) -> Sequence[ms.Event]:
        return (begin(self.answer, members),)

    def take_words(self, members: dict[str, object], data: bytes) -> Sequence[ms.Event]:
        words = text_of(members, "words")
        if not words:
            return ()
        if self._text is None:
            self._text = self.answer.text()
        return (self._text.delta(words),)

    def take_done(self, members: dict[str, object], data: bytes) -> Sequence[ms.Event]:
        self.ended = True
        return end(self.answer, members)

    def take_trouble(self, members: dict[str, object], data: bytes) -> Sequence[ms.Event]:
        return self.fail(trouble(members, 200, data))


TAKE = {
    "begin": ParrotStream.take_begin,
    "words": ParrotStream.take_words,
    "end": ParrotStream.take_done,
    "trouble": ParrotStream.take_trouble,
}
"""Event → its method."""


# --- errors ---


def trouble(members: dict[str, object], status: int, body: bytes) -> ms.ProviderError:
    """Convert an error of the server. The engine waits `again_in` seconds before the next attempt."""
    again_in = number_of(members, "again_in")
    return ms.ProviderError(
        text_of(members, "trouble") or f"HTTP {status}",
        category=ms.ErrorCategory.SERVER if status == 200 else category_of_status(status),
        http_status=status,
        retry_after_ms=again_in * 1000 if again_in is not None else -1,
        body=body,
    )


def decode_error(status: int, headers: Headers, body: bytes, now: float) -> ms.ProviderError:
    """Decode an error answer. Never raises, for any body."""
    try:
        members = members_of(body)
    except ms.ProviderError:
        members = {}
    return trouble(members, status, body)


PARROT = ms.Profile(
    name="parrot",
    dialect=Dialect(name="parrot", encode=encode, decode=decode, machine=ParrotStream, decode_error=decode_error),
    base_url="https://parrot.example",
    key_variables=("PARROT_API_KEY",),  # sent as `Authorization: Bearer …`: the default of `auth_headers`
    prefixes=("parrot-",),
)


async def ask(base_url: str) -> None:
    """Make three calls: a stream, a whole answer, and one that fails."""
    parrot = ms.Provider("any", base_url, profile=PARROT)
    async with ms.open_engine([parrot], retry=ms.Retry(max_attempts=1)) as engine:
        request = ms.Request("parrot-1", [ms.Message.user("Hello")], system="Be brief.", seed=7)
        async with engine.stream(request) as events:
            async for event in events:
                print(event)
        print()
        response = await engine.request(request)
        print(response.text, response.finish_reason, response.usage.output_tokens, response.warnings)
        try:
            await engine.request(ms.Request("parrot-hoarse", [ms.Message.user("Hello")]))
        except ms.ProviderError as error:
            print(error)


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a server of an invented wire format.")
    parser.add_argument("--base-url", help="the server (default: a server that is started here)")
    arguments = parser.parse_args()
    if arguments.base_url:
        trio.run(ask, arguments.base_url)
        return
    with open_server() as base_url:
        trio.run(ask, base_url)


if __name__ == "__main__":
    main()
