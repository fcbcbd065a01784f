"""Each example runs as a reader would run it: from its own folder, without a key, against the simulator.

The relay is also driven as an ASGI server would drive it, message by message, to test browsers that disconnect.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.waiting import LONGEST

FOLDER = Path(__file__).resolve().parent.parent / "examples"
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "MANYSTREAM_MODEL")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in KEYS and "proxy" not in name.lower()}
ENVIRONMENT |= {"PYTHONIOENCODING": "utf-8", "HOME": "/nonexistent"}


def run(name: str, *arguments: str, given: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run an example and wait for its end."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / name), *arguments], input=given, capture_output=True, text=True,
        encoding="utf-8", env=ENVIRONMENT, timeout=LONGEST, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def drive(program: str, display: str = "") -> str:
    """Run a program that imports an example, in the example's folder."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=FOLDER, capture_output=True, text=True, encoding="utf-8",
        env=ENVIRONMENT | ({"DISPLAY": display} if display else {}), timeout=LONGEST, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_a_stopped_service_finishes_its_running_answers() -> None:
    lines = run("graceful_stop.py").stdout.splitlines()
    assert lines[0].startswith("SIGTERM: 20 calls may end")
    assert lines[1] == "all have ended"
    calls, whole = (int(number) for number in re.findall(r"\d+", lines[2]))
    assert calls == whole >= 20


def test_the_orchestrator_runs_all_agents_and_tools() -> None:
    done = run("orchestrator.py", "--agents", "12")
    last = done.stdout.splitlines()
    assert last[-1].startswith("12 of 12 agents done")
    # Three rounds of three calls each.
    assert f"{12 * 3 * 3} tools run" in last[-2]
    assert not done.stderr


def test_the_orchestrator_reports_agents_that_fail() -> None:
    done = run("orchestrator.py", "--agents", "2", "--model", "m", "--base-url", "http://127.0.0.1:1/v1", status=1)
    assert "0 of 2 agents done" in done.stdout
    assert "agent-000: cannot connect to http://127.0.0.1:1" in done.stderr


def test_the_chat_answers_each_line_until_quit() -> None:
    done = run("chat.py", given="Tell me of rivers.\nAnd of bridges?\n/quit\nnever asked\n")
    assert done.stdout.count("tokens]") == 2
    assert done.stdout.count("> ") == 3


def test_the_race_has_one_winner_and_cancels_the_others() -> None:
    lines = run("race.py").stdout.splitlines()
    how = {line.split()[0]: line.split()[1] for line in lines[:3]}
    assert how == {"openai-chat/slow": "cancelled,", "anthropic/quick": "won,", "google/broken": "auth,"}
    assert lines[-1].startswith("anthropic/quick answers: ")


def test_a_conversation_continues_with_another_provider() -> None:
    lines = run("switch_provider.py").stdout.splitlines()
    assert [line.split("/")[0] for line in lines[:4]] == ["openai", "anthropic", "google", "openai"]
    assert lines[-1] == "10 messages, 1 tool calls, 4 turns"


def test_extraction_prints_a_line_of_json_per_file() -> None:
    done = run("extract.py")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(row["file"] for row in rows) == sorted(path.name for path in (FOLDER / "invoices").glob("*.txt"))
    assert all(isinstance(row["data"]["total"], float) and row["data"]["lines"] for row in rows)
    assert "3 files, 0 failed" in done.stderr


def test_extraction_writes_failures_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("simulate: fail=401", "utf-8")
    (tmp_path / "two.txt").write_text("Invoice 7", "utf-8")
    done = run("extract.py", str(tmp_path), status=1)
    assert [json.loads(line)["file"] for line in done.stdout.splitlines()] == ["two.txt"]
    assert done.stderr.startswith("one.txt: auth: ")


def test_the_relay_stops_for_a_browser_that_disconnects() -> None:
    stayed, left = run("relay.py").stdout.splitlines()
    assert stayed == "stayed: 61 frames, the last is 'event: done'"
    assert "1 upstream call cancelled, 0 run" in left


LIFESPAN = """
import asyncio, relay

async def main():
    sent = asyncio.Queue()
    asked = asyncio.Queue()
    asked.put_nowait({"type": "lifespan.startup"})
    server = asyncio.create_task(relay.app({"type": "lifespan"}, asked.get, sent.put))
    print((await sent.get())["type"])
    pages = []
    for path, query in [("/", b""), ("/nowhere", b""), ("/stream", b""), ("/stream", b"prompt=simulate:fail=401")]:
        answers = []
        async def send(message):
            answers.append(message)
        scope = {"type": "http", "path": "/models" + path, "root_path": "/models", "query_string": query}
        await relay.app(scope, asyncio.Event().wait, send)
        print(path, answers[0]["status"], answers[-2].get("body", b"").decode().split("\\n")[0])
    asked.put_nowait({"type": "lifespan.shutdown"})
    await server
    print((await sent.get())["type"])

asyncio.run(main())
"""

FAILING_SEND = """
import asyncio, relay

async def main():
    async with relay.app.lifespan():
        async def send(message):
            raise OSError("the browser has gone")
        scope = {"type": "http", "path": "/stream", "query_string": b"prompt=hello"}
        await relay.app(scope, asyncio.Event().wait, send)
        await asyncio.sleep(0.1)
        print(relay.app.engine.statistics().cancelled)

asyncio.run(main())
"""


def test_the_relay_supports_lifespan_and_a_mount_prefix() -> None:
    assert drive(LIFESPAN).splitlines() == [
        "lifespan.startup.complete", "/ 200 ", "/nowhere 404 ", "/stream 400 ", "/stream 200 event: failure",
        "lifespan.shutdown.complete",
    ]  # fmt: skip


def test_the_relay_stops_its_call_when_sending_fails() -> None:
    assert drive(FAILING_SEND).split() == ["1"]


# --- a custom wire format ---

OWN_DIALECT_READS = """
import manystream as ms
from own_dialect import PARROT

provider = ms.Provider("any", profile=PARROT)

def streamed(*events):
    machine = PARROT.dialect.machine(provider, lambda: "id")
    delivered = [event for name, data in events for event in machine.feed(name, data)] + list(machine.end())
    return delivered[-1].error if isinstance(delivered[-1], ms.ErrorEvent) else machine.response()

body = b'{"talk": "t", "model": "m", "words": "ab", "why": "too long", "heard": 1, "spoken": 2}'
whole = PARROT.dialect.decode(body, provider, lambda: "id")
begin, a, b = ("begin", b'{"talk": "t", "model": "m"}'), ("words", b'{"words": "a"}'), ("words", b'{"words": "b"}')
end = ("end", b'{"why": "too long", "heard": 1, "spoken": 2}')
print(streamed(begin, a, b, end) == whole, whole.finish_reason)
print(streamed(begin, ("gossip", b"?"), a, b, end) == whole)
print(streamed(begin, a).category)
print(streamed(begin, ("words", b"{"), b))
print(streamed(begin, ("words", b'{"words": 5}'), end).text == "")
print(streamed(begin, ("trouble", b'{"trouble": "fell over", "again_in": 1}')).retry_after_ms)
print(repr(PARROT.dialect.decode_error(503, {}, b"<html>", 0.0)))
for wrong in ({"tools": [ms.Tool("t", "", {})]}, {"temperature": -1}):
    try:
        PARROT.dialect.encode(ms.Request("m", [ms.Message.user("x")], **wrong), "m", provider, stream=True)
    except ms.InvalidRequestError as error:
        print(error.field)
"""


def test_a_custom_wire_format_handles_calls_and_errors() -> None:
    lines = run("own_dialect.py").stdout.splitlines()
    assert [line.split("(")[0] for line in lines[:4]] == ["Start", "TextDelta", "TextDelta", "Done"]
    assert lines[5] == "Hello! stop 6 ['seed: not sent; the server has no such setting']"
    assert re.sub(r":\d+:", ":PORT:", lines[6]) == (
        "rate_limit, HTTP 429, provider parrot, model parrot-hoarse, host 127.0.0.1:PORT: I am hoarse (retry after 2 s)"
    )


def test_a_custom_wire_format_reads_both_forms_alike() -> None:
    assert drive(OWN_DIALECT_READS).splitlines() == [
        "True length", "True", "network", "server: the server sent something that is not a JSON object", "True",
        "1000", "ProviderError('HTTP 503', category=SERVER, http_status=503, retryable=True)", "tools", "temperature",
    ]  # fmt: skip


# --- event loops of other libraries ---

NO_ENGINE = """
from guest import Guest
from select_loop import SelectLoop
import manystream as ms

loop = SelectLoop()
provider = ms.OpenAIChat("key", "ftp://nowhere")
guest = Guest([provider], print, loop.stop, call_soon_threadsafe=loop.call_soon_threadsafe)
loop.run()
try:
    guest.check()
except ms.InvalidRequestError as error:
    print(error)
loop.close()
"""

WINDOW = """
import threading, tkinter
from argparse import Namespace
from setting import open_setting
from tkinter_window import TkLoop, Window, start_guest

with open_setting(Namespace(model=None, base_url=None), "events=200,rate=400") as setting:
    root = tkinter.Tk()
    window = Window(root, setting.model)
    loop = TkLoop(root)
    clicks = 0

    def on_open(engine):
        window.on_open(engine)
        window.ask()
        click()

    def click():
        global clicks
        clicks += 1
        if window.state["text"] == "answering":
            root.after(10, click)
        else:
            print(window.state["text"], len(window.text.get("1.0", "end").split()), clicks > 5)
            guest.close()

    guest = start_guest(loop, setting.providers, on_open)
    loop.run()
    guest.check()
    root.destroy()
"""


@pytest.fixture
def display() -> Generator[str, None, None]:
    """Return an X display: the existing one, or a virtual one."""
    pytest.importorskip("tkinter", reason="this Python has no tkinter")
    if os.environ.get("DISPLAY"):
        yield os.environ["DISPLAY"]
        return
    if shutil.which("Xvfb") is None:
        pytest.skip("there is no display, and no Xvfb for a virtual one")
    with subprocess.Popen(["Xvfb", "-displayfd", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        yield f":{server.stdout.readline().decode().strip()}"
        server.terminate()


def test_a_select_loop_cancels_the_call_of_a_lost_client() -> None:
    done = run("select_loop.py")
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["rivers", "bridges"]
    assert all(int(re.findall(r"\d+", line)[0]) > 10 for line in lines[:2])
    assert lines[2:] == ["3 calls, 1 cancelled"]
    assert not done.stderr


def test_a_guest_that_cannot_open_its_engine_reports_the_reason() -> None:
    assert "base_url" in drive(NO_ENGINE)


def test_tk_s_loop_runs_a_call_without_a_display() -> None:
    pytest.importorskip("tkinter", reason="this Python has no tkinter")
    done = run("tkinter_window.py", "--no-window")
    lines = done.stdout.split("\n")
    assert lines[0] == "[answering]"
    assert len(lines[1].split()) > 10
    assert lines[-2] == "[done]"
    assert not done.stderr


def test_a_window_stays_alive_while_its_answer_streams(display: str) -> None:
    state, words, alive = drive(WINDOW, display).split()
    assert (state, alive) == ("done", "True")
    assert int(words) > 100


@pytest.mark.parametrize("arguments", [["select_loop.py", "--port", "0"], ["tkinter_window.py", "--no-window"]])
def test_ctrl_c_closes_a_guest_and_its_loop(arguments: list[str]) -> None:
    if arguments[0].startswith("tkinter"):
        pytest.importorskip("tkinter", reason="this Python has no tkinter")
    command = [sys.executable, "-W", "error", "-u", arguments[0], *arguments[1:]]
    with subprocess.Popen(
        command, cwd=FOLDER, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout.readline()
        program.send_signal(signal.SIGINT)
        rest, complaints = program.communicate(timeout=LONGEST)
        assert (program.returncode, complaints) == (0, "")
        assert rest.endswith(("0 cancelled\n", "[cancelled]\n"))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_every_example_describes_itself_and_how_to_run_it(path: Path) -> None:
    assert path.read_text("utf-8").startswith('"""')
