"""The command `manystream simulate`: what it serves and prints, its exit status, and its whole list of knobs."""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from manystream.cli import main
from manystream.cli import simulate as simulate_command
from manystream.simulator import Simulator
from manystream.simulator.server import Settings
from tests.support.commands import Pipe


class Served:
    """Stands in for `serve`, and keeps what it was given and what was printed meanwhile.

    during: called while it serves.
    """

    def __init__(self) -> None:
        self.settings: Sequence[Settings] = ()
        self.during: Callable[[], None] = lambda: None
        self.handlers: list[Any] = []

    def __call__(self, settings: Sequence[Settings], announce: Callable[[Simulator], None]) -> None:
        self.settings = settings
        one = Simulator("127.0.0.1", 8001, 77)
        announce(Simulator("127.0.0.1", 8001, 77, replicas=(one, Simulator("127.0.0.1", 8002, 77))))
        self.handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        self.during()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    served = Served()
    monkeypatch.setattr(simulate_command, "serve", served)
    return served


PAGE = """\
openai-chat          http://127.0.0.1:8001/v1
openai-responses     http://127.0.0.1:8001/v1
anthropic            http://127.0.0.1:8001
gemini               http://127.0.0.1:8001
gemini-interactions  http://127.0.0.1:8001
openai-chat          http://127.0.0.1:8002/v1
openai-responses     http://127.0.0.1:8002/v1
anthropic            http://127.0.0.1:8002
gemini               http://127.0.0.1:8002
gemini-interactions  http://127.0.0.1:8002
Every key is accepted. Ctrl-C ends the simulator.
"""


def test_the_addresses_of_all_replicas_are_printed(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert main(["simulate"]) == 0
    assert capsys.readouterr() == (PAGE, "")
    (settings,) = served.settings
    assert (settings.host, settings.port) == ("127.0.0.1", 0)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert served.handlers[0] is served.handlers[1] is not before[0]


def test_the_addresses_reach_a_pipe_while_it_serves(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe()
    received: list[str] = []
    served.during = lambda: received.append(pipe.received)
    monkeypatch.setattr("sys.stdout", pipe)
    assert main(["simulate"]) == 0
    assert received == [PAGE]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_before_it_serves_ends_it(served: Served, number: signal.Signals, status: int) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    served.during = lambda: signal.raise_signal(number)
    assert main(["simulate"]) == status
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_every_option_reaches_the_simulator(monkeypatch: pytest.MonkeyPatch, served: Served) -> None:
    given: dict[str, Any] = {}

    def settings_of(directive: str, **options: Any) -> list[Settings]:
        given.update(options, directive=directive)
        return []

    monkeypatch.setattr(simulate_command, "settings_of", settings_of)
    words = ["--host", "::1", "--port", "81", "--pace", "2.5", "--limit", "a=1", "--limit", "b=2", "--batch", "c=3"]
    words += ["--batch-time", "7", "--caches", "lag=2"]
    assert main(["simulate", *words, "--replica", "d=4", "--replica", "e=5", "rate=5", "kind=text"]) == 0
    assert given == {
        "directive": "rate=5,kind=text", "host": "::1", "port": 81, "replay": "", "pace": 2.5,
        "limits": ["a=1", "b=2"], "batch": "c=3", "batch_time": "7", "caches": "lag=2", "replicas": ["d=4", "e=5"],
    }  # fmt: skip
    assert main(["simulate", "--replay", "traffic.jsonl"]) == 0
    assert (given["directive"], given["replay"], given["pace"]) == ("", "traffic.jsonl", 1.0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(98, "Address already in use"), "Address already in use"),
        (OSError("odd"), "odd"),
        (OverflowError("port must be 0-65535."), "port must be 0-65535."),
    ],
)
def test_an_address_that_cannot_be_used_is_one_line(
    served: Served, error: Exception, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    served.during = fail
    assert main(["simulate", "--port", "81"]) == 1
    assert capsys.readouterr().err == f"manystream simulate: cannot listen on 127.0.0.1 port 81: {reason}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--replay", "x", "rate=5"), "--replay answers from the recording: leave the knobs out"),
        (("nonsense=1",), "nonsense"),
        (("nonsense",), "nonsense"),
        (("rate=fast",), "rate takes 0 to 1000000 events a second"),
        (("--replay", "missing.jsonl"), "missing.jsonl"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    served: Served,
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("manystream simulate: ")
    assert words in err
    assert err.count("\n") == 1


KNOBS = """\
  kind          one of text, thinking, tools, mixed
  text          one of sentences, unicode
  events        0 to 1000000
  calls         0 to 1000
  steps         0 to 1000
  finish        one of stop, length, content_filter
  cached        a number of tokens
  redacted      0 or 1
  seed          a whole number from 0
  stamp         0 or 1
  rate          0 to 1000000 events a second
  delay         0 to 3600 seconds
  chunk         0 to 1048576 bytes
  ping          0 to 3600 seconds
  fail          an HTTP status from 400 to 599
  retry-after   0 to 86400 seconds
  code          a word
  drop          0 or 1
  cut           a whole number of events
  reset         a whole number of events
  truncate      a whole number of events
  stall         a whole number of events
  silent        a whole number of events
  cut-bytes     0 to 1073741824 bytes
  close         a code from 1000 to 4999
  largest       0 to 1073741824 bytes
  lifetime      0 to 86400 seconds
  malformed     a whole number of events
  error         a whole number of events
  error-status  an HTTP status from 400 to 599
  times         0 to 1000000
  key           a word

What the answer holds:

kind: `text`, `thinking` (then text), `tools`, or `mixed` (thinking, text, tool calls).
"""
PLACES = """

a request sets knobs in one of these places:
  its header x-simulate
  its last user message, which then begins with 'simulate:'
  its model, if that begins with sim, after an @: sim@fail=503, sim-mixed@events=40,rate=20

LIMIT: NAME=VALUE pairs, separated by spaces
key: the API keys that it covers; `*` is any text.
"""
STATUSES = """

exit status:
  0    ended by SIGTERM
  1    it cannot listen at this address and port
  2    the command line is wrong
  130  interrupted
"""


def test_the_help_describes_every_knob_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--help"]) == 0
    shown = capsys.readouterr().out
    _, _, epilog = shown.partition("\nknobs:\n")
    assert epilog.startswith(KNOBS)
    assert PLACES in epilog
    assert epilog.endswith(STATUSES)
    assert "\n\nBATCH: NAME=VALUE pairs, separated by spaces\nstep: seconds of a step without calls.\n" in epilog
    assert "\n\nREPLICA: NAME=VALUE pairs, separated by spaces\nport: where it listens; 0 takes" in epilog
