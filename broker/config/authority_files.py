"""Names of the files in the directory of ``--tls``. ``broker.security.tls.directory`` creates the files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = "tls"
"""Subdirectory of the data directory for the files of ``--tls``."""
SERVER_STORE: Final = "server.pem"
CA: Final = "ca.pem"
CA_KEY: Final = "ca.key"
TRUST_STORE_PKCS12: Final = "truststore.p12"
TRUST_STORE_JKS: Final = "truststore.jks"
STORE_PASSWORD: Final = "odradek"
"""Password of the trust stores, since Java's formats require one. Trust stores have only certificates, no secrets."""


def authority_files(folder: Path) -> dict[str, str]:
    """Return the paths of the files that a client needs to trust the broker: a PEM certificate and Java trust stores."""
    names = {"ca": CA, "truststore_pkcs12": TRUST_STORE_PKCS12, "truststore_jks": TRUST_STORE_JKS}
    return {name: str(folder / file) for name, file in names.items()}
