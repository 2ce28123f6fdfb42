"""Cells: the actions of each client in the handshake tests, the same for all clients.

A cell is a connection to a listener with certain credentials, and an action:

``transaction``
    abort a transaction with one record, commit another with a, b and c, and read these with read_committed. The outcome is
    ``{"values": ["a", "b", "c"]}``.
``knock``
    connect, with the simplest call that makes the client do so. Without an error the outcome is empty.
``stay``
    write one record after the other until the run stops it; the outcome is ``{"written": n}``.

An error ends a cell. The outcome then has ``error``, with the client's class names for the error and its text.

Programs in other languages read the cells as JSON from a file, run all of them concurrently, and print a line for each
outcome.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.broker.security.sasl.issuer import signed
from tests.clients.security.world import MECHANISMS, SESSION_MS, World, password_of

COMMITTED: Final = ["a", "b", "c"]
ENDS_S: Final = 4_000_000_000
_ENDED_S: Final = 1_000_000_000
_HOUR_MS: Final = 3_600_000


class Cell(NamedTuple):
    """A connection and an action. ``topic`` is also the transactional id and the group, ``name`` is the client id."""

    name: str
    does: str
    listener: str
    user: str
    mechanism: str = ""
    password: str = ""
    token: str = ""
    """A fixed token. Without one the client creates tokens itself, each valid for ``token_ms``."""
    token_ms: int = _HOUR_MS
    ca: str = "own"
    """Directory with the certificate authority that the client trusts."""
    certificate: str = ""
    """Directory with the client's certificate, empty without one."""
    protocol: str = ""
    """Security protocol of the client, if it is not the listener's."""
    topic_of: str = ""
    """User whose name the topic begins with, if it is another user than ``user``."""

    def topic(self, client: str) -> str:
        return f"{self.topic_of or self.user}.{client}.{self.name}"

    def protocol_in(self, world: World) -> str:
        return self.protocol or world.protocol(self.listener)

    def as_json(self, world: World, client: str) -> dict[str, Any]:
        """The cell as JSON, for a client program in another language."""
        folder = world.certificates
        return {
            "name": self.name,
            "does": self.does,
            "bootstrap": world.bootstrap(self.listener),
            "tls": self.protocol_in(world).endswith("SSL"),
            "ca": str(folder / self.ca / "ca.pem"),
            "certificate": str(folder / self.certificate / "client.crt") if self.certificate else "",
            "key": str(folder / self.certificate / "client.key") if self.certificate else "",
            "mechanism": self.mechanism,
            "user": self.user,
            "password": self.password,
            "token": self.token,
            "token_ms": self.token_ms,
            "topic": self.topic(client),
        }


def write_cells(cells: Iterable[Cell], world: World, client: str, file: Path) -> Path:
    file.write_text(json.dumps([cell.as_json(world, client) for cell in cells]))
    return file


def login(name: str, does: str, listener: str, mechanism: str, **more: Any) -> Cell:
    """A cell that logs in as the mechanism's user with the right password, unless ``more`` changes that."""
    user = more.pop("user", mechanism.lower())
    if mechanism != "OAUTHBEARER":
        more.setdefault("password", password_of(user))
    return Cell(name, does, listener, user, mechanism, **more)


WELCOME: Final = [
    *(
        login(f"{listener}.{mechanism}", "transaction", listener, mechanism)
        for listener in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in MECHANISMS
    ),
    *(
        login(f"{listener}.OAUTHBEARER", "transaction", listener, "OAUTHBEARER", user="signed", token=token)
        for listener in ("SIGNED", "SIGNED_SSL")
        for token in [signed({"sub": "signed", "iat": _ENDED_S, "exp": ENDS_S})]
    ),
    Cell("SSL", "transaction", "SSL", "anonymous"),
    Cell("MUTUAL", "transaction", "MUTUAL", "certified", certificate="own"),
]


class Refusal(NamedTuple):
    """A cell (a connection and an action) that must fail, and the line that the broker logs."""

    cell: Cell
    log: str
    """Regular expression for ``REASON: ERROR`` of the refusal in the broker's log; empty if no line is required."""

    @property
    def name(self) -> str:
        return self.cell.name


def _knock(name: str, listener: str, log: str, **more: Any) -> Refusal:
    return Refusal(Cell(name, "knock", listener, "anonymous", **more), log)


def _login(name: str, listener: str, mechanism: str, log: str, **more: Any) -> Refusal:
    return Refusal(login(name, "knock", listener, mechanism, **more), log)


_EXPIRED: Final = {"sub": "signed", "iat": _ENDED_S - 60, "exp": _ENDED_S}
_FORGED: Final = {"sub": "signed", "iat": _ENDED_S, "exp": ENDS_S}
REFUSALS: Final = [
    _login(
        "wrong-password.PLAIN",
        "SASL_SSL",
        "PLAIN",
        "authentication failed: Authentication failed: Invalid username or password",
        password="no",
    ),
    _login(
        "wrong-password.SCRAM",
        "SASL_PLAINTEXT",
        "SCRAM-SHA-256",
        "authentication failed: Invalid client credentials",
        password="no",
    ),
    _login(
        "unknown-user",
        "SASL_SSL",
        "SCRAM-SHA-512",
        "authentication failed: Authentication failed: Invalid user credentials",
        user="stranger",
    ),
    _login(
        "token-expired",
        "SIGNED",
        "OAUTHBEARER",
        "(not authenticated|authentication failed): .*on or after the Expiration Time",
        user="signed",
        token=signed(_EXPIRED),
    ),
    _login(
        "token-forged",
        "SIGNED_SSL",
        "OAUTHBEARER",
        "(not authenticated|authentication failed): .*JWT rejected due to invalid signature",
        user="signed",
        token=signed(_FORGED, "other", kid="ec"),
    ),
    _login("mechanism-not-enabled", "SIGNED", "PLAIN", "not authenticated: Unsupported SASL mechanism PLAIN"),
    _login("sasl-to-plaintext", "PLAINTEXT", "PLAIN", "", protocol="SASL_PLAINTEXT"),
    Refusal(
        login("another-user", "transaction", "SASL_SSL", "PLAIN", topic_of="scram-sha-256"),
        "authorization denied: User:plain",
    ),
    _knock("no-certificate", "MUTUAL", "TLS handshake failed: .*peer did not return a certificate"),
    _knock(
        "certificate-expired",
        "MUTUAL",
        "TLS handshake failed: .*certificate has expired",
        certificate="expired",
    ),
    _knock(
        "certificate-foreign",
        "MUTUAL",
        "TLS handshake failed: .*self-signed certificate in certificate chain",
        certificate="foreign",
    ),
    # Not every client sends an alert with the reason.
    _knock(
        "broker-expired", "EXPIRED", "TLS handshake failed: .*(alert|the client has closed the connection)"
    ),
    _knock(
        "broker-foreign",
        "SSL",
        "TLS handshake failed: .*(alert|the client has closed the connection)",
        ca="foreign",
    ),
    # The Java client retries these again and again, which would exhaust the log's rate limit for lines of this kind.
    _knock("tls-to-plaintext", "PLAINTEXT", "bad request size", protocol="SSL"),
    _knock("plaintext-to-tls", "SSL", "TLS handshake failed: .*wrong version number", protocol="PLAINTEXT"),
    _knock(
        "plaintext-to-sasl",
        "SASL_PLAINTEXT",
        "not authenticated: Unexpected Kafka request of type .* during SASL handshake",
        protocol="PLAINTEXT",
    ),
]

SESSIONS: Final = [
    login("session-ends", "stay", "BRIEF", "SCRAM-SHA-512"),
    login("token-ends", "stay", "SASL_PLAINTEXT", "OAUTHBEARER", token_ms=SESSION_MS),
]
"""Cells whose sessions expire repeatedly: after connections.max.reauth.ms, or with a token, which the client renews."""
