"""Writes a directory with everything that a broker and its clients need for TLS, from a test authority.

| file | what it is |
| --- | --- |
| `ca.pem`, `ca.key` | the authority; `ca.pem` is also a trust store of type PEM |
| `truststore.p12`, `truststore.jks` | trust stores |
| `server.crt`, `server.key` | a broker's certificate chain and private key |
| `server.pem` | `server.crt` and `server.key` in one file: a key store of type PEM |
| `server.p12`, `server.jks` | key stores |
| `client.*` | the same files for a client |
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker.config.authority_files import CA, CA_KEY, TRUST_STORE_JKS, TRUST_STORE_PKCS12
from broker.security.tls.authority import Authority, Issued

PUBLIC: Final = 0o644
PRIVATE: Final = 0o600


def write_directory(
    folder: Path, authority: Authority, server: Issued, client: Issued, password: str
) -> None:
    """Create the directory, or replace its files. Files with a private key are readable only by their owner."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _authority_files(authority, password):
        write_file(folder / name, content, PRIVATE if name.endswith(".key") else PUBLIC)
    for side, issued in (("server", server), ("client", client)):
        write_file(folder / f"{side}.crt", issued.chain_pem(), PUBLIC)
        for ending, content in _key_files(issued, password):
            write_file(folder / f"{side}.{ending}", content, PRIVATE)


def write_file(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically: readers see the old content or the new one."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    os.replace(beside, path)


def _authority_files(authority: Authority, password: str) -> Iterator[tuple[str, bytes]]:
    yield CA, authority.certificate_pem()
    yield CA_KEY, authority.key_pem()
    yield TRUST_STORE_PKCS12, authority.trust_store_pkcs12(password)
    yield TRUST_STORE_JKS, authority.trust_store_jks(password)


def _key_files(issued: Issued, password: str) -> Iterator[tuple[str, bytes]]:
    yield "key", issued.key_pem()
    yield "pem", issued.key_pem() + issued.chain_pem()
    yield "p12", issued.pkcs12(password)
    yield "jks", issued.jks(password)
