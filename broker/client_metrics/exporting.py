"""The exporter that logs clients' metrics, one line per push (odradek.client.telemetry.exporter=log)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from broker.client_metrics.instance import UNCOMPRESSED, Push
from broker.config.definitions import EXPORTER_LOG
from broker.logging import get_logger
from protocol.compression import decompress

if TYPE_CHECKING:
    from broker.client_metrics.manager import Exporter
    from broker.config import BrokerConfig

POINTS_MAX: Final = 1_000
"""Maximum number of metrics of one push in a log line. The line's field ``more_metrics`` counts the omitted metrics."""

log = get_logger()


class MissingPackage(Exception):
    """A Python package that the configured exporter needs is not installed. The exception's text is for the user."""


def check_exporter(config: BrokerConfig) -> None:
    """Raise `MissingPackage` if the configured exporter needs a package that is not installed."""
    if config.client_telemetry_exporter == EXPORTER_LOG and find_spec("opentelemetry") is None:
        raise MissingPackage(
            f"odradek.client.telemetry.exporter={EXPORTER_LOG} needs the package opentelemetry-proto: "
            "pip install 'odradek[telemetry]'"
        )


def exporter_of(config: BrokerConfig) -> Exporter | None:
    """Return the configured exporter; None if no exporter is configured."""
    return LogExporter() if config.client_telemetry_exporter == EXPORTER_LOG else None


class LogExporter:
    """Exporter that logs one line for each push: the client, and its metrics by name and labels."""

    def export(
        self, instance_id: UUID, parameters: Mapping[str, str], push: Push, metrics: bytes, bytes_max: int
    ) -> None:
        if push.compression_type != UNCOMPRESSED:
            metrics = decompress(push.compression_type, metrics, bytes_max)
        points = dict(_points(metrics))
        shown = dict(list(points.items())[:POINTS_MAX])
        more = {"more_metrics": len(points) - len(shown)} if len(points) > len(shown) else {}
        log.info("client metrics", **parameters, terminating=push.is_terminating, metrics=shown, **more)


def _points(metrics: bytes) -> Iterator[tuple[str, float]]:
    # The import takes 40 ms, and the library is an optional dependency.
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    data.ParseFromString(metrics)
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                for point in getattr(metric, kind).data_points if kind else ():
                    yield _name(metric.name, point.attributes), _value(kind, point)


def _name(name: str, attributes: Any) -> str:
    """Metric name with labels in Prometheus's syntax: ``org.apache.kafka.producer.node.request.latency.avg{node_id=1}``."""
    labels = ",".join(f"{each.key}={_label(each.value)}" for each in attributes)
    return f"{name}{{{labels}}}" if labels else name


def _label(value: Any) -> str:
    kind = value.WhichOneof("value")
    return "" if kind is None else str(getattr(value, kind))


def _value(kind: str, point: Any) -> float:
    """Value of an OTLP data point; for a histogram or summary, the sum of its measurements."""
    if kind in ("gauge", "sum"):
        return float(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)
    return float(point.sum)
