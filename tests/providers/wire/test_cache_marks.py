"""Cache marks and other words of a part in OpenAI's forms: `cache_control` of gateways, `prompt_cache_breakpoint`."""

import dataclasses
from typing import cast

import pytest

import manystream as ms
from manystream.providers.json.json_values import JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.providers.openai.chat.wire import known
from tests.providers.sdk_bodies import sent_by_us, warnings_of

MARK: JSONObject = {"type": "ephemeral"}
HOUR: JSONObject = {"type": "ephemeral", "ttl": "1h"}
DAY = ms.CacheControl("1h")

BRIEF: JSONObject = {"type": "text", "text": "Be brief."}
CONVERSATION: list[JSONObject] = [
    {"role": "system", "content": [BRIEF, {"type": "text", "text": "R", "cache_control": MARK}]},
    {"role": "user", "content": [{"type": "text", "text": "Which?", "cache_control": HOUR}]},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "I look.", "cache_control": MARK}],
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "Elbe", "cache_control": MARK}]},
]  # fmt: skip


def test_marks_of_dicts_are_sent_to_anthropic() -> None:
    request = ms.Request("claude-opus-4-6", CONVERSATION)
    body = sent_by_us("anthropic", request)
    assert body["system"] == [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "R", "cache_control": MARK},
    ]
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Which?", "cache_control": HOUR}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look.", "cache_control": MARK},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "Elbe", "cache_control": MARK}],
        },
    ]


def test_marks_of_dicts_are_sent_to_a_gateway_again() -> None:
    body = sent_by_us("openai", ms.Request("m", CONVERSATION), provider=known("openrouter"))
    sent = cast("list[dict[str, list[JSONObject]]]", body["messages"])
    assert [message["content"][-1].get("cache_control") for message in sent] == [MARK, HOUR, MARK, MARK]


def test_a_mark_that_is_not_sent_is_warned_about() -> None:
    assert any("cache_control" in warning for warning in warnings_of("openai", ms.Request("gpt-4.1", CONVERSATION)))


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_mark_of_a_message_is_that_of_its_last_block(role: str) -> None:
    warnings: list[str] = []
    given: JSONObject = {"role": role, "content": "Hi", "cache_control": HOUR}
    (message,) = ChatConverter().decode_messages([given], warnings=warnings)
    assert message.content == [ms.Text("Hi", cache_control=DAY)]
    assert warnings == []
    (message,) = ChatConverter().decode_messages(
        [{"role": role, "content": [{"type": "text", "text": text} for text in "ab"], "cache_control": HOUR}]
    )
    assert message.content == [ms.Text("a"), ms.Text("b", cache_control=DAY)]


@pytest.mark.parametrize(("ttl", "ours"), [("30m", "5m"), ("12h", "1h"), (None, None), ("45m", None)])
def test_openais_breakpoints_are_read(ttl: str | None, ours: object) -> None:
    mark: JSONObject = {"mode": "explicit"} if ttl is None else {"mode": "explicit", "ttl": ttl}
    part: JSONObject = {"type": "input_text", "text": "Hi", "prompt_cache_breakpoint": mark}
    (message,) = ResponsesConverter().decode_messages([{"role": "user", "content": [part]}])
    assert message.content == [ms.Text("Hi", cache_control=ms.CacheControl(ours))]  # type: ignore[arg-type]
    part = {"type": "text", "text": "Hi", "prompt_cache_breakpoint": mark}
    (message,) = ChatConverter().decode_messages([{"role": "user", "content": [part]}])
    assert message.content == [ms.Text("Hi", cache_control=ms.CacheControl(ours))]  # type: ignore[arg-type]


def test_breakpoints_are_kept_when_a_message_is_added() -> None:
    mark: JSONObject = {"mode": "explicit", "ttl": "30m"}
    given: list[ms.JSON] = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief.",
        "prompt_cache_breakpoint": mark}]}, {"role": "user",
        "content": [{"type": "input_text", "text": "Hi", "prompt_cache_breakpoint": mark}]},
    ]  # fmt: skip
    request = ms.Request.from_openai_responses(model="gpt-5.6", instructions="Ask.", input=given)
    assert request.system == [ms.Text("Ask."), ms.Text("Be brief.", cache_control=ms.CacheControl("5m"))]
    changed = dataclasses.replace(request, messages=[*request.messages, ms.Message.user("So?")])
    sent = cast("list[JSONObject]", sent_by_us("openai_responses", changed)["input"])
    assert given[1] == {key: value for key, value in sent[-2].items() if key != "type"}


def test_a_system_prompt_with_a_mark_alone_is_the_users() -> None:
    part: JSONObject = {"type": "text", "text": "Hi", "cache_control": MARK}
    request = ms.Request.from_openai(model="gpt-5", messages=[{"role": "system", "content": [part]}])
    assert request.messages == [ms.Message.user([ms.Text("Hi", cache_control=ms.CacheControl())])]


def test_the_original_detail_of_a_picture_is_kept() -> None:
    url = "https://example.org/a.png"
    chat: JSONObject = {"type": "image_url", "image_url": {"url": url, "detail": "original"}}
    request = ms.Request("gpt-5.6", [{"role": "user", "content": [chat]}])
    assert request.messages[0].content == [ms.Image(url=url, detail="original")]
    assert sent_by_us("openai", request)["messages"] == [{"role": "user", "content": [chat]}]
    part: JSONObject = {"type": "input_image", "image_url": url, "detail": "original"}
    (message,) = ResponsesConverter().decode_messages([{"role": "user", "content": [part]}])
    assert message.content == [ms.Image(url=url, detail="original")]
    assert sent_by_us("openai_responses", request)["input"] == [{"type": "message", "role": "user", "content": [part]}]
    assert "messages[0].content[0].detail" in warnings_of("gemini", dataclasses.replace(request, model="g"))[0]


FUNCTION: JSONObject = {"name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": FUNCTION, "cache_control": HOUR},
        {"type": "function", "function": {**FUNCTION, "cache_control": HOUR}},
        {"type": "function", **FUNCTION, "cache_control": HOUR},
    ],
)
def test_a_mark_of_a_tool_is_read(tool: JSONObject) -> None:
    assert ms.Request("m", "Hi", tools=[tool]).tools == [ms.Tool("look", cache_control=DAY)]


def test_an_unknown_member_beside_a_function_is_refused() -> None:
    tool: JSONObject = {"type": "function", "function": FUNCTION, "defer_loading": True}
    with pytest.raises(ms.InvalidRequestError, match=r"^tools\[0\]\.defer_loading: is not a member of this form"):
        ms.Request("m", "Hi", tools=[tool])
