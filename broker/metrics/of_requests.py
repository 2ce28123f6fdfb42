"""What was counted of requests, under the names of Kafka's JMX exporter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.metrics.families import Family, Observed, counter, summary
from broker.metrics.request_metrics import RequestMetrics
from protocol.error_codes import error_name

_BY_TOPIC: Final = (
    ("messagesin", "messages_in", "Records that producers have appended."),
    ("bytesin", "bytes_in", "Bytes of records that producers have appended."),
    ("bytesout", "bytes_out", "Bytes of records that were sent to consumers."),
    ("totalproducerequests", "produce_requests", "Produce requests."),
    ("failedproducerequests", "failed_produce_requests", "Produce requests of which a partition failed."),
    ("totalfetchrequests", "fetch_requests", "Fetch requests."),
    ("failedfetchrequests", "failed_fetch_requests", "Fetch requests of which a partition failed."),
)
_TIMES: Final = (
    ("totaltimems", "total_us", "Time from the arrival of a request to its response, in milliseconds."),
    (
        "localtimems",
        "local_us",
        "Time until the handler responded or began to wait, in milliseconds.",
    ),
    (
        "remotetimems",
        "remote_us",
        "Time in which the handler waited for replicas, data or members, in milliseconds.",
    ),
)


def families(metrics: RequestMetrics) -> Iterator[Family]:
    yield counter(
        "kafka_network_requestmetrics_requests",
        "Requests, by API and version.",
        ("broker_id", "request", "version"),
        metrics.requests.items(),
    )
    yield counter(
        "kafka_network_requestmetrics_errors",
        "Error codes in responses, by API; NONE is one of them.",
        ("broker_id", "request", "error"),
        (((node, api, error_name(code)), count) for (node, api, code), count in metrics.errors.items()),
    )
    for name, field, says in _TIMES:
        yield summary(
            f"kafka_network_requestmetrics_{name}",
            says,
            ("broker_id", "request"),
            (
                (key, Observed(times.count, tuple(each / 1000 for each in getattr(times, field))))
                for key, times in metrics.times.items()
            ),
        )
    for name, field, says in _BY_TOPIC:
        yield counter(
            f"kafka_server_brokertopicmetrics_{name}",
            says,
            ("broker_id", "topic"),
            ((key, getattr(counts, field)) for key, counts in metrics.topics.items()),
        )
    yield counter(
        "odradek_fenced_producers",
        "Responses that told a producer that a newer one has its transactional id.",
        ("broker_id", "error"),
        (((node, error_name(code)), count) for (node, code), count in metrics.fenced.items()),
    )
