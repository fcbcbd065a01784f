"""The failures of a request of a client's transport."""

from __future__ import annotations

import enum
from typing import Final

from ..transport.errors import Phase, TransportError


class Fault(enum.Enum):
    """The kind of a failure. Its value is the name of its exception in the client's package."""

    POOL_TIMEOUT = "PoolTimeout"
    CONNECT_TIMEOUT = "ConnectTimeout"
    WRITE_TIMEOUT = "WriteTimeout"
    READ_TIMEOUT = "ReadTimeout"
    CONNECT = "ConnectError"
    PROXY = "ProxyError"
    WRITE = "WriteError"
    READ = "ReadError"
    REMOTE = "RemoteProtocolError"
    LOCAL = "LocalProtocolError"
    UNSUPPORTED = "UnsupportedProtocol"
    DEFECT = "TransportError"

    @property
    def words(self) -> str:
        """The failure in words, such as `pool timeout`."""
        return self.name.lower().replace("_", " ")


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
