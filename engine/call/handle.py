"""The public handle of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...providers.errors import InvalidRequestError
from ...providers.model.rules import text as text_rule
from ..request.errors import refuse_await
from .completion import NO_TAGS, Completion
from .timeouts import CallState

if TYPE_CHECKING:
    from ...providers.model.request import Request, Tags
    from .call import RunningCall

TEXT = text_rule("text that is not empty", empty=False)


class Call:
    """A running or ended call. `start_request` and `start_stream` return it.

    request: the request that the call was started with.
    """

    __slots__ = ("_running", "request")

    if not TYPE_CHECKING:
        __await__ = refuse_await("a call is not awaited; wait for its completion with: await call.wait()")

    def __init__(self, running: RunningCall, request: Request) -> None:
        self._running = running
        self.request: Request = request

    def __repr__(self) -> str:
        return repr(self._running)

    @property
    def number(self) -> int:
        """The position of the call among the engine's calls, counted from 1. Log records of the engine name it."""
        return self._running.number

    @property
    def tags(self) -> Tags:
        """The tags of the request; empty if it has none."""
        return NO_TAGS if self.request.tags is None else self.request.tags

    @property
    def state(self) -> CallState:
        """The state of the call."""
        return self._running.state

    @property
    def completion(self) -> Completion | None:
        """The call's final record; None until the call has ended."""
        return self._running.completion

    @property
    def target(self) -> str:
        """The call's provider and model: `provider/model`. On a route it is the target, and empty until that is
        chosen."""
        running = self._running
        if running.attempt is not None and running.attempt.permit is not None:
            return running.attempt.permit.target
        if running.admission is not None:
            return running.admission.target
        return f"{running.prepared.provider.name}/{running.prepared.model}"

    @property
    def waiting_for(self) -> str:
        """What the call waits for, in words, such as `requests of openai/gpt-5, 12 ahead, about 3 s`.

        The text is empty if the call does not wait for traffic control, and in an engine without `traffic`.
        """
        admission = self._running.admission
        return "" if admission is None else admission.waiting_for

    @property
    def resume_token(self) -> str | None:
        """A text with which any engine that has the provider reads the answer of a durable call (`Engine.attach`).

        It has no key. None for other calls, and until the server has named the answer.
        """
        prepared = self._running.prepared
        return None if prepared.durable is None else prepared.durable.token(prepared)

    def cancel(self) -> None:
        """End the call. Only for the engine's thread.

        The socket is closed at once. The completion (category CANCELLED, with the partial response) follows at the
        loop's next tick. Idempotent. This does nothing after the call has ended.

        The answer of a durable call is cancelled at the server, too. The completion follows when the server has
        confirmed that, after 2 seconds at the latest; its error says if it has not.
        """
        self._running.cancel()

    def steer(self, text: str) -> None:
        """Send a user's text into the answer that is under way, over the WebSocket of its conversation.

        The server ends its answer at the next boundary and goes on with the text in mind. The events and the response
        of this call have both parts. If the answer ends in tool calls, or the server does not take the text, the answer
        is as without it. Add the text to the conversation as well: the next turn sends the whole conversation.

        Raises `InvalidRequestError` for any other call, before the answer has begun and after it has ended.
        """
        TEXT.check(text, "text")
        attempt = self._running.attempt
        if attempt is None or not attempt.steer(text):
            raise InvalidRequestError(
                "steer", "takes an answer that is under way over the WebSocket of a conversation (websocket=True)"
            )

    async def wait(self) -> Completion:
        """Wait until the call has ended, and return its completion. `on_completion` has been called by then.

        Cancelling the wait leaves the call running; `async with call:` cancels both.
        """
        return await self._running.wait()

    async def __aenter__(self) -> Self:
        """`async with call:` ties the call to the block: leaving the block, also by cancellation, cancels the call."""
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def pause(self) -> None:
        """Stop reading until `resume`.

        TCP's flow control stops the server, and the idle timeout is suspended. If the call has no connection yet, the
        pause applies once it has one.
        """
        self._running.is_paused = True
        for attempt in (self._running.attempt, self._running.rival):
            if attempt is not None:
                attempt.pause()

    def resume(self) -> None:
        """Continue reading after `pause`."""
        running = self._running
        running.is_paused = False
        for attempt in (running.attempt, running.rival):
            if attempt is not None:
                # It may read and deliver what TLS has buffered.
                running.runtime.home.context.copy().run(attempt.resume)
