"""A signature: a function of the program gets each attempt as it is sent, and returns headers."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import manystream as ms
from tests.support.peers import NO_RETRY, answer, chat_answer, error_body, hello, open_peer, replies

SECRET = "canary-signature-"
SOON = ms.Retry(base=0.001, cap=0.001, jitter=0.0)
GOOD = answer(chat_answer("hi"))


class Signer:
    """Signs by counting; keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str, dict[str, str], bytes]] = []

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        self.given.append((method, url, dict(headers), body))
        digest = hashlib.sha256(body).hexdigest()
        return {**headers, "X-Digest": digest, "Authorization": f"AWS4 Signature={SECRET}{len(self.given)}-abcdef"}


async def test_each_attempt_is_signed_as_it_is_sent() -> None:
    signer, quoting = Signer(), answer(error_body(f"busy {SECRET}1-abcdef"), status="503 Busy")
    refused = answer(error_body(f"bad {SECRET}1-abcdef and {SECRET}2-abcdef"), status="400 No")
    async with open_peer(replies(quoting, refused)) as peer:
        provider = ms.OpenAIChat(
            base_url=f"{peer.url}?v=1", sign=signer, headers={"X-A": "b"}, idempotency_header="X-Once"
        )
        async with ms.open_engine([provider], retry=SOON) as engine:
            completion = await engine.start_request(hello()).wait()
    assert completion.attempts == 2
    assert "canary" not in f"{completion!r} {completion.error!r} {completion.error and completion.error.body!r}"
    for number, ((method, url, headers, body), head, request) in enumerate(
        zip(signer.given, peer.heads, peer.requests, strict=True), 1
    ):
        sent = request.partition(b"\r\n\r\n")[2]
        assert (method, url, body) == ("POST", f"{peer.url}/chat/completions?v=1", sent)
        lines = [f"{name}: {value}" for name, value in headers.items()]
        assert lines[0] == f"Host: 127.0.0.1:{peer.port}"
        assert not any(line.lower().startswith(("authorization", "content-length")) for line in lines)
        assert head[0] == "POST /v1/chat/completions?v=1 HTTP/1.1"
        assert head[1] == lines[0]
        assert sorted(head[1:]) == sorted(
            [*lines, f"X-Digest: {hashlib.sha256(sent).hexdigest()}",
            f"Authorization: AWS4 Signature={SECRET}{number}-abcdef", f"Content-Length: {len(sent)}"]
        )  # fmt: skip


@pytest.mark.parametrize("key", ["the-key-1", lambda: "the-key-1", lambda: ms.AccessToken("the-key-1")])
async def test_a_key_is_signed_as_well(key: ms.APIKey) -> None:
    seen: list[str] = []

    def sign(_method: str, _url: str, headers: Mapping[str, str], _body: bytes) -> dict[str, str]:
        seen.append(headers["authorization"])
        return {"X-Gateway": "g"}

    async with open_peer(replies(GOOD)) as peer, ms.open_engine([ms.OpenAIChat(key, peer.url, sign=sign)]) as engine:
        await engine.request(hello())
    assert seen == ["Bearer the-key-1"]
    assert {"authorization: Bearer the-key-1", "X-Gateway: g"} <= set(peer.heads[0])


async def test_without_a_key_none_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-of-the-environment")
    signer = Signer()
    async with (
        open_peer(replies(GOOD)) as peer,
        ms.open_engine([ms.OpenAIChat(base_url=peer.url, sign=signer)]) as engine,
    ):
        await engine.request(hello())
    assert "canary-of-the" not in str(peer.requests)


def returning(value: object) -> Callable[..., object]:
    return lambda *_: value


def raising(error: BaseException) -> Callable[..., object]:
    def sign(*_: object) -> object:
        raise error

    return sign


class Unreadable(dict[str, str]):
    """A mapping of headers that raises when it is read."""

    def items(self) -> Any:
        raise ValueError("canary in the middle of the headers")


class Later(Mapping[str, str]):
    """A mapping of headers that raises after the first one."""

    def __getitem__(self, name: str) -> str:
        return "a"

    def __iter__(self) -> Iterator[str]:
        yield "X-A"
        raise RuntimeError("canary in the middle of the headers")

    def __len__(self) -> int:
        return 2


class OddText(str):
    """A text whose methods raise."""

    def lower(self) -> str:
        raise ValueError("canary in a header")

    __hash__ = __eq__ = encode = lower  # type: ignore[assignment]


FAILURES: dict[str, tuple[Callable[..., object], str]] = {
    "raises": (raising(ValueError("the-key-1 is old")), "raised ValueError"),
    "unreadable": (returning(Unreadable(a="b")), "returned Unreadable, which raised ValueError when it was read"),
    "half": (returning(Later()), "returned Later, which raised RuntimeError when it was read"),
    "items": (returning(type("Odd", (dict,), {"items": lambda _: [1]})()),
        "returned headers whose names and values are not all texts"),
    "nothing": (returning(None), "returned NoneType, not a mapping of headers"),
    "bytes": (returning({"a": b"canary"}), "returned headers whose names and values are not all texts"),
    "line break": (returning({"a": "canary\r\nb: c"}), "returned a header that cannot be sent"),
    "host": (returning({"host": "canary.example"}), "returned another host, which is decided by the transport"),
    "length": (returning({"Content-Length": "1"}),
        "returned another Content-Length, which is decided by the transport"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_signature_cannot_be_is_an_error_of_its_call(
    name: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sign, words = FAILURES[name]
    async with open_peer(replies()) as peer:
        provider = ms.OpenAIChat("the-key-1", peer.url, name="peer", sign=sign)  # type: ignore[arg-type]
        async with ms.open_engine([provider], retry=SOON) as engine:
            call = (engine.start_stream if stream else engine.start_request)(hello())
            error = (await call.wait()).error
            assert engine.statistics().connections == {}
    assert (error.category, error.retryable) == (ms.ErrorCategory.AUTH, False)
    assert error.message == f"the sign function of 'peer' {words}"
    shown = "".join(traceback.format_exception(error))
    assert "canary" not in shown + caplog.text
    assert "the-key-1" not in str(error.__cause__)
    assert peer.requests == []


async def test_a_text_of_a_type_of_its_own_is_sent_as_it_is() -> None:
    async with open_peer(replies(GOOD)) as peer:
        provider = ms.OpenAIChat(base_url=peer.url, sign=lambda *_: {"X-A": OddText("b")})
        async with ms.open_engine([provider]) as engine:
            await engine.request(hello())
    assert "X-A: b" in peer.heads[0]


async def test_a_signature_can_cancel_its_own_call() -> None:
    calls: list[ms.Call] = []

    def sign(*_: object) -> dict[str, str]:
        calls[0].cancel()
        return {}

    async with (
        open_peer(replies()) as peer,
        ms.open_engine([ms.OpenAIChat(base_url=peer.url, sign=sign)], retry=NO_RETRY) as engine,
    ):
        calls.append(engine.start_request(hello()))
        completion = await calls[0].wait()
    assert completion.error_category is ms.ErrorCategory.CANCELLED
    assert peer.requests == []


async def test_two_signatures_at_one_address_share_no_limits() -> None:
    async with open_peer(replies(GOOD)) as peer:
        providers = [ms.OpenAIChat(base_url=peer.url, name=name, sign=Signer()) for name in ("one", "two")]
        async with ms.open_engine(providers, traffic=ms.Traffic()) as engine:
            for name in ("one", "two"):
                await engine.request(ms.Request(f"{name}/m", [ms.Message.user("hello")]))
            assert len(engine.statistics().traffic.limiters) == 2
