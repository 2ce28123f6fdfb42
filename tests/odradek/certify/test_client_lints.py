"""Lints about a client library are distinguished from lints about the job."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.certify.lints.clients import only_broker_dropped
from tests.odradek.certify.traces import entry, produce, trace

LOST = produce("out", tx="a") | {"outcome": "answer_lost"}


def metadata(brokers: int = 1) -> dict[str, Any]:
    return entry("Metadata", answer={"brokers": [{"node_id": each} for each in range(brokers)]})


def client(name: str, version: str) -> dict[str, Any]:
    return entry("ApiVersions", {"client_software_name": name, "client_software_version": version})


@pytest.mark.parametrize(
    ("name", "version"), [("librdkafka", "2.10.0"), ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0")]
)
def test_librdkafka_on_a_single_broker_is_named(name: str, version: str) -> None:
    found = only_broker_dropped(trace(client(name, version), metadata(), LOST))
    assert found is not None
    assert only_broker_dropped(trace(client(name, version), metadata(), LOST), exits=[(1, 1)]) is None
    assert "librdkafka 2.1" in found.sentence
    assert found.example == "Produce a"


@pytest.mark.parametrize(
    "entries",
    [
        [client("librdkafka", "2.9.1"), metadata(), LOST],
        [client("apache-kafka-java", "4.3.1"), metadata(), LOST],
        [client("librdkafka", "2.16.0"), metadata(3), LOST],
        [client("librdkafka", "2.16.0"), metadata(), produce("out", tx="a")],
    ],
)
def test_other_clients_other_clusters_and_whole_connections_are_not(entries: list[dict[str, Any]]) -> None:
    assert only_broker_dropped(trace(*entries)) is None


def test_a_connection_that_ends_with_the_job_does_not_count_as_broken() -> None:
    """A connection that closes with a pending request at the end of the trace is not reported as broken.

    The certifier closes it when it kills a stuck job.
    """
    told = [client("librdkafka", "2.16.0"), metadata()]
    waits = entry("Fetch") | {"outcome": "connection_gone"}
    assert only_broker_dropped(trace(*told, waits)) is None
    assert only_broker_dropped(trace(*told, waits, entry("Heartbeat", peer="127.0.0.1:5001"))) is not None


def test_a_client_that_reconnects_has_not_dropped_its_broker() -> None:
    told = [client("librdkafka", "2.16.0"), metadata()]
    commit = entry("OffsetCommit", {"group_id": "g"})
    again = entry("Heartbeat", {"group_id": "g"}, peer="127.0.0.1:5001")
    other = entry("Heartbeat", {"group_id": "other"}, peer="127.0.0.1:5001")
    lost = commit | {"outcome": "answer_lost"}
    assert only_broker_dropped(trace(*told, lost, again)) is None
    assert only_broker_dropped(trace(*told, lost, other)) is not None
