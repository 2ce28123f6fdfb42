"""Handshakes of librdkafka, kafka-python and aiokafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from tests.clients.security.cells import REFUSALS, Cell
from tests.clients.security.contract import Handshakes, LocalRun
from tests.clients.security.local import AioKafka, Confluent, KafkaPython
from tests.clients.security.world import World

pytestmark = pytest.mark.foreign


@pytest.mark.client("librdkafka (confluent-kafka)")
class TestConfluent(Handshakes):
    title = "confluent-kafka"
    says: ClassVar = {
        "wrong-password.PLAIN": r"_AUTHENTICATION: .*Invalid username or password",
        "wrong-password.SCRAM": r"_AUTHENTICATION: .*SASL mechanism SCRAM-SHA-256",
        "unknown-user": r"_AUTHENTICATION: .*SASL mechanism SCRAM-SHA-512",
        "token-expired": r"_AUTHENTICATION: .*\"status\":\"invalid_token\"",
        "token-forged": r"_AUTHENTICATION: .*\"status\":\"invalid_token\"",
        "mechanism-not-enabled": r"_AUTHENTICATION: .*broker's supported mechanisms: OAUTHBEARER",
        "sasl-to-plaintext": r"_AUTHENTICATION: .*Request not valid in current SASL state",
        "another-user": r"TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "no-certificate": r"_TRANSPORT: .*alert certificate required",
        "certificate-expired": r"_TRANSPORT: .*alert certificate expired",
        "certificate-foreign": r"_TRANSPORT: .*alert unknown ca",
        "broker-expired": r"(_SSL|_TRANSPORT): .*certificate verify failed",
        "broker-foreign": r"(_SSL|_TRANSPORT): .*certificate verify failed",
        # The second text, if librdkafka sees the closed socket before its handshake fails.
        "tls-to-plaintext": r"_TRANSPORT: .*(to a PLAINTEXT broker listener\?|SSL connection closed by peer)",
        "plaintext-to-tls": r"_ALL_BROKERS_DOWN",
        "plaintext-to-sasl": r"_ALL_BROKERS_DOWN",
    }

    @classmethod
    def begin(cls, cells: Sequence[Cell], world: World) -> LocalRun:
        return LocalRun(Confluent, cells, world, cls.title)


@pytest.mark.client("kafka-python")
class TestKafkaPython(Handshakes):
    """kafka-python writes the reason of a connection failure only to its log."""

    title = "kafka-python"
    says: ClassVar = {
        **{refusal.name: r"KafkaTimeoutError: Unable to bootstrap from" for refusal in REFUSALS},
        "another-user": r"TransactionalIdAuthorizationFailedError",
    }

    @classmethod
    def begin(cls, cells: Sequence[Cell], world: World) -> LocalRun:
        return LocalRun(KafkaPython, cells, world, cls.title)


@pytest.mark.client("aiokafka")
class TestAioKafka(Handshakes):
    """aiokafka writes the reason of a connection failure only to its log, and does not notice a refused token."""

    title = "aiokafka"
    authenticates_again = False
    says: ClassVar = {
        **{refusal.name: r"KafkaConnectionError: Unable to bootstrap from" for refusal in REFUSALS},
        "token-expired": r"AssertionError: Did we not perform bootstrap\?",
        "token-forged": r"AssertionError: Did we not perform bootstrap\?",
        "another-user": r"TransactionalIdAuthorizationFailed",
    }

    @classmethod
    def begin(cls, cells: Sequence[Cell], world: World) -> LocalRun:
        return LocalRun(AioKafka, cells, world, cls.title)
