"""One call, from its start to its one completion.

`RunningCall` (`call.py`) delivers the events, and ends once, in steps. After a failed attempt it asks `next_step`
(`next_step.py`) what to do, and does it. `Attempt` carries one request over one connection, and ends at its own
timeouts. The states and the timeouts are pure functions (`timeouts.py`). While a call waits for traffic control or for
a retry it has no attempt under way, and judges the timeouts itself. A hedged call has two attempts; the first one with
content stays.

The readers of a response body are one per kind: `stream_body`, `answer_body` and `error_body`. `Envelope` chooses by
the first bytes. Each is a `Body` (`body.py`) with `feed`, `end` and `fail`, and reports to its attempt.

A running call is an object and not a task: the loop and the timers call its methods. Nothing here decides when a call
is sent or where to; `traffic/` does.

What follows a failed attempt depends on what is kept of the answer (`Verdict` in `request/answers.py`), on what failed,
and on what traffic control says (`Outlook`). By then that has ended the attempt's permit and reservation.

| the answer | what failed | next step; with traffic control that lets the call wait: `Wait` |
|---|---|---|
| `AGAIN`: nothing was delivered | a stale connection; the key, and there is a newer one | `Send`: the permit stays |
| | retryable, attempts left | `Pause`: the server's hint; else a back-off, out of the engine's reserve |
| | the connection, with traffic control | `Pause` of at most 1 s: one call at a time asks the server |
| | anything else | `Fail` |
| `REST`: the ids so far are the prompt of the rest | ids came | `Pause(0)` |
| | no ids came | `Pause`; after `max_attempts` in a row `Fail` |
| `READ`: the server keeps it | a stale connection, or the key | `ReadOn`; never `Wait` |
| | anything retryable | `ReadOn` after a pause; after `idle` seconds in vain `Fail` |
| `WHOLE`: all ids came | anything | `Complete` |
| `LOST`: a part was delivered, or it is gone | anything | `Fail` |

Traffic control lets a call wait when a limit refused it, when its server is away, and when another key or target may
take it. Attempts that a limit refused, and those that found the server away, do not count.

An ended call is in no reference cycle (`Attempt.release`), so that it is freed at once. Else each call would be work
for the garbage collector, whose pauses stop all streams.
"""
