"""How programs open an engine and drive its calls: `Engine` with callbacks, an iterator over a stream, a map over
requests, and portals for threads.

The last three start calls with `start_stream` and `start_request`, and use nothing else of a call.
"""
