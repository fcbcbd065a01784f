"""Files that are named for reading: no reader waits for the writer of a named pipe."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import manystream as ms
from manystream.bench.compare import read_result
from manystream.bench.work import read_prompts
from manystream.cost import PriceTable
from manystream.engine.request.credentials import find_key
from manystream.simulator.replay import read_replay
from manystream.transport.files import read_file
from manystream.transport.tls import make_context

READERS: dict[str, Callable[[Path], object]] = {
    "any": read_file,
    "credentials": lambda path: find_key(ms.OpenAIChat(), {"MANYSTREAM_CREDENTIALS": str(path)}),
    "prices": PriceTable.read,
    "bench results": read_result,
    "bench prompts": lambda path: read_prompts(path, "m"),
    "recording": lambda path: read_replay(str(path)),
    "CA": lambda path: make_context(ms.TLSConfig(ca_file=str(path))),
    "client certificate": lambda path: make_context(ms.TLSConfig(client_certificate=ms.ClientCertificate(str(path)))),
}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no named pipe")
@pytest.mark.parametrize("reader", READERS)
def test_a_named_pipe_is_refused_and_not_waited_for(reader: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises((OSError, ms.ManystreamError, ValueError), match=r"named pipe|no regular file"):
            READERS[reader](tmp_path / name)


@pytest.mark.skipif(not Path("/dev/fd").is_dir() or sys.platform == "darwin", reason="no pipe without a name")
def test_a_pipe_of_the_shell_is_read() -> None:
    program = "from manystream.transport.files import read_file; print(read_file('/dev/stdin'))"
    done = subprocess.run([sys.executable, "-c", program], input=b"x", capture_output=True, check=True, timeout=60)
    assert done.stdout == b"b'x'\n"
