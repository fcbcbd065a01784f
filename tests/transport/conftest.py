"""A certificate authority, a context that trusts it, and a check that a test leaves no socket open."""

import ssl
from collections.abc import Iterator

import pytest
import trustme

from manystream.transport.tls import TLSConfig, make_context
from tests.support.addresses import open_sockets


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(ca: trustme.CA) -> ssl.SSLContext:
    return make_context(TLSConfig(ca_data=ca.cert_pem.bytes().decode()))


@pytest.fixture
def no_leak() -> Iterator[None]:
    before = open_sockets()
    yield
    assert open_sockets() <= before
