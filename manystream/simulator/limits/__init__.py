"""Rate limits of the simulator: what servers charge, refuse and report.

`limit` is the configuration, `servers` the rules of each server as data, `bucket` the accounting, `reports` the
headers, `refusals` the errors, and `limiter` decides. None of them reads a clock or a socket.
"""
