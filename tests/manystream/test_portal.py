"""The portal for programs without an event loop: blocking calls from any thread."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

import manystream as ms
from manystream.engine import EngineClosedError
from manystream.portal import Portal, open_portal
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.waiting import LONGEST, until

ROOT = Path(__file__).resolve().parents[2]
ENDLESS = "events=100000,rate=100"


@pytest.fixture
def portal(provider: ms.Provider) -> Iterator[Portal]:
    with open_portal([provider]) as portal:
        yield portal


def ask(knobs: str = "") -> ms.Request:
    return ms.Request(f"sim/sim-text@{knobs}", [ms.Message.user("hello")])


def test_a_request_blocks_until_its_answer_has_arrived(portal: Portal) -> None:
    assert portal.request(ask()).text


def test_a_failed_request_raises_its_provider_error(portal: Portal) -> None:
    with pytest.raises(ms.ProviderError) as caught:
        portal.request(ask("fail=404"))
    assert caught.value.category is ms.ErrorCategory.NOT_FOUND


def test_a_request_that_cannot_be_sent_raises_at_once(portal: Portal) -> None:
    with pytest.raises(ms.InvalidRequestError, match="messages"):
        portal.request(ms.Request("sim/m", []))


def test_many_threads_use_one_portal(portal: Portal) -> None:
    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda _: portal.request(ask()).text, range(100)))
    assert len(set(texts)) == 1
    assert portal.statistics().completed == 100


def test_one_thread_runs_many_calls_at_once(portal: Portal) -> None:
    calls = [portal.start_request(ask("delay=60")) for _ in range(50)]
    until(lambda: portal.statistics().calls == {"waiting": 50})
    for call in calls:
        call.cancel()
    assert {call.wait(LONGEST).error_category for call in calls} == {ms.ErrorCategory.CANCELLED}


def test_callbacks_run_in_wire_order_on_the_engines_thread(portal: Portal) -> None:
    events: list[ms.Event] = []
    threads: set[int] = set()
    endings: list[ms.Completion] = []

    def on_event(event: ms.Event) -> None:
        threads.add(threading.get_ident())
        events.append(event)

    completion = portal.start_stream(ask(), on_event, endings.append).wait(LONGEST)
    assert endings == [completion]
    assert type(events[0]) is ms.Start
    assert type(events[-1]) is ms.Done
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_a_stream_is_a_plain_iterator(portal: Portal) -> None:
    with portal.stream(ask()) as events:
        text = "".join(event.text for event in events if isinstance(event, ms.TextDelta))
    assert text == events.completion.response.text


def test_a_failed_stream_raises_after_its_events(portal: Portal) -> None:
    arrived: list[ms.Event] = []
    with portal.stream(ask("error=4")) as events:
        with pytest.raises(ms.ProviderError):
            arrived.extend(events)
        assert events.completion is not None
    assert arrived or events.completion.response is not None


def test_a_slow_reader_slows_its_server_and_loses_no_event(portal: Portal) -> None:
    count = 20_000

    def received_during_a_request() -> int:
        before = portal.statistics().bytes_received
        portal.request(ask())
        return portal.statistics().bytes_received - before

    alone = received_during_a_request()
    with portal.stream(ask(f"events={count}")) as events:
        next(events)
        while received_during_a_request() >= 2 * alone:
            pass  # without backpressure, the whole stream would be read meanwhile
        received = portal.statistics().bytes_received
        assert sum(isinstance(event, ms.TextDelta) for event in events) == count
        assert received < portal.statistics().bytes_received / 2


def test_leaving_a_stream_early_cancels_its_call(portal: Portal) -> None:
    with portal.stream(ask(ENDLESS)) as events:
        next(events)
    assert events.call.wait(LONGEST).error_category is ms.ErrorCategory.CANCELLED


@pytest.mark.parametrize("open_one", [lambda portal: portal.stream(ask("delay=60")), lambda portal: portal.map(
    [ask("delay=60")])], ids=["stream", "map"])  # fmt: skip
def test_a_second_thread_that_reads_an_iterator_is_refused(open_one: Callable[[Portal], Any], portal: Portal) -> None:
    """It is for one thread at a time: two would start the requests of a map twice."""
    with ThreadPoolExecutor(2) as pool, open_one(portal) as iterator:
        reads = [pool.submit(next, iterator, None) for _ in range(2)]
        refused, waiting = wait(reads, LONGEST, FIRST_COMPLETED)
        with pytest.raises(RuntimeError, match="another thread is already waiting"):
            refused.pop().result()
        assert len(waiting) == 1
        until(lambda: portal.statistics().calls == {"waiting": 1})
    assert portal.statistics().started == 1


def test_threads_may_take_turns_at_an_iterator(portal: Portal) -> None:
    with ThreadPoolExecutor(1) as pool, portal.map([ask(), ask(), ask()]) as results:
        found = [next(results), pool.submit(next, results).result(LONGEST), next(results)]
        assert [completion.success for _, completion in found] == [True] * 3
        assert pool.submit(next, results, None).result(LONGEST) is None


def test_a_wait_with_a_timeout_leaves_the_call_running(portal: Portal) -> None:
    call = portal.start_request(ask("delay=0.3"))
    with pytest.raises(TimeoutError, match="not ended within"):
        call.wait(0.01)
    assert call.wait(LONGEST).success
    call.cancel()  # has no effect after the end
    assert call.completion.success


def test_a_callback_may_start_calls_but_not_wait_for_them(portal: Portal) -> None:
    started: list[object] = []
    failures: list[Exception] = []
    ended = threading.Event()

    def on_completion(completion: ms.Completion) -> None:
        started.append(portal.start_request(ask(), lambda _: ended.set()))
        try:
            portal.request(ask())
        except RuntimeError as error:
            failures.append(error)

    portal.start_request(ask(), on_completion).wait(LONGEST)
    assert ended.wait(LONGEST)
    assert "must not wait" in str(failures[0])


def test_a_recording_holds_the_calls_of_its_block(portal: Portal, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with portal.record(path) as recording:
        assert portal.request(ask()).text
        with portal.stream(ask()) as events:
            assert list(events)
        assert not recording.closed
    assert (recording.closed, recording.exchanges) == (True, 2)
    portal.request(ask())
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) == 2
    with open_simulator_thread(replay=str(path)) as replayed:
        again = ms.OpenAIChat("key", replayed.base_urls["openai-chat"], name="sim")
        with open_portal([again]) as other:
            assert other.request(ask()).text


def test_a_second_recording_is_refused_until_the_portal_ends(provider: ms.Provider, tmp_path: Path) -> None:
    with open_portal([provider]) as portal:
        recording = portal.record(tmp_path / "first.jsonl")
        with pytest.raises(RuntimeError, match="is running"):
            portal.record(tmp_path / "second.jsonl")
        recording.close()
        with pytest.raises(FileNotFoundError):
            portal.record(tmp_path / "nowhere" / "third.jsonl")
        last = portal.record(tmp_path / "last.jsonl")
    assert last.closed
    last.close()
    with pytest.raises(EngineClosedError):
        portal.record(tmp_path / "late.jsonl")


def test_leaving_the_block_ends_calls_and_the_thread(provider: ms.Provider) -> None:
    before = threading.active_count()
    waited: list[ms.Completion] = []
    with open_portal([provider]) as portal:
        call = portal.start_stream(ask(ENDLESS))
        waiter = threading.Thread(target=lambda: waited.append(call.wait()))
        waiter.start()
        until(lambda: portal.statistics().events > 0)
    waiter.join(LONGEST)
    assert waited[0].error_category is ms.ErrorCategory.CANCELLED
    assert not [thread for thread in threading.enumerate() if thread.name == "manystream portal"]
    assert threading.active_count() <= before + 2  # trio keeps an idle worker thread for a while
    with pytest.raises(EngineClosedError, match="closed"):
        portal.request(ask())
    call.cancel()


@pytest.mark.parametrize("opened_first", [True, False])
def test_ctrl_c_ends_a_portal_thread(
    opened_first: bool, provider: ms.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []

    class Interrupted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            waits.append(threading.current_thread().name)
            if len(waits) > 1:
                return super().result(timeout)
            if opened_first:
                super().result(timeout)
            raise KeyboardInterrupt

    monkeypatch.setattr("manystream.portal.Future", Interrupted)
    with pytest.raises(KeyboardInterrupt), open_portal([provider]):
        raise AssertionError("it was interrupted")
    assert not [thread for thread in threading.enumerate() if thread.name == "manystream portal"]
    assert waits[0] == threading.current_thread().name


def test_an_exception_of_the_block_is_raised_unchanged(provider: ms.Provider) -> None:
    with pytest.raises(ZeroDivisionError), open_portal([provider]):
        raise ZeroDivisionError


def test_an_unusable_provider_is_refused_by_open_portal(provider: ms.Provider) -> None:
    with pytest.raises(ms.InvalidRequestError, match="two are named"), open_portal([provider, provider]):
        raise AssertionError


INTERRUPTED = """
import sys, threading
import manystream as ms
from manystream.portal import open_portal

with open_portal([ms.OpenAIChat("key", sys.argv[1], name="sim")]) as portal:
    def report():
        while not portal.statistics().calls:
            pass
        print("asked", flush=True)

    threading.Thread(target=report).start()
    try:
        portal.request(ms.Request("sim/sim-text@delay=60", [ms.Message.user("x")]))
    except KeyboardInterrupt:
        while not portal.statistics().cancelled:
            pass
        print("interrupted and cancelled")
"""


def test_ctrl_c_interrupts_a_request_and_cancels_its_call(simulator: Simulator) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, simulator.base_urls["openai-chat"]], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONGEST)
    finally:
        process.kill()
        process.wait()
    assert (out, err) == ("interrupted and cancelled\n", "")


AT_EXIT = """
import manystream as ms
from manystream.portal import open_portal

class Late:
    def __init__(self):
        self.block = open_portal([ms.OpenAIChat("k", "http://127.0.0.1:9/v1")])
        self.portal = self.block.__enter__()
        self.request = ms.Request("m", "hello")
        self.me, self.error = self, ms.EngineClosedError
        self.uses = [lambda: self.portal.request(self.request), lambda: self.portal.drain(1), self.portal.statistics]
    def __del__(self):
        for use in self.uses:
            try:
                use()
            except self.error as error:
                print(error)
        self.block.__exit__(None, None, None)

kept = Late()
"""


def test_a_portal_in_a_finalizer_at_the_end_is_an_error() -> None:
    """The portal's thread has stopped then: a call, or the end of its block, would wait forever."""
    ended = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=60, check=True)
    words = "the program is ending, and the thread of this portal has stopped: end the portal's block before that"
    assert (ended.stdout.splitlines(), ended.stderr) == ([words] * 3, "")


OPENED_AT_EXIT = """
import sys
import manystream as ms
from manystream.portal import open_portal

class Late:
    def __del__(self, open_portal=open_portal, providers=[ms.OpenAIChat("k", "http://127.0.0.1:9/v1")]):
        open_portal(providers).__enter__()

kept = Late()
"""


def test_a_portal_opened_in_a_finalizer_at_the_end_is_an_error() -> None:
    """A thread that begins then never runs: the program would never end."""
    ended = subprocess.run(
        [sys.executable, "-c", OPENED_AT_EXIT], capture_output=True, text=True, timeout=120, check=True
    )
    assert "EngineClosedError: the program is ending, and no thread begins any more" in ended.stderr


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "threads.py")], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "8 answers from 4 threads" in done.stdout
    assert "8 of 8 answers from one thread" in done.stdout
