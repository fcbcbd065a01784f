"""A conversation in Gemini's contents: whole contents, and what a later part of it needs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from manystream.providers.errors import InvalidRequestError
from manystream.providers.gemini.block_writer import MEDIA_TYPES, BlockWriter
from manystream.providers.gemini.message_writer import MessageWriter, WriterState
from manystream.providers.json.json_values import JSONObject
from manystream.providers.model.messages import (
    CacheControl,
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from manystream.providers.model.prefix_cache import Segment
from manystream.providers.wire.omission_warnings import OPENING
from tests.providers.gemini.sent import OLD_MODEL, contents, warnings
from tests.providers.gemini.wire import PROVIDER, decode, part_chunk, signed

HI = Message.user("Hi")
SKIP = "skip_thought_signature_validator"


def call(id: str, name: str = "f", arguments: str = "{}", state: ProviderState | None = None) -> ToolCall:
    return ToolCall(id, name, arguments, state=state)


def answer_part(name: str = "f", output: str = "ok", **members: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": output}, **members}}


def call_part(name: str = "f", signature: str | None = None, **members: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": {}, **members}}
    return part if signature is None else {**part, "thoughtSignature": signature}


def test_roles_are_user_and_model() -> None:
    assert contents(HI, Message.assistant("Hello"), Message.user([Text("a"), Text("b")])) == [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "Hello"}]},
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
    ]


def test_empty_texts_are_left_out_and_no_content_is_refused() -> None:
    assert contents(HI, Message.assistant(""), Message.user([Text(""), Text("b")])) == [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "user", "parts": [{"text": "b"}]},
    ]
    with pytest.raises(InvalidRequestError, match="messages: contain nothing that can be sent to Gemini"):
        contents(Message.user(""))


def test_a_call_and_its_result() -> None:
    history = (HI, Message.tool_call("a", "now", '{"zone":"UTC"}'), Message.tool_result("a", "12:00"))
    assert contents(*history, model=OLD_MODEL)[1:] == [
        {"role": "model", "parts": [{"functionCall": {"name": "now", "args": {"zone": "UTC"}}}]},
        {"role": "user", "parts": [answer_part("now", "12:00")]},
    ]


def test_a_failed_result_is_an_error_in_the_response() -> None:
    sent = contents(HI, Message.tool_call("a", "now", ""), Message.tool_result("a", "no clock", is_error=True))
    assert sent[2]["parts"] == [{"functionResponse": {"name": "now", "response": {"error": "no clock"}}}]


def test_parallel_calls_are_one_content_and_so_are_results() -> None:
    history = (
        HI, Message.assistant("I look."), Message.assistant([call("a", "x"), call("b", "y")]),
        Message.tool_call("c", "z", "{}"), Message.tool_result("b", "2"), Message.tool_result("c", "3"),
        Message(Role.TOOL, [ToolResult("a", "1")]), Message.user("And?"),
    )  # fmt: skip
    assert contents(*history, model=OLD_MODEL)[1:] == [
        {"role": "model", "parts": [{"text": "I look."}, call_part("x"), call_part("y"), call_part("z")]},
        {"role": "user", "parts": [answer_part("x", "1"), answer_part("y", "2"), answer_part("z", "3")]},
        {"role": "user", "parts": [{"text": "And?"}]},
    ]


def test_consecutive_calls_are_separate_turns() -> None:
    history = (
        HI, Message.tool_call("a", "f", "{}"), Message.tool_result("a", "ok"), Message.tool_call("a", "f", "{}"),
        Message.tool_result("a", "ok"),
    )  # fmt: skip
    one = [{"role": "model", "parts": [call_part()]}, {"role": "user", "parts": [answer_part()]}]
    assert contents(*history, model=OLD_MODEL)[1:] == one + one


def test_a_result_is_moved_after_its_call() -> None:
    history = (HI, Message.tool_call("a", "f", "{}"), Message.user("Hurry!"), Message.user(ToolResult("a", "ok")))
    assert [content["parts"] for content in contents(*history, model=OLD_MODEL)[1:]] == [
        [call_part()],
        [answer_part()],
        [{"text": "Hurry!"}],
    ]


def test_a_call_without_a_result_is_not_sent() -> None:
    history = (HI, Message.assistant([Text("I look."), call("a"), call("b")]), Message.tool_result("b", "ok"))
    assert contents(*history, model=OLD_MODEL)[1]["parts"] == [{"text": "I look."}, call_part()]
    assert warnings(*history) == ["messages: call 'a' has no result and is not sent"]
    assert contents(HI, Message.tool_call("a", "f", "{}")) == [{"role": "user", "parts": [{"text": "Hi"}]}]


def test_a_result_without_a_call_is_not_sent() -> None:
    history = (HI, Message.tool_result("a", "ok"), Message.assistant("Yes."))
    assert contents(*history)[1:] == [{"role": "model", "parts": [{"text": "Yes."}]}]
    assert warnings(*history) == ["messages: result 'a' has no call and is not sent"]


def test_results_of_one_id_answer_the_calls_of_a_turn_in_order() -> None:
    history = (HI, Message.tool_call("a", "f", "{}"), Message.tool_call("a", "g", "{}"), Message.tool_result("a", "ok"))
    assert contents(*history, model=OLD_MODEL)[1]["parts"] == [call_part("f")]
    assert warnings(*history) == ["messages: call 'a' has no result and is not sent"]
    both = contents(*history, Message.tool_result("a", "fine"), model=OLD_MODEL)
    assert both[1]["parts"] == [call_part("f"), call_part("g")]
    responses = [part["functionResponse"] for part in both[2]["parts"]]
    assert [(one["name"], one["response"]["output"]) for one in responses] == [("f", "ok"), ("g", "fine")]


def test_a_reused_id_belongs_to_the_later_turn() -> None:
    history = (
        HI, Message.tool_call("a", "f", "{}"), HI, Message.tool_call("a", "g", "{}"), Message.tool_result("a", "ok"),
    )  # fmt: skip
    assert [
        part for content in contents(*history, model=OLD_MODEL) for part in content["parts"] if "functionCall" in part
    ] == [call_part("g")]


def test_only_ids_of_the_wire_are_sent_back() -> None:
    state = ProviderState("google", {"id": "w1"})
    history = (HI, Message.assistant([call("w1", state=state), call("ours")]))
    results = (Message.tool_result("w1", "ok"), Message.tool_result("ours", "ok"))
    _, calls, answers = contents(*history, *results, model=OLD_MODEL)
    assert calls["parts"] == [call_part(id="w1"), call_part()]
    assert answers["parts"] == [answer_part(id="w1"), answer_part()]


def test_a_signature_is_sent_back_on_its_part() -> None:
    answer = decode(
        part_chunk(
            {"text": "Hm", "thought": True},
            {"text": "I look.", "thoughtSignature": "c2lnMQ=="},
            {"functionCall": {"name": "f", "args": {}, "id": "w1"}, "thoughtSignature": "c2lnMg=="},
            {"functionCall": {"name": "g", "args": {}, "id": "w2"}},
            {"text": "", "thoughtSignature": "c2lnMw=="},
            finish="STOP",
        )
    )
    results = Message(Role.TOOL, [ToolResult("w1", "ok"), ToolResult("w2", "ok")])
    sent = contents(HI, answer.to_message(), results)
    assert sent[1]["parts"] == [
        {"text": "Hm", "thought": True}, {"text": "I look.", "thoughtSignature": "c2lnMQ=="},
        call_part(signature="c2lnMg==", id="w1"), call_part("g", id="w2"), {"text": "", "thoughtSignature": "c2lnMw=="},
    ]  # fmt: skip


def test_state_of_another_provider_is_not_sent() -> None:
    foreign = ProviderState("anthropic", {"thoughtSignature": "c2ln", "id": "x"})
    history = (
        HI,
        Message.assistant([Text("a", state=foreign), call("x", state=foreign)]),
        Message.tool_result("x", "ok"),
    )
    assert contents(*history, model=OLD_MODEL)[1]["parts"] == [{"text": "a"}, call_part()]


def test_an_unsigned_first_call_gets_the_documented_value() -> None:
    history = (HI, Message.assistant([call("a", "x"), call("b", "y")]))
    results = (Message.tool_result("a", "ok"), Message.tool_result("b", "ok"))
    assert contents(*history, *results)[1]["parts"] == [call_part("x", SKIP), call_part("y")]
    # If the signed call is left out, the next one is the first.
    lost = Message.assistant([call("a", "x", state=signed("c2ln")), call("b", "y")])
    assert contents(HI, lost, results[1])[1]["parts"] == [call_part("y", SKIP)]


def test_thinking_is_sent_back_only_to_gemini() -> None:
    blocks = [
        Thinking("ours", state=ProviderState("google", {"thought": True})), Thinking("from somebody's own hand"),
        Thinking("theirs", "sig"), Thinking("theirs too", state=ProviderState("openai-chat", {})),
        RedactedThinking("xyz"), Text("a"),
    ]  # fmt: skip
    history = (HI, Message.assistant(blocks), HI)
    assert contents(*history)[1]["parts"] == [
        {"text": "ours", "thought": True},
        {"text": "from somebody's own hand", "thought": True},
        {"text": "a"},
    ]
    assert warnings(*history) == ["messages: thinking that 'google' did not make is not sent to it"]


def test_a_provider_block_is_sent_back_only_to_its_provider() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"}
    ours, theirs = ProviderBlock("google", code), ProviderBlock("anthropic", {"type": "server_tool_use"})
    history = (HI, Message.assistant([Text("a"), ours, theirs, Text("b")]))
    assert contents(*history)[1]["parts"] == [{"text": "a"}, code, {"text": "b"}]
    assert warnings(*history) == [
        "messages: 'server_tool_use' of 'anthropic' is not sent; only its provider understands it"
    ]


PNG = b"\x89PNG"
PNG_PART = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (Image(data=PNG, media_type="image/png"), PNG_PART),
        (File(data=b"x", media_type="audio/wav"), {"inlineData": {"mimeType": "audio/wav", "data": "eA=="}}),
        (Image(url="https://h/a.JPG?x=1"), {"fileData": {"fileUri": "https://h/a.JPG?x=1", "mimeType": "image/jpeg"}}),
        (Image(url="gs://h", media_type="image/gif"), {"fileData": {"fileUri": "gs://h", "mimeType": "image/gif"}}),
        (File(url="https://youtu.be/abc"), {"fileData": {"fileUri": "https://youtu.be/abc"}}),
        (File(url="gs://bucket/x.pdf"), {"fileData": {"fileUri": "gs://bucket/x.pdf", "mimeType": "application/pdf"}}),
        (Image(url="data:image/png;base64,iVBORw=="), PNG_PART),
        (File(url="data:,a%20b"), {"inlineData": {"mimeType": "text/plain", "data": "YSBi"}}),
        (
            File(file_id="files/abc", media_type="video/mp4"),
            {
                "fileData": {
                    "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc",
                    "mimeType": "video/mp4",
                }
            },
        ),
        (Image(data=PNG, media_type="image/png", state=signed("c2ln")), {**PNG_PART, "thoughtSignature": "c2ln"}),
    ],
)  # fmt: skip
def test_images_and_files_are_sent_inline_or_by_url(block: Image | File, part: dict[str, Any]) -> None:
    assert contents(Message.user(block))[0]["parts"] == [part]


@pytest.mark.parametrize("url", ["data:image/png", "data:image/png;base64,%%%", "data:image/png;base64,a"])
def test_a_malformed_data_url_is_refused_naming_its_place(url: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content\[0\]\.url"):
        contents(Message.user(Image(url=url)))


def test_options_that_a_part_cannot_have_cause_warnings() -> None:
    blocks = [
        Image(data=PNG, media_type="image/png", detail="low", cache_control=CacheControl()),
        Image(data=PNG, media_type="image/png", detail="auto"),
        File(data=b"x", media_type="text/plain", name="notes.txt"),
    ]
    assert [warning.partition(":")[0] for warning in warnings(Message.user(blocks))] == [
        "messages[0].content[0].cache_control",
        "messages[0].content[0].detail",
        "messages[0].content[2].name",
    ]


def media_result() -> tuple[Message, ...]:
    result = ToolResult("a", [Text("two "), Image(data=PNG, media_type="image/png"), Text("files")])
    return HI, Message.tool_call("a", "f", "{}"), Message(Role.TOOL, [result])


def test_files_of_a_result_are_sent_inside_it_to_new_models() -> None:
    assert contents(*media_result())[2:] == [
        {"role": "user", "parts": [answer_part(output="two files", parts=[PNG_PART])]}
    ]
    assert warnings(*media_result()) == []


def test_files_of_a_result_are_sent_beside_it_to_old_models() -> None:
    assert contents(*media_result(), model=OLD_MODEL)[2:] == [
        {"role": "user", "parts": [answer_part(output="two files")]},
        {"role": "user", "parts": [PNG_PART]},
    ]
    assert warnings(*media_result(), model=OLD_MODEL) == [
        "messages[2].content[0].content[1]: sent beside the result, which cannot contain it"
    ]
    by_address = ToolResult("a", [Image(url="https://h/a.png")])
    history = (HI, Message.tool_call("a", "f", "{}"), Message(Role.TOOL, [by_address]))
    assert contents(*history)[3]["parts"] == [{"fileData": {"fileUri": "https://h/a.png", "mimeType": "image/png"}}]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "null"])
def test_arguments_that_are_no_object_cause_a_warning(arguments: str) -> None:
    history = (HI, Message.tool_call("a", "f", arguments), Message.tool_result("a", "bad arguments", is_error=True))
    assert contents(*history)[1]["parts"][0]["functionCall"] == {"name": "f", "args": {"arguments": arguments}}
    assert warnings(*history) == ["messages[1].content[0].arguments: no JSON object, sent as text"]


def test_text_beside_results_in_a_tool_message_follows_them() -> None:
    tool = Message(Role.TOOL, [Text("Note."), ToolResult("a", "ok")])
    assert [content["parts"] for content in contents(HI, Message.tool_call("a", "f", "{}"), tool, model=OLD_MODEL)] == [
        [{"text": "Hi"}], [call_part()], [answer_part()], [{"text": "Note."}],
    ]  # fmt: skip


def test_an_answer_sent_back_equals_its_wire_form() -> None:
    """An answer that is sent back in the next request equals its wire form."""
    parts: list[dict[str, Any]] = [
        {"text": "Hm", "thought": True},
        {"text": "Look:"},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}, "thoughtSignature": "c2ln"},
        {"toolCall": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB", "args": {}}, "thoughtSignature": "c2ln"},
        {"toolResponse": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}},
        {"text": "Done.", "thoughtSignature": "c2ln"},
    ]
    answer = decode(part_chunk(*parts, finish="STOP"))
    assert contents(HI, answer.to_message(), HI)[1] == {"role": "model", "parts": parts}


# File extensions, and their media types according to IANA and Gemini's page on files.
ENDINGS = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp", "heic": "image/heic",
    "heif": "image/heif", "gif": "image/gif", "pdf": "application/pdf", "txt": "text/plain", "md": "text/markdown",
    "html": "text/html", "csv": "text/csv", "json": "application/json", "mp3": "audio/mpeg", "wav": "audio/wav",
    "flac": "audio/flac", "ogg": "audio/ogg", "aac": "audio/aac", "mp4": "video/mp4", "mpeg": "video/mpeg",
    "mov": "video/quicktime", "webm": "video/webm",
}  # fmt: skip


def test_every_extension_of_the_table_is_tested() -> None:
    assert MEDIA_TYPES.keys() == ENDINGS.keys()


@pytest.mark.parametrize(("ending", "media_type"), ENDINGS.items())
def test_a_urls_extension_gives_its_media_type(ending: str, media_type: str) -> None:
    for address in (f"https://h/a.b.{ending}", f"gs://bucket/a.{ending.upper()}"):
        part = {"fileData": {"fileUri": address, "mimeType": media_type}}
        assert contents(Message.user(File(url=address)))[0]["parts"] == [part]


@pytest.mark.parametrize("media_type", ["image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"])
def test_these_media_types_are_sent_inside_a_response(media_type: str) -> None:
    result = Message.tool_result("c", [File(data=b"x", media_type=media_type)])
    call = Message.assistant(ToolCall("c", "f", "{}"))
    answer = contents(HI, call, result, model="gemini-3-pro")[2]["parts"][0]["functionResponse"]
    assert answer["parts"] == [{"inlineData": {"mimeType": media_type, "data": "eA=="}}]


def test_a_users_turn_is_inserted_before_a_models_first_turn() -> None:
    assert contents(Message.assistant("Ask me."), HI) == [
        {"role": "user", "parts": [{"text": "(The conversation begins with the assistant's message.)"}]},
        {"role": "model", "parts": [{"text": "Ask me."}]},
        {"role": "user", "parts": [{"text": "Hi"}]},
    ]


USER, MODEL = Message.user("a"), Message.assistant("b")
CALL, RESULT = Message.tool_call("t", "look", "{}"), Message.tool_result("t", "x")
EMPTY = Message.user("")
NO_RESULT = "messages: call 't' has no result and is not sent"

A: JSONObject = {"role": "user", "parts": [{"text": "a"}]}
B: JSONObject = {"role": "model", "parts": [{"text": "b"}]}
USED: list[JSONObject] = [
    {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "x"}}}]},
]
DONE, OPEN = WriterState(()), WriterState(("t",))
OPENED = f"messages: begin with the assistant, which Gemini refuses; sent with {OPENING!r} as the user's first"

FIRST: list[tuple[list[Message], Segment[WriterState]]] = [
    ([USER], Segment([A], DONE)),
    ([USER, MODEL], Segment([A, B], None)),
    ([USER, MODEL, USER], Segment([A, B, A], DONE)),
    ([USER, CALL, RESULT], Segment([A, *USED], DONE)),
    ([USER, CALL, USER], Segment([A, A], OPEN, [], [NO_RESULT])),
    ([USER, CALL], Segment([A], None, [], [NO_RESULT])),
    ([EMPTY], Segment([], None)),
    ([MODEL], Segment([{"role": "user", "parts": [{"text": OPENING}]}, B], None, [OPENED])),
]
LATER: list[tuple[list[Message], WriterState, Segment[WriterState] | None]] = [
    ([MODEL], DONE, Segment([B], None)),
    ([MODEL, USER], DONE, Segment([B, A], DONE)),
    ([USER], DONE, Segment([A], DONE)),
    ([USER], OPEN, Segment([A], OPEN, [], [NO_RESULT])),
    ([EMPTY], DONE, Segment([], DONE)),
    ([CALL, RESULT], DONE, Segment(USED, DONE)),
    ([CALL, RESULT], OPEN, Segment(USED, DONE, [NO_RESULT])),
    ([RESULT], OPEN, None),
]


def written(messages: Sequence[Message], first: int, before: WriterState | None) -> Segment[WriterState] | None:
    warnings: list[str] = []
    parts = BlockWriter(PROVIDER, warnings, media_in_results=True)
    return MessageWriter(parts, warnings, sign_calls=False).write(messages, first, before)


@pytest.mark.parametrize(("messages", "segment"), FIRST)
def test_the_first_messages_leave_their_state(messages: Sequence[Message], segment: Segment[WriterState]) -> None:
    assert written(messages, 0, None) == segment


@pytest.mark.parametrize(("messages", "before", "segment"), LATER)
def test_later_messages_continue_from_a_state(
    messages: Sequence[Message], before: WriterState, segment: Segment[WriterState] | None
) -> None:
    assert written(messages, 3, before) == segment
