"""A conversation as ids, for training: each turn's prompt is the one before, its answer, and what the program adds."""

from __future__ import annotations

import math
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Unpack

from ..errors import InvalidRequestError
from .messages import Message, Role, ToolCall, ToolResult
from .request import Messages, Request, RequestOptions
from .response import Response
from .rules import check_iterable, instance
from .tokens import Logprobs, TokenIds, ids_of

RESPONSE = instance(Response)


class Turns:
    """The ids of one conversation over its turns. They only grow: no text is tokenised again.

    ids: all ids so far: the next prompt.
    logprobs: the log probability of each id; NaN for those that no answer has.
    sampled: 1 for each id that the model sampled, 0 for one of a prompt: the mask of the loss.
    """

    __slots__ = ("ids", "logprobs", "sampled")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        """Begin with the ids of a first prompt, such as the server's `/tokenize` returns for messages."""
        self.ids: TokenIds = array("q")
        self.logprobs: Logprobs = array("d")
        self.sampled: array[int] = array("b")
        self.append(ids)

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, ids: Iterable[int]) -> None:
        """Add ids of the program's own: a tool's result, or the next message with the template's ids around it."""
        new = _array_of(ids, "ids")
        self.ids.extend(new)
        self.logprobs.extend([math.nan] * len(new))
        self.sampled.extend([0] * len(new))

    async def render(
        self,
        ask: Callable[[Request], Awaitable[Response]],
        model: str,
        messages: Messages,
        **options: Unpack[RequestOptions],
    ) -> None:
        """Add what the server's chat template writes for new messages, up to where the next answer begins.

        ask: `engine.request` of an engine with a `manystream.tokens.chat_template`, which `model` names.
        messages: those of the whole first prompt; later, those since the last answer, such as a tool's result.
        options: the request's, such as `tools`. A template may write them at the beginning only.

        The server writes the new messages behind a short answer, and then behind another one: what both prompts end
        with is new. So no earlier turn is tokenised again. It begins where the model itself has ended its answer, or
        has not. Raises `ProviderError` as `ask` does, and `InvalidRequestError` if that place cannot be found.
        """
        request = Request(model, messages, **options)
        if not self.ids:
            self.append(await _rendered(ask, request))
            return
        blocks = [block for message in request.messages for block in message.content]
        results = [block.tool_call_id for block in blocks if isinstance(block, ToolResult)]
        ends: list[TokenIds] = []
        for number in "01":
            calls = [ToolCall(id, "f", f'{{"a":{number}}}') for id in results]
            lead = [Message.user("-"), Message(Role.ASSISTANT, [*calls] if calls else number)]
            ends.append(await _rendered(ask, replace(request, messages=[*lead, *request.messages])))
        pairs = enumerate(zip(*map(reversed, ends), strict=False))
        new = ends[0][-next((count for count, (one, other) in pairs if one != other), 0) :]
        last = self.ids[-1:] if self.sampled[-1] else array("q")
        if len(new) == len(ends[0]) or (results and (not last or last[0] not in new)):
            raise InvalidRequestError("messages", "the server's template does not write them behind such an answer")
        # Behind calls, the template writes what it ends a call and an answer with; behind a text, the latter.
        self.append(new[new.index(last[0]) + 1 :] if results else new[new[:1] == last :])

    def extend_to(self, prompt_ids: Sequence[int]) -> None:
        """Add what a longer prompt has behind the ids so far, such as one that the server's `/tokenize` or `/render`
        returns for the whole conversation.

        Raises `InvalidRequestError` for a prompt that does not begin with them: a template or tokeniser has written an
        earlier turn in another way. Training on such a prompt trains on ids that the model has not sampled.
        """
        prompt = _array_of(prompt_ids, "prompt_ids")
        count = len(self.ids)
        if prompt[:count] != self.ids:
            places = zip(self.ids, prompt, strict=False)
            at = next((place for place, (own, other) in enumerate(places) if own != other), len(prompt))
            raise InvalidRequestError(
                "prompt_ids",
                f"do not begin with the {count} ids of the turns so far: they share {at}. Append the ids of the new"
                " messages alone",
            )
        self.append(prompt[count:])

    def request(self, model: str, **options: Unpack[RequestOptions]) -> Request:
        """Return the request of the next turn: its prompt is the ids so far."""
        options["prompt_token_ids"] = array("q", self.ids)
        return Request(model, **options)

    def add(self, response: Response) -> None:
        """Add the ids of an answer to the latest `request`.

        Raises `InvalidRequestError` for an answer without ids, for one whose tokens are not `complete`, and for one to
        another prompt.
        """
        RESPONSE.check(response, "response")
        tokens = response.tokens
        if tokens is None or not tokens.ids:
            raise InvalidRequestError("response", "has no ids: ask for them with return_tokens=True")
        if not tokens.complete:
            raise InvalidRequestError("response", "has ids that are not all of the answer's (tokens.complete is False)")
        if tokens.prompt_ids is not None and tokens.prompt_ids != self.ids:
            self.extend_to(tokens.prompt_ids)
        count = len(tokens.ids)
        self.ids.extend(tokens.ids)
        logprobs = tokens.logprobs
        self.logprobs.extend(logprobs if logprobs is not None and len(logprobs) == count else [math.nan] * count)
        self.sampled.extend([1] * count)


async def _rendered(ask: Callable[[Request], Awaitable[Response]], request: Request) -> TokenIds:
    tokens = (await ask(request)).tokens
    if tokens is None or tokens.prompt_ids is None:
        raise InvalidRequestError("model", f"{request.model!r} is no chat_template: its answer has no prompt_ids")
    return tokens.prompt_ids


def _array_of(ids: Iterable[int], where: str) -> TokenIds:
    """Return ids as an array. Raises `InvalidRequestError` for what is none."""
    check_iterable(ids, where, "ids of tokens")
    found = ids_of(list(ids))
    if found is None:
        raise InvalidRequestError(where, "must be ids of tokens: whole numbers from 0 on, of at most 63 bits")
    return found
