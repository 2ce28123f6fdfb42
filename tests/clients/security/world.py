"""One broker with a listener for each kind of handshake, and an authorizer with ACLs for each user.

A user's topics, transactional ids and groups have names that begin with the user's name: if the broker identified
a client as another user, the client would have no access to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

import odradek
from broker.security.tls.authority import Authority
from broker.security.tls.directory import write_directory
from tests.broker.security.sasl.issuer import jwk, jwks
from tests.support.deadlines import HANG_S
from tests.support.listeners import listening
from tests.support.raw import free_port

LISTENERS: Final = {
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SIGNED": "SASL_PLAINTEXT",
    "SIGNED_SSL": "SASL_SSL",
    "BRIEF": "SASL_SSL",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
}
"""Settings by listener. SIGNED accepts only signed tokens. On BRIEF a session lasts for `SESSION_MS`. MUTUAL requires client
certificates, and the certificate of EXPIRED has expired."""
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER")
SESSION_MS: Final = 3000
SUBJECT: Final = "CN=certified,OU=clients,O=Odradek"
PRINCIPALS: Final = {
    **{mechanism.lower(): f"User:{mechanism.lower()}" for mechanism in MECHANISMS},
    "signed": "User:signed",
    "anonymous": "User:ANONYMOUS",
    "certified": f"User:{SUBJECT}",
}
"""Principals by user name. SASL users are named like the mechanism with which they log in."""

_CENTURY_DAYS: Final = 36_500
_BEGINNING: Final = datetime(2024, 1, 1, tzinfo=UTC)
_ADMIN: Final = "admin"
_ITERATIONS: Final = 4096
_SECURITY: Final = "org.apache.kafka.common.security"
_RIGHTS: Final = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE,),
    ResourceType.GROUP: (AclOperation.READ,),
}


def password_of(user: str) -> str:
    return f"{user}-secret"


class World:
    """The broker, with addresses for clients and its log for tests."""

    def __init__(self, ports: dict[str, int], control_port: int, home: Path) -> None:
        self._ports = ports
        self._log = home / "broker.log"
        self.certificates = home
        self.control = odradek.connect(f"http://127.0.0.1:{control_port}")
        self.admin = AdminClient(
            {
                "bootstrap.servers": self.bootstrap("SASL_PLAINTEXT"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": _ADMIN,
                "sasl.password": password_of(_ADMIN),
                "log_level": 0,
            }
        )

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def protocol(self, listener: str) -> str:
        return LISTENERS.get(listener, "PLAINTEXT")

    def populate(self) -> None:
        """Create the SCRAM users, and the ACLs of all users."""
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(
                mechanism.lower(),
                ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], _ITERATIONS),
                password_of(mechanism.lower()).encode(),
            )
            for mechanism in SCRAM
        ]
        _await(self.admin.alter_user_scram_credentials(wanted))
        _await(self.admin.create_acls(list(_bindings())))

    def let_read(self, user: str, topic: str) -> None:
        """Allow a user to read another user's topic."""
        _await(
            self.admin.create_acls(
                [_binding(user, ResourceType.TOPIC, topic, AclOperation.READ, ResourcePatternType.LITERAL)]
            )
        )

    def add_topics(self, names: Iterable[str]) -> None:
        _await(self.admin.create_topics([NewTopic(name, 1, 1) for name in names]))

    def refused(self) -> list[dict[str, str]]:
        """The refused connections and requests in the broker's log, each with reason and error.

        Fails if an entry does not have the client's address.
        """
        found = []
        for line in self._log.read_text().splitlines():
            entry = json.loads(line)
            if entry["event"] == "connection closed":
                found.append({"reason": entry["reason"], "error": str(entry.get("error", ""))})
            elif entry["event"] == "authorization denied":
                found.append({"reason": entry["event"], "error": entry["principal"]})
            else:
                continue
            assert entry["peer"] == "127.0.0.1", entry
        return found


@contextmanager
def started_world(home: Path) -> Iterator[World]:
    _write_certificates(home)
    (home / "keys.json").write_text(jwks(jwk("ec")))
    control_port = free_port()
    with listening(LISTENERS, _settings(home), home, "--control-port", str(control_port)) as ports:
        made = World(ports, control_port, home)
        made.populate()
        made.control.trace.start()
        yield made


def _write_certificates(home: Path) -> None:
    """Create the directories `own`, `expired` (by the same authority) and `foreign` (by an untrusted authority)."""
    authority = Authority.create(_BEGINNING, days=_CENTURY_DAYS)
    stranger = Authority.create(_BEGINNING, "CN=Stranger", days=_CENTURY_DAYS)
    for name, issuer, days in (
        ("own", authority, _CENTURY_DAYS),
        ("expired", authority, -1),
        ("foreign", stranger, _CENTURY_DAYS),
    ):
        server = issuer.issue("localhost", ["localhost", "127.0.0.1"], days=days)
        client = issuer.issue(SUBJECT, client=True, days=days)
        write_directory(home / name, issuer, server, client, password_of(name))


def _settings(home: Path) -> dict[str, str]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{_ADMIN}",
        "group.initial.rebalance.delay.ms": "0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "own" / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "own" / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.expired.ssl.keystore.location": str(home / "expired" / "server.pem"),
    }
    plain = " ".join(f'user_{user}="{password_of(user)}"' for user in (_ADMIN, "plain"))
    modules = {
        "PLAIN": f"plain.PlainLoginModule required {plain};",
        **dict.fromkeys(SCRAM, "scram.ScramLoginModule required;"),
        "OAUTHBEARER": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
    }
    for listener in ("SASL_PLAINTEXT", "SASL_SSL", "BRIEF", "SIGNED", "SIGNED_SSL"):
        prefix = f"listener.name.{listener.lower()}."
        enabled = ("OAUTHBEARER",) if listener.startswith("SIGNED") else MECHANISMS
        settings[f"{prefix}sasl.enabled.mechanisms"] = ",".join(enabled)
        for mechanism in enabled:
            settings[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = f"{_SECURITY}.{modules[mechanism]}"
    for listener in ("signed", "signed_ssl"):
        prefix = f"listener.name.{listener}."
        validator = f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        settings[f"{prefix}oauthbearer.sasl.server.callback.handler.class"] = validator
        settings[f"{prefix}sasl.oauthbearer.jwks.endpoint.url"] = (home / "keys.json").as_uri()
        for claim in ("audience", "issuer"):
            settings[f"{prefix}sasl.oauthbearer.allow.unverified.{claim}"] = "true"
    settings["listener.name.brief.connections.max.reauth.ms"] = str(SESSION_MS)
    return settings


def _bindings() -> Iterator[AclBinding]:
    for user in PRINCIPALS:
        for kind, operations in _RIGHTS.items():
            for operation in operations:
                yield _binding(user, kind, f"{user}.", operation, ResourcePatternType.PREFIXED)


def _binding(
    user: str, kind: ResourceType, name: str, operation: AclOperation, pattern: ResourcePatternType
) -> AclBinding:
    return AclBinding(kind, name, pattern, PRINCIPALS[user], "*", operation, AclPermissionType.ALLOW)


def _await(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(HANG_S)
