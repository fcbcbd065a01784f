"""A request, independent of its dialect: the input of `write_scenario`.

Each dialect's module reads its own wire format into a `Prompt`, or raises `APIError` where the real service would
respond with an error.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from .json_text import JSON, JSONObject


@dataclass(eq=False)
class APIError(Exception):
    """An error response of the service.

    message: empty for the usual message of this status.
    param, code: the provider's own names, where it has them.
    retry_after: seconds; None sends no hint.
    type: the error's type, where it is not the usual one of this status.
    headers: headers of this response alone.
    details: Google's `details` of the error.
    """

    status: int
    message: str
    _: KW_ONLY
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None
    type: str | None = None
    details: list[JSON] | None = None
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]], init=False)

    def __str__(self) -> str:
        return self.message


@dataclass(slots=True, frozen=True)
class ToolDeclaration:
    """A tool that the request declares. `schema` is the JSON Schema of its parameters."""

    name: str
    schema: JSONObject


@dataclass(slots=True, frozen=True)
class ToolResult:
    """The result of a tool at the end of the conversation."""

    name: str
    text: str


@dataclass(slots=True, frozen=True, kw_only=True)
class Prompt:
    """One request.

    text: the last user message.
    stream: whether the answer is asked for as a stream.
    tools: the tools that the request declares.
    tool_choice: `auto`, `none`, `required`, or the name of a tool.
    parallel: whether one answer may hold several calls.
    tool_results: the results at the end of the conversation; empty if it ends otherwise.
    rounds: rounds of tool calls since the last user message.
    schema: the JSON Schema of a structured answer.
    max_tokens: the output limit.
    characters: length of all text in the prompt.
    stored: the answer is kept, by a service that keeps answers.
    background: the answer is written whether or not the client reads it.
    previous: the id of the kept answer that the request continues.
    prewarm: the request writes to the prompt cache only; `max_tokens` is 0 then.
    array: the stream is one JSON array instead of server-sent events (Gemini).
    body: the request's JSON object, for services that repeat parts of it.
    """

    model: str
    text: str = ""
    stream: bool = False
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: str = "auto"
    parallel: bool = True
    tool_results: tuple[ToolResult, ...] = ()
    rounds: int = 0
    schema: JSONObject | None = None
    max_tokens: int | None = None
    characters: int = 0
    stored: bool = True
    background: bool = False
    previous: str = ""
    prewarm: bool = False
    array: bool = False
    body: JSONObject = field(default_factory=dict[str, JSON])
