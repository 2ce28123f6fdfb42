"""The names of files in the directory of `--tls`, for those that do not make them (``broker.security.tls.directory``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = "tls"
"""In the data directory."""
SERVER_STORE: Final = "server.pem"
CA: Final = "ca.pem"
CA_KEY: Final = "ca.key"
TRUST_STORE_PKCS12: Final = "truststore.p12"
TRUST_STORE_JKS: Final = "truststore.jks"
STORE_PASSWORD: Final = "odradek"
"""Of the stores in Java's formats, which have to have one. What it protects is thrown away: it is no secret."""


def authority_files(folder: Path) -> dict[str, str]:
    """What a client trusts: the certificate of the authority, as PEM and in trust stores of Java."""
    names = {"ca": CA, "truststore_pkcs12": TRUST_STORE_PKCS12, "truststore_jks": TRUST_STORE_JKS}
    return {name: str(folder / file) for name, file in names.items()}
