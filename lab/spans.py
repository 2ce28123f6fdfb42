"""OpenTelemetry spans: one for each request, and one around all requests of a transaction.

Spans have real times, whatever the broker's clock says, because they are shown beside the spans of clients. The SDK's own
thread sends them, and drops those that it cannot send in time. No request waits for it.

This module needs odradek[otel]. It is imported only if a collector is configured.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context

from broker.clock import SystemClock, stopwatch_us
from broker.net.calls import Call, CallEvent, CallInterceptors
from lab.trace.producer_facts import transactions_in
from protocol.error_codes import error_name
from protocol.versions import message_name

if TYPE_CHECKING:
    from lab.trace.exchange import TransactionFacts

END_TXN: Final = 26
INIT_PRODUCER_ID: Final = 22
BEGINNING: Final = frozenset({0, 24, 25, 28})
"""Produce, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit: requests that begin a transaction's span."""
OPEN_MAX: Final = 10_000
"""Largest number of open transaction spans. Another one ends the span of the least recently used transaction."""
EXPORT_S_MAX: Final = 1
"""Timeout of an export in seconds. If the collector does not respond, the spans are lost. A stop of the broker waits
for two exports at most."""
EVERY_MS: Final = 1000
NS_PER_US: Final = 1000
NS_PER_MS: Final = 1_000_000


class Spans:
    """Spans for all requests to the nodes, from the start on. ``close`` sends the spans that are still buffered."""

    def __init__(self, calls: CallInterceptors, endpoint: str) -> None:
        """``endpoint`` is the URL of an OTLP collector (OTLP over HTTP)."""
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "odradek"}), shutdown_on_exit=False
        )
        processor = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S_MAX), schedule_delay_millis=EVERY_MS
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("odradek")
        self._transactions: OrderedDict[str, Span] = OrderedDict()
        self._ahead_ns = SystemClock().now_ms() * NS_PER_MS - stopwatch_us() * NS_PER_US
        self._calls = calls
        calls.add(self, first=True)

    async def close(self) -> None:
        """End the spans of open transactions, and send all buffered spans."""
        self._calls.remove(self)
        while self._transactions:
            self._end_oldest()
        await asyncio.to_thread(self._provider.shutdown)

    # -- called by connections (`broker.net.calls.CallInterceptor`) ----------------------------------------------

    def wants(self, api_key: int) -> bool:
        return True

    def arrived(self, call: Call) -> bool:
        facts = transactions_in(call.header.api_key, call.request)
        one = facts[0] if len(facts) == 1 else None
        parent = None if one is None else self._transaction(call.header.api_key, one)
        span = self._tracer.start_span(
            message_name(call.route.api.name),
            context=None if parent is None else set_span_in_context(parent),
            kind=SpanKind.SERVER,
            attributes=_attributes(call, one),
            start_time=self._now_ns(),
        )
        call.watch(lambda of, event: self._happened(of, event, span, one))
        return True

    def answering(self, call: Call) -> bool:
        return True

    # -- spans --------------------------------------------------------------------------------------------------

    def _now_ns(self) -> int:
        return self._ahead_ns + stopwatch_us() * NS_PER_US

    def _transaction(self, api_key: int, facts: TransactionFacts) -> Span | None:
        """Return the span of the request's transaction; None if no transaction is open.

        A request in ``BEGINNING`` starts the span, InitProducerId ends the span of a transaction that was left
        open.
        """
        name = facts.transactional_id
        if name is None:
            return None
        if api_key == INIT_PRODUCER_ID:
            self._end(name, "left open")
            return None
        span = self._transactions.get(name)
        if span is None:
            if api_key not in BEGINNING:
                return None
            if len(self._transactions) >= OPEN_MAX:
                self._end_oldest()
            span = self._transactions[name] = self._tracer.start_span(
                f"transaction {name}",
                attributes={"messaging.system": "kafka", "kafka.transactional_id": name},
                start_time=self._now_ns(),
            )
        self._transactions.move_to_end(name)
        return span

    def _happened(self, call: Call, event: CallEvent, span: Span, facts: TransactionFacts | None) -> None:
        if event is CallEvent.HANDLED_ALONE:
            return
        if event in (CallEvent.HELD, CallEvent.DELAYED):
            span.add_event(event.value, timestamp=self._now_ns())
            return
        errors = [error_name(code) for code in dict.fromkeys(call.error_codes()) if code]
        if errors:
            span.set_attribute("kafka.errors", errors)
        if event is not CallEvent.ANSWERED:
            span.set_attribute("kafka.outcome", event.value)
        if errors or event in (CallEvent.KEPT_BACK, CallEvent.GONE):
            span.set_status(StatusCode.ERROR, ", ".join(errors) or event.value)
        span.end(end_time=self._now_ns())
        if call.header.api_key == END_TXN and not errors and facts is not None and call.response is not None:
            self._end(facts.transactional_id or "", "commit" if call.request.committed else "abort")

    def _end(self, transactional_id: str, how: str) -> None:
        span = self._transactions.pop(transactional_id, None)
        if span is not None:
            span.set_attribute("kafka.transaction.end", how)
            span.end(end_time=self._now_ns())

    def _end_oldest(self) -> None:
        self._end(next(iter(self._transactions)), "not seen")


def _attributes(call: Call, facts: TransactionFacts | None) -> Mapping[str, Any]:
    """Attributes named by OpenTelemetry's messaging conventions where these have a name, otherwise in Kafka's terms."""
    found: dict[str, Any] = {
        "messaging.system": "kafka",
        "client.address": call.connection.host,
        "client.port": call.connection.port,
        "kafka.broker_id": call.node.node_id,
        "kafka.api_version": call.header.api_version,
        "kafka.correlation_id": call.header.correlation_id,
    }
    if call.header.client_id is not None:
        found["messaging.client.id"] = call.header.client_id
    if facts is not None:
        if facts.transactional_id is not None:
            found["kafka.transactional_id"] = facts.transactional_id
        if facts.producer_id >= 0:
            found["kafka.producer_id"] = facts.producer_id
            found["kafka.producer_epoch"] = facts.producer_epoch
    return found
