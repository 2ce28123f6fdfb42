"""Client metrics (KIP-714) of one node. tests/differential compares the responses with Kafka's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog

from broker.client_metrics import manager as module
from broker.client_metrics.exporting import POINTS_MAX, LogExporter, MissingPackage, check_exporter
from broker.client_metrics.instance import Push
from broker.client_metrics.manager import EXPIRY_MS_MIN, ClientMetricsManager
from broker.config import broker_config
from broker.metadata.image import Image
from broker.metadata.values import METRICS_RESOURCE
from protocol.compression import compress
from protocol.errors import ErrorCode
from tests.support.clock import FakeClock

ETL = {"client_id": "etl-1", "client_software_name": "librdkafka"}
BYTES_MAX = 10_000
GZIP = 1


class Exported:
    def __init__(self) -> None:
        self.pushes: list[tuple[UUID, bytes]] = []

    def export(
        self, instance_id: UUID, parameters: Mapping[str, str], push: Push, metrics: bytes, bytes_max: int
    ) -> None:
        self.pushes.append((instance_id, metrics))


class Node:
    def __init__(self) -> None:
        self.image, self.clock, self.exporter = Image(), FakeClock(), Exported()
        self.manager = ClientMetricsManager(self.image, self.clock, uuid4, BYTES_MAX, self.exporter)

    def subscribe(self, name: str, **configs: str) -> None:
        self.image.configs[METRICS_RESOURCE, name] = {
            key.replace("_", "."): value for key, value in configs.items()
        }
        self.manager.on_config_changed(METRICS_RESOURCE, name)

    def get(self, instance: UUID, connection: int = 1) -> tuple[ErrorCode, int]:
        error, _, requested = self.manager.get(instance, connection, ETL)
        return error, requested.push_interval_ms

    def push(self, instance: UUID, connection: int = 1, metrics: bytes = b"m") -> ErrorCode:
        _, _, requested = self.manager.get(instance, connection, ETL)
        return self.manager.push(
            instance, connection, ETL, Push(requested.subscription_id, False, 0, len(metrics)), metrics
        )


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_client_gets_the_metrics_of_its_subscriptions(node: Node):
    one = uuid4()
    node.subscribe("others", metrics="never", match="client_id=other.*")
    node.subscribe("slow", metrics="a,b", interval_ms="600000")
    node.subscribe("quick", metrics="c", interval_ms="200", match="client_id=etl-.")
    error, _, requested = node.manager.get(one, 1, ETL)
    assert (error, requested.metrics, requested.push_interval_ms) == (ErrorCode.none, ("a", "b", "c"), 200)


def test_a_client_that_is_too_early_is_refused_until_its_interval_is_over(node: Node):
    one = uuid4()
    node.subscribe("quick", metrics="*", interval_ms="200")
    assert node.push(one) == ErrorCode.none
    assert node.push(one) == ErrorCode.throttling_quota_exceeded
    assert node.get(one)[0] == ErrorCode.throttling_quota_exceeded
    node.clock.advance(200)
    assert node.push(one) == ErrorCode.none
    assert node.exporter.pushes == [(one, b"m")] * 2


def test_a_changed_subscription_applies_at_once(node: Node):
    one = uuid4()
    assert node.get(one) == (ErrorCode.none, 300_000)
    assert node.get(one)[0] == ErrorCode.throttling_quota_exceeded
    node.subscribe("quick", metrics="*", interval_ms="200")
    assert node.get(one) == (ErrorCode.none, 200)


def test_a_client_instance_expires_with_its_connection_or_without_pushes(node: Node):
    one, two = uuid4(), uuid4()
    node.subscribe("quick", metrics="*", interval_ms="200")
    node.get(one, connection=1)
    node.get(two, connection=2)
    node.manager.on_disconnected(1)
    assert node.get(one, connection=3)[0] == ErrorCode.none
    assert node.get(two, connection=2)[0] == ErrorCode.throttling_quota_exceeded
    node.clock.advance(EXPIRY_MS_MIN)
    assert not node.manager._instances
    assert not node.manager._of_connection


def test_the_oldest_of_too_many_clients_is_forgotten(node: Node, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "INSTANCES_MAX", 2)
    clients = [uuid4() for _ in range(3)]
    for each in clients:
        node.get(each)
    assert list(node.manager._instances) == clients[1:]


# ---- log lines


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[MutableMapping[str, Any]]]:
    with structlog.testing.capture_logs() as captured:
        monkeypatch.setattr("broker.client_metrics.exporting.log", structlog.get_logger())
        monkeypatch.setattr("broker.client_metrics.manager.log", structlog.get_logger())
        yield captured


def metrics_data(**gauges: float) -> bytes:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name, value in gauges.items():
        point = scope.metrics.add(name=name).gauge.data_points.add(as_double=value)
        point.attributes.add(key="node_id").value.string_value = "1"
    sent = scope.metrics.add(name="sent")
    sent.sum.data_points.add(as_int=7)
    took = scope.metrics.add(name="took")
    took.histogram.data_points.add(sum=2.5, count=2)
    return data.SerializeToString()


def test_pushed_metrics_are_logged(lines: list[dict[str, object]]):
    data = compress(GZIP, metrics_data(latency=1.5))
    LogExporter().export(uuid4(), ETL, Push(1, True, GZIP, len(data)), data, BYTES_MAX)
    [line] = lines
    assert line["event"] == "client metrics"
    assert (line["client_id"], line["terminating"]) == ("etl-1", True)
    assert line["metrics"] == {"latency{node_id=1}": 1.5, "sent": 7.0, "took": 2.5}


def test_a_log_line_has_a_limited_number_of_metrics(lines: list[dict[str, object]]):
    data = metrics_data(**{f"m{number}": 1.0 for number in range(POINTS_MAX)})
    LogExporter().export(uuid4(), ETL, Push(1, False, 0, len(data)), data, BYTES_MAX)
    [line] = lines
    metrics = line["metrics"]
    assert isinstance(metrics, dict)
    assert (len(metrics), line["more_metrics"]) == (POINTS_MAX, 2)


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_invalid_metrics_are_rejected_and_logged(compression: int, lines: list[dict[str, object]]):
    node = Node()
    manager = ClientMetricsManager(node.image, node.clock, uuid4, BYTES_MAX, LogExporter())
    one = uuid4()
    _, _, requested = manager.get(one, 1, ETL)
    push = Push(requested.subscription_id, False, compression, 4)
    assert manager.push(one, 1, ETL, push, b"\xff\xff\xff\xff") == ErrorCode.invalid_record
    assert [line["event"] for line in lines] == ["client metrics not decoded"]


def test_a_start_without_the_exporter_s_packages_fails_with_their_names(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("broker.client_metrics.exporting.find_spec", lambda name: None)
    check_exporter(broker_config({}))
    with pytest.raises(MissingPackage, match=r"pip install 'odradek\[telemetry\]'"):
        check_exporter(broker_config({"odradek.client.telemetry.exporter": "log"}))
