"""SSL contexts of listeners, and of connections that a broker opens.

    context = server_context(settings)
    loop.create_server(protocol, ..., ssl=context)

The contexts behave like Java's SunJSSE with Kafka's settings: TLS 1.2 and 1.3, each certificate of the trust store is a
trust anchor, no renegotiation. The module is imported only if TLS is used.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final

from broker.security.tls import cipher_suites, pem
from broker.security.tls.alerts import AlertingContext
from broker.security.tls.settings import CONFIG_EXCEPTION, KEY_STORE, TRUST_STORE, TlsConfigError, TlsSettings
from broker.security.tls.stores import PrivateKey, Stores, read_stores
from storage.config_def import ConfigError

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_WITH_TLS13: Final = ("TLSv1.3", "TLS", "SSL")
# OpenSSL's security level for keys and signatures; Python's own contexts also have 2.
_SECURITY_LEVEL: Final = "@SECLEVEL=2"


def server_context(settings: TlsSettings, stores: Stores | None = None) -> ssl.SSLContext:
    """Create the context of a listener. Pass its ``stores`` if they were read already. Raises `ConfigError`."""
    if settings.key_store is None:
        raise TlsConfigError(
            f"Listener {settings.listener} has no certificate: neither ssl.keystore.location nor ssl.keystore.key is set"
        )
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    _set_up(context, settings, stores or read_stores(settings))
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    return context


def client_context(
    settings: TlsSettings, stores: Stores | None = None, *, identifies_endpoint: bool | None = None
) -> ssl.SSLContext:
    """Create the context for connections that a broker opens. Pass ``server_hostname`` for each connection.

    ``identifies_endpoint`` overrides ``ssl.endpoint.identification.algorithm``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = (
        settings.identifies_endpoint if identifies_endpoint is None else identifies_endpoint
    )
    context.verify_mode = ssl.CERT_REQUIRED
    _set_up(context, settings, stores or read_stores(settings))
    return context


def check_own_handshake(settings: TlsSettings, stores: Stores | None = None) -> None:
    """Raise `ConfigError` if brokers could not connect to each other with these settings, as Kafka checks at start."""
    stores = stores or read_stores(settings)
    try:
        handshake(
            server_context(settings, stores), client_context(settings, stores, identifies_endpoint=False)
        )
    except ssl.SSLError as error:
        raise TlsConfigError(
            "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created "
            f"with those settings. ({reason_of(error)})",
            CONFIG_EXCEPTION,
        ) from None


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, server_hostname: str | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Do a handshake in memory. Returns (server side, client side). Raises ``ssl.SSLError`` if it fails."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server, server_hostname=server_hostname)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client_side, server_side]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    return server_side, client_side


def _set_up(context: ssl.SSLContext, settings: TlsSettings, stores: Stores) -> None:
    """Apply the settings that server and client contexts share."""
    _set_protocols(context, settings)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Like Java, accept a chain at any trusted certificate, even one that is not a CA or not the last of the chain.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if stores.anchors is not None:
        _load_anchors(context, stores.anchors)
    else:
        context.load_default_certs()
    _load_keys(context, stores.keys or ())


def _set_protocols(context: ssl.SSLContext, settings: TlsSettings) -> None:
    suites = settings.cipher_suites
    cipher_suites.check(suites)
    of_tls12, of_tls13 = cipher_suites.openssl_names(suites), cipher_suites.of_tls13(suites)
    protocols = _protocols(settings, is_client=context.protocol == ssl.PROTOCOL_TLS_CLIENT)
    # Each suite belongs to one protocol version, and a version without any of its suites is disabled.
    versions = [_VERSIONS[each] for each in protocols if (of_tls13 if each == "TLSv1.3" else of_tls12)]
    if not versions:
        raise TlsConfigError(
            "No appropriate protocol (protocol is disabled or cipher suites are inappropriate): ssl.enabled.protocols "
            "must contain TLSv1.2 or TLSv1.3, and ssl.cipher.suites must contain a suite of that version"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if ssl.TLSVersion.TLSv1_2 in versions:
        _set_ciphers(context, of_tls12)
    if ssl.TLSVersion.TLSv1_3 in versions and of_tls13 != cipher_suites.TLS13:
        _restrict_tls13(context, of_tls13)


def _protocols(settings: TlsSettings, *, is_client: bool) -> list[str]:
    """The enabled protocol versions that Java has not disabled. A client offers no version newer than ``ssl.protocol``."""
    enabled = settings.enabled_protocols or tuple(_VERSIONS)
    if is_client and settings.protocol not in _WITH_TLS13:
        enabled = tuple(each for each in enabled if each != "TLSv1.3")
    return [each for each in enabled if each in _VERSIONS]


def _set_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    try:
        context.set_ciphers(":".join((_SECURITY_LEVEL, *names)))
    except ssl.SSLError as error:
        reason = f"OpenSSL supports none of them: {reason_of(error)}"
        raise ConfigError.of(cipher_suites.SETTING, ",".join(names), reason) from None


def _restrict_tls13(context: ssl.SSLContext, suites: Collection[str]) -> None:
    """Enable only ``suites`` of the cipher suites of TLS 1.3. Python can do that from version 3.15 on; with an older
    Python, this raises `ConfigError`."""
    restrict = getattr(context, "set_ciphersuites", None)
    if restrict is None:
        missing = ", ".join(sorted(cipher_suites.TLS13.difference(suites)))
        raise ConfigError.of(
            cipher_suites.SETTING,
            ",".join(sorted(suites)),
            f"this Python supports only all suites of TLS 1.3 or none: add {missing}, or remove TLSv1.3 from "
            "ssl.enabled.protocols",
        )
    restrict(":".join(sorted(suites)))


def _load_anchors(context: ssl.SSLContext, anchors: Iterable[bytes]) -> None:
    try:
        context.load_verify_locations(cadata=b"".join(anchors))
    except ssl.SSLError as error:
        reason = f"a certificate cannot be used: {reason_of(error)}"
        raise TlsConfigError(f"{TRUST_STORE.prefix}: {reason}") from None


def _load_keys(context: ssl.SSLContext, keys: Iterable[PrivateKey]) -> None:
    """Load the first key of each algorithm, since OpenSSL accepts only one key of each algorithm."""
    entries: dict[str, PrivateKey] = {}
    for entry in keys:
        entries.setdefault(entry.algorithm, entry)
    for entry in entries.values():
        chain = "".join(pem.encode("CERTIFICATE", each) for each in entry.chain)
        with _unnamed_file((pem.encode("PRIVATE KEY", entry.key) + chain).encode()) as path:
            try:
                context.load_cert_chain(path)
            except ssl.SSLError as error:
                reason = f"the private key {entry.alias} cannot be used: {reason_of(error)}"
                raise TlsConfigError(f"{KEY_STORE.prefix}: {reason}") from None


@contextmanager
def _unnamed_file(content: bytes) -> Iterator[str]:
    """Path of a temporary file with ``content``, since OpenSSL reads keys only from files. The file is in memory if
    possible, else on disk with mode 0600."""
    with _memory_file() or tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name if isinstance(file.name, str) else _descriptor_path(file.name)


def _memory_file() -> IO[bytes] | None:
    """An in-memory file; None if the system does not support it."""
    if not hasattr(os, "memfd_create"):
        return None
    file = open(os.memfd_create("odradek-key"), "wb")  # noqa: SIM115
    if os.path.exists(_descriptor_path(file.fileno())):
        return file
    file.close()
    return None


def _descriptor_path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's error message without source positions."""
    return (
        error.verify_message
        if isinstance(error, ssl.SSLCertVerificationError)
        else error.reason or str(error)
    )
