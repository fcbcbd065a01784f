"""What programs pass to the SDKs beside the documentation's examples: helper objects, numbers as names, types."""

from __future__ import annotations

import io
import pathlib
from typing import Any

import anthropic
import pytest
from google.genai import types

import manystream as ms
from tests.providers.sdk_bodies import READERS, sent_by_sdk, sent_by_us
from tests.providers.sdk_examples import BASES, USER

ONLY_A_SYSTEM_MESSAGE = [{"role": "system", "content": "Say hello."}]


@anthropic.beta_tool
def look(city: str) -> str:
    """Look at a city."""
    return city


UPLOADED = types.File(name="files/abc", uri="https://example.org/v1/files/abc", mime_type="image/png", size_bytes=3)

SAME: dict[str, tuple[str, dict[str, object]]] = {
    "a bias by numbers": ("openai", {"logit_bias": {50256: -100, 7: 3}}),
    "an empty answer": ("openai", {"messages": [USER, {"role": "assistant", "content": ""}, USER]}),
    "no answer": ("openai", {"messages": [USER, {"role": "assistant", "content": None}, USER]}),
    "an empty list as answer": ("openai", {"messages": [USER, {"role": "assistant", "content": []}, USER]}),
    "a system message alone": ("openai", {"messages": ONLY_A_SYSTEM_MESSAGE}),
    "a system message alone, Responses": ("openai_responses", {"input": ONLY_A_SYSTEM_MESSAGE}),
    "helper contents": ("gemini", {"contents": [types.UserContent("Hi"), types.ModelContent("Yes?"),
        types.UserContent(parts=["Again", "!"])]}),
    "an uploaded file": ("gemini", {"contents": [UPLOADED, "What is it?"]}),
    "an uploaded file alone": ("gemini", {"contents": UPLOADED}),
}  # fmt: skip


@pytest.mark.parametrize(("sdk", "arguments"), SAME.values(), ids=SAME)
def test_the_body_is_the_one_that_the_sdk_sends(sdk: str, arguments: dict[str, object]) -> None:
    arguments = {**BASES[sdk], **arguments}
    assert sent_by_us(sdk, READERS[sdk](**arguments)) == sent_by_sdk(sdk, arguments)


def test_a_system_message_alone_is_the_users_elsewhere() -> None:
    """Other providers refuse a conversation without a turn of the user."""
    request = ms.Request.from_openai(model="gpt-5", messages=ONLY_A_SYSTEM_MESSAGE)
    assert (request.system, request.messages) == (None, [ms.Message.user("Say hello.")])
    assert sent_by_us("anthropic", request)["messages"] == [{"role": "user", "content": "Say hello."}]


def test_a_voice_may_be_given_by_its_name() -> None:
    request = ms.Request.from_gemini(model="g", contents="Hi", config=types.GenerateContentConfig(speech_config="Kore"))
    written: Any = sent_by_us("gemini", request)
    assert written["generationConfig"] == {
        "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}}
    }


def test_a_helper_content_keeps_its_role() -> None:
    request = ms.Request.from_gemini(model="g", contents=[types.UserContent("Hi"), types.ModelContent("Yes?")])
    assert [message.role for message in request.messages] == [ms.Role.USER, ms.Role.ASSISTANT]


def test_a_function_of_anthropics_helper_is_a_tool() -> None:
    request = ms.Request.from_anthropic(**BASES["anthropic"], tools=[look])
    assert [(tool.name, tool.description) for tool in request.tools] == [("look", "Look at a city.")]
    assert request.tools[0].parameters["required"] == ["city"]


@pytest.mark.parametrize("data", [io.BytesIO(b"\x89PNG"), pathlib.Path("cat.png")])
def test_a_file_is_refused_by_its_path(data: object) -> None:
    """The anthropic SDK reads it; here a request opens no file."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    messages = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[0\]\.content\[0\]\.source\.data: .* a file; give its"):
        ms.Request.from_anthropic(model="claude-sonnet-4-5", max_tokens=9, messages=messages)


@pytest.mark.parametrize("name", [True, None, 1.5, b"a"])
def test_other_names_than_texts_and_whole_numbers_are_refused(name: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match="logit_bias: must have text as names"):
        ms.Request.from_openai(model="gpt-5", messages=[USER], logit_bias={name: 1})
