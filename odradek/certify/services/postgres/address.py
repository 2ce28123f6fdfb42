"""The DSN of the stage: where the server is, whether it wants TLS, and the DSN that the job gets."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from psycopg import Error
from psycopg.conninfo import conninfo_to_dict

from odradek.certify.services.postgres import messages

HOST: Final = "127.0.0.1"
_OF_TLS: Final = ("require", "verify-ca", "verify-full")
_OF_JOB: Final = ("application_name", "options", "connect_timeout", "client_encoding", "target_session_attrs")
"""Parameters of the DSN that the job's DSN has too."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address of the server, and the login of the job."""

    host: str
    """Host name, or the directory of the server's Unix socket."""
    port: int
    user: str
    password: str
    database: str
    sslmode: str
    parameters: Mapping[str, str]

    @classmethod
    def parse(cls, dsn: str) -> Address:
        """Parse a DSN of libpq, in either form. Raises ``ValueError``."""
        try:
            found = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
        except Error as error:
            raise ValueError(str(error).strip()) from None
        host = found.get("host") or found.get("hostaddr") or "localhost"
        port = found.get("port", "5432")
        if "," in host or not port.isdigit():
            raise ValueError("expected one host and one port")
        user = found.get("user", "")
        if not user:
            raise ValueError("expected a user: postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
        return cls(
            host,
            int(port),
            user,
            found.get("password", ""),
            found.get("dbname") or user,
            found.get("sslmode", "prefer"),
            found,
        )

    @property
    def has_tls(self) -> bool:
        """Whether the connections of the job and of the proxy have to use TLS."""
        return self.sslmode in _OF_TLS

    @property
    def is_local(self) -> bool:
        return self.host.startswith("/")

    def tls(self) -> ssl.SSLContext:
        """TLS for connections to the server, as libpq would have it."""
        given = {
            name: self.parameters.get(name) for name in ("sslrootcert", "sslcert", "sslkey", "sslpassword")
        }
        roots = given["sslrootcert"] if given["sslrootcert"] != "system" else None
        context = ssl.create_default_context(cafile=roots)
        context.check_hostname = self.sslmode == "verify-full"
        if self.sslmode == "require" and roots is None:
            context.verify_mode = ssl.CERT_NONE
        if given["sslcert"]:
            context.load_cert_chain(given["sslcert"], given["sslkey"], given["sslpassword"])
        return context

    def values(self, name: str, port: int, database: str) -> dict[str, str]:
        """Placeholders for a job that connects to a database through the proxy at ``port``."""
        parameters = {each: self.parameters[each] for each in _OF_JOB if each in self.parameters}
        jdbc = {"user": self.user, "password": self.password}
        if self.has_tls:
            # The certificate is the proxy's own, and a login that is bound to the channel would be bound to the proxy.
            parameters |= {"sslmode": "require", messages.CHANNEL_BINDING: "disable"}
            jdbc |= {"sslmode": "require", "channelBinding": "disable"}
        login = quote(self.user, "") + (f":{quote(self.password, '')}" if self.password else "")
        place = f"{HOST}:{port}/{quote(database, '')}"
        dsn = f"postgresql://{login}@{place}"
        return {
            name: dsn + (f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""),
            f"{name}.jdbc": f"jdbc:postgresql://{place}?{urlencode(jdbc, quote_via=quote)}",
            f"{name}.host": HOST,
            f"{name}.port": str(port),
            f"{name}.user": self.user,
            f"{name}.password": self.password,
            f"{name}.database": database,
        }


def certificate_of_proxy() -> ssl.SSLContext:
    """TLS with a self-signed certificate, for connections of the job. Raises ``ImportError`` without ``cryptography``."""
    import datetime
    import tempfile

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["postgresql"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proxy.pem"
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context.load_cert_chain(path)
    return context
