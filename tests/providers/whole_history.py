"""A conversation with every kind of block, for tests of the whole request that a dialect makes of it."""

import manystream as ms

MARK = ms.CacheControl("1h")
ELSEWHERE = ms.ProviderState("elsewhere", {"x": 1})


def whole_history(own: ms.ProviderState, native: ms.ProviderBlock) -> list[ms.Message]:
    """Return the conversation. own: the state of its thinking. native: a block of the dialect's own."""
    return [
        ms.Message.assistant("Hello."),
        ms.Message.user(
            [
                ms.Text("One", cache_control=MARK),
                ms.Text(""),
                ms.Image(data=b"\x89PNG", media_type="image/jpg", detail="high"),
                ms.File(
                    data="Grüße".encode(),
                    media_type="text/csv; charset=utf-8",
                    name="a.csv",
                    cache_control=ms.CacheControl(),
                ),
                ms.ProviderBlock("elsewhere", {"type": "thing"}),
                native,
            ]
        ),
        ms.Message.assistant(
            [
                ms.Thinking("hm", "sig", own),
                ms.Thinking("foreign", "s", ELSEWHERE),
                ms.RedactedThinking("enc", ELSEWHERE),
                ms.Text("I look.", citations=[{"type": "url_citation"}]),
                ms.ToolCall("call.1", "look", '{"city": "Oslo"}', state=ELSEWHERE),
                ms.ToolCall("call_2", "look", '{"city"'),
                ms.ToolCall("lost", "look", "{}"),
                native,
                ms.Image(file_id="f"),
            ]
        ),
        ms.Message.user("Wait."),
        ms.Message(
            ms.Role.TOOL,
            [
                ms.ToolResult("call_2", "none", is_error=True, cache_control=MARK),
                ms.ToolResult(
                    "call.1",
                    [
                        ms.Text("wet"),
                        ms.Text(" "),
                        ms.Image(data=b"\x89PNG", media_type="image/png"),
                        ms.File(url="https://a.example/a.mp3?x=1"),
                    ],
                ),
                ms.ToolResult("unasked", "x"),
            ],
        ),
        ms.Message.assistant([ms.Text("So: \n"), ms.Thinking("end", "s", own)]),
    ]
