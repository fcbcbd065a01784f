"""Make the same calls with the official SDKs, as the reference for each test.

There is one class per dialect. Each sends a conversation in its SDK's own form and returns a `Heard`: the SDK's result,
or the exception that it raised.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types as google

from .asking import WEATHER

SECONDS = 30
WITHOUT_AN_END = "the stream ended without its last event"


@dataclass(slots=True)
class Heard:
    """The result of an SDK's call.

    text: the text; of a streamed answer, the joined deltas.
    calls: name and parsed arguments of each tool call.
    turn: the assistant's turn in the SDK's own form, to be sent back.
    ids: the ids of the tool calls.
    error: the exception that ended the call.
    status: the HTTP status of the exception.
    """

    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    input_tokens: int | None = None
    output_tokens: int | None = None
    turn: list[Any] = field(default_factory=list[Any])
    ids: list[str] = field(default_factory=list[str])
    error: Exception | None = None
    status: int | None = None

    def add(self, id: str, name: str, arguments: Any) -> None:
        """Add a tool call."""
        self.ids.append(id)
        self.calls.append((name, arguments))


@contextmanager
def _catching(heard: Heard) -> Iterator[None]:
    """Keep the exception that the SDK raises, and ignore its warnings, for instance about deprecated models."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        heard.error = error
        status = getattr(error, "status_code", None) or getattr(error, "code", None)
        heard.status = status if isinstance(status, int) else None


def _has_text(chunk: Any) -> bool:
    return bool(chunk.choices and chunk.choices[0].delta.content)


def joined(text: str) -> str:
    """Join adjacent surrogate halves to one character: the SDKs keep the halves of each delta."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _OpenAI:
    """The common part of both dialects of the openai SDK."""

    def __init__(self, base: str, model: str, key: str = "key") -> None:
        self._model = model
        self._client = openai.OpenAI(api_key=key, base_url=base, max_retries=0, timeout=SECONDS)

    def user(self, words: str) -> list[Any]:
        return [{"role": "user", "content": words}]


class OfficialChat(_OpenAI):
    """The openai SDK with Chat Completions."""

    def result(self, heard: Heard, said: str) -> list[Any]:
        return [*heard.turn, *({"role": "tool", "tool_call_id": id, "content": said} for id in heard.ids)]

    def ask(self, messages: Sequence[Any], *, stream: bool, tools: bool = False) -> Heard:
        heard = Heard()
        body: dict[str, Any] = {"model": self._model, "messages": list(messages)}
        if tools:
            function = {"name": WEATHER.name, "parameters": WEATHER.parameters, "strict": True}
            body["tools"] = [{"type": "function", "function": function}]
        with self._client, _catching(heard):
            if stream:
                body["stream_options"] = {"include_usage": True}
                self._collect(heard, self._client.chat.completions.create(**body, stream=True))
            else:
                answer = self._client.chat.completions.create(**body)
                message = answer.choices[0].message
                calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]
                self._read(heard, message, answer.usage, calls)
        return heard

    def _collect(self, heard: Heard, chunks: Iterable[Any]) -> None:
        calls: dict[int, tuple[str, str, str]] = {}
        finished, usage = False, None
        for chunk in chunks:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                heard.text += choice.delta.content or ""
                heard.thinking += getattr(choice.delta, "reasoning_content", None) or ""
                finished = finished or choice.finish_reason is not None
                for call in choice.delta.tool_calls or []:
                    id, name, arguments = calls.get(call.index, ("", "", ""))
                    calls[call.index] = (
                        call.id or id, call.function.name or name, arguments + (call.function.arguments or ""),
                    )  # fmt: skip
        if not finished:
            raise EOFError(WITHOUT_AN_END)
        self._read(heard, None, usage, list(calls.values()))

    def _read(self, heard: Heard, message: Any, usage: Any, calls: list[tuple[str, str, str]]) -> None:
        if message is not None:
            heard.text = message.content or ""
            heard.thinking = getattr(message, "reasoning_content", None) or ""
        sent: list[Any] = []
        for id, name, arguments in calls:
            heard.add(id, name, json.loads(joined(arguments)))
            sent.append({"id": id, "type": "function", "function": {"name": name, "arguments": joined(arguments)}})
        heard.turn = [{"role": "assistant", "content": joined(heard.text), "tool_calls": sent}]
        if usage is not None:
            heard.input_tokens, heard.output_tokens = usage.prompt_tokens, usage.completion_tokens

    def beginning(self, words: str) -> str:
        """Return the first text of a streamed answer, and close the stream."""
        with self._client:
            asked: dict[str, Any] = {"model": self._model, "messages": self.user(words)}
            with self._client.chat.completions.create(**asked, stream=True) as chunks:
                return next(chunk.choices[0].delta.content or "" for chunk in chunks if _has_text(chunk))


class OfficialResponses(_OpenAI):
    """The openai SDK with Responses."""

    def result(self, heard: Heard, said: str) -> list[Any]:
        outputs = [{"type": "function_call_output", "call_id": id, "output": said} for id in heard.ids]
        return [*heard.turn, *outputs]

    def ask(self, messages: Sequence[Any], *, stream: bool, tools: bool = False) -> Heard:
        heard = Heard()
        body: dict[str, Any] = {"model": self._model, "input": list(messages)}
        if tools:
            body["tools"] = [
                {"type": "function", "name": WEATHER.name, "parameters": WEATHER.parameters, "strict": True}
            ]
        with self._client, _catching(heard):
            if stream:
                answer: Any = None
                for event in self._client.responses.create(**body, stream=True):
                    if event.type == "response.output_text.delta":
                        heard.text += event.delta
                    elif event.type == "response.failed":
                        raise RuntimeError(event.response.error.message)
                    elif event.type in ("response.completed", "response.incomplete"):
                        answer = event.response
                if answer is None:
                    raise EOFError(WITHOUT_AN_END)
            else:
                answer = self._client.responses.create(**body)
                heard.text = answer.output_text
            self._read(heard, answer)
        return heard

    def _read(self, heard: Heard, answer: Any) -> None:
        for item in answer.output:
            if item.type == "function_call":
                arguments = joined(item.arguments)
                heard.add(item.call_id, item.name, json.loads(arguments))
                call = {"type": "function_call", "call_id": item.call_id, "name": item.name, "arguments": arguments}
                heard.turn.append(call)
            elif item.type == "reasoning":
                parts = [*(item.summary or []), *(item.content or [])]
                heard.thinking += "".join(part.text for part in parts)
        if answer.usage is not None:
            heard.input_tokens, heard.output_tokens = answer.usage.input_tokens, answer.usage.output_tokens

    def beginning(self, words: str) -> str:
        """Return the first text of a streamed answer, and close the stream."""
        with self._client:
            asked: dict[str, Any] = {"model": self._model, "input": self.user(words)}
            with self._client.responses.create(**asked, stream=True) as events:
                return next(event.delta for event in events if event.type == "response.output_text.delta")


class OfficialAnthropic:
    """The anthropic SDK with Messages."""

    def __init__(self, base: str, model: str, key: str = "key") -> None:
        self._model = model
        self._client = anthropic.Anthropic(api_key=key, base_url=base, max_retries=0, timeout=SECONDS)

    def user(self, words: str) -> list[Any]:
        return [{"role": "user", "content": words}]

    def result(self, heard: Heard, said: str) -> list[Any]:
        results = [{"type": "tool_result", "tool_use_id": id, "content": said} for id in heard.ids]
        return [*heard.turn, {"role": "user", "content": results}]

    def ask(self, messages: Sequence[Any], *, stream: bool, tools: bool = False) -> Heard:
        heard = Heard()
        body: dict[str, Any] = {"model": self._model, "messages": list(messages), "max_tokens": 1000}
        if tools:
            body["tools"] = [
                {"name": WEATHER.name, "description": WEATHER.description, "input_schema": WEATHER.parameters}
            ]
        with self._client, _catching(heard):
            if stream:
                self._collect(heard, self._client.messages.create(**body, stream=True))
            else:
                answer = self._client.messages.create(**body)
                heard.text = "".join(block.text for block in answer.content if block.type == "text")
                heard.thinking = "".join(block.thinking for block in answer.content if block.type == "thinking")
                for block in answer.content:
                    if block.type == "tool_use":
                        heard.add(block.id, block.name, block.input)
                heard.input_tokens, heard.output_tokens = answer.usage.input_tokens, answer.usage.output_tokens
            content = [
                {"type": "tool_use", "id": id, "name": name, "input": arguments}
                for id, (name, arguments) in zip(heard.ids, heard.calls, strict=True)
            ]
            heard.turn = [{"role": "assistant", "content": content}]
        return heard

    def _collect(self, heard: Heard, events: Iterable[Any]) -> None:
        calls: dict[int, tuple[str, str, str]] = {}
        finished = False
        for event in events:
            if event.type == "content_block_start" and event.content_block.type == "tool_use":
                calls[event.index] = (event.content_block.id, event.content_block.name, "")
            elif event.type == "content_block_delta":
                delta = event.delta
                heard.text += delta.text if delta.type == "text_delta" else ""
                heard.thinking += delta.thinking if delta.type == "thinking_delta" else ""
                if delta.type == "input_json_delta":
                    id, name, arguments = calls[event.index]
                    calls[event.index] = (id, name, arguments + delta.partial_json)
            elif event.type in ("message_start", "message_delta"):
                usage = event.message.usage if event.type == "message_start" else event.usage
                # A member that the last event omits keeps the first event's value.
                heard.input_tokens = heard.input_tokens if usage.input_tokens is None else usage.input_tokens
                heard.output_tokens = usage.output_tokens
            finished = finished or event.type == "message_stop"
        if not finished:
            raise EOFError(WITHOUT_AN_END)
        for id, name, arguments in calls.values():
            heard.add(id, name, json.loads(joined(arguments) or "{}"))

    def beginning(self, words: str) -> str:
        """Return the first text of a streamed answer, and close the stream."""
        asked: dict[str, Any] = {"model": self._model, "messages": self.user(words), "max_tokens": 1000}
        with self._client, _catching(Heard()), self._client.messages.create(**asked, stream=True) as events:
            for event in events:
                if event.type == "content_block_delta" and event.delta.type == "text_delta":
                    return event.delta.text
        return ""


class OfficialGemini:
    """The google-genai SDK with generateContent."""

    def __init__(self, base: str, model: str, key: str = "key") -> None:
        self._model = model
        options = google.HttpOptions(base_url=base, api_version="v1beta", timeout=SECONDS * 1000)
        self._client = genai.Client(api_key=key, vertexai=False, http_options=options)

    def user(self, words: str) -> list[Any]:
        return [google.Content(role="user", parts=[google.Part(text=words)])]

    def result(self, heard: Heard, said: str) -> list[Any]:
        answers = [
            google.Part(function_response=google.FunctionResponse(id=id, name=name, response={"result": said}))
            for id, (name, _) in zip(heard.ids, heard.calls, strict=True)
        ]
        return [*heard.turn, google.Content(role="user", parts=answers)]

    def ask(self, messages: Sequence[Any], *, stream: bool, tools: bool = False) -> Heard:
        heard = Heard()
        declared = google.FunctionDeclaration(name=WEATHER.name, parameters_json_schema=WEATHER.parameters)
        config = google.GenerateContentConfig(tools=[google.Tool(function_declarations=[declared])] if tools else None)
        asked: dict[str, Any] = {"model": self._model, "contents": list(messages), "config": config}
        with self._client, _catching(heard):
            if not stream:
                self._read(heard, self._client.models.generate_content(**asked))
                return heard
            finished = False
            for chunk in self._client.models.generate_content_stream(**asked):
                self._read(heard, chunk)
                finished = finished or any(candidate.finish_reason for candidate in chunk.candidates or [])
            if not finished:
                raise EOFError(WITHOUT_AN_END)
        return heard

    def _read(self, heard: Heard, answer: google.GenerateContentResponse) -> None:
        content = answer.candidates[0].content if answer.candidates else None
        for part in (content.parts if content else None) or []:
            if part.function_call is not None:
                heard.add(part.function_call.id or "", part.function_call.name or "", part.function_call.args)
                heard.turn.append(google.Content(role="model", parts=[part]))
            elif part.thought:
                heard.thinking += part.text or ""
            else:
                heard.text += part.text or ""
        usage = answer.usage_metadata
        if usage is not None:
            heard.input_tokens, heard.output_tokens = usage.prompt_token_count, usage.candidates_token_count

    def beginning(self, words: str) -> str:
        """Return the first text of a streamed answer, and close the stream."""
        with self._client:
            contents: Any = self.user(words)
            chunks = self._client.models.generate_content_stream(model=self._model, contents=contents)
            with closing(chunks):
                return next(chunk.text for chunk in chunks if chunk.text)


Official = OfficialChat | OfficialResponses | OfficialAnthropic | OfficialGemini

OFFICIAL: dict[str, Callable[[str, str], Official]] = {
    "openai-chat": OfficialChat, "openai-responses": OfficialResponses, "anthropic": OfficialAnthropic,
    "gemini": OfficialGemini,
}  # fmt: skip
