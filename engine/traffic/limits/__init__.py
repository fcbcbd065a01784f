"""The limits of one key: reported, declared and learned ones, and how many calls run at a time.

`LimiterState` combines the pure machines and a fair queue; `Limiter` owns one with its timer and its log. A call is
sent when all of them have room for it:

| machine | what it limits | by what |
|---|---|---|
| `quota`, `bucket` | amounts over time | reported and declared limits; rates learned from refusals |
| `Window` in `quota` | calls that may still be refused | calls that were accepted, as in TCP's slow start |
| `concurrency` | calls that run at a time | the time to the first token; refusals of a full server |
| `DeclaredLimit` in `limiter` | one entry of the user's `rates` | several limiters may share it, and take turns |
| `host` | a server that is away: an address and a group of models | one call at a time asks, all others wait |

Times are passed to each of them, and none has a timer. A learned limit is a bucket of its own, so that no later report
raises it. Engines in several processes share a declared limit by leases (`leases.py`): each sends within its part.
"""
