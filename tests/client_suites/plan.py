"""Which published test suites run over our transport, and what is left out, with the reasons, as tables."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

CLIENTS: Final = ("httpx", "httpx2")
"""The packages whose clients run the suite. For `httpx2`, `httpx2.alias_httpx()` makes `import httpx` import httpx2."""

SUITE: Final = "httpx"
"""The package whose sdist has the tests. httpx2 is a fork of it; its own sdist has no tests."""

FILES: Final = (
    "tests/client/test_async_client.py", "tests/client/test_auth.py", "tests/client/test_event_hooks.py",
    "tests/client/test_proxies.py", "tests/client/test_redirects.py", "tests/test_asgi.py", "tests/test_timeouts.py",
)  # fmt: skip
"""The files that run: those that use `AsyncClient`."""


@dataclass(frozen=True, slots=True)
class Row:
    """Tests and a reason.

    pattern: for their ids, as for `fnmatch`; a `[` stands for itself.
    always: the row describes something that every run shows. False for what depends on the speed of the machine.
    """

    pattern: str
    reason: str
    always: bool = True


OTHER_SDISTS: Final = (
    Row("httpx2", "its sdist has no tests; httpx's run in their place"),
    Row("httpcore2", "its sdist has no tests"),
    Row("httpcore",
        "its tests drive its own pool and connection classes with scripted network backends, and take no transport"),
)  # fmt: skip
"""Sdists whose tests do not run."""

OTHER_FILES: Final = (
    Row("tests/client/test_client.py", "synchronous clients, which keep their own transport"),
    Row("tests/test_api.py", "synchronous clients, which keep their own transport"),
    Row("tests/test_exceptions.py", "synchronous clients, which keep their own transport"),
    Row("tests/test_main.py", "the command line, which uses a synchronous client"),
    Row("tests/test_utils.py", "synchronous clients, which keep their own transport"),
    Row("tests/test_wsgi.py", "a transport of its own, without a connection"),
    Row("tests/test_config.py", "the values of the client's own options"),
    Row("tests/test_exported_members.py", "the names that the package exports"),
    Row("tests/test_auth.py", "values without a transport"),
    Row("tests/test_content.py", "values without a transport"),
    Row("tests/test_decoders.py", "values without a transport"),
    Row("tests/test_multipart.py", "values without a transport"),
    Row("tests/test_status_codes.py", "values without a transport"),
    Row("tests/models/*", "values without a transport"),
    Row("tests/client/test_cookies.py", "a synchronous client over a mock transport"),
    Row("tests/client/test_headers.py", "a synchronous client over a mock transport"),
    Row("tests/client/test_properties.py", "a synchronous client without requests"),
    Row("tests/client/test_queryparams.py", "a synchronous client over a mock transport"),
)
"""Test files that do not run."""

DESELECTED: Final = "network"
"""The marker of tests that connect to addresses beyond loopback. They do not run."""

DIFFERENCES: Final = (
    Row("tests/client/test_proxies.py::test_proxies_environ[AsyncClient*", "reads a private attribute, `_pool`"),
    Row("tests/client/test_proxies.py::test_socks_proxy", "SOCKS proxies are not supported, and are refused by name"),
    Row(
        "tests/test_timeouts.py::test_pool_timeout*",
        "expects that a response holds its connection until it is read; ours has received a small body before that, and"
        " the connection is free for the next request",
        always=False,
    ),
)
"""Tests that pass over the package's own transport and fail over ours."""


def reason_for(name: str, rows: tuple[Row, ...]) -> str | None:
    """Return the reason of the first row whose pattern matches the name."""
    return next((row.reason for row in rows if matches(name, row.pattern)), None)


def matches(name: str, pattern: str) -> bool:
    """Return whether the pattern matches the whole name."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))
