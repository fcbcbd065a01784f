"""The whole text of every error and warning about a request. An error's text begins with its field."""

from __future__ import annotations

import pytest

from manystream.providers.errors import InvalidRequestError
from manystream.providers.json.json_values import JSONObject
from manystream.providers.model.messages import (
    CacheControl,
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    RedactedThinking,
    Text,
    Thinking,
)
from manystream.providers.model.request import Request, ThinkingConfig, ThinkingLevel, Tool

from .wire import body_of, warnings_of

HI = [Message.user("Hi")]
OPEN: JSONObject = {"type": "object", "additionalProperties": {"type": "integer"}}
CLOSED = "strict mode needs every property by its name; must be false or absent"
CALL = Message.tool_call("c1", "f", "{}")
OWN, ELSEWHERE = "openai-responses", "elsewhere"

ERRORS: list[tuple[Request, str]] = [
    (Request("gpt-4.1", [CALL]), "messages: contain nothing that can be sent to Responses: no text, no call, no file"),
    (Request("gpt-5", HI, thinking=ThinkingConfig(budget_tokens=1)),
        "thinking.budget_tokens: the server takes no budget; give a level or an effort"),
    (Request("gpt-5", HI, tools=[Tool("f"), Tool("g", parameters=OPEN, strict=True)]),
        f"tools[1].parameters.additionalProperties: {CLOSED}"),
    (Request("gpt-5", HI, response_schema=OPEN), f"response_schema.additionalProperties: {CLOSED}"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "text"), ERRORS, ids=[row[1] for row in ERRORS])
def test_an_error_names_the_field_and_the_reason(request_: Request, text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        body_of(request_)
    assert str(caught.value) == text


MARK = CacheControl()
MARK_LEFT_OUT = "cache_control: not sent where Responses has no place for it; it caches by itself"
FOREIGN = "messages: thinking that 'openai-responses' did not make is not sent to it"

WARNINGS: dict[str, tuple[Request, list[str]]] = {
    "no stop sequences, no seed": (Request("gpt-4.1", HI, stop=["x"], seed=0),
        ["stop: not sent; the Responses API has no stop sequences", "seed: not sent; the Responses API has no seed"]),
    "a small limit": (Request("gpt-4.1", HI, max_output_tokens=15),
        ["max_output_tokens: 15 is below the API's minimum; sent as 16"]),
    "the smallest limit": (Request("gpt-4.1", HI, max_output_tokens=16), []),
    "sampling": (Request("o3", HI, temperature=0.5, top_p=0.5),
        [f"{name}: not sent; 'o3' takes it only without reasoning" for name in ("temperature", "top_p")]),
    "no effort": (Request("gpt-4.1", HI, thinking=ThinkingLevel.LOW),
        ["thinking: not sent; 'gpt-4.1' takes no effort"]),
    "a budget beside a level": (Request("gpt-5", HI,
        thinking=ThinkingConfig(level=ThinkingLevel.LOW, budget_tokens=0)),
        ["thinking.budget_tokens: not sent; the Responses API has efforts, no budgets"]),
    "a budget beside an effort": (Request("gpt-5", HI, thinking=ThinkingConfig(effort="low", budget_tokens=9)),
        ["thinking.budget_tokens: not sent; the Responses API has efforts, no budgets"]),
    "a mark of a tool": (Request("gpt-5.6", HI, tools=[Tool("f", cache_control=MARK)]), [MARK_LEFT_OUT]),
    "a mark of the system prompt": (Request("gpt-5.6", HI, system=[Text("s", cache_control=MARK)]), [MARK_LEFT_OUT]),
    "two marks of an older model": (Request("gpt-5.5", [Message.user([Text("a", cache_control=MARK)])],
        system=[Text("s", cache_control=MARK)]), [MARK_LEFT_OUT]),
    "a mark that is sent": (Request("gpt-5.6", [Message.user([Text("a", cache_control=MARK)])]), []),
    "a call without a result": (Request("gpt-4.1", [*HI, CALL]), ["messages: call 'c1' has no result and is not sent"]),
    "a result without a call": (Request("gpt-4.1", [*HI, Message.tool_result("c9", "1")]),
        ["messages: result 'c9' has no call and is not sent"]),
    "a failed result": (Request("gpt-4.1", [CALL, Message.tool_result("c1", "no", is_error=True)]),
        ["messages: a result's is_error is not sent; Responses has no mark for failed results"]),
    "an assistant's picture and file": (Request("gpt-4.1",
        [*HI, Message.assistant([Text("a"), Image(url="u"), File(file_id="f")])]),
        [f"messages: an assistant's {kind} is not sent; Responses takes none" for kind in ("Image", "File")]),
    "another maker's thinking": (Request("gpt-5", [*HI,
        Message.assistant([Thinking("t", state=ProviderState(ELSEWHERE, {})), Text("a")])]), [FOREIGN]),
    "thinking of no maker": (Request("gpt-5", [*HI, Message.assistant([Thinking("t"), Text("a")])]), [FOREIGN]),
    "redacted thinking": (Request("gpt-5", [*HI,
        Message.assistant([RedactedThinking("x", ProviderState(OWN, {})), Text("a")])]), [FOREIGN]),
    "thinking without a ciphertext": (Request("gpt-5",
        [*HI, Message.assistant([Thinking("t", state=ProviderState(OWN, {"id": "r"})), Text("a")])]),
        ["messages: reasoning without its ciphertext is not sent; the server keeps none"]),
    "thinking that led to nothing": (Request("gpt-5",
        [*HI, Message.assistant(Thinking("t", state=ProviderState(OWN, {"encrypted_content": "e"}))), *HI]),
        ["messages: reasoning without the item that it led to is not sent; Responses refuses it"]),
    "an own call without an output": (Request("gpt-5",
        [*HI, Message.assistant([ProviderBlock(OWN, {"type": "shell_call", "call_id": "s1", "id": "i1"})])]),
        ["messages: shell_call 's1' has no output and is not sent"]),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "texts"), WARNINGS.values(), ids=WARNINGS)
def test_a_warning_names_the_field_and_the_reason(request_: Request, texts: list[str]) -> None:
    assert warnings_of(request_) == texts
