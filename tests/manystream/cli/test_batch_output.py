"""The command `manystream batch` with a batch that the test plays: its options, all that it prints, its exit status."""

import contextlib
import math
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.batch import BatchError, Counters, JournalError, Shard
from manystream.cli import batch as batch_command
from manystream.cli import batch_progress, batch_ray, main
from manystream.cli.batch import BatchOptions, _read_options, shard_notice
from manystream.cli.batch_targets import TargetOptions
from manystream.cli.command_line import command_parser
from manystream.cli.output.terminal import harmless
from manystream.ray.cluster import ClusterError
from tests.support.batches import line, write
from tests.support.commands import remove_keys

Run: TypeAlias = "Callable[..., tuple[int, str, str]]"

URL = "http://127.0.0.1:1/v1"
TARGET = ("--model", "m", "--base-url", URL)
SUMMARY = "3 answered in 2.0 s (1.5/s), 10 tokens in, 20 out → a.jsonl\n"


class Batches:
    """Stands in for the engine and the batch, and keeps what they were given.

    counters: the figures at the end.
    error: what the run raises.
    interrupted: whether Ctrl-C is pressed while the batch runs.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.counters = Counters(answered=3, input_tokens=10, output_tokens=20)
        self.error: Exception | None = None
        self.interrupted = False
        self.engine: dict[str, Any] = {}
        self.providers: Sequence[ms.Provider] = ()
        self.options: dict[str, Any] = {}
        self.lines: list[Any] = []

    @contextlib.asynccontextmanager
    async def open_engine(self, providers: Sequence[ms.Provider], **options: Any) -> AsyncGenerator[str, None]:
        self.providers, self.engine = providers, options
        yield "engine"

    def make(self) -> type:
        batches = self

        class Batch:
            def __init__(self, engine: object, journal: object, choose_model: Any, **options: Any) -> None:
                assert engine == "engine"
                self.counters = batches.counters
                self.stopped = trio.Event()
                batches.options = options | {"model": choose_model(None)}

            async def run(self, lines: AsyncIterator[Any]) -> None:
                batches.lines = [each async for each in lines]
                batches.now += 2.0
                await trio.testing.wait_all_tasks_blocked()
                if batches.interrupted:
                    signal.raise_signal(signal.SIGINT)
                    await self.stopped.wait()
                if batches.error is not None:
                    raise batches.error

            def stop(self) -> None:
                self.stopped.set()

            def count_waiting(self) -> None:
                pass

        return Batch


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Batches:
    batches = Batches()
    monkeypatch.setattr(batch_command, "open_engine", batches.open_engine)
    monkeypatch.setattr(batch_command, "Batch", batches.make())
    monkeypatch.setattr(batch_progress, "time", SimpleNamespace(monotonic=lambda: batches.now))
    monkeypatch.setattr(batch_command, "price_list", lambda *providers, table: ("prices", *providers))
    remove_keys(monkeypatch)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "p.jsonl", [line(str(number)) for number in range(5)])
    return batches


@pytest.fixture
def run(batches: Batches, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["batch", "p.jsonl", "-o", "a.jsonl", *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


# What is printed.


def test_answered_lines_are_summed_up(run: Run, batches: Batches) -> None:
    assert run(*TARGET) == (0, SUMMARY, "")
    assert [number for part in batches.lines for number, _ in part] == [1, 2, 3, 4, 5]
    (provider,) = batches.providers
    assert (type(provider), provider.base_url) == (ms.OpenAIChat, URL)
    assert batches.engine == {
        "retry": ms.Retry(max_attempts=6, cap=60.0), "proxy": None, "monitor": False, "cache": None,
        "traffic": ms.Traffic(),
    }  # fmt: skip
    assert batches.options == {
        "model": "openai-compatible/m", "concurrency": 100, "stream": False, "retry_failed": False,
        "source": "p.jsonl", "provider": "openai-compatible", "price": ("prices", provider), "shard": None,
        "budget": None, "options": {}, "by": None, "via": None,
    }  # fmt: skip


def test_every_option_reaches_the_batch(run: Run, batches: Batches) -> None:
    words = ["--attempts", "3", "--monitor", "--concurrency", "7", "--stream", "--retry-failed", "--no-adaptive"]
    words += ["--outage", "60"]
    assert run(*TARGET, *words, "--max-rps", "2", "--max-tpm", "5000", "--shard", "1/4") == (
        0,
        SUMMARY.replace("a.jsonl", "a.1-of-4.jsonl"),
        "Shard 1/4: the lines whose number modulo 4 is 1; --max-rps 0.5 of 2; --max-tpm 1,250 of 5,000\n",
    )
    assert batches.engine == {
        "retry": ms.Retry(max_attempts=3, cap=60.0), "proxy": None, "monitor": True, "cache": None,
        "traffic": ms.Traffic(rates={"*": ms.RateLimit(requests_per_second=0.5, tokens_per_minute=1250.0)},
        adaptive=False, outage=60.0),
    }  # fmt: skip
    assert (batches.options["concurrency"], batches.options["stream"]) == (7, True)
    assert (batches.options["retry_failed"], batches.options["shard"]) == (True, Shard(1, 4))


def test_the_simulator_answers_when_asked_for(run: Run, batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    from manystream.simulator import Simulator

    knobs: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def open_simulator(given: str, *, journal: int) -> Any:
        knobs.append((given, journal))
        yield Simulator("127.0.0.1", 8001, 77)

    monkeypatch.setattr("manystream.simulator.open_simulator", open_simulator)
    note = "The built-in simulator answers, not a model.\n"
    assert run("--simulate") == (0, SUMMARY, note)
    (provider,) = batches.providers
    assert (type(provider), provider.base_url, provider.name, provider.api_key) == (
        ms.OpenAIChat, "http://127.0.0.1:8001/v1", "simulator", "simulated",
    )  # fmt: skip
    assert knobs == [("events=32", 0)]
    assert batches.engine["proxy"] == ""
    assert (batches.options["model"], batches.options["price"]) == ("simulator/sim-text", None)
    assert batches.options["provider"] == "simulator"


@pytest.mark.parametrize(
    ("counters", "status"),
    [
        (Counters(answered=1, answered_before=1, retries=1), 0),
        (Counters(failed=1, failures={"server": 1}), 1),
        (Counters(failed_before=1), 1),
        (Counters(invalid=1), 1),
    ],
)
def test_lines_without_an_answer_are_status_1(run: Run, batches: Batches, counters: Counters, status: int) -> None:
    batches.counters = counters
    found, out, err = run(*TARGET)
    assert (found, err) == (status, "")
    assert out.startswith(f"{counters.answered} answered in 2.0 s")


@pytest.mark.parametrize(
    "counters",
    [Counters(failed=1, failed_before=1), Counters(failed_before=1, invalid=1), Counters(invalid=1, unpaid=1)],
)
def test_lines_of_two_kinds_are_status_1_too(run: Run, batches: Batches, counters: Counters) -> None:
    batches.counters = counters
    assert run(*TARGET)[0] == 1


def test_a_spent_budget_is_reported_with_the_lines_left(run: Run, batches: Batches) -> None:
    batches.counters.unpaid = 1
    batches.counters.budget = 1.0
    status, out, err = run(*TARGET)
    assert status == 1
    assert out == SUMMARY + "$0.00 of $1.00 of the budget\n"
    assert err == (
        "The budget is spent: 2 lines are not sent, since the largest cost of a line did not fit into the rest"
        " ($0.00 of $1.00 spent). The same command with a larger --budget goes on.\n"
    )


def test_a_shard_counts_its_own_lines(run: Run, batches: Batches) -> None:
    batches.counters = Counters(answered=1, unpaid=1, budget=1.0)
    _, _, err = run(*TARGET, "--shard", "1/2")
    assert "The budget is spent: 2 lines are not sent" in err, "lines 1, 3 and 5 belong to the shard"


def test_ctrl_c_stops_the_batch_and_names_the_next_step(run: Run, batches: Batches) -> None:
    batches.interrupted = True
    batches.counters.unpaid = batches.counters.failed = 1
    status, out, err = run(*TARGET)
    assert (status, err) == (130, "Interrupted. The same command resumes the batch.\n")
    assert out.startswith(SUMMARY)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (BatchError("the key was refused"), 1,
            "the key was refused; all answers so far are in the file; the same command resumes the batch"),
        (OSError(5, "Input/output error"), 1, "cannot read p.jsonl: Input/output error"),
    ],
)  # fmt: skip
def test_a_failure_follows_the_summary(run: Run, batches: Batches, error: Exception, status: int, words: str) -> None:
    batches.error = error
    assert run(*TARGET) == (status, SUMMARY, f"manystream batch: {words}\n")


def test_a_cluster_s_failure_follows_the_summary(run: Run, batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_ray, "connect", lambda *_: contextlib.nullcontext(1))
    monkeypatch.setattr(batch_ray, "RayCluster", lambda options: options)
    monkeypatch.setattr(batch_ray, "ClusterBatch", lambda *_, **__: batches.make()("engine", None, lambda named: named))
    batches.error = ClusterError("no worker is left")
    assert run(*TARGET, "--ray", "local") == (2, SUMMARY, "manystream batch: no worker is left\n")


def test_an_unwritable_file_has_no_summary(run: Run, batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    class Journal:
        errors_path = Path("a.errors.jsonl")

        def __init__(self, answers: Path, errors: Path, *, budget: object) -> None:
            assert (answers, errors, budget) == (Path("a.jsonl"), Path("a.errors.jsonl"), None)

        def __enter__(self) -> None:
            raise JournalError("cannot write a.jsonl: no")

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(batch_command, "Journal", Journal)
    assert run(*TARGET) == (1, "", "manystream batch: cannot write a.jsonl: no\n")


@pytest.mark.parametrize(
    ("recorded", "target", "words"),
    [
        ("simulator", TARGET,
            "a.jsonl holds answers of the simulator, and this run would add answers of 'openai-compatible': choose"
            " another file with -o, or delete that file"),
        ("openai-compatible", TARGET, ""),
        ("another", TARGET, ""),
    ],
)  # fmt: skip
def test_answers_of_simulator_and_models_do_not_mix(run: Run, recorded: str, target: Sequence[str], words: str) -> None:
    write(Path("a.jsonl"), [{"id": "0", "provider": recorded, "model": "m", "text": ""}])
    status, _, err = run(*target)
    assert (status, err) == ((1, f"manystream batch: {words}\n") if words else (0, ""))


async def test_waiting_lines_are_counted_before_each_update(autojump_clock: MockClock, batches: Batches) -> None:
    steps: list[str] = []

    class Batch(batch_command.Batch):
        def count_waiting(self) -> None:
            steps.append("count")

        async def run(self, lines: object) -> None:
            await trio.sleep(0.6)

    batch = Batch("engine", None, lambda _: None)  # type: ignore[arg-type, return-value]
    progress = SimpleNamespace(look=lambda: steps.append("look"))
    await batch_command._work(batch, options("p.jsonl", "-o", "a.jsonl"), progress, None, None)  # type: ignore[arg-type]
    assert steps == ["count", "look", "count", "look"]


# The options.


def options(*words: str) -> BatchOptions:
    return _read_options(command_parser().parse_args(["batch", *words]))


def test_every_option_is_read(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_command, "can_redraw", lambda _: True)
    words = [
        "p.jsonl", "-o", "a.jsonl", "--errors", "e.jsonl", "--shard", "2/8", "--route", "a, b", "--provider", "p",
        "--base-url", URL, "--concurrency", "1", "--max-rps", "0.5", "--max-tpm", "0.5", "--budget", "0.5",
        "--no-adaptive", "--attempts", "1", "--stream", "--retry-failed", "--ray", "local", "--actors", "1",
        "--monitor", "--json", "--outage", "inf", "--system", "Be brief.", "--max-tokens", "9", "--temperature", "0",
    ]  # fmt: skip
    expected = BatchOptions(
        prompts=Path("p.jsonl"),
        output=Path("a.2-of-8.jsonl"),
        table=None,
        finish=False,
        errors=Path("e.2-of-8.jsonl"),
        shard=Shard(2, 8),
        targets=TargetOptions(model=None, route=("a", "b"), provider="p", base_urls=(URL,)),
        requests={"system": "Be brief.", "max_output_tokens": 9, "temperature": 0.0},
        concurrency=1,
        max_rps=0.5,
        max_tpm=0.5,
        budget=0.5,
        prices=None,
        adaptive=False,
        attempts=1,
        outage=math.inf,
        stream=True,
        retry_failed=True,
        by=None,
        via=None,
        json=True,
        ray="local",
        actors=1,
        cache=None,
        monitor=True,
        plain=False,
        escape_formulas=False,
    )
    assert options(*words) == expected
    assert options(*words, "--plain").plain
    assert expected.part(None) is None
    assert expected.part(4.0) == 0.5
    assert expected.shared_limits == {"--max-rps": 0.5, "--max-tpm": 0.5, "--budget": 0.5}
    assert shard_notice(Shard(2, 8), expected) == (
        "Shard 2/8: the lines whose number modulo 8 is 2; --max-rps 0.0625 of 0.5; --max-tpm 0.0625 of 0.5;"
        " --budget 0.0625 of 0.5"
    )


def test_limits_and_routes_become_traffic_control(batches: Batches) -> None:
    route = ms.Route("batch", ["a/b"])
    only_rps = options("p.jsonl", "-o", "a.jsonl", "--max-rps", "999.9")
    only_tpm = options("p.jsonl", "-o", "a.jsonl", "--max-tpm", "2000", "--shard", "0/2")
    assert only_rps.limit == ms.RateLimit(requests_per_second=999.9)
    assert only_rps.traffic([route], None) == ms.Traffic(
        rates={"*": ms.RateLimit(requests_per_second=999.9)}, routes=[route], adaptive=True
    )
    assert only_tpm.limit == ms.RateLimit(tokens_per_minute=1000.0)
    assert shard_notice(Shard(0, 2), only_tpm).endswith("; --max-tpm 1,000 of 2,000")
    assert options("p.jsonl", "-o", "a.jsonl").limit is None


def test_standard_input_has_a_name(batches: Batches) -> None:
    found = options("-", "-o", "a.jsonl")
    assert (found.prompts, found.source, options("p.jsonl", "-o", "a.jsonl").source) == (
        None,
        "standard input",
        "p.jsonl",
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--concurrency", "0"), "--concurrency must be above 0, not 0"),
        (("--attempts", "0"), "--attempts must be above 0, not 0"),
        (("--outage", "-1"), "--outage must be a number of seconds of at least 0, not -1"),
        (("--outage", "nan"), "--outage must be a number of seconds of at least 0, not nan"),
        (("--actors", "0", "--ray", "local"), "--actors must be above 0, not 0"),
        (("--max-rps", "0"), "--max-rps must be above 0, not 0"),
        (("--max-tpm", "inf"), "--max-tpm must be above 0, not inf"),
        (("--actors", "1"), "--actors is the number of workers on a Ray cluster: name the cluster with --ray"),
        (("--budget", "1", "--simulate"), "--budget needs a --model: the simulator's answers have no price"),
    ],
)  # fmt: skip
def test_each_wrong_option_has_its_reason(run: Run, words: tuple[str, ...], complaint: str) -> None:
    assert run(*words) == (2, "", f"manystream batch: {complaint}\n")


@pytest.mark.parametrize(
    ("prompts", "reason"),
    [("nowhere.jsonl", "No such file or directory"), (".", "Is a directory"), ("a\0b", "embedded null byte")],
)
def test_unreadable_prompts(batches: Batches, prompts: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", prompts, "-o", "a.jsonl", *TARGET]) == 1
    assert capsys.readouterr() == (
        "",
        f"manystream batch: cannot read {harmless(prompts)}: {reason}; a file of prompts has lines such as"
        ' {"id": "1", "messages": [{"role": "user", "content": "Hello"}]}\n',
    )
