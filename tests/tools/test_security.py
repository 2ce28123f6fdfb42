"""Commands against a broker with TLS and SASL, configured with the client properties of Kafka's tools."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import odradek as package
from odradek.cli import main
from odradek.client_security import client_security
from odradek.errors import BadClientSettings
from odradek.java_stores import key_store_pem, trust_store_pem
from odradek.words import Mechanism
from tests.support.deadlines import HANG_S
from tests.tools.conftest import invoke

PASSWORD = 'hu"nter\\2'


@pytest.fixture(scope="module")
def secured() -> Iterator[package.Broker]:
    with package.Broker(nodes=2, topics=["orders:2"], tls=True, users={"alice": PASSWORD}) as broker:
        yield broker


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """A function that writes a properties file, with the escapes of Java's properties."""

    def write(properties: dict[str, str]) -> str:
        lines = [f"{name}={value}".replace("\\", "\\\\") for name, value in properties.items()]
        path = tmp_path / "client.properties"
        path.write_text("\n".join(["acks=all", *lines]), "latin-1")
        return str(path)

    return write


Write = Callable[[dict[str, str]], str]


def on(broker: package.Broker, *words: str, input: str | None = None) -> Result:
    return invoke(broker.bootstrap_servers, *words, input=input)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_command_logs_in_by_each_mechanism(
    secured: package.Broker, write: Write, mechanism: Mechanism
) -> None:
    config = write(secured.client_config("alice", library="java", mechanism=mechanism))
    topic = f"by-{mechanism.lower()}"
    for words in (("topic", "create", f"{topic}:2:2"), ("produce", topic, "paid", "-x", topic)):
        done = on(secured, *words, "--command-config", config)
        assert done.exit_code == 0, done.output
    done = on(secured, "consume", topic, "--format", "%v\\n", "--command-config", config)
    assert done.stdout == "paid\n"


def test_a_login_works_without_kio(secured: package.Broker, write: Write) -> None:
    """Commands read the settings for a login without importing kio, as the image lacks kio. The sink's client needs kio for
    its requests."""
    config = write(secured.client_config("alice", library="java", mechanism="SCRAM-SHA-512"))
    program = (
        "import sys; sys.modules['kio'] = None\n"
        "from pathlib import Path\n"
        "from odradek.client_security import client_security, properties_of\n"
        f"print(client_security(properties_of(Path({config!r}))).mechanism)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "SCRAM-SHA-512\n"), done.stderr


@pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
def test_a_trust_store_of_each_kind_is_read(secured: package.Broker, write: Write, kind: str) -> None:
    authority = secured.authority
    stores = {"PEM": authority.ca, "JKS": authority.truststore_jks, "PKCS12": authority.truststore_pkcs12}
    config = secured.client_config("alice", library="java")
    config |= {"ssl.truststore.type": kind, "ssl.truststore.location": str(stores[kind])}
    if kind != "PEM":
        config["ssl.truststore.password"] = authority.password
    done = on(secured, "topic", "list", "--command-config", write(config))
    assert done.exit_code == 0, done.output


def test_kafkas_own_tools_take_a_file_or_properties(secured: package.Broker, write: Write) -> None:
    config = secured.client_config("alice", library="java")
    where = ["--bootstrap-server", secured.bootstrap_servers]
    tool = ("kafka-tool", "kafka-console-producer", *where, "--topic", "orders")
    properties = [
        word for name, value in config.items() for word in ("--producer-property", f"{name}={value}")
    ]
    assert on(secured, *tool, *properties, input="hello\n").exit_code == 0
    consumer = ("kafka-tool", "kafka-console-consumer", *where, "--topic", "orders", "--from-beginning")
    done = on(secured, *consumer, "--max-messages", "1", "--consumer.config", write(config))
    assert done.stdout == "hello\n"


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": "t"},
            1,
            "does not support OAUTHBEARER, only PLAIN, ",
        ),
        ({"sasl.jaas.config": 'M required username="alice" password="hunter3";'}, 1, "Authentication failed"),
        (
            {"sasl.jaas.config": "M required;"},
            2,
            "sasl.jaas.config needs a username and a password for PLAIN",
        ),
        ({"ssl.truststore.location": "/nothing.pem"}, 2, "/nothing.pem: "),
        ({"ssl.truststore.type": "JKS"}, 2, "not a JKS or PKCS12 file; for a PEM file, set "),
        ({"security.protocol": "SASL_PLAINTEXT"}, 3, "closed the connection"),
        ({"security.protocol": "TLS"}, 2, "security.protocol must be one of PLAINTEXT, SSL"),
    ],
)
def test_errors_do_not_contain_the_password(
    secured: package.Broker, write: Write, change: dict[str, str], code: int, message: str
) -> None:
    config = write({**secured.client_config("alice", library="java"), **change})
    done = on(secured, "topic", "list", "--command-config", config)
    assert (done.exit_code, message in done.stderr) == (code, True), done.stderr
    assert "hunter" not in done.stderr


def test_no_password_is_sent_to_a_broker_that_is_not_trusted(secured: package.Broker, write: Write) -> None:
    config = secured.client_config("alice", library="java")
    del config["ssl.truststore.location"], config["ssl.truststore.type"]
    done = on(secured, "topic", "list", "--command-config", write(config))
    assert done.exit_code == 1
    assert "TLS fails: self-signed certificate in certificate chain" in done.stderr


@pytest.mark.parametrize(
    ("security", "wanted"),
    [({"users": {"alice": PASSWORD}, "mechanism": "PLAIN"}, "SASL"), ({"tls": True}, "TLS")],
)
def test_without_a_configuration_the_error_guesses_the_listener_s_protocol(
    security: dict[str, Any], wanted: str
) -> None:
    with package.Broker(**security) as broker:
        done = on(broker, "topic", "list")
        assert done.exit_code == 3
        assert f"does its listener require {wanted}? See --command-config" in done.stderr
        healthy = CliRunner().invoke(main, ["health", "-b", broker.bootstrap_servers])
        assert healthy.exit_code == 0, healthy.output


# -- stores


def test_a_key_store_is_read_where_clients_need_a_certificate(write: Write) -> None:
    with package.Broker(tls=True, settings={"ssl.client.auth": "required"}) as broker:
        config = broker.client_config(library="java")
        as_pkcs12 = {
            **config,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(broker.authority.client_keystore_pkcs12),
            "ssl.keystore.password": broker.authority.password,
        }
        for properties in (config, as_pkcs12):
            done = on(broker, "topic", "list", "--command-config", write(properties))
            assert done.exit_code == 0, done.output
            arguments = ["health", "-b", broker.bootstrap_servers, "--command-config", write(properties)]
            assert CliRunner().invoke(main, arguments).exit_code == 0
        with pytest.raises(BadClientSettings, match="with `keytool -importkeystore`"):
            key_store_pem(broker.authority.client_keystore_jks, broker.authority.password)
        with pytest.raises(
            BadClientSettings, match="the file contains a private key, so it is not a trust store"
        ):
            trust_store_pem(broker.authority.client_keystore_jks, None)
        for password, state in (("wrong", "wrong"), (None, "missing")):
            with pytest.raises(BadClientSettings, match=f"its password is {state}"):
                trust_store_pem(broker.authority.truststore_pkcs12, password)
        damaged = broker.authority.truststore_jks
        content = damaged.read_bytes()
        for size in (7, 60):
            damaged.write_bytes(content[:size])
            with pytest.raises(BadClientSettings, match="the JKS file is damaged"):
                trust_store_pem(damaged, None)


def test_properties_without_a_protocol_are_plaintext() -> None:
    assert client_security({"sasl.mechanism": "PLAIN", "security.protocol": " plaintext "}) is None
    assert client_security({}) is None


# -- health


def test_health_without_a_configuration_accepts_a_broker_with_tls(secured: package.Broker) -> None:
    first = secured.bootstrap_servers.split(",")[0]
    done = CliRunner().invoke(main, ["health", "-b", first])
    assert done.exit_code == 0, done.output
    assert f"{first} is healthy: it announces" in done.output


def test_health_by_a_configuration_looks_at_the_certificate(secured: package.Broker, write: Write) -> None:
    first = secured.bootstrap_servers.split(",")[0]
    arguments = ["health", "-b", first, "--command-config"]
    config = secured.client_config("alice", library="java")
    assert CliRunner().invoke(main, [*arguments, write(config)]).exit_code == 0
    config["ssl.truststore.location"] = (
        ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    )
    done = CliRunner().invoke(main, [*arguments, write(config)])
    assert (done.exit_code, "TLS fails" in done.output) == (1, True)
    done = CliRunner().invoke(main, [*arguments, write({"security.protocol": "SASL_SSL"})])
    assert (done.exit_code, "sasl.mechanism is GSSAPI" in done.output) == (2, True)
