"""An invalid request is refused before any byte is sent; the error names the field and never shows a key."""

import os
from pathlib import Path

import pytest
import trio

import manystream as ms
from tests.support.peers import Line, answer, hello, open_peer

SECRET = "sk-canary-0123456789"
USER = [ms.Message.user("hello")]
CHAT = ms.OpenAIChat(api_key=SECRET, base_url="http://127.0.0.1:9/v1")


async def refused(request: object, *, providers: list[ms.Provider] | None = None, **options: object) -> str:
    """Return the error message, after a check that no connection was attempted."""
    async with ms.open_engine([CHAT] if providers is None else providers, environment={}, **options) as engine:  # type: ignore[arg-type]
        with pytest.raises(ms.InvalidRequestError) as raised:
            engine.start_stream(request)  # type: ignore[arg-type]
        with pytest.raises(ms.InvalidRequestError):
            engine.start_request(request)  # type: ignore[arg-type]
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert engine.statistics().connections == {}
        assert engine.statistics().started == 0
    assert SECRET not in str(raised.value)
    return str(raised.value)


def message_with(block: object) -> ms.Message:
    """A message that is given its block later, where its own check does not see it."""
    message = ms.Message.user("x")
    message.content = [block]  # type: ignore[list-item]
    return message


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ms.Request("m", []), "messages"),
        (ms.Request("", USER), "model"),
        (ms.Request("m", [ms.Message.user([])]), "messages[0].content"),
        (ms.Request("m", ["hello"]), "messages[0]"),  # type: ignore[list-item]
        (ms.Request("m", [message_with(3)]), "messages[0].content[0]"),
        (ms.Request("m", [ms.Message.user(ms.Thinking("x"))]), "messages[0].content[0]"),
        (ms.Request("m", [ms.Message.user(ms.Image())]), "messages[0].content[0]"),
        (ms.Request("m", [ms.Message.user(ms.Image(data=b"x"))]), "media_type"),
        (ms.Request("m", USER, max_output_tokens=0), "max_output_tokens"),
        (ms.Request("m", USER, temperature=float("nan")), "temperature"),
        (ms.Request("m", USER, tool_choice="nobody"), "tool_choice"),
        (ms.Request("m", USER, tool_choice="required"), "tool_choice"),
        (ms.Request("m", USER, tools=[ms.Tool("a"), ms.Tool("a")]), "tools[1].name"),
        (ms.Request("m", USER, stop="x"), "stop"),
        (ms.Request("m", USER, extra_headers={"X-Bad": "a\r\nb: c"}), "extra_headers"),
        (ms.Request("m", USER, extra_headers={"Content-Length": "1"}), "extra_headers"),
        ("not a request", "request"),
    ],
)
async def test_a_request_that_cannot_be_sent_names_its_field(request_: object, field: str) -> None:
    assert field in await refused(request_)


async def test_an_unknown_provider_lists_the_configured_ones() -> None:
    message = await refused(hello(), providers=[CHAT, ms.Anthropic(api_key=SECRET)])
    assert "model" in message
    assert "anthropic" in message


async def test_a_missing_key_names_its_variable() -> None:
    message = await refused(hello(), providers=[ms.Anthropic()])
    assert "api_key" in message
    assert "ANTHROPIC_API_KEY" in message


@pytest.mark.parametrize("key", [SECRET + "\n", SECRET + "\r\nX: y", SECRET + "\0", "ключ" + SECRET, SECRET + " "])
async def test_a_key_that_no_header_can_contain_is_not_shown(key: str) -> None:
    message = await refused(hello(), providers=[ms.OpenAIChat(api_key=key, base_url="http://127.0.0.1:9")])
    assert "api_key" in message


@pytest.mark.parametrize(
    "url", ["127.0.0.1:9/v1", "ftp://x/", "http://", "http://a b/", f"http://user:{SECRET}@h/", "http://h:99999/", ""]
)
async def test_an_unusable_base_url_is_refused_at_open_engine(url: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match="base_url") as raised:
        async with ms.open_engine([ms.OpenAIChat(api_key="k", base_url=url)]):
            pass
    assert SECRET not in str(raised.value)


async def test_two_providers_of_one_name_are_refused() -> None:
    with pytest.raises(ms.InvalidRequestError, match="two are named"):
        async with ms.open_engine([CHAT, CHAT]):
            pass


async def test_a_key_comes_from_the_environment_or_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text('{"anthropic": "from-file"}')
    os.chmod(file, 0o600)
    environment = {"MANYSTREAM_CREDENTIALS": str(file), "OPENAI_API_KEY": "from-environment"}
    providers = [ms.Anthropic(base_url="http://127.0.0.1:9"), ms.OpenAIResponses(base_url="http://127.0.0.1:9")]
    async with ms.open_engine(providers, environment=environment) as engine:
        for model in ("claude-x", "gpt-x"):
            engine.start_stream(ms.Request(model, USER)).cancel()
        os.chmod(file, 0o644)
    message = await refused_with(environment)
    assert "chmod 600" in message


async def refused_with(environment: dict[str, str]) -> str:
    async with ms.open_engine([ms.Anthropic()], environment=environment) as engine:
        with pytest.raises(ms.InvalidRequestError) as raised:
            engine.start_stream(hello())
    return str(raised.value)


async def test_no_repr_shows_a_key() -> None:
    async with ms.open_engine([CHAT]) as engine:
        call = engine.start_stream(hello())
        shown = f"{CHAT!r} {engine!r} {call!r} {engine.statistics()!r}"
        assert SECRET not in shown
        call.cancel()


LOCAL = ["http://127.0.0.1:{port}", "http://localhost:{port}", "http://[::1]:{port}", "http://127.8.9.10:{port}"]
DOORS = [ms.OpenAIChat, ms.OpenAIResponses, ms.Anthropic, ms.Gemini]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("options", [{}, {"name": "mine"}, {"name": "anthropic"}, {"name": "google"}])
async def test_a_local_server_is_called_without_a_key(door: type[ms.Provider], options: dict[str, str]) -> None:
    heads: list[bytes] = []

    async def refusing(line: Line) -> None:
        heads.append((await line.request()).partition(b"\r\n\r\n")[0].lower())
        await line.send(answer("{}", status="404 Not Found"))

    async with open_peer(refusing) as peer:
        provider = door(base_url=peer.origin, **options)  # type: ignore[arg-type]
        async with ms.open_engine([provider], environment={"HOME": "/nonexistent"}) as engine:
            completion = await engine.start_stream(hello(retry=ms.Retry(max_attempts=1))).wait()
    assert completion.http_status == 404
    for header in (b"x-api-key", b"x-goog-api-key", b"authorization", b"\napi-key"):
        assert header not in heads[0]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("url", LOCAL)
async def test_every_local_address_is_accepted_without_a_key(door: type[ms.Provider], url: str) -> None:
    async with ms.open_engine([door(base_url=url.format(port=9))], environment={}) as engine:
        engine.start_stream(hello()).cancel()


@pytest.mark.parametrize("door", [ms.Anthropic, ms.Gemini], ids=lambda door: door.__name__)
async def test_a_remote_server_requires_a_key(door: type[ms.Provider]) -> None:
    message = await refused(hello(), providers=[door(base_url="https://host.example")])
    assert message.startswith("api_key: ")
