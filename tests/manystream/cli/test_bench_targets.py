"""Which server `manystream bench` measures, what it prints about it, and what cannot be measured."""

import contextlib
import json
from collections.abc import Callable, Generator, Sequence

import pytest

from manystream.bench.load import Plan
from manystream.bench.runs import Run, Server
from manystream.cli import batch as batch_command
from manystream.cli import bench as bench_command
from manystream.cli import main
from manystream.providers.catalog.provider import (
    Anthropic,
    Gemini,
    GeminiInteractions,
    OpenAIChat,
    OpenAIResponses,
    Provider,
)
from manystream.providers.errors import InvalidRequestError
from manystream.simulator import KnobError, Simulator, SimulatorError
from tests.support.bench_results import figures, result, run
from tests.support.commands import remove_keys

UNSTREAMED = run(result(figures({"e2el": [1.0]}, ok=1), stream=False))
URL = "http://127.0.0.1:1/v1"


class Measured:
    """Stands in for the simulator and the runs; keeps what they were given.

    error: what the start of the simulator raises, or the run.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.simulators: list[tuple[str, int]] = []
        self.process: int | None = None
        self.providers: Sequence[Provider] = ()
        self.model = ""
        self.sockets = 0

    @contextlib.contextmanager
    def open_simulator(self, knobs: str, *, journal: int) -> Generator[Simulator, None, None]:
        if self.error is not None:
            raise self.error
        self.simulators.append((knobs, journal))
        yield Simulator("127.0.0.1", 8001, 77)

    def run_plan(self, server: Server, plan: Plan, on_look: object, **_: object) -> Run:
        self.process, self.model, self.providers = server.simulator, plan.work.model, [server.provider]
        if self.error is not None:
            raise self.error
        return UNSTREAMED

    def allow_many_sockets(self) -> None:
        self.sockets += 1


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    measured = Measured()
    monkeypatch.setattr(bench_command, "open_simulator", measured.open_simulator)
    monkeypatch.setattr(bench_command, "run_plan", measured.run_plan)
    monkeypatch.setattr(bench_command, "calibrate", lambda *_: None)
    monkeypatch.setattr(bench_command, "allow_many_sockets", measured.allow_many_sockets)
    remove_keys(monkeypatch)
    return measured


@pytest.mark.parametrize(
    ("dialect", "kind", "path"),
    [
        ("openai-chat", OpenAIChat, "/v1"),
        ("openai-responses", OpenAIResponses, "/v1"),
        ("anthropic", Anthropic, ""),
        ("gemini", Gemini, ""),
        ("gemini-interactions", GeminiInteractions, ""),
    ],
)
def test_without_a_target_the_simulator_is_measured(
    measured: Measured, dialect: str, kind: type[Provider], path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--dialect", dialect]) == 0
    out, err = capsys.readouterr()
    heading = f"http://127.0.0.1:8001{path}, {dialect}, model simulated: streams, 10 at a time, 10 s"
    assert out.splitlines()[0] == heading
    assert err == "No URL was given: the built-in simulator answers (rate=50,events=250).\n"
    (provider,) = measured.providers
    assert (type(provider), provider.api_key, measured.process) == (kind, "any", 77)
    assert measured.simulators == [("rate=50,events=250", 0)]
    assert measured.sockets == 1


def test_the_simulator_gets_the_knobs(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", "--no-stream"])
    assert capsys.readouterr().err == "No URL was given: the built-in simulator answers (events=32).\n"
    main(["bench", "--simulate", "rate=5", "--no-stream", "--json"])
    out, err = capsys.readouterr()
    assert not err
    assert json.loads(out)["simulated"] is True
    assert measured.simulators == [("events=32", 0), ("rate=5", 0)]


@pytest.mark.parametrize(
    ("words", "kind", "url", "model"),
    [
        ([URL], OpenAIChat, URL, "openai-compatible/gpt-5-mini"),
        ([URL, "--dialect", "openai-responses"], OpenAIResponses, URL, "responses-compatible/gpt-5-mini"),
        ([URL, "--dialect", "anthropic"], Anthropic, URL, "anthropic-compatible/claude-sonnet-4-5"),
        ([URL, "--dialect", "gemini", "--model", "m"], Gemini, URL, "google/m"),
        ([URL, "--provider", "anthropic", "--model", "m"], Anthropic, URL, "anthropic/m"),
        (["--provider", "anthropic"], Anthropic, "https://api.anthropic.com", "anthropic/claude-sonnet-4-5"),
        (["--model", "gpt-5"], OpenAIChat, "https://api.openai.com/v1", "openai-chat/gpt-5"),
    ],
)
def test_url_provider_and_model_choose_the_server(
    measured: Measured, words: list[str], kind: type[Provider], url: str, model: str
) -> None:
    assert main(["bench", *words]) == 0
    (provider,) = measured.providers
    assert (type(provider), provider.base_url, measured.model, measured.process) == (kind, url, model, None)
    assert not measured.simulators


def test_the_environment_has_the_address(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", URL)
    assert main(["bench", "--model", "llama3.2"]) == 0
    (provider,) = measured.providers
    assert (type(provider), provider.base_url, measured.model) == (OpenAIChat, URL, "openai-chat/llama3.2")


def test_a_password_and_a_query_are_not_printed(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "http://user:canary@127.0.0.1:1/v1?key=canary"]) == 0
    assert main(["bench", "http://user:canary@127.0.0.1:1/v1?key=canary", "--json"]) == 0
    heading, *_, last = capsys.readouterr().out.splitlines()
    assert heading.startswith("http://127.0.0.1:1/v1, openai-chat, model gpt-5-mini: ")
    about = json.loads(last)
    assert {name: about[name] for name in ("url", "dialect", "model", "simulated")} == {
        "url": "http://127.0.0.1:1/v1", "dialect": "openai-chat", "model": "gpt-5-mini", "simulated": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "error", "status", "complaint"),
    [
        ([], KnobError("no knob"), 2, "--simulate: no knob"),
        ([], SimulatorError("it did not start"), 1, "it did not start"),
        ([URL], InvalidRequestError("model", "is wrong"), 1, "model: is wrong"),
    ],
)
def test_each_failure_is_one_line(
    measured: Measured, words: list[str], error: Exception, status: int, complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    measured.error = error
    assert main(["bench", *words, "--json"]) == status
    assert capsys.readouterr() == ("", f"manystream bench: {complaint}\n")


class Pipe:
    """A standard output that is a pipe, and keeps what its reader has received."""

    def __init__(self, on_flush: Callable[[str], None]) -> None:
        self.text = ""
        self.on_flush = on_flush

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        self.on_flush(self.text)

    def isatty(self) -> bool:
        return False


def test_the_heading_is_received_before_the_run(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[str] = []
    monkeypatch.setattr("sys.stdout", Pipe(received.append))
    main(["bench", URL])
    assert received[0] == f"{URL}, openai-chat, model gpt-5-mini: streams, 10 at a time, 10 s\n"


def test_a_batch_raises_the_limit_of_sockets_too(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_command, "allow_many_sockets", measured.allow_many_sockets)
    assert main(["batch", "-", "-o", "/nonexistent/a.jsonl", "--model", "nobody"]) == 1
    assert measured.sockets == 1
