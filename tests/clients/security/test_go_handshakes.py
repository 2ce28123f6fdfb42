"""Handshakes of franz-go and sarama."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from tests.clients.security.cells import Cell
from tests.clients.security.contract import Handshakes, ProgramRun
from tests.clients.security.world import World
from tests.support.foreign import go_program

pytestmark = pytest.mark.foreign


@pytest.mark.client("franz-go")
class TestFranzGo(Handshakes):
    title = "franz-go"
    says: ClassVar = {
        "wrong-password.PLAIN": r"kerr\.Error SASL_AUTHENTICATION_FAILED: .*Invalid username or password",
        "wrong-password.SCRAM": r"kerr\.Error SASL_AUTHENTICATION_FAILED: .*SASL mechanism SCRAM-SHA-256",
        "unknown-user": r"kerr\.Error SASL_AUTHENTICATION_FAILED: .*SASL mechanism SCRAM-SHA-512",
        "token-expired": r"kerr\.Error SASL_AUTHENTICATION_FAILED: .*\"status\":\"invalid_token\"",
        "token-forged": r"kerr\.Error SASL_AUTHENTICATION_FAILED: .*\"status\":\"invalid_token\"",
        "mechanism-not-enabled": r"kerr\.Error UNSUPPORTED_SASL_MECHANISM",
        "sasl-to-plaintext": r"kerr\.Error ILLEGAL_SASL_STATE",
        "another-user": r"kerr\.Error .*TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "no-certificate": r"tls\.alert remote error: tls: certificate required",
        "certificate-expired": r"tls\.alert remote error: tls: expired certificate",
        "certificate-foreign": r"tls\.alert remote error: tls: unknown certificate authority",
        "broker-expired": r"x509\.CertificateInvalidError .*certificate has expired",
        "broker-foreign": r"x509\.UnknownAuthorityError",
        "tls-to-plaintext": r"kgo\.ErrFirstReadEOF .*immediately after a dial",
        "plaintext-to-tls": r"kgo\.ErrFirstReadEOF .*is TLS missing",
        "plaintext-to-sasl": r"kgo\.ErrFirstReadEOF .*is SASL missing",
    }

    @classmethod
    def begin(cls, cells: Sequence[Cell], world: World) -> ProgramRun:
        return ProgramRun(go_program("franz"), cells, world, cls.title)


@pytest.mark.client("sarama")
class TestSarama(Handshakes):
    """sarama reports "run out of available brokers" if all brokers fail. Some details are only in its log."""

    title = "sarama"
    says: ClassVar = {
        "wrong-password.PLAIN": r"SASL Authentication failed: .*Invalid username or password",
        "wrong-password.SCRAM": r"SASL Authentication failed: .*SASL mechanism SCRAM-SHA-256",
        "unknown-user": r"SASL Authentication failed: .*SASL mechanism SCRAM-SHA-512",
        # sarama ends an exchange with the four characters \x01 instead of the byte.
        "token-expired": r"SASL Authentication failed: .*SASL mechanism OAUTHBEARER",
        "token-forged": r"SASL Authentication failed: .*SASL mechanism OAUTHBEARER",
        "mechanism-not-enabled": r"run out of available brokers to talk to$",
        "sasl-to-plaintext": r"run out of available brokers to talk to$",
        "another-user": r"sarama\.KError .*Transactional ID authorization failed",
        "no-certificate": r"run out of .*remote error: tls: certificate required",
        "certificate-expired": r"run out of .*remote error: tls: expired certificate",
        "certificate-foreign": r"run out of .*remote error: tls: unknown certificate authority",
        "broker-expired": r"tls\.CertificateVerificationError .*certificate has expired",
        "broker-foreign": r"tls\.CertificateVerificationError .*signed by unknown authority",
        "tls-to-plaintext": r"run out of .*: EOF",
        "plaintext-to-tls": r"run out of .*: EOF",
        "plaintext-to-sasl": r"run out of .*: EOF",
    }

    @classmethod
    def begin(cls, cells: Sequence[Cell], world: World) -> ProgramRun:
        return ProgramRun(go_program("sarama"), cells, world, cls.title)
