"""Makes an authority and its certificate for localhost: `… FOLDER`, in the clients' environment."""

from __future__ import annotations

import sys
from pathlib import Path

import trustme


def make(folder: Path) -> None:
    """Write authority.pem, certificate.pem and key.pem, with elliptic curves as most providers use."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    issued = authority.issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(folder / "authority.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
