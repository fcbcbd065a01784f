"""One call, from its start to its one completion.

`RunningCall` (`call.py`) delivers the events, and ends once, in steps. After a failed attempt it asks `next_step`
(`next_step.py`) what to do, and does it. `Attempt` carries one request over one connection, and ends at its own timeouts. The states and the timeouts are
pure functions (`timeouts.py`). While a call waits for traffic control or for a retry it has no attempt under way, and
judges the timeouts itself. A hedged call has two attempts; the first one with content stays.

The readers of a response body are one per kind: `stream_body`, `answer_body` and `error_body`. `Envelope` chooses by
the first bytes. Each is a `Body` (`body.py`) with `feed`, `end` and `fail`, and reports to its attempt.

A running call is an object and not a task: the loop and the timers call its methods. Nothing here decides when a call
is sent or where to; `traffic/` does.

What follows a failed attempt depends on how the answer stands (`Verdict`, in `request/answers.py`) and on what traffic
control says (`Outlook`), which has ended the permit and the reservation of the attempt by then:

| the answer | what failed | no word of limits | the server may be away | limits or targets |
|---|---|---|---|---|
| `AGAIN`: nothing was delivered | stale connection, newer key | `Send`, with the same permit | the same | the same |
| | retryable, attempts left | `Pause`: hint, or back-off out of the reserve | `Pause`: at most 1 s, no reserve | `Wait` |
| | else | `Fail` | `Fail` | `Wait` |
| `REST`: the ids so far are the prompt of the rest | ids came | `Pause(0)` | the same | `Wait` |
| | no ids came | `Pause`, `Fail` after `max_attempts` in a row | the same | `Wait` |
| `READ`: the server keeps it | stale connection, newer key | `ReadOn` | | |
| | else | `ReadOn` after a pause, `Fail` after `idle` seconds in vain | | |
| `WHOLE`: all ids came | any | `Complete` | | |
| `LOST`: a part was delivered, or it is gone | any | `Fail` | | |

Traffic control lets a call wait when a limit refused it, when its server is away, and when another key or target may
take it. These attempts count not: those that a limit refused or that found the server away.

An ended call is in no reference cycle (`Attempt.release`), so that it is freed at once. Else each call would be work
for the garbage collector, whose pauses stop all streams.
"""
