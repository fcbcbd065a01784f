"""How programs open an engine and drive its calls: `Engine` with callbacks, an iterator over a stream, a map over
requests, and portals for threads.

`Engine` (`engine.py`) is what a program sees, and the block of `open_engine` holds its tasks. The others start calls
with `start_stream` and `start_request`, and use nothing else of a call. They differ in how they wait: in trio here, in
asyncio in `manystream/aio.py`, and by blocking a thread in a portal. What does not wait is a base class that they share
(`BufferedEvents`, `MappedCalls`). While a stream's buffer is full, the loop does not read its socket.
"""
