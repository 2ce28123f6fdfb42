"""Metric families of the counted requests, with the names of Kafka's JMX exporter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lab.metrics.families import Family, Observed, counter, summary
from lab.metrics.request_metrics import RequestMetrics
from protocol.error_codes import error_name

_BY_TOPIC: Final = (
    ("messagesin", "messages_in"),
    ("bytesin", "bytes_in"),
    ("bytesout", "bytes_out"),
    ("totalproducerequests", "produce_requests"),
    ("failedproducerequests", "failed_produce_requests"),
    ("totalfetchrequests", "fetch_requests"),
    ("failedfetchrequests", "failed_fetch_requests"),
    ("totalsharefetchrequests", "share_fetch_requests"),
    ("failedsharefetchrequests", "failed_share_fetch_requests"),
    ("totalshareacknowledgementrequests", "share_acknowledge_requests"),
    ("failedshareacknowledgementrequests", "failed_share_acknowledge_requests"),
)
_TIMES: Final = (
    ("totaltimems", "total_us"),
    ("localtimems", "local_us"),
    ("remotetimems", "remote_us"),
)
ACKNOWLEDGE_TYPES: Final = ("Gap", "Accept", "Release", "Reject", "Renew")


def families(metrics: RequestMetrics) -> Iterator[Family]:
    yield counter(
        "kafka_network_requestmetrics_requests",
        ("broker_id", "request", "version"),
        metrics.requests.items(),
    )
    yield counter(
        "kafka_network_requestmetrics_errors",
        ("broker_id", "request", "error"),
        (((node, api, error_name(code)), count) for (node, api, code), count in metrics.errors.items()),
    )
    for name, field in _TIMES:
        yield summary(
            f"kafka_network_requestmetrics_{name}",
            ("broker_id", "request"),
            (
                (key, Observed(times.count, tuple(each / 1000 for each in getattr(times, field))))
                for key, times in metrics.times.items()
            ),
        )
    for name, field in _BY_TOPIC:
        yield counter(
            f"kafka_server_brokertopicmetrics_{name}",
            ("broker_id", "topic"),
            ((key, getattr(counts, field)) for key, counts in metrics.topics.items()),
        )
    yield counter(
        "kafka_server_sharegroupmetrics_recordacknowledgements",
        ("broker_id", "acktype"),
        (((node, ACKNOWLEDGE_TYPES[kind]), count) for (node, kind), count in metrics.acknowledged.items()),
    )
    yield counter("odradek_share_deliveries", ("broker_id", "topic"), metrics.delivered.items())
    yield counter(
        "odradek_fenced_producers",
        ("broker_id", "error"),
        (((node, error_name(code)), count) for (node, code), count in metrics.fenced.items()),
    )
