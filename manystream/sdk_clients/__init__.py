"""The official SDKs' clients over this library's transport: the code behind `manystream.httpx2` and `manystream.httpx`.

An SDK takes an HTTP client, and the client takes a transport. `adapter` translates between a client's package and
`client_transport`, which checks a request and holds the pool of the running event loop. `transfer` is one request on
one connection. `faults` has the kinds of failures, each of which is an exception of the client's package. Only
`adapter` knows the packages, and it imports none: `manystream.httpx2` and `manystream.httpx` pass theirs.
"""
