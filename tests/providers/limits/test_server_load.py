"""What inference servers say of their queue, in the forms of their own metrics."""

from __future__ import annotations

import pytest

from manystream.providers.catalog.profiles import PROFILES
from manystream.providers.limits.server_load import ServerLoad, read_load, read_waiting
from manystream.providers.wire.quirks import LoadReport

ROWS: dict[str, tuple[LoadReport, ...]] = {row.name: row.quirks.load for row in PROFILES if row.quirks.load}

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a}b"} 100.0
vllm:num_requests_running{engine="1",model_name="a}b"} 2.8e+1
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
vllm:num_requests_waiting{engine="0",model_name="a}b"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="a}b",reason="capacity"} 7.0
"""
SGLANG = b"""{"version": "0.5.23", "loads": [{"dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 0},
 {"dp_rank": 1, "num_running_reqs": 4, "num_waiting_reqs":2}], "aggregate": {"total_running_reqs": 7}}"""


@pytest.mark.parametrize(
    ("profile", "way", "body", "load"),
    [
        ("vllm", 0, VLLM, ServerLoad(128, 7)),
        ("vllm", 0, VLLM.replace(b"\n", b"\r\n"), ServerLoad(128, 7)),
        ("vllm-generate", 0, VLLM, ServerLoad(128, 7)),
        ("vllm-completions", 0, VLLM, ServerLoad(128, 7)),
        ("sglang", 0, SGLANG, ServerLoad(7, 2)),
        ("sglang", 1, b'sglang:num_running_reqs{a="b"} 3\nsglang:num_queue_reqs{a="b"} 1\n', ServerLoad(3, 1)),
        ("llama-cpp", 0, b"llamacpp:requests_processing 4\nllamacpp:requests_deferred 46\n", ServerLoad(4, 46)),
        ("llama-cpp", 1, b'{"total_slots":8,"model_path":"m"}', ServerLoad(slots=8)),
        ("tgi", 0, b"tgi_batch_current_size 4\ntgi_queue_size 0\n", ServerLoad(4, 0)),
        ("lmdeploy", 0, b"lmdeploy:num_requests_running{} 5.0\nlmdeploy:num_requests_waiting{} 0.0", ServerLoad(5, 0)),
        ("vllm", 0, b"", None),
        ("vllm", 0, b"<html>vllm:num_requests_running 3</html>", None),
        ("vllm", 0, VLLM.replace(b"num_requests_waiting{", b"num_requests_other{"), None),
        ("vllm", 0, b"vllm:num_requests_running{} NaN\nvllm:num_requests_waiting{} -1\n", None),
        ("vllm", 0, b"vllm:num_requests_running 1\nvllm:num_requests_waiting " + b"9" * 5000 + b"\n", None),
    ],
)
def test_the_figures_are_read(profile: str, way: int, body: bytes, load: ServerLoad | None) -> None:
    assert read_load(ROWS[profile][way], body) == load


def test_the_header_of_an_answer_is_read() -> None:
    (row,) = ROWS["vllm"]
    assert read_waiting(row, 'JSON {"named_metrics": {"num_requests_waiting": 3.0, "kv_cache_usage_perc": 0.5}}') == 3
    assert read_waiting(row, "TEXT cpu_utilization=0.3") is None
