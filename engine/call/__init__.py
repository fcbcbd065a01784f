"""One call, from its start to its one completion.

`RunningCall` (`call.py`) decides after each attempt: complete, retry or fail. `Attempt` carries one request over one
connection, and passes the response to a reader of its body (`body/`). `Delivery` calls `on_event`. The states and the
timeouts are pure functions (`call_state.py`, `timeouts.py`); `ending.py` performs the steps of the end, each once.

A running call is an object and not a task: the loop and the timers call its methods. Nothing here decides when a call
is sent or where to; `traffic/` does.
"""
