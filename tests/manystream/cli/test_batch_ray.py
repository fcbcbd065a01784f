"""`manystream batch --ray`: options that do not fit together, and clusters that cannot be reached."""

from __future__ import annotations

import importlib
import socket
from pathlib import Path

import pytest

from manystream.cli import main
from manystream.cli.batch_ray import shares
from manystream.ray.cluster import ClusterError
from manystream.ray.ray_cluster import _probe
from tests.manystream.cli.test_batch import line, write


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--actors", "2"), "--actors is the number of workers on a Ray cluster: name the cluster with --ray"),
        (("--ray", "local", "--actors", "0"), "--actors must be above 0, not 0"),
        (("--ray", "local", "--max-rps", "5"), "--max-rps is not supported with --ray"),
        (("--ray", "local", "--max-tpm", "5"), "--max-tpm is not supported with --ray"),
        (("--ray", "10.0.0.5:6379"), "the simulator answers on this machine only, and --ray 10.0.0.5:6379 may use"),
        (("--ray", "local"), "Ray is not installed (No module named 'ray'): pip install 'manystream[ray]'"),
    ],
)
def test_an_error_is_one_line_and_status_2(
    words: tuple[str, ...],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def not_installed(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", not_installed)
    write(tmp_path / "p.jsonl", [line("a")])
    monkeypatch.chdir(tmp_path)
    assert main(["batch", "p.jsonl", "-o", "a.jsonl", *words]) == 2
    err = capsys.readouterr().err
    assert f"manystream batch: {complaint}" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("address", ["", "here", "ray://10.0.0.5:10001", "10.0.0.5:", ":6379", "10.0.0.5:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match="must be HOST:PORT of the cluster's head, auto or local"):
        _probe(address)


def test_an_address_where_nobody_listens_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"no Ray cluster answers at {address}: Connection refused"):
            _probe(address)


def test_the_calls_are_divided_evenly() -> None:
    assert (shares(450, 4), shares(2, 2)) == ([113, 113, 112, 112], [1, 1])
