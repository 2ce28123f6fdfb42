"""Spans of a broker's requests, as an OpenTelemetry SDK exports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from confluent_kafka import Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from odradek import Broker
from tests.support.deadlines import HANG_S


@contextmanager
def collector() -> Iterator[tuple[str, list[Span]]]:
    """An OTLP/HTTP server: its URL, and the list of spans that it has received."""
    got: list[Span] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = ExportTraceServiceRequest()
            body.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            for resource in body.resource_spans:
                for scope in resource.scope_spans:
                    got.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join(HANG_S)


def attributes(span: Span) -> dict[str, object]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
        for each in span.attributes
    }


def test_a_transaction_is_a_span_with_its_requests_inside() -> None:
    with collector() as (url, got):
        settings = {"odradek.otel.endpoint": url}
        with Broker(topics={"orders": 1}, settings=settings) as broker:
            producer = Producer(
                {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payments"}
            )
            producer.init_transactions(HANG_S)
            for _ in range(2):
                producer.begin_transaction()
                producer.produce("orders", b"one")
                producer.commit_transaction(HANG_S)
            broker.faults.add("EndTxn", nth=1, do="error", code="COORDINATOR_NOT_AVAILABLE")
            producer.begin_transaction()
            producer.produce("orders", b"two")
            producer.flush(HANG_S)
            producer.abort_transaction(HANG_S)
        around = [span for span in got if span.name == "transaction payments"]
        assert [attributes(span)["kafka.transaction.end"] for span in around] == ["commit", "commit", "abort"]
        assert len({span.trace_id for span in around}) == 3
        inside = [
            Counter(span.name for span in got if span.parent_span_id == each.span_id) for each in around
        ]
        for each in inside:
            assert each["Produce"] == 1
        assert [each["EndTxn"] for each in inside] == [1, 1, 2]
        (failed,) = [span for span in got if span.name == "EndTxn" and span.status.code]
        assert failed.status.message == "COORDINATOR_NOT_AVAILABLE"
        (init,) = [span for span in got if span.name == "InitProducerId"]
        assert not init.parent_span_id
        assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in got)


def test_a_collector_that_is_not_there_delays_no_request() -> None:
    settings = {"odradek.otel.endpoint": "http://127.0.0.1:9/v1/traces"}
    with Broker(topics={"orders": 1}, settings=settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(100):
            producer.produce("orders", str(number))
        assert producer.flush(HANG_S) == 0
