"""TLS and SASL from the settings of Kafka's clients, such as a `--command-config` file.

    security = client_security({"security.protocol": "SASL_SSL", "ssl.truststore.location": "ca.pem", ...})
    connection = security.wrap(socket, host)

SASL mechanisms and PEM parsing come from the sink's client (``odradek.spark.wire``), which is imported only if needed.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from socket import socket as Socket
from typing import TYPE_CHECKING, Final

from odradek.errors import BadClientSettings, Untrusted
from odradek.java_stores import key_store_pem, trust_store_pem

if TYPE_CHECKING:
    from odradek.spark.wire.sasl import Conversation
    from odradek.spark.wire.settings import ClientSettings

PROTOCOL: Final = "security.protocol"
_OF_SECURITY: Final = (PROTOCOL, "sasl.", "ssl.")
_PREFIX: Final = "kafka."
_PEM: Final = "PEM"
_HANDSHAKE_FAILED: Final = "TLS fails"


class ClientSecurity:
    """TLS and SASL for the connections of one client."""

    def __init__(self, settings: ClientSettings) -> None:
        from odradek.spark.wire.errors import BadSettings
        from odradek.spark.wire.sasl import conversation
        from odradek.spark.wire.tls import tls_context

        self._settings = settings
        self._conversation = conversation
        self.mechanism = settings.sasl_mechanism if settings.security_protocol.startswith("SASL_") else None
        try:
            self._tls = tls_context(settings)
            if self.mechanism is not None:
                next(conversation(settings))
        except BadSettings as error:
            raise BadClientSettings(error.sentence.replace(_PREFIX, "")) from None

    def wrap(self, connection: Socket, host: str) -> Socket:
        """Run the TLS handshake if TLS is configured, and return the connection.

        Raises `Untrusted` if one side rejects the other's certificate.
        """
        if self._tls is None:
            return connection
        try:
            return self._tls.wrap_socket(connection, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise Untrusted(f"{_HANDSHAKE_FAILED}: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise Untrusted(f"{_HANDSHAKE_FAILED}: {error.reason or error}") from None

    def login(self) -> Conversation:
        """A generator of the client's messages of a SASL login; the broker's messages are passed to ``send``."""
        return self._conversation(self._settings)


def client_security(properties: Mapping[str, str]) -> ClientSecurity | None:
    """The security of a client with these properties; None for PLAINTEXT. Ignores all other properties.

    Raises `BadClientSettings` for invalid properties.
    """
    if properties.get(PROTOCOL, "PLAINTEXT").strip().upper() == "PLAINTEXT":
        return None
    from odradek.spark.wire.errors import BadSettings
    from odradek.spark.wire.settings import ClientSettings

    given = {name: value for name, value in properties.items() if name.startswith(_OF_SECURITY)}
    _read_stores(given)
    known = {each.metadata["name"] for each in ClientSettings.__dataclass_fields__.values()}
    options = {_PREFIX + name: value for name, value in given.items() if name in known}
    try:
        # ClientSettings requires bootstrap servers, which are not used here.
        settings = ClientSettings.from_options({**options, f"{_PREFIX}bootstrap.servers": "-"})
    except BadSettings as error:
        raise BadClientSettings(error.sentence.replace(_PREFIX, "")) from None
    return ClientSecurity(settings)


def properties_of(path: Path) -> dict[str, str]:
    """Read a properties file, such as that of ``--command-config``."""
    import javaproperties

    try:
        with path.open("rb") as file:
            return javaproperties.load(file)
    except (OSError, javaproperties.InvalidUEscapeError) as error:
        raise BadClientSettings(f"{path}: {error}") from None


def _read_stores(given: dict[str, str]) -> None:
    """Convert Java key stores and trust stores to PEM settings, in place."""
    location = given.get("ssl.truststore.location", "")
    if location and given.get("ssl.truststore.type", "JKS").upper() != _PEM:
        given["ssl.truststore.certificates"] = trust_store_pem(
            Path(location), given.get("ssl.truststore.password")
        )
    location = given.get("ssl.keystore.location", "")
    if location and given.get("ssl.keystore.type", "JKS").upper() != _PEM:
        key, chain = key_store_pem(Path(location), given.get("ssl.keystore.password"))
        del given["ssl.keystore.location"]
        given |= {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain, "ssl.key.password": ""}
