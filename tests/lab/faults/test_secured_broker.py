"""Fault rules on security at a broker with sockets: removed ACLs, rejected tokens, expired certificates."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from broker.metadata.acls import ALLOW, LITERAL, Acl
from tests.support.deadlines import HANG_S, Deadline
from tests.support.in_process import InProcess
from tests.support.raw import Closed, Wire, decode_response, encode_request

SECURITY = "org.apache.kafka.common.security"
LISTENER = "listener.name.sasl_plaintext"
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    f"{LISTENER}.plain.sasl.jaas.config": f'{SECURITY}.plain.PlainLoginModule required user_alice="secret";',
    f"{LISTENER}.oauthbearer.sasl.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "connection.failed.authentication.delay.ms": "1",
}
BY_PASSWORD = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"}
BY_TOKEN = {
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": True,
    "sasl.oauthbearer.config": "principal=alice",
}
ALICE = "User:alice"
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED
TOPIC, WRITE, DESCRIBE = 2, 4, 8
MAY_WRITE = Acl(TOPIC, "orders", LITERAL, ALICE, "*", WRITE, ALLOW)
MAY_LOOK = Acl(TOPIC, "orders", LITERAL, "User:*", "*", DESCRIBE, ALLOW)
"""An ACL with which every client may describe the topic, as clients request the topic's metadata before they write to it."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcess]:
    with InProcess(tmp_path, "--topic", "orders:1", settings=SASL) as broker:
        yield broker


def acls(broker: InProcess) -> set[Acl]:
    return broker.call(lambda: set(broker.cluster.metadata.image.acls.values()))


def let_alice_write(broker: InProcess) -> None:
    create(broker, MAY_WRITE, MAY_LOOK)


def create(broker: InProcess, *acls: Acl) -> None:
    broker.run(broker.cluster.metadata.acl_control.create_acls(acls))


class Alice:
    """A producer that sends one record in each request."""

    def __init__(self, broker: InProcess, **more: Any) -> None:
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "error_cb": self.errors.append,
                "reconnect.backoff.ms": 10,
                **BY_PASSWORD,
                **more,
            }
        )

    def send(self, value: str) -> int | None:
        """Send a record and return its error, None if it was written. After an authorization error the client itself fails
        records for a while."""
        errors: list[KafkaError | None] = []
        self._producer.produce("orders", value, callback=lambda error, message: errors.append(error))
        assert self._producer.flush(HANG_S) == 0
        (error,) = errors
        return None if error is None else error.code()

    def await_error(self, code: int) -> str:
        deadline = Deadline(HANG_S)
        while not any(each.code() == code for each in self.errors):
            assert not deadline.is_over, self.errors
            self._producer.poll(0.01)
        return next(each.str() for each in self.errors if each.code() == code)


def test_a_right_ends_at_the_nth_produce(broker: InProcess) -> None:
    let_alice_write(broker)
    rule = broker.stage("Produce principal=User:alice nth=3 -> remove-acls topic=orders operation=WRITE")
    alice = Alice(broker)
    assert [alice.send(str(number)) for number in range(3)] == [None, None, REFUSED]
    assert Alice(broker).send("again") == REFUSED
    assert rule.hits == 1
    assert acls(broker) == {MAY_LOOK}


def test_a_denial_comes_and_goes_with_rules(broker: InProcess) -> None:
    let_alice_write(broker)
    broker.stage("Produce nth=2 -> add-acl topic=ord* operation=Write permission=DENY")
    # A request that the first rule hits does not count.
    broker.stage("Produce nth=2 -> remove-acls permission=DENY")
    assert [Alice(broker).send(str(number)) for number in range(3)] == [None, REFUSED, None]
    assert acls(broker) == {MAY_WRITE, MAY_LOOK}


def test_the_rights_of_others_stay(broker: InProcess) -> None:
    let_alice_write(broker)
    others = {MAY_WRITE._replace(principal="User:bob"), MAY_WRITE._replace(principal="User:*", host="::1")}
    create(broker, *others)
    broker.stage("Produce -> remove-acls")
    assert Alice(broker).send("1") == REFUSED
    assert acls(broker) == {*others, MAY_LOOK}


@pytest.mark.parametrize(("login", "told"), [(BY_TOKEN, "invalid_token"), (BY_PASSWORD, "Invalid username")])
def test_a_client_takes_a_refused_login_for_kafka_s_refusal(
    broker: InProcess, login: dict[str, Any], told: str
) -> None:
    let_alice_write(broker)
    mechanism = login["sasl.mechanism"]
    rule = broker.stage(f"SaslAuthenticate mechanism={mechanism} nth=1 -> error SASL_AUTHENTICATION_FAILED")
    alice = Alice(broker, **login)
    assert told in alice.await_error(KafkaError._AUTHENTICATION)
    assert alice.send("1") is None, "the rule is spent, so the next authentication succeeds"
    assert rule.hits == 1


# ---- certificates

DAYS = 3650
"""Validity, in days, of the certificates that the authority of --tls issues."""


@pytest.fixture
def with_tls(tmp_path: Path) -> Iterator[InProcess]:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.client.auth": "requested",
        "connections.max.idle.ms": "-1",
    }
    with InProcess(tmp_path, "--tls", "--tls-directory", str(tmp_path / "tls"), settings=settings) as broker:
        yield broker


@contextmanager
def connected(
    broker: InProcess, folder: Path, *, as_client: bool = False, verifies: bool = True
) -> Iterator[Wire]:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if not verifies:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if as_client:
        context.load_cert_chain(folder / "client.pem")
    host, port = broker.bootstrap.split(":")
    with closing(Wire(host, int(port))) as wire:
        wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
        yield wire


def is_served(wire: Wire) -> bool:
    try:
        wire.send_frame(encode_request("api_versions", 0, {}, 1))
        answer = decode_response("api_versions", 0, wire.receive_frame())[1]
    except (Closed, ssl.SSLError, ConnectionError):
        return False
    return bool(answer["error_code"] == 0)


def test_certificates_expire_with_the_clock(with_tls: InProcess, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    with connected(with_tls, folder, as_client=True) as early:
        assert is_served(early)
        with_tls.advance(f"{DAYS - 1}d", ["connections"])
        with connected(with_tls, folder, as_client=True) as late:
            assert is_served(late)
        with_tls.advance("2d", ["connections"])
        with (
            pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"),
            connected(with_tls, folder),
        ):
            pass
        assert is_served(early), "an open connection stays"
    with connected(with_tls, folder, verifies=False) as careless:
        assert is_served(careless)
    with connected(with_tls, folder, verifies=False, as_client=True) as expired:
        assert not is_served(expired), "the client's certificate has expired too"
