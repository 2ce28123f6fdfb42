"""Client settings from the options that Spark passes to a data source."""

import pickle
import re
from dataclasses import fields
from pathlib import Path

import pytest

from odradek.spark.wire import BadSettings, ClientSettings
from odradek.spark.wire.network import parse_bootstrap

BOOTSTRAP = {"kafka.bootstrap.servers": "a:1"}
SECRETS = {
    "kafka.sasl.jaas.config": "hidden",
    "kafka.ssl.keystore.key": "hidden",
    "kafka.ssl.key.password": "hidden",
}


def test_options_in_any_case_become_settings():
    settings = ClientSettings.from_options(
        {
            "Kafka.Bootstrap.Servers": "a:1,b:2",
            "KAFKA.COMPRESSION.TYPE": "ZSTD",
            "kafka.batch.size": "1000",
            "topic": "t",
        }
    )
    assert (settings.bootstrap_servers, settings.compression_type) == ("a:1,b:2", "zstd")
    assert settings.batch_size_bytes == 1000
    assert settings.request_timeout_ms == 30_000


def test_settings_travel_to_executors_and_keep_secrets_to_themselves():
    settings = ClientSettings.from_options(BOOTSTRAP | SECRETS)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "hidden" not in repr(settings)
    assert settings.sasl_jaas_config == "hidden"


def test_an_unknown_option_is_ignored_with_one_warning():
    with pytest.warns(UserWarning, match=r"kafka\.foo, kafka\.linger\.ms$") as said:
        ClientSettings.from_options(BOOTSTRAP | {"kafka.linger.ms": "5", "kafka.foo": "1"})
    assert len(said) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        (BOOTSTRAP | {"kafka.batch.size": "much"}, "kafka.batch.size must be a whole number, not 'much'"),
        (BOOTSTRAP | {"kafka.batch.size": "-1"}, "kafka.batch.size must be above 0, not -1"),
        (BOOTSTRAP | {"kafka.compression.type": "rar"}, "none, gzip, snappy, lz4, zstd, not 'rar'"),
    ],
)
def test_wrong_settings_are_refused(options, sentence):
    with pytest.raises(BadSettings) as caught:
        ClientSettings.from_options(options)
    assert sentence in str(caught.value)


def test_addresses_are_read_as_kafka_reads_them():
    assert parse_bootstrap("a:1, PLAINTEXT://b.c:22,[::1]:9092,") == [("a", 1), ("b.c", 22), ("::1", 9092)]
    for wrong in ("a", "a:b", ":9092", ",a"):
        with pytest.raises(BadSettings, match="which is not host:port"):
            parse_bootstrap(wrong)


def test_the_page_has_every_option_with_its_default():
    page = (Path(__file__).parents[3] / "docs" / "spark" / "connection.md").read_text()
    told = dict(re.findall(r"^\| `(kafka\.[^`]+)` \| (?:`([^`]*)`)? ?\|", page, re.MULTILINE))
    known = {f"kafka.{each.metadata['name']}": str(each.default) for each in fields(ClientSettings)}
    assert told == known
