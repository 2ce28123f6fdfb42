"""Handshakes of kafkajs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from tests.clients.security.cells import Cell
from tests.clients.security.contract import Handshakes, ProgramRun
from tests.clients.security.world import World
from tests.support.foreign import node_program

pytestmark = pytest.mark.foreign


@pytest.mark.client("kafkajs")
class TestKafkaJs(Handshakes):
    """kafkajs does not notice that a token was refused, and is disconnected at its next request."""

    title = "kafkajs"
    says: ClassVar = {
        "wrong-password.PLAIN": r"KafkaJSSASLAuthenticationError .*Invalid username or password",
        "wrong-password.SCRAM": r"KafkaJSSASLAuthenticationError .*SASL mechanism SCRAM-SHA-256",
        "unknown-user": r"KafkaJSSASLAuthenticationError .*SASL mechanism SCRAM-SHA-512",
        "token-expired": r"KafkaJSBrokerNotFound",
        "token-forged": r"KafkaJSBrokerNotFound",
        "mechanism-not-enabled": r"KafkaJSProtocolError .*does not support the requested SASL mechanism",
        "sasl-to-plaintext": r"KafkaJSProtocolError .*not valid given the current SASL state",
        "another-user": r"KafkaJSGroupCoordinatorNotFound",
        "no-certificate": r"KafkaJSConnectionError .*alert certificate required",
        "certificate-expired": r"KafkaJSConnectionError .*alert certificate expired",
        "certificate-foreign": r"KafkaJSConnectionError .*alert unknown ca",
        "broker-expired": r"KafkaJSConnectionError .*certificate has expired",
        "broker-foreign": r"KafkaJSConnectionError .*self-signed certificate in certificate chain",
        "tls-to-plaintext": r"KafkaJSConnectionError .*disconnected before secure TLS connection",
        "plaintext-to-tls": r"KafkaJSConnectionClosedError",
        "plaintext-to-sasl": r"KafkaJSConnectionClosedError",
    }

    @classmethod
    def begin(cls, cells: Sequence[Cell], world: World) -> ProgramRun:
        return ProgramRun(node_program("kafkajs-handshakes"), cells, world, cls.title)
