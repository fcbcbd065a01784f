"""The doors of companies: Azure, Google Cloud and AWS. Each request is compared with that of the official SDK, sent to
the same server, and each token and signature is checked by a server as the cloud checks it."""

import asyncio
import functools
import json
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
import pytest
import trio

import manystream as ms
from tests.support.blocks import DOCS, read_blocks
from tests.support.peers import NO_RETRY, answer, error_body, open_peer, replies

botocore = pytest.importorskip("botocore.auth", reason="botocore is not installed")
awsrequest = pytest.importorskip("botocore.awsrequest")
credentials = pytest.importorskip("botocore.credentials")
google_credentials = pytest.importorskip("google.oauth2.credentials", reason="google-auth is not installed")
providers = pytest.importorskip("openai.providers.bedrock")

TOKEN = "canary-token-of-the-cloud"
REGION = "us-east-1"
ACCESS = credentials.Credentials("AKIDEXAMPLE", "canary-secret-access-key", "canary-session-token")
STATIC = {"access_key_id": ACCESS.access_key, "secret_access_key": ACCESS.secret_key, "session_token": ACCESS.token}


async def fetch_token() -> ms.AccessToken:
    await trio.sleep(0)
    return ms.AccessToken(TOKEN)


def sigv4(service: str) -> ms.Sign:
    """A signature as docs/guide/companies.md has it."""

    def sign(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        request = awsrequest.AWSRequest(method=method, url=url, headers=dict(headers), data=body)
        botocore.SigV4Auth(ACCESS, service, REGION).add_auth(request)
        return dict(request.headers.items())

    return sign


@dataclass
class Sent:
    """One request as a server receives it."""

    method: str
    target: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes = field(repr=False, default=b"")

    @classmethod
    def read(cls, request: bytes) -> "Sent":
        head, _, body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return cls(method, target, headers, json.loads(body), body)


SEEN = replies(answer(error_body("seen"), status="400 Seen"))


@dataclass
class Door:
    """One way into a cloud.

    path: the base URL's path.
    provider: makes our provider for a base URL.
    sdk: makes the SDK's client for a base URL.
    """

    path: str
    provider: Callable[[str], ms.Provider]
    sdk: Callable[[str], Any]
    sdk_path: str | None = None
    responses: bool = False
    model: str = "claude-sonnet-4-5@20250929"


def openai_bedrock(endpoint: str, url: str, **options: Any) -> Any:
    provider = providers.bedrock(endpoint=endpoint, base_url=url, region=REGION, **options)
    return openai.OpenAI(provider=provider, max_retries=0)


VERTEX = "/v1/projects/p-1/locations/us-east5"
DOORS: dict[str, Door] = {
    "azure deployment key": Door(
        "/openai/deployments/d-1",
        lambda url: ms.OpenAIChat(TOKEN, url, profile="azure-deployment"),
        lambda url: openai.AzureOpenAI(api_key=TOKEN, base_url=url, api_version="2024-10-21", max_retries=0),
    ),
    "azure entra": Door(
        "/openai/v1",
        lambda url: ms.OpenAIChat(fetch_token, url, profile="azure"),
        lambda url: openai.OpenAI(api_key=lambda: TOKEN, base_url=url, max_retries=0),
    ),
    "azure entra responses": Door(
        "/openai/v1",
        lambda url: ms.OpenAIResponses(fetch_token, url, profile="azure-responses"),
        lambda url: openai.OpenAI(api_key=lambda: TOKEN, base_url=url, max_retries=0),
        responses=True,
    ),
    "azure deployment entra": Door(
        "/openai/deployments/d-1",
        lambda url: ms.OpenAIChat(fetch_token, url, profile="azure-deployment"),
        lambda url: openai.AzureOpenAI(
            azure_ad_token_provider=lambda: TOKEN, base_url=url, api_version="2024-10-21", max_retries=0
        ),
    ),
    "foundry key": Door(
        "/anthropic",
        lambda url: ms.Anthropic(TOKEN, url, profile="foundry"),
        lambda url: anthropic.AnthropicFoundry(api_key=TOKEN, base_url=url, max_retries=0),
    ),
    "foundry entra": Door(
        "/anthropic",
        lambda url: ms.Anthropic(fetch_token, url, profile="foundry"),
        lambda url: anthropic.AnthropicFoundry(
            azure_ad_token_provider=lambda: TOKEN, base_url=url, max_retries=0
        ),
    ),
    "claude on vertex": Door(
        VERTEX,
        lambda url: ms.Anthropic(fetch_token, url, profile="vertex-anthropic"),
        lambda url: anthropic.AnthropicVertex(
            region="us-east5", project_id="p-1", access_token=TOKEN, base_url=url, max_retries=0
        ),
        sdk_path="/v1",
    ),
    "claude on bedrock": Door(
        "/anthropic",
        lambda url: ms.Anthropic(TOKEN, url, profile="bedrock-anthropic"),
        lambda url: anthropic.AnthropicBedrockMantle(
            api_key=TOKEN, aws_region=REGION, base_url=url, max_retries=0
        ),
    ),
    "bedrock chat key": Door(
        "/openai/v1",
        lambda url: ms.OpenAIChat(TOKEN, url, profile="bedrock-mantle"),
        lambda url: openai_bedrock("mantle", url, api_key=TOKEN),
    ),
    "bedrock chat short-term": Door(
        "/openai/v1",
        lambda url: ms.OpenAIChat(fetch_token, url, profile="bedrock-mantle"),
        lambda url: openai_bedrock("mantle", url, token_provider=lambda: TOKEN),
    ),
    "bedrock responses key": Door(
        "/openai/v1",
        lambda url: ms.OpenAIResponses(TOKEN, url, profile="bedrock-responses"),
        lambda url: openai_bedrock("runtime", url, api_key=TOKEN),
        responses=True,
    ),
    "bedrock chat sigv4": Door(
        "/openai/v1",
        lambda url: ms.OpenAIChat(base_url=url, profile="bedrock-mantle", sign=sigv4("bedrock-mantle")),
        lambda url: openai_bedrock("mantle", url, **STATIC),
    ),
    "bedrock responses sigv4": Door(
        "/openai/v1",
        lambda url: ms.OpenAIResponses(base_url=url, profile="bedrock-responses", sign=sigv4("bedrock")),
        lambda url: openai_bedrock("runtime", url, **STATIC),
        responses=True,
    ),
}  # fmt: skip

IDENTITY = ("authorization", "api-key", "x-api-key", "x-amz-security-token", "anthropic-version")
"""The headers that a cloud reads."""


def ask(client: Any, model: str, *, stream: bool, responses: bool) -> None:
    """Make a call with an official client. It fails, because the server answers with an error."""
    arguments: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
    if responses:
        create, arguments = client.responses.create, {"input": "hello"}
    elif isinstance(client, openai.OpenAI):
        create = client.chat.completions.create
    else:
        create, arguments = client.messages.create, {**arguments, "max_tokens": 9}
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
        create(model=model, stream=stream, **arguments)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", DOORS)
async def test_a_request_is_addressed_as_the_sdk_s(name: str, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    door = DOORS[name]
    async with open_peer(SEEN) as peer:
        origin = f"http://127.0.0.1:{peer.port}"
        client = door.sdk(origin + (door.path if door.sdk_path is None else door.sdk_path))
        calling = functools.partial(ask, client, door.model, stream=stream, responses=door.responses)
        await trio.to_thread.run_sync(calling)
        provider = door.provider(origin + door.path)
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            request = ms.Request(f"{provider.name}/{door.model}", [ms.Message.user("hello")], max_output_tokens=9)
            completion = await (engine.start_stream if stream else engine.start_request)(request).wait()
    assert completion.http_status == 400
    theirs, ours = map(Sent.read, peer.requests)
    assert (ours.method, ours.target) == (theirs.method, theirs.target)
    assert identity(ours) == identity(theirs)
    assert ours.headers["content-type"] == theirs.headers["content-type"]
    assert said(ours) == said(theirs)
    assert "canary" not in repr(completion)


def said(sent: Sent) -> list[object]:
    """What the body says about the model and the form of the answer, and whether it has a version. The SDK's version is
    that of the shapes of its types."""
    return [sent.body.get("model"), bool(sent.body.get("stream")), "anthropic_version" in sent.body]


def identity(sent: Sent) -> dict[str, str]:
    """The headers with which a cloud identifies the caller. Signatures differ by the headers that are signed."""
    found = {name: sent.headers[name] for name in IDENTITY if name in sent.headers}
    if found.get("authorization", "").startswith("AWS4"):
        found["authorization"] = found["authorization"].partition("SignedHeaders")[0]
    if "x-api-key" in found:
        found.pop("api-key", None)  # Foundry's SDK sends the key twice, for an older form
    if "anthropic-version" in found:
        found["anthropic-version"] = "that of its shapes"
    return found


def is_signed(sent: Sent, service: str) -> bool:
    """Whether a request has a valid signature (AWS's Signature Version 4), computed from what was received."""
    match = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/(\d{8})/([\w-]+)/([\w-]+)/aws4_request,"
        r" SignedHeaders=([\w;-]+), Signature=([0-9a-f]{64})",
        sent.headers.get("authorization", ""),
    )
    if match is None or (match[2], match[3]) != (REGION, service):
        return False
    signer = botocore.SigV4Auth(ACCESS, service, REGION)
    request = awsrequest.AWSRequest(
        method=sent.method, url=f"http://{sent.headers['host']}{sent.target}", data=sent.raw,
        headers={name: sent.headers[name] for name in match[4].split(";")},
    )  # fmt: skip
    request.context["timestamp"] = sent.headers["x-amz-date"]
    expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return "host" in match[4].split(";") and bool(expected == match[5])


SIGNED: dict[str, tuple[Callable[[str, ms.Sign], ms.Provider], str]] = {
    "chat": (lambda url, sign: ms.OpenAIChat(base_url=f"{url}/openai/v1", sign=sign), "bedrock-mantle"),
    "responses": (lambda url, sign: ms.OpenAIResponses(base_url=f"{url}/openai/v1", sign=sign), "bedrock"),
    "anthropic": (lambda url, sign: ms.Anthropic(base_url=f"{url}/anthropic", sign=sign), "bedrock-mantle"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", SIGNED)
async def test_a_server_accepts_the_signature_of_each_attempt(dialect: str, stream: bool) -> None:
    make, service = SIGNED[dialect]
    valid: list[bool] = []

    def respond(request: bytes) -> bytes:
        valid.append(is_signed(Sent.read(request), service))
        return answer(error_body("busy"), status="503 Busy")

    async with open_peer(replies(respond)) as peer:
        provider = make(f"http://127.0.0.1:{peer.port}", sigv4(service))
        retry = ms.Retry(max_attempts=2, base=0.001, cap=0.001, jitter=0.0)
        async with ms.open_engine([provider], retry=retry) as engine:
            request = ms.Request(f"{provider.name}/m", [ms.Message.user("zażółć")], max_output_tokens=9, session="s-1")
            completion = await (engine.start_stream if stream else engine.start_request)(request).wait()
    assert valid == [True, True]
    assert completion.http_status == 503
    assert "canary" not in repr(completion)


def test_a_server_refuses_a_signature_of_another_body() -> None:
    headers = {"Host": "127.0.0.1:9", "content-type": "application/json"}
    signed = sigv4("bedrock")("POST", "http://127.0.0.1:9/openai/v1/chat/completions?a=b%20c", headers, b'{"a":1}')
    received = {name.lower(): value for name, value in signed.items()}
    sent = Sent("POST", "/openai/v1/chat/completions?a=b%20c", received, {}, b'{"a":1}')
    assert is_signed(sent, "bedrock")
    assert not is_signed(Sent(sent.method, sent.target, received, {}, b'{"a":2}'), "bedrock")
    assert not is_signed(sent, "bedrock-mantle")


@pytest.mark.parametrize("name", ["azure entra", "foundry entra", "claude on vertex", "bedrock chat short-term"])
async def test_a_token_that_the_cloud_has_revoked_is_replaced(name: str) -> None:
    current, asked = ["canary-old-token", "canary-new-token"], 0

    async def token() -> ms.AccessToken:
        nonlocal asked
        asked += 1
        return ms.AccessToken(current[asked - 1])

    def respond(request: bytes) -> bytes:
        known = Sent.read(request).headers.get("authorization") == "Bearer canary-new-token"
        return answer(error_body("seen" if known else "expired"), status="400 Seen" if known else "401 Expired")

    async with open_peer(replies(respond)) as peer:
        made = DOORS[name].provider(f"http://127.0.0.1:{peer.port}{DOORS[name].path}")
        made.api_key = token
        async with ms.open_engine([made]) as engine:
            request = ms.Request(f"{made.name}/m", [ms.Message.user("hello")], max_output_tokens=9)
            completion = await engine.start_request(request).wait()
    assert (completion.http_status, completion.attempts, asked) == (400, 2, 2)
    assert "canary" not in repr(completion)


async def test_gemini_on_vertex_takes_application_default_credentials() -> None:
    """Credentials of google-auth are renewed in a thread, as docs/guide/companies.md does."""
    refreshed: list[str] = []

    class Adc(google_credentials.Credentials):  # type: ignore[misc,name-defined]
        def refresh(self, request: object) -> None:
            refreshed.append(type(request).__name__)
            self.token = TOKEN

    adc = Adc(None)

    async def token() -> ms.AccessToken:
        await trio.to_thread.run_sync(adc.refresh, object())
        return ms.AccessToken(adc.token)

    async with open_peer(SEEN) as peer:
        provider = ms.Gemini(token, f"http://127.0.0.1:{peer.port}{VERTEX}")
        async with ms.open_engine([provider]) as engine:
            calls = [engine.start_request(ms.Request("gemini-2.5-pro", [ms.Message.user("hello")])) for _ in range(3)]
            for call in calls:
                await call.wait()
    assert len(refreshed) == 1
    assert {sent.target for sent in map(Sent.read, peer.requests)} == {
        f"{VERTEX}/publishers/google/models/gemini-2.5-pro:generateContent"
    }
    assert {sent.headers["authorization"] for sent in map(Sent.read, peer.requests)} == {f"Bearer {TOKEN}"}
    assert not any("x-goog-api-key" in sent.headers for sent in map(Sent.read, peer.requests))


@pytest.mark.parametrize(
    ("kind", "url", "profile"),
    [
        (ms.Anthropic, "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/l", "vertex-anthropic"),
        (ms.Anthropic, "https://aiplatform.eu.rep.googleapis.com/v1/projects/p/locations/eu", "vertex-anthropic"),
        (ms.Anthropic, "https://aiplatform.googleapis.com/v1/projects/p/locations/global", "vertex-anthropic"),
        (ms.Anthropic, "https://bedrock-mantle.eu-west-1.api.aws/anthropic", "bedrock-anthropic"),
        (ms.Anthropic, "https://r.services.ai.azure.com/anthropic", "foundry"),
        (ms.OpenAIResponses, "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1", "bedrock-responses"),
        (ms.OpenAIChat, "https://bedrock-mantle.us-west-2.api.aws/openai/v1", "bedrock-mantle"),
    ],
)
def test_a_cloud_is_known_by_its_address(kind: type[ms.Provider], url: str, profile: str) -> None:
    assert kind("key-123456", url).profile.name == profile


@pytest.mark.parametrize("end", ["", "/publishers/anthropic", "/publishers/anthropic/models/m:streamRawPredict"])
async def test_the_whole_url_of_claude_on_vertex_works(end: str) -> None:
    async with open_peer(SEEN) as peer:
        provider = ms.Anthropic(TOKEN, f"http://127.0.0.1:{peer.port}{VERTEX}{end}", profile="vertex-anthropic")
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            await engine.start_request(ms.Request("claude-x", [ms.Message.user("hello")])).wait()
            with pytest.raises(ms.InvalidRequestError, match=r"model: 'a/\.\./b' is no model's name"):
                engine.start_request(ms.Request(f"{provider.name}/a/../b", [ms.Message.user("hello")]))
    assert [sent.target for sent in map(Sent.read, peer.requests)] == [
        f"{VERTEX}/publishers/anthropic/models/claude-x:rawPredict"
    ]
    assert Sent.read(peer.requests[0]).body["anthropic_version"] == "vertex-2023-10-16"


# --- the programs of docs/guide/companies.md ---


class Tokens:
    """Credentials of a cloud that a test has in place of an account."""

    def __init__(self, *_: object) -> None:
        self.token = ""
        self.expiry = datetime(2100, 1, 1)  # google-auth's are naive, in UTC

    def get_token(self, *scopes: str) -> types.SimpleNamespace:
        assert scopes == ("https://cognitiveservices.azure.com/.default",)
        return types.SimpleNamespace(token=TOKEN, expires_on=4102444800)

    def refresh(self, request: object) -> None:
        self.token = TOKEN


def module(name: str, **members: object) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(members)
    return made


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clouds' packages, as far as they need an account. botocore is real, with keys from the environment."""
    google = module("google.auth", default=lambda scopes: (Tokens(), "my-project"))
    requests = module("google.auth.transport.requests", Request=object)
    transport = module("google.auth.transport", requests=requests)
    vars(google)["transport"] = transport
    for made in (
        module("azure.identity", DefaultAzureCredential=Tokens), module("azure"), google, transport, requests,
        module("google", auth=google), module("aws_bedrock_token_generator", provide_token=lambda region: TOKEN),
    ):  # fmt: skip
        monkeypatch.setitem(sys.modules, made.__name__, made)
    # The page's programs run on asyncio, and the test on trio.
    on_thread = lambda work, *given, **named: trio.to_thread.run_sync(functools.partial(work, *given, **named))  # noqa: E731
    monkeypatch.setattr(asyncio, "to_thread", on_thread)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ACCESS.secret_key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", ACCESS.token)


PROGRAMS: dict[str, tuple[str, str]] = {
    "def entra": ("azure", "/openai/v1/chat/completions"),
    "gemini = ms.Gemini(adc": ("gemini", "/v1/projects/my-project/locations/us-east5/publishers/google/models/m:gen"),
    "claude = ms.Anthropic(adc": ("claude", f"{VERTEX.replace('p-1', 'my-project')}/publishers/anthropic/models/m:raw"),
    "def short_term": ("bedrock", "/openai/v1/responses"),
    "def sign": ("claude", "/anthropic/v1/messages"),
}


@pytest.mark.usefixtures("clouds")
@pytest.mark.parametrize("words", PROGRAMS)
async def test_the_programs_of_the_page_are_accepted(words: str) -> None:
    name, path = PROGRAMS[words]
    blocks = read_blocks((DOCS / "guide" / "companies.md").read_text("utf-8"))
    code = next(block.code for block in blocks if words in block.code and block.reason is not None)
    names: dict[str, Any] = {}
    exec(compile(code, "companies.md", "exec"), names)  # our own page
    provider: ms.Provider = names[name]
    async with open_peer(SEEN) as peer:
        provider.base_url = f"http://127.0.0.1:{peer.port}{urlsplit(provider.base_url).path}"
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            request = ms.Request(f"{provider.name}/m", [ms.Message.user("hello")], max_output_tokens=9)
            completion = await engine.start_request(request).wait()
    assert completion.http_status == 400, completion.error
    (sent,) = map(Sent.read, peer.requests)
    assert sent.target.startswith(path)
    if name == "claude" and provider.sign is not None:
        assert is_signed(sent, "bedrock-mantle")
    else:
        assert sent.headers["authorization"] == f"Bearer {TOKEN}"
        assert not {"api-key", "x-api-key", "x-goog-api-key"} & set(sent.headers)
