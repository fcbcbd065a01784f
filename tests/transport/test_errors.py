"""The errors of the transport."""

from manystream.transport.errors import Phase, TransportError
from tests.transport.test_dial import facts


def test_an_error_is_by_default_none_of_them() -> None:
    assert facts(TransportError("x", phase=Phase.TLS)) == ("x", Phase.TLS, "", set())
