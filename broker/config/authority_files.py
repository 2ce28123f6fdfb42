"""Names of the files in the directory of `--tls`, which ``broker.security.tls.directory`` creates."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = "tls"
"""Subdirectory of the data directory."""
SERVER_STORE: Final = "server.pem"
CA: Final = "ca.pem"
CA_KEY: Final = "ca.key"
TRUST_STORE_PKCS12: Final = "truststore.p12"
TRUST_STORE_JKS: Final = "truststore.jks"
STORE_PASSWORD: Final = "odradek"
"""Password of the trust stores in Java's formats, which require one. They contain only certificates, so it is no secret."""


def authority_files(folder: Path) -> dict[str, str]:
    """Paths of the files for a client's trust store: the authority's certificate as PEM, and Java's trust stores."""
    names = {"ca": CA, "truststore_pkcs12": TRUST_STORE_PKCS12, "truststore_jks": TRUST_STORE_JKS}
    return {name: str(folder / file) for name, file in names.items()}
