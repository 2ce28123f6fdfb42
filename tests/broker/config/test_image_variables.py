"""Environment variables that the start scripts of other Kafka images convert to settings."""

from pathlib import Path

import pytest

from broker.config import load_config
from broker.config.image_variables import secrets_of
from storage.config_def import ConfigError

TLS = {
    "KAFKA_ADVERTISED_LISTENERS": "SASL_SSL://kafka:9093",
    "KAFKA_SSL_KEYSTORE_FILENAME": "kafka.p12",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "keystore_creds",
    "KAFKA_SSL_KEY_CREDENTIALS": "key_creds",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "trust.p12",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "trust_creds",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("kafka.p12", "trust.p12"):
        (tmp_path / name).touch()
    for name in ("keystore_creds", "key_creds", "trust_creds"):
        (tmp_path / name).write_text(f"of {name}\n")
    return tmp_path


def secrets(environ: dict[str, str], folder: Path) -> dict[str, str]:
    return {each.name: each.value for each in secrets_of(environ, folder)}


def test_the_key_store_and_its_passwords_come_from_files(folder: Path):
    assert secrets(TLS, folder) == {
        "ssl.keystore.location": str(folder / "kafka.p12"),
        "ssl.keystore.password": "of keystore_creds",
        "ssl.key.password": "of key_creds",
    }


@pytest.mark.parametrize("client_auth", ["required", "requested"])
def test_the_trust_store_comes_where_clients_are_asked_for_certificates(folder: Path, client_auth: str):
    found = secrets({**TLS, "KAFKA_SSL_CLIENT_AUTH": client_auth}, folder)
    assert found["ssl.truststore.location"] == str(folder / "trust.p12")
    assert found["ssl.truststore.password"] == "of trust_creds"


def test_without_a_listener_that_is_advertised_with_tls_no_file_is_read(folder: Path):
    environ = {**TLS, "KAFKA_ADVERTISED_LISTENERS": "SASL_PLAINTEXT://kafka:9093"}
    assert secrets(environ, folder / "nothing") == {}
    assert load_config(None, {**environ, "KAFKA_LISTENERS": "SASL_PLAINTEXT://:9093"}, {})[1] == []


def test_a_file_that_is_missing_is_named(folder: Path):
    (folder / "key_creds").unlink()
    with pytest.raises(
        ConfigError, match=r"KAFKA_SSL_KEY_CREDENTIALS: .*key_creds: No such file or directory"
    ):
        secrets(TLS, folder)


def test_a_secret_is_not_shown(folder: Path):
    assert "of key_creds" not in repr(list(secrets_of(TLS, folder)))


def test_variables_of_bitnami_are_settings():
    environ = {
        "KAFKA_CFG_NUM_PARTITIONS": "7",
        "KAFKA_CFG_LISTENER_NAME_SASL_SSL_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_CFG_LOG_DIRS": "",
    }
    config, warnings = load_config(None, environ, {})
    assert config.num_partitions == 7
    assert config.values["listener.name.sasl_ssl.sasl.enabled.mechanisms"] == ("PLAIN",)
    assert warnings == []
