"""The command line of the proxy."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from proxy.options import parse


def test_the_upstream_is_a_list_of_addresses() -> None:
    assert parse(["--upstream", "kafka-1:9092, [::1]:9093"], {}).upstream == (
        ("kafka-1", 9092),
        ("::1", 9093),
    )
    assert parse([], {"ODRADEK_UPSTREAM": "kafka:9092"}).upstream == (("kafka", 9092),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the address of a node of the cluster is missing"),
        (["--upstream", "kafka"], "--upstream kafka: expected HOST:PORT"),
        (["--upstream", ":9092"], "expected HOST:PORT"),
        (["--upstream", "kafka:70000"], "expected HOST:PORT"),
        (["--upstream", "k:1", "--control-host", "0.0.0.0"], "there is no control port"),
        (["--upstream", "k:1", "--control-port", "0", "--control-host", "0.0.0.0"], "requires a token"),
        (["--upstream", "k:1", "--upstream-key-file", __file__], "a key needs its certificate"),
        (["--upstream", "k:1", "--upstream-ca-file", __file__], "--upstream-ca-file"),
        (["--upstream", "k:1", "--upstream-cert-file", __file__], "--upstream-cert-file"),
        (["--upstream", "k:1", "--data-dir", "/tmp"], "No such option"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(arguments: list[str], message: str) -> None:
    with pytest.raises(click.ClickException) as refused:
        parse(arguments, {})
    assert message in refused.value.format_message()


def test_every_address_advertises_this_machine() -> None:
    assert parse(["--upstream", "k:1", "--host", "0.0.0.0"], {}).advertised_host == "localhost"
    assert parse(["--upstream", "k:1", "--host", "10.0.0.1"], {}).advertised_host == "10.0.0.1"


def test_the_control_port_of_a_container_is_for_other_machines() -> None:
    environ = {"ODRADEK_CONTROL_HOST": "0.0.0.0", "ODRADEK_CONTROL_TOKEN": "s"}
    control = parse(["--upstream", "k:1", "--control-port", "1"], environ).control
    assert control is not None
    assert control.host == "0.0.0.0"
    assert parse(["--upstream", "k:1"], environ).control is None


def test_a_service_of_kubernetes_opens_no_control_port() -> None:
    environ = {"ODRADEK_CONTROL_PORT": "tcp://10.96.0.1:1", "ODRADEK_CONTROL_SERVICE_HOST": "10.96.0.1"}
    assert parse(["--upstream", "k:1"], environ).control is None


def test_without_tls_options_there_is_no_tls(tmp_path: Path) -> None:
    assert parse(["--upstream", "k:1"], {}).tls is None
    assert parse(["--upstream", "k:1", "--upstream-tls"], {}).tls is not None


def test_rules_come_from_options_and_the_variable() -> None:
    settings = parse(
        ["--upstream", "k:1", "--fault", "EndTxn -> lose-answer"],
        {"ODRADEK_FAULTS": "Fetch -> drop; Produce -> drop"},
    )
    assert settings.faults == ("EndTxn -> lose-answer", "Fetch -> drop", "Produce -> drop")


def test_the_control_port_takes_the_variables_of_the_broker_s() -> None:
    environ = {
        "ODRADEK_CONTROL_TOKEN_LOOK": "of-look",
        "ODRADEK_CONTROL_TLS_CERTIFICATE": "server.pem",
        "ODRADEK_CONTROL_TLS_KEY": "server.key",
    }
    arguments = ["--upstream", "k:1", "--control-port", "0", "--control-host", "0.0.0.0"]
    settings = parse(arguments, environ)
    assert (settings.control_token, settings.control_look_token) == ("", "of-look")
    assert (settings.control_tls_certificate, settings.control_tls_key) == ("server.pem", "server.key")
    assert "of-look" not in repr(settings)


def test_a_misspelt_token_is_refused_and_what_is_not_of_security_is_passed_over() -> None:
    with pytest.raises(click.ClickException) as refused:
        parse(["--upstream", "k:1"], {"ODRADEK_CONTROL_TOKN": "secret"})
    assert "did you mean ODRADEK_CONTROL_TOKEN?" in refused.value.format_message()
    assert "secret" not in refused.value.format_message()
    parse(["--upstream", "k:1"], {"ODRADEK_PYTHON": "3", "KAFKA_NUM_PARTITION": "3", "ODRADEK_SASL": "a:b"})
