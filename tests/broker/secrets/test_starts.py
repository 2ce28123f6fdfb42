"""Neither the error of a failed start nor the log of a successful start contains a secret."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import click
import pytest

from broker import logging as broker_logging
from broker.cluster import Cluster, StartError
from broker.config import load_config
from broker.config.settings import Settings
from broker.logging.configuration import forget
from broker.security.tls.authority import Authority, local_hosts
from broker.security.tls.directory import write_directory
from lab.control.access import Tokens
from server.options import parse
from tests.broker.secrets.planted import PLANTED, shown

SECRET = PLANTED["plain-password"]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
TLS = {"listeners": "SSL://127.0.0.1:0"}
SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority.create(datetime.now(UTC))
    server = authority.issue("localhost", local_hosts())
    write_directory(folder, authority, server, authority.issue("alice", client=True), "password")
    (folder / "encrypted.pem").write_bytes(server.key_pem("password") + server.chain_pem())
    (folder / "control.pem").write_bytes(server.key_pem("password") + server.chain_pem())
    return folder


async def said_by_a_start(arguments: Sequence[str], environ: Mapping[str, str], folder: Path) -> str:
    """Start a broker. Returns everything that its error could show or log, "" if the start succeeds."""
    try:
        settings = parse(["--data-dir", str(folder / "data"), *arguments], environ)
    except click.ClickException as refused:
        return f"{refused.format_message()} {refused!r} {''.join(traceback.format_exception(refused))}"
    cluster = Cluster(settings)
    try:
        await cluster.start()
    except StartError as refused:
        return f"{refused} {refused!r} {''.join(traceback.format_exception(refused))}"
    await cluster.stop()
    return ""


REFUSED: dict[str, Mapping[str, str]] = {
    "a login module without its flag": {**SASL, JAAS: f'{PLAIN} user_alice="{SECRET}";'},
    "a login module that does not end": {**SASL, JAAS: f'{PLAIN} required user_alice="{SECRET}"'},
    "a password without its name": {**SASL, JAAS: f'{PLAIN} required "{SECRET}";'},
    "no key store": {**TLS, "ssl.keystore.password": SECRET},
    "a key store that is not there": {
        **TLS,
        "ssl.keystore.location": "/nothing/there.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": SECRET,
    },
    "a wrong password of a PKCS12": {
        **TLS,
        "ssl.keystore.location": "{files}/server.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": SECRET,
    },
    "a wrong password of a JKS": {
        **TLS,
        "ssl.keystore.location": "{files}/server.jks",
        "ssl.keystore.password": SECRET,
    },
    "a wrong password of a key": {
        **TLS,
        "ssl.keystore.location": "{files}/encrypted.pem",
        "ssl.keystore.type": "PEM",
        "ssl.key.password": SECRET,
    },
    "a wrong password of a trust store": {
        **TLS,
        "ssl.keystore.location": "{files}/server.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": "password",
        "ssl.truststore.location": "{files}/truststore.p12",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": SECRET,
    },
    "a key that is none": {
        **TLS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        "ssl.keystore.certificate.chain": SECRET,
    },
    "something else": {
        "num.partitions": "many",
        "ssl.key.password": SECRET,
        "delegation.token.secret.key": SECRET,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "odradek.control.token": SECRET,
    },
    "a setting of an unknown node": {"odradek.node.2.ssl.key.password": SECRET},
    "a name that is not known": {"ssl.key.pasword": SECRET},
    "a name of ours that is not known": {"odradek.control.tokens": SECRET},
}
BY_CONTROL_PORT: dict[str, Mapping[str, str]] = {
    "a token that cannot be sent": {"odradek.control.token": f"{SECRET}é"},
    "the same token twice": {"odradek.control.token": SECRET, "odradek.control.token.stage": SECRET},
}


@pytest.mark.parametrize("case", [*REFUSED, *BY_CONTROL_PORT])
async def test_a_refused_start_says_no_secret(case: str, files: Path, tmp_path: Path) -> None:
    more = ["--control-port", "0"] if case in BY_CONTROL_PORT else []
    settings = {**REFUSED, **BY_CONTROL_PORT}[case]
    for name, value in settings.items():
        more += ["--set", f"{name}={value.replace('{files}', str(files))}"]
    said = await said_by_a_start(more, {}, tmp_path)
    assert said
    assert not shown(said.encode(), [SECRET.encode()])


@pytest.mark.parametrize(
    "assignment", [f"={SECRET}", f"ssl.key.password:{SECRET}", f"ssl.key.password {SECRET}"]
)
async def test_a_setting_in_a_wrong_form_is_not_repeated(assignment: str, tmp_path: Path) -> None:
    said = await said_by_a_start(["--set", assignment], {}, tmp_path)
    assert "expected KEY=VALUE" in said
    assert not shown(said.encode(), [SECRET.encode()])


@pytest.mark.parametrize("variable", ["KAFKA_MY_PASSWORD", "KAFKA_SSL_KEY_PASWORD"])
def test_a_warning_names_a_setting_without_its_value(variable: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"my.password={SECRET}\ncreate.topic.policy.class.name=a.B\n")
    _, warnings = load_config(file, {variable: SECRET}, {})
    assert {"my.password", "create.topic.policy.class.name"} <= {
        word for each in warnings for word in each.split()
    }
    assert not shown("".join(warnings).encode(), [SECRET.encode()])


def test_settings_can_be_printed(tmp_path: Path) -> None:
    names = ("ssl.key.password", "delegation.token.secret.key", "sasl.jaas.config")
    given = {
        **dict.fromkeys((*names, "odradek.control.token"), SECRET),
        "odradek.control.token.look": f"{SECRET}s",
    }
    arguments = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    settings: Settings = parse([*arguments, "--control-port", "0"], {})
    for each in (settings, settings.config, Tokens(SECRET, SECRET)):
        assert not shown(repr(each).encode(), [SECRET.encode()])


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_a_traceback_has_no_values(log_format: str) -> None:
    """A logged traceback has the source lines, but no values of variables."""
    stream = StringIO()
    broker_logging.configure(log_format, "debug", stream)
    try:
        fail(SECRET)
    except ZeroDivisionError:
        broker_logging.get_logger().exception("request failed", api="sasl_authenticate")
    broker_logging.configuration.close()
    forget()
    assert "ZeroDivisionError" in stream.getvalue()
    assert "fail(SECRET)" in stream.getvalue()
    assert not shown(stream.getvalue().encode(), [SECRET.encode()])


def fail(password: str) -> float:
    return len(password) / 0
