"""The tokens of an answer under construction, and the forms in which servers report them."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ..json.json_values import JSON, JSONObject, integer, items, objects
from ..model.events import Event, FinishReason, TextDelta, ThinkingDelta
from ..model.messages import Text, Thinking
from ..model.provider_error import ProviderError, malformed
from ..model.request import Request
from ..model.response import Response
from ..model.tokens import TokenIds, Tokens, WeightSpan, ids_of, new_ids

IDS, LOGPROBS = "ids", "logprobs"
"""What a request may ask for of its answer's tokens (`WireRequest.asked`)."""

TOKEN_ID = "token_id:"
"""The beginning of a token's text that is its id (vLLM's `return_tokens_as_token_ids`)."""

ENDED = frozenset({FinishReason.STOP, FinishReason.TOOL_USE})
"""The finish reasons of an answer that the model has ended with a stop token."""

STOP_TOKENS = 64
"""How many of the last tokens' texts are kept, in which the end of a stop string is looked for."""

INCOMPLETE = "tokens: "
"""The beginning of a response's warning that its tokens are not complete."""


@dataclass(slots=True, eq=False, repr=False)
class AnswerTokens:
    """The tokens of one answer, as they arrive. What cannot be read is left out, and marks the tokens as incomplete."""

    tokens: Tokens = field(default_factory=Tokens, init=False)  # those so far, but for their ids
    ids: TokenIds = field(default_factory=new_ids, init=False)  # the ids so far
    # what contradicts itself in the tokens, or could not be read: the first of these; empty if there is nothing
    fault: str = field(default="", init=False)
    # whether log probabilities came only to carry ids, so that deltas have none
    ids_only: bool = field(default=False, init=False)
    # whether ids came in a member of their own; those among log probabilities repeat them then
    named: bool = field(default=False, init=False)
    # what stopped the answer: the id of a token, a text, None for the model's own end, or "" if the server does not say
    stop: int | str | None = field(default="", init=False)
    _broken: bool = field(default=False, init=False)
    # whether the log probabilities came with their ids, so that others repeat them
    _paired: bool = field(default=False, init=False)
    _texts: deque[JSON] | None = field(default=None, init=False)  # of the last tokens with a log probability
    _ids_at: int = field(default=0, init=False)  # the number of ids that events had
    _logprobs_at: int = field(default=0, init=False)

    def add_ids(self, value: JSON) -> None:
        """Append new ids: a list of whole numbers from 0 on. Anything else marks the ids as broken."""
        if type(value) is list and len(value) == 1 and type(value[0]) is int and 0 <= value[0] < 2**63:
            self.ids.append(value[0])  # the usual case, in a quarter of the time
        elif value is not None:
            new = ids_of(value)
            if new is None:
                self._broken = True
                self.contradict("an id is no whole number")
            else:
                self.ids.extend(new)

    def contradict(self, fault: str) -> None:
        """Record what contradicts itself in the tokens, or cannot be read."""
        self.fault = self.fault or fault

    def add_named(self, value: JSON) -> None:
        """Append the new ids of a member of their own."""
        self.named = True
        self.add_ids(value)

    def add_prompt(self, value: JSON) -> None:
        """Set the prompt's ids, which come once, or the same ones again."""
        if type(value) is list:
            ids, before = ids_of(value), self.tokens.prompt_ids
            if ids is None or (before is not None and ids != before):
                self.contradict("the ids of the prompt change, or one is no whole number")
            else:
                self.tokens.prompt_ids = ids

    def take_meta(self, meta: JSONObject) -> None:
        """Read SGLang's `meta_info`: the number of ids so far, and pairs of a log probability and an id, which are
        those of all tokens so far. What came before them is a part of it.
        """
        pairs, count = items(meta, "output_token_logprobs"), integer(meta, "completion_tokens")
        ids = [pair[1] for pair in pairs if type(pair) is list and len(pair) > 1] if pairs else meta.get("output_ids")
        if type(ids) is list:
            known = self.ids
            self.ids = new_ids()
            self.add_named(ids)
            if self.ids[: len(known)] != known:
                self.contradict("the ids change")
        if pairs:
            self.tokens.logprobs, self._paired = None, True
            for pair in pairs:
                self.add_logprob(pair[0] if type(pair) is list and pair else "")
        if count is not None and self.ids and count != len(self.ids):
            self.contradict(f"an event counts {count} tokens, where {len(self.ids)} ids have come")

    def add_logprob(self, value: JSON) -> None:
        """Append the log probability of one token."""
        if self.tokens.logprobs is None:
            self.tokens.logprobs = array("d")
        self.tokens.logprobs.append(value if type(value) is float else self._number(value))

    def _number(self, value: JSON) -> float:
        """Return a log probability that is no float: NaN for null, infinity for what is no number of 64 bits."""
        if value is None:
            return math.nan
        try:
            number = float(value) if isinstance(value, (int, float)) and type(value) is not bool else math.inf
        except OverflowError:
            number = math.inf
        if number == math.inf:
            self.contradict("a log probability is no number")
        return number

    def add_logprobs(self, value: JSON) -> None:
        """Append log probabilities in a form of OpenAI's APIs: Chat's `content`, Completions' `token_logprobs`, or one
        number (Together's streams). Ids among them count if there is no member with ids.
        """
        if self._paired:
            return
        if type(value) is not dict:
            self.add_logprob(value)
            return
        content = value.get("content")
        if type(content) is list:
            if len(content) == 1 and type(content[0]) is dict and self.named and self._texts is not None:
                self._add_entry(content[0])  # the usual case, in a third of the time
            else:
                self._add_entries(objects(value, "content"))
        numbers = value.get("token_logprobs")
        if type(numbers) is list:
            for number in numbers:
                self.add_logprob(number)
            texts = items(value, "tokens")
            self._keep_texts(texts)
            if not self.named and texts and _id_of({"token": texts[0]}) is not None:
                self.add_ids([_id_of({"token": text}) for text in texts])
            elif not self.named:
                self.add_ids(value.get("token_ids"))
        if "refusal" in value:
            self._add_entries(objects(value, "refusal"))

    def _add_entry(self, entry: JSONObject) -> None:
        """Append one entry, after others, where the ids are in a member of their own."""
        logprobs, texts = self.tokens.logprobs, self._texts
        assert logprobs is not None
        assert texts is not None
        value = entry.get("logprob")
        logprobs.append(value if type(value) is float else self._number(value))
        texts.append(entry.get("token"))

    def _add_entries(self, entries: Sequence[JSONObject]) -> None:
        """Append the entries of a list, which may be very many empty objects: each costs no call of a function."""
        if not entries:
            return
        if self.tokens.logprobs is None:
            self.tokens.logprobs = array("d")
        values = [entry["logprob"] if "logprob" in entry else None for entry in entries]  # noqa: SIM401 (no call)
        if {*map(type, values)} == {float}:
            self.tokens.logprobs.fromlist(values)  # type: ignore[arg-type]
        else:
            self.tokens.logprobs.extend([math.nan if value is None else self._number(value) for value in values])
        self._keep_texts([entry["token"] if "token" in entry else None for entry in entries[-STOP_TOKENS:]])  # noqa: SIM401
        if not self.named and _id_of(entries[0]) is not None:
            self.add_ids([_id_of(entry) for entry in entries])

    def _keep_texts(self, texts: Sequence[JSON]) -> None:
        if self._texts is None:
            self._texts = deque(maxlen=STOP_TOKENS)
        self._texts.extend(texts)

    def add_versions(self, value: JSON, version: JSON = None) -> None:
        """Set the versions of the weights. value: spans. version: the one version, if the server sends no spans."""
        spans = [
            WeightSpan(str(span.get("version")), integer(span, "start") or 0, integer(span, "end") or 0)
            for span in (value if type(value) is list else ())
            if type(span) is dict
        ]
        if not spans and type(version) in (str, int):
            spans = [WeightSpan(str(version), 0, len(self.ids))]
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
        ids, logprobs = self.ids, self.tokens.logprobs
        count = len(ids)
        new = ids[self._ids_at :] if count > self._ids_at else None
        if logprobs is None or self.ids_only:
            if new is not None and isinstance(event, (TextDelta, ThinkingDelta)):
                event.tokens = Tokens(new)
        else:
            at, self._logprobs_at = self._logprobs_at, len(logprobs)
            if new is not None and len(new) != len(logprobs) - at > 0:
                self.contradict(f"an event has {len(new)} ids and {len(logprobs) - at} log probabilities")
            if isinstance(event, (TextDelta, ThinkingDelta)) and (new is not None or len(logprobs) > at):
                event.tokens = Tokens(new, logprobs[at:])
        self._ids_at = count

    @property
    def waiting(self) -> bool:
        """Whether ids came that no event had."""
        return len(self.ids) > self._ids_at

    def whole(self, response: Response) -> Tokens | None:
        """Return the tokens for a response; None if there are none, and for those that could not be read."""
        tokens, ids = self.tokens, self.ids
        tokens.ids = None if self._broken or not (ids or self.named) else ids
        if not (tokens.ids or tokens.logprobs or tokens.prompt_ids):
            return None
        fault, logprobs = self.fault, tokens.logprobs
        if tokens.ids is not None and logprobs is not None and len(ids) != len(logprobs):
            fault = fault or f"the server sent {len(ids)} ids and {len(logprobs)} log probabilities"
        tokens.complete = not fault
        if fault:
            response.warnings.append(INCOMPLETE + fault)
        tokens.cached = response.usage.cached_tokens
        tokens.text_count = None if tokens.ids is None else self._text_count(response)
        return tokens

    def _text_count(self, response: Response) -> int | None:
        ids, stop = self.ids, self.stop
        if isinstance(stop, int):
            return len(ids) - (bool(ids) and ids[-1] == stop)
        if stop is None:
            return max(len(ids) - (response.finish_reason in ENDED), 0)
        if not stop and response.finish_reason not in ENDED:
            return len(ids)
        last = response.content[-1] if response.content else Text("")
        texts = [text for text in self._texts or () if type(text) is str and not text.startswith(TOKEN_ID)]
        if not (texts and isinstance(last, (Text, Thinking)) and self.tokens.logprobs is not None):
            return None
        if len(texts) != min(len(ids), STOP_TOKENS) or len(self.tokens.logprobs) != len(ids):
            return None
        count = _shown(texts, last.text, stop)
        return None if count is None else len(ids) - len(texts) + count


def _shown(texts: Sequence[str], text: str, stop: str) -> int | None:
    """Return how many of the last tokens have text in the answer, in whole or in part; None if that is not known.

    texts: those of the tokens. An invalid character has none, and is in the answer as U+FFFD; so their lengths do not
        show where the answer ends.
    text: the answer's.
    stop: the stop string, which the last token completes at most servers; "" if the server has not named it.
    """
    tail, ends = "".join(texts), [*accumulate(map(len, texts))]
    if stop:
        cut = tail.find(stop, max(0, len(tail) - len(texts[-1]) - len(stop) + 1))
        cut = tail.rfind(stop) if cut < 0 else cut
        cut += len(stop) if cut >= 0 and text.endswith(stop) else 0
    else:
        cut = next((end for end in reversed(ends) if end and text.endswith(tail[:end])), -1)
    if cut < 0:
        return None
    count = bisect_left(ends, cut) + 1 if cut else 0
    while text.endswith("\ufffd") and count < len(texts) and not texts[count] and ends[count] == cut:
        count += 1
    return count


def _id_of(entry: JSONObject) -> int | None:
    """Return the id in a log probability's entry: a member of its own (llama.cpp `id`, vLLM's generate endpoint
    `token_id`), or the text of the token (vLLM).
    """
    id, text = entry.get("id", entry.get("token_id")), entry.get("token")
    if type(id) is int:
        return id
    if type(text) is str and text.startswith(TOKEN_ID) and text[len(TOKEN_ID) :].isdecimal():
        return int(text[len(TOKEN_ID) :])
    return None


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


def check_counts(response: Response) -> None:
    """Mark the tokens of a response as incomplete if they are not as many as its usage reports: that is the sum over
    all choices. Log probabilities without ids may be those of the visible output alone.
    """
    found = [choice.tokens for choice in response.choices if choice.tokens is not None]
    known = [values for each in found if (values := each.ids or each.logprobs) is not None]
    visible, has_ids = response.usage.output_tokens, any(each.ids for each in found)
    if not known or visible is None:
        return
    sent, counted = sum(map(len, known)), visible + (response.usage.thinking_tokens or 0)
    if sent == counted or (sent == visible and not has_ids):
        return
    for each in found:
        each.complete = False
    if has_ids or sent != counted - 1 or response.finish_reason not in ENDED:  # OpenAI leaves out that of the end
        what = "ids" if has_ids else "log probabilities"
        response.warnings.append(f"{INCOMPLETE}the server counts {counted} of the answer, and sent {sent} {what}")


def check_tokens(response: Response, asked: frozenset[str]) -> str:
    """Raise `ProviderError` if a response does not have the tokens that its request asked for: if that are ids, all of
    each choice. Returns why tokens are incomplete that need not be complete; "" if all are complete.

    asked: as in `WireRequest`.
    """
    choices = [choice.tokens or Tokens() for choice in response.choices if choice is response or choice.content]
    missing: Sequence[str] = [
        option
        for name, option, values in (
            (IDS, "return_tokens", all(each.ids for each in choices)),
            (LOGPROBS, "logprobs", all(each.logprobs for each in choices)),
        )
        if name in asked and not values
    ]
    if missing and response.usage.output_tokens != 0:
        raise _missing(missing)
    warnings = [warning for choice in response.choices for warning in choice.warnings]
    fault = next((warning for warning in warnings if warning.startswith(INCOMPLETE)), "")
    if IDS in asked and not all(each.complete for each in choices):
        raise malformed(f"the ids that the request asks for (return_tokens) are not those of the answer: {fault}")
    return fault


def _missing(options: Sequence[str]) -> ProviderError:
    what = {"return_tokens": "token ids", "logprobs": "log probabilities"}
    names = " and ".join(what[option] for option in options)
    return malformed(
        f"the server sent no {names} that can be read, which the request asks for ({', '.join(options)}): an older"
        " server may not know the option, and a gateway may leave them out"
    )
