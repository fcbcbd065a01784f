"""The official SDKs' clients over this library's transport: the code behind `manystream.httpx2` and `manystream.httpx`.

An SDK takes an HTTP client, and the client takes a transport. `client_transport` checks a request and holds the pool of
the running event loop; it imports no client's package. `transfer` is one request on one connection. `faults` has the
kinds of failures, each of which is an exception of the client's package.
"""
