"""Common parts of the interoperability suites: a provider per dialect, and a function that makes one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import manystream as ms
from manystream.providers.catalog.provider import Provider
from tests.support.event_order import OrderChecker

DIALECTS: dict[str, Callable[..., Provider]] = {
    "openai-chat": ms.OpenAIChat, "openai-responses": ms.OpenAIResponses, "anthropic": ms.Anthropic,
    "gemini": ms.Gemini, "gemini-interactions": ms.GeminiInteractions,
}  # fmt: skip
MODELS: dict[str, str] = {
    "openai-chat": "gpt-4o", "openai-responses": "gpt-4o", "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash", "gemini-interactions": "gemini-2.5-flash",
}  # fmt: skip

WEATHER = ms.Tool(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@dataclass(slots=True)
class Answer:
    """The completion and the events of one call."""

    completion: ms.Completion
    events: list[ms.Event] = field(default_factory=list[ms.Event])

    @property
    def response(self) -> ms.Response:
        """The response, complete or partial."""
        assert self.completion.response is not None
        return self.completion.response

    @property
    def error(self) -> ms.ProviderError:
        """The error of a call that failed."""
        assert self.completion.error is not None, self.completion
        return self.completion.error

    @property
    def text(self) -> str:
        """The text that the events delivered."""
        return "".join(event.text for event in self.events if isinstance(event, ms.TextDelta))


async def ask(
    provider: Provider,
    request: ms.Request,
    *,
    stream: bool,
    retry: ms.Retry | None = None,
    timeouts: ms.Timeouts | None = None,
) -> Answer:
    """Make one call; check the order of the events, and that there is exactly one completion."""
    events: list[ms.Event] = []
    completions: list[ms.Completion] = []
    order = OrderChecker()

    def on_event(event: ms.Event) -> None:
        order.check(event)
        events.append(event)

    async with ms.open_engine(
        [provider], retry=retry or ms.Retry(max_attempts=1), timeouts=timeouts or ms.Timeouts(total=30), proxy=""
    ) as engine:
        if stream:
            call = engine.start_stream(request, on_event, completions.append)
        else:
            call = engine.start_request(request, completions.append)
        completion = await call.wait()
    assert completions == [completion]
    if stream:
        assert isinstance(events[-1], ms.Done if completion.success else ms.ErrorEvent)
    return Answer(completion, events)
