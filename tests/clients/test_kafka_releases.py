"""Directories of earlier Kafka releases are opened by Odradek: stopped, killed, and upgraded by the present release.

Clients read from Odradek the records and metadata that they read from that release, and from the present
release on the same directory.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.record_directories import PROPERTIES
from tests.clients.test_kafka_directories import (
    FEATURES_OF_OURS,
    assert_same,
    finish_and_go_on,
    kafka_on_export,
)
from tests.support import content
from tests.support.broker import Broker, StartBroker
from tests.support.clients import ConfluentProducer, eventually, values
from tests.support.content import Asked, Body, Filled
from tests.support.kafka_oracle import Oracle, format_directory, started

RELEASES: Final = ("3.3.2", "3.4.1", "3.7.2", "3.9.1", "4.0.0", "4.1.1", "4.2.0", "4.3.1")
REMOVED: Final = {"message.format.version": "2.8", "message.downconversion.enable": "false"}
"""Topic settings that Kafka 4.0 has removed."""

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.xdist_group("jvm")]


class Written:
    """Three directories of a Kafka release: killed, stopped, and upgraded by the present release."""

    def __init__(self, home: Path, release: str) -> None:
        home.mkdir()
        self._home = home
        self.is_old = int(release.split(".")[0]) < 4
        settings = format_directory(home, PROPERTIES, transaction_version=None, release=release)
        with started(settings, release=release) as kafka:
            self.filled = self._fill(kafka)
            self.seen = content.observe(kafka.host, kafka.port)
            kafka.process.kill()
            kafka.process.wait()
        self.killed = self._copy("killed")
        with started(settings, release=release) as kafka:
            self.seen_again = content.observe(kafka.host, kafka.port)
        self.stopped = self._copy("stopped")
        with started(settings) as kafka:
            self.seen_by_latest = content.observe(kafka.host, kafka.port)
            upgrade(kafka)
            self.seen_upgraded = content.observe(kafka.host, kafka.port)
        self.upgraded = self._copy("upgraded")

    def _fill(self, kafka: Oracle) -> Filled:
        """Write content of all kinds, the open transaction last."""
        with Asked(kafka.host, kafka.port) as ask:
            ask("find_coordinator", 3, key="movers", key_type=0)
            own = {name.replace(".", "__"): value for name, value in REMOVED.items()} if self.is_old else {}
            ask.create("settings", 2, **own, retention__ms=1_234_567, cleanup__policy="compact,delete")
            ask.create("again", 1, retention__ms=1)
            ask("delete_topics", 4, topic_names=["again"], timeout=10_000)
            ask.create("again", 1, segment__ms=3_600_000)
        content.fill_compacted(kafka.host, kafka.port)
        content.await_cleaning(kafka.host, kafka.port)
        return content.fill(kafka.host, kafka.port, transaction_version=1 if self.is_old else 2)

    def _copy(self, name: str) -> Path:
        return Path(shutil.copytree(self._home / "data", self._home.parent / name))


def upgrade(kafka: Oracle) -> None:
    """Upgrade all features that Odradek has to the levels of this release."""
    with Asked(kafka.host, kafka.port) as ask:
        # Version 3 omits features whose minimum level is 0.
        versions = ask("api_versions", 4, client_software_name="tests", client_software_version="1")
        levels = {row["name"]: row["max_version"] for row in versions["supported_features"]}
        wanted = [
            {"feature": name, "max_version_level": levels[name], "upgrade_type": 1}
            for name in sorted(FEATURES_OF_OURS)
        ]
        ask("update_features", 1, timeout=10_000, feature_updates=wanted, validate_only=False)


def of_ours(seen: Body) -> Mapping[str, Any]:
    """Return ``seen`` without features that Odradek does not have, and without settings that Kafka 4.0 removed."""
    features = {name: level for name, level in seen["features"].items() if name in FEATURES_OF_OURS}
    configs = {
        topic: {name: value for name, value in own.items() if name not in REMOVED}
        for topic, own in seen["configs"].items()
    }
    # After a restart Kafka assigns the settings of a deleted topic to the next topic of the same name, if it reads both in
    # one delta (``ConfigurationsDelta`` looks the settings up in the image before the delta).
    configs["again"] = {name: value for name, value in configs["again"].items() if name != "retention.ms"}
    return {**seen, "features": features, "configs": configs}


@pytest.fixture(scope="module", params=RELEASES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("releases") / "kafka", request.param)


def assert_seen(broker: Broker, *expected: Body) -> None:
    seen = content.observe(broker.host, broker.port)
    for each in expected:
        assert_same(of_ours(each), seen)


def test_a_transaction_of_a_killed_release_is_committed(
    written: Written, start_broker: StartBroker, tmp_path: Path
) -> None:
    """A transaction that was open when an earlier Kafka release was killed is committed with Odradek.

    Kafka then reads the same content from the directory.
    """
    broker = start_broker(data_dir=written.killed)
    assert written.seen["configs"]["settings"]["retention.ms"] == "1234567"
    assert_seen(broker, written.seen)
    finish_and_go_on(broker, written.filled)
    expected = content.observe(broker.host, broker.port)
    broker.terminate()
    with kafka_on_export(written.killed, tmp_path / "exported") as kafka:
        assert_same(of_ours(expected), of_ours(content.observe(kafka.host, kafka.port)))


def test_a_transaction_of_a_stopped_release_is_aborted(written: Written, start_broker: StartBroker) -> None:
    broker = start_broker(data_dir=written.stopped)
    assert_seen(broker, written.seen_again, written.seen_by_latest)
    abort(broker)


def test_a_transaction_of_an_upgraded_release_is_aborted(written: Written, start_broker: StartBroker) -> None:
    broker = start_broker(data_dir=written.upgraded)
    assert_seen(broker, written.seen_upgraded)
    abort(broker)


def abort(broker: Broker) -> None:
    """Abort the open transaction, by InitProducerId with its transactional id."""
    producer = ConfluentProducer(broker.bootstrap, transactional_id=content.OPEN_ID)
    producer.init()
    eventually(lambda: content.undecided(broker.host, broker.port) == [], "no transaction is open")
    producer.begin()
    producer.send("flow", ["new"])
    producer.commit()
    producer.close()
    read = values(broker.bootstrap, "flow")
    assert ("new" in read, "undecided" in read) == (True, False)
