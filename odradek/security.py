"""TLS and SASL for users' programs: the certificates of a broker, and the settings of its clients.

with odradek.Broker(tls=True, users={"alice": "secret"}) as broker:
    producer = Producer(broker.client_config("alice"))
    print(broker.authority.ca)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_VARIABLE: Final = "ODRADEK_SASL"
FOLDER: Final = "tls"
"""Directory of the authority, inside the data directory."""
STORE_PASSWORD: Final = "odradek"
_CLIENT_AUTH: Final = "ssl.client.auth"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_LOGIN_MODULES: Final = "org.apache.kafka.common.security"


class Authority:
    """The files of the certificate authority of a broker with ``tls``. Clients trust ``ca``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def ca(self) -> Path:
        """The authority's certificate as PEM, which is also a trust store of type PEM."""
        return self.directory / "ca.pem"

    @property
    def truststore_jks(self) -> Path:
        """The authority's certificate as a JKS trust store with ``password``."""
        return self.directory / "truststore.jks"

    @property
    def truststore_pkcs12(self) -> Path:
        """The authority's certificate as a PKCS12 trust store with ``password``."""
        return self.directory / "truststore.p12"

    @property
    def password(self) -> str:
        """The password of the JKS and PKCS12 stores and of their keys.

        The password is no secret: the authority is for tests only.
        """
        return STORE_PASSWORD

    @property
    def client_certificate(self) -> Path:
        """A client's certificate chain, for User:CN=client, as PEM: for brokers with ``ssl.client.auth``."""
        return self.directory / "client.crt"

    @property
    def client_key(self) -> Path:
        """The private key of the certificate in `client_certificate`, as PEM."""
        return self.directory / "client.key"

    @property
    def client_keystore(self) -> Path:
        """The client's certificate chain and key in one file, a key store of type PEM."""
        return self.directory / "client.pem"

    @property
    def client_keystore_jks(self) -> Path:
        return self.directory / "client.jks"

    @property
    def client_keystore_pkcs12(self) -> Path:
        return self.directory / "client.p12"

    def __repr__(self) -> str:
        return f"Authority({str(self.directory)!r})"


@dataclass(frozen=True)
class Login:
    """The SASL credentials of a client."""

    user: str
    password: str = field(repr=False)
    mechanism: str = MECHANISMS[0]


@dataclass(frozen=True)
class Security:
    """The security of a broker's listeners. Raises ``ValueError`` for users that ``--sasl`` cannot express."""

    tls: bool = False
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    mechanism: str | None = None
    """SASL mechanism of the users; None for each of `MECHANISMS`."""
    asks_certificate: bool = False

    @classmethod
    def of(
        cls,
        tls: object,
        users: Mapping[str, str] | None,
        mechanism: str | None,
        settings: Mapping[str, object] | None,
    ) -> Security:
        """The security described by the arguments of ``odradek.Broker``."""
        asked = (value for name, value in (settings or {}).items() if name.endswith(_CLIENT_AUTH))
        asks_certificate = any(str(value).lower() in ("required", "requested") for value in asked)
        return cls(bool(tls), dict(users or {}), mechanism, asks_certificate)

    def __post_init__(self) -> None:
        if self.mechanism is not None:
            _check_mechanism(self.mechanism)
            if not self.users:
                raise ValueError("a mechanism needs users: pass users={...} too")
        for user, password in self.users.items():
            if not user.strip() or user != user.strip() or ":" in user or "\n" in user:
                raise ValueError(
                    f"{user!r} is not the name of a user: it is empty or has a colon or outer blanks"
                )
            if not password or "\n" in password or "\r" in password:
                raise ValueError(f"the password of {user} is empty, or has several lines")

    @property
    def protocol(self) -> str:
        """Kafka's name of the protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        secured = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{secured}" if self.users else secured

    def environment(self) -> dict[str, str]:
        """The environment variable that passes the users to the broker, because other users can read a command line."""
        if not self.users:
            return {}
        mechanisms = MECHANISMS if self.mechanism is None else (self.mechanism,)
        entries = (
            f"{user}:{password}:{mechanism}\n"
            for user, password in self.users.items()
            for mechanism in mechanisms
        )
        return {SASL_VARIABLE: "".join(entries)}

    def login(self, user: str | None, password: str | None, mechanism: str | None) -> Login | None:
        """The credentials of the user, by default of the first user; None for a broker without users.

        ``password`` is required for a user that was added after the start.
        """
        if not self.users:
            if user is not None:
                raise ValueError("this broker has no users: start it with users={...}")
            return None
        user = next(iter(self.users)) if user is None else user
        password = self.users.get(user) if password is None else password
        if password is None:
            raise ValueError(
                f"no password for {user}: pass password=; only the passwords of {', '.join(self.users)} are known"
            )
        return login_of(user, password, mechanism or self.mechanism)


def login_of(user: str, password: str, mechanism: str | None) -> Login:
    """The credentials with these values. Raises ``ValueError`` for an unknown mechanism."""
    return Login(user, password, _check_mechanism(mechanism or MECHANISMS[0]))


def _check_mechanism(name: str) -> str:
    if name not in MECHANISMS:
        raise ValueError(f"unknown mechanism: {name} (known: {', '.join(MECHANISMS)})")
    return name


# -- configurations of clients ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Client:
    """The connection settings of a client, independent of its library."""

    bootstrap_servers: str
    protocol: str
    ca: Path | None = None
    login: Login | None = None
    authority: Authority | None = None
    """The authority whose client certificate the client presents, if the listener requests one; None to present none."""


def client_config(library: str, client: Client) -> dict[str, Any]:
    """The settings in the library's format. Raises ``ValueError`` for a library that is not in `LIBRARIES`."""
    write = _LIBRARIES.get(library)
    if write is None:
        raise ValueError(f"unknown library: {library!r} (known: {', '.join(LIBRARIES)})")
    return write(client)


def config_of_cluster(
    cluster: Mapping[str, Any],
    user: str | None,
    password: str | None,
    library: str,
    mechanism: str | None,
    ca: str | Path | None,
) -> dict[str, Any]:
    """The settings of a client for a cluster, from the cluster's JSON form on the control port."""
    protocol = str(
        cluster["nodes"][0]["listeners"][0].get("security_protocol", "PLAINTEXT")
    )  # a proxy has only this listener
    login = None
    if protocol.startswith("SASL_"):
        if user is None or password is None:
            raise ValueError(f"a {protocol} listener requires a user and a password")
        login = login_of(user, password, mechanism)
    trusted = (ca or cluster.get("ca")) if protocol.endswith("SSL") else None
    client = Client(str(cluster["bootstrap_servers"]), protocol, Path(trusted) if trusted else None, login)
    return client_config(library, client)


def _librdkafka(client: Client) -> dict[str, Any]:
    config = {"bootstrap.servers": client.bootstrap_servers, "security.protocol": client.protocol}
    if client.ca is not None:
        config["ssl.ca.location"] = str(client.ca)
    if client.authority is not None:
        config["ssl.certificate.location"] = str(client.authority.client_certificate)
        config["ssl.key.location"] = str(client.authority.client_key)
    if (login := client.login) is not None:
        config |= {
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.user,
            "sasl.password": login.password,
        }
    return config


def _java(client: Client) -> dict[str, Any]:
    config = {"bootstrap.servers": client.bootstrap_servers, "security.protocol": client.protocol}
    if client.ca is not None:
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(client.ca)}
    if client.authority is not None:
        keystore = str(client.authority.client_keystore)
        config |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": keystore}
    if (login := client.login) is not None:
        kind = "plain.PlainLoginModule" if login.mechanism == MECHANISMS[0] else "scram.ScramLoginModule"
        credentials = f"username={_quoted(login.user)} password={_quoted(login.password)}"
        config["sasl.mechanism"] = login.mechanism
        config["sasl.jaas.config"] = f"{_LOGIN_MODULES}.{kind} required {credentials};"
    return config


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _aiokafka(client: Client) -> dict[str, Any]:
    config = _of_python(client)
    if client.protocol.endswith("SSL"):
        import ssl

        context = ssl.create_default_context(cafile=client.ca)
        if client.authority is not None:
            context.load_cert_chain(client.authority.client_certificate, client.authority.client_key)
        config["ssl_context"] = context
    return config


def _kafka_python(client: Client) -> dict[str, Any]:
    config = _of_python(client)
    if client.ca is not None:
        config["ssl_cafile"] = str(client.ca)
    if client.authority is not None:
        config["ssl_certfile"] = str(client.authority.client_certificate)
        config["ssl_keyfile"] = str(client.authority.client_key)
    return config


def _of_python(client: Client) -> dict[str, Any]:
    config = {"bootstrap_servers": client.bootstrap_servers, "security_protocol": client.protocol}
    if (login := client.login) is not None:
        config |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return config


_LIBRARIES: Final[Mapping[str, Callable[[Client], dict[str, Any]]]] = {
    "librdkafka": _librdkafka,
    "java": _java,
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
}
LIBRARIES: Final = tuple(_LIBRARIES)
"""The names of the libraries. "librdkafka" means the confluent-kafka clients in all languages."""
