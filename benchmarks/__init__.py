"""The benchmarks: one file per question. All peers run in the same run, and the ratios are recorded.

`python -m benchmarks [--quick]` runs the set. `python -m benchmarks live_streams` asks one question. The
benchmarks are no part of the package. Only `peers/ours*.py` and the in-memory questions import the package. They need
Linux and a C compiler, because the load source is an epoll server in C.
"""
