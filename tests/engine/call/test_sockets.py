"""A conversation keeps a WebSocket: what is sent, and what becomes of a turn when the socket or the server fails."""

import manystream as ms
from tests.support.websockets import open_responses, plain, tool_loop

USER = ms.Message.user("begin")


async def test_a_tool_loop_sends_what_is_new() -> None:
    async with open_responses() as server:
        talk, same = ms.Conversation([USER]), ms.Conversation([USER])
        async with ms.open_engine([server.provider]) as engine:
            completions = await tool_loop(engine, talk, 4, system="Be brief.")
            figures = engine.statistics().connections
        http = ms.OpenAIResponses("k", server.peer.url, name="p")
        over_ws, server.turns = server.turns, []
        async with ms.open_engine([http]) as engine:
            await tool_loop(engine, same, 4, system="Be brief.")
    assert [completion.transport for completion in completions] == ["websocket"] * 4
    assert [completion.continued for completion in completions] == [False, True, True, True]
    assert all(completion.attempts == 1 and not completion.resent for completion in completions)
    assert len(server.sockets) == 1
    assert [len(turn.body["input"]) for turn in over_ws] == [1, 1, 1, 1]
    assert [plain(turn.whole) for turn in over_ws] == [plain(turn.whole) for turn in server.turns]
    assert talk == same
    wss = figures[server.peer.origin.replace("http", "ws")]
    assert (wss.active, wss.idle, wss.continued, wss.whole, wss.over_http) == (0, 1, 3, {"new": 1}, {})
    assert figures[server.peer.origin].active == 0
