"""Which target of a route a call goes to: scores, breakers, sessions, keys, and when a call is sent twice.

`RouteState` knows each target by its record: its breaker, its smoothed time to the first event and its share of
failures. It ranks the targets that a call may use; a session stays where it was, for the server's prompt cache.
`Router` owns one, and is the pump of the calls that wait while every target is left alone. A provider with several keys
is a route with one target. `options.py` has what users write: routes, targets, hedges. The choices of one call are in
`../targets.py`.
"""
