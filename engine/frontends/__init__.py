"""How programs open an engine and drive its calls: `Engine` with callbacks, an iterator over a stream, a map over
requests, and portals for threads.

`Engine` (`engine.py`) is what a program sees; `opening.py` opens it in the block of `open_engine`. `LazyEngine`
(`lazy.py`) opens one per event loop, without a block. The others start calls with `start_stream` and `start_request`,
and use nothing else of a call. They wait on the engine's event loop, trio's or asyncio's, by its `Backend`, and in a
portal by blocking a thread. What does not wait is a base class that they share (`BufferedEvents`, `MappedCalls`). While
a stream's buffer is full, the loop does not read its socket.
"""
