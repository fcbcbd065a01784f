"""The opening and closing of an engine on an asyncio loop, its wrong use, and Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import manystream as ms
from manystream import EventLoopError
from manystream.engine import EngineClosedError, asyncio_tasks
from manystream.simulator import Simulator
from manystream.transport.loop import PollerLoop
from tests.support.asyncio_programs import ENDLESS, ask, run
from tests.support.waiting import LONGEST, eventually

ROOT = Path(__file__).resolve().parents[2]


# --- opening and closing ---


def test_an_exception_of_the_block_is_raised_unchanged(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            engine.start_stream(ask(ENDLESS))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main)


def test_no_socket_and_no_task_is_left_after_the_block(provider: ms.Provider) -> None:
    def sockets() -> int:
        count = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                count += os.readlink(f"/proc/self/fd/{name}").startswith("socket")
            except FileNotFoundError:
                pass  # the descriptor of the listing itself, or one that another thread has closed
        return count

    async def main() -> None:
        before, tasks = sockets(), len(asyncio.all_tasks())
        async with ms.open_engine([provider]) as engine:
            engine.start_stream(ask(ENDLESS))
            await engine.request(ask())
        await eventually(lambda: sockets() <= before)  # the simulator's sockets are in this process, too
        assert len(asyncio.all_tasks()) == tasks

    if not Path("/proc/self/fd").exists():
        pytest.skip("sockets are counted in /proc, which is not here")
    run(main)


def test_several_engines_are_open_on_one_loop(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as first:
            async with ms.open_engine([provider]) as second:
                assert (await first.request(ask())).text == (await second.request(ask())).text
            with pytest.raises(EngineClosedError):
                second.start_request(ask())
            assert (await first.request(ask())).text
        async with ms.open_engine([provider]) as third:
            assert (await third.request(ask())).text

    run(main)


def test_tasks_may_open_and_close_engines_in_any_order(provider: ms.Provider) -> None:
    async def main() -> None:
        async def use(rounds: int) -> None:
            for _ in range(rounds):
                async with ms.open_engine([provider]) as engine:
                    assert (await engine.request(ask())).text

        await asyncio.gather(*(use(3) for _ in range(5)))

    run(main)


def test_loops_in_several_threads_are_independent(provider: ms.Provider) -> None:
    done: list[str] = []

    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            done.append((await engine.request(ask())).text)

    threads = [threading.Thread(target=run, args=(main,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
    assert len(done) == 3


def test_an_unusable_provider_is_refused_by_open_engine(provider: ms.Provider) -> None:
    async def main() -> None:
        with pytest.raises(ms.InvalidRequestError, match="two are named 'sim'"):
            async with ms.open_engine([provider, provider]):
                raise AssertionError

    run(main)


def test_a_request_that_cannot_be_sent_raises_at_once(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(ms.InvalidRequestError, match="messages"):
                engine.start_request(ms.Request("sim/m", []))

    run(main)


BREAKS = [ZeroDivisionError, KeyboardInterrupt, SystemExit]


@pytest.mark.parametrize("error", BREAKS)
@pytest.mark.parametrize("way", ["task", "alarm", "soon"])
def test_a_broken_engine_ends_its_block_with_the_error(
    provider: ms.Provider, way: str, error: type[BaseException]
) -> None:
    async def main() -> None:
        async def defect() -> None:
            fail()

        def fail() -> None:
            raise error

        completions: list[ms.Completion] = []

        async def use() -> None:
            async with ms.open_engine([provider]) as engine:
                engine.start_stream(ask(ENDLESS), None, completions.append)
                backend = engine._calls.backend  # pyright: ignore[reportPrivateUsage]
                if way == "task":
                    backend.start(defect)
                elif way == "alarm":
                    backend.alarm(fail).set(backend.clock())
                else:
                    backend.soon(fail)
                await asyncio.sleep(LONGEST)

        with pytest.raises(error):
            await use()
        assert [completion.error_category for completion in completions] == ["cancelled"]
        await asyncio.sleep(0)  # the cancellation of this task was taken back

    run(main)


@pytest.mark.parametrize("error", BREAKS)
def test_a_loop_that_fails_ends_its_block_with_the_error(
    provider: ms.Provider, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def broken(loop: PollerLoop) -> int:
        raise error

    async def main() -> None:
        completions: list[ms.Completion] = []

        async def use() -> None:
            async with ms.open_engine([provider]) as engine:
                engine.start_stream(ask(ENDLESS), None, completions.append)
                monkeypatch.setattr(PollerLoop, "tick", broken)
                await asyncio.sleep(LONGEST)

        with pytest.raises(error):
            await use()
        assert [completion.error_category for completion in completions] == ["cancelled"]

    run(main)


class ProactorLoop(asyncio.SelectorEventLoop):
    """An event loop that cannot wait for descriptors, as that of Windows."""

    def add_reader(self, *arguments: object) -> None:  # type: ignore[override]
        raise NotImplementedError


@pytest.mark.parametrize("opens", [ms.open_engine, ms.LazyEngine])
def test_an_event_loop_that_cannot_watch_descriptors_is_refused(
    opens: Callable[..., Any], provider: ms.Provider
) -> None:
    async def main() -> None:
        async with opens([provider]) as engine:
            engine.start_request(ms.Request("sim", "hi"))

    words = r"ProactorLoop on this platform cannot wait for an epoll .* use manystream\.portal"
    with contextlib.closing(ProactorLoop()) as loop, pytest.raises(EventLoopError, match=words):
        loop.run_until_complete(main())


def test_a_platform_without_a_poller_is_refused(provider: ms.Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_tasks, "make_poller", lambda: None)

    async def main() -> None:
        with pytest.raises(EventLoopError, match="on this platform cannot wait"):
            async with ms.open_engine([provider]):
                raise AssertionError
        assert len(asyncio.all_tasks()) == 1

    run(main)


# --- one thread, several event loops ---


async def answered(engine: ms.Engine) -> str:
    return (await engine.request(ask())).text


async def on_trio(provider: ms.Provider) -> str:
    async with ms.open_engine([provider]) as engine:
        return await answered(engine)


async def on_asyncio(provider: ms.Provider) -> str:
    async with ms.open_engine([provider]) as engine:
        return await answered(engine)


def loop_factory(library: str) -> Callable[[], asyncio.AbstractEventLoop]:
    return pytest.importorskip("uvloop").new_event_loop if library == "uvloop" else asyncio.new_event_loop  # type: ignore[no-any-return]


@pytest.mark.parametrize("library", ["asyncio", "uvloop"])
def test_an_engine_lives_from_task_to_task_of_its_loop(provider: ms.Provider, library: str) -> None:
    """As a fixture of a session, and as the cells of a notebook: each is a task of its own."""
    with asyncio.Runner(loop_factory=loop_factory(library)) as session:
        block = ms.open_engine([provider])
        engine = session.run(block.__aenter__())  # type: ignore[arg-type]
        expected = session.run(answered(engine))
        assert expected
        with asyncio.Runner(loop_factory=loop_factory(library)) as function:
            assert function.run(on_asyncio(provider)) == expected
        assert trio.run(on_trio, provider) == expected
        assert asyncio.run(on_asyncio(provider)) == expected
        assert session.run(answered(engine)) == expected
        session.run(block.__aexit__(None, None, None))  # type: ignore[arg-type]
        assert session.run(on_asyncio(provider)) == expected
    assert trio.run(on_trio, provider) == expected


def test_a_trio_run_inside_a_task_leaves_the_engine_alone(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            text = await answered(engine)
            assert trio.run(on_trio, provider) == text
            assert await answered(engine) == text
            assert trio.run(on_asyncio, provider) == text  # the loop of the task decides

    run(main)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio_runs_the_engine_of_its_backend(provider: ms.Provider, backend: str) -> None:
    anyio = pytest.importorskip("anyio")
    for _ in range(2):
        assert anyio.run(on_asyncio if backend == "asyncio" else on_trio, provider, backend=backend)


def test_a_loop_that_ends_closes_an_open_engine(provider: ms.Provider) -> None:
    completions: list[ms.Completion] = []
    blocks: list[object] = []

    async def main() -> None:
        blocks.append(block := ms.open_engine([provider]))
        engine = await block.__aenter__()
        engine.start_stream(ask(ENDLESS), None, completions.append)
        await eventually(lambda: engine.statistics().events > 0)

    run(main)
    assert [completion.error_category for completion in completions] == ["cancelled"]
    assert asyncio.run(on_asyncio(provider))


CUT_SHORT = """
import asyncio, pathlib, sys, tempfile, threading
import manystream as ms

PROVIDERS = [ms.OpenAIChat("key", "http://127.0.0.1:9/v1", name="sim")]
REQUEST = ms.Request("sim/m", [ms.Message.user("x")])
FOLDER = pathlib.Path(tempfile.mkdtemp())
kept = []

async def enter(**options):
    kept.append(ms.open_engine(PROVIDERS, **options))
    return await kept[-1].__aenter__()

async def raises():
    (await enter()).start_stream(REQUEST)
    raise ZeroDivisionError

async def returns():
    (await enter()).start_stream(REQUEST)

async def traffic():
    (await enter(traffic=ms.Traffic())).start_request(REQUEST)

async def shared():
    (await enter(traffic=ms.Traffic(shared=FOLDER / "shared"))).start_request(REQUEST)

async def monitor():
    (await enter(monitor=FOLDER / "monitor")).start_request(REQUEST)

def cancel_all():
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()

async def cancels():
    async with ms.open_engine(PROVIDERS) as engine:
        engine.start_stream(REQUEST)
        cancel_all()

async def maps():
    async with ms.open_engine(PROVIDERS) as engine, engine.map([REQUEST]) as results:
        cancel_all()
        async for _ in results:
            pass

def run():
    for main in (raises, returns, traffic, shared, monitor, cancels, maps):
        try:
            asyncio.run(main())
        except (ZeroDivisionError, asyncio.CancelledError):
            pass
        print(main.__name__, flush=True)

if sys.argv[1] == "thread":
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
else:
    run()
print("ended")
"""


@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_loop_that_ends_before_tasks_began_ends(where: str) -> None:
    """asyncio drops a task that is cancelled before its first step, and the engine would wait for it forever."""
    command = [sys.executable, "-W", "error", "-c", CUT_SHORT, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("raises\nreturns\ntraffic\nshared\nmonitor\ncancels\nmaps\nended\n", "")


def test_an_engine_needs_no_thread(provider: ms.Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert asyncio.run(on_asyncio(provider))


def ask_in_a_process(url: str) -> str:
    """Ask twice, on two event loops: the work of one process of a pool."""
    provider = ms.OpenAIChat("key", url, name="sim")
    assert asyncio.run(on_asyncio(provider)) == trio.run(on_trio, provider)
    return asyncio.run(on_asyncio(provider))


PROCESSES = """
import asyncio, multiprocessing, sys, warnings
import manystream as ms
from concurrent.futures import ProcessPoolExecutor
from tests.engine.test_asyncio_tasks import answered, ask_in_a_process

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork in a process with threads

async def main(method, url):
    async with ms.open_engine([ms.OpenAIChat("key", url, name="sim")]) as engine:
        text = await answered(engine)
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            loop = asyncio.get_running_loop()
            texts = await asyncio.gather(*(loop.run_in_executor(pool, ask_in_a_process, url) for _ in range(2)))
        assert {*texts, await answered(engine)} == {text}

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    print("done")
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_a_pool_open_engines_of_their_own(simulator: Simulator, tmp_path: Path, method: str) -> None:
    """The parent's engine is open meanwhile, in the task that forks."""
    program = tmp_path / "program.py"
    program.write_text(PROCESSES)
    done = subprocess.run(
        [sys.executable, str(program), method, simulator.base_urls["openai-chat"]],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


# --- wrong use ---


# --- signals and examples ---

INTERRUPTED = """
import asyncio, sys
import manystream as ms

async def main():
    provider = ms.OpenAIChat("key", sys.argv[1], name="sim")
    async with ms.open_engine([provider]) as engine:
        call = engine.start_stream(ms.Request("sim/sim-text@events=100000,rate=100", [ms.Message.user("x")]))
        print("open", flush=True)
        try:
            await call.wait()
        finally:
            print("cancelled", flush=True)
    print("never")

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_cancels_the_main_task_as_usual_in_asyncio(simulator: Simulator) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, simulator.base_urls["openai-chat"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "open\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONGEST)
    finally:
        process.kill()
        process.wait()
    assert (out, err) == ("cancelled\ninterrupted\n", "")


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "asyncio_app.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "5 answers" in done.stdout
