"""Results of load tests with known figures, and the report on one of them."""

from manystream.bench.figures import Percentiles, Result

RESULT = Result(
    concurrency=2000, seconds=10.0, stream=True, ok=12345, calls_per_second=1234.56, unfinished=2000,
    failures={"server": 1000, "network": 3}, first_failure="the server\x1b failed",
    first_content=Percentiles(0.1, 0.2, 0.3), call=Percentiles(1.5, 2.5, 3.5), events=1_000_000, tokens=2_000_000,
    gap_p50=0.02, gap_p99=0.05, gap_longest=1.25, client_seconds=5.0, simulator_seconds=7.5, loop_lag=0.0125,
    connections_opened=2001, connections_reused=10344, warnings=["one", "two"],
)  # fmt: skip
UNSTREAMED = Result(
    concurrency=1, seconds=4.0, stream=False, ok=2, calls_per_second=0.5, unfinished=0, failures={}, first_failure="",
    first_content=Percentiles(), call=Percentiles(1.0, 1.0, 1.0), events=2, tokens=None, gap_p50=None, gap_p99=None,
    gap_longest=None, client_seconds=0.2, simulator_seconds=None, loop_lag=0.0, connections_opened=1,
    connections_reused=1,
)  # fmt: skip
REPORT = """\
calls             12,345 ok (1,234.6/s), 1,003 failed (network 3, server 1,000), 2,000 cancelled at the end
first failure     the server\ufffd failed
first content     p50 100.0 ms, p90 200.0 ms, p99 300.0 ms
gaps in a stream  p50 20.0 ms, p99 50.0 ms, longest 1.25 s
events            100,000/s, 1,000,000 in 10.0 s
whole call        p50 1.50 s, p90 2.50 s, p99 3.50 s
output tokens     200,000/s
this client       5 µs of processor time per event, 50% of one core, loop lag 12.5 ms
connections       2,001 opened, 10,344 reuses
note: one
note: two"""
RESULT_OBJECT = {
    "concurrency": 2000,
    "stream": True,
    "seconds": 10.0,
    "calls": {"ok": 12345, "failed": 1003, "unfinished": 2000},
    "calls_per_second": 1234.56,
    "failures": {"server": 1000, "network": 3},
    "first_failure": "the server\x1b failed",
    "first_content": {"p50": 0.1, "p90": 0.2, "p99": 0.3},
    "call": {"p50": 1.5, "p90": 2.5, "p99": 3.5},
    "events": 1_000_000,
    "events_per_second": 100_000.0,
    "output_tokens": 2_000_000,
    "output_tokens_per_second": 200_000.0,
    "gap": {"p50": 0.02, "p99": 0.05, "longest": 1.25},
    "client": {"cpu_per_event": 5e-6, "cpu_share": 0.5, "loop_lag": 0.0125},
    "simulator": {"cpu_share": 0.75},
    "connections": {"opened": 2001, "reused": 10344},
    "interrupted": False,
    "silent": 0,
    "warnings": ["one", "two"],
}
