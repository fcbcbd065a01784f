"""Bytes: HTTP/1.1 requests over sockets, which one loop reads. Nothing here knows JSON or a model.

| part | what it is |
|---|---|
| `pool`, `waiting`, `dials` | which connection a request gets: an idle one, a new one, the next free one |
| `dial`, `resolve`, `proxy`, `tunnel`, `tls`, `tls_socket` | opens a socket: name, addresses, proxy, handshake |
| `http1` | a connection, which carries one exchange at a time |
| `outgoing`, `response_head`, `framing`, `chunked`, `early_end` | the parts of an exchange, in wire order |
| `exchange` | the interface between a connection and the user of its response |
| `sse`, `pieces` | the bytes of a body → server-sent events; bytes that are kept until they are whole |
| `loop`, `coalescing`, `task_loop` | reads all connections; pauses under load; the loop of platforms without a poller |
| `timers` | one alarm for all deadlines |
| `backend`, `trio_backend`, `asyncio_backend`, `kernel_timer` | trio or asyncio below: tasks, waits, alarm, clock |
| `headers`, `url`, `errors`, `socket_errors`, `running`, `fork` | values, checks, errors; what a fork leaves alone |

The rules between them:

- A connection is an object and not a task. The loop calls `on_readable` and `on_writable`. The connection calls the
  methods of its `Exchange`, in wire order, and never from within `send`. Only dials are tasks.
- After each exchange, the connection calls exactly one function of the pool: `on_idle` if it can be reused, `on_closed`
  if it cannot. The pool never assigns a connection that is dead or has unread bytes.
- `response_head`, `chunked` and `sse` are fed bytes, cut anywhere. They do no I/O and have no clock.
- h11 checks the lines of a response head. The body is decoded here, since that code runs for each chunk.
- All failures of an exchange are one type, `TransportError`. Its phase says how far the request came, by which the
  engine decides whether to send it again.

`docs/design/loop.md` says why one loop reads all sockets, and what that costs.

Known to be ugly: `Connection` has a base class for the order of its fields in memory (`_HotSlots`). Draining, which is
the wait for the end of a body whose answer is complete, is known to both `Connection` and `Pool`.
"""
