"""A `type` or `format` in a caller's data that is no text counts as unknown, and raises nothing in a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream import Error
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.model.messages import Message, ProviderBlock, Text
from manystream.providers.model.request import Request
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.conformance.exchange import provider_for

ODD = [["text"], {"type": "text"}, 7]


def sent(dialect: str, *messages: Message, **options: Any) -> Any:
    provider = provider_for(dialect, "openai")
    request = Request("m", messages, **options)
    return json.loads(DIALECTS[dialect].encode(request, "m", provider, stream=False).body)


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
def test_a_citation_of_an_odd_type_is_not_sent(odd: Any) -> None:
    text = Text("cited", citations=[{"type": odd}])
    body = sent("anthropic", Message.user("a"), Message.assistant(text), Message.user("b"))
    assert body["messages"][1]["content"] in ("cited", [{"type": "text", "text": "cited"}])


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
def test_a_schema_s_odd_format_is_not_sent(odd: Any) -> None:
    schema = {"type": "object", "properties": {"when": {"type": "string", "format": odd}}}
    body = sent("anthropic", Message.user("a"), response_schema=schema)
    assert body["output_config"]["format"]["schema"]["properties"]["when"]["type"] == "string"


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
@pytest.mark.parametrize("dialect", ["anthropic", "gemini-interactions", "openai-responses"])
def test_a_provider_s_block_of_an_odd_type_is_sent_as_it_is(dialect: str, odd: Any) -> None:
    name = provider_for(dialect, "openai").profile.name
    block = ProviderBlock(name, {"type": odd})
    assistant = Message.assistant([Text("text"), block])
    body = sent(dialect, Message.user("a"), assistant, Message.user("b"))
    assert json.dumps({"type": odd}) in json.dumps(body)


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
def test_results_behind_an_item_of_an_odd_type_are_read(odd: Any) -> None:
    items = [
        {"type": odd, "role": "user", "content": "a"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "seen"},
    ]
    messages = ResponsesConverter().decode_messages(items)
    assert [message.role.value for message in messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("absent", [{}, {"output": None}], ids=["no output", "null"])
def test_a_result_without_an_output_is_empty(absent: Any) -> None:
    items = [
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", **absent},
    ]
    assert ResponsesConverter().decode_messages(items)[-1] == Message.tool_result("c", "")


@pytest.mark.parametrize("odd", ODD, ids=["list", "object", "number"])
@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "gemini-interactions", "openai-chat", "openai-responses"])
def test_an_event_of_an_odd_type_is_no_defect(dialect: str, odd: Any) -> None:
    for value in ({"type": odd}, {"object": odd}, {"error": {"type": odd, "code": odd}}, [{"type": odd}]):
        machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: "made")
        end = [*machine.feed("", json.dumps(value).encode()), *machine.end()][-1]
        assert isinstance(end, Error)
        assert "defect" not in end.error.message
