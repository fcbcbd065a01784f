"""What servers report about their limits, and how they charge a request, as rows of data.

A dialect's `rate_limits.py` reads the head of a response, or the body of a refusal, as a `QuotaReport`. `charging.py`
says what a server counts, and when. `input_limits.py` and `output_limits.py` give the most that one body can cost, for
budgets; `server_tools.py` counts what an answer used that is billed by the use. Nothing here decides when a call is
sent: that is `engine/traffic/`, which names no provider.
"""
