"""The tokens of an answer under construction, and the forms in which servers report them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from ..json.json_values import JSON, JSONObject, integer, objects
from ..model.events import Event, FinishReason, TextDelta, ThinkingDelta
from ..model.provider_error import ProviderError, malformed
from ..model.request import Request
from ..model.response import Response
from ..model.tokens import TokenIds, Tokens, WeightSpan, new_ids

IDS, LOGPROBS = "ids", "logprobs"
"""What a request may ask for of its answer's tokens (`WireRequest.asked`)."""

TOKEN_ID = "token_id:"
"""The beginning of a token's text that is its id (vLLM's `return_tokens_as_token_ids`)."""

ENDED = frozenset({FinishReason.STOP, FinishReason.TOOL_USE})
"""The finish reasons of an answer that the model has ended with a stop token."""


class AnswerTokens:
    """The tokens of one answer, as they arrive. What cannot be read is left out, and marks the tokens as broken.

    tokens: those so far.
    ids_only: whether log probabilities came only to carry ids, so that deltas have none.
    named: whether ids came in a member of their own; those among log probabilities repeat them then.
    stop: what stopped the answer: the id of a token, a text, None for the model's own end, or "" if the server does
        not say.
    """

    __slots__ = ("_broken", "_ids_at", "_logprobs_at", "_sizes", "ids_only", "named", "stop", "tokens")

    def __init__(self) -> None:
        self.tokens: Tokens = Tokens()
        self.ids_only: bool = False
        self.named: bool = False
        self.stop: int | str | None = ""
        self._broken = False
        self._sizes: TokenIds | None = None  # the bytes of text of each token with a log probability
        self._ids_at = 0  # the number of ids that events had
        self._logprobs_at = 0

    def add_ids(self, value: JSON) -> None:
        """Append new ids: a list of whole numbers of at most 64 bits. Anything else marks the tokens as broken."""
        try:
            self.tokens.ids.fromlist(value)  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            self._broken = self._broken or value is not None

    def add_named(self, value: JSON) -> None:
        """Append the new ids of a member of their own."""
        self.named = True
        self.add_ids(value)

    def add_prompt(self, value: JSON) -> None:
        """Set the prompt's ids, which come once."""
        if type(value) is list:
            try:
                self.tokens.prompt_ids = array("q", value)  # type: ignore[arg-type]
            except (TypeError, OverflowError):
                self._broken = True

    def add_logprob(self, value: JSON) -> None:
        """Append the log probability of one token."""
        if self.tokens.logprobs is None:
            self.tokens.logprobs = array("d")
        self.tokens.logprobs.append(value if type(value) is float else _number(value))

    def add_logprobs(self, value: JSON) -> None:
        """Append log probabilities in a form of OpenAI's APIs: Chat's `content`, Completions' `token_logprobs`, or one
        number (Together's streams). Ids among them count if there is no member with ids.
        """
        if type(value) is not dict:
            self.add_logprob(value)
            return
        content = value.get("content")
        if type(content) is list:
            if len(content) == 1 and type(content[0]) is dict and self.named and self._sizes is not None:
                self._add_entry(content[0])  # the usual case, in a third of the time
            else:
                self._add_entries(objects(value, "content"))
        numbers = value.get("token_logprobs")
        if type(numbers) is list:
            for number in numbers:
                self.add_logprob(number)
            if not self.named and type(value.get("token_ids")) is list:
                self.add_ids(value["token_ids"])
        if "refusal" in value:
            self._add_entries(objects(value, "refusal"))

    def _add_entry(self, entry: JSONObject) -> None:
        """Append one entry, after others, where the ids are in a member of their own."""
        logprobs, sizes, size = self.tokens.logprobs, self._sizes, entry.get("bytes")
        assert logprobs is not None
        assert sizes is not None
        value = entry.get("logprob")
        logprobs.append(value if type(value) is float else _number(value))
        sizes.append(len(size) if type(size) is list else _text_size(entry.get("token")))

    def _add_entries(self, entries: Sequence[JSONObject]) -> None:
        """Append the entries of a list, which may be very many empty objects: each costs no call of a function."""
        if not entries:
            return
        if self.tokens.logprobs is None:
            self.tokens.logprobs = array("d")
        if self._sizes is None:
            self._sizes = array("I")
        values = [entry["logprob"] if "logprob" in entry else None for entry in entries]  # noqa: SIM401 (no call)
        try:
            self.tokens.logprobs.fromlist(values)  # type: ignore[arg-type]
        except TypeError:
            self.tokens.logprobs.extend([math.nan if value is None else _number(value) for value in values])
        self._sizes.extend(
            [
                len(entry["bytes"])
                if "bytes" in entry and type(entry["bytes"]) is list
                else _text_size(entry["token"])
                if "token" in entry
                else 0
                for entry in entries
            ]
        )
        if not self.named and _id_of(entries[0]) is not None:
            self.add_ids([_id_of(entry) for entry in entries])

    def add_versions(self, value: JSON, version: JSON = None) -> None:
        """Set the versions of the weights. value: spans. version: the one version, if the server sends no spans."""
        spans = [
            WeightSpan(str(span.get("version")), integer(span, "start") or 0, integer(span, "end") or 0)
            for span in (value if type(value) is list else ())
            if type(span) is dict
        ]
        if not spans and type(version) in (str, int):
            spans = [WeightSpan(str(version), 0, len(self.tokens.ids))]
        if spans:
            self.tokens.weight_versions = tuple(spans)

    def stopped(self, choice: JSONObject, members: Sequence[str]) -> None:
        """Record what stopped the answer, from the first of these members that the choice has."""
        for name in members:
            if name in choice:
                stop = choice[name]
                self.stop = stop if type(stop) in (int, str) else None  # type: ignore[assignment]
                return

    def attach(self, event: Event | None) -> None:
        """Give a delta the tokens that came since the last one. None: no delta has them."""
        tokens = self.tokens
        ids, logprobs = tokens.ids, tokens.logprobs
        count = len(ids)
        if logprobs is None or self.ids_only:
            if count > self._ids_at and isinstance(event, (TextDelta, ThinkingDelta)):
                event.tokens = Tokens(ids[self._ids_at :])
        else:
            at, self._logprobs_at = self._logprobs_at, len(logprobs)
            if isinstance(event, (TextDelta, ThinkingDelta)) and (count > self._ids_at or len(logprobs) > at):
                event.tokens = Tokens(ids[self._ids_at :], logprobs[at:])
        self._ids_at = count

    @property
    def waiting(self) -> bool:
        """Whether ids came that no event had."""
        return len(self.tokens.ids) > self._ids_at

    def whole(self, response: Response) -> Tokens | None:
        """Return the tokens for a response; None if there are none, and for those that could not be read."""
        tokens = self.tokens
        if self._broken or not (tokens.ids or tokens.logprobs or tokens.prompt_ids):
            return None
        tokens.cached = response.usage.cached_tokens
        tokens.text_count = self._text_count(response)
        return tokens

    def _text_count(self, response: Response) -> int | None:
        ids, stop = self.tokens.ids, self.stop
        if type(stop) is int:
            return len(ids) - (bool(ids) and ids[-1] == stop)
        if stop is None:
            return max(len(ids) - (response.finish_reason in ENDED), 0)
        if not stop and response.finish_reason not in ENDED:
            return len(ids)
        sizes = self._sizes
        if sizes is None or len(sizes) != len(ids) or any(type(block).__name__ != "Text" for block in response.content):
            return None
        left, count = len(response.text.encode()), 0
        while left > 0 and count < len(sizes):
            left -= sizes[count]
            count += 1
        return count


def _text_size(text: JSON) -> int:
    """Return the bytes of the text of a token whose bytes the server did not send."""
    return len(text.encode()) if type(text) is str else 0


def _id_of(entry: JSONObject) -> int | None:
    """Return the id in a log probability's entry: a member of its own (llama.cpp), or the text of the token (vLLM)."""
    id, text = entry.get("id"), entry.get("token")
    if type(id) is int:
        return id
    if type(text) is str and text.startswith(TOKEN_ID) and text[len(TOKEN_ID) :].isdecimal():
        return int(text[len(TOKEN_ID) :])
    return None


def _number(value: JSON) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def asked_tokens(request: Request) -> frozenset[str]:
    """Return what a request asks for of its answer's tokens, as in `WireRequest.asked`."""
    names = ((IDS, request.return_tokens), (LOGPROBS, request.logprobs is not None))
    return frozenset(name for name, asks in names if asks)


def drop_unasked(response: Response, asked: frozenset[str], unasked: frozenset[str]) -> None:
    """Drop what the request did not ask for, also log probabilities that came only to carry ids.

    asked, unasked: as in `WireRequest`.
    """
    for name in unasked:
        response.provider_data.pop(name, None)
    tokens = response.tokens
    if tokens is not None and LOGPROBS in unasked and LOGPROBS not in asked:
        tokens.logprobs = None
        if not tokens.ids and not tokens.prompt_ids:
            response.tokens = None


def check_tokens(response: Response, asked: frozenset[str]) -> None:
    """Raise `ProviderError` if a response does not have the tokens that its request asked for.

    asked: as in `WireRequest`.
    """
    tokens = response.tokens
    missing: Sequence[str] = [
        option
        for name, option, values in (
            (IDS, "return_tokens", new_ids() if tokens is None else tokens.ids),
            (LOGPROBS, "logprobs", None if tokens is None else tokens.logprobs),
        )
        if name in asked and not values
    ]
    if missing and response.usage.output_tokens != 0:
        raise _missing(missing)


def _missing(options: Sequence[str]) -> ProviderError:
    what = {"return_tokens": "token ids", "logprobs": "log probabilities"}
    names = " and ".join(what[option] for option in options)
    return malformed(
        f"the server sent no {names} that can be read, which the request asks for ({', '.join(options)}): an older"
        " server may not know the option, and a gateway may leave them out"
    )
