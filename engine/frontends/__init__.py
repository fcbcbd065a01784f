"""How programs drive calls without callbacks: an iterator over a stream, a map over requests, and portals for threads.

All of them start calls with `start_stream` and `start_request`, and use nothing else of a call.
"""
