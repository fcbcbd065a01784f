"""System messages in a provider's own history.

At the beginning they are the system prompt. Later ones keep their position or are refused.
"""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.history import History, HistoryError, HistoryMessage, messages_of
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.json_values import JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter

LATE: list[JSONObject] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "developer", "content": "Now be long."},
    {"role": "user", "content": "Go on"},
]


@pytest.mark.parametrize("converter", [ChatConverter, ResponsesConverter])
def test_decoding_loses_no_system_message(converter: type[HistoryConverter]) -> None:
    system: list[str] = []
    assert converter().decode_messages(LATE[:2], system) == [ms.Message.user("Hi")]
    assert system == ["Be brief."]
    with pytest.raises(HistoryError, match="give a list as `system`"):
        converter().decode_messages(LATE[:2])
    with pytest.raises(HistoryError, match="a system message after the first turn"):
        converter().decode_messages(LATE, [])


TURNS = [
    HistoryMessage("system", "Be brief."),
    HistoryMessage("user", "Hi"),
    HistoryMessage("system", "Now be long."),
    HistoryMessage("user", "Go on"),
]


@pytest.mark.parametrize("converter", [ChatConverter, ResponsesConverter])
def test_a_later_system_message_keeps_its_position(converter: type[HistoryConverter]) -> None:
    history = History("Be kind.", "It is cold.", TURNS)
    back = converter().to_history(converter().from_history(history))
    assert [(item.role.value, item.text) for item in back][-4:] == [
        ("user", "It is cold."),
        ("user", "Hi"),
        ("system", "Now be long."),
        ("user", "Go on"),
    ]
    first = converter().system_parameter(history) or [item.text for item in back[:-4]]
    assert first in ("Be kind.\n\nBe brief.", ["Be kind.", "Be brief."])


@pytest.mark.parametrize("converter", [AnthropicConverter, GeminiConverter])
def test_a_later_system_message_is_refused_if_unsupported(converter: type[HistoryConverter]) -> None:
    with pytest.raises(HistoryError, match=r"turns\[1\]: a system message after the first turn"):
        converter().from_history(History(conversation=TURNS))
    assert converter().from_history(History(conversation=TURNS[:2])) == [user_message(converter, "Hi")]


def user_message(converter: type[HistoryConverter], text: str) -> JSONObject:
    """Return a user's message with this text."""
    if converter is AnthropicConverter:
        return {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"role": "user", "parts": [{"text": text}]}


def test_messages_of_a_history_refuse_a_later_system_message() -> None:
    with pytest.raises(HistoryError, match=r"turns\[1\]"):
        messages_of(History(conversation=TURNS))
