"""Traffic control: when a call is sent, to which target, and within which budget.

A call waits in lines: for a limit, for a target, for a budget. What it waits for and then holds is its permit. Each
line is a pump (`queue/pump.py`), which takes one call out, notifies it, and looks again. `Limiter`, `Router` and
`Budgets` are pumps: each owns a pure state, to which the time is passed (`LimiterState`, `RouteState`,
`BudgetsState`), a timer and a log. `Admission` is one call with one target, `Routed` one with several, and `Dispatcher`
finds what they need.

Imports go one way: the files here → `routing`, `budgets` → `limits` → `queue`. The page `docs/design/traffic.md` has
the theory, and what is known to be ugly.
"""
