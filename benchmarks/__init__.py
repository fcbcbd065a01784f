"""How fast is it? One file per question, every peer in the same run, ratios recorded.

`python -m benchmarks [--quick]` runs the set; each file also runs alone (`python -m benchmarks.live_streams`).
Nothing here is part of the package, and nothing here but `peers/ours*.py` and the in-memory questions imports it.
Linux with a C compiler is needed: the load source is an epoll server in C.
"""
