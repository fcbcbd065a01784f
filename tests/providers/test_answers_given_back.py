"""What an answer of an SDK contains, given back as history: each type of item and block of the SDK is accepted."""

from __future__ import annotations

import dataclasses
from typing import Any, cast, get_args

import pytest
from anthropic.types.beta import BetaContentBlock
from openai.types.responses import ResponseOutputItem

import manystream as ms
from manystream.providers.json.json_values import JSON, JSONObject
from tests.providers.sdk_bodies import sent_by_us

QUESTION: JSONObject = {"role": "user", "content": "Which river?"}
LATER = ms.Message.user("Which sea?")

ITEMS: dict[str, JSONObject] = {
    "program": {"type": "program", "id": "prog_1", "call_id": "c1", "code": "1 + 1", "fingerprint": "f"},
    "program_output": {"type": "program_output", "id": "out_1", "call_id": "c1", "result": "2", "status": "completed"},
    "additional_tools": {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]},
    "configuration_update": {"type": "configuration_update", "reasoning": {"effort": "low"}},
}  # fmt: skip


@pytest.mark.parametrize("kind", ITEMS)
def test_an_item_of_openais_own_is_sent_again(kind: str) -> None:
    request = ms.Request.from_openai_responses(model="gpt-5.5", input=[QUESTION, ITEMS[kind], QUESTION])
    changed = dataclasses.replace(request, messages=[*request.messages, LATER])
    sent = cast("list[JSONObject]", sent_by_us("openai_responses", changed)["input"])
    assert sent[1] == ITEMS[kind]
    assert [item.get("role") for item in sent if item.get("type") == "message"] == ["user", "user", "user"]


def test_a_listing_of_tools_is_sent_again_to_anthropic() -> None:
    listing: JSONObject = {"type": "mcp_tool_listing", "mcp_server_name": "maps", "tools": []}
    answer: JSONObject = {"role": "assistant", "content": [listing, {"type": "text", "text": "The Elbe."}]}
    request = ms.Request.from_anthropic(model="claude-opus-5", max_tokens=9, messages=[QUESTION, answer, QUESTION])
    changed = dataclasses.replace(request, messages=[*request.messages, LATER])
    sent = cast("list[JSONObject]", sent_by_us("anthropic", changed)["messages"])
    assert sent[1] == answer


def kinds(union: Any) -> list[str]:
    """The `type` of each model of an SDK's union."""
    models = get_args(get_args(union)[0])
    return [get_args(model.model_fields["type"].annotation)[0] for model in models]


@pytest.mark.parametrize("kind", kinds(ResponseOutputItem))
def test_every_item_of_a_response_is_accepted_as_input(kind: str) -> None:
    content: list[JSON] = [{"type": "output_text", "text": "x"}]
    item: JSONObject = {
        "type": kind, "role": "assistant", "id": "i1", "call_id": "c1", "name": "look", "content": content,
    }  # fmt: skip
    request = ms.Request.from_openai_responses(model="gpt-5.5", input=[QUESTION, item, QUESTION])
    assert len(request.messages) == 3


@pytest.mark.parametrize("kind", kinds(BetaContentBlock))
def test_every_block_of_an_answer_is_accepted_in_history(kind: str) -> None:
    block: JSONObject = {
        "type": kind, "id": "i1", "name": "look", "text": "x", "thinking": "x", "data": "x", "input": {},
    }  # fmt: skip
    messages: list[JSONObject] = [QUESTION, {"role": "assistant", "content": [block]}, QUESTION]
    request = ms.Request.from_anthropic(model="claude-opus-5", max_tokens=9, messages=messages)
    assert len(request.messages[1].content) == 1
