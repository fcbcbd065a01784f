"""The records of a call: its figures while it runs, and its completion, created exactly once. Only values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast

from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.request import Tags
from ...providers.model.response import Response
from ...providers.model.tokens import Usage

Value = TypeVar("Value")


class NoItems(Mapping[str, Value]):
    """An empty mapping that is hashable, so that a dataclass takes it as a default without a call per object."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 0

    def __getitem__(self, name: str) -> Value:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


NO_WAIT: Mapping[str, float] = NoItems()
"""What a call has waited for that did not wait: one object for all."""
NO_TAGS: Tags = NoItems()
"""The tags of a call whose request has none."""


@dataclass(slots=True)
class Timings:
    """The times of a call's steps, in seconds since its start; None for a step that was not reached.

    If there were several attempts, the times are those of the last one.

    queued: the wait for a connection ended: an idle one was taken, or a dial began.
    connected: the connection was ready.
    first_byte: the response's first byte arrived.
    first_token: the first event with content was delivered.
    finished: the call ended.
    waited: reason → seconds that the call waited before it was sent, over all attempts. Reasons without a wait are
        omitted. `quota`: a limit on requests or tokens. `slot`: a limit on concurrent calls. `budget`: a part of a
        budget that other calls have reserved. `target`: a target of the route, while all are left alone. `prefix`: a
        prompt prefix that another call writes to the server's cache. `connection`: a free connection.
    """

    queued: float | None = None
    connected: float | None = None
    first_byte: float | None = None
    first_token: float | None = None
    finished: float | None = None
    waited: Mapping[str, float] = NO_WAIT


@dataclass(slots=True)
class AttemptRecord:
    """One attempt of a call.

    target: where it was sent, as `provider/model`.
    started: seconds from the start of the call to the attempt's.
    ended: seconds from the start of the call to the attempt's end.
    outcome: `ok`, or the category of the error.
    error: why it failed; None if it did not.
    hedged: whether it ran beside another attempt.
    usage: the tokens that the server reported, or an estimate; None if there are none, or none are known.
    estimated: whether `usage` is an estimate, because the attempt ended before the server reported it. Estimates are
        made for attempts that ran beside another one, and in an engine with budgets or prices.
    """

    target: str
    started: float
    ended: float
    outcome: str
    error: ProviderError | None = None
    hedged: bool = False
    usage: Usage | None = None
    estimated: bool = False


@dataclass(slots=True)
class CacheUse:
    """What a call whose prompt has a cacheable prefix had of the server's cache. `ms.Traffic(warm=…)` says which do.

    read: tokens of its prompt that were read from the cache; None if the server has not reported them.
    written: tokens of its prompt that were written to the cache; None if the server has not reported them.
    waited: seconds that the call waited for another call to write the prefix.
    shared: what the prefix was: up to where it goes, and its estimated tokens.
    miss: why the server did not find the prefix, in its own words; empty if it has not said so. It is asked with
        `ms.Warm(diagnose=True)`.
    """

    read: int | None = None
    written: int | None = None
    waited: float = 0.0
    shared: str = ""
    miss: str = ""


NO_PRICE_FUNCTION = "the engine has no price function: open it with traffic=Traffic(price=…)"
"""Why a cost is not known, in an engine without prices."""

_no_headers = cast("Callable[[], dict[str, str]]", dict)
"""Makes an empty dict. CPython 3.11 needs twenty times as many instructions to call `dict[str, str]`."""


@dataclass(slots=True)
class Completion:
    """The final record of a call.

    success: the call received a complete answer.
    http_status: the status of the last response; 0 if there was none.
    response: the answer. After a failure, the part that had arrived: content, but also no more than the answer's id,
        model or token counts; None if nothing of an answer had arrived, whatever the failure.
    error: the error of a call that failed.
    attempts: the number of attempts to send the request.
    timings: the times of the call's steps.
    request_id: the provider's id of the request.
    headers: the last response's headers, with names in lower case; they include rate limits.
    resent: the number of attempts that sent the request again although the server may have read it: the connection was
        lost, or a timeout passed, before a whole answer. The server may execute, and charge for, each of them.
    attempt_records: each attempt of a call in an engine with `traffic`; empty without it. Of more than 100 attempts,
        the first 50 and the last 50.
    cost: US dollars of all attempts; None if `Traffic(price=…)` is not given, or knows no price.
    tags: the tags of the request; empty if it has none.
    cost_unknown: why `cost` is None; empty if it is not.
    cached: whether the answer is one of an `AnswerCache`: nothing was sent, and `attempts` is 0.
    resumed: how often the answer of a durable call was read on after its connection was lost.
    cache: what a prompt with a cache mark had of the server's cache; None without a mark, and without `traffic`.
    transport: what the latest attempt was sent over: `websocket` for a turn of a conversation that keeps one.
    continued: only what is new was sent, because the server knew the conversation up to its latest answer.
    """

    success: bool
    http_status: int = 0
    response: Response | None = None
    error: ProviderError | None = None
    attempts: int = 0
    timings: Timings = field(default_factory=Timings)
    request_id: str | None = None
    headers: dict[str, str] = field(default_factory=_no_headers)
    resent: int = 0
    attempt_records: tuple[AttemptRecord, ...] = ()
    cost: float | None = None
    tags: Tags = NO_TAGS
    cost_unknown: str = NO_PRICE_FUNCTION
    cached: bool = False
    resumed: int = 0
    cache: CacheUse | None = None
    transport: Literal["http", "websocket"] = "http"
    continued: bool = False

    @classmethod
    def from_openai(cls, received: object) -> Completion:
        """The completion of an answer that a program has in the form of OpenAI's Chat Completions.

        received: a whole answer, or the chunks of a stream in their order. Each is JSON as bytes or text, a dict, or
            the SDK's object. Also a body of server-sent events, as bytes or text, whole or in parts.

        The answer is read as that of a call: what is cut or is an error is the completion's `error`, and `response` has
        what came. Raises `InvalidRequestError` for a value that is none of these.
        """
        return _completion_of(cls, "openai-chat", received)

    @classmethod
    def from_openai_responses(cls, received: object) -> Completion:
        """The completion of an answer in the form of OpenAI's Responses. As `from_openai`."""
        return _completion_of(cls, "openai-responses", received)

    @classmethod
    def from_anthropic(cls, received: object) -> Completion:
        """The completion of an answer in the form of Anthropic's Messages. As `from_openai`."""
        return _completion_of(cls, "anthropic", received)

    @classmethod
    def from_gemini(cls, received: object) -> Completion:
        """The completion of an answer in the form of Gemini's `generateContent`. As `from_openai`."""
        return _completion_of(cls, "gemini", received)

    @classmethod
    def from_gemini_interactions(cls, received: object) -> Completion:
        """The completion of an answer in the form of Gemini's Interactions. As `from_openai`."""
        return _completion_of(cls, "gemini-interactions", received)

    @property
    def error_category(self) -> ErrorCategory | None:
        """The error's category; None on success."""
        return self.error.category if self.error is not None else None

    @property
    def error_message(self) -> str | None:
        """The error's message; None on success."""
        return self.error.message if self.error is not None else None

    @property
    def retry_after_ms(self) -> int:
        """The server's retry hint in milliseconds; -1 if there is none."""
        return self.error.retry_after_ms if self.error is not None else -1

    def response_or_raise(self) -> Response:
        """Return the complete answer. Raises the call's `ProviderError` if it failed."""
        error = self.error
        if error is not None:
            try:
                raise error.with_traceback(None)  # without the frames of an earlier raise
            finally:
                del error, self  # the traceback refers to this frame: no cycle
        assert self.response is not None, "a call that did not fail has a response"
        return self.response


def _completion_of(kind: type[Completion], dialect: str, received: object) -> Completion:
    from .received import completion_of  # few programs need it

    return completion_of(kind, dialect, received)


@dataclass(slots=True, frozen=True)
class CallFigures:
    """The figures of one running call at one moment.

    number: the call's number in the engine, counted from 1.
    provider: the provider's name.
    model: the name that the provider uses for the model.
    stream: True if the request asks for a streamed response.
    state: the value of the call's `CallState`.
    age: seconds since the call was started.
    quiet: seconds since a byte was last sent or received; the age if there was none.
    attempts: the number of attempts so far.
    request_id: the provider's id of the request; None until the response's head has arrived.
    """

    number: int
    provider: str
    model: str
    stream: bool
    state: str
    age: float
    quiet: float
    attempts: int
    request_id: str | None
