"""System messages: their place and their role."""

from __future__ import annotations

import manystream as ms
from manystream.providers.history import History, HistoryMessage
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.providers.openai.chat.test_request import HELLO
from tests.providers.openai.chat.wire import encode, quirky


def test_system_text_comes_first_in_one_message() -> None:
    body = encode(ms.Request("gpt-4o", HELLO, system=[ms.Text("Be brief."), ms.Text(""), ms.Text("Be kind.")]))
    assert body["messages"] == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "hello"},
    ]
    assert encode(ms.Request("gpt-4o", HELLO, system="")) == encode(ms.Request("gpt-4o", HELLO))


def test_the_system_role_is_the_servers() -> None:
    body = encode(ms.Request("m", HELLO, system="Be brief."), quirky(system_role="developer"))
    assert body["messages"] == [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hello"}]


def test_the_system_role_of_a_server_is_used() -> None:
    converter = ChatConverter(ms.OpenAIChat("key", profile="openai-chat"))
    role = converter.provider.profile.quirks.system_role
    history = History("s", conversation=[HistoryMessage("user", "x"), HistoryMessage("system", "s")])
    assert [message["role"] for message in converter.from_history(history)] == [role, "user", role]


def test_several_system_texts() -> None:
    history = History("a", conversation=[HistoryMessage("system", "b"), HistoryMessage("user", "x")])
    texts = [{"type": "text", "text": text} for text in "ab"]
    assert ChatConverter().from_history(history)[0] == {"role": "system", "content": texts}
    assert ResponsesConverter().system_parameter(history) == "a\n\nb"
