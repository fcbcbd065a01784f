"""The head of a request as it is sent, and the addresses and headers that are refused before anything is sent."""

from __future__ import annotations

import hashlib
import json

import pytest

import manystream as ms
from manystream.engine.request.addresses import addressed
from manystream.engine.request.limits import EngineLimits
from manystream.engine.request.preparer import Preparer
from tests.support.peers import Peer, answer, chat_answer, hello, open_peer, replies


async def sent(provider: ms.Provider, request: ms.Request, peer: Peer) -> list[str]:
    """Make a call, and return the lines of the request's head."""
    async with ms.open_engine([provider]) as engine:
        assert (await engine.start_request(request).wait()).success
    return peer.heads[-1]


GOOD = replies(answer(chat_answer("hi")))


async def test_the_head_of_a_request_is_complete() -> None:
    async with open_peer(GOOD) as peer:
        head = await sent(ms.OpenAIChat("the-key-1", f"{peer.url}?api-version=7"), hello(), peer)
    length = len(peer.requests[0].partition(b"\r\n\r\n")[2])
    assert head == [
        "POST /v1/chat/completions?api-version=7 HTTP/1.1", f"Host: 127.0.0.1:{peer.port}",
        "Accept-Encoding: identity", "User-Agent: manystream", "content-type: application/json",
        "accept: application/json", "authorization: Bearer the-key-1", f"Content-Length: {length}",
    ]  # fmt: skip


async def test_the_later_of_two_headers_of_one_name_is_sent() -> None:
    """The request's own headers go before the provider's, and these before the engine's."""
    async with open_peer(GOOD) as peer:
        provider = ms.OpenAIChat(
            "the-key-1", peer.url, headers={"user-agent": "mine", "X-A": "1", "X-B": "2"}, idempotency_header="X-Once"
        )
        request = hello(extra_headers={"x-b": "3", "authorization": "Token other", "X-C": "4"})
        head = await sent(provider, request, peer)
    assert head[2:-2] == [
        "Accept-Encoding: identity", "user-agent: mine", "content-type: application/json", "accept: application/json",
        "x-b: 3", "authorization: Token other", "X-C: 4", "X-A: 1",
    ]  # fmt: skip
    assert len(head[-2].removeprefix("X-Once: ")) == 22


OWN_HEADERS = ["Host", "Content-Length", "Transfer-Encoding", "Connection", "Accept-Encoding", "accept-encoding"]


@pytest.mark.parametrize("name", OWN_HEADERS)
async def test_a_header_that_the_transport_sets_is_refused(name: str) -> None:
    wrong = "is decided by the transport; leave it out"
    plain = ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="plain")
    headed = ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="headed", headers={name: "x"})
    async with ms.open_engine([plain, headed]) as engine:
        with pytest.raises(ms.InvalidRequestError) as raised:
            engine.start_request(ms.Request("plain/m", "hi", extra_headers={name: "x"}))
        assert str(raised.value) == f"extra_headers: {name.lower()!r} {wrong}"
        with pytest.raises(ms.InvalidRequestError) as raised:
            engine.start_request(ms.Request("headed/m", "hi"))
        assert str(raised.value) == f"headers: {name!r} {wrong}"
    with pytest.raises(ms.InvalidRequestError) as raised:
        addressed([ms.OpenAIChat("k", "http://127.0.0.1:9/v1", idempotency_header=name)])
    assert str(raised.value) == f"idempotency_header: {name!r} has another use: choose a name of its own"


async def test_a_header_that_is_no_header_is_refused_by_its_field() -> None:
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:9/v1", headers={"x-own": "1"})]) as engine:
        with pytest.raises(ms.InvalidRequestError) as raised:
            engine.start_request(hello(extra_headers={"x-b": "two\nlines"}))
        assert raised.value.field == "extra_headers"
        assert engine.statistics().started == 0
    with pytest.raises(ms.InvalidRequestError) as raised:
        async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:9/v1", headers={"x-own": "a\nb"})]) as engine:
            engine.start_request(hello())
    assert raised.value.field == "headers"


@pytest.mark.parametrize("value", [5, [], None])
async def test_a_provider_s_headers_are_read_for_each_call(value: object) -> None:
    async with open_peer(GOOD) as peer:
        provider = ms.OpenAIChat("k", peer.url, headers={"x-own": "1"})
        async with ms.open_engine([provider]) as engine:
            for own in ("1", "2"):
                provider.headers["x-own"] = own
                await engine.request(hello())
                assert f"x-own: {own}\r\n".encode() in peer.requests[-1]
            provider.headers["x-own"] = value  # type: ignore[assignment]
            with pytest.raises(ms.InvalidRequestError) as raised:
                engine.start_request(hello())
    assert str(raised.value) == "headers: names and values must be text"


# --- addresses ---

CHAT = ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="chat")

WRONG = {
    "two of one name": ([CHAT, CHAT], "providers: two are named 'chat': give one a name=…"),
    "no address": ([ms.Provider(profile=ms.Profile(name="own", dialect="openai-chat", base_url=""))],
                   "base_url: 'own' needs one, such as 'https://host/v1'"),
    "another use": ([ms.OpenAIChat("k", CHAT.base_url, headers={"X-Once": "1"}, idempotency_header="x-once")],
                    "idempotency_header: 'x-once' has another use: choose a name of its own"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_provider_that_cannot_be_used_is_refused(name: str) -> None:
    providers, message = WRONG[name]
    with pytest.raises(ms.InvalidRequestError) as raised:
        addressed(providers)  # type: ignore[arg-type]
    assert str(raised.value) == message


@pytest.mark.parametrize("url", ["ftp://h.test/v1", "http://h.test:99999/v1", "no address"])
def test_a_wrong_address_is_refused_with_the_provider_s_name(url: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"^base_url: of 'chat': ") as raised:
        addressed([ms.OpenAIChat("k", url, name="chat")])
    assert raised.value.field == "base_url"


@pytest.mark.parametrize("name", ["", "x y", "x:y", "x\n"])
def test_an_idempotency_header_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        addressed([ms.OpenAIChat("k", CHAT.base_url, idempotency_header=name)])
    assert raised.value.field == "idempotency_header"


def test_addresses_come_in_the_order_of_the_providers() -> None:
    found = addressed([CHAT, ms.OpenAIChat("k", "https://h.test/a/", name="other", idempotency_header="x-once")])
    assert [(provider.name, str(base.origin)) for provider, base in found] == [
        ("chat", "http://127.0.0.1:9"),
        ("other", "https://h.test:443"),
    ]


# --- what an engine keeps of requests ---


def preparer(*providers: ms.Provider) -> Preparer:
    return Preparer(addressed(providers), {}, EngineLimits(), lambda: "an-id", lambda: 0.0)


def test_requests_of_one_kind_share_their_head() -> None:
    one = preparer(CHAT)
    first, second, stream = (one.prepare(hello(), stream=stream)[0] for stream in (False, False, True))
    assert first.head is second.head
    assert first.secrets is second.secrets
    assert (first.stream, second.stream, stream.stream) == (False, False, True)
    assert stream.head is not first.head
    assert one.prepare(hello(extra_headers={"x-a": "1"}), stream=False)[0].head is not first.head


def test_an_engine_keeps_256_heads_and_256_models() -> None:
    one = preparer(CHAT)
    heads = [one.prepare(hello(extra_headers={"x-a": str(n)}), stream=False)[0].head for n in range(257)]
    again = [one.prepare(hello(extra_headers={"x-a": str(n)}), stream=False)[0].head for n in range(257)]
    assert [new is old for new, old in zip(again, heads, strict=True)] == [True] * 256 + [False]
    other = preparer(CHAT)
    for number in range(300):
        assert other.prepare(ms.Request(f"m{number}", "hi"), stream=False)[0].model == f"m{number}"
    assert len(other._selected) == 256


def test_a_body_is_copied_only_while_it_is_small() -> None:
    one = preparer(CHAT)
    around = len(one.prepare(ms.Request("m", "x"), stream=False)[1].body) - 1
    for size in (10, 65_535, 65_536, 70_000):
        prepared, wire = one.prepare(ms.Request("m", "x" * max(1, size - around)), stream=False)
        assert prepared.body == wire.body
        assert (prepared.body is wire.body) == (size >= 65_536)


def test_a_preparer_of_one_of_several_keys_sends_it() -> None:
    other, provider = preparer(CHAT).with_key(CHAT, "second-key")
    assert (provider.api_key, CHAT.api_key) == ("second-key", "k")
    head = other.prepare(hello(), stream=False)[0].head
    assert (b"authorization", b"Bearer second-key") in head.headers


def test_an_account_is_an_address_and_a_key() -> None:
    def ask() -> str:
        return "asked"

    asked = ms.OpenAIChat(ask, "https://h.test/v1", name="asked")
    one = preparer(CHAT, asked)
    assert [(str(origin), key) for origin, key in map(one.account, (CHAT, asked))] == [
        ("http://127.0.0.1:9", "k"),
        ("https://h.test:443", ask),
    ]


def test_only_a_request_is_prepared() -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        preparer(CHAT).prepare("hello", stream=False)  # type: ignore[arg-type]
    assert str(raised.value) == "request: must be a Request, not str"


SESSION = "ada@example.org"
HASHED = hashlib.sha256(SESSION.encode()).hexdigest()[:32]

ROWS_OF_SESSIONS: list[tuple[ms.Provider, str, str]] = [
    (ms.OpenAIChat("key-123456"), "prompt_cache_key", HASHED),
    (ms.OpenAIChat("key-123456", profile="azure", base_url="https://a.openai.azure.com/openai/v1"),
     "prompt_cache_key", HASHED),
    (ms.OpenAIChat("key-123456", profile="mistral"), "prompt_cache_key", HASHED),
    (ms.OpenAIChat("key-123456", profile="openrouter"), "session_id", HASHED),
    (ms.OpenAIChat("key-123456", profile="xai"), "x-grok-conv-id", HASHED),
    (ms.OpenAIChat("key-123456", profile="fireworks"), "x-session-affinity", HASHED),
    (ms.OpenAIChat(profile="vllm"), "x-session-id", SESSION),
    (ms.OpenAIChat(profile="sglang"), "x-smg-routing-key", SESSION),
    (ms.OpenAIChat(profile="dynamo"), "x-dynamo-session-id", SESSION),
    (ms.OpenAIChat(profile="litellm"), "x-litellm-session-id", SESSION),
    (ms.OpenAIResponses("key-123456"), "prompt_cache_key", HASHED),
    (ms.OpenAIResponses("key-123456", profile="xai-responses"), "prompt_cache_key", HASHED),
    (ms.OpenAIResponses("key-123456", profile="openrouter-responses"), "x-session-id", HASHED),
]  # fmt: skip


def sent_with(provider: ms.Provider, *, stream: bool = False, **options: object) -> dict[str, object]:
    """Return the headers and members of a request, as it would be sent."""
    preparer = Preparer(addressed([provider]), {}, EngineLimits(), str, lambda: 0.0)
    request = ms.Request(f"{provider.name}/m", [ms.Message.user("hello")], **options)  # type: ignore[arg-type]
    prepared, _ = preparer.prepare(request, stream=stream)
    headers = {name.decode().lower(): value.decode() for name, value in prepared.head.headers}
    return {**json.loads(prepared.body), **headers}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("provider", "name", "value"), ROWS_OF_SESSIONS)
def test_a_session_is_sent_where_it_is_read(provider: ms.Provider, name: str, value: str, stream: bool) -> None:
    with_session, without = sent_with(provider, session=SESSION, stream=stream), sent_with(provider, stream=stream)
    assert with_session == {**without, name: value}
    assert name not in without


@pytest.mark.parametrize("kind", [ms.OpenAIChat, ms.OpenAIResponses, ms.Anthropic, ms.Gemini, ms.GeminiInteractions])
@pytest.mark.parametrize("place", ["header", "member", None])
def test_a_quirk_has_the_session_s_place_in_every_dialect(kind: type[ms.Provider], place: str | None) -> None:
    field = None if place is None else ms.SessionField(**{place: "x-chat"}, hashed=False)  # type: ignore[arg-type]
    profile = ms.Profile(name="own", dialect=kind.dialect, base_url="http://host", quirks=ms.Quirks(session=field))
    provider = kind("key-123456", profile=profile)
    assert sent_with(provider, session=SESSION).get("x-chat") == (SESSION if place else None)


@pytest.mark.parametrize("session", ["two words", "Zoë", "a\r\nb: c", "\ud800", "x" * 129])
def test_a_session_that_fits_into_no_header_is_hashed(session: str) -> None:
    sent = sent_with(ms.OpenAIChat(profile="vllm"), session=session)["x-session-id"]
    assert sent == hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    assert sent_with(ms.OpenAIChat(profile="vllm"), session="x" * 128)["x-session-id"] == "x" * 128


VERTEX = "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/l"


@pytest.mark.parametrize("provider", [ms.Gemini("key-123456"), ms.Anthropic("key-123456", VERTEX)])
def test_a_path_of_half_a_surrogate_pair_is_refused(provider: ms.Provider) -> None:
    preparer = Preparer(addressed([provider]), {}, EngineLimits(), str, lambda: 0.0)
    with pytest.raises(ms.InvalidRequestError, match="model: has half of a surrogate pair"):
        preparer.prepare(ms.Request(f"{provider.name}/m\ud83d", "hello", max_output_tokens=9), stream=False)


def test_the_program_s_member_or_header_replaces_the_session() -> None:
    body = sent_with(ms.OpenAIChat("key-123456"), session=SESSION, extra_body={"prompt_cache_key": "mine"})
    assert body["prompt_cache_key"] == "mine"
    head = sent_with(ms.OpenAIChat(profile="vllm"), session=SESSION, extra_headers={"X-Session-ID": "mine"})
    assert head["x-session-id"] == "mine"


async def test_a_session_outlives_a_key_and_shares_its_head() -> None:
    keys = iter(["key-number-1", "key-number-2"])
    async with open_peer(GOOD) as peer:
        provider = ms.OpenAIChat(lambda: next(keys), peer.url, profile="vllm", idempotency_header="X-Once")
        async with ms.open_engine([provider]) as engine:
            for session in ("chat-1", "chat-2"):
                await engine.request(hello(session=session))
    assert [head[-4] for head in peer.heads] == [
        "authorization: Bearer key-number-1",
        "authorization: Bearer key-number-2",
    ]
    assert [head[-3] for head in peer.heads] == ["x-session-id: chat-1", "x-session-id: chat-2"]


@pytest.mark.parametrize("options", [{}, {"header": "a", "member": "b"}])
def test_a_session_has_one_place(options: dict[str, str]) -> None:
    with pytest.raises(ms.InvalidRequestError, match="SessionField: takes a header or a member"):
        ms.SessionField(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        ("x-session-id", "quirks.session: must be a SessionField"),
        (ms.SessionField(header="no header"), "profile.quirks.session.header: "),
        (ms.SessionField(header="Host"), "profile.quirks.session.header: 'Host' has another use"),
    ],
)
async def test_a_wrong_place_of_the_session_is_refused(field: object, complaint: str) -> None:
    profile = ms.Profile(name="own", dialect="openai-chat", base_url="http://host", quirks=ms.Quirks(session=field))  # type: ignore[arg-type]
    with pytest.raises(ms.InvalidRequestError, match=complaint):
        async with ms.open_engine([ms.OpenAIChat("key-123456", profile=profile)]):
            pass
