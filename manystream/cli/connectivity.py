"""A connectivity check of one provider. It runs the steps of a call with the engine's own code, and reports each one.

The steps are address (if the environment has one), key, proxy, DNS, connect, tunnel, TLS, HTTP. The request asks for
the list of models, with the same key as a call. A server that has none gets a call without a model and a prompt, which
shows whether the address of calls is right. Both cost nothing.
"""

from __future__ import annotations

import enum
import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import trio

from .. import InvalidRequestError, Provider
from ..engine.embedding import Prepared, Redaction, add_address, error_of, prepare_alone
from ..engine.request.addresses import addressed, url_in
from ..transport.dial import dial
from ..transport.errors import Phase, TransportError, URLError
from ..transport.exchange import RawHeaders, WireHead
from ..transport.http1 import Connection
from ..transport.proxy import ProxyConfig, choose_proxy
from ..transport.task_loop import make_loop
from ..transport.tls import TLSConfig, TLSConfigError, make_context
from ..transport.tls_socket import TLSSocket
from ..transport.trio_backend import TrioBackend
from ..transport.url import Origin
from .output.terminal import duration, harmless, one_line

MODELS_PATH = re.compile(r"/(?:chat/completions|responses|messages|interactions|models/[^/]*)$")
"""The end of a request's path in each dialect. The list of models has the same path with another end."""

MOST_BODY_BYTES = 16 * 1024
"""The most bytes of the answer that are read."""
MOST_MESSAGE_CHARACTERS = 160
"""The most characters of a server's error message that are shown."""
CERTIFICATE_DAYS = 14
"""A certificate that expires within so many days is reported with a note."""


class Verdict(enum.Enum):
    """The result of a step."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(slots=True, frozen=True)
class Finding:
    """The result of one step for one provider."""

    verdict: Verdict
    step: str
    text: str


STEPS: dict[Phase, str] = {
    Phase.DNS: "DNS",
    Phase.CONNECT: "connect",
    Phase.PROXY: "tunnel",
    Phase.TLS: "TLS",
    Phase.SEND: "answer",
    Phase.HEAD: "answer",
    Phase.BODY: "answer",
}

ANSWERS: dict[int, tuple[Verdict, str]] = {
    401: (Verdict.FAIL, "the key was refused"),
    403: (Verdict.FAIL, "the key lacks a permission, or this region is not served"),
    404: (Verdict.NOTE, "the server answers, but lists no models here; is the base URL right?"),
    405: (Verdict.NOTE, "the server answers, but lists no models, so the key was not tried"),
    407: (Verdict.FAIL, "a proxy requires a password"),
    429: (Verdict.NOTE, "the server answers, and reports that the rate limit is reached"),
}
"""HTTP status → its verdict and meaning. Any other status below 300 is a success, and from 300 on a failure."""


async def check_provider(provider: Provider, environment: Mapping[str, str], limit: float) -> list[Finding]:
    """Check one provider and return a finding for each step, up to the first that fails.

    limit: the longest time for all steps together, in seconds.
    """
    check = _ConnectivityCheck(provider, environment)
    with trio.move_on_after(limit) as scope:
        await check.run()
    if scope.cancelled_caught:
        check.find(Verdict.FAIL, f"not finished within {limit:g} s")
    return check.findings


@dataclass(slots=True, eq=False, repr=False)
class _ConnectivityCheck:
    """A running check of one provider."""

    _provider: Provider
    _environment: Mapping[str, str]
    findings: list[Finding] = field(default_factory=list[Finding], init=False)  # the results of the steps so far
    _step: str = field(default="key", init=False)
    _secrets: Redaction | None = field(default=None, init=False)
    _since: float = field(default=0.0, init=False)

    async def run(self) -> None:
        """Run the steps until one fails."""
        try:
            prepared = self._prepare()
            context, proxy = self._prepare_dial(prepared.origin)
            sock = await dial(prepared.origin, tls_context=context, proxy=proxy, on_phase=self._begin_phase)
            self._end_step()
            with sock:
                if isinstance(sock, TLSSocket):
                    self._look_at_certificate(sock)
                self._begin("answer")
                answer = await _exchange(sock, _models_head(prepared.head), b"", str(prepared.origin))
            finding = self._judge(prepared, answer)
            if answer.lists_nothing:
                sock = await dial(prepared.origin, tls_context=context, proxy=proxy)
                with sock:
                    called = await _exchange(sock, prepared.head, b"{}", str(prepared.origin))
                finding = self._judge_call(prepared, called) or finding
            self.find(*finding)
        except (InvalidRequestError, URLError, TLSConfigError) as error:
            self.find(Verdict.FAIL, str(error))
        except TransportError as error:
            self._step = STEPS.get(error.phase, self._step)
            self.find(Verdict.FAIL, harmless(str(error)))

    def find(self, verdict: Verdict, text: str) -> None:
        """Record the result of the current step. The key is removed from the text: a server may repeat it."""
        if self._secrets is not None:
            text = self._secrets.hide_parts(text)
        self.findings.append(Finding(verdict, self._step, text))

    # --- steps ---

    def _prepare(self) -> Prepared:
        """Prepare a request as a call does, with the key."""
        checked = addressed([self._provider], self._environment)
        ((provider, base),) = checked
        if provider.base_url != self._provider.base_url:
            self._step = "address"
            self.find(Verdict.OK, f"{base}, from {url_in(self._environment, self._provider.profile)[0]}")
            self._step = "key"
        prepared = prepare_alone(checked[0], self._environment)
        self._secrets = prepared.secrets
        variables = [
            name for name in provider.profile.key_variables if self._environment.get(name) == prepared.secrets.key
        ]
        where = variables[0] if variables else "the credentials file"
        self.find(Verdict.OK, f"from {where}" if prepared.secrets.key else "none is needed")
        return prepared

    def _prepare_dial(self, origin: Origin) -> tuple[ssl.SSLContext | None, ProxyConfig | None]:
        self._step = "proxy"
        proxy = choose_proxy(origin, self._environment)
        self.find(Verdict.OK, str(proxy) if proxy is not None else "none")
        self._step = "TLS"
        context = make_context(TLSConfig()) if origin.scheme == "https" else None
        self._begin("")
        return context, proxy

    def _begin_phase(self, phase: Phase) -> None:
        self._end_step()
        self._begin(STEPS[phase])

    def _begin(self, step: str) -> None:
        self._step = step
        self._since = trio.current_time()

    def _end_step(self) -> None:
        if self._step:
            self.find(Verdict.OK, f"in {duration(trio.current_time() - self._since)}")

    def _look_at_certificate(self, sock: TLSSocket) -> None:
        until = sock.expires()
        if until is None:
            return
        left = (ssl.cert_time_to_seconds(until) - time.time()) / 86400
        verdict = Verdict.OK if left > CERTIFICATE_DAYS else Verdict.NOTE
        self.find(verdict, f"{sock.version()}, the certificate expires in {left:.0f} days")

    def _judge(self, prepared: Prepared, answer: _Answer) -> tuple[Verdict, str]:
        verdict, text = ANSWERS.get(answer.status, (Verdict.OK, "the server answers, and accepted the key"))
        if answer.status not in ANSWERS and answer.status >= 300:
            verdict, text = Verdict.FAIL, "the server failed"
        if verdict is Verdict.OK and not answer.may_be_json:
            verdict, text = Verdict.NOTE, "the server answers, but not as an API does; is the base URL right?"
        if verdict is Verdict.OK and not prepared.secrets.key:
            text = "the server answers"
        took = duration(trio.current_time() - self._since)
        message = ""
        if answer.status >= 400:
            error, _ = error_of(prepared, answer.status, bytes(answer.body))
            message = one_line(error.message)[:MOST_MESSAGE_CHARACTERS]
            message = f" ({message})" if message else ""
        return verdict, f"HTTP {answer.status} in {took}: {text}{message}"

    def _judge_call(self, prepared: Prepared, answer: _Answer) -> tuple[Verdict, str] | None:
        """Judge the answer to a call without a model and a prompt. Return None if it does not show whether the address
        of calls is right. A refusal for another reason shows that it is."""
        error, is_wrong_address = error_of(prepared, answer.status, bytes(answer.body))
        if not answer.may_be_json or is_wrong_address:
            add_address(error, prepared)
            return Verdict.FAIL, f"HTTP {answer.status}: the server takes no calls here: {one_line(error.message)}"
        if answer.status in (404, 405):
            return None
        verdict, text = ANSWERS.get(answer.status, ANSWERS[405])
        return verdict, f"HTTP {answer.status}: {text}"


@dataclass(slots=True, eq=False, repr=False)
class _Answer:
    """An exchange that collects the answer of one request (see `transport/exchange.py`)."""

    status: int = field(default=0, init=False)  # the HTTP status, or 0 before the head
    body: bytearray = field(default_factory=bytearray, init=False)  # the answer's body, up to `MOST_BODY_BYTES`
    failure: TransportError | None = field(default=None, init=False)  # the error that ended the exchange, or None
    ended: trio.Event = field(default_factory=trio.Event, init=False)  # set when the exchange has ended

    @property
    def may_be_json(self) -> bool:
        """Whether the body begins as a JSON object or array does, or is empty. A page for people begins otherwise."""
        return bytes(self.body.lstrip()[:1]) in (b"{", b"[", b"")

    @property
    def lists_nothing(self) -> bool:
        """Whether the server has no list of models at the address: it says so, or shows a page."""
        return self.status in (404, 405) or (self.status < 300 and not self.may_be_json)

    def on_head(self, status: int, headers: RawHeaders) -> None:
        self.status = status

    def on_body(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > MOST_BODY_BYTES:
            self.ended.set()  # the rest of a long list of models is not needed

    def on_end(self) -> None:
        self.ended.set()

    def on_failure(self, error: TransportError) -> None:
        if not self.status:
            self.failure = error
        self.ended.set()

    def on_defect(self, error: Exception) -> None:
        self.failure = TransportError(f"internal error: {type(error).__name__}", phase=Phase.BODY)
        self.ended.set()


async def _exchange(sock: socket.socket | TLSSocket, head: WireHead, body: bytes, origin: str) -> _Answer:
    """Send a request and return its answer. Raises `TransportError` if there is none."""
    answer = _Answer()
    async with trio.open_nursery() as nursery:
        loop = make_loop(nursery)
        try:
            connection = Connection(sock, origin, loop, _nothing, _nothing)
            loop.start(TrioBackend(nursery))
            connection.send(head, body, answer)
            await answer.ended.wait()
            connection.close()
        finally:
            nursery.cancel_scope.cancel()
    loop.close()
    if answer.failure is not None:
        raise answer.failure
    return answer


def _models_head(head: WireHead) -> WireHead:
    """Return the head of the request for the list of models, from the head of a call's request."""
    path, mark, query = head.target.decode().partition("?")
    target = MODELS_PATH.sub("/models", path) + mark + query
    headers = [(name, value) for name, value in head.headers if name.lower() != b"content-type"]
    return WireHead(b"GET", target.encode(), headers)


def _nothing(_: Connection) -> None:
    pass
