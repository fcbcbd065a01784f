"""The texts of socket errors."""

import errno

from manystream.transport import resolve


def test_an_errno_has_its_name_its_text_and_a_hint() -> None:
    forbidden = "a rule of this machine forbids it"
    for error, text in (
        (OSError(errno.ENETUNREACH, "No way"), "ENETUNREACH (No way: this machine has no route to it)"),
        (OSError(errno.EACCES, "Denied"), f"EACCES (Denied: {forbidden})"),
        (OSError(errno.EPERM, "Denied"), f"EPERM (Denied: {forbidden})"),
        (
            OSError(errno.EADDRNOTAVAIL, "No"),
            "EADDRNOTAVAIL (No: this machine has no free local port for this address, or cannot use the address)",
        ),
        (OSError(errno.ENFILE, "No"), "ENFILE (No: this machine has no file descriptor left; allow fewer connections)"),
        (
            OSError(errno.EMFILE, "No"),
            "EMFILE (No: this process has no file descriptor left; raise `ulimit -n` or allow fewer connections)",
        ),
        (OSError("only words"), "(only words)"),
    ):
        assert resolve.reason(error) == text
