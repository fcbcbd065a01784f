"""A request as the scenario sees it: what all four dialects ask for, in one value.

Each dialect's module reads its own wire form into a `Prompt`, or refuses it as the real service would.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .json_text import JSON, JSONObject


class APIError(Exception):
    """A request that the service would not take. `param` and `code` are the provider's own words, where it has them.

    status: the HTTP status. retry_after: seconds, where the answer tells when to come again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after


@dataclass(slots=True, frozen=True)
class ToolDeclaration:
    """A tool that the request offers. `schema` is its parameters' JSON Schema."""

    name: str
    schema: JSONObject


@dataclass(slots=True, frozen=True)
class ToolResult:
    """A tool's result at the end of the conversation."""

    name: str
    text: str


@dataclass(slots=True, frozen=True, kw_only=True)
class Prompt:
    """One request.

    text: the last user message. tool_choice: `auto`, `none`, `required`, or a tool's name. parallel: whether
    several calls in one answer are allowed. answers: the tool results that the conversation ends with, empty where
    it ends otherwise. rounds: tool rounds since the last user message. schema: the JSON Schema that the answer's
    text must fit. max_tokens: the output limit. characters: length of all text in the prompt. body: the request
    as it came, for services that echo parts of it.
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
    array: bool = False
    body: JSONObject = field(default_factory=dict[str, JSON])
