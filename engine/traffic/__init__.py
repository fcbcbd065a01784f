"""Traffic control: when a call is sent, to which target, and within which budget.

A call waits in lines: for a limit, for a target, for a budget. What it waits for and then holds is its permit. Each
line is a pump (`queue/pump.py`), which takes one call out, notifies it, and looks again. `Limiter`, `Router` and
`Budgets` are pumps: each owns a pure state, to which the time is passed (`LimiterState`, `RouteState`,
`BudgetsState`), a timer and a log. `Admission` is one call: where it waits, when it begins an attempt, and what the
attempt gives back. A call on a route has `Targets` (which of them it may go to, with which keys) and `Hedging` (when it
is sent a second time). `Dispatcher` finds what they need.

| a target is | which means |
|---|---|
| untried | the call may go there |
| waiting | the candidate of one of its keys is in a limiter's queue |
| under way | an attempt holds a candidate, which is its permit and has its reservation |
| failed | it failed since the call's last pause, or the call waited there for too long |
| finished | it would fail again: it cannot take the request, refuses all keys, or no budget pays for it |

After a failed attempt `Admission.failed` ends the permit, notes how the target stands, and says whether the call waits.

Imports go one way: the files here → `routing`, `budgets` → `limits` → `queue`. The page `docs/design/traffic.md` has
the theory, and what is known to be ugly.
"""
