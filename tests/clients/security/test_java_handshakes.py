"""Handshakes of Kafka's Java client, in the JVM that all tests of a process share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from tests.clients.security.cells import Cell
from tests.clients.security.contract import Handshakes, LocalRun
from tests.clients.security.local import Java
from tests.clients.security.world import World

pytestmark = [pytest.mark.java, pytest.mark.foreign]


@pytest.mark.client("Java")
class TestJava(Handshakes):
    """The Java client retries some errors, as if the broker were unavailable, and fails after max.block.ms."""

    title = "java"
    says: ClassVar = {
        "wrong-password.PLAIN": r"SaslAuthenticationException: .*Invalid username or password",
        "wrong-password.SCRAM": r"SaslAuthenticationException: .*SASL mechanism SCRAM-SHA-256",
        "unknown-user": r"SaslAuthenticationException: .*SASL mechanism SCRAM-SHA-512",
        "token-expired": r"SaslAuthenticationException: .*\"status\":\"invalid_token\"",
        "token-forged": r"SaslAuthenticationException: .*\"status\":\"invalid_token\"",
        "mechanism-not-enabled": r"UnsupportedSaslMechanismException: .*'PLAIN' not enabled .*\[OAUTHBEARER\]",
        "sasl-to-plaintext": r"IllegalSaslStateException: .*Unexpected handshake request with client mechanism PLAIN",
        "another-user": r"TransactionalIdAuthorizationException",
        "no-certificate": r"SslAuthenticationException, SSLHandshakeException: .*post-handshake messages",
        "certificate-expired": r"SslAuthenticationException, SSLHandshakeException: .*post-handshake messages",
        "certificate-foreign": r"SslAuthenticationException, SSLHandshakeException: .*post-handshake messages",
        "broker-expired": r"SslAuthenticationException, .*CertificateExpiredException: ",
        "broker-foreign": r"SslAuthenticationException, .*SunCertPathBuilderException: ",
        "tls-to-plaintext": r"TimeoutException",
        "plaintext-to-tls": r"TimeoutException",
        "plaintext-to-sasl": r"TimeoutException",
    }

    @classmethod
    def begin(cls, cells: Sequence[Cell], world: World) -> LocalRun:
        return LocalRun(Java, cells, world, cls.title)
