"""The certificate authority of `--tls`: created in a directory at the first start, and reused by later ones.

    keep_authority(Path("data/tls"), hosts, now)

Clients that trust the authority therefore still trust the broker after a restart. If the broker gets another host name, a
new server certificate with this name is issued.
"""

from __future__ import annotations

import fcntl
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.config.authority_files import CA, CA_KEY, SERVER_STORE, STORE_PASSWORD
from broker.security.tls.authority import Authority, is_issued_by, local_hosts
from broker.security.tls.directory import write_directory
from storage.config_def import ConfigError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CLIENT: Final = "client"
"""Common name of the client certificate that `--tls` creates."""
_LAST: Final = "client.jks"
"""Name of the file that is written last: if this file exists, the directory of the authority is complete."""
_LOCK: Final = ".lock"


def keep_authority(folder: Path, hosts: Collection[str], now: datetime) -> None:
    """Create or complete the directory of the authority. Raises `ConfigError` if the directory cannot be used."""
    names = tuple(dict.fromkeys(map(normalized, local_hosts(*hosts))))
    try:
        with _locked(folder):
            _keep(folder, names, now)
    except OSError as error:
        raise ConfigError(f"--tls: {error.filename or folder}: {error.strerror}") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"--tls: the authority in {folder} cannot be reused: {error}") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Context manager: lock the directory, since brokers that start at the same time may share an authority."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _keep(folder: Path, names: Collection[str], now: datetime) -> None:
    authority = _kept(folder, now)
    if authority is not None and _is_complete(folder, authority, names, now):
        return
    authority = authority or Authority.create(now)
    server = authority.issue("localhost", hosts=names)
    client = authority.issue(CLIENT, client=True)
    write_directory(folder, authority, server, client, STORE_PASSWORD)


def _kept(folder: Path, now: datetime) -> Authority | None:
    key, certificate = folder / CA_KEY, folder / CA
    if not certificate.exists():
        return None
    if not key.exists():
        raise ValueError(f"{CA} exists, but {CA_KEY} does not")
    return Authority.load(key.read_bytes(), certificate.read_bytes(), now)


def _is_complete(folder: Path, authority: Authority, names: Collection[str], now: datetime) -> bool:
    from cryptography import x509

    if not (folder / SERVER_STORE).exists() or not (folder / _LAST).exists():
        return False
    server = x509.load_pem_x509_certificate((folder / SERVER_STORE).read_bytes())
    issuer = x509.load_der_x509_certificate(authority.certificate)
    return now < server.not_valid_after_utc and _names(server) >= set(names) and is_issued_by(server, issuer)


def _names(certificate: Certificate) -> set[str]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(each) for each in found.get_values_for_type(x509.IPAddress)}
    return {*found.get_values_for_type(x509.DNSName), *addresses}


def normalized(host: str) -> str:
    """The canonical form of an IP address; a host name unchanged.

    >>> normalized("0:0::1")
    '::1'
    """
    try:
        return str(ip_address(host))
    except ValueError:
        return host
