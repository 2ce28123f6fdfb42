"""The table of refusals in docs/security.md: clients report each of its errors, and the broker's log has its reason."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from broker.security.tls.authority import Authority
from broker.security.tls.directory import write_directory
from tests.docs.blocks import ROOT
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S
from tests.support.javaprog import java_clients
from tests.support.listeners import listening

TEXT: Final = (ROOT / "docs" / "security.md").read_text("utf-8")
HEAD: Final = "| what is wrong | librdkafka says | Java says | the log of the broker |"
OF_JAVA: Final = "alert certificate unknown"
CENTURY_DAYS: Final = 36_500
LISTENERS: Final = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "OTHER_NAME": "SSL",
    "EXPIRED": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "PLAIN_ONLY": "SASL_PLAINTEXT",
}
MODULES: Final = {
    "PLAIN": 'plain.PlainLoginModule required user_alice="secret"',
    "SCRAM-SHA-256": "scram.ScramLoginModule required",
}
SECURITY: Final = "org.apache.kafka.common.security"


class Row(NamedTuple):
    """A row of the table, as the texts in back-ticks of each column.

    The first text of the log column is the reason or the event, the others are its error.
    """

    librdkafka: list[str]
    java: list[str]
    log: list[str]


def rows() -> dict[str, Row]:
    """Return the rows of the table by their first column."""
    lines = TEXT.partition(HEAD)[2].strip().splitlines()[1:]
    table = {}
    for line in lines[: lines.index("")]:
        wrong, *cells = line.strip("| ").split(" | ")
        table[wrong] = Row(*(re.findall("`([^`]+)`", cell) for cell in (*cells, "")[:3]))
    return table


class Case(NamedTuple):
    listener: str
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = "alice"
    password: str = "secret"
    ca: str = "own"
    certificate: str = ""

    def librdkafka(self, home: Path) -> dict[str, Any]:
        config: dict[str, Any] = {
            "security.protocol": self.protocol,
            "ssl.ca.location": str(home / self.ca / "ca.pem"),
        }
        if self.mechanism:
            config |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        if self.certificate:
            folder = home / self.certificate
            config |= {
                "ssl.certificate.location": str(folder / "client.crt"),
                "ssl.key.location": str(folder / "client.key"),
            }
        return config

    def java(self, home: Path) -> dict[str, str]:
        config = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(home / self.ca / "ca.pem"),
            "request.timeout.ms": "2000",
            "default.api.timeout.ms": "2000",
        }
        if self.mechanism:
            module = MODULES[self.mechanism].split()[0]
            credentials = f'username="{self.user}" password="{self.password}"'
            config |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"{SECURITY}.{module} required {credentials};",
            }
        if self.certificate:
            config |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(home / self.certificate / "client.pem"),
            }
        return config


CASES: Final = {
    "the password, or there is no such user (PLAIN)": Case("LOGIN", "SASL_PLAINTEXT", "PLAIN", password="no"),
    "the password (SCRAM)": Case("LOGIN", "SASL_PLAINTEXT", "SCRAM-SHA-256", password="no"),
    "there is no such user (SCRAM)": Case("LOGIN", "SASL_PLAINTEXT", "SCRAM-SHA-256", "stranger"),
    "the mechanism": Case("PLAIN_ONLY", "SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "a client without TLS, a listener with": Case("TLS"),
    "a client with TLS, a listener without": Case("PLAINTEXT", "SSL"),
    "a client without SASL, a listener with": Case("LOGIN"),
    "a client with SASL, a listener without": Case("PLAINTEXT", "SASL_PLAINTEXT", "PLAIN"),
    "the client does not trust the authority": Case("TLS", "SSL", ca="foreign"),
    "the certificate has another name": Case("OTHER_NAME", "SSL"),
    "the certificate has expired": Case("EXPIRED", "SSL"),
    "the client has no certificate": Case("MUTUAL", "SSL"),
    "another authority signed the client's certificate": Case("MUTUAL", "SSL", certificate="foreign"),
    "a right is missing": Case("LOGIN", "SASL_PLAINTEXT", "PLAIN"),
}


class Broker(NamedTuple):
    ports: Mapping[str, int]
    home: Path

    def bootstrap(self, case: Case) -> str:
        return f"localhost:{self.ports[case.listener]}"

    def has_logged(self, said: list[str]) -> bool:
        """Whether one line of the log contains all of the texts."""
        lines = (self.home / "broker.log").read_text().splitlines()
        return any(all(each in line for each in said) for line in lines)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    home = tmp_path_factory.mktemp("refusals")
    then = datetime(2024, 1, 1, tzinfo=UTC)
    own, foreign = (Authority.create(then, name, days=CENTURY_DAYS) for name in ("CN=Own", "CN=Foreign"))
    for name, issuer, hosts, days in (
        ("own", own, ["localhost", "127.0.0.1"], CENTURY_DAYS),
        ("foreign", foreign, ["localhost", "127.0.0.1"], CENTURY_DAYS),
        ("other_name", own, ["kafka"], CENTURY_DAYS),
        ("expired", own, ["localhost", "127.0.0.1"], 1),
    ):
        server = issuer.issue("localhost", hosts, days=days)
        client = issuer.issue("client", client=True, days=CENTURY_DAYS)
        write_directory(home / name, issuer, server, client, "secret")
    with listening(LISTENERS, settings(home), home) as ports:
        alice = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
        )
        admin = AdminClient({"bootstrap.servers": f"localhost:{ports['PLAINTEXT']}"})
        admin.alter_user_scram_credentials([alice])["alice"].result(HANG_S)
        yield Broker(ports, home)


def settings(home: Path) -> dict[str, str]:
    found = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "own" / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "own" / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for name in ("other_name", "expired"):
        found[f"listener.name.{name}.ssl.keystore.location"] = str(home / name / "server.pem")
    for listener, enabled in (("login", ("PLAIN", "SCRAM-SHA-256")), ("plain_only", ("PLAIN",))):
        prefix = f"listener.name.{listener}."
        found[f"{prefix}sasl.enabled.mechanisms"] = ",".join(enabled)
        for mechanism in enabled:
            found[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = f"{SECURITY}.{MODULES[mechanism]};"
    return found


def test_each_row_has_a_case() -> None:
    assert rows().keys() == CASES.keys()


class ClientLog(logging.Handler):
    """The messages of a client: errors, delivery reports, log lines.

    It holds no reference to the client, so that the client is freed at the end of the test.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def hear(self, error: object, _: object = None) -> None:
        self.said.append(str(error))

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())

    def has(self, texts: list[str]) -> bool:
        return any(all(each in said for each in texts) for said in self.said)


@pytest.mark.parametrize("wrong", CASES)
def test_what_librdkafka_and_the_log_say(broker: Broker, wrong: str) -> None:
    case, row = CASES[wrong], rows()[wrong]
    heard, logger = ClientLog(), logging.Logger("librdkafka")
    logger.addHandler(heard)
    config = {"bootstrap.servers": broker.bootstrap(case), **case.librdkafka(broker.home)}
    producer = Producer({**config, "error_cb": heard.hear}, logger=logger)
    producer.produce("orders", b"", on_delivery=heard.hear)
    assert eventually(lambda: producer.poll(0) is not None and heard.has(row.librdkafka))
    # The column also has the error that a Java client causes.
    log = [each for each in row.log if each != OF_JAVA]
    assert not log or eventually(lambda: broker.has_logged(log))


@pytest.mark.java
def test_what_java_and_the_log_say(broker: Broker, tmp_path: Path) -> None:
    for wrong, row in rows().items():
        case = CASES[wrong]
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in case.java(broker.home).items()))
        words = ("--bootstrap-server", broker.bootstrap(case), "--command-config", str(file))
        ran = java_clients().tool(
            "org.apache.kafka.tools.TopicCommand", *words, "--create", "--topic", "orders"
        )
        said = f"{ran.out}{ran.err}{java_clients().log()}"
        assert [each for each in row.java if each not in said] == [], f"{wrong}: {said}"
        if OF_JAVA in row.log:
            assert eventually(lambda: broker.has_logged(["TLS handshake failed", OF_JAVA]))


def test_the_log_has_reason_and_error_as_separate_fields(broker: Broker) -> None:
    """The log has the reason and the error as separate fields, as the table shows them."""
    lines = (broker.home / "broker.log").read_text().splitlines()
    closed = [json.loads(line) for line in lines if '"connection closed"' in line]
    reasons = {each["reason"] for each in closed}
    assert {"authentication failed", "not authenticated", "TLS handshake failed"} <= reasons
