"""What Anthropic's own form has beside a call's result and a picture, and a later request must have, too."""

from __future__ import annotations

import dataclasses
import json

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.json.json_values import JSON, JSONObject
from tests.providers.sdk_bodies import sent_by_us

QUESTION: JSONObject = {"role": "user", "content": "Which river?"}
CALL: JSONObject = {"type": "tool_use", "id": "t1", "name": "read", "input": {}, "toolset_name": "files"}
RESULT: JSONObject = {"type": "tool_result", "tool_use_id": "t1", "content": "Elbe", "toolset_name": "files"}
PICTURE: JSONObject = {
    "type": "image",
    "source": {"type": "url", "url": "https://example.org/a.png"},
    "transformations": {"oversized_image": "downsize"},
}


def answer() -> ms.Response:
    usage: JSONObject = {"input_tokens": 1, "output_tokens": 1}
    message: JSONObject = {"type": "message", "role": "assistant", "content": [CALL], "usage": usage}
    return DIALECT.decode(json.dumps(message).encode(), ms.Anthropic(), lambda: "made")


def test_a_result_names_the_toolset_of_its_call() -> None:
    """As the tool runner of Anthropic's library does."""
    history = [ms.Message.user("Which river?"), answer().to_message(), ms.Message.tool_result("t1", "Elbe")]
    body = sent_by_us("anthropic", ms.Request("claude-opus-4-6", history))
    expected: list[JSON] = [QUESTION, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}]
    assert body["messages"] == expected
    assert AnthropicConverter().encode_messages(history)[1:] == expected[1:]


def test_a_result_for_another_server_names_no_toolset() -> None:
    history = [ms.Message.user("Which river?"), answer().to_message(), ms.Message.tool_result("t1", "Elbe")]
    other = ms.Anthropic(profile="anthropic-compatible", base_url="https://example.org")
    body = sent_by_us("anthropic", ms.Request("m", history), provider=other)
    assert "toolset_name" not in json.dumps(body)


def test_toolsets_and_transformations_stay_in_a_longer_request() -> None:
    messages: list[JSONObject] = [
        {"role": "user", "content": [PICTURE]},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
    ]
    request = ms.Request.from_anthropic(model="claude-opus-4-6", max_tokens=9, messages=messages)
    more = [*request.messages, ms.Message.assistant("The Elbe."), ms.Message.user("And now?")]
    body = sent_by_us("anthropic", dataclasses.replace(request, messages=more))
    assert body["messages"][:3] == messages  # type: ignore[index,call-overload]
