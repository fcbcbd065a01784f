"""An authority, and a certificate for localhost by it. Run in the clients' environment: `… FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import trustme


def make(folder: Path) -> None:
    """authority.pem, certificate.pem and key.pem; elliptic curves, as most providers use: quick to sign."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    issued = authority.issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(folder / "authority.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
