"""TLS with the PEM options of Kafka's clients (KIP-651)."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from pathlib import Path

from odradek.spark.wire.errors import BadSettings
from odradek.spark.wire.settings import ClientSettings

_PEM = "PEM"
_BLOCK = re.compile(r"-----BEGIN ([^-]+)-----(.*?)-----END \1-----", re.DOTALL)


def tls_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """The TLS context for all connections; None without TLS. Raises ``BadSettings`` if a file cannot be used."""
    if not settings.security_protocol.endswith("SSL"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.ssl_endpoint_identification_algorithm == "https"
    context.verify_mode = ssl.CERT_REQUIRED
    _trust(context, settings)
    _identify(context, settings)
    return context


def _trust(context: ssl.SSLContext, settings: ClientSettings) -> None:
    text, location = settings.ssl_truststore_certificates, settings.ssl_truststore_location
    try:
        if text:
            context.load_verify_locations(cadata=_unfold(text))
        elif location:
            _only_pem("ssl.truststore", settings.ssl_truststore_type)
            context.load_verify_locations(cafile=location)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        where = location if not text else "kafka.ssl.truststore.certificates"
        raise BadSettings(
            "INVALID_CONFIG", f"the certificates to trust cannot be read from {where}: {error}"
        ) from None


def _identify(context: ssl.SSLContext, settings: ClientSettings) -> None:
    key, chain = settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain
    location = settings.ssl_keystore_location
    if not (key or chain or location):
        return
    try:
        if location:
            _only_pem("ssl.keystore", settings.ssl_keystore_type)
            context.load_cert_chain(location, password=_password(settings))
            return
        with tempfile.TemporaryDirectory(prefix="odradek-") as directory:
            # The ssl module reads only files, so the PEM text is written to a private file that is deleted at once.
            file = Path(directory) / "keystore.pem"
            file.touch(mode=0o600)
            file.write_text(f"{_unfold(key)}\n{_unfold(chain)}\n")
            context.load_cert_chain(os.fspath(file), password=_password(settings))
    except (OSError, ValueError) as error:
        where = location or "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain"
        raise BadSettings(
            "INVALID_CONFIG", f"the client's certificate cannot be read from {where}: {error}"
        ) from None


def _password(settings: ClientSettings) -> str:
    # With an empty password OpenSSL does not ask at the terminal.
    return settings.ssl_key_password


def _only_pem(which: str, kind: str) -> None:
    if kind != _PEM:
        raise BadSettings(
            "INVALID_CONFIG",
            f"kafka.{which}.type={kind} is not supported here: set it to PEM, with a file that "
            f"`keytool -exportcert -rfc` or `openssl pkcs12` writes",
        )


def _unfold(pem: str) -> str:
    """Restore the line ends of a PEM text, which properties files and shells may have replaced by blanks or ``\\n``."""
    pem = pem.replace("\\n", "\n").strip()
    if "\n" in pem:
        return pem
    blocks = _BLOCK.findall(pem)
    return "\n".join(f"-----BEGIN {name}-----\n{_lines(body)}\n-----END {name}-----" for name, body in blocks)


def _lines(body: str) -> str:
    return "\n".join(body.split())
