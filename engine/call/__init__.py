"""One call, from its start to its one completion.

`RunningCall` (`call.py`) decides after each attempt: complete, retry or fail. It delivers the events, and ends once, in
steps. `Attempt` carries one request over one connection, and ends at its own timeouts. The states and the timeouts are
pure functions (`timeouts.py`). While a call waits for traffic control or for a retry it has no attempt under way, and
judges the timeouts itself. A hedged call has two attempts; the first one with content stays.

The readers of a response body are one per kind: `stream_body`, `answer_body` and `error_body`. `Envelope` chooses by
the first bytes. Each is a `Body` (`body.py`) with `feed`, `end` and `fail`, and reports to its attempt.

A running call is an object and not a task: the loop and the timers call its methods. Nothing here decides when a call
is sent or where to; `traffic/` does.

An ended call is in no reference cycle (`Attempt.release`), so that it is freed at once. Else each call would be work
for the garbage collector, whose pauses stop all streams.
"""
