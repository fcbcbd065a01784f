"""A conversation with every kind of block, for tests of the whole request that a dialect makes of it."""

from __future__ import annotations

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

MARK = CacheControl("1h")
ELSEWHERE = ProviderState("elsewhere", {"x": 1})


def whole_history(own: ProviderState, native: ProviderBlock) -> list[Message]:
    """Return the conversation. own: the state of its thinking. native: a block of the dialect's own."""
    return [
        Message.assistant("Hello."),
        Message.user(
            [
                Text("One", cache_control=MARK),
                Text(""),
                Image(data=b"\x89PNG", media_type="image/jpg", detail="high"),
                File(
                    data="Grüße".encode(),
                    media_type="text/csv; charset=utf-8",
                    name="a.csv",
                    cache_control=CacheControl(),
                ),
                ProviderBlock("elsewhere", {"type": "thing"}),
                native,
            ]
        ),
        Message.assistant(
            [
                Thinking("hm", "sig", own),
                Thinking("foreign", "s", ELSEWHERE),
                RedactedThinking("enc", ELSEWHERE),
                Text("I look.", citations=[{"type": "url_citation"}]),
                ToolCall("call.1", "look", '{"city": "Oslo"}', state=ELSEWHERE),
                ToolCall("call_2", "look", '{"city"'),
                ToolCall("lost", "look", "{}"),
                native,
                Image(file_id="f"),
            ]
        ),
        Message.user("Wait."),
        Message(
            Role.TOOL,
            [
                ToolResult("call_2", "none", is_error=True, cache_control=MARK),
                ToolResult(
                    "call.1",
                    [
                        Text("wet"),
                        Text(" "),
                        Image(data=b"\x89PNG", media_type="image/png"),
                        File(url="https://a.example/a.mp3?x=1"),
                    ],
                ),
                ToolResult("unasked", "x"),
            ],
        ),
        Message.assistant([Text("So: \n"), Thinking("end", "s", own)]),
    ]
