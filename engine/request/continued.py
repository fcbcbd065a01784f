"""An answer that goes on after its server stopped it: with the prompt and the ids so far as the new prompt."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace

from ...providers.json.json_values import JSON
from ...providers.model.events import FinishReason
from ...providers.model.messages import Text
from ...providers.model.provider_error import ABORTED_CODE, ProviderError
from ...providers.model.request import Request
from ...providers.model.response import Response
from ...providers.model.tokens import Tokens, Usage, WeightSpan
from .answers import Answer, Progress, Verdict
from .prepared import Prepared


class ContinuedAnswer(Answer):
    """The parts of one answer that have arrived, and what asks for the rest. The attempts of its call share it.

    so_far: the answer as the attempts before the latest one have left it, joined; None before the first part.
    """

    __slots__ = ("_in_vain", "_prepare", "_request", "_taken", "so_far")

    def __init__(self, request: Request, prepare: Callable[[Request], Prepared]) -> None:
        """Create it before its first attempt. prepare: prepares a request for the same provider."""
        self._request = request
        self._prepare = prepare
        self._taken: object = None  # the latest attempt whose part was taken
        self.so_far: Response | None = None
        self._in_vain = 0  # the attempts in a row that brought no id

    @property
    def count(self) -> int:
        """The number of ids that have arrived."""
        return 0 if self.so_far is None or self.so_far.tokens is None else len(self.so_far.tokens.ids or ())

    def take(
        self, attempt: object, part: Response | None, error: ProviderError, now: float, lasted: float, *,
        at_once: bool, delivered: bool,
    ) -> Progress | None:  # fmt: skip
        before = self.count
        self.so_far, self._taken = self.joined(attempt, part), attempt
        self._in_vain = 0 if self.count > before else self._in_vain + 1
        if self._is_whole and self.so_far is not None:
            self.so_far.finish_reason = FinishReason.LENGTH
            return Progress(Verdict.WHOLE)
        # The prompt of the rest must have all ids of the parts before it.
        tokens = None if self.so_far is None else self.so_far.tokens
        lacks_ids = tokens is not None and not tokens.complete
        if not lacks_ids and (error.provider_code == ABORTED_CODE or (error.retryable and self.count > 0)):
            return Progress(Verdict.REST, at_once=not self._in_vain, in_vain=self._in_vain)
        return None

    def uncounted(self) -> None:
        """The latest attempt was no try: a limit refused it, or its server is away."""
        self._in_vain = max(0, self._in_vain - 1)

    @property
    def _is_whole(self) -> bool:
        """Whether all ids have arrived that the request allows: then the server had no more to do than to say so."""
        limit = self._request.max_output_tokens
        return limit is not None and self.count >= limit

    def next_request(self, prepared: Prepared) -> Prepared:
        request, limit = self._request, self._request.max_output_tokens
        prompt, tokens = request.prompt_token_ids or (), None if self.so_far is None else self.so_far.tokens
        ids = () if tokens is None else tokens.ids or ()
        rest = replace(
            request,
            prompt_token_ids=[*prompt, *ids],
            max_output_tokens=None if limit is None else limit - len(ids),
        )
        following = self._prepare(rest)
        following.continued = self
        return following

    def joined(self, attempt: object, response: Response | None) -> Response | None:
        """Return the answer with the part that an attempt has brought, unless that was taken."""
        before = self.so_far
        if before is None or response is None or attempt is self._taken:
            return before if response is None or attempt is self._taken else response
        text = before.text + response.text
        return replace(
            response,
            content=[Text(text)] if text else [],
            model=before.model or response.model,
            id=before.id or response.id,
            usage=_sum(before.usage, self.count, response.usage),
            warnings=list(dict.fromkeys([*before.warnings, *response.warnings])),
            provider_data=_merged(before.provider_data, response.provider_data),
            tokens=_appended(before.tokens, response.tokens),
        )


def _sum(before: Usage, count: int, after: Usage) -> Usage:
    """Return the counts of both parts: the ids in the prompt of the second are output of the first.

    count: the number of ids of the first, whose server may not have counted them.
    """
    output = None if after.output_tokens is None else count + after.output_tokens
    prompt = before.input_tokens
    if prompt is None and after.input_tokens is not None:
        prompt = after.input_tokens - count
    total = None if output is None or prompt is None else output + prompt
    cached = before.cached_tokens
    return replace(after, input_tokens=prompt, output_tokens=output, cached_tokens=cached, total_tokens=total)


def _merged(before: dict[str, JSON], after: dict[str, JSON]) -> dict[str, JSON]:
    merged = {**before, **after}
    first, second = before.get("logprobs"), after.get("logprobs")
    if type(first) is dict and type(second) is dict:
        lists: dict[str, JSON] = {}
        for name in {**first, **second}:
            one, other = first.get(name), second.get(name)
            lists[name] = [*(one if type(one) is list else ()), *(other if type(other) is list else ())]
        merged["logprobs"] = lists
    return merged


def _appended(before: Tokens | None, after: Tokens | None) -> Tokens | None:
    if before is None or after is None:
        return before or after
    ids = [*(before.ids or ())]
    count = len(ids)
    spans = list(before.weight_versions)
    for span in after.weight_versions:
        moved = WeightSpan(span.version, span.start + count, span.end + count)
        if spans and spans[-1].version == moved.version and spans[-1].end == moved.start:
            spans[-1] = WeightSpan(moved.version, spans[-1].start, moved.end)
        else:
            spans.append(moved)
    logprobs = None
    if before.logprobs is not None or after.logprobs is not None:
        logprobs = array("d", [*(before.logprobs or ()), *(after.logprobs or ())])
    return Tokens(
        array("q", [*ids, *(after.ids or ())]),
        logprobs,
        before.prompt_ids,
        tuple(spans),
        before.cached,
        None if after.text_count is None else count + after.text_count,
        before.complete and after.complete,
    )
