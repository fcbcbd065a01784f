"""The failures of a request of a client's transport."""

from __future__ import annotations

import enum
from typing import Final

from ..transport.errors import Phase, TransportError


class Fault(enum.Enum):
    """The kind of a failure. Each has an exception in the client's package."""

    POOL_TIMEOUT = "pool timeout"
    CONNECT_TIMEOUT = "connect timeout"
    WRITE_TIMEOUT = "write timeout"
    READ_TIMEOUT = "read timeout"
    CONNECT = "connect"
    PROXY = "proxy"
    WRITE = "write"
    READ = "read"
    REMOTE = "remote protocol"
    LOCAL = "local protocol"
    UNSUPPORTED = "unsupported protocol"
    DEFECT = "defect"


class ClientTransportError(Exception):
    """A request failed. The adapter raises the client's own exception for `fault`."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault: Fault = fault


PHASE_FAULTS: Final = {
    Phase.QUEUE: Fault.CONNECT,
    Phase.DNS: Fault.CONNECT,
    Phase.CONNECT: Fault.CONNECT,
    Phase.PROXY: Fault.PROXY,
    Phase.TLS: Fault.CONNECT,
    Phase.SEND: Fault.WRITE,
    Phase.HEAD: Fault.READ,
    Phase.BODY: Fault.READ,
}
"""Phase of a `TransportError` → its fault, unless the peer broke the protocol."""


def translated(error: TransportError) -> ClientTransportError:
    """Return the failure of a request, for an error of the transport layer."""
    fault = PHASE_FAULTS[error.phase]
    if (error.protocol and fault is Fault.READ) or error.eof:
        fault = Fault.REMOTE
    translated = ClientTransportError(fault, str(error))
    translated.__cause__ = error
    return translated
